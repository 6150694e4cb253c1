"""The worth of each piece of a prompt, by all prompts that were tried, however few rows they were run on.

Two prompts on twenty rows each cannot be told apart where a gain is a tenth of the rows: to change a prompt is to roll
every answer's dice again.  But prompts share pieces, and together they have tried each piece on many more answers
(the hidden replication of a factorial design, as in `effects.py`).  The value of an answer is

    row + sum of the prompt's pieces + what is the prompt's own + noise,

each with a normal prior.  The row's part is taken out of the equations first (Schur's complement), so that they are as
few as the pieces and prompts.  A row that went wrong once is drawn towards the others, so that a prompt is not praised
for the luck of rows that were chosen because they had gone wrong.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import NormalDist

from ..search.effects import backward, cholesky, forward

PIECE = 0.15
"""Standard deviation of a piece's worth before anything was run."""
OWN = 0.05
"""Standard deviation of what is a prompt's own: how its pieces act on one another."""
_LEAST_NOISE = 0.01
"""Variance of an answer's value, at the least."""


class PieceEffects:
    """The belief about every piece, and about every prompt.

    Args:
        pieces: number of pieces.
        prompts: for each its pieces, and row → value.
        weights: row → rows that it stands for, where that is not one.
    """

    def __init__(
        self,
        pieces: int,
        prompts: Sequence[tuple[frozenset[int], Mapping[str, float]]],
        weights: Mapping[str, float],
    ) -> None:
        self.pieces, self._prompts = pieces, [held for held, _ in prompts]
        rows: dict[str, list[tuple[int, float]]] = defaultdict(list)
        for place, (_, values) in enumerate(prompts):
            for row, value in values.items():
                rows[row].append((place, value))
        self.noise = _noise(rows)
        width = pieces + len(prompts)
        priors = [PIECE**-2] * pieces + [OWN**-2] * len(prompts)
        # The lower triangle, which is all that `cholesky` reads.
        precision = [[0.0] * place + [prior] for place, prior in enumerate(priors)]
        right = [0.0] * width
        every = [value for told in rows.values() for _, value in told]
        middle = sum(every) / len(every) if every else 0.0
        mean_weight = sum(weights.get(row, 1.0) for row in rows) / max(1, len(rows))
        for row, told in rows.items():
            weight = weights.get(row, 1.0) / mean_weight / self.noise
            # As if it had been run once more, and come out like the others.
            shrunk = weight / (len(told) + 1)
            sums = [0.0] * width
            total = 0.0
            for place, value in told:
                columns = self._columns(place)
                for column in columns:
                    sums[column] += 1.0
                    right[column] += weight * (value - middle)
                    for other in columns:
                        if other <= column:
                            precision[column][other] += weight
                total += value - middle
            filled = [column for column, count in enumerate(sums) if count]
            for column in filled:
                right[column] -= shrunk * sums[column] * total
                for other in filled:
                    if other <= column:
                        precision[column][other] -= shrunk * sums[column] * sums[other]
        self._factor = cholesky(precision)
        self.means = backward(self._factor, forward(self._factor, right))

    def drawn(self, rng: random.Random) -> list[float]:
        """The worth of each piece under one draw from the belief."""
        noise = [rng.gauss(0.0, 1.0) for _ in self.means]
        moved = backward(self._factor, noise)
        return [mean + more for mean, more in zip(self.means, moved, strict=True)][: self.pieces]

    def better(self, held: frozenset[int], place: int, other: int, *, known: float, rows: float) -> float:
        """The probability that a prompt is better than another on all rows.

        Args:
            held: its pieces.
            place: where it is among the prompts; -1 if it was not run.
            known: sum of the differences on rows that both were run on.
            rows: that are left.
        """
        contrast = [0.0] * len(self.means)
        for sign, columns in ((1.0, self._of(held, place)), (-1.0, self._columns(other))):
            for column in columns:
                contrast[column] += sign
        mean = sum(a * b for a, b in zip(contrast, self.means, strict=True))
        spread = sum(value * value for value in forward(self._factor, contrast))
        spread += 0.0 if place >= 0 else OWN**2
        variance = rows * rows * spread + 2 * rows * self.noise
        if variance <= 0.0:
            return float(known > 0.0)
        return NormalDist().cdf((known + rows * mean) / math.sqrt(variance))

    def _columns(self, place: int) -> list[int]:
        return self._of(self._prompts[place], place)

    def _of(self, held: frozenset[int], place: int) -> list[int]:
        return [*held, *([self.pieces + place] if place >= 0 else [])]


def _noise(rows: Mapping[str, Sequence[tuple[int, float]]]) -> float:
    """Variance of an answer's value, by rows that several prompts were run on."""
    squares = degrees = 0.0
    for told in rows.values():
        mean = sum(value for _, value in told) / len(told)
        squares += sum((value - mean) ** 2 for _, value in told)
        degrees += len(told) - 1
    # A weak belief that half of the values of a coin are noise, for as long as little was run twice.
    return max(_LEAST_NOISE, (squares + 0.125 * 4) / (degrees + 4))
