"""The state of a search over the contents of resources: its options, its members, and their next children.

A member's record holds, per task, its score and a digest of its behaviour.  All members are
run with the same tasks and seeds, so every comparison is paired.  A child whose behaviour on the
probe tasks equals that of an earlier member is a duplicate *in behaviour*: half of all text-unique
mutants are, and finding out on a few tasks costs a fraction of a full evaluation.

A member that runs on all tasks does so on growing subsets and is dropped when clearly worse than the best, by
paired differences on the same tasks: tasks differ more than candidates do.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from ....types import Group, Json, digest
from ...loop import mean_value
from ..editing.operators import Knob, crossover, merge, mutate, stepped
from .effects import Effects, Trial

Candidate = Mapping[str, Json]
"""Resource name → content."""
FEW = 3
"""So many knobs are climbed: half the children are one step from the best, and each generation's best is run on all
tasks. With more of them a generation's luckiest is hardly ever its best, and the effects decide."""
_TRIES = 20
"""Draws per child: in a small space most have been seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvolveOptions:
    """Settings of the search; the defaults suit ten knobs and a few thousand rollouts."""

    generations: int = 20
    """Steps after which the search is done."""
    children: int = 16
    """Candidates proposed per generation; twice as many in the first."""
    drawn: float = 0.9
    """Share of the children that come from the estimated effects; the others are bred."""
    parents: int = 6
    """Candidates to breed from."""
    tasks: int = 240
    """At most so many training tasks are searched on, drawn once."""
    probe: int = 24
    """Tasks that every child of a generation is run on."""
    finish: int = 4
    """After every so many generations, and after the last, the most promising candidate runs on all tasks."""
    growth: int = 3
    """It runs on so many times the tasks each time before it is asked whether it is clearly worse."""
    n: int = 1
    """Rollouts per task and candidate; more only where the agent itself is random."""
    crossover: float = 0.4
    """Share of bred children with two parents: half of them merged, half crossed."""
    strength: float = 1.5
    """Mean number of knobs changed beyond the first."""
    finalists: int = 3
    """The number of the best that are run on validation before the search ends."""
    validation_share: float = 0.3
    """At most this share of the rollouts left at the start is kept for validation."""
    proposals: int = 60
    """Of a search over texts and functions."""
    edits: bool = True
    """Edit texts without a model, too; otherwise everything is left to the proposers."""
    patience: int | None = None
    """Generations without a better candidate after which the search is done; None: never."""


class MemberOutcome(NamedTuple):
    """One member's result on one task."""

    value: float | None
    """Mean score over its rollouts, None if none was scored."""
    behaviour: str
    """Digest of its actions and outputs, over the same seeds for every member."""


@dataclass(slots=True)
class Member:
    """One candidate with its record so far."""

    candidate: Candidate
    born: int = 0
    """Generation."""
    move: str = "start"
    """Its origin: `start`, `random`, `drawn`, `expected`, `mutate`, `crossover`, `merge`."""
    record: dict[str, MemberOutcome] = field(default_factory=dict)
    missing: int = 0
    """Rollouts that ended without a score: excluded from every mean."""
    id: str = ""

    def __post_init__(self) -> None:
        self.id = self.id or digest(dict(self.candidate))

    def add(self, groups: Iterable[Group], score: str) -> None:
        """Enter rollouts of this member."""
        for group in groups:
            value, missing = mean_value(group.trajectories, score)
            self.missing += missing
            self.record[group.task.id] = MemberOutcome(value, behaviour(group))

    def mean(self) -> float | None:
        """Mean value over the recorded tasks that have one."""
        values = [entry.value for entry in self.record.values() if entry.value is not None]
        return sum(values) / len(values) if values else None


def behaviour(group: Group) -> str:
    """Digest of the actions, tool results and outputs of a task's rollouts.

    Steps of kind `function` are left out: two candidates whose inner functions differ, and who still
    do the same, are the same.
    """
    return digest(
        [
            [
                run.output,
                str(run.outcome),
                [[step.name, step.action] for step in run.steps if step.kind != "function"],
            ]
            for run in group.trajectories
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

    def twin(self, member: Member, tasks: Sequence[str], novel: Iterable[Member] = ()) -> Member | None:
        """A member of the archive, or of `novel`, that behaves the same on all of `tasks`."""
        behaviours = [member.record[task].behaviour for task in tasks]
        for earlier in (*novel, *self.members.values()):
            # None is no digest: a member that did not run on a task is nobody's twin there.
            if behaviours == [
                earlier.record[task].behaviour if task in earlier.record else None for task in tasks
            ]:
                return earlier
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


@dataclass(slots=True)
class SearchState:
    """A search so far; its JSON form is the optimizer's state."""

    seed: int
    tasks: list[str]
    validation: list[str]
    start: str = ""
    """Id of the incumbent that the search began with."""
    bundle: str = ""
    """Id of the Bundle that the last step returned: another one means the world has changed."""
    archive: Archive = field(default_factory=Archive)
    trials: list[Trial] = field(default_factory=list)
    """The result of every child on its probe."""
    validated: dict[str, Member] = field(default_factory=dict)
    """Member id → its record on the validation tasks."""
    generation: int = 0
    improved: int = 0
    """Generation of the last better candidate."""
    rollouts: int = 0
    repeats: int = 0
    """Children whose content had been tried: proposed again at no cost."""
    duplicates: int = 0
    """Children whose behaviour had been seen: skipped after the probe."""

    def encode(self) -> Json:
        """JSON that `decode` restores exactly."""
        data = msgspec.json.decode(msgspec.json.encode(self))  # tuples as lists, as they are read again
        data["archive"]["seen"].sort()  # a set has no order of its own
        return data

    @staticmethod
    def decode(data: Json) -> SearchState:
        """The search that `encode` wrote.

        Raises:
            msgspec.ValidationError: another form, as earlier versions wrote it.
        """
        return msgspec.convert(data, SearchState)


def proposed(
    search: SearchState,
    start: Candidate,
    places: Sequence[Knob],
    effects: Effects,
    options: EvolveOptions,
    rng: random.Random,
) -> list[Member]:
    """The children of a generation, twice as many in the first; fewer, or none, where all within reach have been tried.

    They are drawn from what settings have been worth, bred from the best, or a step from them.
    """
    parents = [search.archive.members[id].candidate for id in search.archive.population]
    weights = [1.0 / (rank + 1) for rank in range(len(parents))]
    count = options.children if search.generation else 2 * options.children
    children: list[Member] = []
    for _ in range(count * _TRIES):
        if len(children) >= count:
            break
        # Drawn before the move, whichever that is: the order of draws is part of what a seed reproduces.
        base = rng.choices(parents, weights)[0]
        if len(places) <= FEW and rng.random() < 0.5:
            child, move = stepped(base, places, rng), "step"
        elif not search.generation:
            child, move = effects.scattered(base, rng), "random"
        elif rng.random() < options.drawn:
            child, move = effects.drawn(base, rng), "drawn"
        else:
            child, move = _bred(base, parents, start, places, options, rng)
        # Asked once: `fresh` also enters the child.
        if search.archive.fresh(child):
            children.append(Member(child, search.generation + 1, move))
        else:
            search.repeats += 1
    return children


def _bred(
    child: Candidate,
    parents: Sequence[Candidate],
    start: Candidate,
    places: Sequence[Knob],
    options: EvolveOptions,
    rng: random.Random,
) -> tuple[Candidate, str]:
    if len(parents) > 1 and rng.random() < options.crossover:
        second = rng.choice(parents)
        if rng.random() < 0.5:
            return merge(child, second, start, places), "merge"
        child = crossover(child, second, places, rng)
        if rng.random() < 0.5:
            return child, "crossover"
    return mutate(child, places, rng, strength=options.strength), "mutate"
