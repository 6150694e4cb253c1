"""Tool calls in what a policy wrote, in the three forms that open models are trained on.

Hermes and Qwen write `<tool_call>{...}</tool_call>`, Mistral `[TOOL_CALLS][...]`, Llama 3 and most
others one bare JSON object.  What is no whole call stays content: a malformed call is the policy's
mistake, for the agent to see and for training to punish.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

import msgspec

from ....errors import InputError
from ....types import Json


class ToolForm(Enum):
    """A family's way of writing a call: the markers that it begins and ends with."""

    HERMES = ("<tool_call>", "</tool_call>")
    MISTRAL = ("[TOOL_CALLS]", "")
    JSON = ("", "")

    @property
    def marks(self) -> tuple[str, ...]:
        """The markers that are words of their own."""
        return tuple(mark for mark in self.value if mark)

    @property
    def begins(self) -> str:
        """The beginning of a call: its marker, or a brace."""
        return self.value[0] or "{"


_BLOCK = re.compile(r"<tool_call>\s*(.*?)\s*(?:</tool_call>|\Z)", re.DOTALL)


def form_of(template: str) -> ToolForm:
    """The form that a chat template asks for."""
    if "<tool_call>" in template:
        return ToolForm.HERMES
    return ToolForm.MISTRAL if "[TOOL_CALLS]" in template else ToolForm.JSON


def called(text: str, form: ToolForm) -> tuple[str, list[dict[str, str]]]:
    """Content and calls of an answer."""
    if form is ToolForm.HERMES:
        calls: list[dict[str, str]] = []
        for block in _BLOCK.finditer(text):
            calls_read = _calls(block.group(1))
            # One block that is none makes the whole answer content: half of its calls would mislead.
            if not calls_read:
                return text, []
            calls += calls_read
        return (_BLOCK.sub("", text).strip(), calls) if calls else (text, [])
    before, mark, after = ("", "", text) if form is ToolForm.JSON else text.partition("[TOOL_CALLS]")
    calls_read = _calls(after.strip()) if form is ToolForm.JSON or mark else []
    return (before.strip(), calls_read) if calls_read else (text, [])


def _calls(written: str) -> list[dict[str, str]]:
    """The calls that a JSON object or list of them stands for; [] if it is none."""
    if written[:1] not in ("{", "["):
        return []
    try:
        value = msgspec.json.decode(written)
    # A policy may write brackets as deep as it likes.
    except (msgspec.DecodeError, RecursionError):
        return []
    objects = value if isinstance(value, list) else [value]
    calls = []
    for call in objects:
        if not isinstance(call, Mapping) or not isinstance(call.get("name"), str):
            return []
        arguments = call.get("arguments", call.get("parameters"))
        if arguments is None:
            arguments = {}
        text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
        calls.append({"name": call["name"], "arguments": text})
    return calls


def functions(tools: Sequence[Json], choice: Json) -> list[dict[str, Any]]:
    """The functions that must be called, [] where the policy may do as it likes.

    Raises:
        InputError: a tool is no function with a name, or the choice names none that was given.
    """
    offered = [_function(tool) for tool in tools]
    if choice in (None, "auto", "none"):
        return []
    if choice != "required":
        name = choice.get("function", {}).get("name") if isinstance(choice, Mapping) else choice
        offered = [function for function in offered if function["name"] == name]
    if not offered:
        raise InputError(f"tool_choice is {choice!r}, and no such function is among the tools")
    return offered


def _function(tool: Json) -> dict[str, Any]:
    function = tool.get("function") if isinstance(tool, Mapping) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise InputError(f'a tool is {{"type": "function", "function": {{"name": ...}}}}; got {tool!r:.200}')
    return function
