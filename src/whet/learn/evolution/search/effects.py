"""The worth of each setting of each knob, by all trials so far, and draws from that belief.

A search that compares whole candidates on a few hundred tasks each cannot tell a gain of two points
from luck.  But candidates share settings: together they have tried every setting on thousands of
tasks (the hidden replication of a factorial design; Box, Hunter and Hunter 2005, chapter 5).  Here
the lift of a candidate over the others of its generation is a sum of effects, one per setting, with
a normal prior; a candidate to try is the best one under a draw from the posterior (Thompson 1933; as
BOCS of Baptista and Poloczek 2018 does).  Unlike there, effects are of single settings only, and
older generations count less: as the draws close in on one region, the effects become those that
hold *there*, which is how settings that work only together are found.

Subsets and orders are left alone: the model does not see them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ....types import Json
from ..editing.operators import Knob, get, put

MEMORY = 0.85
"""Weight of a generation's trials, one generation later."""
PRIOR = 0.15
"""Standard deviation of an effect before anything was run, in standard deviations of a task's score."""
MOST_LEVELS = 7
"""Settings that are told apart on a numeric knob."""


class Trial(NamedTuple):
    """One candidate's result on its probe, compared with the others of its generation."""

    levels: tuple[int, ...]
    """Its setting of each modelled knob, as a place in that knob's levels."""
    lift: float
    """Mean over its tasks of its score less the generation's mean on that task."""
    variance: float
    """Of one task's score between the candidates of the generation."""
    tasks: int
    """The number of tasks that the mean is over."""
    generation: int


def compared(
    records: Sequence[Mapping[str, float | None]],
) -> list[tuple[float, float, int] | None]:
    """Per record (task → score, None if missing): mean lift, variance of a task's score, number of tasks.

    The lift is over the mean of all records on the same task. None where nothing was scored.
    """
    tasks: dict[str, list[float]] = {}
    for record in records:
        for task, value in record.items():
            if value is not None:
                tasks.setdefault(task, []).append(value)
    means = {task: sum(values) / len(values) for task, values in tasks.items()}
    pairs = sum(len(values) - 1 for values in tasks.values())
    squares = sum((value - means[task]) ** 2 for task, values in tasks.items() for value in values)
    # Equal scores would make it 0, and `_fit` divides by it.
    variance = max(1e-6, squares / pairs) if pairs else 1.0
    lifts_of: list[tuple[float, float, int] | None] = []
    for record in records:
        lifts = [value - means[task] for task, value in record.items() if value is not None]
        lifts_of.append((sum(lifts) / len(lifts), variance, len(lifts)) if lifts else None)
    return lifts_of


class Effects:
    """The belief about every setting.

    Args:
        places: the knobs.
        start: a candidate, whose numbers are among the levels of unbounded knobs.
        trials: all so far.
        generation: the coming one, from which the age of trials is counted.
    """

    def __init__(
        self, places: Sequence[Knob], start: Json, trials: Sequence[Trial] = (), *, generation: int = 0
    ) -> None:
        levels = [(knob, _levels(knob, get(start, knob.path))) for knob in places]
        self._knobs = [(knob, settings) for knob, settings in levels if len(settings) > 1]
        self._first: list[int] = []
        width = 0
        for _, settings in self._knobs:
            self._first.append(width)
            width += len(settings)
        self._width = width
        self._fit(trials, generation)

    def levels(self, candidate: Json) -> tuple[int, ...]:
        """The candidate's setting of each modelled knob; the nearest level of a number."""
        return tuple(_nearest(settings, get(candidate, knob.path)) for knob, settings in self._knobs)

    def scattered(self, base: Json, rng: random.Random) -> Json:
        """`base` with every modelled knob at a level drawn evenly: a point of a random design."""
        return self._put(base, [rng.randrange(len(settings)) for _, settings in self._knobs])

    def drawn(self, base: Json, rng: random.Random) -> Json:
        """`base` with the settings that are best under one draw from the posterior."""
        noise = [rng.gauss(0.0, 1.0) for _ in range(self._width)]
        moved = backward(self._factor, noise)
        return self._best(
            base, [mean + deviation for mean, deviation in zip(self._means, moved, strict=True)]
        )

    def expected(self, base: Json) -> Json:
        """`base` with the settings whose expected effects are the highest."""
        return self._best(base, self._means)

    def predict(self, candidate: Json) -> float:
        """Sum of the expected effects of a candidate's settings; only differences mean anything."""
        return sum(
            self._means[first + level]
            for first, level in zip(self._first, self.levels(candidate), strict=True)
        )

    def _best(self, base: Json, effects: Sequence[float]) -> Json:
        chosen = []
        for first, (_, settings) in zip(self._first, self._knobs, strict=True):
            chosen.append(max(range(len(settings)), key=lambda level: effects[first + level]))
        return self._put(base, chosen)

    def _put(self, base: Json, chosen: Sequence[int]) -> Json:
        for (knob, settings), level in zip(self._knobs, chosen, strict=True):
            # A number that was tuned between two levels stays where its level is chosen again.
            if _nearest(settings, get(base, knob.path)) != level:
                base = put(base, knob.path, settings[level])
        return base

    def _fit(self, trials: Sequence[Trial], generation: int) -> None:
        """Posterior means and the Cholesky factor of the precision."""
        width = self._width
        # One variance for all: late generations differ little among themselves, and effects that hold
        # together only would else be taken for certain.
        spread = sum(trial.variance for trial in trials) / len(trials) if trials else 1.0
        scale = PRIOR**2 * spread
        # The lower triangle, which is all that `cholesky` reads.
        precision = [[0.0] * row_number + [1.0 / scale] for row_number in range(width)]
        right = [0.0] * width
        ages: dict[int, list[Trial]] = {}
        for trial in trials:
            ages.setdefault(trial.generation, []).append(trial)
        for born, some in ages.items():
            shares = [0.0] * width
            for trial in some:
                for first, level in zip(self._first, trial.levels, strict=True):
                    shares[first + level] += 1.0 / len(some)
            for trial in some:
                weight = MEMORY ** (generation - born) * trial.tasks / spread
                # Centred within the generation, as the lifts are: common settings carry no information.
                row = [-share for share in shares]
                for first, level in zip(self._first, trial.levels, strict=True):
                    row[first + level] += 1.0
                for row_number, value in enumerate(row):
                    weighted = weight * value
                    if weighted:
                        right[row_number] += weighted * trial.lift
                        into = precision[row_number]
                        for column in range(row_number + 1):
                            into[column] += weighted * row[column]
        self._factor = cholesky(precision)
        self._means = backward(self._factor, forward(self._factor, right))


def _levels(knob: Knob, now: Json) -> list[Json]:
    """The settings of a knob that are told apart; fewer than two if the model leaves it alone."""
    domain = knob.domain
    if domain.kind == "bool":
        return [False, True]
    if domain.kind == "choice":
        return list(domain.choices)
    if domain.kind not in ("int", "float"):
        return []
    low, high = domain.low, domain.high
    if low is None or high is None:
        steps = (
            [now * factor for factor in (0.25, 0.5, 1.0, 2.0, 4.0)] if now else [-1.0, -0.1, 0.0, 0.1, 1.0]
        )
        inside = [
            max(low if low is not None else number, min(high if high is not None else number, number))
            for number in steps
        ]
    else:
        inside = [low + (high - low) * step / (MOST_LEVELS - 1) for step in range(MOST_LEVELS)]
        if domain.kind == "int" and high - low < MOST_LEVELS:
            inside = list(range(math.ceil(low), math.floor(high) + 1))
    if domain.kind == "int":
        return sorted({round(number) for number in inside})
    return sorted({float(f"{number:.4g}") for number in inside})


def _nearest(levels: Sequence[Json], value: Json) -> int:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        numbers = [
            level for level in levels if isinstance(level, (int, float)) and not isinstance(level, bool)
        ]
        if len(numbers) == len(levels):
            return min(range(len(levels)), key=lambda index: abs(levels[index] - value))
    return levels.index(value)


def cholesky(rows: Sequence[Sequence[float]]) -> list[list[float]]:
    """Lower triangle L with L·Lᵀ equal to the symmetric matrix whose lower triangle is given."""
    factor: list[list[float]] = []
    for row in rows:
        factor_row: list[float] = []
        for column, value in enumerate(row[:-1]):
            above = factor[column]
            factor_row.append(
                (value - sum(a * b for a, b in zip(factor_row, above, strict=False))) / above[-1]
            )
        # Rounding can take the difference below zero.
        factor_row.append(math.sqrt(max(1e-12, row[-1] - sum(value * value for value in factor_row))))
        factor.append(factor_row)
    return factor


def forward(factor: Sequence[Sequence[float]], right: Sequence[float]) -> list[float]:
    """x with L·x = right."""
    solved: list[float] = []
    for row, value in zip(factor, right, strict=True):
        solved.append((value - sum(a * b for a, b in zip(row, solved, strict=False))) / row[-1])
    return solved


def backward(factor: Sequence[Sequence[float]], right: Sequence[float]) -> list[float]:
    """x with Lᵀ·x = right."""
    remainder, solved = list(right), [0.0] * len(factor)
    for row_number in range(len(factor) - 1, -1, -1):
        solved[row_number] = remainder[row_number] / factor[row_number][-1]
        row = factor[row_number]
        for column in range(row_number):
            remainder[column] -= row[column] * solved[row_number]
    return solved
