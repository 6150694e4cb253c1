"""A chat stream told as a Responses stream, event by event as the chunks arrive."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...types import Json, new_id
from .responses import call_item, ending, envelope, message_item, reasoning_item, text_part, usage_of


class _Item:
    """One item of the output that is being written."""

    def __init__(self, kind: str, index: int, call: Mapping[str, Any] | None = None) -> None:
        prefix = {"text": "msg", "reasoning": "rs", "refusal": "msg", "call": "fc"}[kind]
        self.kind, self.index, self.id = kind, index, f"{prefix}_{new_id()}"
        self.text = ""
        self.call_id = str((call or {}).get("id") or f"call_{new_id()}")
        self.name = str(((call or {}).get("function") or {}).get("name") or "")

    def value(self, state: str, *, empty: bool = False) -> Json:
        """The item as JSON; `empty` as it is announced."""
        if self.kind == "call":
            return call_item(self.id, self.call_id, self.name, "" if empty else self.text, state)
        if self.kind == "reasoning":
            return reasoning_item("" if empty else self.text, self.id)
        return message_item(self.id, state, [] if empty else [self.part()])

    def part(self, *, empty: bool = False) -> Json:
        """The one content part of a text item."""
        text = "" if empty else self.text
        if self.kind == "reasoning":
            return {"type": "reasoning_text", "text": text}
        return {"type": "refusal", "refusal": text} if self.kind == "refusal" else text_part(text)


class ResponsesStream:
    """Translates the chunks of one answer.

    Items of a Responses stream may be open side by side, so the arguments of several tool calls
    are passed on as they come; an item is done when the answer is.
    """

    def __init__(self, request: Mapping[str, Any]) -> None:
        self._request = request
        self._response: dict[str, Any] | None = None
        self._sequence = -1
        self._items: dict[str | int, _Item] = {}
        self._finish: str | None = None
        self._usage: Json = None

    def feed(self, chunk: Mapping[str, Any]) -> list[Json]:
        """The events that one chunk becomes."""
        events: list[Json] = [] if self._response is not None else self._start(chunk)
        self._usage = chunk.get("usage") or self._usage
        for choice in chunk.get("choices") or ():
            if choice.get("index"):
                continue  # a response has one choice
            delta = choice.get("delta") or {}
            thought = delta.get("reasoning_content") or delta.get("reasoning")
            for kind, text in (
                ("reasoning", thought),
                ("text", delta.get("content")),
                ("refusal", delta.get("refusal")),
            ):
                if text:
                    events += self._write(kind, kind, text)
            for position, piece in enumerate(delta.get("tool_calls") or ()):
                arguments = (piece.get("function") or {}).get("arguments") or ""
                events += self._write(piece.get("index", position), "call", arguments, piece)
            self._finish = choice.get("finish_reason") or self._finish
        return events

    def end(self) -> list[Json]:
        """The events after the last chunk of a whole answer."""
        assert self._response is not None
        events = []
        last = ending(self._finish)
        state = str(last["status"])
        for item in self._items.values():
            events += self._done(item, state)
        output = [item.value(state) for item in self._items.values()]
        response = {**self._response, **last, "output": output, "usage": usage_of(self._usage)}
        return [*events, self._event(f"response.{state}", response=response)]

    def _event(self, kind: str, **fields: Json) -> Json:
        self._sequence += 1
        return {"type": kind, "sequence_number": self._sequence, **fields}

    def _start(self, chunk: Mapping[str, Any]) -> list[Json]:
        self._response = envelope(chunk, self._request)
        return [
            self._event("response.created", response=self._response),
            self._event("response.in_progress", response=self._response),
        ]

    def _write(
        self, key: str | int, kind: str, text: str, call: Mapping[str, Any] | None = None
    ) -> list[Json]:
        events: list[Json] = []
        item = self._items.get(key)
        if item is None:
            item = self._items[key] = _Item(kind, len(self._items), call)
            added = item.value("in_progress", empty=True)
            events.append(self._event("response.output_item.added", output_index=item.index, item=added))
            if kind != "call":
                place = self._place(item)
                part = item.part(empty=True)
                events.append(self._event("response.content_part.added", **place, part=part))
        item.text += text
        if text:
            more: dict[str, Json] = {"logprobs": []} if kind == "text" else {}
            events.append(self._event(f"{_NAMES[kind]}.delta", **self._place(item), delta=text, **more))
        return events

    def _done(self, item: _Item, state: str) -> list[Json]:
        place = self._place(item)
        name = f"{_NAMES[item.kind]}.done"
        events = []
        if item.kind == "call":
            events.append(self._event(name, **place, name=item.name, arguments=item.text))
        else:
            field = "refusal" if item.kind == "refusal" else "text"
            more: dict[str, Json] = {"logprobs": []} if item.kind == "text" else {}
            events.append(self._event(name, **place, **{field: item.text}, **more))
            events.append(self._event("response.content_part.done", **place, part=item.part()))
        done = item.value(state)
        return [*events, self._event("response.output_item.done", output_index=item.index, item=done)]

    def _place(self, item: _Item) -> dict[str, Json]:
        place: dict[str, Json] = {"item_id": item.id, "output_index": item.index}
        return place if item.kind == "call" else {**place, "content_index": 0}


_NAMES = {
    "text": "response.output_text",
    "reasoning": "response.reasoning_text",
    "refusal": "response.refusal",
    "call": "response.function_call_arguments",
}
"""Kind of item → what its delta and done events are called."""
