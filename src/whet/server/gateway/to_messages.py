"""Chat put to an upstream that speaks the Messages API alone, and its answer told as chat.

The way back of `messages.py`.  Refused with the reason, because the Messages API has nothing that would
give the same answer: several choices (`n`), log-probabilities and token ids, penalties and `logit_bias`, a
temperature above 1, JSON without a schema, sound and files, functions in their old form, a system message
after the first turn.  What only tunes the provider's own machinery (seed, reasoning effort, cache and
service tier) is left out, and so is a model's earlier reasoning, which only its own service could check.
A request that names no limit gets `LIMIT` tokens, for the Messages API must have one.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ...types import Fault, Json
from .chat import count
from .failures import CallFailed
from .messages import parsed

LIMIT = 4096
"""`max_tokens` where the agent gives none: what every model of the API allows."""
FINISHES = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
"""stop_reason → chat's finish_reason."""
_CHOICES = {"auto": "auto", "required": "any", "none": "none"}
_REFUSED = (
    "logprobs",
    "top_logprobs",
    "return_token_ids",
    "logit_bias",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "min_p",
    "functions",
    "function_call",
    "audio",
    "prediction",
    "web_search_options",
)


def to_messages(chat: Mapping[str, Any]) -> dict[str, Any]:
    """A chat request as a Messages request.

    Raises:
        CallFailed: it uses what the Messages API does not have, or is no such request.
    """
    for name in _REFUSED:
        if chat.get(name):
            raise refused(f"{name}={chat[name]!r:.60}")
    if (chat.get("n") or 1) != 1:
        raise refused(f"n={chat['n']!r:.20}")
    if set(chat.get("modalities") or ("text",)) != {"text"}:
        raise refused(f"modalities={chat['modalities']!r:.60}")
    wanted: dict[str, Any] = {"model": chat.get("model")}
    wanted["max_tokens"] = chat.get("max_completion_tokens") or chat.get("max_tokens") or LIMIT
    for name in ("temperature", "top_p", "top_k", "stream"):
        if chat.get(name) is not None:
            wanted[name] = chat[name]
    if wanted.get("temperature", 0) > 1:
        raise refused(f"temperature={wanted['temperature']!r:.20}, above 1,")
    if chat.get("stop"):
        wanted["stop_sequences"] = [chat["stop"]] if isinstance(chat["stop"], str) else chat["stop"]
    if chat.get("user"):
        wanted["metadata"] = {"user_id": chat["user"]}
    shape = chat.get("response_format") or {"type": "text"}
    if shape.get("type") == "json_schema":
        schema = (shape.get("json_schema") or {}).get("schema")
        wanted["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
    elif shape.get("type") != "text":
        raise refused(f"response_format={shape!r:.60}")
    if chat.get("tools"):
        wanted["tools"] = [_tool(tool) for tool in chat["tools"]]
    choice = _choice(chat)
    if choice is not None:
        wanted["tool_choice"] = choice
    system, wanted["messages"] = _turns(chat.get("messages") or ())
    if system:
        wanted["system"] = system
    return wanted


def refused(what: str) -> CallFailed:
    """The upstream speaks the Messages API, which does not have this."""
    return CallFailed(
        Fault.AGENT,
        "not_translatable",
        f"{what} cannot be put to this gateway's upstream, which speaks the Messages API only. "
        "Leave it out, or give the gateway an upstream that speaks the API of the request.",
        status=400,
    )


def _tool(tool: Mapping[str, Any]) -> Json:
    if tool.get("type") != "function":
        raise refused(f"the tool {tool.get('type')!r}")
    function = tool["function"]
    wanted = {"name": function["name"], "input_schema": function.get("parameters") or {"type": "object"}}
    for name in ("description", "strict"):
        if function.get(name):
            wanted[name] = function[name]
    return wanted


def _choice(chat: Mapping[str, Any]) -> Json:
    given = chat.get("tool_choice")
    if isinstance(given, dict):
        if given.get("type") != "function":
            raise refused(f"tool_choice={given!r:.60}")
        choice: dict[str, Json] = {"type": "tool", "name": given["function"]["name"]}
    elif given is not None:
        choice = {"type": _CHOICES[given]}
    else:
        choice = {"type": "auto"}
    if chat.get("parallel_tool_calls") is False and chat.get("tools") and choice["type"] != "none":
        return {**choice, "disable_parallel_tool_use": True}
    return None if given is None else choice


def _turns(messages: Sequence[Mapping[str, Any]]) -> tuple[str, list[Json]]:
    """The system prompt and the turns; results of tools stand in the user's turn after the calls."""
    system: list[str] = []
    turns: list[dict[str, Any]] = []
    for message in messages:
        role = message.get("role")
        if role in ("system", "developer"):
            if turns:
                raise refused(f"a {role} message after the first turn")
            system += [block["text"] for block in _blocks(message.get("content"), text_only=True)]
            continue
        if role == "tool":
            result: Any = _blocks(message.get("content"))
            if all(each["type"] == "text" for each in result):
                result = "".join(each["text"] for each in result)
            block = {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": result}
            speaker, content = "user", [block]
        elif role == "assistant":
            speaker, content = "assistant", _assistant(message)
        elif role == "user":
            speaker, content = "user", _blocks(message.get("content"))
        else:
            raise refused(f"a message of role {role!r:.40}")
        if not content:
            continue  # an empty turn is an error in the Messages API, and says nothing
        if turns and turns[-1]["role"] == speaker:
            turns[-1]["content"] += content
        else:
            turns.append({"role": speaker, "content": content})
    return "\n\n".join(system), turns


def _blocks(content: Json, *, text_only: bool = False) -> list[Any]:
    if content is None or isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    found: list[Any] = []
    for part in content:
        kind = part.get("type")
        if kind == "text":
            found += [{"type": "text", "text": part["text"]}] if part["text"] else []
        elif kind == "refusal":
            found.append({"type": "text", "text": part["refusal"]})
        elif kind == "image_url" and not text_only:
            found.append({"type": "image", "source": _source(part["image_url"]["url"])})
        else:
            raise refused(f"a content part of type {kind!r:.40}")
    return found


def _source(url: str) -> Json:
    if not url.startswith("data:"):
        return {"type": "url", "url": url}
    kind, comma, data = url.removeprefix("data:").partition(";base64,")
    if not comma:
        raise refused("an image that is not base64")
    return {"type": "base64", "media_type": kind, "data": data}


def _assistant(message: Mapping[str, Any]) -> list[Any]:
    if message.get("function_call"):
        raise refused("a function_call")
    content = _blocks(message.get("content") or message.get("refusal"))
    for call in message.get("tool_calls") or ():
        if call.get("type", "function") != "function":
            raise refused(f"a tool call of type {call['type']!r:.40}")
        given = parsed(call["function"].get("arguments") or "")
        content.append(
            {"type": "tool_use", "id": call["id"], "name": call["function"]["name"], "input": given}
        )
    return content


def to_chat_answer(answer: Mapping[str, Any], request: Mapping[str, Any]) -> dict[str, Any]:
    """A Messages answer as a chat answer.

    Args:
        request: the chat request that it answers.
    """
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[Json] = []
    for block in answer["content"]:
        kind = block.get("type")
        if kind == "text":
            texts.append(block["text"])
        elif kind == "thinking":
            thoughts.append(block["thinking"])
        elif kind == "tool_use":
            arguments = msgspec.json.encode(block.get("input") or {}).decode()
            function = {"name": block["name"], "arguments": arguments}
            calls.append({"id": block["id"], "type": "function", "function": function})
    message: dict[str, Json] = {"role": "assistant", "content": "".join(texts) if texts else None}
    message["refusal"] = None
    if thoughts:
        message["reasoning_content"] = "".join(thoughts)
    if calls:
        message["tool_calls"] = calls
    choice = {"index": 0, "message": message, "logprobs": None, **finish_of(answer)}
    return {
        **head(answer, request, "chat.completion"),
        "choices": [choice],
        "usage": usage_of(answer.get("usage")),
    }


def head(answer: Mapping[str, Any], request: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """The fields of a chat answer, or of each chunk of one, that are about all of it."""
    return {
        "id": f"chatcmpl-{answer.get('id')}",
        "object": kind,
        "created": int(time.time()),
        "model": answer.get("model") or request.get("model"),
    }


def finish_of(answer: Mapping[str, Any]) -> dict[str, Json]:
    """`finish_reason`, and the stop sequence where vLLM has it."""
    reason = answer.get("stop_reason")
    found: dict[str, Json] = {"finish_reason": FINISHES.get(reason or "end_turn", "stop")}
    if reason == "stop_sequence" and answer.get("stop_sequence"):
        found["stop_reason"] = answer["stop_sequence"]
    return found


def usage_of(used: Json) -> dict[str, Json]:
    """The usage of a Messages answer in chat's words, where cached input is counted in the prompt."""
    cached = count(used, "cache_read_input_tokens")
    prompt = count(used, "input_tokens") + cached + count(used, "cache_creation_input_tokens")
    written = count(used, "output_tokens")
    return {
        "prompt_tokens": prompt,
        "completion_tokens": written,
        "total_tokens": prompt + written,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


class ChatStream:
    """Tells a Messages stream as chunks of chat, event by event; the usage comes as a last chunk."""

    def __init__(self, request: Mapping[str, Any]) -> None:
        self._request = request
        self._head: dict[str, Any] = {}
        self._usage: dict[str, Json] = {}
        self._last: dict[str, Json] = {}
        self._calls: dict[int, int] = {}
        """Index of a block → index of the tool call that it is."""
        self._silent: set[int] = set()
        """Tool calls whose arguments have not begun."""

    def feed(self, event: Mapping[str, Any]) -> list[Json]:
        """The chunks that one event becomes."""
        kind = event.get("type")
        if kind == "message_start":
            self._head = head(event["message"], self._request, "chat.completion.chunk")
            self._usage = dict(event["message"].get("usage") or {})
            return [self._chunk({"role": "assistant", "content": ""})]
        if kind == "content_block_start":
            return self._block(event["index"], event["content_block"])
        if kind == "content_block_delta":
            return self._delta(event["index"], event["delta"])
        if kind == "content_block_stop" and event["index"] in self._silent:
            return [self._arguments(event["index"], "{}")]
        if kind == "message_delta":
            self._last.update(event["delta"])
            self._usage.update(event.get("usage") or {})
        return []

    def end(self) -> list[Json]:
        """The chunks after the last event of a whole answer."""
        used = {**self._head, "choices": [], "usage": usage_of(self._usage)}
        return [self._chunk({}, **finish_of(self._last)), used]

    def _chunk(self, delta: Json, **more: Json) -> Json:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None, **more}
        return {**self._head, "choices": [choice]}

    def _block(self, index: int, block: Mapping[str, Any]) -> list[Json]:
        if block.get("type") == "text" and block.get("text"):
            return [self._chunk({"content": block["text"]})]
        if block.get("type") != "tool_use":
            return []
        number = self._calls[index] = len(self._calls)
        self._silent.add(index)
        function = {"name": block["name"], "arguments": ""}
        call = {"index": number, "id": block["id"], "type": "function", "function": function}
        return [self._chunk({"tool_calls": [call]})]

    def _delta(self, index: int, delta: Mapping[str, Any]) -> list[Json]:
        kind = delta.get("type")
        if kind == "text_delta":
            return [self._chunk({"content": delta["text"]})]
        if kind == "thinking_delta":
            return [self._chunk({"reasoning_content": delta["thinking"]})]
        if kind == "input_json_delta" and delta["partial_json"]:
            return [self._arguments(index, delta["partial_json"])]
        return []

    def _arguments(self, index: int, text: str) -> Json:
        self._silent.discard(index)
        call = {"index": self._calls[index], "function": {"arguments": text}}
        return self._chunk({"tool_calls": [call]})
