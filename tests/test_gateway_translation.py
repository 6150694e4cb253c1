"""Chat told as Responses and as Messages: a streamed answer says what the plain one does, however it is cut."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from typing import Any

import pytest
from gateway_world import pieces
from hypothesis import given, settings
from hypothesis import strategies as st

from whet.models.wire import chat, messages, responses
from whet.models.wire.sse import Splitter, data_of
from whet.serve.gateway.dialects import DIALECTS, answer_as, request_as
from whet.serve.gateway.failures import UpstreamFailed

TEXT = st.text(st.characters(codec="utf-8"), max_size=30)
CALL = st.builds(
    lambda number, name, arguments: {
        "id": f"call_{number}",
        "type": "function",
        "function": {"name": name, "arguments": json.dumps(arguments)},
    },
    st.integers(0, 99),
    st.sampled_from(["look", "write"]),
    st.dictionaries(st.sampled_from(["a", "b"]), TEXT | st.integers(), max_size=2),
)
ANSWER = st.fixed_dictionaries(
    {
        "content": st.none() | TEXT,
        "reasoning_content": st.none() | TEXT,
        "tool_calls": st.lists(CALL, max_size=3),
    }
)
FINISH = st.sampled_from(["stop", "length", "tool_calls", "content_filter"])


def whole(message: Mapping[str, Any], finish: str) -> dict[str, Any]:
    return {
        "id": "c1",
        "model": "m",
        "created": 5,
        "choices": [{"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 3}},
    }


def chunks(answer: Mapping[str, Any], cuts: st.DataObject, *, mixed: bool) -> list[dict[str, Any]]:
    """The answer as chat streams it, cut where hypothesis says; `mixed` lets tool calls take turns."""
    message = answer["choices"][0]["message"]
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    for name in ("reasoning_content", "content"):
        deltas += [{name: piece} for piece in pieces(message[name] or "", cuts)]
    queues = []
    for index, call in enumerate(message["tool_calls"]):
        first = {**call, "index": index, "function": {**call["function"], "arguments": ""}}
        rest = pieces(call["function"]["arguments"], cuts)
        queues.append([first, *({"index": index, "function": {"arguments": piece}} for piece in rest)])
    while any(queues):
        waiting = [queue for queue in queues if queue]
        queue = cuts.draw(st.sampled_from(waiting)) if mixed else waiting[0]
        deltas.append({"tool_calls": [queue.pop(0)]})
    common = {"id": "c1", "model": "m", "created": 5}
    found = [{**common, "choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    last = {"index": 0, "delta": {}, "finish_reason": answer["choices"][0]["finish_reason"]}
    return [*found, {**common, "choices": [last]}, {**common, "choices": [], "usage": answer["usage"]}]


def told(api: str, answer: Mapping[str, Any], stream: list[dict[str, Any]]) -> tuple[Any, list[Any]]:
    writer, reader = DIALECTS[api].stream_writer({"model": "m"}), DIALECTS[api].stream_reader()
    added = [piece for chunk in stream for piece in chat.ChatStreamReader().pieces(chunk)]
    events = [event for piece in added for event in writer.write(piece)] + writer.end()
    for event in events:
        reader.read(event)
    assert reader.finished
    return reader.response(), events


def without_ids(found: Any) -> Any:
    if isinstance(found, dict):
        return {name: without_ids(value) for name, value in found.items() if name != "id"}
    return [without_ids(value) for value in found] if isinstance(found, list) else found


@settings(max_examples=60)
@given(ANSWER, FINISH, st.data(), st.booleans())
def test_a_stream_told_as_messages_says_what_the_plain_answer_says(
    message: dict[str, Any], finish: str, cuts: st.DataObject, mixed: bool
) -> None:
    answer = whole(message, finish)
    streamed, events = told("messages", answer, chunks(answer, cuts, mixed=mixed))
    plain = answer_as(answer, "messages", "chat", {"model": "m"})
    assert sorted(map(str, streamed["content"])) == sorted(map(str, plain["content"]))
    assert streamed["usage"] == plain["usage"]
    assert streamed["stop_reason"] == plain["stop_reason"]
    opened: list[int] = []
    for event in events:
        if event["type"] == "content_block_start":
            assert not opened, "one block at a time"
            opened.append(event["index"])
        elif event["type"] == "content_block_delta":
            assert opened == [event["index"]]
        elif event["type"] == "content_block_stop":
            assert opened.pop() == event["index"]


@settings(max_examples=60)
@given(ANSWER, FINISH, st.data(), st.booleans())
def test_a_stream_told_as_responses_says_what_the_plain_answer_says(
    message: dict[str, Any], finish: str, cuts: st.DataObject, mixed: bool
) -> None:
    answer = whole(message, finish)
    streamed, events = told("responses", answer, chunks(answer, cuts, mixed=mixed))
    plain = without_ids(answer_as(answer, "responses", "chat", {"model": "m"}))
    found = without_ids(streamed)
    items, wanted = (
        [item | {"status": ""} for item in response.pop("output")] for response in (found, plain)
    )
    assert (sorted(map(str, items)) == sorted(map(str, wanted))) if mixed else (items == wanted)
    assert found == plain
    assert [event["sequence_number"] for event in events] == list(range(len(events)))


@settings(max_examples=60)
@given(ANSWER, FINISH, st.data(), st.booleans())
def test_chunks_put_together_are_the_plain_answer(
    message: dict[str, Any], finish: str, cuts: st.DataObject, mixed: bool
) -> None:
    answer = whole(message, finish)
    reader = chat.ChatStreamReader()
    for chunk in chunks(answer, cuts, mixed=mixed):
        reader.read(chunk)
    found = reader.response()
    assert found is not None
    made = found["choices"][0]["message"]
    assert reader.finished
    assert found["usage"] == answer["usage"]
    assert (made["content"] or "") == (message["content"] or "")
    assert (made.get("reasoning_content") or "") == (message["reasoning_content"] or "")
    calls = sorted(made.get("tool_calls", ()), key=lambda call: call["index"])
    assert [{name: call[name] for name in ("id", "function")} for call in calls] == [
        {name: call[name] for name in ("id", "function")} for call in message["tool_calls"]
    ]


@settings(max_examples=100)
@given(st.lists(TEXT.map(json.dumps), max_size=6), st.sampled_from(["\n\n", "\r\n\r\n"]), st.data())
def test_a_stream_is_cut_into_the_same_events_whatever_its_pieces(
    values: list[str], blank: str, cuts: st.DataObject
) -> None:
    raw = "".join(f"data: {value}{blank}" for value in values).encode()
    at = sorted(cuts.draw(st.sets(st.integers(0, len(raw)), max_size=8)) | {0, len(raw)})
    splitter = Splitter()
    events = [event for start, end in itertools.pairwise(at) for event in splitter.feed(raw[start:end])]
    assert [data_of(event).decode() for event in events] == values
    assert splitter.end() == []
    assert b"".join(events) == raw


def test_a_messages_conversation_becomes_a_chat() -> None:
    body = messages.read_request(
        {
            "model": "m",
            "max_tokens": 5,
            "system": [{"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}],
            "stop_sequences": ["END"],
            "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
            "thinking": {"type": "enabled", "budget_tokens": 1024},
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "What is this?"},
                        {
                            "type": "image",
                            "source": {"type": "base64", "media_type": "image/png", "data": "AA=="},
                        },
                    ],
                },
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "hm", "signature": "s"},
                        {"type": "text", "text": "Looking."},
                        {"type": "tool_use", "id": "t1", "name": "look", "input": {"x": 1}},
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "tool_result",
                            "tool_use_id": "t1",
                            "content": [{"type": "text", "text": "a cat"}],
                        },
                        {"type": "text", "text": "So?"},
                    ],
                },
            ],
        }
    )
    assert body["messages"] == [
        {"role": "system", "content": "Be kind."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "What is this?"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
            ],
        },
        {
            "role": "assistant",
            "content": "Looking.",
            "tool_calls": [
                {"id": "t1", "type": "function", "function": {"name": "look", "arguments": '{"x":1}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "t1", "content": "a cat"},
        {"role": "user", "content": "So?"},
    ]
    assert (body["stop"], body["tool_choice"], body["parallel_tool_calls"]) == (["END"], "required", False)


def test_a_responses_conversation_becomes_a_chat() -> None:
    body = responses.read_request(
        {
            "model": "m",
            "instructions": "Be kind.",
            "max_output_tokens": 5,
            "reasoning": {"effort": "low"},
            "text": {"format": {"type": "json_schema", "name": "s", "schema": {}, "strict": True}},
            "tool_choice": {"type": "function", "name": "look"},
            "input": [
                {"role": "developer", "content": "Really."},
                {
                    "role": "user",
                    "content": [
                        {"type": "input_text", "text": "This?"},
                        {"type": "input_image", "image_url": "u"},
                    ],
                },
                {"type": "reasoning", "id": "rs", "summary": []},
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hm."}]},
                {"type": "function_call", "call_id": "t1", "name": "look", "arguments": "{}"},
                {"type": "function_call", "call_id": "t2", "name": "look", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "t1", "output": "a cat"},
            ],
        }
    )
    call = {"type": "function", "function": {"name": "look", "arguments": "{}"}}
    assert body["messages"] == [
        {"role": "system", "content": "Be kind."},
        {"role": "system", "content": "Really."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "This?"},
                {"type": "image_url", "image_url": {"url": "u", "detail": "auto"}},
            ],
        },
        {"role": "assistant", "content": "Hm.", "tool_calls": [{"id": "t1", **call}, {"id": "t2", **call}]},
        {"role": "tool", "tool_call_id": "t1", "content": "a cat"},
    ]
    assert (body["max_tokens"], body["reasoning_effort"]) == (5, "low")
    assert body["response_format"]["json_schema"] == {"name": "s", "schema": {}, "strict": True}
    assert body["tool_choice"] == {"type": "function", "function": {"name": "look"}}


@pytest.mark.parametrize(
    "request_",
    [
        {"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
        {"messages": [{"role": "user", "content": [{"type": "document", "source": {}}]}]},
        {"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "file"}}]}]},
    ],
    ids=["server tool", "document", "file"],
)
def test_what_chat_does_not_have_is_refused_by_name(request_: dict[str, Any]) -> None:
    with pytest.raises(UpstreamFailed, match="speaks the chat API only") as caught:
        request_as(request_, "messages", "chat")
    assert caught.value.status == 400
