"""What the normaliser makes of spans that no capture holds: gateway calls, older names, several agents."""

from __future__ import annotations

import json
from typing import Any

import pytest
from otlp_spans import START, TRACE, call, decoded, named, one, pairs

from whet.tracing.dialects import NO_MODEL_CALL, form, messages, read, survey
from whet.types import Fault, Outcome, Span, Step, Tokens, Trajectory

PARIS = [{"role": "user", "parts": [{"type": "text", "content": "weather?"}]}]
SUNNY = [{"role": "assistant", "parts": [{"type": "text", "content": "sunny"}], "finish_reason": "stop"}]
CHAT = {
    "gen_ai.operation.name": "chat",
    "gen_ai.request.model": "m",
    "gen_ai.input.messages": json.dumps(PARIS),
    "gen_ai.output.messages": json.dumps(SUNNY),
    "gen_ai.usage.input_tokens": 3,
}
TOKENS = [{"prompt_ids": [1, 2, 3], "output_ids": [7, 8], "logprobs": [-0.1, -0.2]}]


def agent(name: str, **how: Any) -> dict[str, Any]:
    return one(name, {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": name}, **how)


def inference(kind: str, name: str, attributes: dict[str, Any] | None = None, **how: Any) -> dict[str, Any]:
    return one(name, {"openinference.span.kind": kind, **(attributes or {})}, **how)


def only(spans: list[Span]) -> Trajectory:
    (found,) = read(spans)
    return found


def kinds(trajectory: Trajectory) -> list[tuple[str, str, str | None]]:
    names = {step.id: step.name for step in trajectory.steps}
    return [(step.kind, step.name, names.get(step.parent or "")) for step in trajectory.steps]


# -- the gateway ------------------------------------------------------------------------------


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


RESULT = {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "r"}]}
IMAGE = {"type": "image_url", "image_url": {"url": "u"}}

# -- messages ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (
            [["human", "hi"], ["ai", "ho"]],
            [{"role": "user", "text": "hi"}, {"role": "assistant", "text": "ho"}],
        ),
        (
            [{"role": "user", "content": [RESULT, {"type": "text", "text": "and?"}]}],
            [{"role": "tool", "tool_call_id": "c", "text": "r"}, {"role": "user", "text": "and?"}],
        ),
        (
            [{"role": "user", "content": [{"type": "text", "text": "see"}, IMAGE]}],
            [{"role": "user", "text": "see", "parts": [IMAGE]}],
        ),
        (
            [{"role": "function", "name": "f", "content": "r"}],
            [{"role": "tool", "tool_call_id": None, "text": "r"}],
        ),
        (
            [{"role": "assistant", "function_call": {"name": "f", "arguments": "not JSON"}}],
            [{"role": "assistant", "tool_calls": [{"id": None, "name": "f", "arguments": "not JSON"}]}],
        ),
        ([{"role": "assistant", "content": ""}], [{"role": "assistant", "text": ""}]),
        (
            [{"type": "function_call_output", "call_id": "c", "output": {"n": 1}}],
            [{"role": "tool", "tool_call_id": "c", "text": '{"n":1}'}],
        ),
        ([{"content": "no role"}, 3, None, "text", []], []),
        ("not JSON", []),
        (None, []),
    ],
)
def test_messages_of_every_kind_have_one_form(given: Any, wanted: list[dict[str, Any]]) -> None:
    assert messages(given) == wanted
    assert messages(json.dumps(given)) == wanted


# -- older and other names ---------------------------------------------------------------------


def test_messages_as_span_events() -> None:
    events = [
        {"name": "gen_ai.user.message", "timeUnixNano": "1", "attributes": pairs({"content": "weather?"})},
        {
            "name": "gen_ai.choice",
            "timeUnixNano": "2",
            "attributes": pairs({"finish_reason": "stop", "message": '{"content": "sunny"}'}),
        },
    ]
    held = {"gen_ai.system": "openai", "gen_ai.request.model": "m", "gen_ai.usage.prompt_tokens": 3}
    (step,) = only(decoded(one("chat m", held, events=events))).steps
    assert step.observation == [{"role": "user", "text": "weather?"}]
    assert step.action == {"role": "assistant", "text": "sunny"}
    assert step.info["usage"]["input"] == 3


def test_messages_in_an_operation_s_log_record() -> None:
    spans = decoded(one("chat m", {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}))
    record = {
        "timeUnixNano": str(START),
        "eventName": "gen_ai.client.inference.operation.details",
        "traceId": TRACE.hex(),
        "spanId": named("chat m").hex(),
        "attributes": pairs({"gen_ai.input.messages": PARIS, "gen_ai.output.messages": SUNNY}),
    }
    (step,) = only([*decoded(record, logs=True), *spans]).steps
    assert step.observation == [{"role": "user", "text": "weather?"}]
    assert step.action == {"role": "assistant", "text": "sunny"}


def test_spans_without_content_say_so_and_nothing_is_made_up() -> None:
    (step,) = only(
        decoded(one("chat m", {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}))
    ).steps
    assert (step.observation, step.action, step.usage) == (None, None, None)
    assert step.info.get("usage") is None


def test_older_traceloop_flattens_its_messages() -> None:
    held = {
        "llm.request.type": "chat",
        "gen_ai.system": "OpenAI",
        "gen_ai.request.model": "m",
        "gen_ai.prompt.0.role": "user",
        "gen_ai.prompt.0.content": "weather?",
        "gen_ai.prompt.1.role": "assistant",
        "gen_ai.prompt.1.tool_calls.0.id": "c1",
        "gen_ai.prompt.1.tool_calls.0.name": "get",
        "gen_ai.prompt.1.tool_calls.0.arguments": '{"city": "Paris"}',
        "gen_ai.prompt.2.role": "tool",
        "gen_ai.prompt.2.content": "sunny",
        "gen_ai.prompt.2.tool_call_id": "c1",
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.content": "It is sunny.",
        "gen_ai.completion.0.finish_reason": "length",
        "gen_ai.usage.completion_tokens": 4,
    }
    (step,) = only(decoded(one("openai.chat", held))).steps
    assert step.observation == [
        {"role": "user", "text": "weather?"},
        {"role": "assistant", "tool_calls": [{"id": "c1", "name": "get", "arguments": {"city": "Paris"}}]},
        {"role": "tool", "tool_call_id": "c1", "text": "sunny"},
    ]
    assert step.action == {"role": "assistant", "text": "It is sunny."}
    assert step.info["finish_reason"] == "length"
    assert step.info["usage"]["output"] == 4


def test_a_decorated_task_is_a_function_and_a_retriever_too() -> None:
    held = {
        "traceloop.span.kind": "task",
        "traceloop.entity.name": "joke",
        "traceloop.entity.input": '{"args": []}',
    }
    spans = decoded(
        agent("a", lasts=9),
        one("joke.task", held | {"traceloop.entity.output": '"ha"'}, parent="a"),
        inference("RETRIEVER", "search", {"input.value": "q", "output.value": "docs"}, parent="a", at=2),
    )
    whole = only(spans)
    assert kinds(whole)[1:] == [("function", "joke", "a"), ("function", "search", "a")]
    assert (whole.steps[2].observation, whole.steps[2].action) == ("q", "docs")


def test_spans_that_no_dialect_knows_are_functions_where_there_is_nothing_else() -> None:
    spans = decoded(one("outer", {"input": "q"}, lasts=3), one("inner", parent="outer", at=1))
    whole = only(spans)
    assert kinds(whole) == [("function", "outer", None), ("function", "inner", "outer")]
    assert whole.steps[0].observation == "q"
    mixed = only([*spans, *decoded(one("chat m", CHAT, parent="inner", at=1))])
    assert kinds(mixed) == [("llm", "chat m", None)]
    assert [each["name"] for each in mixed.meta["spans_not_steps"]] == ["outer", "inner"]


# -- what is one step, and what is not --------------------------------------------------------


def test_a_crew_of_several_agents_is_an_agent_around_them() -> None:
    spans = decoded(
        inference("CHAIN", "Crew_1.kickoff", lasts=9),
        inference("AGENT", "writer._execute_core", {"graph.node.id": "writer"}, parent="Crew_1.kickoff"),
        inference(
            "AGENT", "critic._execute_core", {"graph.node.id": "critic"}, parent="Crew_1.kickoff", at=2
        ),
    )
    assert kinds(only(spans)) == [
        ("agent", "Crew_1.kickoff", None),
        ("agent", "writer", "Crew_1.kickoff"),
        ("agent", "critic", "Crew_1.kickoff"),
    ]


def test_an_agent_that_only_hands_over_stays_an_agent() -> None:
    assert kinds(only(decoded(agent("triage", lasts=5), agent("expert", parent="triage")))) == [
        ("agent", "triage", None),
        ("agent", "expert", "triage"),
    ]


def test_a_graph_inside_a_tool_is_an_agent_of_its_own() -> None:
    spans = decoded(
        inference("CHAIN", "LangGraph", lasts=9),
        inference("CHAIN", "tools", parent="LangGraph", lasts=8),
        inference("TOOL", "ask", {"input.value": '{"q": "x"}'}, parent="tools", lasts=7),
        inference("CHAIN", "Inner", parent="ask", lasts=6),
        inference("LLM", "ChatOpenAI", {"llm.model_name": "m"}, parent="Inner"),
    )
    assert kinds(only(spans)) == [
        ("agent", "LangGraph", None),
        ("tool", "ask", "LangGraph"),
        ("agent", "Inner", "ask"),
        ("llm", "ChatOpenAI", "Inner"),
    ]


def test_what_two_instrumentors_saw_is_one_step() -> None:
    answer = {
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.content": "sunny",
    }
    tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "get", "gen_ai.tool.call.id": "c1"}
    spans = decoded(
        agent("a", lasts=9),
        inference("LLM", "ChatOpenAI", answer, parent="a", lasts=2),
        one("chat m", CHAT, parent="ChatOpenAI"),
        inference("TOOL", "get", {"input.value": '{"city": "Paris"}'}, parent="a", at=3, lasts=2),
        one("execute_tool get", tool, parent="get", at=3),
    )
    whole = only(spans)
    assert kinds(whole) == [("agent", "a", None), ("llm", "ChatOpenAI", "a"), ("tool", "get", "a")]
    assert whole.steps[1].info["model"] == "m"
    assert whole.steps[2].info["tool_call_id"] == "c1"
    assert whole.steps[2].observation == {"city": "Paris"}
    assert len(whole.meta["merged_spans"]) == 2


def test_a_tool_called_twice_is_two_steps() -> None:
    tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "get", "gen_ai.tool.call.id": "c1"}
    spans = decoded(
        agent("a", lasts=9),
        one("execute_tool get", tool, parent="a", at=1),
        one("execute_tool get", tool, parent="a", at=3, id="again"),
    )
    assert [step.name for step in only(spans).steps] == ["a", "get", "get"]


def test_the_arguments_are_those_of_the_latest_answer_with_that_id() -> None:
    def asks(city: str) -> dict[str, Any]:
        part = {"type": "tool_call", "id": "call_0", "name": "get", "arguments": {"city": city}}
        return CHAT | {"gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": [part]}])}

    tool = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "get",
        "gen_ai.tool.call.id": "call_0",
    }
    spans = decoded(
        agent("a", lasts=9),
        one("chat 1", asks("Paris"), parent="a", at=1),
        one("tool 1", tool, parent="a", at=2),
        one("chat 2", asks("Rome"), parent="a", at=3),
        one("tool 2", tool, parent="a", at=4),
    )
    tools = [step for step in only(spans).steps if step.kind == "tool"]
    assert [step.observation for step in tools] == [{"city": "Paris"}, {"city": "Rome"}]


def test_an_agent_without_a_model_call_says_that_none_was_recorded() -> None:
    assert only(decoded(agent("a"))).meta["notes"] == [NO_MODEL_CALL]
    assert "notes" not in only(decoded(agent("a"), one("chat m", CHAT, parent="a"))).meta


def test_an_error_is_of_where_it_happened() -> None:
    raised = {
        "name": "exception",
        "timeUnixNano": "1",
        "attributes": pairs({"exception.type": "ValueError", "exception.message": "down"}),
    }
    broken: dict[str, Any] = {"status": {"code": 2, "message": "x"}, "events": [raised]}
    tool = one(
        "get", {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "get"}, parent="a", **broken
    )
    died = only(decoded(agent("a", lasts=9, **broken), tool))
    assert died.error is not None
    assert (died.error.fault, died.outcome) == (Fault.TOOL, Outcome.INFRASTRUCTURE_ERROR)
    lived = only(decoded(agent("a", lasts=9), tool))
    assert (lived.error, lived.outcome) == (None, Outcome.UNKNOWN)
    assert lived.steps[1].error is not None
    handled = only(decoded(agent("a", lasts=9, events=[raised])))
    assert handled.error is None


@pytest.mark.parametrize(
    ("kind", "fault"), [("openai.BadRequestError", Fault.AGENT), ("openai.RateLimitError", Fault.MODEL)]
)
def test_a_refused_request_is_the_agent_s_and_a_busy_server_is_not(kind: str, fault: Fault) -> None:
    span = one("chat m", CHAT | {"error.type": kind}, status={"code": 2, "message": "no"})
    failed = only(decoded(span)).error
    assert failed is not None
    assert failed.fault is fault


def test_circles_orphans_and_a_deep_chain_end() -> None:
    circle = decoded(one("a", CHAT, parent="b"), one("b", CHAT, parent="a"), one("c", CHAT, parent="c"))
    ids = [id for step in only(circle).steps for id in step.info["span_ids"]]
    assert sorted(ids) == sorted(span.id.hex() for span in circle)
    assert [step.parent for step in only(decoded(one("x", CHAT, parent="gone"))).steps] == [None]
    chain = decoded(
        one("s0", CHAT), *(one(f"s{n}", {"x": n}, parent=f"s{n - 1}", at=n) for n in range(1, 3000))
    )
    assert len(only(chain).meta["spans_not_steps"]) == 2999


def test_a_span_that_cannot_be_read_is_counted_and_stops_nothing() -> None:
    good, bad = decoded(one("chat m", CHAT), one("broken", CHAT, at=2))
    whole = only([good, bad._replace(body=b"{"), call("torn", run=None, trace=TRACE)._replace(body=b"[]")])
    assert [step.name for step in whole.steps] == ["chat m"]
    assert whole.meta["unread"] == 2
    assert bad.id.hex() in whole.meta["unread_spans"]


def test_traces_without_a_step_are_left_out_and_named() -> None:
    built = decoded(one("create_agent x", {"gen_ai.operation.name": "create_agent"}))
    log = decoded({"timeUnixNano": "1", "body": {"stringValue": "started"}, "traceId": "ab" * 16}, logs=True)
    found = survey([*built, *log])
    assert (found.trajectories, len(found.left_out)) == ([], 2)


def test_a_redacted_text_marks_the_trajectory() -> None:
    body = json.loads(call().body)
    body["request"]["messages"][0]["content"] = "use [redacted:openai-key]"
    whole = only([call(request=body["request"])])
    assert whole.meta["redacted"] == {"openai-key": 1}
    assert "openai-key" in whole.meta["untrainable"]


def test_the_form_of_a_decorated_run_is_the_same() -> None:
    steps = (
        Step(kind="agent", id="0", name="a", observation="q", action="out"),
        Step(kind="tool", id="1", parent="0", name="get", observation={"city": "Paris"}, action="sunny"),
    )
    shown = form(Trajectory(task=only([call()]).task, steps=steps, outcome=Outcome.SUCCESS))
    assert (shown["outcome"], shown["error"]) == ("success", None)
    assert shown["steps"][1]["parent"] == 0
    assert shown["steps"][1]["arguments"] == {"city": "Paris"}
    assert shown["steps"][1]["output"] == {"text": "sunny"}
    assert shown["steps"][0]["tokens"] is None
