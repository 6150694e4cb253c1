"""Agents that speak chat or Responses, in front of an upstream that speaks the Messages API alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import openai
import pytest
from gateway_world import HELLO, World, pieces, world
from hypothesis import given, settings
from hypothesis import strategies as st

from whet.models.fakes import Reply, ScriptedServer
from whet.models.wire import messages
from whet.models.wire.messages import LIMIT
from whet.serve.gateway.dialects import DIALECTS, answer_as, request_as
from whet.serve.gateway.failures import UpstreamFailed
from whet.types import Bundle, Version

ONLY = {"speaks": frozenset({"messages"})}
TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=30)
INPUT = st.dictionaries(st.sampled_from(["a", "b"]), TEXT | st.integers(), max_size=2)
BLOCK = st.one_of(
    st.builds(lambda text: {"type": "text", "text": text}, TEXT),
    st.builds(lambda text: {"type": "thinking", "thinking": text, "signature": "s"}, TEXT),
    st.builds(
        lambda number, given: {"type": "tool_use", "id": f"t{number}", "name": "look", "input": given},
        st.integers(0, 99),
        INPUT,
    ),
)
STOPS = ["end_turn", "max_tokens", "tool_use", "stop_sequence", "refusal", "pause_turn"]


def whole(content: list[Any], stop: str) -> dict[str, Any]:
    usage = {"input_tokens": 4, "output_tokens": 5, "cache_read_input_tokens": 2}
    return {
        "id": "m1",
        "type": "message",
        "role": "assistant",
        "model": "claude",
        "content": content,
        "stop_reason": stop,
        "stop_sequence": "END" if stop == "stop_sequence" else None,
        "usage": usage,
    }


def events(answer: Mapping[str, Any], cuts: st.DataObject) -> list[dict[str, Any]]:
    """The answer as the Messages API streams it, cut where hypothesis says."""
    usage = {**answer["usage"], "output_tokens": 1}
    start = {**answer, "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
    found: list[dict[str, Any]] = [{"type": "message_start", "message": start}, {"type": "ping"}]
    for index, block in enumerate(answer["content"]):
        if block["type"] == "tool_use":
            empty: dict[str, Any] = {**block, "input": {}}
            text, kind, field = json.dumps(block["input"]), "input_json_delta", "partial_json"
            written = [] if not block["input"] else pieces(text, cuts)
        else:
            field = block["type"]
            empty = {**block, field: ""}
            kind, written = f"{field}_delta", pieces(block[field], cuts)
        found.append({"type": "content_block_start", "index": index, "content_block": empty})
        for piece in written:
            delta = {"type": kind, field: piece}
            found.append({"type": "content_block_delta", "index": index, "delta": delta})
        found.append({"type": "content_block_stop", "index": index})
    last = {"stop_reason": answer["stop_reason"], "stop_sequence": answer["stop_sequence"]}
    ended = {"type": "message_delta", "delta": last, "usage": {"output_tokens": 5}}
    return [*found, ended, {"type": "message_stop"}]


def told(api: str, stream: list[dict[str, Any]]) -> Any:
    writer, reader, upstream = (
        DIALECTS[api].stream_writer({"model": "claude"}),
        DIALECTS[api].stream_reader(),
        messages.MessagesStreamReader(),
    )
    for event in stream:
        upstream.read(event)
        for piece in upstream.pieces(event):
            for chunk in writer.write(piece):
                reader.read(chunk)
    for chunk in writer.end():
        reader.read(chunk)
    assert reader.finished
    return reader.response()


def same(found: Any) -> Any:
    """Without what is made anew in each answer, and with arguments as what they say."""
    if isinstance(found, dict):
        dropped = ("id", "created", "created_at", "index", "logprobs", "refusal", "object", "status")
        kept = {name: same(value) for name, value in found.items() if name not in dropped}
        if isinstance(kept.get("arguments"), str):
            kept["arguments"] = json.loads(kept["arguments"])
        if kept.get("content") == "":
            kept["content"] = None  # a stream of chat begins with an empty text
        return kept
    return [same(value) for value in found] if isinstance(found, list) else found


@settings(max_examples=80)
@given(st.lists(BLOCK, max_size=4), st.sampled_from(STOPS), st.data())
def test_a_stream_says_what_the_plain_answer_says(content: list[Any], stop: str, cuts: st.DataObject) -> None:
    answer = whole(content, stop)
    stream = events(answer, cuts)
    assert same(told("chat", stream)) == same(answer_as(answer, "chat", "messages", {}))
    streamed = told("responses", stream)
    plain = answer_as(answer, "responses", "messages", {"model": "claude"})
    assert sorted(map(str, same(streamed)["output"])) == sorted(map(str, same(plain)["output"]))
    assert (streamed["status"], streamed["usage"]) == (plain["status"], plain["usage"])


@settings(max_examples=60)
@given(st.lists(BLOCK.filter(lambda block: block["type"] != "thinking"), min_size=1, max_size=4))
def test_an_answer_that_goes_back_into_the_conversation_is_what_the_model_said(content: list[Any]) -> None:
    answer = answer_as(whole(content, "tool_use"), "chat", "messages", {})
    again = messages.write_request({"model": "claude", "messages": [*HELLO, answer["choices"][0]["message"]]})
    said = again["messages"][1]["content"]
    assert "".join(block["text"] for block in said if block["type"] == "text") == "".join(
        block["text"] for block in content if block["type"] == "text"
    )
    calls = [block for block in content if block["type"] == "tool_use"]
    assert [block for block in said if block["type"] == "tool_use"] == calls


def test_a_chat_request_with_tools_and_pictures_is_put_as_messages() -> None:
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}}
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"city": "Rome"}'}}
    other = {"id": "c2", "type": "function", "function": {"name": "look", "arguments": ""}}
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    wanted = messages.write_request(
        {
            "model": "claude",
            "messages": [
                {"role": "system", "content": "Be kind."},
                {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]},
                {"role": "user", "content": [{"type": "text", "text": "What is it?"}, picture]},
                {"role": "assistant", "content": None, "tool_calls": [call, other]},
                {"role": "tool", "tool_call_id": "c1", "content": "a cat"},
                {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "a dog"}]},
                {"role": "user", "content": "And now?"},
                {"role": "assistant", "content": ""},
            ],
            "tools": [
                {
                    "type": "function",
                    "function": {
                        "name": "look",
                        "description": "d",
                        "parameters": parameters,
                        "strict": True,
                    },
                },
                {"type": "function", "function": {"name": "bare"}},
            ],
            "tool_choice": "required",
            "parallel_tool_calls": False,
            "stop": "END",
            "temperature": 0.5,
            "user": "ann",
            "seed": 7,
            "stream_options": {"include_usage": True},
            "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": parameters}},
        }
    )
    assert wanted == {
        "model": "claude",
        "max_tokens": LIMIT,
        "temperature": 0.5,
        "stop_sequences": ["END"],
        "metadata": {"user_id": "ann"},
        "output_config": {"format": {"type": "json_schema", "schema": parameters}},
        "tools": [
            {"name": "look", "input_schema": parameters, "description": "d", "strict": True},
            {"name": "bare", "input_schema": {"type": "object"}},
        ],
        "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
        "system": "Be kind.\n\nBe brief.",
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "What is it?"},
                    {
                        "type": "image",
                        "source": {"type": "base64", "media_type": "image/png", "data": "AA=="},
                    },
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "tool_use", "id": "c1", "name": "look", "input": {"city": "Rome"}},
                    {"type": "tool_use", "id": "c2", "name": "look", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "content": "a cat"},
                    {"type": "tool_result", "tool_use_id": "c2", "content": "a dog"},
                    {"type": "text", "text": "And now?"},
                ],
            },
        ],
    }


@pytest.mark.parametrize(
    "given_",
    [
        {"n": 2},
        {"logprobs": True},
        {"return_token_ids": True},
        {"presence_penalty": 0.5},
        {"logit_bias": {"5": 1}},
        {"temperature": 1.5},
        {"response_format": {"type": "json_object"}},
        {"modalities": ["text", "audio"]},
        {"functions": [{"name": "f"}]},
        {"tools": [{"type": "custom", "custom": {"name": "c"}}]},
        {"messages": [*HELLO, {"role": "system", "content": "Now in French."}]},
        {"messages": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}]},
    ],
    ids=lambda given_: next(iter(given_)),
)
def test_what_the_messages_api_does_not_have_is_refused_by_name(given_: dict[str, Any]) -> None:
    with ScriptedServer("fine", speaks=("messages",)) as upstream, world(upstream, options=ONLY) as served:
        with served.openai() as client, pytest.raises(openai.BadRequestError, match="Messages API only"):
            client.chat.completions.create(model="scripted", messages=HELLO, extra_body=given_)
        assert upstream.requests == []
        call = served.call()
    assert (call["error"]["fault"], call["error"]["type"]) == ("agent", "not_translatable")


def test_what_neither_chat_nor_messages_has_is_refused_by_name() -> None:
    with pytest.raises(UpstreamFailed, match="previous_response_id"):
        request_as({"model": "m", "input": "x", "previous_response_id": "r"}, "responses", "messages")


def test_the_key_the_version_and_the_path_are_those_of_the_messages_api() -> None:
    with ScriptedServer("fine", speaks=("messages",), api_key="sk-agent") as upstream:
        with world(upstream, options=ONLY) as served, served.openai() as client:
            assert client.models.list().data[0].id == "scripted"
            client.chat.completions.create(model="scripted", messages=HELLO)
        listed, asked = upstream.requests
    assert (listed.path, asked.path) == ("/v1/models", "/v1/messages")
    for request in (listed, asked):
        assert request.headers["x-api-key"] == "sk-agent"
        assert request.headers["anthropic-version"] == "2023-06-01"
        assert "authorization" not in request.headers


def test_an_upstream_that_speaks_chat_too_is_asked_in_chat() -> None:
    both = {"speaks": frozenset({"chat", "messages"})}
    with ScriptedServer("fine") as upstream, world(upstream, options=both) as served:
        with served.openai() as client:
            client.responses.create(model="scripted", input="hello")
        assert upstream.requests[0].path == "/v1/chat/completions"


# -- what goes wrong ----------------------------------------------------------------------------


def ask_chat(served: World, *, stream: bool = False) -> None:
    with served.openai() as client:
        found = client.chat.completions.create(model="scripted", messages=HELLO, stream=stream)
        assert not stream or list(found)


def ask_responses(served: World, *, stream: bool = False) -> None:
    with served.openai() as client:
        found = client.responses.create(model="scripted", input="hello", stream=stream)
        # OpenAI's client gives an error event of this API back as an event.
        if stream and "error" in [event.type for event in found]:
            raise openai.APIError("error event", request=None, body=None)  # type: ignore[arg-type]


@pytest.fixture(params=[ask_chat, ask_responses], ids=["chat", "responses"])
def ask(request: pytest.FixtureRequest) -> Callable[..., None]:
    found: Callable[..., None] = request.param
    return found


@pytest.mark.parametrize(
    ("reply", "status", "kind"),
    [
        (Reply(body=b'{"content": [{"type": "text"}], "id": 1}'), 502, "malformed_answer"),
        (Reply(status=529), 529, "scripted"),
        (Reply(status=429, headers={"retry-after": "7"}), 429, "scripted"),
    ],
    ids=["misshapen", "overloaded", "rate limit"],
)
def test_a_plain_call_that_fails_is_told_in_the_agents_dialect(
    ask: Callable[..., None], reply: Reply, status: int, kind: str
) -> None:
    with (
        ScriptedServer(lambda _: reply, speaks=("messages",)) as upstream,
        world(upstream, options=ONLY) as served,
    ):
        with pytest.raises(openai.APIStatusError) as caught:
            ask(served)
        call = served.call()
    assert caught.value.status_code == status
    assert isinstance(caught.value.body, dict)
    assert caught.value.body["message"]
    assert (call["status"], call["error"]["type"], call["error"]["fault"]) == (status, kind, "model")
    assert caught.value.response.headers.get("retry-after") == reply.headers.get("retry-after")


START = b'event: message_start\ndata: {"type": "message_start", "message": {"id": "m", "content": []}}\n\n'
FAILED = (
    b'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error", "message": "full"}}\n\n'
)


@pytest.mark.parametrize(
    ("events_", "kind"),
    [
        ([START, FAILED], "overloaded_error"),
        (
            [START, b'data: {"type": "content_block_delta", "index": 5, "delta": {}}\n\n'],
            "malformed_answer",
        ),
        ([START], "upstream_cut"),
    ],
    ids=["error event", "misshapen", "cut"],
)
def test_a_stream_that_fails_is_told_in_the_agents_dialect(
    ask: Callable[..., None], events_: list[bytes], kind: str
) -> None:
    with (
        ScriptedServer(lambda _: Reply(events=events_), speaks=("messages",)) as upstream,
        world(upstream, options=ONLY) as served,
    ):
        with pytest.raises(openai.APIError):
            ask(served, stream=True)
        call = served.call()
    assert (call["error"]["type"], call["error"]["fault"]) == (kind, "model")


def test_a_bundle_is_served_to_an_upstream_that_speaks_messages() -> None:
    bundle = Bundle(
        [
            Version(resource="gateway.system_prompt", content="Be brief."),
            Version(resource="gateway.parameters", content={"temperature": 0.25, "max_tokens": 7}),
        ]
    )
    with ScriptedServer("fine", speaks=("messages",)) as upstream, world(upstream, options=ONLY) as served:
        served.gateway.assignments.swap(bundle)
        ask_chat(served)
    asked = upstream.requests[0].body
    assert (asked["system"], asked["temperature"], asked["max_tokens"]) == ("Be brief.", 0.25, 7)
