"""Tools of an agent behind the gateway: steps made of calls and results in messages, and none twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gateway_world import world
from otlp_spans import CHAT, agent, call, decoded, kinds, named, one, only

from whet.models.base import Completion, ModelRequest, ToolCall
from whet.models.fakes import ScriptedServer
from whet.record.store import Store
from whet.record.tracing.assemble import Assembler, join
from whet.record.tracing.tool_calls import tool_calls, tool_steps
from whet.types import Outcome, Span, Step, Task, Trajectory

PARIS, ROME = {"city": "Paris"}, {"city": "Rome"}
ASKED = {"role": "user", "content": "How warm?"}


def chat(*turns: dict[str, Any], answer: dict[str, Any], **how: Any) -> Span:
    request = {"model": "m", "messages": [ASKED, *turns]}
    response = {"id": how["name"], "choices": [{"message": {"role": "assistant", **answer}}]}
    return call(**how, request=request, response=response)


def asking(**arguments: dict[str, Any]) -> dict[str, Any]:
    """An assistant's message with a call of `weather` for each id."""
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"type": "function", "id": id, "function": {"name": "weather", "arguments": json.dumps(given)}}
            for id, given in arguments.items()
        ],
    }


def gave(id: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": text}


def tools(trajectory: Trajectory) -> list[tuple[str, Any, Any, str | None]]:
    return [
        (step.name, step.observation, step.action, step.info.get("tool_call_id"))
        for step in trajectory.steps
        if step.kind == "tool"
    ]


BOTH = [("weather", PARIS, "22", "a"), ("weather", ROME, "28", "b")]


def by_chat() -> list[Span]:
    both = asking(a=PARIS, b=ROME)
    return [
        chat(name="1", answer=both),
        chat(both, gave("b", "28"), gave("a", "22"), name="2", at=2, answer={"content": "warm"}),
    ]


def by_responses(*, remembered: bool) -> list[Span]:
    items = [
        {"type": "function_call", "call_id": id, "id": f"fc_{id}", "name": "weather", "arguments": given}
        for id, given in (("a", json.dumps(PARIS)), ("b", json.dumps(ROME)))
    ]
    results = [
        {"type": "function_call_output", "call_id": id, "output": text}
        for id, text in (("a", "22"), ("b", "28"))
    ]
    first = {"input": [ASKED], "model": "m"}
    second = {"input": results if remembered else [ASKED, *items, *results], "model": "m"}
    if remembered:
        second["previous_response_id"] = "r1"
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "warm"}]}
    return [
        call("1", api="responses", request=first, response={"id": "r1", "output": items}),
        call("2", api="responses", at=2, request=second, response={"id": "r2", "output": [said]}),
    ]


def by_messages() -> list[Span]:
    used = [
        {"type": "tool_use", "id": id, "name": "weather", "input": given}
        for id, given in (("a", PARIS), ("b", ROME))
    ]
    results = [
        {"type": "tool_result", "tool_use_id": id, "content": [{"type": "text", "text": text}]}
        for id, text in (("a", "22"), ("b", "28"))
    ]
    turns = [ASKED, {"role": "assistant", "content": used}, {"role": "user", "content": results}]
    said = [{"type": "text", "text": "warm"}]
    return [
        call("1", api="messages", request={"messages": [ASKED]}, response={"id": "1", "content": used}),
        call("2", api="messages", at=2, request={"messages": turns}, response={"id": "2", "content": said}),
    ]


@pytest.mark.parametrize(
    "spans",
    [by_chat(), by_responses(remembered=False), by_responses(remembered=True), by_messages()],
    ids=["chat", "responses", "responses, remembered", "messages"],
)
def test_calls_and_their_results_are_steps_in_every_api(spans: list[Span]) -> None:
    whole = only(spans)
    assert [step.kind for step in whole.steps] == ["llm", "tool", "tool", "llm"]
    assert tools(whole) == BOTH
    assert len({step.id for step in whole.steps}) == 4
    assert [invocation.result for invocation in tool_calls(whole)] == ["22", "28"]
    assert len(tool_steps(whole)) == 2
    assert whole.output == "warm"
    assert only(list(reversed(spans))) == whole


def test_a_server_that_gives_every_call_one_id_confuses_no_results() -> None:
    turns: list[dict[str, Any]] = []
    spans = []
    for number, (given, text) in enumerate(((PARIS, "22"), (ROME, "28"), (PARIS, "23"))):
        request = asking(call_0=given)
        spans.append(chat(*turns, name=str(number), at=2 * number, answer=request))
        turns += [request, gave("call_0", text)]
    spans.append(chat(*turns, name="last", at=9, answer={"content": "warm"}))
    expected = [
        ("weather", given, text, "call_0") for given, text in ((PARIS, "22"), (ROME, "28"), (PARIS, "23"))
    ]
    assert tools(only(spans)) == expected


def test_a_call_without_a_result_and_one_of_a_conversation_before_the_run_are_no_steps() -> None:
    before = [asking(old=PARIS), gave("old", "20"), {"role": "assistant", "content": "20"}]
    spans = [
        chat(*before, ASKED, name="1", answer=asking(a=PARIS, b=ROME)),
        chat(*before, ASKED, asking(a=PARIS, b=ROME), gave("a", "22"), name="2", at=2, answer=asking(c=ROME)),
    ]
    assert tools(only(spans)) == [BOTH[0]]


@pytest.mark.parametrize("id", ["a", None])
def test_a_tool_with_a_span_of_its_own_is_one_step(id: str | None) -> None:
    executed = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "weather"}
    executed |= {"gen_ai.tool.call.arguments": json.dumps(PARIS), "gen_ai.tool.call.result": "22"}
    executed |= {} if id is None else {"gen_ai.tool.call.id": id}
    first, last = by_chat()
    spans = decoded(
        agent("helper", lasts=9),
        one("chat 1", CHAT, parent="helper"),
        one("execute_tool weather", executed, parent="helper", at=1),
        one("chat 2", CHAT, parent="helper", at=2),
    )
    trace = spans[0].trace
    joined = [
        span._replace(trace=trace, parent=named(f"chat {number}"), run=None)
        for number, span in enumerate((first, last), 1)
    ]
    whole = only([*spans, *joined])
    assert kinds(whole) == [
        ("agent", "helper", None),
        ("llm", "chat 1", "helper"),
        ("tool", "weather", "helper"),  # of the call for Rome, which nobody traced
        ("tool", "weather", "helper"),
        ("llm", "chat 2", "helper"),
    ]
    assert sorted(step[2] for step in tools(whole)) == ["22", "28"]


def test_a_decorated_tool_is_one_step_beside_what_the_gateway_tells(tmp_path: Path) -> None:
    spans = by_chat()
    started = spans[0].started / 1e9
    own = Step(
        kind="tool",
        name="Shop.weather",
        observation=PARIS,
        action="22",
        id="0",
        latency=0.1,
        info={"started": started + 1.5},
    )
    traced = Trajectory(
        task=Task(instruction="q"),
        id="t",
        started=started - 1,
        seconds=20.0,
        steps=(own,),
        meta={"function": "agent", "run": "run-1"},
    )
    (whole,), rest = join([traced], spans)
    assert not rest
    assert sorted((step.name, step.action) for step in whole.steps if step.kind == "tool") == [
        ("Shop.weather", "22"),
        ("weather", "28"),
    ]
    with Store(":memory:") as store:
        store.put(traced)
        store.spans.put(spans).result()
        Assembler(store).flush()
        once = store.trajectory("t")
        (again,), _ = join([once], spans)
    assert again.steps == once.steps, "a second revision adds none"


def model(request: ModelRequest) -> Completion:
    if any(message["role"] == "tool" for message in request.messages):
        return Completion(text="It is 22 degrees.")
    return Completion(
        text="", tool_calls=[ToolCall(name="weather", arguments=json.dumps(PARIS), id="call_a")]
    )


def test_an_agent_of_which_only_the_base_url_was_changed_shows_its_tools() -> None:
    tool = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
    with ScriptedServer(model, speaks=("chat",)) as upstream, world(upstream) as made:
        with made.openai() as client:
            turns: list[Any] = [dict(ASKED)]
            first = client.chat.completions.create(model="scripted", messages=turns, tools=[tool])
            message = first.choices[0].message
            turns += [message.model_dump(exclude_none=True), gave("call_a", "22")]
            with client.chat.completions.stream(model="scripted", messages=turns, tools=[tool]) as stream:
                assert stream.get_final_completion().choices[0].message.content == "It is 22 degrees."
        assert len(made.calls()) == 2
        Assembler(made.store).flush()
        (whole,) = made.store.trajectories()
    assert [step.kind for step in whole.steps] == ["llm", "tool", "llm"]
    assert tools(whole) == [("weather", PARIS, "22", "call_a")]


# -- an error that the agent survived ------------------------------------------------------------------

BUSY = {
    "status": 503,
    "response": None,
    "error": {"fault": "model", "type": "overloaded", "message": "later"},
}


@pytest.mark.parametrize(
    ("spans", "failed"),
    [
        ([call("1", **BUSY), call("2", at=2)], False),
        ([call("1", lasts=5), call("2", at=1, **BUSY)], False),
        ([call("1"), call("2", at=2, **BUSY)], True),
    ],
    ids=["tried again", "another was under way", "the end"],
)
def test_the_last_state_of_the_agent_decides_and_a_failed_call_stays_a_step(
    spans: list[Span], failed: bool
) -> None:
    whole = only(spans)
    assert (whole.error is not None, whole.outcome is Outcome.INFRASTRUCTURE_ERROR) == (failed, failed)
    assert [step.error is not None for step in whole.steps].count(True) == 1


def test_an_agent_that_was_started_again_after_a_failure_has_not_failed() -> None:
    broken = {"status": {"code": 2, "message": "TimeoutError: slow"}}
    first = agent("helper", id="first", lasts=2) | broken
    whole = only(decoded(first, agent("helper", id="second", at=3, lasts=2)))
    assert [step.error is not None for step in whole.steps] == [True, False]
    assert (whole.error, whole.outcome) == (None, Outcome.UNKNOWN)


def test_a_traced_step_that_survived_a_failed_attempt_is_the_record_of_the_one_that_was_answered() -> None:
    spans = [call("1", **BUSY, lasts=0.1), call("2", at=1)]
    started = spans[0].started / 1e9
    own = Step(kind="llm", name="think", action="sunny", id="0", latency=5.0, info={"started": started - 1})
    traced = Trajectory(
        task=Task(instruction="q"),
        id="t",
        started=started - 2,
        seconds=20.0,
        steps=(own,),
        meta={"function": "agent", "run": "run-1"},
    )
    (whole,), _ = join([traced], spans)
    think, attempt = whole.steps
    assert (think.name, think.error, think.info["status"]) == ("think", None, 200)
    assert (attempt.parent, attempt.info["status"], attempt.error is not None) == ("0", 503, True)
    (again,), _ = join([whole], spans)
    assert again.steps == whole.steps
