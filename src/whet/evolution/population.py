"""Who may have children: islands with MAP-Elites for code, (mu + lambda) for knobs, a front for prompts.

Each population is told of every judged candidate in the order in which it was proposed, and draws
parents with the generator it is given; so the same seed gives the same population.

`Islands` keeps, on each of several islands in a ring, the best program of every cell of a grid of
features (Mouret & Clune 2015; the parameters are OpenEvolve's).  It differs from OpenEvolve in two
things: the complexity axis is the ratio of lengths to the start program on a log scale, so cells do
not move when the range of what was seen grows, and migrants are entered, not copied.
`Front` keeps whoever is best on some instance and draws a parent by how many it is best on
(GEPA, Agrawal et al. 2025).  `Best` keeps the mu best.
"""

from __future__ import annotations

import bisect
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ..errors import InputError
from .program import Program


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
    parent: int | None = None
    operator: str = "start"
    island: int = 0


@dataclass(frozen=True, slots=True)
class Draw:
    """Who a proposal is made from."""

    parent: Judged
    donor: Judged | None
    """A second parent, None if there is no other."""
    inspirations: Sequence[Judged] = ()
    """Others that a model is shown: the best, and some that differ."""
    island: int = 0


class Population(Protocol):
    """What a search draws its parents from."""

    def add(self, judged: Judged) -> None:
        """Enter a candidate."""
        ...

    def draw(self, number: int, rng: random.Random) -> Draw:
        """Parents for proposal `number`."""
        ...

    def members(self) -> list[Judged]:
        """Those that are still drawn from, best first."""
        ...


def _ranked(members: Sequence[Judged]) -> list[Judged]:
    """Best first; ties go to the older one, so that a search does not drift on a plateau for nothing."""
    return sorted(members, key=lambda each: (-each.score, each.number))


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
    inspirations: int = 3


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
        self._archive: list[tuple[float, int, Judged]] = []

    def add(self, judged: Judged) -> None:
        """Enter it on its island, and the start program on all; migrate when it is time."""
        if self._length is None:
            self._length = max(1, sum(map(len, judged.program.parts.values())))
        values = self._features(judged)
        for name, value in values.items():
            low, high = self._ranges.get(name, (value, value))
            self._ranges[name] = (min(low, value), max(high, value))
        cell = tuple(self._bin(name, value) for name, value in values.items())
        home = judged.island % self.options.num_islands
        for island in range(self.options.num_islands) if judged.number == 0 else (home,):
            self._enter(island, cell, judged)
        key = (-judged.score, judged.number)
        bisect.insort(self._archive, (*key, judged), key=lambda row: row[:2])
        del self._archive[self.options.archive_size :]
        self.added[home] += 1
        if self.added[home] % self.options.migration_interval == 0:
            self._migrate(home)

    def _enter(self, island: int, cell: tuple[int, ...], judged: Judged) -> None:
        held = self.grids[island].get(cell)
        if held is None or judged.score > held.score:
            self.grids[island][cell] = judged

    def _migrate(self, island: int) -> None:
        grid = self.grids[island]
        count = max(1, round(len(grid) * self.options.migration_rate))
        chosen = sorted(grid.items(), key=lambda item: (-item[1].score, item[1].number))[:count]
        for step in (-1, 1):
            neighbour = (island + step) % self.options.num_islands
            if neighbour != island:
                for cell, judged in chosen:
                    self._enter(neighbour, cell, judged)

    def draw(self, number: int, rng: random.Random) -> Draw:
        """From the islands in turn: the island's best, one of its elites, or one of the archive's."""
        options = self.options
        island = number % options.num_islands
        elites = _ranked(list(self.grids[island].values()))
        way = rng.random() * (
            options.elite_selection_ratio + options.exploration_ratio + options.exploitation_ratio
        )
        if way < options.exploration_ratio:
            parent = rng.choice(elites)
        elif way < options.exploration_ratio + options.elite_selection_ratio:
            parent = elites[0]
        else:
            pool = [
                each for _, _, each in self._archive if each.island % options.num_islands == island
            ] or elites
            # A tournament of two: pressure towards the better without forgetting the rest.
            parent = min(rng.choices(pool, k=2), key=lambda each: (-each.score, each.number))
        others = [each for each in elites if each.number != parent.number]
        if len(others) < 2 and options.num_islands > 1:
            others = [each for _, _, each in self._archive if each.number != parent.number]
        donor = rng.choice(others) if others else None
        shown = [each for _, _, each in self._archive if each.number != parent.number]
        inspirations = shown[: options.inspirations]
        taken = {each.number for each in inspirations}
        rest = [each for each in others if each.number not in taken]
        if rest:
            inspirations = [*inspirations, rng.choice(rest)]
        return Draw(parent, donor, tuple(inspirations), island)

    def members(self) -> list[Judged]:
        """The elites of all cells, each once."""
        found = {each.number: each for grid in self.grids for each in grid.values()}
        return _ranked(list(found.values()))

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
                    f"feature {name!r} is none of the evaluator's metrics {sorted(judged.metrics)}; name one of "
                    "them in feature_dimensions, or complexity, diversity or score"
                )
        return values

    def _diversity(self, program: Program) -> float:
        """Mean share of lines not in common with the first twenty programs."""
        lines = frozenset(line.strip() for text in program.parts.values() for line in text.splitlines())
        distances = [1.0 - len(lines & other) / max(1, len(lines | other)) for other in self._lines]
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
    """The mu best, drawn evenly: the (mu + lambda) strategy of a search on knobs."""

    def __init__(self, mu: int = 10, inspirations: int = 3) -> None:
        self.mu, self.inspirations = mu, inspirations
        self._members: list[Judged] = []

    def add(self, judged: Judged) -> None:
        self._members = _ranked([*self._members, judged])[: self.mu]

    def draw(self, number: int, rng: random.Random) -> Draw:
        parent = rng.choice(self._members)
        others = [each for each in self._members if each.number != parent.number]
        return Draw(parent, rng.choice(others) if others else None, tuple(others[: self.inspirations]))

    def members(self) -> list[Judged]:
        return list(self._members)


class Front:
    """Whoever is best on some instance; a parent is drawn by the number of instances it is best on.

    Without instances a candidate counts as one instance, its score.
    """

    def __init__(self, inspirations: int = 3) -> None:
        self.inspirations = inspirations
        self._best: dict[str, tuple[float, list[Judged]]] = {}

    def add(self, judged: Judged) -> None:
        for name, value in (judged.instances or {"": judged.score}).items():
            held = self._best.get(name)
            if held is None or value > held[0]:
                self._best[name] = (value, [judged])
            elif value == held[0]:
                held[1].append(judged)

    def _counts(self) -> dict[int, tuple[Judged, int]]:
        """Number → member and the instances that it alone, or with others, is best on.

        One that is best only where another is best too, and that one on more, is left out: it would
        be drawn for what it does not add.
        """
        wins: dict[int, set[str]] = {}
        by_number: dict[int, Judged] = {}
        for name, (_, held) in self._best.items():
            for each in held:
                wins.setdefault(each.number, set()).add(name)
                by_number[each.number] = each
        kept: dict[int, tuple[Judged, int]] = {}
        order = sorted(wins, key=lambda number: (-len(wins[number]), -by_number[number].score, number))
        for number in order:
            if not any(wins[number] <= wins[other] for other in kept):
                kept[number] = (by_number[number], len(wins[number]))
        return kept

    def draw(self, number: int, rng: random.Random) -> Draw:
        counted = list(self._counts().values())
        parent = rng.choices([each for each, _ in counted], [count for _, count in counted])[0]
        others = [each for each, _ in counted if each.number != parent.number]
        return Draw(
            parent, rng.choice(others) if others else None, tuple(_ranked(others)[: self.inspirations])
        )

    def members(self) -> list[Judged]:
        return _ranked([each for each, _ in self._counts().values()])


def population_of(kind: str, *, code: bool, islands: IslandOptions | None = None) -> Population:
    """A population by its name: `islands`, `best`, `front`, or `auto`: islands for code, the front for texts.

    Raises:
        InputError: another name.
    """
    made: dict[str, Callable[[], Population]] = {
        "islands": lambda: Islands(islands),
        "best": Best,
        "front": Front,
    }
    chosen = kind if kind != "auto" else "islands" if code else "front"
    if chosen not in made:
        raise InputError(f"population {kind!r}: it must be auto, {', '.join(made)}")
    return made[chosen]()
