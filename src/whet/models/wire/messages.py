"""The Messages API (Anthropic's).

Refused on the way to chat: what has no counterpart there and would change the answer (server tools,
documents).  Refused on the way from chat: several choices (`n`), log-probabilities and token ids, penalties and
`logit_bias`, a temperature above 1, JSON without a schema, sound and files, functions in their old form, a
system message after the first turn.  What only tunes the provider's own machinery (cache marks, thinking
budgets; seed, reasoning effort, service tier) is left out both ways, and so is a model's earlier reasoning,
which only its own service could check.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...types import Json, new_id
from .chat import tool_call
from .neutral import AnswerPart, CallPiece, Counts, Untranslatable, arguments_object, arguments_text, count
from .sse import named_event

api = "messages"
path = "/messages"
frame = named_event
LIMIT = 4096
"""`max_tokens` where a chat request gives none: this API must have one, and every model of it allows this."""
_STOPS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}
"""Chat's finish_reason → stop_reason."""
_FINISHES = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
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
"""Fields of chat that a request in another API may carry under their own name."""
_NOT_HERE = (
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
"""Fields of chat that have no counterpart here."""
_TOOL_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
"""Type of tool_choice → chat's tool_choice."""


# -- errors and usage -----------------------------------------------------------------------------


def error(status: int, kind: str, message: str) -> dict[str, Json]:
    """The JSON of an error answer."""
    return {"type": "error", "error": {"type": _KINDS.get(status, "api_error"), "message": message}}


def error_events(kind: str, message: str, sequence: int) -> bytes:
    """The end of a stream that failed after it had begun."""
    return named_event(error(502, kind, message))


def accepts(answer: Json) -> bool:
    """True for a whole answer of this API."""
    return isinstance(answer, dict) and isinstance(answer.get("content"), list)


def usage(answer: Mapping[str, Any]) -> Counts | None:
    """Token counts, None where the answer has none; this API counts cached input apart."""
    counts = answer.get("usage")
    if not isinstance(counts, dict):
        return None
    cached = count(counts, "cache_read_input_tokens")
    cache_write = count(counts, "cache_creation_input_tokens")
    return {
        "input": count(counts, "input_tokens") + cached + cache_write,
        "output": count(counts, "output_tokens"),
        "cached_input": cached,
        "reasoning": count(counts.get("output_tokens_details"), "thinking_tokens"),
    }


def usage_of(counts: Counts | None) -> dict[str, int]:
    """Token counts as this API writes them, all 0 where they are unknown."""
    counts = counts or {}
    cached = counts.get("cached_input", 0)
    return {
        # Chat counts cached tokens within its prompt, this API beside its input.
        "input_tokens": counts.get("input", 0) - cached,
        "output_tokens": counts.get("output", 0),
        "cache_read_input_tokens": cached,
        "cache_creation_input_tokens": 0,
    }


# -- reading requests -----------------------------------------------------------------------------


def read_request(request: Mapping[str, Any]) -> dict[str, Any]:
    """A request as a chat request.

    Raises:
        Untranslatable: it uses what chat does not have; or one of MISSHAPEN.
    """
    chat: dict[str, Any] = {name: request[name] for name in (*_SHARED, *EXTENSIONS) if name in request}
    system = _texts(request.get("system"))
    chat["messages"] = [{"role": "system", "content": system}] if system else []
    for message in request.get("messages") or ():
        chat["messages"] += _read_turn(message)
    if request.get("stop_sequences"):
        chat["stop"] = request["stop_sequences"]
    if request.get("tools"):
        chat["tools"] = [_read_tool(tool) for tool in request["tools"]]
    choice = request.get("tool_choice")
    if isinstance(choice, dict):
        chat["tool_choice"] = _TOOL_CHOICES.get(choice.get("type", ""), "auto")
        if choice.get("type") == "tool":
            chat["tool_choice"] = {"type": "function", "function": {"name": choice.get("name")}}
        if choice.get("disable_parallel_tool_use"):
            chat["parallel_tool_calls"] = False
    return chat


def _read_tool(tool: Mapping[str, Any]) -> Json:
    if "input_schema" not in tool:
        raise Untranslatable(
            f"the tool {tool.get('name') or tool.get('type')!r} runs at the provider", "chat"
        )
    function = {"name": tool["name"], "parameters": tool["input_schema"]}
    if tool.get("description"):
        function["description"] = tool["description"]
    return {"type": "function", "function": function}


def _read_turn(message: Mapping[str, Any]) -> list[Json]:
    """One message of the agent as chat messages: results of tools become messages of their own."""
    role, content = message.get("role"), message.get("content")
    if isinstance(content, str):
        return [{"role": role, "content": content}]
    if role == "assistant":
        return [_read_assistant(content or ())]
    turns: list[Json] = []
    parts: list[Json] = []
    for block in content or ():
        kind = block.get("type")
        if kind == "tool_result":
            text = _texts(block.get("content"))
            turns.append({"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": text})
        elif kind == "text":
            parts.append({"type": "text", "text": block["text"]})
        elif kind == "image":
            parts.append({"type": "image_url", "image_url": {"url": _image_url(block.get("source") or {})}})
        else:
            raise Untranslatable(f"a {kind!r} block in a {role} message", "chat")
    # Behind the results, wherever it stood: chat takes a tool's message only right after the calls.
    if parts:
        plain = all(part["type"] == "text" for part in parts)
        turns.append({"role": role, "content": "\n".join(p["text"] for p in parts) if plain else parts})
    return turns


def _read_assistant(content: Any) -> Json:
    turn: dict[str, Any] = {"role": "assistant", "content": None}
    texts, calls = [], []
    for block in content:
        kind = block.get("type")
        if kind == "text":
            texts.append(block["text"])
        elif kind == "tool_use":
            calls.append(tool_call(block["id"], block["name"], arguments_text(block.get("input") or {})))
        elif kind not in ("thinking", "redacted_thinking"):
            raise Untranslatable(f"a {kind!r} block in an assistant message", "chat")
    if texts:
        turn["content"] = "".join(texts)
    if calls:
        turn["tool_calls"] = calls
    return turn


def _image_url(source: Mapping[str, Any]) -> str:
    if source.get("type") == "base64":
        return f"data:{source.get('media_type')};base64,{source.get('data')}"
    if source.get("type") == "url":
        return str(source.get("url"))
    raise Untranslatable(f"an image of source {source.get('type')!r}", "chat")


def _texts(content: Json) -> str:
    """The text of a content that is a string or a list of text blocks."""
    if content is None or isinstance(content, str):
        return content or ""
    texts = []
    for block in content:
        if block.get("type") != "text":
            raise Untranslatable(f"a {block.get('type')!r} block where only text can stand", "chat")
        texts.append(block["text"])
    return "\n".join(texts)


# -- writing requests -----------------------------------------------------------------------------


def write_request(chat: Mapping[str, Any]) -> dict[str, Any]:
    """A chat request as a request of this API.

    Raises:
        Untranslatable: it uses what this API does not have; or one of MISSHAPEN.
    """
    for name in _NOT_HERE:
        if chat.get(name):
            raise _not_here(f"{name}={chat[name]!r:.60}")
    if (chat.get("n") or 1) != 1:
        raise _not_here(f"n={chat['n']!r:.20}")
    if set(chat.get("modalities") or ("text",)) != {"text"}:
        raise _not_here(f"modalities={chat['modalities']!r:.60}")
    body: dict[str, Any] = {"model": chat.get("model")}
    body["max_tokens"] = chat.get("max_completion_tokens") or chat.get("max_tokens") or LIMIT
    for name in ("temperature", "top_p", "top_k", "stream"):
        if chat.get(name) is not None:
            body[name] = chat[name]
    if body.get("temperature", 0) > 1:
        raise _not_here(f"temperature={body['temperature']!r:.20}, above 1,")
    if chat.get("stop"):
        body["stop_sequences"] = [chat["stop"]] if isinstance(chat["stop"], str) else chat["stop"]
    if chat.get("user"):
        body["metadata"] = {"user_id": chat["user"]}
    shape = chat.get("response_format") or {"type": "text"}
    if shape.get("type") == "json_schema":
        schema = (shape.get("json_schema") or {}).get("schema")
        body["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
    elif shape.get("type") != "text":
        raise _not_here(f"response_format={shape!r:.60}")
    if chat.get("tools"):
        body["tools"] = [_write_tool(tool) for tool in chat["tools"]]
    choice = _write_tool_choice(chat)
    if choice is not None:
        body["tool_choice"] = choice
    system, body["messages"] = _write_turns(chat.get("messages") or ())
    if system:
        body["system"] = system
    return body


def _not_here(feature: str) -> Untranslatable:
    return Untranslatable(feature, "Messages")


def _write_tool(tool: Mapping[str, Any]) -> Json:
    if tool.get("type") != "function":
        raise _not_here(f"the tool {tool.get('type')!r}")
    function = tool["function"]
    body = {"name": function["name"], "input_schema": function.get("parameters") or {"type": "object"}}
    for name in ("description", "strict"):
        if function.get(name):
            body[name] = function[name]
    return body


def _write_tool_choice(chat: Mapping[str, Any]) -> Json:
    tool_choice = chat.get("tool_choice")
    if isinstance(tool_choice, dict):
        if tool_choice.get("type") != "function":
            raise _not_here(f"tool_choice={tool_choice!r:.60}")
        choice: dict[str, Json] = {"type": "tool", "name": tool_choice["function"]["name"]}
    else:
        choice = {"type": {word: kind for kind, word in _TOOL_CHOICES.items()}[tool_choice or "auto"]}
    if chat.get("parallel_tool_calls") is False and chat.get("tools") and choice["type"] != "none":
        return {**choice, "disable_parallel_tool_use": True}
    return None if tool_choice is None else choice


def _write_turns(messages: Sequence[Mapping[str, Any]]) -> tuple[str, list[Json]]:
    """The system prompt and the turns; results of tools stand in the user's turn after the calls."""
    system: list[str] = []
    turns: list[dict[str, Any]] = []
    for message in messages:
        role = message.get("role")
        if role in ("system", "developer"):
            if turns:
                raise _not_here(f"a {role} message after the first turn")
            system += [block["text"] for block in _blocks(message.get("content"), text_only=True)]
            continue
        if role == "tool":
            blocks: Any = _blocks(message.get("content"))
            if all(block["type"] == "text" for block in blocks):
                blocks = "".join(block["text"] for block in blocks)
            content = [{"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": blocks}]
            speaker = "user"
        elif role == "assistant":
            speaker, content = "assistant", _write_assistant(message)
        elif role == "user":
            speaker, content = "user", _blocks(message.get("content"))
        else:
            raise _not_here(f"a message of role {role!r:.40}")
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
    blocks: list[Any] = []
    for part in content:
        kind = part.get("type")
        if kind == "text":
            blocks += [{"type": "text", "text": part["text"]}] if part["text"] else []
        elif kind == "refusal":
            blocks.append({"type": "text", "text": part["refusal"]})
        elif kind == "image_url" and not text_only:
            blocks.append({"type": "image", "source": _image_source(part["image_url"]["url"])})
        else:
            raise _not_here(f"a content part of type {kind!r:.40}")
    return blocks


def _image_source(url: str) -> Json:
    if not url.startswith("data:"):
        return {"type": "url", "url": url}
    kind, comma, data = url.removeprefix("data:").partition(";base64,")
    if not comma:
        raise _not_here("an image that is not base64")
    return {"type": "base64", "media_type": kind, "data": data}


def _write_assistant(message: Mapping[str, Any]) -> list[Any]:
    if message.get("function_call"):
        raise _not_here("a function_call")
    content = _blocks(message.get("content") or message.get("refusal"))
    for call in message.get("tool_calls") or ():
        if call.get("type", "function") != "function":
            raise _not_here(f"a tool call of type {call['type']!r:.40}")
        function = call["function"]
        content.append(_tool_use(call["id"], function["name"], function.get("arguments") or ""))
    return content


def _tool_use(id: str, name: str, arguments: str) -> dict[str, Json]:
    return {"type": "tool_use", "id": id, "name": name, "input": arguments_object(arguments)}


# -- reading answers ------------------------------------------------------------------------------


class MessagesStreamReader:
    """Puts the events of a stream together into the answer that would have come whole."""

    sequence = -1
    policy_version: str | None = None

    def __init__(self) -> None:
        self.finished = False
        self.failure: Json = None
        self._message: dict[str, Any] | None = None
        self._arguments: dict[int, str] = {}
        self._calls: dict[int, int] = {}
        """Index of a block → index of the tool call that it is."""
        self._silent: set[int] = set()
        """Blocks of tool calls whose arguments have not begun."""

    def read(self, event: Json) -> None:
        """Take in one event."""
        kind = event.get("type") if isinstance(event, dict) else None
        if kind == "error":
            self.failure = event.get("error") or event
        elif kind == "message_start":
            self._message = {**event["message"], "content": []}
        elif self._message is None:
            return  # a ping may come before the start
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
            self._message["content"][index]["input"] = arguments_object(self._arguments.pop(index))

    def response(self) -> dict[str, Json] | None:
        """The answer so far, None if nothing came."""
        if self._message is not None:
            for index in tuple(self._arguments):
                self._close(index)
        return self._message

    def pieces(self, event: Mapping[str, Any]) -> list[AnswerPart]:
        """The additions of one event; call it after `read`, which merges the usage."""
        kind, index = event.get("type"), event.get("index", 0)
        if kind == "message_start":
            message = event["message"]
            return [AnswerPart(id=message.get("id"), model=message.get("model"))]
        if kind == "content_block_start":
            block = event["content_block"]
            if block.get("type") == "tool_use":
                self._calls[index] = len(self._calls)
                self._silent.add(index)
                return [AnswerPart(calls=[CallPiece(self._calls[index], block["id"], block["name"])])]
            return (
                [AnswerPart(text=block["text"])] if block.get("type") == "text" and block.get("text") else []
            )
        if kind == "content_block_delta":
            delta = event["delta"]
            if delta.get("type") == "input_json_delta":
                return self._arguments_piece(index, delta["partial_json"])
            return [AnswerPart(text=delta.get("text") or "", reasoning=delta.get("thinking") or "")]
        if kind == "content_block_stop" and index in self._silent:
            # A call without arguments streams none, and chat clients parse the empty text as JSON.
            return self._arguments_piece(index, "{}")
        if kind == "message_delta" and self._message is not None:
            return [AnswerPart(usage=usage(self._message), **_finish(self._message))]
        return []

    def _arguments_piece(self, index: int, text: str) -> list[AnswerPart]:
        if not text:
            return []
        self._silent.discard(index)
        return [AnswerPart(calls=[CallPiece(self._calls[index], arguments=text)])]


def read_answer(answer: Mapping[str, Any]) -> AnswerPart:
    """A whole answer."""
    piece = AnswerPart(id=answer.get("id"), model=answer.get("model"), usage=usage(answer), **_finish(answer))
    calls: list[CallPiece] = []
    for block in answer["content"]:
        kind = block.get("type")
        if kind == "text":
            piece.text += block["text"]
        elif kind == "thinking":
            piece.reasoning += block["thinking"]
        elif kind == "tool_use":
            arguments = arguments_text(block.get("input") or {})
            calls.append(CallPiece(len(calls), block["id"], block["name"], arguments))
    piece.calls = calls
    return piece


def _finish(answer: Mapping[str, Any]) -> dict[str, Any]:
    reason = answer.get("stop_reason")
    sequence = answer.get("stop_sequence") if reason == "stop_sequence" else None
    return {"finish": _FINISHES.get(reason or "end_turn", "stop"), "sequence": sequence}


# -- writing answers ------------------------------------------------------------------------------


class MessagesStreamWriter:
    """Writes an answer to `request` as events; blocks are opened and closed as this API has them.

    Chat may interleave the arguments of several tool calls, and this API has one block open
    at a time.  The first call is passed on as it comes; what else comes while it is open is held
    until the end, for only then is it certain that the call is complete.
    """

    def __init__(self, request: Mapping[str, Any]) -> None:
        self._request = request
        self._started = False
        self._index = -1
        self._open: str | int | None = None
        """`text`, `thinking`, or the index of a tool call."""
        self._held: dict[str | int, Any] = {}
        """Texts and calls that wait for their blocks, in order of appearance: `text`, `thinking`, or a call's index."""
        self._last = AnswerPart()

    def write(self, piece: AnswerPart) -> list[Json]:
        """The events that an AnswerPart becomes."""
        events: list[Json] = [] if self._started else [self._start(piece)]
        if piece.usage:
            self._last.usage = piece.usage
        if piece.finish:
            self._last.finish, self._last.sequence = piece.finish, piece.sequence
        if piece.reasoning:
            events += self._text("thinking", piece.reasoning)
        if piece.text or piece.refusal:
            events += self._text("text", piece.text or piece.refusal)
        for call in piece.calls:
            events += self._call(call)
        return events

    def end(self) -> list[Json]:
        """The events after the last AnswerPart of a whole answer."""
        # Closed first: with a block open `_text` would hold its text again, in the dictionary walked here.
        events = self._close()
        for kind, held in self._held.items():
            events += self._begin(held) if isinstance(held, CallPiece) else self._text(str(kind), held)
            events += self._close()
        last = self._last
        delta: dict[str, Json] = {"stop_reason": _STOPS.get(last.finish or "stop", "end_turn")}
        delta["stop_sequence"] = None
        if last.finish == "stop" and isinstance(last.sequence, str):
            delta = {"stop_reason": "stop_sequence", "stop_sequence": last.sequence}
        return [
            *events,
            {"type": "message_delta", "delta": delta, "usage": usage_of(last.usage)},
            {"type": "message_stop"},
        ]

    def _start(self, piece: AnswerPart) -> Json:
        self._started = True
        message: dict[str, Json] = {
            "id": f"msg_{piece.id or new_id()}",
            "type": "message",
            "role": "assistant",
            "model": piece.model or self._request.get("model"),
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage_of(piece.usage),
        }
        return {"type": "message_start", "message": message}

    def _text(self, kind: str, text: str) -> list[Json]:
        if isinstance(self._open, int):
            self._held[kind] = self._held.get(kind, "") + text
            return []
        events = []
        if self._open != kind:
            empty = {"type": "text", "text": ""}
            if kind == "thinking":
                empty = {"type": "thinking", "thinking": "", "signature": ""}
            events = [*self._close(), self._opened(kind, empty)]
        return [*events, self._delta(f"{kind}_delta", kind, text)]

    def _call(self, piece: CallPiece) -> list[Json]:
        if self._open == piece.index:
            return self._arguments(piece)
        held = self._held.setdefault(piece.index, CallPiece(piece.index))
        held.id, held.name = piece.id or held.id, piece.name or held.name
        # A block cannot be opened before the name of its call is known; until then the pieces are held.
        held.arguments += piece.arguments
        if isinstance(self._open, int) or not held.name:
            return []
        return self._begin(self._held.pop(piece.index))

    def _begin(self, call: CallPiece) -> list[Json]:
        block = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
        return [*self._close(), self._opened(call.index, block), *self._arguments(call)]

    def _arguments(self, call: CallPiece) -> list[Json]:
        return [self._delta("input_json_delta", "partial_json", call.arguments)] if call.arguments else []

    def _delta(self, kind: str, field: str, text: str) -> Json:
        return {"type": "content_block_delta", "index": self._index, "delta": {"type": kind, field: text}}

    def _opened(self, block_key: str | int, block: Json) -> Json:
        self._index += 1
        self._open = block_key
        return {"type": "content_block_start", "index": self._index, "content_block": block}

    def _close(self) -> list[Json]:
        if self._open is None:
            return []
        self._open = None
        return [{"type": "content_block_stop", "index": self._index}]


def write_answer(piece: AnswerPart, request: Mapping[str, Any]) -> dict[str, Json]:
    """A whole answer to `request`: its stream, put together."""
    reader, writer = MessagesStreamReader(), MessagesStreamWriter(request)
    for event in [*writer.write(piece), *writer.end()]:
        reader.read(event)
    return reader.response() or {}


# The gateway takes a module as the description of an API, and asks each for these two by one name.
stream_reader = MessagesStreamReader
stream_writer = MessagesStreamWriter
