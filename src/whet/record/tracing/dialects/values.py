"""What an attribute may hold: a value, or a text that is one as JSON or as a Python literal."""

from __future__ import annotations

import ast
import contextlib

import msgspec

from ....python_text import expression_of
from ....types import Json


def parsed(value: Json) -> Json:
    """A text that is JSON as its value; any other value as it is."""
    # Looked at first: most texts are prose, and an exception costs far more than a look at one letter.
    if not isinstance(value, str) or not value[:1] or value[0] not in '{["-0123456789tfn \n\t\r':
        return value
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return value


def literal(text: str) -> Json:
    """The Python literal that a text is, as some instrumentors write `str(arguments)`; None if it is none."""
    # The length is bounded because CPython's parser may run out of C stack on deep nesting, and crash.
    if len(text) > 10_000:
        return None
    with contextlib.suppress(SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        value = ast.literal_eval(expression_of(text.lstrip(" \t")))
        msgspec.json.encode(value)
        return value
    return None


def arguments_of(value: Json) -> Json:
    """The arguments of a tool: parsed where they are JSON, or the repr of a dictionary."""
    value = parsed(value)
    if isinstance(value, str) and value[:2] in ("{'", "{}"):
        told = literal(value)
        value = told if isinstance(told, dict) else value
    return called_with(value)


def called_with(value: Json) -> Json:
    """The arguments of a function that was recorded as `args` and `kwargs`: by name as far as they were."""
    # smolagents adds a setting of its own to the two.
    if isinstance(value, dict) and "kwargs" in value and ("args" in value or len(value) == 1):
        positional, keywords = value.get("args"), value["kwargs"]
        if isinstance(keywords, dict):
            return {**({"args": positional} if positional else {}), **keywords}
    return value


def structure(value: Json) -> Json:
    """A text that holds a JSON object or array as that, and None for a text that does not."""
    if isinstance(value, str):
        value = parsed(value) if value[:1] in ("{", "[") else None
    return value if isinstance(value, dict | list) else None


def plain(value: Json) -> str:
    """A value as text: itself if it is text, else JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else msgspec.json.encode(value).decode()
