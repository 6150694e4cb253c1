"""Splits by the hash of a group key, and what leaks between two sets of tasks.

A group (mailbox, database, session, repository) lands in one split as a whole:
rows of one group share what a learner could remember, so splitting by row would
let it pass the gate by memory.  The hash makes it stable: a task added later
never moves another one.  Nothing here looks at results.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

from ..errors import GateError, InputError
from ..types import Split, Task, digest

FRACTIONS: Mapping[Split, float] = MappingProxyType(
    {Split.TRAIN: 0.6, Split.VALIDATION: 0.2, Split.GATE: 0.2}
)


def split(
    tasks: Iterable[Task],
    *,
    seed: int = 0,
    fractions: Mapping[Split, float] = FRACTIONS,
    by: Literal["group", "id"] = "group",
    balanced: bool = False,
) -> list[Task]:
    """The tasks in the order given, each with its split.

    A task that already has a split keeps it, and takes its whole group with it.

    Args:
        seed: another seed is another division.
        fractions: share of each split; a split left out, or 0, gets nothing.
        by: `id` splits row by row, for tasks that truly share nothing.
        balanced: for few groups: they are filled up to the shares by size, every split gets at least
            one, and a group added later may move others. Otherwise the hash alone decides, and few
            groups may leave a split empty.

    Raises:
        InputError: tasks without a group (and `by` is "group"); shares that do not sum to 1; fewer
            groups than splits (`balanced`).
        GateError: one group was given two splits.
    """
    listed = list(tasks)
    shares = {part: share for part, share in fractions.items() if share > 0}
    if min(fractions.values(), default=0) < 0 or abs(sum(shares.values()) - 1) > 1e-6:
        raise InputError(f"fractions {dict(fractions)} must be at least 0 and sum to 1")
    if by == "group" and (alone := [task.id for task in listed if not task.group]):
        raise InputError(
            f"{len(alone)} of {len(listed)} tasks have no group, first {alone[0]!r}: give each the group "
            "that it shares with others (mailbox, session, repository), or say "
            'split(..., by="id") to split row by row'
        )
    keys = [task.group if by == "group" else task.id for task in listed]
    given = _given(listed, keys)
    sizes = Counter(keys)
    if balanced:
        chosen = _filled(sizes, given, shares, seed)
    else:
        chosen = {key: given[key] if key in given else _hashed(key, shares, seed) for key in sizes}
    return [replace(task, split=chosen[key]) for task, key in zip(listed, keys, strict=True)]


def _position(key: str, seed: int) -> float:
    return int(digest(("split", seed, key), 13), 16) / 16**13


def _given(tasks: Sequence[Task], keys: Sequence[str]) -> dict[str, Split]:
    given: dict[str, Split] = {}
    for task, key in zip(tasks, keys, strict=True):
        if task.split is not None and given.setdefault(key, task.split) is not task.split:
            raise GateError(
                f"group {key!r} is in {given[key].value} and in {task.split.value}: a group has one split"
            )
    return given


def _hashed(key: str, shares: Mapping[Split, float], seed: int) -> Split:
    position, upto = _position(key, seed), 0.0
    for part, share in shares.items():
        upto += share
        if position < upto:
            return part
    return part


def _filled(
    sizes: Mapping[str, int], given: Mapping[str, Split], shares: Mapping[Split, float], seed: int
) -> dict[str, Split]:
    """Groups in the order of their hash, each to the split that lacks most of its share of tasks."""
    chosen = dict(given)
    filled = Counter(dict.fromkeys(shares, 0))
    for key, part in given.items():
        filled[part] += sizes[key]
    free = sorted((key for key in sizes if key not in given), key=lambda key: (_position(key, seed), key))
    empty = [part for part in shares if not filled[part]]
    if len(free) < len(empty):
        raise InputError(
            f"{len(sizes)} groups cannot fill {len(shares)} splits: give more groups or fewer splits"
        )
    total = sum(sizes.values())
    for index, key in enumerate(free):
        empty = [part for part in shares if not filled[part]]
        # The last groups are kept for splits that would otherwise get none.
        open_to = empty if len(free) - index <= len(empty) else list(shares)
        part = max(open_to, key=lambda part: shares[part] * total - filled[part])
        chosen[key] = part
        filled[part] += sizes[key]
    return chosen


@dataclass(frozen=True, slots=True)
class Leakage:
    """What two sets of tasks share."""

    ids: tuple[str, ...]
    """Task ids on both sides."""
    groups: tuple[str, ...]
    """Groups on both sides."""
    same: tuple[tuple[str, str], ...]
    """(train id, gate id) with the same instruction but for case, accents, spaces and punctuation."""
    near: tuple[tuple[str, str, float], ...]
    """(train id, gate id, similarity) of near duplicates, most similar first."""

    @property
    def clean(self) -> bool:
        """Nothing is shared."""
        return not (self.ids or self.groups or self.same or self.near)

    def __str__(self) -> str:
        return (
            f"{len(self.ids)} shared ids, {len(self.groups)} shared groups, "
            f"{len(self.same)} same and {len(self.near)} near-duplicate instructions"
        )


def leakage(train: Iterable[Task], gate: Iterable[Task], *, similarity: float = 0.7) -> Leakage:
    """What the gate's tasks share with those trained on.

    Near duplicates are pairs whose sets of character 5-grams have a Jaccard similarity of at least
    `similarity`: exact, found through an inverted index with prefix filtering (Bayardo et al. 2007,
    "Scaling up all pairs similarity search"). One word changed in a sentence of a dozen gives about 0.75.
    Only instructions are compared; a question asked of two mailboxes shows as `same` and may be meant.

    Raises:
        InputError: similarity outside (0, 1].
    """
    if not 0 < similarity <= 1:
        raise InputError(f"similarity {similarity} must lie in (0, 1]")
    old, new = list(train), list(gate)
    by_text: dict[str, list[Task]] = {}
    for task in old:
        by_text.setdefault(normalised(task.instruction), []).append(task)
    same = [
        (other.id, task.id)
        for task in new
        if (text := normalised(task.instruction))
        for other in by_text.get(text, ())
    ]
    near = sorted(_near(by_text, new, similarity), key=lambda found: (-found[2], found))
    return Leakage(
        ids=tuple(sorted({task.id for task in old} & {task.id for task in new})),
        groups=tuple(sorted(({task.group for task in old} & {task.group for task in new}) - {""})),
        same=tuple(same),
        near=tuple(near),
    )


def normalised(text: str) -> str:
    """Lower case, no accents, words separated by one space, no punctuation."""
    plain = "".join(
        one for one in unicodedata.normalize("NFKD", text.casefold()) if not unicodedata.combining(one)
    )
    return " ".join(re.findall(r"\w+", plain))


def _shingles(text: str, width: int = 5) -> frozenset[str]:
    padded = f" {text} "
    return frozenset(padded[start : start + width] for start in range(max(1, len(padded) - width + 1)))


def _near(
    train: Mapping[str, Sequence[Task]], gate: Sequence[Task], similarity: float
) -> Iterable[tuple[str, str, float]]:
    sets = {text: _shingles(text) for text in train if text}
    wanted = [(task, text, _shingles(text)) for task in gate if (text := normalised(task.instruction))]
    frequency = Counter(
        one for group in (sets.values(), (made for _, _, made in wanted)) for s in group for one in s
    )

    def prefix(shingles: frozenset[str]) -> list[str]:
        # Two sets this similar must share one of their rarest few: the index holds only those.
        ordered = sorted(shingles, key=lambda one: (frequency[one], one))
        return ordered[: len(ordered) - int(similarity * len(ordered) - 1e-9)]

    index: dict[str, list[str]] = {}
    for text, shingles in sets.items():
        for one in prefix(shingles):
            index.setdefault(one, []).append(text)
    for task, text, shingles in wanted:
        for other in {found for one in prefix(shingles) for found in index.get(one, ())} - {text}:
            common = len(shingles & sets[other])
            value = common / (len(shingles) + len(sets[other]) - common)
            if value >= similarity:
                yield from ((known.id, task.id, value) for known in train[other])
