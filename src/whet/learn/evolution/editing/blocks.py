"""Edits of prose: its blocks are dropped, swapped, repeated, and borrowed from another text.

A block is a paragraph or an item of a list, as long as a blank line or the next item: a rule of a prompt, a
section of a skill file, a demonstration.  The edits are as blind as those of `edits.py`; the evaluator decides
which are worth keeping.  Text outside the evolve blocks of a program stays as it is.
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
    pieces = _BLOCK.findall(text)
    # A text that begins with blank lines begins before its first block.
    head = text[: len(text) - len("".join(pieces))]
    return [head + pieces[0], *pieces[1:]] if pieces else [text]


def _drawn(program: Program, rng: random.Random) -> tuple[str, int, int, list[str]] | None:
    """A text part, where its region that may change begins and ends, and the blocks in it."""
    names = [name for name in program.parts if not name.endswith(".py") and program.parts[name].strip()]
    if not names:
        return None
    name = rng.choice(names)
    start, stop = rng.choice(regions(program.parts[name]))
    return name, start, stop, blocks(program.parts[name][start:stop])


def joined(program: Program, name: str, region: tuple[int, int], new_blocks: Sequence[str]) -> Program:
    """The program with other blocks in a region of a part, kept apart by a blank line or the mark of an item."""
    start, stop = region
    ended = []
    for index, block in enumerate(new_blocks):
        after = new_blocks[index + 1] if index + 1 < len(new_blocks) else None
        apart = "" if after is None else "\n" if ITEM.match(after) else "\n\n"
        ended.append(block if block.endswith(apart) else block.rstrip("\n") + apart)
    text = program.parts[name]
    new = "".join(ended)
    if not text[start:stop].endswith("\n"):
        new = new.rstrip("\n")
    return program.with_part(name, text[:start] + new + text[stop:])


def drop(program: Program, donor: Program | None, rng: random.Random) -> Program | None:
    """Leave a block out."""
    drawn = _drawn(program, rng)
    if drawn is None or len(drawn[3]) < 2:
        return None
    name, start, stop, region_blocks = drawn
    index = rng.randrange(len(region_blocks))
    return joined(program, name, (start, stop), [*region_blocks[:index], *region_blocks[index + 1 :]])


def swap(program: Program, donor: Program | None, rng: random.Random) -> Program | None:
    """Let two blocks change places: the first and the last count more than those between."""
    drawn = _drawn(program, rng)
    if drawn is None or len(drawn[3]) < 2:
        return None
    name, start, stop, region_blocks = drawn
    first, second = rng.sample(range(len(region_blocks)), 2)
    region_blocks[first], region_blocks[second] = region_blocks[second], region_blocks[first]
    return joined(program, name, (start, stop), region_blocks)


def repeat(program: Program, donor: Program | None, rng: random.Random) -> Program | None:
    """Say a block once more at the end."""
    drawn = _drawn(program, rng)
    if drawn is None:
        return None
    name, start, stop, region_blocks = drawn
    return joined(program, name, (start, stop), [*region_blocks, rng.choice(region_blocks)])


def borrow(program: Program, donor: Program | None, rng: random.Random) -> Program | None:
    """Take over a block that only the donor has, at the end or in the place of one."""
    drawn = _drawn(program, rng)
    if drawn is None or donor is None or drawn[0] not in donor.parts:
        return None
    name, start, stop, region_blocks = drawn
    own = {own_block.strip() for own_block in region_blocks}
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
        region_blocks[rng.randrange(len(region_blocks))] = gift
    else:
        region_blocks.append(gift)
    return joined(program, name, (start, stop), region_blocks)


BLOCKS: dict[str, Edit] = {edit.__name__: edit for edit in (drop, swap, repeat, borrow)}
"""Name → edit."""
