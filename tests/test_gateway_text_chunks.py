"""Chunks that differ from one before by their text alone are read without their JSON, and as their JSON says."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from whet.models.wire.chat import ChatStreamReader
from whet.models.wire.sse import data_of
from whet.serve.gateway.dialects import ExtraFields
from whet.serve.gateway.text_chunk import TextChunk

WORDS = [
    "Friday ",
    "",
    "é",
    "😀",
    'say "no"',
    "a\\b",
    "line\nline",
    '","content":"',
    "x",
    "\u2028",
    "tab\t",
    "}]}",
]
HEAD: dict[str, Any] = {"id": "c", "object": "chat.completion.chunk", "created": 7, "model": "m"}


def written(value: Any, spaced: bool = False) -> bytes:
    data = msgspec.json.encode(value)
    return b"data: " + (data.replace(b'":"', b'": "') if spaced else data) + b"\n\n"


def a_chunk(draw: random.Random) -> dict[str, Any]:
    text = draw.choice(WORDS)
    choice: dict[str, Any] = {"index": draw.choice([0, 0, 0, 0, 1]), "delta": {"content": text}}
    kind = draw.randrange(14)
    if kind == 0:
        choice["delta"] = {"role": "assistant", "content": text}
    elif kind == 1:
        choice["delta"] = {
            "tool_calls": [{"index": 0, "id": "t", "function": {"name": "f", "arguments": text}}]
        }
    elif kind == 2:
        choice |= {"finish_reason": draw.choice([None, "stop"]), "logprobs": None}
    elif kind == 3:
        choice["logprobs"] = {"content": [{"token": text, "logprob": -0.5, "content": text}]}
    elif kind == 4:
        choice["delta"] = {"reasoning_content": text}
    elif kind == 5:
        choice["token_ids"] = [draw.randrange(99)]
    extra: dict[str, Any] = {}
    if kind in (6, 7):
        extra = {"usage": draw.choice([None, {"prompt_tokens": 1, "completion_tokens": draw.randrange(9)}])}
    elif kind == 8:
        extra = {"obfuscation": "x" * draw.randrange(5)}
    elif kind == 9:
        extra = {"policy_version": draw.choice(["1", "2"])}
    return {**HEAD, "choices": [choice], **extra}


@pytest.mark.parametrize("seed", range(40))
def test_what_is_read_and_passed_on_is_what_the_json_says(seed: int) -> None:
    draw = random.Random(seed)
    asked = ExtraFields({})
    plain, quick = ChatStreamReader(), ChatStreamReader()
    form: TextChunk | None = None
    alike = 0
    usual: dict[str, Any] = {"index": 0, **draw.choice([{}, {"logprobs": None, "finish_reason": None}])}
    steady = {**HEAD, "choices": [usual], **draw.choice([{}, {"usage": None}])}
    for _ in range(120):
        chunk = a_chunk(draw)
        if draw.random() < 0.6:  # most chunks of a stream have one form
            usual["delta"] = {"content": draw.choice(WORDS)}
            chunk = steady
        event = written(chunk, spaced=seed % 4 == 1)
        value = msgspec.json.decode(data_of(event))
        plain.read(msgspec.json.decode(data_of(event)))
        stripped = asked.stripped(event, value, streamed=True) if asked.in_stream(event) else event
        expected = stripped if stripped is None or stripped is event else b"data: " + stripped + b"\n\n"
        passed = form.read(event) if form is not None else None
        if passed is not None:
            alike += 1
            assert expected is not None
            # Blanks between a name and its value are as they came, or as they are written here.
            assert msgspec.json.decode(data_of(passed)) == msgspec.json.decode(data_of(expected))
            assert passed == expected
        else:
            value = msgspec.json.decode(data_of(event))
            quick.read(value)
            if expected is not None:
                form = TextChunk.of(event, expected, value, quick) or form
        assert quick.response() == plain.response()
        assert quick.finished == plain.finished
    assert alike > 10


def test_what_is_no_json_or_has_another_form_is_left_to_the_reader_of_json() -> None:
    reader, value = ChatStreamReader(), {**HEAD, "choices": [{"index": 0, "delta": {"content": "a"}}]}
    event = written(value)
    reader.read(value)
    form = TextChunk.of(event, event, value, reader)
    assert form is not None
    assert form.read(event.replace(b'"a"', '"Grüße"'.encode())) == event.replace(b'"a"', '"Grüße"'.encode())
    for broken in (b'"\xff"', b'"\n"', b'"a\\"', b'"a","b":"c"', b'"\\u00e9"', b"null", b'"'):
        assert form.read(event.replace(b'"a"', broken)) is None, broken
    assert form.read(event.replace(b'"id":"c"', b'"id":"d"')) is None
    assert form.read(event[:-1]) is None
    assert reader.response()["choices"][0]["message"]["content"] == "aGrüße"  # type: ignore[index]
