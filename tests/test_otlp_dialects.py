"""What the normaliser makes of spans that no capture holds: other forms of messages, older names, several agents."""

from __future__ import annotations

import json
from typing import Any

import pytest
from otlp_spans import CHAT, PARIS, START, SUNNY, TRACE, agent, call, decoded, kinds, named, one, only, pairs

from whet.record.tracing.dialects import NO_MODEL_CALL, form, messages, survey
from whet.types import Fault, Feedback, Outcome, Score, Step, Task, Trajectory


def inference(kind: str, name: str, attributes: dict[str, Any] | None = None, **how: Any) -> dict[str, Any]:
    return one(name, {"openinference.span.kind": kind, **(attributes or {})}, **how)


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
        (
            [{"role": "user", "content": [{"toolResult": {"toolUseId": "c", "content": [{"text": "r"}]}}]}],
            [{"role": "tool", "tool_call_id": "c", "text": "r"}],
        ),
        (
            [{"role": "assistant", "content": [{"toolUse": {"toolUseId": "c", "name": "f", "input": {}}}]}],
            [{"role": "assistant", "tool_calls": [{"id": "c", "name": "f", "arguments": {}}]}],
        ),
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


def test_langfuse_tells_an_agent_its_calls_and_their_usage() -> None:
    def observed(name: str, type: str, input: Any, output: Any, **how: Any) -> dict[str, Any]:
        given = input if isinstance(input, str) else json.dumps(input)
        held = {"type": type, "input": given, "output": output, **how.pop("held", {})}
        return one(name, {f"langfuse.observation.{key}": value for key, value in held.items()}, **how)

    ask = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Capital?"}]
    told = {"model.name": "m", "usage_details": '{"prompt_tokens": 2, "completion_tokens": 3}'}
    finish = {"metadata.finish_reason": '"length"', "usage_details": '{"input": 5, "output": 1}'}
    spoken = '{"role": "assistant", "content": "Paris"}'
    inside = {"parent": "answer", "lasts": 1}
    called = {"args": ["Paris"], "kwargs": {"n": 2}}
    failed = {"status": {"code": 2, "message": "ValueError: no"}}
    whole = only(
        decoded(
            observed("answer", "span", {"args": ["Capital?"], "kwargs": {}}, "Paris", lasts=9),
            observed("openai", "generation", ask, spoken, at=1, held=told, **inside),
            observed("prompt", "generation", "Again?", "Par", at=2, held=finish, **inside),
            observed("lookup", "span", called, '{"t": 22}', at=3, **inside),
            observed("boom", "tool", {"city": "Paris"}, None, at=4, **inside, **failed),
            observed("steps", "chain", None, None, at=5, **inside),
        )
    )
    assert kinds(whole) == [
        ("agent", "answer", None),
        ("llm", "openai", "answer"),
        ("llm", "prompt", "answer"),
        ("function", "lookup", "answer"),
        ("tool", "boom", "answer"),
    ]
    assert (whole.task.instruction, whole.output) == ("Capital?", "Paris")
    _, first, second, function, tool = form(whole)["steps"]
    assert [each["text"] for each in first["input_messages"]] == ["Be brief.", "Capital?"]
    assert (first["model"], first["output"]["text"], first["finish_reason"]) == ("m", "Paris", "stop")
    assert (first["usage"]["input"], first["usage"]["output"]) == (2, 3)
    assert (second["input_messages"], second["finish_reason"]) == (
        [{"role": "user", "text": "Again?"}],
        "length",
    )
    assert (second["usage"]["input"], second["output"]["text"]) == (5, "Par")
    assert function["arguments"] == {"args": ["Paris"], "n": 2}
    assert (tool["arguments"], tool["error"]["message"]) == ({"city": "Paris"}, "no")


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


def test_what_began_at_once_by_a_clock_of_milliseconds_is_in_the_order_in_which_it_ended() -> None:
    tool = inference("TOOL", "quick", parent="a", at=3, lasts=0)
    model = inference("LLM", "chat m", parent="a", at=3, lasts=2)
    for spans in ([tool, model], [model, tool]):
        whole = only(decoded(agent("a", at=3, lasts=9), *spans))
        assert kinds(whole) == [("agent", "a", None), ("tool", "quick", "a"), ("llm", "chat m", "a")]


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


def test_the_sum_of_an_agent_counts_only_where_its_calls_are_not_there() -> None:
    held = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "a", "gen_ai.usage.input_tokens": 9}
    alone = only(decoded(one("a", held, lasts=9)))
    assert (alone.usage.prompt_tokens, alone.usage.calls) == (9, 0)
    assert form(alone)["steps"][0]["usage"] is None
    beside = only(decoded(one("a", held, lasts=9), one("chat m", CHAT, parent="a")))
    assert (beside.usage.prompt_tokens, beside.usage.calls) == (3, 1)
    assert beside.steps[0].info["aggregate_usage"]["input"] == 9


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
    said = Feedback(run="r", value=1.0, comment="thumbs up")
    task = Task(instruction="What is it like?", initial_state={"city": "Paris"})
    shown = form(
        Trajectory(
            task=task, steps=steps, outcome=Outcome.SUCCESS, feedback=[said], scores={"ok": Score("ok", None)}
        )
    )
    assert (shown["instruction"], shown["initial_state"]) == ("What is it like?", {"city": "Paris"})
    assert [each["comment"] for each in shown["feedback"]] == ["thumbs up"]
    assert shown["scores"] == [{"name": "ok", "value": None, "reason": "", "evaluator": ""}]
    assert (shown["outcome"], shown["error"]) == ("success", None)
    assert shown["steps"][1]["parent"] == 0
    assert shown["steps"][1]["arguments"] == {"city": "Paris"}
    assert shown["steps"][1]["output"] == {"text": "sunny"}
    assert shown["steps"][0]["tokens"] is None
