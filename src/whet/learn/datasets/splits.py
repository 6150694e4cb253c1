"""Splits by the hash of a group key, and what leaks between two sets of tasks.

A group (mailbox, database, session, repository) lands in one split as a whole:
rows of one group share what a learner could remember, so splitting by row would
let it pass the gate by memory.  The hash makes it stable: a task added later
never moves another one.  Nothing here looks at results.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

from ...errors import GateError, InputError
from ...types import Split, Task, digest
from .near import Near, normalised

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
        balanced: for few groups: the shares are filled by size, every split gets at least one, and a
            group added later may move those whose hash lies near a cut. Otherwise the hash alone
            decides, and few groups may leave a split empty.

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
    fixed = check_given(listed, keys)
    sizes = Counter(keys)
    if balanced:
        chosen = _filled(sizes, fixed, shares, seed)
    else:
        chosen = {key: fixed[key] if key in fixed else _hashed(key, shares, seed) for key in sizes}
    return [replace(task, split=chosen[key]) for task, key in zip(listed, keys, strict=True)]


def _position(key: str, seed: int) -> float:
    # 13 hex digits are 52 bits: the most that a float holds exactly.
    # Another hash would deal all groups anew: some that were learned from would come behind the gate.
    return int(digest(("split", seed, key), 13), 16) / 16**13


def check_given(tasks: Sequence[Task], keys: Sequence[str]) -> dict[str, Split]:
    """Key → the split that its tasks were given, of those that were given one.

    Raises:
        GateError: one key was given two.
    """
    fixed: dict[str, Split] = {}
    for task, key in zip(tasks, keys, strict=True):
        if task.split is not None and fixed.setdefault(key, task.split) is not task.split:
            raise GateError(
                f"group {key!r} is in {fixed[key].value} and in {task.split.value}: a group has one split"
            )
    return fixed


def _hashed(key: str, shares: Mapping[Split, float], seed: int) -> Split:
    position, upto = _position(key, seed), 0.0
    for part, share in shares.items():
        upto += share
        if position < upto:
            return part
    # The shares may add up to a hair less than 1.
    return part


def _filled(
    sizes: Mapping[str, int], fixed: Mapping[str, Split], shares: Mapping[Split, float], seed: int
) -> dict[str, Split]:
    """Groups in a row by their hash, cut where the shares are filled; one that a cut hits goes where most of it lies.

    The order is that of the hashes alone, so groups that are added later move the cuts a little and no group far
    from one.
    """
    chosen = dict(fixed)
    filled = Counter(dict.fromkeys(shares, 0))
    for key, part in fixed.items():
        filled[part] += sizes[key]
    free = sorted((key for key in sizes if key not in fixed), key=lambda key: (_position(key, seed), key))
    lacking = [part for part in shares if not filled[part]]
    if len(free) < len(lacking):
        raise InputError(
            f"{len(sizes)} groups cannot fill {len(shares)} splits: give more groups or fewer splits"
        )
    total, free_size = sum(sizes.values()), sum(sizes[key] for key in free)
    wants = {part: max(0.0, share * total - filled[part]) for part, share in shares.items()}
    wanted_size = sum(wants.values()) or 1.0
    cuts, upto = [], 0.0
    for part in shares:
        upto += wants[part] / wanted_size * free_size
        cuts.append((upto, part))
    members: dict[Split, list[str]] = {part: [] for part in shares}
    start = 0
    for key in free:
        middle = start + sizes[key] / 2
        part = next((part for cut, part in cuts if middle < cut), cuts[-1][1])
        members[part].append(key)
        start += sizes[key]
    for part in lacking:
        if not members[part]:
            # A large group lies across the whole share: the smallest group of the fullest split is taken instead.
            spare = [candidate for candidate in shares if len(members[candidate]) > (candidate in lacking)]
            fullest = max(spare, key=lambda candidate: sum(sizes[key] for key in members[candidate]))
            least = min(members[fullest], key=lambda key: (sizes[key], _position(key, seed)))
            members[fullest].remove(least)
            members[part].append(least)
    return chosen | {key: part for part, keys in members.items() for key in keys}


@dataclass(frozen=True, slots=True)
class Leakage:
    """Overlap of two sets of tasks."""

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


def leakage(train: Iterable[Task], gate: Iterable[Task]) -> Leakage:
    """Overlap of the gate's tasks with those trained on.

    Near duplicates are those of `near.py`, and none is missed. Only instructions are compared; a question asked of
    two mailboxes shows as `same` and may be meant.
    """
    old, new = list(train), list(gate)
    by_text: dict[str, list[Task]] = {}
    for task in old:
        by_text.setdefault(normalised(task.instruction), []).append(task)
    same = [
        (train_task.id, task.id)
        for task in new
        if (text := normalised(task.instruction))
        for train_task in by_text.get(text, ())
    ]
    texts = [text for text in by_text if text]
    index = Near(texts)
    near = [
        (train_task.id, task.id, value)
        for task in new
        if (text := normalised(task.instruction))
        for number, value in index.of(text)
        if texts[number] != text
        for train_task in by_text[texts[number]]
    ]
    near.sort(key=lambda pair: (-pair[2], pair))
    return Leakage(
        ids=tuple(sorted({task.id for task in old} & {task.id for task in new})),
        groups=tuple(sorted(({task.group for task in old} & {task.group for task in new}) - {""})),
        same=tuple(same),
        near=tuple(near),
    )
