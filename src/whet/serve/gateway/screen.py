"""Permissions at the gateway: tool calls in a model's answer that the rules deny never reach the agent.

An answer is looked at when it is whole.  A denied call is taken out of it and a sentence takes its place, so that the
agent, in any language, goes on as if the model had said so; where the rules end a run, all calls of the answer are
taken out.  Tools that the model's provider runs itself have run by then, and are not looked at.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from ...escapes import read_json
from ...models.wire import chat, messages
from ...models.wire.neutral import MISSHAPEN, AnswerPart, CallPiece, arguments_text
from ...record.permissions.enforcement import Enforcement
from ...record.permissions.rules import PermissionDecision
from ...types import Json

_PROVIDERS = frozenset(
    {"web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "mcp_call"}
)
"""Items of the Responses API that the provider has carried out already."""


# Of its own: a call may wait minutes for a person, and the server's other work must find threads meanwhile.
_threads = ThreadPoolExecutor(64, thread_name_prefix="whet-permissions")


@dataclass(frozen=True, slots=True)
class AnsweredCall:
    """One tool call in a model's answer."""

    place: tuple[int, int]
    """Choice and call in it, or 0 and item, from 0."""
    name: str
    arguments: Json
    readable: bool = True


@dataclass(frozen=True, slots=True)
class RefusedCall:
    """A call that the agent was not given."""

    call: AnsweredCall
    decision: PermissionDecision

    @property
    def note(self) -> dict[str, Json]:
        """As the record keeps it."""
        decision = self.decision
        return {
            "name": self.call.name,
            "arguments": self.call.arguments,
            "decision": decision.decision,
            "rule": decision.rule,
            "reason": decision.reason,
        }


def has_tools(request: Mapping[str, Any]) -> bool:
    """True if the model may call tools in its answer; those of a stored prompt are not in the request."""
    stored = isinstance(request.get("prompt"), Mapping) or request.get("previous_response_id")
    return bool(request.get("tools") or request.get("functions") or stored)


async def refused_calls(answer: Mapping[str, Any], api: str, enforcement: Enforcement) -> list[RefusedCall]:
    """The calls of an answer that are denied; a person is asked where the rules say so."""
    refused = []
    for call in answered_calls(answer, api):
        if not call.readable:
            decision = PermissionDecision(
                decision="deny", reason="its arguments cannot be read for certain", tool=call.name
            )
        else:
            loop = asyncio.get_running_loop()
            decision = await loop.run_in_executor(_threads, enforcement.decided, call.name, call.arguments)
        if decision.decision == "deny":
            refused.append(RefusedCall(call, decision))
    return refused


def answered_calls(answer: Mapping[str, Any], api: str) -> Iterator[AnsweredCall]:
    """The tool calls in an answer of one of the three APIs."""
    if api == "chat":
        for number, choice in enumerate(answer.get("choices") or ()):
            message = choice.get("message") or {}
            for place, call in enumerate(message.get("tool_calls") or ()):
                function = call.get("function") or call.get("custom") or {}
                yield _call(
                    (number, place), function.get("name"), function.get("arguments", function.get("input"))
                )
            if message.get("function_call"):
                legacy = message["function_call"]
                yield _call((number, -1), legacy.get("name"), legacy.get("arguments"))
    elif api == "messages":
        for place, block in enumerate(answer.get("content") or ()):
            if block.get("type") == "tool_use":
                yield _call((0, place), block.get("name"), block.get("input"))
    else:
        for place, item in enumerate(answer.get("output") or ()):
            kind = str(item.get("type"))
            if kind.endswith("_call") and kind not in _PROVIDERS:
                given = next(
                    (item[key] for key in ("arguments", "input", "action", "operation") if key in item), None
                )
                yield _call((0, place), item.get("name") or kind.removesuffix("_call"), given)


def _call(place: tuple[int, int], name: Json, arguments: Json) -> AnsweredCall:
    readable = isinstance(name, str) and bool(name)
    if isinstance(arguments, str):
        try:
            arguments = read_json(_unambiguous, arguments or "{}")
        except (ValueError, RecursionError):
            readable = False
    elif isinstance(arguments, Mapping):
        arguments = dict(arguments)
    return AnsweredCall(place, str(name or ""), arguments if arguments is not None else {}, readable)


def _unambiguous(text: str | bytes) -> Json:
    """JSON in which no name stands twice: of two values, one program takes the first and another the last."""

    def pairs(entries: list[tuple[str, Json]]) -> dict[str, Json]:
        if len(dict(entries)) != len(entries):
            raise ValueError("a name stands twice")
        return dict(entries)

    return json.loads(text, object_pairs_hook=pairs)


def screened(
    answer: Mapping[str, Any], api: str, refused: list[RefusedCall], *, ends: bool
) -> dict[str, Any]:
    """The answer without refused calls, with a sentence in their place.

    Args:
        ends: no call of the answer is left.
    """
    gone = {call.call.place for call in refused}
    if ends:
        gone = {call.place for call in answered_calls(answer, api)}
    note = "\n".join(f"[whet: this call was not made. {call.decision.sentence}]" for call in refused)
    copied = dict(answer)
    if api == "chat":
        copied["choices"] = [
            _choice(choice, number, gone, note) for number, choice in enumerate(answer.get("choices") or ())
        ]
    elif api == "messages":
        blocks = [block for place, block in enumerate(answer["content"]) if (0, place) not in gone]
        copied["content"] = [*blocks, {"type": "text", "text": note}]
        if not any(block.get("type") == "tool_use" for block in blocks):
            copied["stop_reason"] = "end_turn"
    else:
        items = [item for place, item in enumerate(answer["output"]) if (0, place) not in gone]
        content = [{"type": "output_text", "text": note, "annotations": []}]
        message = {
            "type": "message",
            "id": f"msg_{answer.get('id')}",
            "role": "assistant",
            "status": "completed",
        }
        copied["output"] = [*items, {**message, "content": content}]
    return copied


def _choice(choice: Mapping[str, Any], number: int, gone: set[tuple[int, int]], note: str) -> dict[str, Any]:
    if not any(place[0] == number for place in gone):
        return dict(choice)
    message = dict(choice["message"])
    calls = [
        call for place, call in enumerate(message.get("tool_calls") or ()) if (number, place) not in gone
    ]
    if (number, -1) in gone:
        message.pop("function_call", None)
    message.pop("tool_calls", None)
    if calls:
        message["tool_calls"] = calls
    text = message.get("content")
    message["content"] = f"{text}\n{note}" if isinstance(text, str) and text else note
    finish = choice.get("finish_reason")
    ended = "stop" if not calls and finish in ("tool_calls", "function_call") else finish
    return {**choice, "message": message, "finish_reason": ended}


def part_of(answer: Mapping[str, Any], api: str, *, sent: str = "") -> AnswerPart:
    """A whole answer as one part, to be written as a stream.

    Args:
        sent: the text of it that the agent has already.
    """
    if api == "chat":
        part = chat.read_answer(answer)
        part.id = (part.id or "").removeprefix("chatcmpl-")
        part.text = part.text.removeprefix(sent)
        return part
    if api == "messages":
        return messages.read_answer(answer)
    part = AnswerPart(id=answer.get("id"), model=answer.get("model"), finish="stop")
    calls: list[CallPiece] = []
    for item in answer.get("output") or ():
        if item.get("type") == "message":
            part.text += "".join(piece.get("text") or "" for piece in item.get("content") or ())
        elif item.get("type") == "function_call":
            calls.append(
                CallPiece(
                    len(calls),
                    item.get("call_id") or "",
                    item.get("name") or "",
                    arguments_text(item.get("arguments")),
                )
            )
    part.calls = calls
    return part


def answer_text(answer: Mapping[str, Any] | None) -> str:
    """The text of a chat completion so far."""
    choice = chat.first_choice(answer or {})
    return str((choice.get("message") or {}).get("content") or "")


def calls_tools(event: Mapping[str, Any]) -> bool:
    """True for an event of a stream, in whichever API, with a piece of a tool call."""
    try:
        deltas = [choice.get("delta") or {} for choice in event.get("choices") or ()]
        block = event.get("content_block") or event.get("item") or {}
        kind = str(block.get("type"))
        own = kind == "tool_use" or (kind.endswith("_call") and kind not in _PROVIDERS)
        return own or any(delta.get("tool_calls") or delta.get("function_call") for delta in deltas)
    except MISSHAPEN:
        return True


def calls_as_before(event: Mapping[str, Any]) -> bool:
    """True for a chunk that calls a function in the way before tools, which no reader puts together."""
    return any((choice.get("delta") or {}).get("function_call") for choice in event.get("choices") or ())
