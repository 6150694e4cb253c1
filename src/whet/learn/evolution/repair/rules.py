"""What a variant of a prompt adds to it, rule by rule, so that each can be left out.

A model that proposes says more than is needed: of three rules one mends, and the others are small talk.  What nothing
is lost without is struck out before anybody is served it (`Repair.needed`).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection
from dataclasses import dataclass

from ..editing.blocks import ITEM

_ENDED = re.compile(r"[.!?:;]['”\")\]]*\s*$")
"""How a line ends that is not gone on with on the next one."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Lines of a text: as they stood, or rules that were added there."""

    lines: tuple[str, ...]
    """That stay; blank ones before the rules."""
    rules: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class AddedRules:
    """A text, in places."""

    places: tuple[_Place, ...]
    end: str
    """Of the text: a line break, or none."""

    @classmethod
    def of(cls, before: str, after: str) -> AddedRules:
        """The rules that `after` has beside `before`; a line that was rewritten is none."""
        old, new = before.splitlines(), after.splitlines()
        places = []
        for tag, _, _, first, last in difflib.SequenceMatcher(a=old, b=new, autojunk=False).get_opcodes():
            lines = new[first:last]
            places.append(_added(lines) if tag == "insert" else _Place(tuple(lines)))
        return cls(tuple(places), "\n" if after.endswith("\n") else "")

    @property
    def rules(self) -> list[str]:
        """Each as it reads."""
        return [" ".join(filter(None, map(str.strip, rule))) for place in self.places for rule in place.rules]

    def text(self, kept: Collection[int]) -> str:
        """The text with these of its rules, by their number."""
        number, lines = 0, list[str]()
        for place in self.places:
            rules = dict(enumerate(place.rules, number))
            number += len(rules)
            left = [rule for each, rule in rules.items() if each in kept]
            if left or not rules:
                lines += place.lines
            lines += [line for rule in left for line in rule]
        return "\n".join(lines) + self.end


def _added(lines: list[str]) -> _Place:
    """Lines that were added, as rules: an item of a list each, or what ends with its line."""
    rules = list[list[str]]()
    begun = False
    blank = list[str]()
    head = list[str]()
    for line in lines:
        if not line.strip():
            blank.append(line)
            begun = False
            continue
        if not rules:
            head = blank
        if begun and not ITEM.match(line):
            rules[-1].append(line)
        else:
            rules.append([*(blank if rules else ()), line])
        blank = []
        begun = not _ENDED.search(line)
    if not rules:
        return _Place(tuple(lines))
    rules[-1] += blank
    return _Place(tuple(head), tuple(map(tuple, rules)))
