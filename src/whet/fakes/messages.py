"""Scripted answers as the Messages API gives them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ..models.base import Completion, Request
from ..models.scripted import pieces
from ..types import Json

_OWN = ("model", "messages", "system", "stream")
_STOPS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


def request(body: Mapping[str, Any]) -> Request:
    """What a script is asked: the system prompt is the first message."""
    turns = list(body["messages"])
    if body.get("system"):
        turns.insert(0, {"role": "system", "content": body["system"]})
    return Request.of(turns, {name: value for name, value in body.items() if name not in _OWN})


def answer(completion: Completion, body: Mapping[str, Any]) -> dict[str, Json]:
    """A plain answer."""
    return _envelope(completion, body) | {
        "content": _blocks(completion),
        "stop_reason": _STOPS.get(completion.finish or "stop", "end_turn"),
    }


def events(completion: Completion, body: Mapping[str, Any]) -> list[bytes]:
    """The answer as the API streams it, with a ping after the first event."""
    found: list[dict[str, Json]] = [
        {"type": "message_start", "message": _envelope(completion, body)},
        {"type": "ping"},
    ]
    for index, block in enumerate(_blocks(completion)):
        if block["type"] == "text":
            empty: Json = {"type": "text", "text": ""}
            deltas = [{"type": "text_delta", "text": piece} for piece in pieces(block["text"])]
        else:
            empty = {**block, "input": {}}
            written = msgspec.json.encode(block["input"]).decode()
            half = len(written) // 2
            halves = (written[:half], written[half:])
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in halves]
        found.append({"type": "content_block_start", "index": index, "content_block": empty})
        found += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        found.append({"type": "content_block_stop", "index": index})
    stop = _STOPS.get(completion.finish or "stop", "end_turn")
    usage = {"output_tokens": completion.usage.output_tokens}
    found.append(
        {"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": usage}
    )
    found.append({"type": "message_stop"})
    return [
        b"event: %s\ndata: %s\n\n" % (str(event["type"]).encode(), msgspec.json.encode(event))
        for event in found
    ]


def _envelope(completion: Completion, body: Mapping[str, Any]) -> dict[str, Json]:
    return {
        "id": "msg_scripted",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {
            "input_tokens": completion.usage.prompt_tokens,
            "output_tokens": completion.usage.output_tokens,
        },
    }


def _blocks(completion: Completion) -> list[Json]:
    blocks: list[Json] = [{"type": "text", "text": completion.text}] if completion.text else []
    blocks += [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": call.parsed()}
        for call in completion.tool_calls
    ]
    return blocks
