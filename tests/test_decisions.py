"""One agent is judged alike, whichever entrance recorded it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gateway_world import world
from otlp_spans import CHAT, decoded, one, only

import whet
from whet.judge import env_reward, exact, fewer_steps, latency, matches, score
from whet.judge.tool_use import ToolUse
from whet.models.base import Completion, ModelRequest, ToolCall
from whet.models.fakes import ScriptedServer
from whet.record.env import StepResult, Transition, rollout
from whet.record.exchange.formats import from_transitions, trajectory_from_json
from whet.record.policy import Action, FunctionPolicy
from whet.record.store import Store
from whet.record.tracing import collecting, flush
from whet.record.tracing.assemble import Assembler
from whet.record.tracing.tool_calls import decisions, tool_calls
from whet.types import Failure, Fault, Outcome, Step, Task, Trajectory, Usage

TASK = Task(
    instruction="Where is the invoice?",
    answer="In folder 3.",
    meta={
        "required_calls": [
            {"name": "search", "arguments": {"query": "invoice"}},
            {"name": "open", "arguments": {"id": 3}, "after": [0]},
        ]
    },
)
ANSWER = "In folder 3."
Plan = Sequence[tuple[str, dict[str, Any]]]
GOOD: Plan = [("search", {"query": "invoice"}), ("open", {"id": 3})]
LOOPING: Plan = [("search", {"query": "invoice"})] * 4
RESULTS = {"search": "found 3", "open": "folder 3"}
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in RESULTS
]


def model(plan: Plan) -> Callable[[ModelRequest], Completion]:
    """A model that asks for one call of the plan after the other, and then answers."""

    def answer(request: ModelRequest) -> Completion:
        done = sum(message["role"] == "tool" for message in request.messages)
        usage = Usage(10, 2, calls=1)
        if done == len(plan):
            return Completion(text=ANSWER, usage=usage)
        name, given = plan[done]
        call = ToolCall(name=name, arguments=json.dumps(given), id=f"call_{done}")
        return Completion(tool_calls=[call], usage=usage, finish="tool_calls")

    return answer


def conversation(client: Any, call: Callable[[str, dict[str, Any]], str]) -> str:
    """The loop that every agent of a chat API has."""
    messages: list[Any] = [{"role": "user", "content": TASK.instruction}]
    while True:
        said = client.chat.completions.create(model="scripted", messages=messages, tools=TOOLS)
        message = said.choices[0].message
        if not message.tool_calls:
            return str(message.content)
        messages.append(message.model_dump(exclude_none=True))
        for asked in message.tool_calls:
            found = call(asked.function.name, json.loads(asked.function.arguments))
            messages.append({"role": "tool", "tool_call_id": asked.id, "content": found})


@whet.step(kind="tool", effect="read")
def search(query: str) -> str:
    return RESULTS["search"]


class Folders:
    @whet.step("open", kind="tool", effect="read")
    async def look(self, id: int) -> str:
        return RESULTS["open"]


async def agent(question: str, plan: Plan) -> str:
    for name, given in plan:
        if name == "search":
            search(**given) if len(plan) > 2 else search(given["query"])
        else:
            await Folders().look(given["id"])
    return ANSWER


def traced(plan: Plan, tmp_path: Path) -> Trajectory:
    with Store(tmp_path / "traced.db") as store:

        @whet.trace(store)
        async def asked(question: str) -> str:
            return await agent(question, plan)

        asyncio.run(asked(TASK.instruction))
        flush()
        return next(store.trajectories())


def gateway(plan: Plan, tmp_path: Path) -> Trajectory:
    with ScriptedServer(model(plan)) as upstream, world(upstream) as served, served.openai() as client:
        conversation(client, lambda name, given: RESULTS[name])
        served.calls()
        Assembler(served.store).flush()
        return served.store.trajectory("r1")


def joined(plan: Plan, tmp_path: Path) -> Trajectory:
    """Decorated and behind the gateway: every call is seen twice."""

    def call(name: str, given: dict[str, Any]) -> str:
        return search(**given) if name == "search" else asyncio.run(Folders().look(**given))

    with pytest.MonkeyPatch.context() as environ, Store(tmp_path / "joined.db") as store:
        environ.setenv("WHET_RUN", "r1")
        with ScriptedServer(model(plan)) as upstream, world(upstream, store=store) as served:
            client = served.openai()

            @whet.trace(store)
            def asked(question: str) -> str:
                return conversation(client, call)

            asked(TASK.instruction)
            client.close()
            served.calls()
            flush()
            Assembler(store).flush()
            (run,) = store.trajectories()
            assert {step.kind for step in run.steps} == {"llm", "tool"}
            return run


def otlp(plan: Plan, tmp_path: Path) -> Trajectory:
    spans = [one("a", {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "a"}, lasts=99)]
    for number, (name, given) in enumerate(plan):
        asked = {"type": "tool_call", "id": f"call_{number}", "name": name, "arguments": given}
        chat = CHAT | {"gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": [asked]}])}
        tool = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": name,
            "gen_ai.tool.call.id": f"call_{number}",
            "gen_ai.tool.call.arguments": json.dumps(given),
            "gen_ai.tool.call.result": RESULTS[name],
        }
        spans.append(one(f"chat {number}", chat, parent="a", at=2 * number + 1))
        spans.append(one(f"tool {number}", tool, parent="a", at=2 * number + 2))
    said = [{"role": "assistant", "parts": [{"type": "text", "content": ANSWER}]}]
    spans.append(one("last", CHAT | {"gen_ai.output.messages": json.dumps(said)}, parent="a", at=90))
    return only(decoded(*spans))


def tool_spans_alone(plan: Plan, tmp_path: Path) -> Trajectory:
    """OpenInference of a framework whose model calls are not instrumented."""
    spans = [one("a", {"openinference.span.kind": "AGENT", "output.value": ANSWER}, lasts=99)]
    for number, (name, given) in enumerate(plan):
        tool = {
            "openinference.span.kind": "TOOL",
            "tool.name": name,
            "input.value": json.dumps(given),
            "input.mime_type": "application/json",
            "output.value": RESULTS[name],
        }
        spans.append(one(name, tool, parent="a", at=number + 1, id=f"tool {number}"))
    return only(decoded(*spans))


class Folder:
    """The same as an Env: one action is one call, or the answer."""

    def reset(self, task: Task, seed: int) -> str:
        return task.instruction

    def step(self, action: Any) -> StepResult:
        if action == ANSWER:
            return StepResult(None, 1.0, True, False, {"success": True})
        name = action["name"] if isinstance(action, dict) else action.partition("(")[0]
        return StepResult(RESULTS[name], 0.0)


def env(plan: Plan, tmp_path: Path) -> Trajectory:
    moves: Iterator[Any] = iter([*({"name": name, "arguments": given} for name, given in plan), ANSWER])
    return asyncio.run(rollout(Folder(), FunctionPolicy(lambda _: next(moves)), TASK, seed=0))


def env_of_text(plan: Plan, tmp_path: Path) -> Trajectory:
    """Actions as text, each thought of by a model within the action."""
    moves = iter([*(written(name, given) for name, given in plan), ANSWER])

    class Thinking:
        async def act(self, observation: Any) -> Action:
            move = next(moves)
            return Action(move, steps=[Step(kind="llm", observation=[], action={"text": move})])

    return asyncio.run(rollout(Folder(), Thinking(), TASK, seed=0))


def wrapped(plan: Plan, tmp_path: Path) -> Trajectory:
    """An agent as it is, in an Env of one action."""

    async def asked(question: str) -> str:
        return await agent(question, plan)

    calls = whet.calls(asked, record="live")
    return asyncio.run(rollout(calls(), calls.policy(whet.Bundle(), 0), TASK, seed=0))


def written(name: str, given: dict[str, Any]) -> str:
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in given.items())})"


def imported(plan: Plan, tmp_path: Path) -> Trajectory:
    rows = [{"obs": "...", "action": written(name, given), "reward": 0.0} for name, given in plan]
    rows.append({"obs": "...", "action": ANSWER, "reward": 1.0, "done": True})
    return trajectory_from_json({"task_id": TASK.id, "steps": rows}, {TASK.id: TASK})


def transitions(plan: Plan, tmp_path: Path) -> Trajectory:
    actions = [{"name": name, "arguments": given} for name, given in plan]
    rows = [Transition("...", action, 0.0, False, RESULTS[action["name"]]) for action in actions]
    return from_transitions([*rows, Transition("...", ANSWER, 1.0, True, None)], TASK)


ENTRANCES: dict[str, Callable[[Plan, Path], Trajectory]] = {
    each.__name__: each
    for each in (
        traced,
        gateway,
        joined,
        otlp,
        tool_spans_alone,
        env,
        env_of_text,
        wrapped,
        imported,
        transitions,
    )
}


@pytest.mark.parametrize("entrance", ENTRANCES)
def test_an_agent_is_judged_alike_whatever_recorded_it(entrance: str, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    good = replace(ENTRANCES[entrance](GOOD, tmp_path), task=TASK)
    looping = replace(ENTRANCES[entrance](LOOPING, tmp_path / "other"), task=TASK)
    assert [(call.name, call.failed) for call in tool_calls(good)] == [("search", False), ("open", False)]
    assert all(call.has(given) for call, (_, given) in zip(tool_calls(looping), LOOPING, strict=True))
    assert (decisions(good), decisions(looping)) == (3, 5)
    assert score(ToolUse(), good).value == pytest.approx(1.0)
    assert score(ToolUse(), looping).value == pytest.approx(0.5 - 0.1 * 3 / 4)
    assert score(fewer_steps(0.01), good).value == pytest.approx(-0.03)
    assert score(fewer_steps(0.01), looping).value == pytest.approx(-0.05)
    # The rewards that look at the answer see it from every entrance too.
    assert good.output_text == ANSWER
    assert score(exact, good).value == score(matches("folder"), good).value == 1.0
    assert score(exact, replace(good, output="I do not know")).value == 0.0
    measured = entrance not in ("imported", "transitions")
    assert (score(latency(), good).value is not None) == measured
    paid = entrance in ("env", "env_of_text", "imported", "transitions")
    assert score(env_reward, good).value == (1.0 if paid else None)


@pytest.mark.parametrize("entrance", [name for name in ENTRANCES if name not in ("imported", "env_of_text")])
def test_results_come_with_their_calls(entrance: str, tmp_path: Path) -> None:
    calls = tool_calls(ENTRANCES[entrance](GOOD, tmp_path))
    # Of a classic record the observation that follows is what an action came to.
    wanted = ["...", "..."] if entrance == "transitions" else ["found 3", "folder 3"]
    assert [call.result for call in calls] == wanted


def test_a_tool_that_raised_is_a_failed_call() -> None:
    @whet.step(kind="tool")
    def broken(query: str) -> str:
        raise KeyError(query)

    @whet.trace
    def asked(question: str) -> str:
        try:
            return broken("invoice")
        except KeyError:
            return ANSWER

    with collecting() as records:
        asked("q")
    (run,) = records
    assert isinstance(run, Trajectory)
    (call,) = tool_calls(run)
    assert call.error is not None
    assert (call.name, call.failed, call.error.type) == ("broken", True, "KeyError")
    needed = replace(run, task=replace(TASK, meta={"required_calls": [{"name": "broken"}]}))
    assert score(ToolUse(), needed).value == pytest.approx(-0.2)


def test_arguments_that_are_no_object_make_a_call_malformed(tmp_path: Path) -> None:
    def careless(request: ModelRequest) -> Completion:
        if request.messages[-1]["role"] == "tool":
            return Completion(text=ANSWER)
        call = ToolCall(name="search", arguments="{query: invoice", id="call_0")
        return Completion(tool_calls=[call], finish="tool_calls")

    with ScriptedServer(careless) as upstream, world(upstream) as served, served.openai() as client:
        client.chat.completions.create(
            model="scripted", messages=[{"role": "user", "content": "q"}], tools=TOOLS
        )
        served.calls()
        Assembler(served.store).flush()
        run = served.store.trajectory("r1")
    (call,) = tool_calls(run)
    assert call.name is None
    found = score(ToolUse(), replace(run, task=TASK))
    assert found.value == pytest.approx(-1.0)
    assert "malformed" in found.reason


def llm(asked: Sequence[Any] = (), history: Sequence[Any] = (), text: str = "") -> Step:
    return Step(kind="llm", observation=list(history), action={"text": text, "tool_calls": list(asked)})


def asking(id: str, name: str = "search", /, **given: Any) -> dict[str, Any]:
    return {"id": id, "name": name, "arguments": given}


def test_what_a_conversation_held_before_the_run_is_not_of_the_run() -> None:
    call = asking("c1", query="old")
    before = [
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "text": "old"},
        {"role": "user", "text": "and the invoice?"},
    ]
    fresh = asking("c2", query="invoice")
    after = [
        *before,
        {"role": "assistant", "tool_calls": [fresh]},
        {"role": "tool", "tool_call_id": "c2", "text": "found 3"},
    ]
    run = Trajectory(task=TASK, steps=[llm([fresh], before), llm([], after, ANSWER)], output=ANSWER)
    assert [(one.id, one.result) for one in tool_calls(run)] == [("c2", "found 3")]
    assert decisions(run) == 2


def test_a_server_that_numbers_its_calls_anew_and_one_that_repeats_a_call_are_told_apart() -> None:
    first, second = asking("call_0", query="a"), asking("call_0", query="a")
    told = {"role": "tool", "tool_call_id": "call_0", "text": "1"}
    history = [{"role": "assistant", "tool_calls": [first]}, told]
    later = [*history, {"role": "assistant", "tool_calls": [second]}, {**told, "text": "2"}]
    steps = [llm([first]), llm([second], history), llm([], later, ANSWER)]
    run = Trajectory(task=TASK, steps=steps, output=ANSWER)
    assert [one.result for one in tool_calls(run)] == ["1", "2"]
    # Whoever also executes them in a decorated function has them once.
    executed = [Step(kind="tool", name="Shop.search", observation="a", action=number) for number in (1, 2)]
    mixed = [steps[0], executed[0], steps[1], executed[1], steps[2]]
    assert [one.result for one in tool_calls(replace(run, steps=mixed))] == [1, 2]
    # A third execution that no model asked for is a call of its own.
    assert len(tool_calls(replace(run, steps=[*mixed, executed[0]]))) == 3


def test_calls_that_are_only_told_by_the_next_request_count() -> None:
    call = asking("c1", query="invoice")
    history = [
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "text": "found 3"},
    ]
    unread = Step(kind="llm", observation=[{"role": "user", "text": "q"}])  # its answer was not recorded
    run = Trajectory(task=TASK, steps=[unread, llm([], history, ANSWER)], output=ANSWER)
    assert [(one.name, one.result) for one in tool_calls(run)] == [("search", "found 3")]


def test_an_action_that_its_own_model_asked_for_is_one_decision() -> None:
    moves: Iterator[Any] = iter([*GOOD, None])

    class Calling:
        async def act(self, observation: Any) -> Action:
            move = next(moves)
            if move is None:
                return Action(ANSWER, steps=[llm([], [], ANSWER)])
            name, given = move
            return Action({"name": name, "arguments": given}, steps=[llm([asking("c", name, **given)])])

    run = asyncio.run(rollout(Folder(), Calling(), TASK, seed=0))
    assert run.outcome is Outcome.SUCCESS
    assert [one.name for one in tool_calls(run)] == ["search", "open"]
    assert decisions(run) == 3


def test_a_run_without_a_call_is_its_answer_and_one_that_failed_before_is_nothing() -> None:
    run = Trajectory(task=TASK, output=ANSWER)
    assert (tool_calls(run), decisions(run)) == ([], 1)
    crashed = replace(run, output=None, error=Failure(Fault.AGENT, "E", "x"))
    assert decisions(crashed) == 0


@pytest.mark.parametrize(
    "text", ["In folder 3.", "search(query=folder)", "[search(1)]", "a b(c)", "(", "f(" * 2000 + ")"]
)
def test_text_that_is_no_call_of_literals_is_an_answer(text: str) -> None:
    run = Trajectory(task=TASK, steps=[Step(action=text)], output=text)
    assert tool_calls(run) == []
