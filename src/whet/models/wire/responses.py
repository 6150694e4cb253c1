"""The Responses API.

Requests are read and answers written; no answer of this API is translated, because an upstream that speaks it
and not chat is unknown.  Chat remembers nothing, so a request that refers to an earlier response is refused, as
are the provider's own tools, with the reason.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from ...types import Json, new_id
from . import chat
from .messages import EXTENSIONS
from .neutral import AnswerPart, CallPiece, Counts, Untranslatable
from .sse import named_event

api = "responses"
path = "/responses"
frame = named_event
error = chat.error
_SHARED = (
    "model",
    "temperature",
    "top_p",
    "stream",
    "parallel_tool_calls",
    "user",
    "metadata",
    "service_tier",
)
_REMEMBERED = ("previous_response_id", "conversation", "prompt", "background")
"""Fields that only the service which keeps the conversation can honour."""
_ECHOED = (
    "instructions",
    "max_output_tokens",
    "metadata",
    "parallel_tool_calls",
    "reasoning",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_p",
    "truncation",
    "user",
)
"""Fields of the request that a response repeats."""
_TERMINAL = ("response.completed", "response.incomplete", "response.failed")
_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""Chat's finish_reason → why a response is incomplete."""


# -- errors and usage -----------------------------------------------------------------------------


def error_events(kind: str, message: str, sequence: int) -> bytes:
    """The end of a stream that failed after its event number `sequence`."""
    event = {"type": "error", "code": kind, "message": message, "param": None}
    return named_event({**event, "sequence_number": sequence + 1})


def accepts(answer: Json) -> bool:
    """True for a whole answer of this API."""
    return isinstance(answer, dict) and isinstance(answer.get("output"), list)


def usage(answer: Mapping[str, Any]) -> Counts | None:
    """Token counts, None where the answer has none."""
    return chat.usage(answer, "input_tokens", "output_tokens")


def usage_of(counts: Counts | None) -> Json:
    """Token counts as this API writes them, None if unknown."""
    if counts is None:
        return None
    return {
        "input_tokens": counts["input"],
        "input_tokens_details": {"cached_tokens": counts.get("cached_input", 0), "cache_write_tokens": 0},
        "output_tokens": counts["output"],
        "output_tokens_details": {"reasoning_tokens": counts.get("reasoning", 0)},
        "total_tokens": counts["input"] + counts["output"],
    }


# -- reading requests -----------------------------------------------------------------------------


def read_request(request: Mapping[str, Any]) -> dict[str, Any]:
    """A request as a chat request.

    Raises:
        Untranslatable: it uses what chat does not have; or one of MISSHAPEN.
    """
    for name in _REMEMBERED:
        if request.get(name):
            raise Untranslatable(f"{name}={request[name]!r:.60}", "chat")
    body: dict[str, Any] = {name: request[name] for name in (*_SHARED, *EXTENSIONS) if name in request}
    if request.get("max_output_tokens") is not None:
        body["max_tokens"] = request["max_output_tokens"]
    effort = (request.get("reasoning") or {}).get("effort")
    if effort:
        body["reasoning_effort"] = effort
    shape = (request.get("text") or {}).get("format") or {}
    if shape.get("type") == "json_schema":
        schema = {name: shape[name] for name in ("name", "schema", "strict", "description") if name in shape}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif shape.get("type") == "json_object":
        body["response_format"] = {"type": "json_object"}
    if request.get("tools"):
        body["tools"] = [_tool(tool) for tool in request["tools"]]
    if "tool_choice" in request:
        body["tool_choice"] = _tool_choice(request["tool_choice"])
    body["messages"] = _turns(request)
    return body


def _tool(tool: Mapping[str, Any]) -> Json:
    if tool.get("type") != "function":
        feature = f"the tool {tool.get('type')!r} runs at the provider or is no function, and"
        raise Untranslatable(feature, "chat")
    names = ("name", "description", "parameters", "strict")
    return {
        "type": "function",
        "function": {name: tool[name] for name in names if tool.get(name) is not None},
    }


def _tool_choice(choice: Json) -> Json:
    if isinstance(choice, str):
        return choice
    if isinstance(choice, dict) and choice.get("type") == "function":
        return {"type": "function", "function": {"name": choice.get("name")}}
    raise Untranslatable(f"tool_choice={choice!r:.60}", "chat")


def _turns(request: Mapping[str, Any]) -> list[Json]:
    turns: list[Any] = []
    if request.get("instructions"):
        turns.append({"role": "system", "content": request["instructions"]})
    items = request.get("input")
    if isinstance(items, str):
        return [*turns, {"role": "user", "content": items}]
    for item in items or ():
        kind = item.get("type") or "message"
        if kind == "message":
            role = "system" if item.get("role") == "developer" else item.get("role")
            turns.append({"role": role, "content": _content(item.get("content"))})
        elif kind == "function_call":
            call = chat.tool_call(item["call_id"], item["name"], item.get("arguments") or "{}")
            # Calls made in one turn are items in a row; in chat they are one message.
            if turns and turns[-1]["role"] == "assistant":
                turns[-1].setdefault("tool_calls", []).append(call)
            else:
                turns.append({"role": "assistant", "content": None, "tool_calls": [call]})
        elif kind == "function_call_output":
            output = _content(item.get("output"))
            turns.append({"role": "tool", "tool_call_id": item["call_id"], "content": output})
        elif kind != "reasoning":
            raise Untranslatable(f"an input item of type {kind!r}", "chat")
    return turns


def _content(content: Json) -> Json:
    """Text as a string; with pictures, the parts."""
    if content is None or isinstance(content, str):
        return content or ""
    parts: list[Json] = []
    for part in content:
        kind = part.get("type")
        if kind in ("input_text", "output_text", "text"):
            parts.append({"type": "text", "text": part["text"]})
        elif kind == "refusal":
            parts.append({"type": "text", "text": part["refusal"]})
        elif kind == "input_image" and part.get("image_url"):
            picture = {"url": part["image_url"], "detail": part.get("detail") or "auto"}
            parts.append({"type": "image_url", "image_url": picture})
        else:
            raise Untranslatable(f"a content part of type {kind!r}", "chat")
    if all(part["type"] == "text" for part in parts):
        return "".join(part["text"] for part in parts)
    return parts


# -- reading answers ------------------------------------------------------------------------------


class ResponsesStreamReader:
    """Finds the answer in a stream, whose last event repeats all of it; until then, what there is."""

    policy_version: str | None = None

    def __init__(self) -> None:
        self.finished = False
        self.failure: Json = None
        self.sequence = -1
        """Number of the last event."""
        self._response: dict[str, Any] | None = None
        self._items: dict[int, Any] = {}

    def read(self, event: Json) -> None:
        """Take in one event."""
        if not isinstance(event, dict):
            return
        kind = event.get("type")
        self.sequence = event.get("sequence_number", self.sequence)
        if kind == "error":
            self.failure = {"code": event.get("code"), "message": event.get("message")}
        elif kind in _TERMINAL:
            self._response = event["response"]
            self.finished = True
            if kind == "response.failed":
                self.failure = event["response"].get("error") or {"message": "the response failed"}
        elif isinstance(event.get("response"), dict):
            self._response = event["response"]
        elif kind == "response.output_item.done":
            # By index: items may end in another order than they began.
            self._items[event["output_index"]] = event["item"]

    def response(self) -> dict[str, Json] | None:
        """The answer so far, None if nothing came; of a cut one the items that were complete."""
        if self._response is not None and not self.finished:
            return {**self._response, "output": [item for _, item in sorted(self._items.items())]}
        return self._response


# -- writing answers ------------------------------------------------------------------------------


class _Item:
    """One item of the output that is being written."""

    def __init__(self, kind: str, index: int, id: str, call: CallPiece | None) -> None:
        self.kind, self.index, self.id = kind, index, id
        self.call = call
        self.text = ""
        self.position: dict[str, Json] = {"item_id": id, "output_index": index}
        """The fields by which an event names the item, and its one content part."""
        if call is None:
            self.position["content_index"] = 0

    def value(self, status: str, *, empty: bool = False) -> dict[str, Json]:
        """The item as JSON; `empty` as it is announced."""
        if self.call is not None:
            item = {"type": "function_call", "id": self.id, "call_id": self.call.id, "name": self.call.name}
            return {**item, "arguments": "" if empty else self.text, "status": status}
        content = [] if empty or not self.text else [self.part()]
        if self.kind == "reasoning":
            return {"type": "reasoning", "id": self.id, "summary": [], "content": content}
        return {"type": "message", "id": self.id, "role": "assistant", "status": status, "content": content}

    def part(self, *, empty: bool = False) -> Json:
        """The one content part of a text item."""
        text = "" if empty else self.text
        if self.kind == "reasoning":
            return {"type": "reasoning_text", "text": text}
        if self.kind == "refusal":
            return {"type": "refusal", "refusal": text}
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


_PREFIXES = {"text": "msg", "reasoning": "rs", "refusal": "msg", "call": "fc"}
"""Kind of item → what its id begins with."""
_NAMES = {
    "text": "response.output_text",
    "reasoning": "response.reasoning_text",
    "refusal": "response.refusal",
    "call": "response.function_call_arguments",
}
"""Kind of item → what its delta and done events are called."""


class ResponsesStreamWriter:
    """Writes an answer to `request` as events.

    Items of this API's stream may be open side by side, so the arguments of several tool calls
    are passed on as they come; an item is done when the answer is.

    Args:
        item_id: gives every item the rest of its id.
    """

    def __init__(self, request: Mapping[str, Any], item_id: Callable[[], str] = new_id) -> None:
        self._request, self._item_id = request, item_id
        self._response: dict[str, Any] = {}
        self._sequence = -1
        self._items: dict[str | int, _Item] = {}
        self._finish: str | None = None
        self._usage: Counts | None = None

    def write(self, piece: AnswerPart) -> list[Json]:
        """The events that an AnswerPart becomes."""
        events = [] if self._response else self._start(piece)
        self._usage, self._finish = piece.usage or self._usage, piece.finish or self._finish
        for key, text, call in _contents(piece):
            events += self._write(key, text, call)
        return events

    def end(self) -> list[Json]:
        """The events after the last AnswerPart of a whole answer."""
        response = self._ended()
        status = str(response["status"])
        events = [event for item in self._items.values() for event in self._done(item, status)]
        return [*events, self._event(f"response.{status}", response=response)]

    def whole(self, piece: AnswerPart) -> dict[str, Json]:
        """The answer that the stream of `piece` would end with, without making its events."""
        self._start(piece)
        self._usage, self._finish = piece.usage, piece.finish
        for key, text, call in _contents(piece):
            self._item(key, call).text = text
        return self._ended()

    def _ended(self) -> dict[str, Json]:
        status, reason = "completed", None
        if self._finish in _INCOMPLETE:
            status, reason = "incomplete", {"reason": _INCOMPLETE[self._finish]}
        return {
            **self._response,
            "status": status,
            "incomplete_details": reason,
            "output": [item.value(status) for item in self._items.values()],
            "usage": usage_of(self._usage),
        }

    def _item(self, key: str | int, call: CallPiece | None) -> _Item:
        kind = "call" if isinstance(key, int) else key
        if call is not None:
            # A copy without arguments: those gather in the item, and the piece is the reader's.
            call = CallPiece(call.index, call.id or f"call_{new_id()}", call.name)
        item = _Item(kind, len(self._items), f"{_PREFIXES[kind]}_{self._item_id()}", call)
        self._items[key] = item
        return item

    def _event(self, kind: str, **fields: Json) -> Json:
        self._sequence += 1
        return {"type": kind, "sequence_number": self._sequence, **fields}

    def _start(self, piece: AnswerPart) -> list[Json]:
        request = self._request
        parallel = request.get("parallel_tool_calls")
        self._response = {
            **{name: request.get(name) for name in _ECHOED},
            "tools": request.get("tools") or [],
            "tool_choice": request.get("tool_choice") or "auto",
            "text": request.get("text") or {"format": {"type": "text"}},
            "metadata": request.get("metadata") or {},
            "id": f"resp_{piece.id or new_id()}",
            "object": "response",
            "created_at": piece.created or int(time.time()),
            "model": piece.model or request.get("model"),
            "parallel_tool_calls": True if parallel is None else parallel,
            "previous_response_id": None,
            "error": None,
            "status": "in_progress",
            "incomplete_details": None,
            "output": [],
            "usage": None,
        }
        return [
            self._event("response.created", response=self._response),
            self._event("response.in_progress", response=self._response),
        ]

    def _write(self, key: str | int, text: str, call: CallPiece | None) -> list[Json]:
        events: list[Json] = []
        item = self._items.get(key)
        if item is None:
            item = self._item(key, call)
            added = item.value("in_progress", empty=True)
            events.append(self._event("response.output_item.added", output_index=item.index, item=added))
            if call is None:
                part = item.part(empty=True)
                events.append(self._event("response.content_part.added", **item.position, part=part))
        item.text += text
        if text:
            logprobs: dict[str, Json] = {"logprobs": []} if item.kind == "text" else {}
            name = f"{_NAMES[item.kind]}.delta"
            events.append(self._event(name, **item.position, delta=text, **logprobs))
        return events

    def _done(self, item: _Item, status: str) -> list[Json]:
        name = f"{_NAMES[item.kind]}.done"
        events = []
        if item.call is not None:
            events.append(self._event(name, **item.position, name=item.call.name, arguments=item.text))
        else:
            field = "refusal" if item.kind == "refusal" else "text"
            logprobs: dict[str, Json] = {"logprobs": []} if item.kind == "text" else {}
            events.append(self._event(name, **item.position, **{field: item.text}, **logprobs))
            events.append(self._event("response.content_part.done", **item.position, part=item.part()))
        done = item.value(status)
        return [*events, self._event("response.output_item.done", output_index=item.index, item=done)]


def _contents(piece: AnswerPart) -> list[tuple[str | int, str, CallPiece | None]]:
    """Key of the item, text and call of everything in an AnswerPart."""
    contents: list[tuple[str | int, str, CallPiece | None]] = []
    if piece.reasoning:
        contents.append(("reasoning", piece.reasoning, None))
    if piece.text:
        contents.append(("text", piece.text, None))
    if piece.refusal:
        contents.append(("refusal", piece.refusal, None))
    for call in piece.calls:
        contents.append((call.index, call.arguments, call))
    return contents


def write_answer(piece: AnswerPart, request: Mapping[str, Any]) -> dict[str, Json]:
    """A whole answer to `request`."""
    return ResponsesStreamWriter(request).whole(piece)


# The gateway takes a module as the description of an API, and asks each for these two by one name.
stream_reader = ResponsesStreamReader
stream_writer = ResponsesStreamWriter
