"""A tool's name, and its effect on the world."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, cast

from ..errors import InputError

Effect: TypeAlias = Literal["read", "idempotent", "write"]
EFFECTS: tuple[Effect, ...] = ("read", "idempotent", "write")
"""Effects of a tool on the world: none; the same however often; a new one each time.
A tool that declares none counts as `write`."""


def effect_of(value: Any) -> Effect | None:
    """An effect class as given to `@step`.

    Raises:
        InputError: it is none.
    """
    if value is not None and value not in EFFECTS:
        raise InputError(f"effect={value!r}: it must be one of {', '.join(EFFECTS)}")
    return cast("Effect | None", value)


def bare(tool: str) -> str:
    """The tool's own name: `Agent.run.<locals>.search` and `search` are one tool."""
    return tool.rsplit(".", 1)[-1]
