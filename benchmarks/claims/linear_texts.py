"""A plain classifier of texts, fitted to labels as they are: what shows whether refined rows teach more than raw ones.

A linear model of words, pairs of words and runs of four letters, which has nothing in common with what refines.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

PASSES = 60
_KEPT = (20, 30, 40, 50, 60)
"""Passes after which the model is asked."""
_DECAY, _STEP = 1e-3, 0.1
_WORD, _RUN = re.compile(r"\w+"), "#"
Array = Any


def accuracy(rows: Sequence[tuple[str, str]], asked: Sequence[tuple[str, str]]) -> float:
    """Share of the texts asked whose label a classifier fitted to the rows gives."""
    numbers = {label: number for number, label in enumerate(sorted({label for _, label in [*rows, *asked]}))}
    features = Features.of([text for text, _ in [*rows, *asked]])
    labels = np.asarray([numbers[label] for _, label in [*rows, *asked]])
    inside, outside = np.arange(len(rows)), np.arange(len(rows), len(labels))
    told = scores(features, inside, labels, np.ones(len(labels)), len(numbers), asked=outside)
    return float((told.argmax(axis=1) == labels[outside]).mean())


def _softmax(scores: Array) -> Array:
    raised = np.exp(scores - scores.max(axis=1, keepdims=True))
    return raised / raised.sum(axis=1, keepdims=True)


def scores(
    features: Features, inside: Array, labels: Array, weights: Array, classes: int, *, asked: Array
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


class Features:
    """What `_named` finds, weighed by how rare it is; each row of length 1."""

    def __init__(self, rows: Sequence[tuple[Array, Array]], width: int) -> None:
        self._rows, self.width = rows, width

    @classmethod
    def of(cls, texts: Sequence[str]) -> Features:
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
