"""What reading remembers from span to span is never seen in another run."""

from __future__ import annotations

import json

from otlp_spans import decoded, one, only, protobuf_request, protobuf_span

from whet.record.tracing.content import content
from whet.record.tracing.dialects.messages import messages, with_wire_ids
from whet.record.tracing.otlp import decode

ASKED = {"role": "assistant", "tool_calls": [{"id": "item_1", "function": {"name": "f", "arguments": "{}"}}]}
ANSWERED = {"role": "tool", "tool_call_id": "call_1", "content": "4"}


def test_a_conversation_that_is_read_again_has_nothing_of_what_was_added_to_it() -> None:
    text = json.dumps([{"role": "user", "content": "how many?"}, ASKED])
    longer = json.dumps([{"role": "user", "content": "how many?"}, ASKED, ANSWERED])
    joined = with_wire_ids(messages(longer))
    assert joined[1]["tool_calls"][0]["id_wire"] == "call_1"
    assert "id_wire" not in messages(text)[1]["tool_calls"][0]
    assert messages(longer)[1] == messages(text)[1]
    read = messages(text)
    read[0]["text"] = "changed"
    assert messages(text)[0]["text"] == "how many?"


def test_messages_as_text_are_those_of_the_same_values() -> None:
    for value in (
        [ASKED, ANSWERED],
        [["user", "a pair"]],
        [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}, {"type": "message"}],
        [1, None, "text", {"role": "user", "content": [{"type": "text", "text": "x"}]}],
        {"role": "user", "content": "alone"},
    ):
        for _ in range(2):
            assert messages(json.dumps(value)) == messages(value)
    assert messages("[1,") == messages('[{"role": "user"} x]') == messages("[\ud800]") == []


def test_a_list_of_an_attribute_that_is_read_again_is_a_list_of_its_own() -> None:
    body = protobuf_span("chat", {"reasons": ["stop"], "n": 1, "yes": True})
    (span,) = decode(protobuf_request(body), json=False, logs=False).spans
    first, second = content(span).attributes, content(span).attributes
    assert first == second == {"reasons": ["stop"], "n": 1, "yes": True}
    assert [type(value) for value in second.values()] == [list, int, int]
    assert first["reasons"] is not second["reasons"]


def test_two_runs_with_one_conversation_share_no_message() -> None:
    held = {
        "gen_ai.operation.name": "chat",
        "gen_ai.input.messages": json.dumps([{"role": "user", "parts": [{"type": "text", "content": "hi"}]}]),
    }
    one_run, another = (only(decoded(one("chat", held, trace=bytes([number]) * 16))) for number in (1, 2))
    assert one_run.steps[0].observation == another.steps[0].observation
    assert one_run.steps[0].observation[0] is not another.steps[0].observation[0]
