"""The gateway's calls: joined to the spans they were made in, with tokens, samples, versions and faults."""

from __future__ import annotations

import json
from typing import Any

import pytest
from otlp_spans import CHAT, TRACE, agent, call, decoded, kinds, named, one, only

from whet.record.tracing.dialects import survey
from whet.types import Fault, Outcome, Tokens

TOKENS = [{"prompt_ids": [1, 2, 3], "output_ids": [7, 8], "logprobs": [-0.1, -0.2]}]


def test_a_call_inside_a_model_span_is_one_step_with_its_tokens() -> None:
    spans = decoded(agent("a", lasts=9), one("chat m", CHAT, parent="a", at=1))
    whole = only([*spans, call(parent="chat m", run=None, at=1, choices=TOKENS, policy_version="7")])
    assert kinds(whole) == [("agent", "a", None), ("llm", "chat m", "a")]
    step = whole.steps[1]
    assert step.tokens == Tokens((1, 2, 3), (7, 8), (-0.1, -0.2), None, "7")
    assert step.info["span_ids"] == [named("chat m").hex(), named("call call").hex()]
    assert step.info["usage"] == {"input": 3, "output": 1, "cached_input": None, "reasoning": None}
    assert step.usage is not None
    assert (step.usage.prompt_tokens, step.usage.output_tokens, step.usage.calls) == (3, 1, 1)


def test_a_call_below_the_http_request_of_a_model_span_joins_it() -> None:
    http = one("POST", {"http.request.method": "POST"}, parent="chat m", at=1)
    whole = only([*decoded(one("chat m", CHAT), http), call(parent="POST", run=None)])
    assert [step.kind for step in whole.steps] == ["llm"]
    assert whole.meta["spans_not_steps"] == [{"span_id": named("POST").hex(), "name": "POST"}]


def test_a_call_is_known_again_by_the_id_of_its_answer() -> None:
    spans = decoded(
        agent("a", lasts=9), one("chat m", CHAT | {"gen_ai.response.id": "resp-1"}, parent="a", at=1)
    )
    whole = only([*spans, call("resp-1", parent="a", run=None, at=1, choices=TOKENS)])
    assert kinds(whole) == [("agent", "a", None), ("llm", "chat m", "a")]
    assert whole.steps[1].tokens is not None


def test_a_server_that_gives_every_answer_one_id_confuses_nothing() -> None:
    held = CHAT | {"gen_ai.response.id": "same"}
    spans = decoded(
        agent("a", lasts=9),
        one("chat 1", held, parent="a", at=1),
        one("chat 2", held, parent="a", at=3),
        resource={"whet.run": "run-1"},
    )
    calls = [call(f"c{at}", at=at + 0.1, lasts=0.5, response={"id": "same"}) for at in (1, 3, 6)]
    assert [step.info["span_ids"] for step in only([*spans, *calls]).steps[1:]] == [
        [named("chat 1").hex(), named("call c1").hex()],
        [named("chat 2").hex(), named("call c3").hex()],
        [named("call c6").hex()],
    ]


def test_attempts_of_a_client_are_one_step_and_the_answered_one_counts() -> None:
    failed = {
        "status": 503,
        "response": None,
        "error": {"fault": "model", "type": "Busy", "message": "later"},
    }
    spans = decoded(one("chat m", CHAT))
    late = call("second", parent="chat m", run=None, at=0.5, choices=TOKENS)
    whole = only([*spans, late, call("first", parent="chat m", run=None, **failed)])
    (step,) = whole.steps
    assert (step.error, step.info["attempts"], step.tokens is not None) == (None, 2, True)
    assert whole.outcome is Outcome.UNKNOWN


def test_several_answered_calls_in_one_model_span_are_each_kept() -> None:
    spans = decoded(one("loop", CHAT, lasts=9))
    first = call("first", parent="loop", run=None, at=1, choices=TOKENS)
    last = call("last", parent="loop", run=None, at=3)
    whole = only([*spans, last, first])
    assert kinds(whole) == [("llm", "loop", None), ("llm", "chat m", "loop")]
    assert whole.steps[0].info["span_ids"] == [named("loop").hex(), named("call last").hex()]
    assert whole.steps[1].tokens is not None
    assert whole.usage.prompt_tokens == 3, "the span speaks for the calls inside it"


def test_calls_alone_are_a_run_and_fault_is_whose_the_gateway_says() -> None:
    cut = {"fault": "agent", "type": "ClientGone", "message": "it hung up"}
    run = [call("one"), call("two", at=2, response=None, error=cut, session="s", subject="p")]
    whole = only(run)
    assert [step.kind for step in whole.steps] == ["llm", "llm"]
    assert whole.meta["run"] == "run-1"
    assert whole.trace_ids == ()
    assert (whole.session, whole.subject) == ("s", "p")
    assert whole.error is not None
    assert (whole.error.fault, whole.error.type, whole.outcome) == (
        Fault.AGENT,
        "ClientGone",
        Outcome.FAILURE,
    )
    assert whole.steps[1].info["finish_reason"] == "error"
    assert whole.task.instruction == "weather?"


def test_one_run_over_several_traces_is_one_trajectory() -> None:
    other = bytes(range(16, 32))
    spans = [
        *decoded(agent("a", lasts=9), one("chat m", CHAT, parent="a", at=1), resource={"whet.run": "run-1"}),
        *decoded(one("chat 2", CHAT, at=3, trace=other), resource={"whet.run": "run-1"}),
        call("loose", at=5),
    ]
    whole = only(spans)
    assert kinds(whole) == [
        ("agent", "a", None),
        ("llm", "chat m", "a"),
        ("llm", "chat 2", None),
        ("llm", "chat m", "a"),
    ], "the call came while the run's one agent ran"
    assert whole.trace_ids == (TRACE.hex(), other.hex())
    assert whole.id == only(spans[::-1]).id != only(spans[:1]).meta["run"]


def test_runs_in_one_trace_are_apart() -> None:
    spans = decoded(
        one("harness", {"x": 1}, lasts=99),
        agent("a", parent="harness"),
        agent("b", parent="harness", at=5),
        one("chat a", CHAT, parent="a"),
        one("chat b", CHAT, parent="b", at=5),
    )
    runs = {"a": "one", "b": "two"}
    marked = [span._replace(run=runs.get(span.name)) for span in spans]
    found = survey(marked)
    assert [[step.name for step in each.steps] for each in found.trajectories if each.meta.get("run")] == [
        ["a", "chat a"],
        ["b", "chat b"],
    ]


def test_every_sample_of_a_prompt_is_kept() -> None:
    answers = [{"index": n, "message": {"role": "assistant", "content": f"answer {n}"}} for n in range(3)]
    samples = [{"prompt_ids": [1], "output_ids": [n], "logprobs": [-1.0]} for n in range(3)]
    (step,) = only([call(response={"choices": answers}, choices=samples)]).steps
    assert step.action == {"role": "assistant", "text": "answer 0"}
    assert [each["output"]["text"] for each in step.info["choices"]] == ["answer 0", "answer 1", "answer 2"]
    assert [each["tokens"]["output_ids"] for each in step.info["choices"]] == [[0], [1], [2]]


@pytest.mark.parametrize(
    "choices",
    [None, [], [{"prompt_ids": [1], "output_ids": [2]}], [TOKENS[0] | {"logprobs": [-0.1]}], [3], "x"],
)
def test_half_of_the_tokens_is_none(choices: Any) -> None:
    (step,) = only([call(choices=choices)]).steps
    assert step.tokens is None


def test_versions_that_served_are_the_trajectory_s() -> None:
    whole = only([call("one", versions={"prompt": "v1", "model": "v9"}), call("two", at=1)])
    assert whole.versions == {"prompt": "v1", "model": "v9"}


def test_a_version_that_changed_during_a_run_is_noted() -> None:
    whole = only([call("two", at=1, versions={"prompt": "v2"}), call("one", versions={"prompt": "v1"})])
    assert whole.versions == {"prompt": "v2"}
    assert whole.meta["notes"] == ["prompt was served as version v1, then as v2"]
    assert [step.info["versions"] for step in whole.steps] == [{"prompt": "v1"}, {"prompt": "v2"}]


def test_calls_of_every_api_read_alike() -> None:
    asked = {"model": "m", "instructions": "be brief", "input": [{"role": "user", "content": "weather?"}]}
    items = [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
        {
            "type": "function_call",
            "call_id": "c1",
            "id": "f1",
            "name": "get",
            "arguments": '{"city": "Paris"}',
        },
        {
            "type": "function_call",
            "call_id": "c2",
            "id": "f2",
            "name": "get",
            "arguments": '{"city": "Rome"}',
        },
    ]
    blocks = [
        {"type": "thinking", "thinking": "hm"},
        {"type": "tool_use", "id": "c1", "name": "get", "input": {"city": "Paris"}},
        {"type": "tool_use", "id": "c2", "name": "get", "input": {"city": "Rome"}},
    ]
    claude = {"model": "m", "system": [{"type": "text", "text": "be brief"}], "messages": asked["input"]}
    nested = [
        {
            "id": f"c{n}",
            "type": "function",
            "function": {"name": "get", "arguments": json.dumps({"city": city})},
        }
        for n, city in ((1, "Paris"), (2, "Rome"))
    ]
    spoken = {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": nested}
    chat = {"model": "m", "messages": [{"role": "system", "content": "be brief"}, *asked["input"]]}
    steps = [
        only([call(api="responses", request=asked, response={"output": items})]).steps[0],
        only([call(api="messages", request=claude, response={"content": blocks, "role": "assistant"})]).steps[
            0
        ],
        only([call(api="chat", request=chat, response={"choices": [{"message": spoken}]})]).steps[0],
    ]
    for step in steps:
        assert step.observation == [
            {"role": "system", "text": "be brief"},
            {"role": "user", "text": "weather?"},
        ]
        assert step.action == {
            "role": "assistant",
            "reasoning": "hm",
            "tool_calls": [
                {"id": "c1", "name": "get", "arguments": {"city": "Paris"}},
                {"id": "c2", "name": "get", "arguments": {"city": "Rome"}},
            ],
        }
        assert step.info["finish_reason"] == "tool_calls"
