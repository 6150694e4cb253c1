"""The candidates that may have children: islands with MAP-Elites for code, (mu + lambda), a front for prompts.

Each population enters every judged candidate in the order in which it was proposed, and draws
parents with the generator that it gets; so the same seed gives the same population.

`Islands` keeps, on each of several islands in a ring, the best program of every cell of a grid of
features (Mouret & Clune 2015; the parameters are OpenEvolve's).  It differs from OpenEvolve in two
things: the complexity axis is the ratio of lengths to the start program on a log scale, so cells do
not move when the range of the scores grows, and migrants are entered, not copied.
`Front` keeps the candidates that are best on some instance and draws a parent by how many it is best on
(GEPA, Agrawal et al. 2025).  `Best` keeps the mu best.
"""

from __future__ import annotations

import bisect
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ....errors import InputError
from ..editing.program import Program

_INSPIRATIONS = 3


@dataclass(frozen=True, slots=True)
class Judged:
    """A candidate that has a score."""

    number: int
    """Of the proposal that made it; 0 is the start program."""
    program: Program
    score: float
    metrics: Mapping[str, float] = field(default_factory=dict)
    instances: Mapping[str, float] = field(default_factory=dict)
    artifacts: Mapping[str, str] = field(default_factory=dict)
    island: int = 0


@dataclass(frozen=True, slots=True)
class Draw:
    """The parents of a proposal."""

    parent: Judged
    donor: Judged | None
    """A second parent, None if there is no other."""
    inspirations: Sequence[Judged] = ()
    """Further candidates that a model is shown: the best, and some that differ."""
    island: int = 0


class Population(Protocol):
    """The candidates that a search draws its parents from."""

    def add(self, judged: Judged) -> None:
        """Enter a candidate."""
        ...

    def draw(self, number: int, rng: random.Random) -> Draw:
        """Parents for proposal `number`."""
        ...

    def members(self) -> list[Judged]:
        """The candidates that may still be drawn, best first."""
        ...


def _rank(judged: Judged) -> tuple[float, int]:
    """Best first; ties go to the older one, so that a search does not drift on a plateau."""
    return -judged.score, judged.number


def _beside(parent: Judged, members: Sequence[Judged], rng: random.Random) -> Draw:
    """The draw of a parent, with a donor from the others and the best of them as inspirations."""
    others = [member for member in members if member.number != parent.number]
    donor = rng.choice(others) if others else None  # by its place in `members`, so before they are ranked
    return Draw(parent, donor, tuple(sorted(others, key=_rank)[:_INSPIRATIONS]))


@dataclass(frozen=True, slots=True, kw_only=True)
class IslandOptions:
    """Names and defaults of OpenEvolve's `database` section."""

    num_islands: int = 5
    feature_dimensions: tuple[str, ...] = ("complexity", "diversity")
    feature_bins: int = 10
    elite_selection_ratio: float = 0.1
    exploration_ratio: float = 0.2
    exploitation_ratio: float = 0.7
    migration_interval: int = 50
    """Candidates per island between two migrations."""
    migration_rate: float = 0.1
    """Share of an island's elites that each neighbour is shown."""
    archive_size: int = 100
    """The best of all islands, from which exploitation draws."""
    inspirations: int = _INSPIRATIONS


class Islands:
    """Grids of elites on a ring of islands.

    Raises:
        InputError: fewer than one island or bin.
    """

    def __init__(self, options: IslandOptions | None = None) -> None:
        self.options = options or IslandOptions()
        if self.options.num_islands < 1 or self.options.feature_bins < 1:
            raise InputError(
                f"num_islands={self.options.num_islands}, feature_bins={self.options.feature_bins}: "
                "both must be at least 1"
            )
        self.grids: list[dict[tuple[int, ...], Judged]] = [{} for _ in range(self.options.num_islands)]
        self.added = [0] * self.options.num_islands
        self._ranges: dict[str, tuple[float, float]] = {}
        self._length: int | None = None
        self._lines: list[frozenset[str]] = []
        self._archive: list[Judged] = []
        """The best of all islands, best first."""

    def add(self, judged: Judged) -> None:
        """Enter it on its island, and the start program on all; migrate when it is time."""
        if self._length is None:  # the start program is entered first
            self._length = max(1, sum(map(len, judged.program.parts.values())))
        # Once per candidate: `_diversity` keeps the lines of the first twenty that it sees.
        values = self._features(judged)
        for name, value in values.items():
            low, high = self._ranges.get(name, (value, value))
            self._ranges[name] = (min(low, value), max(high, value))
        # By the ranges as they are now: an elite stays in its cell when a later candidate widens them.
        cell = tuple(self._bin(name, value) for name, value in values.items())
        home = judged.island % self.options.num_islands
        for island in range(self.options.num_islands) if judged.number == 0 else (home,):
            self._enter(island, cell, judged)
        bisect.insort(self._archive, judged, key=_rank)
        del self._archive[self.options.archive_size :]
        self.added[home] += 1
        if self.added[home] % self.options.migration_interval == 0:
            self._migrate(home)

    def _enter(self, island: int, cell: tuple[int, ...], judged: Judged) -> None:
        elite = self.grids[island].get(cell)
        if elite is None or judged.score > elite.score:
            self.grids[island][cell] = judged

    def _migrate(self, island: int) -> None:
        grid = self.grids[island]
        count = max(1, round(len(grid) * self.options.migration_rate))
        migrants = sorted(grid.items(), key=lambda elite: _rank(elite[1]))[:count]
        for step in (-1, 1):
            neighbour = (island + step) % self.options.num_islands
            if neighbour != island:
                for cell, judged in migrants:
                    self._enter(neighbour, cell, judged)

    def draw(self, number: int, rng: random.Random) -> Draw:
        """From the islands in turn: the island's best, one of its elites, or one of the archive's."""
        # Every call of rng below is part of a search's random stream: one more or less changes all searches.
        options = self.options
        island = number % options.num_islands
        # Never empty: the start is entered on every island.
        elites = sorted(self.grids[island].values(), key=_rank)
        way = rng.random() * (
            options.elite_selection_ratio + options.exploration_ratio + options.exploitation_ratio
        )
        if way < options.exploration_ratio:
            parent = rng.choice(elites)
        elif way < options.exploration_ratio + options.elite_selection_ratio:
            parent = elites[0]
        else:
            mine = [judged for judged in self._archive if judged.island % options.num_islands == island]
            # A tournament of two: pressure towards the better without forgetting the rest.
            parent = min(rng.choices(mine or elites, k=2), key=_rank)
        best = [judged for judged in self._archive if judged.number != parent.number]
        donors = [judged for judged in elites if judged.number != parent.number]
        if len(donors) < 2 and options.num_islands > 1:
            donors = best
        donor = rng.choice(donors) if donors else None
        inspirations = best[: options.inspirations]
        shown = {judged.number for judged in inspirations}
        different = [judged for judged in donors if judged.number not in shown]
        if different:
            inspirations = [*inspirations, rng.choice(different)]
        return Draw(parent, donor, tuple(inspirations), island)

    def members(self) -> list[Judged]:
        """The elites of all cells, each once."""
        elites = {judged.number: judged for grid in self.grids for judged in grid.values()}
        return sorted(elites.values(), key=_rank)

    def _features(self, judged: Judged) -> dict[str, float]:
        values: dict[str, float] = {}
        for name in self.options.feature_dimensions:
            if name == "complexity":
                length = max(1, sum(map(len, judged.program.parts.values())))
                values[name] = math.log2(length / (self._length or 1))
            elif name == "diversity":
                values[name] = self._diversity(judged.program)
            elif name == "score":
                values[name] = judged.score
            elif name in judged.metrics:
                values[name] = float(judged.metrics[name])
            else:
                raise InputError(
                    f"feature {name!r} is not among the evaluator's metrics {sorted(judged.metrics)}; name one of "
                    "them in feature_dimensions, or complexity, diversity or score"
                )
        return values

    def _diversity(self, program: Program) -> float:
        """Mean share of lines not in common with the first twenty programs."""
        lines = frozenset(line.strip() for text in program.parts.values() for line in text.splitlines())
        distances = [1.0 - len(lines & first) / max(1, len(lines | first)) for first in self._lines]
        if len(self._lines) < 20:
            self._lines.append(lines)
        return sum(distances) / len(distances) if distances else 0.0

    def _bin(self, name: str, value: float) -> int:
        bins = self.options.feature_bins
        if name == "complexity":
            low, high = -1.0, 2.0  # half as long to four times as long as the start
        else:
            low, high = self._ranges[name]
        share = (value - low) / (high - low) if high > low else 0.0
        return min(bins - 1, max(0, int(share * bins)))


class Best:
    """The mu best, drawn evenly: a (mu + lambda) strategy."""

    def __init__(self, mu: int = 10) -> None:
        self.mu = mu
        self._members: list[Judged] = []

    def add(self, judged: Judged) -> None:
        self._members = sorted([*self._members, judged], key=_rank)[: self.mu]

    def draw(self, number: int, rng: random.Random) -> Draw:
        return _beside(rng.choice(self._members), self._members, rng)

    def members(self) -> list[Judged]:
        return list(self._members)


class Front:
    """The candidates that are best on some instance; a parent is drawn by the number of instances it is best on.

    Without instances a candidate counts as one instance, its score.
    """

    def __init__(self) -> None:
        self._best: dict[str, tuple[float, list[Judged]]] = {}

    def add(self, judged: Judged) -> None:
        for name, score in (judged.instances or {"": judged.score}).items():
            best = self._best.get(name)
            if best is None or score > best[0]:
                self._best[name] = (score, [judged])
            elif score == best[0]:
                best[1].append(judged)

    def _wins(self) -> list[tuple[Judged, int]]:
        """Members, each with the number of instances that it alone, or with others, is best on.

        One that is best only where another is best too, and that one on more, is left out: it would
        be drawn for what it does not add.
        """
        instances: dict[int, set[str]] = {}
        by_number: dict[int, Judged] = {}
        for name, (_, winners) in self._best.items():
            for judged in winners:
                instances.setdefault(judged.number, set()).add(name)
                by_number[judged.number] = judged
        front: list[int] = []
        for number in sorted(
            instances, key=lambda number: (-len(instances[number]), *_rank(by_number[number]))
        ):
            if not any(instances[number] <= instances[better] for better in front):
                front.append(number)
        return [(by_number[number], len(instances[number])) for number in front]

    def draw(self, number: int, rng: random.Random) -> Draw:
        members, wins = zip(*self._wins(), strict=True)
        parent = rng.choices(members, wins)[0]
        return _beside(parent, members, rng)

    def members(self) -> list[Judged]:
        return sorted((judged for judged, _ in self._wins()), key=_rank)


def population_of(kind: str, *, code: bool, islands: IslandOptions | None = None) -> Population:
    """A population by its name: `islands`, `best`, `front`, or `auto`: islands for code, the front for texts.

    Raises:
        InputError: another name.
    """
    kinds: dict[str, Callable[[], Population]] = {
        "islands": lambda: Islands(islands),
        "best": Best,
        "front": Front,
    }
    chosen = kind if kind != "auto" else "islands" if code else "front"
    if chosen not in kinds:
        raise InputError(f"population {kind!r}: it must be auto, {', '.join(kinds)}")
    return kinds[chosen]()
