"""The worth of each piece of a prompt, by all prompts that were tried, however few rows they were run on.

Two prompts on twenty rows each cannot be told apart where a gain is a tenth of the rows: to change a prompt is to roll
every answer's dice again.  But prompts share pieces, and together they have tried each piece on many more answers
(the hidden replication of a factorial design, as in `effects.py`).  The value of an answer is

    row + sum of the prompt's pieces + sum of what they are worth on rows of this kind + noise,

each with a normal prior: most rules act on one kind of question alone, and what harms harms all.  The row's part is taken out of the equations first (Schur's complement), so that they are as
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
"""Standard deviation of a piece's worth on every row before anything was run."""
KIND = 0.2
"""The same of what it is worth beside that on rows of one kind."""
OWN = 0.05
"""Standard deviation of what is a prompt's own: how its pieces act on one another."""
_LEAST_NOISE = 0.01
"""Variance of an answer's value, at the least."""


class PieceEffects:
    """The belief about every piece.

    Args:
        pieces: number of pieces.
        prompts: for each its pieces, and row → value.
        weights: row → rows that it stands for, where that is not one.
        kinds: row → its kind; all are of one if empty.
    """

    def __init__(
        self,
        pieces: int,
        prompts: Sequence[tuple[frozenset[int], Mapping[str, float]]],
        weights: Mapping[str, float],
        kinds: Mapping[str, int] | None = None,
    ) -> None:
        self.pieces, self._kinds, self._weights = pieces, kinds or {}, weights
        rows: dict[str, list[tuple[int, float]]] = defaultdict(list)
        self._places: dict[tuple[int, int], int] = {}
        """Piece and kind → column, where it was tried on that kind and there are several."""
        for place, (held, values) in enumerate(prompts):
            for row, value in values.items():
                rows[row].append((place, value))
                for piece in held if self._kinds else ():
                    self._places.setdefault((piece, self._kinds[row]), pieces + len(self._places))
        self.noise = _noise(rows)
        priors = [PIECE**-2] * pieces + [KIND**-2] * len(self._places)
        # The lower triangle, which is all that `cholesky` reads.
        precision = [[0.0] * place + [prior] for place, prior in enumerate(priors)]
        right = [0.0] * len(priors)
        every = [value for told in rows.values() for _, value in told]
        middle = sum(every) / len(every) if every else 0.0
        mean_weight = sum(weights.get(row, 1.0) for row in rows) / max(1, len(rows))
        columns = {
            (place, kind): self._columns(held, kind)
            for kind in {self._kinds.get(row, 0) for row in rows}
            for place, (held, _) in enumerate(prompts)
        }
        for row, told in rows.items():
            weight = weights.get(row, 1.0) / mean_weight / self.noise
            # As if it had been run once more, and come out like the others.
            shrunk = weight / (len(told) + 1)
            sums: dict[int, float] = defaultdict(float)
            total = 0.0
            for place, value in told:
                own = columns[place, self._kinds.get(row, 0)]
                for column in own:
                    sums[column] += 1.0
                    right[column] += weight * (value - middle)
                    line = precision[column]
                    for other in own:
                        if other <= column:
                            line[other] += weight
                total += value - middle
            for column, count in sums.items():
                right[column] -= shrunk * count * total
                line = precision[column]
                for other, more in sums.items():
                    if other <= column:
                        line[other] -= shrunk * count * more
        self._factor = cholesky(precision)
        self.means = backward(self._factor, forward(self._factor, right))

    def drawn(self, rng: random.Random, rows: Sequence[str]) -> list[float]:
        """The mean worth of each piece on these rows under one draw from the belief."""
        noise = [rng.gauss(0.0, 1.0) for _ in self.means]
        moved = backward(self._factor, noise)
        drawn = [mean + more for mean, more in zip(self.means, moved, strict=True)]
        worth = drawn[: self.pieces]
        shares = self._shares(rows)
        whole = sum(shares.values()) or 1.0
        for kind, share in shares.items():
            for piece in range(self.pieces) if self._kinds else ():
                place = self._places.get((piece, kind))
                # Of a kind that it was not tried on nothing is known.
                effect = drawn[place] if place is not None else rng.gauss(0.0, KIND)
                worth[piece] += effect * share / whole
        return worth

    def better(self, held: frozenset[int], other: frozenset[int], *, known: float, rows: Sequence[str]) -> float:
        """The probability that a prompt with these pieces is better than another on all rows.

        Args:
            known: sum of the differences on rows that both were run on.
            rows: that are left.
        """
        contrast = [0.0] * len(self.means)
        unknown = 0.0
        for kind, share in self._shares(rows).items():
            for sign, pieces in ((1.0, held - other), (-1.0, other - held)):
                for column in self._columns(pieces, kind):
                    contrast[column] += sign * share
                untried = sum((piece, kind) not in self._places for piece in pieces) if self._kinds else 0
                unknown += untried * (KIND * share) ** 2
        mean = sum(a * b for a, b in zip(contrast, self.means, strict=True))
        count = sum(self._weights.get(row, 1.0) for row in rows)
        spread = sum(value * value for value in forward(self._factor, contrast)) + unknown
        variance = spread + (count * OWN) ** 2 + 2 * len(rows) * self.noise
        if variance <= 0.0:
            return float(known > 0.0)
        return NormalDist().cdf((known + mean) / math.sqrt(variance))

    def _shares(self, rows: Sequence[str]) -> dict[int, float]:
        """Kind → rows of it, each as often as it counts."""
        shares: dict[int, float] = defaultdict(float)
        for row in rows:
            shares[self._kinds.get(row, 0)] += self._weights.get(row, 1.0)
        return shares

    def _columns(self, held: frozenset[int], kind: int) -> list[int]:
        tried = [self._places[piece, kind] for piece in held if (piece, kind) in self._places]
        return [*held, *tried]


def _noise(rows: Mapping[str, Sequence[tuple[int, float]]]) -> float:
    """Variance of an answer's value, by rows that several prompts were run on."""
    squares = degrees = 0.0
    for told in rows.values():
        mean = sum(value for _, value in told) / len(told)
        squares += sum((value - mean) ** 2 for _, value in told)
        degrees += len(told) - 1
    # A weak belief that half of the values of a coin are noise, for as long as little was run twice.
    return max(_LEAST_NOISE, (squares + 0.125 * 4) / (degrees + 4))
