"""Compound: several rewards as one, where a missing part makes the whole missing.

A weighted sum over whatever happens to be there would pay for avoiding the strict parts, so a
part that gives None makes the whole None unless it was declared optional.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Collection, Mapping

from ..errors import InputError
from ..types import Fault, Score, Trajectory, digest
from .base import Reward, ascore, is_async, name_of, score, version_of

Combine = Callable[[list[tuple[float, float]]], float]
"""(value, weight) of each part, in order → the whole.  Raises ValueError where they do not combine."""


def weighted_sum(parts: list[tuple[float, float]]) -> float:
    """Σ weight · value."""
    return math.fsum(value * weight for value, weight in parts)


def product(parts: list[tuple[float, float]]) -> float:
    """Π value^weight, for values ≥ 0: one part at 0 makes the whole 0."""
    for value, _ in parts:
        if value < 0:
            raise ValueError(f"a product needs values >= 0, and one is {value:g}")
    return math.prod(float(value**weight) for value, weight in parts)


def lexicographic(parts: list[tuple[float, float]]) -> float:
    """Earlier parts decide, later ones only between equals; for values in [0, 1].

    A part's weight is its resolution: differences below it do not count, and 1.0 / weight is
    the number of steps it has.  The whole lies in [0, 1].  Weights of (1, 0.1) put any success
    above any failure, and among equals look at the second part in tenths.
    """
    number, levels = 0, 1
    for value, resolution in parts:
        if not 0 <= value <= 1:
            raise ValueError(f"lexicographic order needs values in [0, 1], and one is {value:g}")
        steps = round(1 / resolution)
        # The small addition keeps 0.3 / 0.1 = 2.9999... at three steps.
        number = number * (steps + 1) + min(steps, math.floor(value * steps + 1e-9))
        levels *= steps + 1
    return number / (levels - 1)


class Compound:
    """One reward made of several.

    >>> Compound({exact: 1.0, fewer_steps(0.01): 1.0})

    Args:
        parts: reward → weight (or resolution, for `lexicographic`), in order.
        combine: `weighted_sum`, `product`, `lexicographic`, or a function of your own.
        optional: parts that may be None; such a part is left out of the whole then, so make
            optional only what adds to a score and does not carry it.
        band: (low, high) that the whole must lie in; outside of it the Score is None, because a
            band that overlaps another makes failures look like successes.
        name: of the whole.

    Raises:
        InputError: no parts, two of one name, or a weight that does not fit.
    """

    def __init__(
        self,
        parts: Mapping[Reward, float],
        *,
        combine: Combine = weighted_sum,
        optional: Collection[Reward] = (),
        band: tuple[float, float] | None = None,
        name: str = "compound",
    ) -> None:
        names = [name_of(part) for part in parts]
        if not names or len(set(names)) < len(names):
            raise InputError(f"A compound needs rewards of different names; given {names}.")
        for part, weight in parts.items():
            fits = math.isfinite(weight) and (combine is not lexicographic or 0 < weight <= 1)
            if not fits or (combine is product and weight < 0):
                raise InputError(f"Weight {weight} of {name_of(part)!r} does not fit {combine.__name__}.")
        unknown = [name_of(part) for part in optional if part not in parts]
        if unknown:
            raise InputError(f"Optional parts {unknown} are not among the parts {names}.")
        if band is not None and not band[0] < band[1]:
            raise InputError(f"A band goes from low to high; given {band}.")
        self.name = name
        self.parts = dict(parts)
        self.combine = combine
        self.optional = frozenset(name_of(part) for part in optional)
        self.band = band
        inside = [[name_of(part), version_of(part), weight] for part, weight in self.parts.items()]
        self.is_async = any(is_async(part) for part in self.parts)
        self.version = digest([inside, combine.__name__, sorted(self.optional), band], 12)

    def __repr__(self) -> str:
        inside = ", ".join(f"{name_of(part)}: {weight:g}" for part, weight in self.parts.items())
        return f"Compound({{{inside}}}, combine={self.combine.__name__})"

    def __call__(self, trajectory: Trajectory) -> Score | Awaitable[Score]:
        """The whole, with each part's value in the reason; to be awaited if a part has to be."""
        if self.is_async:
            return self._ask(trajectory)
        return self._whole([score(part, trajectory) for part in self.parts])

    async def _ask(self, trajectory: Trajectory) -> Score:
        scores: list[Score] = []
        for part in self.parts:
            scores.append(await ascore(part, trajectory))
            # Stop here: a later part may be a judge that has to be paid.
            if self._missing(part, scores[-1]):
                break
        return self._whole(scores)

    def _missing(self, part: Reward, score: Score) -> bool:
        # One that the answer broke is not optional: a penalty could be escaped by breaking it.
        return score.value is None and (score.broke or name_of(part) not in self.optional)

    def _whole(self, scores: list[Score]) -> Score:
        present: list[tuple[float, float]] = []
        shown: list[str] = []
        # `_ask` stops at the first part that is missing, so there may be fewer scores than parts.
        for (part, weight), part_score in zip(self.parts.items(), scores, strict=False):
            if self._missing(part, part_score):
                missing = f"part {name_of(part)!r} is missing: {part_score.reason}"
                # A part that the answer broke breaks the whole (`Score.broke`).
                return self._score(None, f"{Fault.REWARD}: {missing}" if part_score.broke else missing)
            if part_score.value is not None:
                present.append((part_score.value, weight))
                shown.append(f"{name_of(part)}={part_score.value:g}*{weight:g}")
        if not present:
            return self._score(None, "every part is missing")
        try:
            value = self.combine(present)
        except ValueError as error:
            return self._score(None, f"parts do not combine: {error} ({', '.join(shown)})")
        if self.band is not None and not self.band[0] <= value <= self.band[1]:
            return self._score(None, f"{value:g} lies outside the band {self.band} ({', '.join(shown)})")
        return self._score(value, ", ".join(shown))

    def _score(self, value: float | None, reason: str) -> Score:
        return Score(self.name, value, reason, self.version)
