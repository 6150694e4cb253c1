"""Messages exactly as OpenTelemetry's conventions have them: nearly all are, and are read by their type alone.

It gives what `messages.message` gives; whatever has one member more, or of another type, is left to that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from .values import parsed

Turned = tuple[Sequence[dict[str, Any]], bool, bool]
"""The messages that one is read as, whether it is an item of a response, and whether they are sure to say all of it."""


class _Text(msgspec.Struct, tag_field="type", tag="text", forbid_unknown_fields=True):
    content: str


class _Call(msgspec.Struct, tag_field="type", tag="tool_call", forbid_unknown_fields=True):
    name: str
    id: str | None = None
    arguments: Any = None


class _Response(msgspec.Struct, tag_field="type", tag="tool_call_response", forbid_unknown_fields=True):
    response: str
    id: str | None = None


class _Standard(msgspec.Struct, forbid_unknown_fields=True):
    role: Literal["system", "user", "assistant", "tool"]
    parts: list[_Text | _Call | _Response]
    finish_reason: str | None = None


_standard = msgspec.json.Decoder(_Standard)


def of_standard(raw: bytes) -> Turned | None:
    """A message that is as the conventions have it; None of any other."""
    try:
        standard = _standard.decode(raw)
    except msgspec.DecodeError:
        return None
    results: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    texts: list[str] = []
    complete = not standard.finish_reason or " " not in standard.finish_reason
    for part in standard.parts:
        if type(part) is _Text:
            texts.append(part.content)
        elif type(part) is _Call:
            arguments = part.arguments
            if isinstance(arguments, str):
                complete = complete and " " not in arguments  # JSON in a text: how it was written is lost
                arguments = parsed(arguments)
            calls.append(
                {
                    "id": part.id,
                    "name": part.name,
                    "arguments": {} if part.arguments in (None, "") else arguments,
                }
            )
        elif type(part) is _Response:
            results.append({"role": "tool", "tool_call_id": part.id, "text": part.response})
    turn: dict[str, Any] = {"role": standard.role}
    written = "\n".join(text for text in texts if text) if len(texts) != 1 else texts[0]
    if written or not (calls or results):
        turn["text"] = written
    if calls:
        turn["tool_calls"] = calls
    turns = results if results and len(turn) == 1 else [*results, turn]
    return turns, False, complete and len(texts) < 2
