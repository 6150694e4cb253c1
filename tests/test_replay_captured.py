"""A run that was captured from outside, by the gateway or as OTLP spans, is run again without touching the world."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from processes import python

import whet
from whet import Outcome, Step, Store, Task, Trajectory
from whet.judge.replay import again, fidelity_of, replay_of
from whet.models import ToolCall
from whet.models.base import ModelRequest
from whet.models.fakes import ScriptedServer
from whet.record.tracing import Replay
from whet.record.tracing.tool_calls import Shape, tool_steps
from whet.types import Split

SHOP = '''
"""An agent with two tools, as one finds it: it knows of whet what marks its tools."""

import json, os, sys, urllib.request
from pathlib import Path
import whet

SEATS = {"Lisbon": 2, "Oslo": 0}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}
         for name in ("seats", "book")]


@whet.step(kind="tool", effect="read")
def seats(city, day="today"):
    Path("world").open("a").write(f"seats {city}\\n")
    return {"city": city, "free": SEATS[city], "day": day}


@whet.step(kind="tool", effect="write")
def book(city, number):
    Path("world").open("a").write(f"book {city}\\n")
    return f"{number} booked in {city}"


def ask(messages):
    body = {"model": "scripted", "messages": messages, "tools": TOOLS}
    headers = {"content-type": "application/json", "authorization": "Bearer sk-none"}
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    return json.load(urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)))


def agent(question):
    messages = [{"role": "user", "content": question}]
    while True:
        said = ask(messages)["choices"][0]["message"]
        messages.append(said)
        if not said.get("tool_calls"):
            return said["content"]
        for call in said["tool_calls"]:
            tool = {"seats": seats, "book": book}[call["function"]["name"]]
            found = tool(**json.loads(call["function"]["arguments"]))
            text = found if isinstance(found, str) else json.dumps(found)
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": text})


def booked(trajectory):
    return "booked" in trajectory.output


if __name__ == "__main__":
    for question in sys.argv[1:]:
        print(agent(question))
'''


def model(request: ModelRequest) -> Any:
    """A model that looks for seats, books one where there is any, and says how it went."""
    last, first = request.messages[-1], request.messages[0]["content"]
    city = str(first).rsplit(" ", 1)[-1]
    if last["role"] == "user":
        return ToolCall(name="seats", arguments=json.dumps({"city": city}), id="call_0")
    said = str(last["content"])
    if '"free"' not in said:
        return f"Done: {said}"
    if json.loads(said)["free"]:
        return ToolCall(name="book", arguments=json.dumps({"number": 1, "city": city}), id="call_1")
    return f"No seats in {city}."


def whet_command(folder: Path, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    done = python("-W", "error", "-m", "whet", *words, folder=folder, **environ)
    assert done.returncode == 0, done.stderr
    return done


def captured(folder: Path, url: str, *questions: str) -> None:
    """Record one run of the shop for each question, through the gateway alone."""
    (folder / "shop.py").write_text(SHOP)
    for number, question in enumerate(questions):
        given = ["run", "--store", "runs.db", "--upstream", url, "--run-id", f"run{number}"]
        whet_command(folder, *given, "--", sys.executable, "shop.py", question)


def test_a_run_that_the_gateway_captured_is_replayed_and_the_world_is_not_touched(tmp_path: Path) -> None:
    with ScriptedServer(model, speaks=("chat",)) as upstream:
        captured(tmp_path, upstream.base_url, "A seat in Lisbon", "A seat in Oslo")
        with Store(tmp_path / "runs.db") as store:
            runs = list(store.trajectories())
        assert [len([step for step in run.steps if step.kind == "tool"]) for run in runs] == [2, 1]
        world = (tmp_path / "world").read_text()
        replay = ["replay", "shop:agent", "--store", "runs.db", "--json"]
        found = json.loads(whet_command(tmp_path, *replay, OPENAI_BASE_URL=upstream.base_url).stdout)
        judged = json.loads(
            whet_command(
                tmp_path, *replay, "--reward", "shop:booked", OPENAI_BASE_URL=upstream.base_url
            ).stdout
        )
    assert (tmp_path / "world").read_text() == world, "a replay called a tool"
    assert {name: found[name] for name in ("runs", "compared", "equal", "diverged", "exact")} == {
        "runs": 2,
        "compared": 2,
        "equal": 2,
        "diverged": 0,
        "exact": 3,
    }
    assert judged["rate"] == 1.0


def test_an_agent_whose_tools_are_not_marked_is_not_run_and_the_fix_is_named(tmp_path: Path) -> None:
    with ScriptedServer(model, speaks=("chat",)) as upstream:
        captured(tmp_path, upstream.base_url, "A seat in Lisbon")
        bare = SHOP.replace('@whet.step(kind="tool", effect="read")\n', "")
        (tmp_path / "shop.py").write_text(bare)
        world, asked = (tmp_path / "world").read_text(), len(upstream.requests)
        said = whet_command(
            tmp_path, "replay", "shop:agent", "--store", "runs.db", OPENAI_BASE_URL=upstream.base_url
        ).stdout
        assert len(upstream.requests) == asked
    assert (tmp_path / "world").read_text() == world
    assert "seats: not marked with @whet.step(kind='tool')" in said
    assert "left out: 1 run did" in said


def spans_of(question: str) -> dict[str, Any]:
    """What an instrumentor sends of the shop's run: an agent, two model calls, a tool between them."""

    def text(key: str, value: str) -> dict[str, Any]:
        return {"key": key, "value": {"stringValue": value}}

    def span(number: int, name: str, kind: str, *told: dict[str, Any], parent: int = 1) -> dict[str, Any]:
        found = {
            "traceId": "0af7651916cd43dd8448eb211c80319c",
            "spanId": f"{number:016x}",
            "name": name,
            "startTimeUnixNano": str(number * 10**9),
            "endTimeUnixNano": str(9 * 10**9 if number == 1 else number * 10**9 + 5),
            "attributes": [text("openinference.span.kind", kind), *told],
        }
        return found if number == 1 else {**found, "parentSpanId": f"{parent:016x}"}

    asked = (
        text("llm.input_messages.0.message.role", "user"),
        text("llm.input_messages.0.message.content", question),
    )
    called = (
        text("llm.output_messages.0.message.role", "assistant"),
        text("llm.output_messages.0.message.tool_calls.0.tool_call.id", "call_0"),
        text("llm.output_messages.0.message.tool_calls.0.tool_call.function.name", "seats"),
        text("llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments", '{"city": "Oslo"}'),
    )
    said = (
        text("llm.output_messages.0.message.role", "assistant"),
        text("llm.output_messages.0.message.content", "No seats in Oslo."),
    )
    answer = '{"city": "Oslo", "free": 0, "day": "today"}'
    tool = (text("tool.name", "seats"), text("input.value", '{"city": "Oslo"}'), text("output.value", answer))
    spans = [
        span(1, "agent", "AGENT", text("input.value", question), text("output.value", "No seats in Oslo.")),
        span(2, "chat", "LLM", *asked, *called),
        span(3, "seats", "TOOL", *tool),
        span(4, "chat", "LLM", *asked, *said),
    ]
    return {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}


def test_a_run_that_came_as_otlp_spans_is_replayed_and_the_world_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    send = (
        "import json, os, sys, urllib.request\n"
        "name, _, value = os.environ['OTEL_EXPORTER_OTLP_HEADERS'].partition('=')\n"
        "url = os.environ['OTEL_EXPORTER_OTLP_ENDPOINT'] + '/v1/traces'\n"
        "headers = {'content-type': 'application/json', name: value}\n"
        "urllib.request.urlopen(urllib.request.Request(url, sys.argv[1].encode(), headers)).read()\n"
    )
    with ScriptedServer(model, speaks=("chat",)) as upstream:
        words = ["run", "--store", "runs.db", "--upstream", upstream.base_url, "--"]
        whet_command(tmp_path, *words, sys.executable, "-c", send, json.dumps(spans_of("A seat in Oslo")))
        replay = ["replay", "shop:agent", "--store", "runs.db", "--json"]
        found = json.loads(whet_command(tmp_path, *replay, OPENAI_BASE_URL=upstream.base_url).stdout)
    assert not (tmp_path / "world").exists(), "a replay called a tool"
    assert (found["runs"], found["equal"], found["exact"], found["diverged"]) == (1, 1, 1, 0)


# -- whet.calls ---------------------------------------------------------------------------------


class World:
    """Seats that are looked up by an agent that is traced; it counts how often it was touched."""

    def __init__(self, store: Store | None) -> None:
        self.touched = 0
        self.limit = whet.resource("limit", default=1)

        @whet.step(kind="tool", effect="read")
        def seats(city: str, least: int = 1) -> int:
            self.touched += 1
            return len(city)

        def agent(question: str) -> str:
            return f"{question}: {seats(question, self.limit.get())}"

        self.agent = whet.trace(store)(agent) if store is not None else agent


CITIES = [f"city{'x' * number}" for number in range(12)]


def exact(trajectory: Trajectory) -> bool:
    return str(trajectory.output).endswith(": 5")


def test_recorded_tasks_replay_by_default_and_what_left_the_record_is_counted(tmp_path: Path) -> None:
    with Store(tmp_path / "runs.db") as store:
        world = World(store)
        for city in CITIES:
            world.agent(city)
        whet.record.tracing.flush()
        recorded = list(store.trajectories())
        tasks = [whet.Task(**task) for task in _fields(whet.tasks(store))]
        touched = world.touched
        env = whet.calls(world.agent)
        experiment = whet.Experiment(env=env, tasks=tasks, rewards=[exact], seed=0)
        same = asyncio.run(experiment.collect())
        other = whet.Bundle([whet.Version(resource="limit", content=2)])
        left = asyncio.run(experiment.collect(other))
        found = asyncio.run(
            fidelity_of([one for group in same for one in group.trajectories], recorded, rewards=[exact])
        )
        judging = whet.Experiment(env=whet.calls(world.agent), tasks=tasks, rewards=[exact], seed=0)
        unread = whet.Bundle([whet.Version(resource="unread", content=2)])
        verdict = asyncio.run(judging.gate(unread, metric="exact"))
    assert verdict.reasons[-1].startswith(
        f"Replays of the baseline agreed with the record in 100 % of {verdict.n} runs (95 %: "
    ), verdict.reasons
    assert world.touched == touched, "a recorded task ran its tools"
    assert {one.outcome for group in same for one in group.trajectories} == {Outcome.UNKNOWN}
    assert {one.outcome for group in left for one in group.trajectories} == {Outcome.INFRASTRUCTURE_ERROR}
    assert (found.runs, found.equal, found.diverged, found.exact) == (len(same), len(same), 0, len(same))
    counts = env.replays
    assert (counts.live, counts.replayed, counts.diverged) == (0, 2 * len(same), len(left))
    assert counts.faithful == 0.5
    told = replay_of(left[0].trajectories[0])
    assert told is not None
    assert told["diverged"][0].startswith("seats(")


def _fields(tasks: list[Task]) -> list[dict[str, Any]]:
    """Tasks without a split of their own, so that the Experiment makes it."""
    names = ("id", "instruction", "meta")
    return [{name: getattr(task, name) for name in names} | {"group": task.id} for task in tasks]


@pytest.mark.parametrize("given", ["store", "path", "trajectories"])
def test_the_record_may_be_a_store_its_path_or_trajectories(given: str, tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with Store(path) as store:
        world = World(store)
        world.agent("Rome")
        whet.record.tracing.flush()
        (task,) = whet.tasks(store)
        record: Any = {"store": store, "path": path, "trajectories": list(store.trajectories())}[given]
        env = whet.calls(World(None).agent, record=record)
        done = asyncio.run(whet.rollout(env(), env.policy(whet.Bundle(), 0), task, seed=0))
    assert done.output == "Rome: 4"
    assert env.replays.exact == 1
    assert [step.kind for step in done.steps] == ["action", "tool"]


def test_a_task_without_a_recorded_run_is_live_and_so_is_any_when_asked() -> None:
    with Store(":memory:") as store:
        world = World(store)
        world.agent("Rome")
        whet.record.tracing.flush()
        (task,) = whet.tasks(store)
        touched = world.touched
        for env, asked in (
            (whet.calls(world.agent), Task(instruction="Oslo")),
            (whet.calls(world.agent, record="live"), task),
        ):
            asyncio.run(whet.rollout(env(), env.policy(whet.Bundle(), 0), asked, seed=0))
            assert env.replays.live == 1
        assert world.touched == touched + 2
        elsewhere = whet.calls(world.agent, record=[])
        lost = asyncio.run(whet.rollout(elsewhere(), elsewhere.policy(whet.Bundle(), 0), task, seed=0))
        assert world.touched == touched + 2
    assert lost.outcome is Outcome.INFRASTRUCTURE_ERROR
    assert lost.error is not None
    assert "record='live'" in lost.error.message


def test_a_task_that_was_recorded_often_replays_the_run_that_the_seed_names() -> None:
    def run(id: str, answer: int) -> Trajectory:
        step = Step(kind="tool", name="seats", observation="Rome", action=answer)
        return Trajectory(id=id, task=Task(instruction="Rome"), steps=[step])

    task = Task(instruction="Rome", meta={"trajectories": ["a", "b"]})
    env = whet.calls(World(None).agent, record=[run("a", 1), run("b", 2)])
    outputs = [
        asyncio.run(whet.rollout(env(), env.policy(whet.Bundle(), seed), task, seed=seed)).output
        for seed in (0, 1, 2)
    ]
    assert outputs == ["Rome: 1", "Rome: 2", "Rome: 1"]


def test_a_replay_that_was_recorded_is_not_replayed_again(tmp_path: Path) -> None:
    with Store(tmp_path / "runs.db") as store:
        world = World(store)
        world.agent("Rome")
        whet.record.tracing.flush()
        (task,) = whet.tasks(store)
        experiment = whet.Experiment(
            env=whet.calls(world.agent), tasks=_splits(task), rewards=[exact], seed=0, store=store
        )
        asyncio.run(experiment.collect(n=3))
        (task,) = whet.tasks(store)
        assert len(task.meta["trajectories"]) == 4
        env = whet.calls(world.agent)
        for seed in range(4):
            done = asyncio.run(whet.rollout(env(), env.policy(whet.Bundle(), seed), task, seed=seed))
            told = replay_of(done)
            assert told is not None
            assert told["of"] == task.meta["trajectories"][0]


def _splits(task: Task) -> list[Task]:
    return [replace(task, id=name, split=split) for name, split in (("a", Split.TRAIN), ("b", Split.GATE))]


# -- what messages tell of tools ------------------------------------------------------------------


def _asked(id: str, name: str = "seats", **arguments: Any) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [{"id": id, "name": name, "arguments": arguments}]}


def _told(id: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "text": text}


def _run(*conversations: list[dict[str, Any]], steps: tuple[Step, ...] = ()) -> Trajectory:
    calls = [Step(kind="llm", observation=each, id=str(n)) for n, each in enumerate(conversations)]
    return Trajectory(task=Task(instruction="q"), steps=[*calls, *steps])


def test_a_conversation_that_each_request_repeats_tells_each_call_once() -> None:
    # The server numbers its calls anew in each answer.
    first = [{"role": "user", "text": "q"}, _asked("call_0", city="Rome"), _told("call_0", "1")]
    second = [*first, _asked("call_0", city="Oslo"), _told("call_0", "2")]
    third = [*second, _asked("call_0", city="Rome"), _told("call_0", "1")]
    found = tool_steps(_run(first, second, third))
    assert [(step.observation["city"], step.action) for step in found] == [
        ("Rome", "1"),
        ("Oslo", "2"),
        ("Rome", "1"),
    ]


def test_a_call_that_was_traced_and_told_is_one_and_an_unanswered_one_is_none() -> None:
    said = [_asked("call_0", city="Rome"), _told("call_0", "1"), _asked("call_1", city="Oslo")]
    traced = Step(kind="tool", name="Shop.seats", observation="Rome", action=1)
    assert tool_steps(_run(said, steps=(traced,))) == [traced]
    info = {"tool_call_id": "call_0", "span_ids": ["1"]}
    span = Step(kind="tool", name="seats", observation="{}", action="1", info=info)
    assert tool_steps(_run(said, steps=(span,))) == [span]
    (found,) = tool_steps(_run(said, steps=(replace(span, action=None),)))
    assert found.info["told"], "a span without a result says less than the messages"


def test_a_tool_that_a_framework_brings_may_run_and_any_other_that_is_not_marked_may_not() -> None:
    ran: list[str] = []

    def agent(question: str) -> str:
        ran.append(question)
        return question

    def run(tool: str) -> Trajectory:
        step = Step(kind="tool", name=tool, observation="x", action="x", info={"span_ids": ["1"]})
        return Trajectory(task=Task(instruction="q"), steps=[step])

    assert asyncio.run(again(agent, run("final_answer"))).faithful
    assert asyncio.run(again(agent, run("hand_over"), live=["hand_over"])).faithful
    assert ran == ["q", "q"]
    refused = asyncio.run(again(agent, run("hand_over")))
    assert refused.again.outcome is Outcome.INFRASTRUCTURE_ERROR
    assert "hand_over: not marked" in refused.counts.diverged[0]
    asked = Step(kind="llm", action=_asked("call_0", "wipe"), info={"span_ids": ["1"]})
    assert not asyncio.run(again(agent, Trajectory(task=Task(instruction="q"), steps=[asked]))).faithful
    assert ran == ["q", "q"], "a tool that was asked for last, and whose answer nothing shows, is known too"


@pytest.mark.parametrize(
    ("annotation", "text", "value"),
    [
        (dict[str, int], '{"a": 1}', {"a": 1}),
        ("dict[str, int]", '{"a": 1}', {"a": 1}),
        (str, '{"a": 1}', '{"a": 1}'),
        (None, '{"a": 1}', {"a": 1}),
        (None, "12", "12"),
        (int, "12", 12),
        (list, "[broken", "[broken"),
    ],
)
def test_recorded_text_becomes_what_the_function_returns(annotation: Any, text: str, value: Any) -> None:
    def find(city: str): ...  # type: ignore[no-untyped-def]

    if annotation is not None:
        find.__annotations__["return"] = annotation
    told = Step(kind="tool", name="find", action=text, info={"told": True})
    assert Shape.of(find).result(told) == value
    traced = Step(kind="tool", name="find", action=text)
    assert Shape.of(find).result(traced) == text


def test_a_default_that_is_spelled_out_is_the_same_call() -> None:
    def seats(city: str, day: str = "today") -> str: ...

    run = _run([_asked("call_0", city="Rome"), _told("call_0", "4")])
    shape = Shape.of(seats)
    with Replay(run) as replay:
        assert replay.answer("seats", {"city": "Rome", "day": "today"}, "read", shape) == "4"
        assert replay.answer("seats", "Rome", "read", shape) == "4"
    assert replay.counts.exact == 2


def test_a_dictionary_as_the_one_argument_is_not_taken_apart() -> None:
    def seats(query: dict[str, str]) -> str: ...

    run = Trajectory(
        task=Task(instruction="q"),
        steps=[Step(kind="tool", name="seats", observation={"city": "Rome"}, action="4")],
    )
    with Replay(run) as replay:
        assert replay.answer("seats", {"city": "Rome"}, "read", Shape.of(seats)) == "4"


def test_an_async_agent_that_is_traced_is_awaited() -> None:
    @whet.step(kind="tool", effect="read")
    async def lookup(name: str) -> str:
        raise AssertionError("the world was touched")

    @whet.trace(":memory:")
    async def agent(name: str) -> str:
        return await lookup(name)

    step = Step(kind="tool", name="lookup", observation="ann", action="Lisbon")
    run = Trajectory(task=Task(instruction="ann"), steps=[step])
    assert asyncio.run(again(agent, run)).again.output == "Lisbon"
