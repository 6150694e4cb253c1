"""The normaliser under generated spans: it reads or says that it could not, and accounts for every span."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from otlp_spans import TRACE, call, decoded, one, pairs

from whet.store.codec import encode
from whet.tracing.dialects import form, survey
from whet.tracing.otlp import decode
from whet.types import Span

KEYS = [
    "openinference.span.kind",
    "traceloop.span.kind",
    "traceloop.entity.name",
    "traceloop.entity.input",
    "traceloop.entity.output",
    "traceloop.association.properties.user_id",
    "gen_ai.operation.name",
    "gen_ai.agent.name",
    "gen_ai.request.model",
    "gen_ai.response.id",
    "gen_ai.response.finish_reasons",
    "gen_ai.input.messages",
    "gen_ai.output.messages",
    "gen_ai.system_instructions",
    "gen_ai.usage.input_tokens",
    "gen_ai.usage.output_tokens",
    "gen_ai.tool.name",
    "gen_ai.tool.call.id",
    "gen_ai.tool.call.arguments",
    "gen_ai.tool.call.result",
    "gen_ai.prompt.0.role",
    "gen_ai.prompt.0.content",
    "gen_ai.prompt.0.tool_calls.0.arguments",
    "gen_ai.completion.0.content",
    "gen_ai.task.name",
    "agent_name",
    "pydantic_ai.all_messages",
    "pydantic_ai.new_message_index",
    "final_result",
    "events",
    "agent.name",
    "graph.node.id",
    "input.value",
    "output.value",
    "llm.model_name",
    "llm.invocation_parameters",
    "llm.input_messages.0",
    "llm.input_messages.0.message",
    "llm.input_messages.0.message.role",
    "llm.input_messages.0.message.content",
    "llm.input_messages.7.message.contents.0.message_content.text",
    "llm.input_messages.0.message.tool_calls.0.tool_call.function.arguments",
    "llm.output_messages.0.message.role",
    "llm.output_messages.0.message.content",
    "llm.token_count.prompt",
    "tool.name",
    "metadata",
    "session.id",
    "error.type",
]
WORDS = st.sampled_from(
    [
        "LLM",
        "TOOL",
        "AGENT",
        "CHAIN",
        "chat",
        "execute_tool",
        "invoke_agent",
        "create_agent",
        "execute_task",
        "workflow",
        "task",
        "agent",
        "tool",
        "user",
        "assistant",
        "system",
        "text",
        "m",
        "call_0",
        "get",
    ]
)
MEMBERS = st.sampled_from(
    [
        "role",
        "content",
        "parts",
        "type",
        "text",
        "tool_calls",
        "function",
        "name",
        "arguments",
        "id",
        "input",
        "messages",
        "kwargs",
        "lc",
        "data",
        "output",
        "outputs",
        "inputs",
        "input_str",
        "raw",
        "args",
        "choices",
        "tasks_output",
        "tool_call_id",
        "model",
        "event.name",
        "message",
    ]
)
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(), WORDS, st.text(max_size=5)
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(MEMBERS, inner, max_size=4),
    max_leaves=6,
)
ATTRIBUTES = st.dictionaries(
    st.sampled_from(KEYS), st.one_of(WORDS, WORDS, VALUES.map(json.dumps), VALUES), max_size=8
)
NAMES = st.sampled_from(["a", "b", "c", "d", "e"])
EVENTS = st.lists(
    st.builds(
        lambda name, held: {"name": name, "timeUnixNano": "1", "attributes": pairs(held)},
        st.sampled_from(["exception", "gen_ai.choice", "gen_ai.user.message", "gen_ai.tool.message"]),
        st.dictionaries(MEMBERS | st.just("exception.type"), VALUES, max_size=4),
    ),
    max_size=2,
)
SPANS = st.lists(
    st.builds(
        lambda name, parent, held, at, status, events: one(
            name, held, parent=parent, at=at, status={"code": status}, events=events
        ),
        NAMES,
        st.none() | NAMES,
        ATTRIBUTES,
        st.integers(0, 5),
        st.integers(0, 2),
        EVENTS,
    ),
    max_size=5,
)
CALLS = st.lists(
    st.builds(
        lambda parent, request, response, choices, usage, error: call(
            "x", parent=parent, request=request, response=response, choices=choices, usage=usage, error=error
        ),
        st.none() | NAMES,
        *[VALUES | st.dictionaries(MEMBERS, VALUES, max_size=4)] * 5,
    ),
    max_size=2,
)


def finite(value: Any) -> Any:
    """JSON of the wire has no NaN."""
    return json.loads(json.dumps(value), parse_constant=lambda _: 0.0)


def accounted(spans: list[Span]) -> None:
    """Every span is in a step, beside the steps, unread or left out; and what was read can be stored."""
    found = survey(spans)
    places: Counter[str] = Counter()
    for each in found.trajectories:
        encode(each)
        json.dumps(form(each))
        assert not each.meta.get("unread"), each.meta
        for step in each.steps:
            places.update(step.info["span_ids"])
        places.update(apart["span_id"] for apart in each.meta.get("spans_not_steps", []))
        places.update(each.meta.get("loose_logs", []))
        ids = [step.id for step in each.steps]
        assert len(set(ids)) == len(ids)
        assert all(step.parent is None or step.parent in ids for step in each.steps)
        assert all(step.parent != step.id for step in each.steps)
    places.update(span.id.hex() for span in found.left_out)
    assert places == Counter(id.hex() for _, id in {(span.trace, span.id) for span in spans})


@settings(max_examples=80, deadline=None)
@given(SPANS, CALLS)
@example([one("a", {"openinference.span.kind": "CHAIN"}, parent="a")], [])
def test_every_span_is_accounted_for(spans: list[dict[str, Any]], calls: list[Span]) -> None:
    accounted(
        [
            *decoded(*finite(spans)),
            *[each._replace(body=json.dumps(finite(json.loads(each.body))).encode()) for each in calls],
        ]
    )


@settings(max_examples=25, deadline=None)
@given(SPANS, CALLS, st.randoms(use_true_random=False))
def test_the_order_of_arrival_does_not_matter(
    spans: list[dict[str, Any]], calls: list[Span], chance: random.Random
) -> None:
    # Spans of one name and time are told apart by arrival alone, so each has its own time here.
    apart = [each | {"startTimeUnixNano": str(place)} for place, each in enumerate(finite(spans))]
    named = {each["spanId"]: each for each in apart}
    found = decoded(*named.values())
    shuffled = list(found)
    chance.shuffle(shuffled)
    assert [encode(each) for each in survey(found).trajectories] == [
        encode(each) for each in survey(shuffled).trajectories
    ]


@pytest.fixture(scope="session")
def captured(data: Path) -> list[Span]:
    found: list[Span] = []
    for path in sorted((data / "otel").glob("*.pb")):
        found += decode(path.read_bytes(), json=False, logs="logs" in path.name).spans
    return found


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_damaged_captures_are_read_or_counted(captured: list[Span], data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.sampled_from(captured), min_size=1, max_size=8, unique=True))
    damaged = []
    for span in chosen:
        body = bytearray(span.body)
        for _ in range(data.draw(st.integers(0, 4))):
            body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
        damaged.append(span._replace(body=bytes(body), trace=TRACE))
    found = survey(damaged)
    for each in found.trajectories:
        encode(each)
        unread = each.meta.get("unread_spans", [])
        assert each.meta.get("unread", 0) == len(unread)
        known = {id for step in each.steps for id in step.info["span_ids"]}
        known |= {apart["span_id"] for apart in each.meta.get("spans_not_steps", [])}
        known |= {*unread, *each.meta.get("loose_logs", [])}
        joined = {span.id.hex() for span in damaged if span.encoding == "log"}
        assert known | joined >= {span.id.hex() for span in damaged}
