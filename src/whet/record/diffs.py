"""What differs between two Bundles, readable."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

import msgspec

from ..types import Bundle, Json, Version, digest
from .store.releases import declared

LONGEST_TEXT = 4_000
"""Characters of a text inside a value that a diff shows."""


def changed(before: Bundle, after: Bundle) -> dict[str, tuple[str | None, str | None]]:
    """Resource name → the ids of its Versions on both sides, of those that differ; None where a side has none."""
    pairs = {name: (before.ids.get(name), after.ids.get(name)) for name in sorted({*before, *after})}
    return {name: ids for name, ids in pairs.items() if ids[0] != ids[1]}


def diff(before: Bundle, after: Bundle) -> str:
    """Every resource that differs as a unified diff of its readable content.

    If a side does not name a resource, its default stands there, if a program of this process has declared it.
    """
    parts: list[str] = []
    for name in sorted({*before, *after}):
        old, new = before.get(name) or _default(name), after.get(name) or _default(name)
        if old is None or new is None or old.id != new.id:
            parts += difflib.unified_diff(
                _readable(old.content) if old else [],
                _readable(new.content) if new else [],
                f"a/{name}",
                f"b/{name}",
                lineterm="",
            )
    return "\n".join(parts)


def _default(name: str) -> Version | None:
    handle = declared.get(name)
    version = handle.default_version if handle is not None else None
    return version if version is not None and version.content is not None else None


def _readable(content: Json) -> list[str]:
    if isinstance(content, str):
        return content.splitlines()
    return msgspec.json.format(msgspec.json.encode(_shortened(content)), indent=2).decode().splitlines()


def _shortened(content: Json) -> Json:
    """A value whose very long texts, the trees of a fitted model for instance, stand as their length and hash."""
    if isinstance(content, Mapping):
        return {name: _shortened(value) for name, value in content.items()}
    if isinstance(content, list | tuple):
        return [_shortened(value) for value in content]
    if isinstance(content, str) and len(content) > LONGEST_TEXT:
        return f"({len(content):,} characters, {digest(content)})"
    return content
