"""The Messages API (Anthropic's), and what of it a chat upstream can be asked.

`to_chat` and `from_chat` translate a plain call; `messages_stream.py` a streamed one.  What has no
counterpart in chat and would change the answer (server tools, documents) is refused with the
reason; what only tunes the provider's own machinery (cache marks, thinking budgets) is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ...types import Fault, Json, new_id
from .chat import count
from .failures import CallFailed
from .sse import named_event

STOPS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}
"""Chat's finish_reason → stop_reason."""
_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_SHARED = ("model", "max_tokens", "temperature", "top_p", "top_k", "stream")
EXTENSIONS = (
    "top_k",
    "stop",
    "seed",
    "min_p",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "logit_bias",
    "reasoning_effort",
    "return_token_ids",
)
"""Fields of chat that a translated request may carry under their own name."""


class Messages:
    """The dialect of `/v1/messages`."""

    api = "messages"
    path = "/messages"

    def error(self, status: int, kind: str, message: str) -> Json:
        """The JSON of an error answer."""
        return error_object(_KINDS.get(status, "api_error"), message)

    def error_events(self, kind: str, message: str, reader: MessagesReader) -> bytes:
        """How a stream that was begun says that it failed."""
        return named_event(error_object("api_error", message))

    def reader(self) -> MessagesReader:
        return MessagesReader()

    def accepts(self, answer: Json) -> bool:
        """Whether a plain answer is one of this API's."""
        return isinstance(answer, dict) and isinstance(answer.get("content"), list)

    def usage(self, answer: Mapping[str, Any]) -> dict[str, int] | None:
        """Token counts in the record's words: `input` counts what was read from a cache too."""
        used = answer.get("usage")
        if not isinstance(used, dict):
            return None
        cached = count(used, "cache_read_input_tokens")
        written = count(used, "cache_creation_input_tokens")
        return {
            "input": count(used, "input_tokens") + cached + written,
            "output": count(used, "output_tokens"),
            "cached_input": cached,
            "reasoning": count(used.get("output_tokens_details"), "thinking_tokens"),
        }


def error_object(kind: str, message: str) -> dict[str, Json]:
    """An error as the Messages API writes it, in an answer and in a stream."""
    return {"type": "error", "error": {"type": kind, "message": message}}


class MessagesReader:
    """Puts the events of a stream together to the answer that would have come in one piece."""

    def __init__(self) -> None:
        self.finished = False
        self.failure: Json = None
        self.policy_version: str | None = None
        self._message: dict[str, Any] | None = None
        self._arguments: dict[int, str] = {}

    def read(self, event: Json) -> None:
        """Take in one event."""
        kind = event.get("type") if isinstance(event, dict) else None
        if kind == "error":
            self.failure = event.get("error") or event
        elif kind == "message_start":
            self._message = {**event["message"], "content": []}
        elif self._message is None:
            return
        elif kind == "content_block_start":
            self._message["content"].append(dict(event["content_block"]))
        elif kind == "content_block_delta":
            self._delta(event["index"], event["delta"])
        elif kind == "content_block_stop":
            self._close(event["index"])
        elif kind == "message_delta":
            self._message.update(event["delta"])
            self._message["usage"] = {**(self._message.get("usage") or {}), **(event.get("usage") or {})}
        elif kind == "message_stop":
            self.finished = True

    def _delta(self, index: int, delta: Mapping[str, Any]) -> None:
        assert self._message is not None
        block = self._message["content"][index]
        if delta["type"] == "input_json_delta":
            self._arguments[index] = self._arguments.get(index, "") + delta["partial_json"]
        elif delta["type"] == "citations_delta":
            block["citations"] = [*(block.get("citations") or ()), delta["citation"]]
        else:
            for name, value in delta.items():
                if name != "type":
                    block[name] = (block.get(name) or "") + value

    def _close(self, index: int) -> None:
        assert self._message is not None
        if index in self._arguments:
            self._message["content"][index]["input"] = parsed(self._arguments.pop(index))

    def response(self) -> dict[str, Json] | None:
        """The answer so far, None if nothing came."""
        if self._message is not None:
            for index in tuple(self._arguments):
                self._close(index)
        return self._message


def parsed(arguments: str) -> Json:
    """A tool call's arguments as an object; what is none is kept as a text under `_raw`."""
    try:
        found = msgspec.json.decode(arguments or "{}")
    except msgspec.DecodeError:
        return {"_raw": arguments}
    return found if isinstance(found, dict) else {"_raw": arguments}


def to_chat(request: Mapping[str, Any]) -> dict[str, Any]:
    """A Messages request as a chat request.

    Raises:
        CallFailed: it uses what chat does not have, or is no such request.
    """
    chat: dict[str, Any] = {name: request[name] for name in (*_SHARED, *EXTENSIONS) if name in request}
    system = _texts(request.get("system"))
    chat["messages"] = [{"role": "system", "content": system}] if system else []
    for message in request.get("messages") or ():
        chat["messages"] += _turn(message)
    if request.get("stop_sequences"):
        chat["stop"] = request["stop_sequences"]
    if request.get("tools"):
        chat["tools"] = [_tool(tool) for tool in request["tools"]]
    choice = request.get("tool_choice")
    if isinstance(choice, dict):
        chat["tool_choice"] = _CHOICES.get(choice.get("type", ""), "auto")
        if choice.get("type") == "tool":
            chat["tool_choice"] = {"type": "function", "function": {"name": choice.get("name")}}
        if choice.get("disable_parallel_tool_use"):
            chat["parallel_tool_calls"] = False
    return chat


_CHOICES = {"auto": "auto", "any": "required", "none": "none"}


def _tool(tool: Mapping[str, Any]) -> Json:
    if "input_schema" not in tool:
        raise refused(f"the tool {tool.get('name') or tool.get('type')!r} runs at the provider")
    function = {"name": tool["name"], "parameters": tool["input_schema"]}
    if tool.get("description"):
        function["description"] = tool["description"]
    return {"type": "function", "function": function}


def _turn(message: Mapping[str, Any]) -> list[Json]:
    """One message of the agent as chat messages: results of tools become messages of their own."""
    role, content = message.get("role"), message.get("content")
    if isinstance(content, str):
        return [{"role": role, "content": content}]
    if role == "assistant":
        return [_assistant(content or ())]
    turns: list[Json] = []
    parts: list[Json] = []
    for block in content or ():
        kind = block.get("type")
        if kind == "tool_result":
            said = _texts(block.get("content"))
            turns.append({"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": said})
        elif kind == "text":
            parts.append({"type": "text", "text": block["text"]})
        elif kind == "image":
            parts.append({"type": "image_url", "image_url": {"url": _image(block.get("source") or {})}})
        else:
            raise refused(f"a {kind!r} block in a {role} message")
    if parts:
        plain = all(part["type"] == "text" for part in parts)
        turns.append({"role": role, "content": "\n".join(p["text"] for p in parts) if plain else parts})
    return turns


def _assistant(content: Any) -> Json:
    turn: dict[str, Any] = {"role": "assistant", "content": None}
    texts, calls = [], []
    for block in content:
        kind = block.get("type")
        if kind == "text":
            texts.append(block["text"])
        elif kind == "tool_use":
            arguments = msgspec.json.encode(block.get("input") or {}).decode()
            function = {"name": block["name"], "arguments": arguments}
            calls.append({"id": block["id"], "type": "function", "function": function})
        elif kind not in ("thinking", "redacted_thinking"):
            raise refused(f"a {kind!r} block in an assistant message")
    if texts:
        turn["content"] = "".join(texts)
    if calls:
        turn["tool_calls"] = calls
    return turn


def _image(source: Mapping[str, Any]) -> str:
    if source.get("type") == "base64":
        return f"data:{source.get('media_type')};base64,{source.get('data')}"
    if source.get("type") == "url":
        return str(source.get("url"))
    raise refused(f"an image of source {source.get('type')!r}")


def _texts(content: Json) -> str:
    """The text of a content that is a string or a list of text blocks."""
    if content is None or isinstance(content, str):
        return content or ""
    texts = []
    for block in content:
        if block.get("type") != "text":
            raise refused(f"a {block.get('type')!r} block where only text can stand")
        texts.append(block["text"])
    return "\n".join(texts)


def refused(what: str) -> CallFailed:
    """The upstream speaks chat, which does not have this."""
    return CallFailed(
        Fault.AGENT,
        "not_translatable",
        f"{what} cannot be put to this gateway's upstream, which speaks the chat API only. "
        "Leave it out, or give the gateway an upstream that speaks the API of the request.",
        status=400,
    )


def from_chat(answer: Mapping[str, Any], request: Mapping[str, Any]) -> dict[str, Json]:
    """A chat answer as a Messages answer; of several choices the first."""
    choice = answer["choices"][0]
    message = choice.get("message") or {}
    content: list[Json] = []
    thought = message.get("reasoning_content") or message.get("reasoning")
    if thought:
        content.append({"type": "thinking", "thinking": thought, "signature": ""})
    said = message.get("content") or message.get("refusal")
    if said:
        content.append({"type": "text", "text": said})
    for call in message.get("tool_calls") or ():
        function = call["function"]
        block = {"type": "tool_use", "id": call["id"], "name": function["name"]}
        content.append({**block, "input": parsed(function.get("arguments") or "")})
    stop, sequence = stop_of(choice)
    return {
        "id": f"msg_{answer.get('id') or new_id()}",
        "type": "message",
        "role": "assistant",
        "model": answer.get("model") or request.get("model"),
        "content": content,
        "stop_reason": stop,
        "stop_sequence": sequence,
        "usage": usage_of(answer.get("usage")),
    }


def stop_of(choice: Mapping[str, Any]) -> tuple[str, str | None]:
    """stop_reason and stop_sequence; vLLM names the sequence in `stop_reason`."""
    sequence = choice.get("stop_reason")
    if choice.get("finish_reason") == "stop" and isinstance(sequence, str):
        return "stop_sequence", sequence
    return STOPS.get(choice.get("finish_reason") or "stop", "end_turn"), None


def usage_of(used: Json) -> dict[str, int]:
    """Chat's usage in the words of the Messages API, where cached input is counted apart."""
    cached = count((used or {}).get("prompt_tokens_details"), "cached_tokens")
    return {
        "input_tokens": count(used, "prompt_tokens") - cached,
        "output_tokens": count(used, "completion_tokens"),
        "cache_read_input_tokens": cached,
        "cache_creation_input_tokens": 0,
    }
