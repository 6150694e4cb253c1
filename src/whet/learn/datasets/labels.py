"""Wrong labels, found by a classifier that never saw the rows that it doubts.

A linear model of words, pairs of words and runs of four letters is fitted to the other folds of the rows, and what it
says of a row is averaged over its passes: a label that was never believed is more suspect than one that was for a while
(training dynamics, Swayamdipta et al. 2020, arXiv 2009.10795).  How sharp its probabilities are and how many labels are
wrong is then read off the rows together, as the temperature and the rate under which the labels as they stand are
likeliest.  A second round weighs each row by the chance that its label is right.

Confident learning (Northcutt et al. 2021, arXiv 1911.00068) has the same aim, and thresholds for each class in the
place of the likelihood.  Here wrong labels are taken to be any other one, alike: a class that is often mistaken for
one certain other is found less well.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from ...errors import MissingExtra

try:
    import numpy as np
except ImportError as error:
    raise MissingExtra("numpy", "head") from error

FOLDS, ROUNDS, PASSES = 5, 2, 60
PARTITIONS = 2
"""Ways in which the rows are divided into folds: what one model says of a row is partly luck."""
_KEPT = (20, 30, 40, 50, 60)
"""Passes after which the model is asked."""
_DECAY, _STEP = 1e-3, 0.1
_TEMPERATURES = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5)
"""None near the fit's own, 1: the model has learned the wrong labels too, and its doubt would stand for them."""
MOST_CALLED = 0.4
"""Rate of wrong labels from which on none is called wrong: then the texts say too little of their labels."""
_MOST_WRONG = 0.6
_LEAST_WRONG = 1e-3
"""A rate of 0 would make one surprising row impossible."""
_WORD, _RUN = re.compile(r"\w+"), "#"

Array = Any


PRECISION = 0.9
"""Share of the labels that are called wrong which are, as expected."""


@dataclass(frozen=True, slots=True)
class LabelDoubts:
    """What the rows' labels look like together."""

    rate: float
    """Share of wrong labels, estimated."""
    wrong: Sequence[float]
    """The chance that the label of a row is wrong."""
    called: Sequence[int]
    """The rows whose labels are called wrong: as many of the most suspect ones as are wrong to PRECISION together."""
    instead: Sequence[int]
    """The likeliest label of each row."""
    sure: Sequence[float]
    """The chance that this one is right."""


def doubted(texts: Sequence[str], labels: Sequence[int], *, seed: int = 0) -> LabelDoubts:
    """Doubt the labels of rows.

    Args:
        texts: without copies, for a copy of a wrong label would confirm it.
        labels: of each text, from 0, each of them at least once.
    """
    features, given, classes = _Features.of(texts), np.asarray(labels), max(labels) + 1
    rows = np.arange(len(texts))
    weights = np.ones(len(texts))
    rate, wrong, chances = 0.0, np.zeros(len(texts)), np.zeros((len(texts), classes))
    for number in range(ROUNDS):
        scores = np.zeros((len(texts), classes))
        for partition in range(PARTITIONS):
            for fold in _folds(len(texts), PARTITIONS * (seed + number) + partition):
                inside = np.setdiff1d(rows, fold)
                scores[fold] += _scores(features, inside, given, weights, classes, asked=fold) / PARTITIONS
        rate, chances = _calibrated(scores, given)
        own = chances[rows, given]
        by_chance = (1 - own) / max(1, classes - 1)
        wrong = rate * by_chance / ((1 - rate) * own + rate * by_chance)
        weights = 1 - wrong
    if rate <= _LEAST_WRONG:
        rate, wrong = 0.0, np.zeros(len(texts))
    best = chances.argmax(axis=1)
    order = np.argsort(-wrong, kind="stable") if rate < MOST_CALLED else np.zeros(0, dtype=np.int64)
    together = np.cumsum(wrong[order]) / (np.arange(len(order)) + 1)
    return LabelDoubts(
        rate=float(rate),
        wrong=[float(chance) for chance in wrong],
        called=[int(row) for row in order[(together >= PRECISION) & (wrong[order] > 0.5)]],
        instead=[int(label) for label in best],
        sure=[float(chance) for chance in chances[rows, best]],
    )


def _folds(count: int, seed: int) -> list[Array]:
    shuffled = np.random.default_rng(seed).permutation(count)
    return [np.sort(shuffled[fold::FOLDS]) for fold in range(FOLDS)]


def _calibrated(scores: Array, labels: Array) -> tuple[float, Array]:
    """The rate of wrong labels, and the chance of every label of every row."""
    rows, classes = np.arange(len(labels)), scores.shape[1]
    rates = np.maximum(np.arange(0.0, _MOST_WRONG, 0.01), _LEAST_WRONG)[:, None]
    best: tuple[float, float, Array] | None = None
    for temperature in _TEMPERATURES:
        chances = _softmax(scores / temperature)
        own = chances[rows, labels]
        likelihoods = np.log((1 - rates) * own + rates * (1 - own) / max(1, classes - 1) + 1e-12).sum(axis=1)
        place = int(likelihoods.argmax())
        if best is None or likelihoods[place] > best[0]:
            best = float(likelihoods[place]), float(rates[place, 0]), chances
    assert best is not None
    return best[1], best[2]


def _softmax(scores: Array) -> Array:
    raised = np.exp(scores - scores.max(axis=1, keepdims=True))
    return raised / raised.sum(axis=1, keepdims=True)


def _scores(
    features: _Features, inside: Array, labels: Array, weights: Array, classes: int, *, asked: Array
) -> Array:
    """Scores of the labels of rows, by a model fitted to others: the mean over some of its passes."""
    trained, other = features.rows(inside), features.rows(asked)
    targets = np.eye(classes)[labels[inside]]
    weighed = (weights[inside] / max(1e-9, weights[inside].sum()))[:, None]
    model = np.zeros((features.width, classes))
    momentum, spread, total = np.zeros_like(model), np.zeros_like(model), np.zeros((len(asked), classes))
    for step in range(1, PASSES + 1):
        errors = (_softmax(trained.times(model)) - targets) * weighed
        slope = trained.back(errors) + _DECAY * model
        # Adam (Kingma and Ba 2015): the scale of the features does not have to be known.
        momentum = 0.9 * momentum + 0.1 * slope
        spread = 0.999 * spread + 0.001 * slope * slope
        steady = np.sqrt(spread / (1 - 0.999**step)) + 1e-8
        model -= _STEP * momentum / (1 - 0.9**step) / steady
        if step in _KEPT:
            total += other.times(model)
    return total / len(_KEPT)


class _Sparse:
    """Rows with few entries each."""

    def __init__(self, starts: Array, columns: Array, values: Array, width: int) -> None:
        self._rows = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
        self._columns, self._values, self._width = columns, values, width
        self._height = len(starts) - 1
        self._by_column = np.argsort(columns, kind="stable")

    def times(self, model: Array) -> Array:
        """(rows, width) · (width, classes)."""
        return _summed(self._rows, self._values[:, None] * model[self._columns], self._height)

    def back(self, errors: Array) -> Array:
        """(width, rows) · (rows, classes)."""
        order = self._by_column
        products = self._values[order, None] * errors[self._rows[order]]
        return _summed(self._columns[order], products, self._width)


def _summed(places: Array, products: Array, height: int) -> Array:
    """The products added up by their places, which ascend."""
    sums = np.zeros((height, products.shape[1]))
    if len(places):
        starts = np.flatnonzero(np.r_[True, places[1:] != places[:-1]])
        sums[places[starts]] = np.add.reduceat(products, starts, axis=0)
    return sums


def _weight(name: str, count: int, rarity: float) -> float:
    return (1 + math.log(count)) * math.log(1 + rarity) * (0.5 if name[0] == _RUN else 1.0)


def _named(text: str) -> Counter[str]:
    """Words, pairs of words, and runs of four letters, which stand for the forms of a word."""
    words = _WORD.findall(text.casefold())
    padded = f" {' '.join(words)} "
    runs = (f"{_RUN}{padded[start : start + 4]}" for start in range(len(padded) - 3))
    return Counter([*words, *(" ".join(pair) for pair in pairwise(words)), *runs])


class _Features:
    """What `_named` finds, weighed by how rare it is; each row of length 1."""

    def __init__(self, rows: Sequence[tuple[Array, Array]], width: int) -> None:
        self._rows, self.width = rows, width

    @classmethod
    def of(cls, texts: Sequence[str]) -> _Features:
        counted = [_named(text) for text in texts]
        frequency = Counter(name for names in counted for name in names)
        # What stands in one row alone says nothing of any other.
        places = {
            name: place for place, name in enumerate(sorted(n for n, count in frequency.items() if count > 1))
        }
        rows = []
        for names in counted:
            known = sorted((places[name], name, count) for name, count in names.items() if name in places)
            values = np.asarray(
                [_weight(name, count, len(texts) / frequency[name]) for _, name, count in known]
            )
            length = float(np.linalg.norm(values)) if len(values) else 0.0
            rows.append(
                (np.asarray([place for place, _, _ in known], dtype=np.int64), values / (length or 1.0))
            )
        return cls(rows, max(1, len(places)))

    def rows(self, chosen: Array) -> _Sparse:
        """Some of the rows."""
        picked = [self._rows[row] for row in chosen]
        starts = np.concatenate([[0], np.cumsum([len(columns) for columns, _ in picked])]).astype(np.int64)
        columns = (
            np.concatenate([columns for columns, _ in picked]) if picked else np.zeros(0, dtype=np.int64)
        )
        values = np.concatenate([values for _, values in picked]) if picked else np.zeros(0)
        return _Sparse(starts, columns.astype(np.int64), values.astype(float), self.width)
