"""Few-shot examples for a prompt, chosen from runs that people rated well.

A demonstration is an input with the answer that was liked, or with the correction of one that was not.  It is
shown as a block of the text, so `blocks.py` drops, swaps and borrows it as any other.  The next one is
drawn by its similarity to a row that the parent gets wrong.

Never taken: a row of the gate, one that shares a group with it or nearly repeats it (`pool_of`), and a row
that the search is scored on, for a prompt that holds the answer proves nothing there.
"""

from __future__ import annotations

import json
import math
import random
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ....record.rows import as_text, rating_of
from ....types import Json, Split, Task, digest
from ...datasets.examples import leaks
from ..editing.blocks import blocks, joined
from ..editing.program import Program, regions
from .population import Draw

Item = TypeVar("Item")

_HEAD = "Example:\n"
_WORD = re.compile(r"[^\W\d_]{2,}")
_LONGEST = 2_000
"""Characters of a demonstration; a longer run is none."""
_FAVOUR = 0.6
"""Probability with which the best fitting one is taken, then the next best, and so on."""


@dataclass(frozen=True, slots=True)
class Demonstration:
    """One rated run, as a prompt shows it."""

    id: str
    text: str
    """The block."""
    words: frozenset[str]
    """Of its input."""


def rated(rows: Iterable[Task]) -> list[Demonstration]:
    """A demonstration of every row that people liked, corrected or wrote, best rated first.

    A row whose answer a model or a docstring gave is none: nobody saw it done.
    """
    ranked: list[tuple[float, str, Demonstration]] = []
    for row in rows:
        rating, how = rating_of(row), row.meta.get("provenance", {}).get("how")
        if not row.answer_known or (rating is None and how not in ("trace", "file")):
            continue
        row_input = row.initial_state["input"]
        text = f"{_HEAD}Input: {_line(row_input)}\nAnswer: {_line(row.answer)}\n"
        if len(text) <= _LONGEST:
            demonstration = Demonstration(row.id, text, _words(row_input))
            ranked.append((-(1.0 if rating is None else rating), row.id, demonstration))
    ranked.sort(key=lambda rank: rank[:2])
    return [demonstration for *_, demonstration in ranked]


def pool_of(runs: Iterable[Task], rows: Sequence[Task]) -> list[Demonstration]:
    """Demonstrations of rated runs that touch none of the rows that anything is scored on.

    Args:
        runs: recorded ones (`learn.datasets.recorded`), as tasks.
        rows: all rows of the target as tasks, with their splits.
    """
    scored = {row.id for row in rows}
    # Rows without a group are not of one group.
    groups = {row.group for row in rows if row.split is Split.GATE} - {""}
    candidates = [run for run in runs if run.id not in scored and run.group not in groups]
    leaking = leaks([*candidates, *(row for row in rows if row.split is Split.GATE)])
    # The first of a pair is the candidate: `leaks` has the gate's side second.
    near = {pair[0] for pair in (*leaking.same, *leaking.near)}
    return rated(run for run in candidates if run.id not in near)


def set_aside(rows: Sequence[Task]) -> tuple[list[Task], list[Demonstration]]:
    """Training rows without every fifth of those that can be shown, and these as demonstrations.

    Few rows are all searched on, and none is shown: under ten that can be.
    """
    able = {demonstration.id: demonstration for demonstration in rated(rows)}
    if len(able) < 10:
        return list(rows), []
    # By a digest and not by a draw: every run sets the same rows aside.
    order = sorted(able, key=lambda id: digest(["shown", id]))
    shown = set(order[: min(24, len(able) // 5)])
    return [row for row in rows if row.id not in shown], [able[id] for id in sorted(shown)]


@dataclass(frozen=True, slots=True)
class Demonstrate:
    """The move that adds a demonstration to a text, or puts one in the place of another.

    It differs from DSPy's random search (Khattab et al. 2023) in that what is shown is drawn for a row that
    fails, as KATE (Liu et al. 2021) does per question, and from KATE in that the examples stay in the prompt.
    """

    pool: Sequence[Demonstration]
    rows: Mapping[str, Task]
    """Those that the search is scored on, by the name of their instance."""
    parts: Collection[str] = ()
    """Texts that may hold demonstrations; all of a program if empty."""
    most: int = 6
    """Demonstrations in one text."""

    @property
    def identity(self) -> Json:
        """All that decides its proposals."""
        return ["demonstrate", [shown.id for shown in self.pool], sorted(self.parts), self.most]

    def __call__(self, draw: Draw, rng: random.Random) -> Program | None:
        """A child with another demonstration; None if there is none to show."""
        program = draw.parent.program
        name = a_text(program, self.parts, rng)
        if name is None:
            return None
        text = program.parts[name]
        region = rng.choice(regions(text))
        held = blocks(text[region.start : region.stop])
        shown = [index for index, block in enumerate(held) if block.startswith(_HEAD)]
        texts = {held[index].strip() for index in shown}
        free = [demonstration for demonstration in self.pool if demonstration.text.strip() not in texts]
        chosen = self._fitting(free, draw, rng)
        if chosen is None:
            return None
        if shown and (len(shown) >= self.most or rng.random() < 0.25):
            held[rng.choice(shown)] = chosen.text
        else:
            held.append(chosen.text)
        return joined(program, name, region, held)

    def _fitting(self, free: Sequence[Demonstration], draw: Draw, rng: random.Random) -> Demonstration | None:
        """One whose input is like that of a row that went wrong; any of the better rated where none did."""
        if not free:
            return None
        wrong = [self.rows[id] for id in failing(draw.parent.instances) if id in self.rows]
        ranked = list(free)
        if wrong:
            words = _words(rng.choice(wrong).initial_state["input"])
            counts = Counter(word for demonstration in self.pool for word in demonstration.words)
            ranked.sort(key=lambda demonstration: -_alike(words, demonstration.words, counts, len(self.pool)))
        else:
            rng.shuffle(ranked)
        return favoured(ranked, _FAVOUR, rng)


def failing(instances: Mapping[str, float]) -> list[str]:
    """The instances on the lower half of what was scored; all of them where all scored alike and below 1.

    >>> failing({"a": 1.0, "b": 0.0, "c": 0.2})
    ['b', 'c']
    """
    if not instances:
        return []
    low, high = min(instances.values()), max(instances.values())
    if high - low < 1e-9:
        return [] if high >= 1.0 else list(instances)
    return [name for name, value in instances.items() if value < (low + high) / 2]


def a_text(program: Program, among: Collection[str], rng: random.Random) -> str | None:
    """A part that is not Python, drawn from `among` (from all if empty); None if there is none."""
    names = [name for name in program.parts if not name.endswith(".py") and (not among or name in among)]
    return rng.choice(names) if names else None


def favoured(ranked: Sequence[Item], favour: float, rng: random.Random) -> Item:
    """The first with the probability `favour`, else the next with the same one, and so on."""
    rank = 0
    while rank + 1 < len(ranked) and rng.random() > favour:
        rank += 1
    return ranked[rank]


def is_demonstration(block: str) -> bool:
    """True if a block of a text is a demonstration."""
    return block.startswith(_HEAD)


def _words(row_input: Json) -> frozenset[str]:
    return frozenset(word.lower() for word in _WORD.findall(as_text(row_input)))


def _alike(words: Collection[str], shown: Collection[str], counts: Mapping[str, int], of: int) -> float:
    """Shared words, each by how rare it is among the demonstrations, for the length of the other."""
    shared = sum(math.log((1 + of) / (1 + counts.get(word, 0))) for word in shown if word in words)
    return shared / math.sqrt(1 + len(shown))


def _line(value: Json) -> str:
    """A value in one line, a plain text as it is."""
    if isinstance(value, str) and "\n" not in value:
        return value
    return json.dumps(value, ensure_ascii=False)
