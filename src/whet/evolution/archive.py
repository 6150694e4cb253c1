"""The population of a search: records, duplicates and racing.

A member's record says, per task, what it scored and a digest of how it behaved.  All members are
run with the same tasks and seeds, so every comparison is paired.  A child whose behaviour on the
probe tasks equals that of an archived member is a duplicate *in behaviour*: half of all text-unique
mutants are, and finding out on a few tasks costs a fraction of a full evaluation.

Who runs on all tasks does so on growing subsets and is dropped when clearly worse than the best, by
paired differences on the same tasks: tasks differ more than candidates do.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ..types import Group, Json, digest
from .outcomes import mean_value

Candidate = Mapping[str, Json]
"""Resource name → content."""


class Entry(NamedTuple):
    """What one member did on one task."""

    value: float | None
    """Mean score over its rollouts, None if none was scored."""
    behaviour: str
    """Digest of what it did and returned, over the same seeds for every member."""


@dataclass(slots=True)
class Member:
    """One candidate with its record so far."""

    candidate: Candidate
    born: int = 0
    """Generation."""
    move: str = "start"
    """What made it: `start`, `random`, `drawn`, `expected`, `mutate`, `crossover`, `merge`."""
    record: dict[str, Entry] = field(default_factory=dict)
    missing: int = 0
    """Rollouts that ended without a score: excluded from every mean."""
    id: str = ""

    def __post_init__(self) -> None:
        self.id = self.id or digest(dict(self.candidate))

    def add(self, groups: Iterable[Group], score: str) -> None:
        """Enter what rollouts of this member brought."""
        for group in groups:
            value, missing = mean_value(group.trajectories, score)
            self.missing += missing
            self.record[group.task.id] = Entry(value, behaviour(group))

    def mean(self, tasks: Iterable[str] | None = None) -> float | None:
        """Mean value over the scored tasks of `tasks`, all recorded ones by default."""
        chosen = self.record if tasks is None else [task for task in tasks if task in self.record]
        values = [value for task in chosen if (value := self.record[task].value) is not None]
        return sum(values) / len(values) if values else None


def behaviour(group: Group) -> str:
    """Digest of the actions, tool results and outputs of a task's rollouts.

    Steps of kind `function` are left out: two candidates whose inner functions differ, and who still
    do the same, are the same.
    """
    return digest(
        [
            [
                each.output,
                str(each.outcome),
                [[step.name, step.action] for step in each.steps if step.kind != "function"],
            ]
            for each in group.trajectories
        ],
        length=12,
    )


def paired(member: Member, reference: Member, tasks: Iterable[str] | None = None) -> tuple[float, float, int]:
    """Mean difference to `reference` on tasks both have a value for, its standard error, and their number.

    The error is infinite below two pairs.
    """
    chosen = member.record if tasks is None else tasks
    differences = []
    for task in chosen:
        mine, its = member.record.get(task), reference.record.get(task)
        if mine is not None and its is not None and mine.value is not None and its.value is not None:
            differences.append(mine.value - its.value)
    n = len(differences)
    if not n:
        return 0.0, math.inf, 0
    mean = sum(differences) / n
    if n < 2:
        return mean, math.inf, n
    variance = sum((difference - mean) ** 2 for difference in differences) / (n - 1)
    return mean, math.sqrt(variance / n), n


def rungs(total: int, first: int, growth: int) -> list[int]:
    """Sizes of the growing task subsets: `first`, times `growth` each, the last one `total`.

    >>> rungs(100, 12, 3)
    [12, 36, 100]
    """
    sizes = []
    size = max(1, first)
    while size * growth <= total * 1.5 and size < total:
        sizes.append(size)
        size *= growth
    return [*sizes, total]


def clearly_worse(member: Member, reference: Member, tasks: Sequence[str]) -> bool:
    """Its paired difference to `reference` on `tasks` is more than two standard errors below zero.

    Also true of a member that no task has scored.
    """
    mean, error, n = paired(member, reference, tasks)
    return n == 0 or mean + 2.0 * error < 0.0


@dataclass(slots=True)
class Archive:
    """Everything tried, and the population drawn from it."""

    members: dict[str, Member] = field(default_factory=dict)
    """Candidate id → member with a complete record, oldest first."""
    population: list[str] = field(default_factory=list)
    """Ids of the mu best, best first."""
    seen: set[str] = field(default_factory=set)
    """Digests of everything ever proposed: no content is tried twice."""

    def fresh(self, candidate: Candidate) -> bool:
        """True the first time a content is proposed."""
        key = digest(dict(candidate))
        if key in self.seen:
            return False
        self.seen.add(key)
        return True

    def twin(self, member: Member, tasks: Sequence[str]) -> Member | None:
        """An archived member that behaves the same on all of `tasks`."""
        mine = [member.record[task].behaviour for task in tasks]
        for other in self.members.values():
            its = [other.record[task].behaviour if task in other.record else None for task in tasks]
            if its == mine:
                return other
        return None

    def admit(self, members: Iterable[Member], reference: Member, mu: int) -> None:
        """Add fully evaluated members and keep the `mu` best by paired difference to `reference`.

        Ties go to the older member, so the search does not drift along a plateau for nothing.
        """
        for member in members:
            self.members[member.id] = member
        ranked = sorted(
            self.members.values(), key=lambda member: (-paired(member, reference)[0], member.born, member.id)
        )
        self.population = [member.id for member in ranked[:mu]]
