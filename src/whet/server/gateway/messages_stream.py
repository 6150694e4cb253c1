"""A chat stream told as a Messages stream, event by event as the chunks arrive."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...types import Json, new_id
from .messages import stop_of, usage_of


class MessagesStream:
    """Translates the chunks of one answer; blocks are opened and closed as the Messages API has them.

    Chat may interleave the arguments of several tool calls, and a Messages stream has one block open
    at a time.  The first call is passed on as it comes; what else comes while it is open is held
    until the end, for only then is it known that the call is complete.
    """

    def __init__(self, request: Mapping[str, Any]) -> None:
        self._request = request
        self._started = False
        self._index = -1
        self._open: str | int | None = None
        """`text`, `thinking`, or the chat index of a tool call."""
        self._held: dict[str | int, dict[str, str]] = {}
        """What waits for its block, in order of appearance: `text`, `thinking`, or a call's index."""
        self._last: Mapping[str, Any] = {}
        self._usage: Json = None

    def feed(self, chunk: Mapping[str, Any]) -> list[Json]:
        """The events that one chunk becomes."""
        events: list[Json] = [] if self._started else [self._start(chunk)]
        self._usage = chunk.get("usage") or self._usage
        for choice in chunk.get("choices") or ():
            if choice.get("index"):
                continue  # a Messages answer has one choice
            delta = choice.get("delta") or {}
            for kind, name in (("thinking", "reasoning_content"), ("thinking", "reasoning")):
                if delta.get(name):
                    events += self._text(kind, delta[name])
            said = delta.get("content") or delta.get("refusal")
            if said:
                events += self._text("text", said)
            for position, piece in enumerate(delta.get("tool_calls") or ()):
                events += self._call(piece.get("index", position), piece)
            if choice.get("finish_reason"):
                self._last = choice
        return events

    def end(self) -> list[Json]:
        """The events after the last chunk of a whole answer."""
        events = self._close()
        for what, held in self._held.items():
            if isinstance(what, int):
                events += self._begin(what, held)
            else:
                events += self._text(what, held["text"])
            events += self._close()
        stop, sequence = stop_of(self._last)
        usage = usage_of(self._usage)
        delta = {"stop_reason": stop, "stop_sequence": sequence}
        return [
            *events,
            {"type": "message_delta", "delta": delta, "usage": usage},
            {"type": "message_stop"},
        ]

    def _start(self, chunk: Mapping[str, Any]) -> Json:
        self._started = True
        message: dict[str, Json] = {
            "id": f"msg_{chunk.get('id') or new_id()}",
            "type": "message",
            "role": "assistant",
            "model": chunk.get("model") or self._request.get("model"),
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage_of(chunk.get("usage")),
        }
        return {"type": "message_start", "message": message}

    def _text(self, kind: str, text: str) -> list[Json]:
        if isinstance(self._open, int):
            held = self._held.setdefault(kind, {"text": ""})
            held["text"] += text
            return []
        events = []
        if self._open != kind:
            empty = {"type": "text", "text": ""}
            if kind == "thinking":
                empty = {"type": "thinking", "thinking": "", "signature": ""}
            events = [*self._close(), self._opened(kind, empty)]
        delta = {"type": f"{kind}_delta", kind: text}
        return [*events, {"type": "content_block_delta", "index": self._index, "delta": delta}]

    def _call(self, index: int, piece: Mapping[str, Any]) -> list[Json]:
        function = piece.get("function") or {}
        arguments = function.get("arguments") or ""
        if self._open == index:
            return [self._arguments(arguments)] if arguments else []
        held = self._held.setdefault(index, {"id": "", "name": "", "arguments": ""})
        held["id"] = piece.get("id") or held["id"]
        held["name"] = function.get("name") or held["name"]
        held["arguments"] += arguments
        if isinstance(self._open, int) or not held["name"]:
            return []
        return self._begin(index, self._held.pop(index))

    def _begin(self, index: int, call: Mapping[str, str]) -> list[Json]:
        block = {"type": "tool_use", "id": call["id"], "name": call["name"], "input": {}}
        events = [*self._close(), self._opened(index, block)]
        return [*events, self._arguments(call["arguments"])] if call["arguments"] else events

    def _arguments(self, text: str) -> Json:
        delta = {"type": "input_json_delta", "partial_json": text}
        return {"type": "content_block_delta", "index": self._index, "delta": delta}

    def _opened(self, what: str | int, block: Json) -> Json:
        self._index += 1
        self._open = what
        return {"type": "content_block_start", "index": self._index, "content_block": block}

    def _close(self) -> list[Json]:
        if self._open is None:
            return []
        self._open = None
        return [{"type": "content_block_stop", "index": self._index}]
