"""The places of a prompt that are filled in with a row's input: `{name}`, and `{{ name }}` as Jinja writes it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ...record.rows import as_text
from ...types import Json

INPUT = "input"
"""Slot of the whole input, whatever its column is called."""
_SLOT = re.compile(r"\{\{\s*(\w+)\s*\}\}|\{(\w+)\}")
_STATEMENT = re.compile(r"\{%.+?%\}", re.DOTALL)


def slots(prompt: str) -> dict[str, str]:
    """Name → the slot as it stands; one that stands there twice has its first form."""
    named: dict[str, str] = {}
    for slot in _SLOT.finditer(prompt):
        named.setdefault(slot[1] or slot[2], slot[0])
    return named


def filled(prompt: str, values: Mapping[str, Json]) -> str | None:
    """The prompt with values in those of its slots that have one; None where none has."""
    if not values.keys() & slots(prompt).keys():
        return None

    def value(slot: re.Match[str]) -> str:
        name = slot[1] or slot[2]
        return as_text(values[name]) if name in values else slot[0]

    # Not str.format: a prompt may hold other braces, of JSON for instance.
    return _SLOT.sub(value, prompt)


def slot_sentences(prompt: str, columns: tuple[str, ...]) -> list[str]:
    """How the input reaches the model, where the prompt has slots or statements of a template.

    Args:
        columns: of the input.
    """
    known = {INPUT, *columns} if len(columns) == 1 else set(columns)
    named = slots(prompt)
    taken, others = (
        [form for name, form in named.items() if (name in known) is own] for own in (True, False)
    )
    sentences = []
    if taken:
        sentences.append(
            f"{', '.join(taken)} in it is filled in with the row's input, and every proposal keeps it"
        )
    if others:
        rest = "" if taken else f", with the input as a message below; {{{columns[0]}}} would be filled in"
        sentences.append(f"{', '.join(others)} names no column of the input, and is sent as it stands{rest}")
    if _STATEMENT.search(prompt):
        sentences.append("its statements ({% … %}) are sent as they stand: nothing here renders a template")
    return sentences
