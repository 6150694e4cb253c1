"""The Responses API, and what of it a chat upstream can be asked.

`to_chat` and `from_chat` translate a plain call; `responses_stream.py` a streamed one.  A chat
upstream remembers nothing, so a request that refers to an earlier response is refused, as are the
provider's own tools; the agent hears which of the two it was.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from ...types import Json, new_id
from .chat import count
from .chat import error_object as openai_error
from .messages import EXTENSIONS, refused
from .sse import named_event

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
ECHOED = (
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


class Responses:
    """The dialect of `/v1/responses`."""

    api = "responses"
    path = "/responses"

    def error(self, status: int, kind: str, message: str) -> Json:
        """The JSON of an error answer."""
        return openai_error(status, kind, message)

    def error_events(self, kind: str, message: str, reader: ResponsesReader) -> bytes:
        """How a stream that was begun says that it failed."""
        event = {"type": "error", "code": kind, "message": message, "param": None}
        return named_event({**event, "sequence_number": reader.sequence + 1})

    def reader(self) -> ResponsesReader:
        return ResponsesReader()

    def accepts(self, answer: Json) -> bool:
        """Whether a plain answer is one of this API's."""
        return isinstance(answer, dict) and isinstance(answer.get("output"), list)

    def usage(self, answer: Mapping[str, Any]) -> dict[str, int] | None:
        """Token counts in the record's words, None where the answer has none."""
        used = answer.get("usage")
        if not isinstance(used, dict):
            return None
        return {
            "input": count(used, "input_tokens"),
            "output": count(used, "output_tokens"),
            "cached_input": count(used.get("input_tokens_details"), "cached_tokens"),
            "reasoning": count(used.get("output_tokens_details"), "reasoning_tokens"),
        }


class ResponsesReader:
    """Finds the answer in a stream, whose last event repeats all of it; until then, what there is."""

    def __init__(self) -> None:
        self.finished = False
        self.failure: Json = None
        self.policy_version: str | None = None
        self.sequence = -1
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
            self._items[event["output_index"]] = event["item"]

    def response(self) -> dict[str, Json] | None:
        """The answer so far, None if nothing came; of a cut one the items that were complete."""
        if self._response is not None and not self.finished:
            return {**self._response, "output": [item for _, item in sorted(self._items.items())]}
        return self._response


def to_chat(request: Mapping[str, Any]) -> dict[str, Any]:
    """A Responses request as a chat request.

    Raises:
        CallFailed: it uses what chat does not have, or is no such request.
    """
    for name in _REMEMBERED:
        if request.get(name):
            raise refused(f"{name}={request[name]!r:.60}")
    chat: dict[str, Any] = {name: request[name] for name in (*_SHARED, *EXTENSIONS) if name in request}
    if request.get("max_output_tokens") is not None:
        chat["max_tokens"] = request["max_output_tokens"]
    effort = (request.get("reasoning") or {}).get("effort")
    if effort:
        chat["reasoning_effort"] = effort
    shape = (request.get("text") or {}).get("format") or {}
    if shape.get("type") == "json_schema":
        schema = {name: shape[name] for name in ("name", "schema", "strict", "description") if name in shape}
        chat["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif shape.get("type") == "json_object":
        chat["response_format"] = {"type": "json_object"}
    if request.get("tools"):
        chat["tools"] = [_tool(tool) for tool in request["tools"]]
    if "tool_choice" in request:
        chat["tool_choice"] = _choice(request["tool_choice"])
    chat["messages"] = _messages(request)
    return chat


def _tool(tool: Mapping[str, Any]) -> Json:
    if tool.get("type") != "function":
        raise refused(f"the tool {tool.get('type')!r} runs at the provider or is no function, and")
    names = ("name", "description", "parameters", "strict")
    return {
        "type": "function",
        "function": {name: tool[name] for name in names if tool.get(name) is not None},
    }


def _choice(choice: Json) -> Json:
    if isinstance(choice, str):
        return choice
    if isinstance(choice, dict) and choice.get("type") == "function":
        return {"type": "function", "function": {"name": choice.get("name")}}
    raise refused(f"tool_choice={choice!r:.60}")


def _messages(request: Mapping[str, Any]) -> list[Json]:
    turns: list[Any] = []
    if request.get("instructions"):
        turns.append({"role": "system", "content": request["instructions"]})
    given = request.get("input")
    if isinstance(given, str):
        return [*turns, {"role": "user", "content": given}]
    for item in given or ():
        kind = item.get("type") or "message"
        if kind == "message":
            role = "system" if item.get("role") == "developer" else item.get("role")
            turns.append({"role": role, "content": _content(item.get("content"))})
        elif kind == "function_call":
            function = {"name": item["name"], "arguments": item.get("arguments") or "{}"}
            call = {"id": item["call_id"], "type": "function", "function": function}
            # Calls made in one turn are items in a row; in chat they are one message.
            if turns and turns[-1]["role"] == "assistant":
                turns[-1].setdefault("tool_calls", []).append(call)
            else:
                turns.append({"role": "assistant", "content": None, "tool_calls": [call]})
        elif kind == "function_call_output":
            said = _content(item.get("output"))
            turns.append({"role": "tool", "tool_call_id": item["call_id"], "content": said})
        elif kind != "reasoning":
            raise refused(f"an input item of type {kind!r}")
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
            raise refused(f"a content part of type {kind!r}")
    if all(part["type"] == "text" for part in parts):
        return "".join(part["text"] for part in parts)
    return parts


def from_chat(answer: Mapping[str, Any], request: Mapping[str, Any]) -> dict[str, Json]:
    """A chat answer as a Responses answer; of several choices the first."""
    choice = answer["choices"][0]
    message = choice.get("message") or {}
    finish = choice.get("finish_reason")
    state = "incomplete" if finish in INCOMPLETE else "completed"
    output: list[Json] = []
    thought = message.get("reasoning_content") or message.get("reasoning")
    if thought:
        output.append(reasoning_item(thought))
    if message.get("content") or message.get("refusal"):
        part: Json = text_part(message.get("content") or "", _logprobs(choice))
        if message.get("refusal"):
            part = {"type": "refusal", "refusal": message["refusal"]}
        output.append(message_item(f"msg_{new_id()}", state, [part]))
    for call in message.get("tool_calls") or ():
        function = call["function"]
        output.append(
            call_item(f"fc_{new_id()}", call["id"], function["name"], function.get("arguments") or "")
        )
    response = envelope(answer, request)
    return {**response, **ending(finish), "output": output, "usage": usage_of(answer.get("usage"))}


INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""Chat's finish_reason → why a response is incomplete."""


def ending(finish: str | None) -> dict[str, Json]:
    """The fields of a response that say how it ended."""
    if finish in INCOMPLETE:
        return {"status": "incomplete", "incomplete_details": {"reason": INCOMPLETE[finish]}}
    return {"status": "completed", "incomplete_details": None}


def envelope(answer: Mapping[str, Any], request: Mapping[str, Any]) -> dict[str, Any]:
    """A response that has no output yet."""
    echoed = {name: request.get(name) for name in ECHOED}
    echoed["tools"] = request.get("tools") or []
    echoed["tool_choice"] = request.get("tool_choice") or "auto"
    echoed["text"] = request.get("text") or {"format": {"type": "text"}}
    echoed["metadata"] = request.get("metadata") or {}
    parallel = request.get("parallel_tool_calls")
    return {
        **echoed,
        "id": f"resp_{answer.get('id') or new_id()}",
        "object": "response",
        "created_at": answer.get("created") or int(time.time()),
        "model": answer.get("model") or request.get("model"),
        "parallel_tool_calls": True if parallel is None else parallel,
        "previous_response_id": None,
        "error": None,
        "status": "in_progress",
        "incomplete_details": None,
        "output": [],
        "usage": None,
    }


def text_part(text: str, logprobs: Json = ()) -> dict[str, Json]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": list(logprobs or ())}


def message_item(id: str, state: str, content: list[Json]) -> dict[str, Json]:
    return {"type": "message", "id": id, "role": "assistant", "status": state, "content": content}


def call_item(id: str, call_id: str, name: str, arguments: str, state: str = "completed") -> dict[str, Json]:
    item = {"type": "function_call", "id": id, "call_id": call_id, "name": name}
    return {**item, "arguments": arguments, "status": state}


def reasoning_item(text: str, id: str | None = None) -> dict[str, Json]:
    content = [{"type": "reasoning_text", "text": text}] if text else []
    return {"type": "reasoning", "id": id or f"rs_{new_id()}", "summary": [], "content": content}


def _logprobs(choice: Mapping[str, Any]) -> list[Json]:
    """Chat's log-probabilities in the form of an output text."""
    written = choice.get("logprobs")
    entries = (written.get("content") if isinstance(written, dict) else None) or ()
    names = ("token", "logprob", "bytes", "top_logprobs")
    return [{**{name: entry.get(name) or [] for name in names[2:]}, **entry} for entry in entries]


def usage_of(used: Json) -> Json:
    """Chat's usage in the words of the Responses API, None if there was none."""
    if not isinstance(used, dict):
        return None
    read, written = count(used, "prompt_tokens"), count(used, "completion_tokens")
    return {
        "input_tokens": read,
        "input_tokens_details": {
            "cached_tokens": count(used.get("prompt_tokens_details"), "cached_tokens"),
            "cache_write_tokens": 0,
        },
        "output_tokens": written,
        "output_tokens_details": {
            "reasoning_tokens": count(used.get("completion_tokens_details"), "reasoning_tokens")
        },
        "total_tokens": read + written,
    }
