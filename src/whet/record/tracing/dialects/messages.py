"""One form for a message, whatever the API, framework or instrumentor wrote.

The form is what `docs/nouns.md` calls an observation of a model call:

    {"role": "system" | "user" | ..., "text": str}
    {"role": "assistant", "text": str, "tool_calls": [{"id", "name", "arguments"}]}
    {"role": "tool", "tool_call_id": str | None, "text": str}

`arguments` are parsed where they are JSON.  Empty text beside tool calls is dropped.  A model's
stated reasoning comes as `reasoning`; a part that is neither text, call nor result (an image) is
kept as it came under `parts`.  Nothing here follows a reference or loads what a part points to.

Read: OpenAI chat and responses, Anthropic messages, Bedrock's Converse, OpenTelemetry's parts, LangChain's
serialised messages.  The flattened attributes of some instrumentors are put together in their own modules first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import islice
from operator import itemgetter
from typing import Any

import msgspec

from ....types import Json
from .standard import Turned, of_standard
from .values import literal, parsed, plain, structure

Message = dict[str, Any]

_ROLES = {
    "human": "user",
    "HumanMessage": "user",
    "ai": "assistant",
    "AIMessage": "assistant",
    "AIMessageChunk": "assistant",
    "model": "assistant",
    "SystemMessage": "system",
    "ToolMessage": "tool",
    "function": "tool",
    # smolagents' names for what it sends as assistant and as user
    "tool-call": "assistant",
    "tool-response": "user",
}
_TOOL_MESSAGE = re.compile(
    r"""content=(?P<content>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")(?: [a-z_]+=.*)? tool_call_id='(?P<id>[^']*)'""",
    re.DOTALL,
)
"""The repr of LangChain's message of a tool's result."""
_TEXT = ("text", "input_text", "output_text", "refusal")
_CALL = ("tool_call", "tool_use", "function_call", "server_tool_call")
_RESULT = ("tool_call_response", "tool_result", "function_call_output", "server_tool_call_response")
_THOUGHT = ("reasoning", "thinking")


def messages(value: Json) -> list[Message]:
    """A list of messages in any form, as text or as values; anything else is left out."""
    return conversation(value)[0]


def conversation(value: Json) -> tuple[list[Message], bool]:
    """As `messages`, and whether they are sure to say all that the value says."""
    turned: Sequence[Turned]
    if isinstance(value, str) and value[:1] == "[":
        turned = _turned(value)
    else:
        value = structure(value)
        turned = [*map(_turns, [value] if isinstance(value, dict) else value or ())]
    # Copies: who is given a message may add to it, as `with_wire_ids` does; what is in it is never changed.
    if not any(map(_ITEM, turned)):
        several = [turn.copy() for turns, _, _ in turned for turn in turns]
    else:
        several = _with_items_joined(turned)
    return several, bool(several) and all(map(_COMPLETE, turned))


_ITEM, _COMPLETE = itemgetter(1), itemgetter(2)


def _with_items_joined(turned: Sequence[Turned]) -> list[Message]:
    """The messages, those of items of one answer as one."""
    several: list[Message] = []
    items = False  # whether the last message was made of a response item, which the next may belong to
    for turns, item, _ in turned:
        for turn in turns:
            if item and items and several and several[-1]["role"] == turn["role"] == "assistant":
                several[-1] = joined([several[-1], turn]) or turn
            else:
                several.append(turn.copy())
        items = item
    return several


def conversation_of(several: Sequence[msgspec.Raw]) -> list[Message]:
    """As `messages`, of messages that are not decoded: one that was read before is not read again."""
    known = _known_turns.get
    turned = [known(raw) or _remembered(raw) for raw in map(bytes, several)]
    if any(map(_ITEM, turned)):
        return _with_items_joined(turned)
    return [turn.copy() for turns, _, _ in turned for turn in turns]


def answers(value: Json) -> tuple[list[Message], bool]:
    """The last message of each answer in a list of them, and whether they are sure to say all that the value says."""
    if isinstance(value, str) and value[:1] == "[":
        turned = _turned(value)
        finals = [turns[-1].copy() for turns, _, _ in turned if turns]
        return finals, bool(finals) and all(complete and len(turns) == 1 for turns, _, complete in turned)
    several = structure(value)
    turns_of = [message(answer) for answer in several] if isinstance(several, list) else []
    return [turns[-1] for turns in turns_of if turns], False


def _turned(text: str) -> Sequence[Turned]:
    """`_turns` of each message of a JSON text; none if it cannot be read."""
    try:
        known = _known_turns.get
        return [known(raw) or _remembered(raw) for raw in map(bytes, _raw_messages.decode(text))]
    except (msgspec.DecodeError, RecursionError, ValueError):
        return ()


def _turns(raw: Json) -> Turned:
    """A message of an API as messages, whether it is a response item, and whether they are sure to say all of it."""
    item = isinstance(raw, dict) and raw.get("type") in (*_CALL, *_THOUGHT, "message")
    return message(raw), item, False


_raw_messages = msgspec.json.Decoder(list[msgspec.Raw])
_KNOWN_BYTES = 8 * 1024 * 1024
"""Memory of messages that are remembered: a model call repeats the whole conversation before it."""
_OBJECTS = 1024
"""Bytes of the objects that a message becomes, about: ten times those of a short one."""
_LONG = 16 * 1024
_known_turns: dict[bytes, Turned] = {}
_known_size = [0]


def _remembered(raw: bytes) -> Turned:
    turned = of_standard(raw) if b'"parts"' in raw else None
    turned = turned or _turns(msgspec.json.decode(raw))
    if len(raw) <= _LONG:
        if _known_size[0] > _KNOWN_BYTES:
            _known_turns.clear()
            _known_size[0] = 0
        _known_size[0] += _OBJECTS + 2 * len(raw)
        _known_turns[raw] = turned
    return turned


def message(value: Json) -> list[Message]:
    """One message in any form; several results in it become several tool messages."""
    # LangChain takes a pair of role and text for a message, and some traces hold it as such.
    if isinstance(value, list) and len(value) == 2 and all(isinstance(part, str) for part in value):
        return [{"role": _role(value[0]), "text": value[1]}]
    if not isinstance(value, dict):
        return []
    value, kind = _unwrapped(value)
    if kind in _RESULT or kind in _CALL or kind in _THOUGHT:
        return _made("assistant", [value])
    role = value.get("role")
    role = _role(role) if isinstance(role, str) else _role(kind) if isinstance(kind, str) else ""
    if not role:
        return []
    parts = value.get("parts") if isinstance(value.get("parts"), list) else value.get("content")
    if isinstance(value.get("blocks"), list):
        value, parts = _of_blocks(value)
    if role == "tool" and value.get("parts") is None and not _results(parts):
        id = value.get("tool_call_id", value.get("id"))
        return [{"role": "tool", "tool_call_id": id if isinstance(id, str) else None, "text": text(parts)}]
    calls = value.get("tool_calls")
    single = value.get("function_call")
    return _made(
        role,
        [
            *([{"type": "reasoning", "content": value["reasoning_content"]}] if _said(value) else []),
            *(parts if isinstance(parts, list) else [parts]),
            *({**part, "type": "tool_call"} for part in _dicts(calls)),
            *([{**single, "type": "tool_call"}] if isinstance(single, dict) else []),
        ],
    )


def together(several: Iterable[Message]) -> list[Message]:
    """A conversation in which the calls of one turn are one message.

    In the Responses API each call is an item of its own, and some instrumentors show a message for each item.  Between
    the calls of two turns there are results.
    """
    turns: list[Message] = []
    calls = None  # of the last turn
    for turn in several:
        if calls and turn.get("tool_calls") and not turn.get("text"):
            turns[-1] = joined([turns[-1], turn]) or turn
        else:
            turns.append(turn)
        calls = turns[-1].get("tool_calls")
    return turns


def joined(several: Iterable[Message]) -> Message | None:
    """Several messages of one speaker as one."""
    merged: Message | None = None
    for message in several:
        if merged is None:
            merged = dict(message)
            continue
        for key in ("text", "reasoning"):
            if message.get(key):
                merged[key] = f"{merged[key]}\n{message[key]}" if merged.get(key) else message[key]
        for key in ("tool_calls", "parts"):
            if message.get(key):
                merged[key] = [*merged.get(key, ()), *message[key]]
    if merged is not None and merged.get("tool_calls") and not merged.get("text"):
        merged.pop("text", None)
    return merged


def text(content: Json) -> str:
    """The text of a content, given as text or as parts."""
    if isinstance(content, list):
        pieces = [part if isinstance(part, str) else _part_text(part) for part in content]
        if all(piece is not None for piece in pieces):
            return "\n".join(piece for piece in pieces if piece)
    return plain(content)


def with_wire_ids(several: list[Message]) -> list[Message]:
    """Join calls to results by position where their ids differ.

    One instrumentor writes the id of an item in place of the id of the call; the result tells the
    right one, which is added as `id_wire`.
    """
    for number, message in enumerate(several):
        if not message.get("tool_calls"):
            continue
        answers = []
        for later in islice(several, number + 1, None):
            if later["role"] != "tool":
                break
            answers.append(later.get("tool_call_id"))
        if not answers or (len(message["tool_calls"]) == 1 and message["tool_calls"][0]["id"] in answers):
            continue
        calls = [call for call in message["tool_calls"] if call["id"] not in answers]
        call_ids = {call["id"] for call in message["tool_calls"]}
        loose = [answer for answer in answers if answer and answer not in call_ids]
        if calls and len(calls) == len(loose):
            on_the_wire = dict(zip(map(id, calls), loose, strict=True))
            # New calls: the old ones may be those of another span's conversation, too.
            message["tool_calls"] = [
                {**call, "id_wire": on_the_wire[id(call)]} if id(call) in on_the_wire else call
                for call in message["tool_calls"]
            ]
    return several


def finish_reason(stated: Json, output: Message | None, *, failed: bool) -> str | None:
    """stop, tool_calls, length, content_filter or error: by what the answer was, then by what is said of it."""
    # The answer goes before what is said of it, which may be another word for each API.
    if output is not None and output.get("tool_calls"):
        return "tool_calls"
    if output is None and failed:
        return "error"
    stated = str(stated).lower() if stated else ""
    if "length" in stated or "max_tokens" in stated or stated == "incomplete":
        return "length"
    if "filter" in stated or stated in ("refusal", "safety"):
        return "content_filter"
    if output is not None:
        return "stop"
    if "tool" in stated or "function" in stated:
        return "tool_calls"
    return "stop" if stated else None


def tool_result(value: Json) -> tuple[str | None, str | None]:
    """Text of what a tool returned, and the id of the call if the result tells it.

    LangChain's instrumentors record the message that the result was made into, some in an envelope.
    """
    inner = structure(value)
    if isinstance(inner, dict) and isinstance(inner.get("output"), dict):
        inner = inner["output"]
    if isinstance(inner, dict) and "raw_output" in inner and "tool_name" in inner:  # LlamaIndex
        return plain(inner["raw_output"]), None
    if isinstance(inner, dict):
        held, kind = _unwrapped(inner)
        if held is not inner and _role(str(kind)) == "tool":
            id = held.get("tool_call_id")
            return text(held.get("content")), id if isinstance(id, str) else None
    shown = _TOOL_MESSAGE.match(value) if isinstance(value, str) else None
    if shown is not None and isinstance(told := literal(shown["content"]), str):
        return told, shown["id"]
    return (None, None) if value is None else (plain(value), None)


def _unwrapped(value: Message) -> tuple[Message, Json]:
    """A message out of LangChain's envelopes, and its type."""
    inner = value.get("kwargs")
    if value.get("lc") and isinstance(inner, dict):
        path = value.get("id")
        return inner, inner.get("type") or (path[-1] if isinstance(path, list) and path else None)
    inner = value.get("data")
    if isinstance(inner, dict) and "content" in inner:
        return inner, inner.get("type") or value.get("type")
    return value, value.get("type")


def _made(role: str, parts: list[Json]) -> list[Message]:
    results: list[Message] = []
    calls: list[Message] = []
    texts: list[str] = []
    thoughts: list[str] = []
    others: list[Json] = []
    for part in parts:
        if isinstance(part, str):
            texts.append(part)
            continue
        if not isinstance(part, dict):
            continue
        part = _typed(part)
        kind = part.get("type")
        written = _part_text(part)
        if kind in _CALL:
            calls.append(_call(part))
        elif kind in _RESULT:
            results.append(_result(part))
        elif kind in _THOUGHT:
            thoughts.append(_thought(part))
        elif written is not None:
            texts.append(written)
        else:
            others.append(part)
    message: Message = {"role": role}
    written = "\n".join(text for text in texts if text)
    if written or not (calls or results or others or thoughts):
        message["text"] = written
    if calls:
        message["tool_calls"] = calls
    if any(thoughts):
        message["reasoning"] = "\n".join(text for text in thoughts if text)
    if others:
        message["parts"] = others
    return results if results and len(message) == 1 else [*results, message]


def _of_blocks(value: Message) -> tuple[Message, list[Json]]:
    """A message of LlamaIndex, whose parts are blocks and whose call ids are beside them, as one with parts."""
    extra = value.get("additional_kwargs")
    beside = extra if isinstance(extra, dict) else {}
    parts: list[Json] = []
    for block in value["blocks"]:
        if isinstance(block, dict) and block.get("block_type") == "tool_call":
            if not beside.get("tool_calls"):  # else the same call twice
                call = {"id": block.get("tool_call_id"), "name": block.get("tool_name")}
                parts.append({"type": "tool_call", **call, "arguments": block.get("tool_kwargs")})
        else:
            parts.append(block)
    held = {key: beside[key] for key in ("tool_calls", "tool_call_id") if key in beside}
    return {**value, **held}, parts


def _typed(part: Message) -> Message:
    """A part of Amazon Bedrock's Converse API, whose kind is the name of its member, with a type."""
    used, result = part.get("toolUse"), part.get("toolResult")
    if isinstance(used, dict):
        return {"type": "tool_use", "id": used.get("toolUseId"), **used}
    if isinstance(result, dict):
        return {
            "type": "tool_result",
            "tool_use_id": result.get("toolUseId"),
            "content": result.get("content"),
        }
    return part


def _results(parts: Json) -> bool:
    """True of content that is nothing but results of tools, as Bedrock's Converse API has them."""
    return (
        bool(parts)
        and isinstance(parts, list)
        and all(isinstance(part, dict) and _typed(part).get("type") in _RESULT for part in parts)
    )


def _call(part: Message) -> Message:
    """A tool call: nested under `function` (chat), or flat with `arguments`, `input` or `args`."""
    inner = part.get("function")
    held = inner if isinstance(inner, dict) else part
    arguments = next((held[key] for key in ("arguments", "input", "args") if held.get(key) is not None), None)
    # In this order: an item of the Responses API has both, and a result names the `call_id`.
    id = part.get("call_id") or part.get("id")
    name = held.get("name")
    return {
        "id": id if isinstance(id, str) else None,
        "name": name if isinstance(name, str) else "",
        "arguments": {} if arguments in (None, "") else parsed(arguments),
    }


def _result(part: Message) -> Message:
    id = next(
        (
            part[key]
            for key in ("tool_use_id", "call_id", "tool_call_id", "id")
            if isinstance(part.get(key), str)
        ),
        None,
    )
    content = next((part[key] for key in ("response", "result", "output", "content") if key in part), None)
    return {"role": "tool", "tool_call_id": id, "text": text(content)}


def _thought(part: Message) -> str:
    content = next((part[key] for key in ("content", "thinking", "text", "summary") if part.get(key)), "")
    return text(content) if isinstance(content, list | str) else plain(content)


def _part_text(part: Json) -> str | None:
    """The text of a part that is nothing but text, else None."""
    if not isinstance(part, dict):
        return None
    kind = part.get("type", part.get("block_type"))
    if kind is not None and kind not in (*_TEXT, "summary_text"):
        return None
    for key in ("content", "text", "refusal"):
        if isinstance(part.get(key), str):
            written: str = part[key]
            return written
    return None


def _role(name: str) -> str:
    return _ROLES.get(name, name)


def _said(value: Message) -> bool:
    return isinstance(value.get("reasoning_content"), str) and bool(value["reasoning_content"])


def _dicts(value: Json) -> list[Message]:
    return [member for member in value if isinstance(member, dict)] if isinstance(value, list) else []
