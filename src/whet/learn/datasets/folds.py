"""Rows → folds that share no group, for a proof that uses every row out of fold.

What is learned for a fold sees no row of it, none of its groups, and none that nearly repeats one of its rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...types import Task, digest
from .examples import compared
from .near import Near, normalised


def folds_of(rows: Sequence[Task], count: int, *, seed: int = 0) -> list[list[Task]]:
    """So many folds of about the same size; a row without a group is a group of its own.

    Groups are dealt from the largest to the smallest, those of one size in the order of their hash, each to the fold
    that has the fewest rows.  With fewer groups than folds there are as many folds as groups.
    """
    groups: dict[str, list[Task]] = {}
    for task in rows:
        groups.setdefault(task.group or f"\0{task.id}", []).append(task)
    dealt = sorted(groups, key=lambda key: (-len(groups[key]), digest(["fold", seed, key])))
    folds: list[list[Task]] = [[] for _ in range(min(count, len(groups)))]
    for key in dealt:
        min(folds, key=len).extend(groups[key])
    return folds


def apart_from(held: Sequence[Task], rows: Iterable[Task]) -> list[Task]:
    """The rows that share no group with those that are held back, and nearly repeat none of them."""
    groups = {task.group for task in held} - {""}
    ids = {task.id for task in held}
    index = Near(
        list(dict.fromkeys(text for task in held if (text := normalised(compared(task).instruction))))
    )
    return [
        task
        for task in rows
        if task.id not in ids
        and task.group not in groups
        and not ((text := normalised(compared(task).instruction)) and next(index.of(text), None) is not None)
    ]
