"""The places of a prompt that are filled in when it is used: `{name}`, and `{{ name }}` as Jinja writes it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ....record.rows import as_text
from ....types import Json

INPUT = "input"
"""Slot of the whole input, whatever its column is called."""
_SLOT = re.compile(r"\{\{\s*(\w+)\s*\}\}|\{(\w+)\}")
_HOLE = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}|\$?\{\w[^{}\n]*\}|\$[a-zA-Z_]\w*", re.DOTALL)
"""A place of a template, in whichever language it is written, at which something else may stand when it is sent."""
_OPENS, _CLOSES = re.compile(r"\{%-?\s*(?:if|for|macro|filter|block)\b"), re.compile(r"\{%-?\s*end")
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


def statics(template: str) -> list[str]:
    """What stands between the places of a template, in their order: one more than there are places."""
    return _HOLE.split(template)


def places(template: str) -> list[str]:
    """The places of a template as they stand, in their order."""
    return _HOLE.findall(template)


def rendered_in(sent: str, template: str, *, least: int) -> bool:
    """A template with something in its places stands in what was sent, but for white space.

    Args:
        least: letters that it must have in common with that, or it may be chance.
    """
    sent, begin, depth, letters = "".join(sent.split()), 0, 0, 0
    for static, place in zip(statics(template), [*places(template), ""], strict=True):
        # What a condition or a loop has within it may be sent, or not, or often.
        bare = "" if depth else "".join(static.split())
        begin = sent.find(bare, begin)
        if begin < 0:
            return False
        begin, letters = begin + len(bare), letters + len(bare)
        depth += bool(_OPENS.match(place)) - bool(_CLOSES.match(place))
    return letters >= least


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
