"""Scripted answers as the Responses API gives them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ..models.base import Completion, Request
from ..models.scripted import pieces
from ..types import Json

_OWN = ("model", "input", "instructions", "stream")


def request(body: Mapping[str, Any]) -> Request:
    """What a script is asked: instructions and input as messages."""
    given = body["input"]
    turns = (
        [{"role": "user", "content": given}] if isinstance(given, str) else [_turn(item) for item in given]
    )
    if body.get("instructions"):
        turns.insert(0, {"role": "system", "content": body["instructions"]})
    settings = {name: value for name, value in body.items() if name not in _OWN}
    return Request.of(turns, settings)


def _turn(item: Mapping[str, Any]) -> Mapping[str, Any]:
    if item.get("type") == "function_call_output":
        return {"role": "tool", "content": item["output"], "tool_call_id": item["call_id"]}
    return item if "role" in item else {"role": "assistant", **item}


def answer(completion: Completion, body: Mapping[str, Any]) -> dict[str, Json]:
    """A plain answer."""
    cut = completion.finish == "length"
    return _envelope(body) | {
        "status": "incomplete" if cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "output": _items(completion),
        "usage": {
            "input_tokens": completion.usage.prompt_tokens,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": completion.usage.output_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": completion.usage.prompt_tokens + completion.usage.output_tokens,
        },
    }


def events(completion: Completion, body: Mapping[str, Any]) -> list[bytes]:
    """The answer as the API streams it, event names and sequence numbers included."""
    started = _envelope(body)
    found: list[dict[str, Json]] = [
        {"type": "response.created", "response": started},
        {"type": "response.in_progress", "response": started},
    ]
    for index, item in enumerate(_items(completion)):
        place = {"item_id": item["id"], "output_index": index}
        found.append(_of("output_item.added", output_index=index, item=_empty(item)))
        if item["type"] == "message":
            part = item["content"][0]
            place["content_index"] = 0
            found.append(_of("content_part.added", **place, part={**part, "text": ""}))
            for piece in pieces(part["text"]):
                found.append(_of("output_text.delta", **place, delta=piece, logprobs=[]))
            found.append(_of("output_text.done", **place, text=part["text"], logprobs=[]))
            found.append(_of("content_part.done", **place, part=part))
        else:
            written, name = item["arguments"], "function_call_arguments"
            half = len(written) // 2
            found += [_of(f"{name}.delta", **place, delta=each) for each in (written[:half], written[half:])]
            found.append(_of(f"{name}.done", **place, name=item["name"], arguments=written))
        found.append(_of("output_item.done", output_index=index, item=item))
    whole = answer(completion, body)
    found.append(_of(str(whole["status"]), response=whole))
    return [_line({**event, "sequence_number": number}) for number, event in enumerate(found)]


def _of(kind: str, **fields: Json) -> dict[str, Json]:
    return {"type": f"response.{kind}", **fields}


def _line(event: Json) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (event["type"].encode(), msgspec.json.encode(event))


def _envelope(body: Mapping[str, Any]) -> dict[str, Json]:
    return {
        "id": "resp_scripted",
        "object": "response",
        "created_at": 1,
        "status": "in_progress",
        "model": body["model"],
        "instructions": body.get("instructions"),
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": body.get("tool_choice", "auto"),
        "tools": body.get("tools", []),
        "error": None,
        "usage": None,
    }


def _items(completion: Completion) -> list[Json]:
    items: list[Json] = []
    if completion.text:
        part = {"type": "output_text", "text": completion.text, "annotations": [], "logprobs": []}
        message = {"type": "message", "id": "msg_scripted", "role": "assistant", "status": "completed"}
        items.append({**message, "content": [part]})
    for number, call in enumerate(completion.tool_calls):
        item = {"type": "function_call", "id": f"fc_{number}", "call_id": call.id, "status": "completed"}
        items.append({**item, "name": call.name, "arguments": call.arguments})
    return items


def _empty(item: Mapping[str, Any]) -> Json:
    blank: dict[str, Json] = {"content": []} if item["type"] == "message" else {"arguments": ""}
    return {**item, "status": "in_progress", **blank}
