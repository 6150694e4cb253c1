"""Edits of text that is no program: its blocks are dropped, swapped, repeated, and borrowed from another one.

A block is a paragraph or an item of a list, as long as a blank line or the next item: a rule of a prompt, a
section of a skill file, a demonstration.  Blind as the edits of `edits.py`; what is worth keeping is the
evaluator's to say.  A program keeps what stands outside its evolve blocks.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

from .program import Program, regions

Edit = Callable[[Program, Program | None, random.Random], Program | None]

ITEM = re.compile(r"[ \t]*(?:[-*+]|\d+[.)])[ \t]")
"""How an item of a list begins."""
_BLOCK = re.compile(r"(?:(?!\n[ \t]*\n|\n[ \t]*(?:[-*+]|\d+[.)])[ \t]).)+\n*", re.DOTALL)
"""Up to a blank line or the next item, with the blank lines that follow it."""


def blocks(text: str) -> list[str]:
    """The blocks of a text; joined they are the text.

    >>> blocks("Be kind.\\n\\n- Be short.\\n- Say when you do not know.\\n")
    ['Be kind.\\n\\n', '- Be short.\\n', '- Say when you do not know.\\n']
    """
    found = _BLOCK.findall(text)
    # A text that begins with blank lines begins before its first block.
    head = text[: len(text) - len("".join(found))]
    return [head + found[0], *found[1:]] if found else [text]


def _drawn(program: Program, rng: random.Random) -> tuple[str, int, int, list[str]] | None:
    """A text part, where its region that may change begins and ends, and the blocks in it."""
    names = [name for name in program.parts if not name.endswith(".py") and program.parts[name].strip()]
    if not names:
        return None
    name = rng.choice(names)
    start, stop = rng.choice(regions(program.parts[name]))
    return name, start, stop, blocks(program.parts[name][start:stop])


def joined(program: Program, name: str, region: tuple[int, int], kept: Sequence[str]) -> Program:
    """The program with other blocks in a region of a part, kept apart by a blank line or the mark of an item."""
    start, stop = region
    ended = []
    for place, block in enumerate(kept):
        after = kept[place + 1] if place + 1 < len(kept) else None
        apart = "" if after is None else "\n" if ITEM.match(after) else "\n\n"
        ended.append(block if block.endswith(apart) else block.rstrip("\n") + apart)
    text = program.parts[name]
    new = "".join(ended)
    if not text[start:stop].endswith("\n"):
        new = new.rstrip("\n")
    return program.with_part(name, text[:start] + new + text[stop:])


def drop(program: Program, donor: Program | None, rng: random.Random) -> Program | None:
    """Leave a block out."""
    found = _drawn(program, rng)
    if found is None or len(found[3]) < 2:
        return None
    name, start, stop, held = found
    place = rng.randrange(len(held))
    return joined(program, name, (start, stop), [*held[:place], *held[place + 1 :]])


def swap(program: Program, donor: Program | None, rng: random.Random) -> Program | None:
    """Let two blocks change places: what comes first counts more, and what comes last."""
    found = _drawn(program, rng)
    if found is None or len(found[3]) < 2:
        return None
    name, start, stop, held = found
    one, two = rng.sample(range(len(held)), 2)
    held[one], held[two] = held[two], held[one]
    return joined(program, name, (start, stop), held)


def repeat(program: Program, donor: Program | None, rng: random.Random) -> Program | None:
    """Say a block once more at the end."""
    found = _drawn(program, rng)
    if found is None:
        return None
    name, start, stop, held = found
    return joined(program, name, (start, stop), [*held, rng.choice(held)])


def borrow(program: Program, donor: Program | None, rng: random.Random) -> Program | None:
    """Take over a block that only the donor has, at the end or in the place of one."""
    found = _drawn(program, rng)
    if found is None or donor is None or found[0] not in donor.parts:
        return None
    name, start, stop, held = found
    own = {each.strip() for each in held}
    theirs = [
        block
        for begin, end in regions(donor.parts[name])
        for block in blocks(donor.parts[name][begin:end])
        if block.strip() not in own
    ]
    if not theirs:
        return None
    gift = rng.choice(theirs)
    if rng.random() < 0.3:
        held[rng.randrange(len(held))] = gift
    else:
        held.append(gift)
    return joined(program, name, (start, stop), held)


BLOCKS: dict[str, Edit] = {edit.__name__: edit for edit in (drop, swap, repeat, borrow)}
"""Name → edit."""
