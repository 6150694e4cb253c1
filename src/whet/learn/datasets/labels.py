"""Wrong labels, found by a model that never saw the rows that it doubts.

Kernel ridge regression of the labels on words, pairs of words, runs of two to five letters and the form of the text:
what it says of a row when that row is left out has a closed form (Rasmussen and Williams 2006, section 5.4.2), so every
row is doubted by all of the others.  How sharp its probabilities are and how many labels are wrong is then read off the
rows together, as the temperature and the rate under which the labels as they stand are likeliest.  Further rounds weigh
each row by the chance that its label is right.

Confident learning (Northcutt et al. 2021, arXiv 1911.00068) has the same aim, and thresholds for each class in the
place of the likelihood.  Here wrong labels are taken to be any other one, alike: a class that is often mistaken for
one certain other is found less well.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from ...errors import MissingExtra
from .near import normalised

try:
    import numpy as np
except ImportError as error:
    raise MissingExtra("numpy", "head") from error

ROUNDS = 3
RIDGE = 1.0
"""Variance of a label beside that of its row, each row's being 1; a row that is half believed has twice as much."""
MOST_TOGETHER = 4000
"""Rows that are compared with one another; more are dealt into parts, since the time grows with the third power."""
_LEAST_WEIGHT = 1e-3
_TEMPERATURES = tuple(0.01 * 1.25**step for step in range(12))
"""Sharp ones alone: at a blunt one a rest of doubt about everything explains the wrong labels of a small table away."""
_BLOCK = 4096
"""Features that are multiplied at a time."""
MOST_CALLED = 0.4
"""Rate of wrong labels from which on none is called wrong: then the texts say too little of their labels."""
_MOST_WRONG = 0.6
_LEAST_WRONG = 1e-3
"""A rate of 0 would make one surprising row impossible."""
_WORD = re.compile(r"\w+")
_MARK = re.compile(r"[^\W\d_]+|\d+|\s+|.", re.DOTALL)
_RUNS = (2, 3, 4, 5)
_SHORT = 3
"""Letters up to which a word of the form is itself: articles, prepositions."""

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
        texts: as they are written, and without copies, for a copy of a wrong label would confirm it.
        labels: of each text, from 0, each of them at least once.
        seed: of the parts that many rows are dealt into.
    """
    given, classes = np.asarray(labels), max(labels) + 1
    parts = math.ceil(len(texts) / MOST_TOGETHER)
    shuffled = np.random.default_rng(seed).permutation(len(texts)) if parts > 1 else np.arange(len(texts))
    own_rows = [np.sort(shuffled[part::parts]) for part in range(parts)]
    alike = [likeness([texts[row] for row in own]) for own in own_rows]
    rows, weights = np.arange(len(texts)), np.ones(len(texts))
    rate, wrong, chances = 0.0, np.zeros(len(texts)), np.zeros((len(texts), classes))
    for _ in range(ROUNDS):
        scores = np.zeros((len(texts), classes))
        for own, likenesses in zip(own_rows, alike, strict=True):
            scores[own] = left_out(likenesses, given[own], weights[own], classes)
        rate, chances = _calibrated(scores, given)
        own_chance = chances[rows, given]
        by_chance = (1 - own_chance) / max(1, classes - 1)
        wrong = rate * by_chance / ((1 - rate) * own_chance + rate * by_chance)
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


def left_out(likenesses: Array, labels: Array, weights: Array, classes: int) -> Array:
    """Scores of the labels of each row, by a model of all the others."""
    targets = np.eye(classes)[labels]
    targets -= targets.mean(axis=0)
    noise = RIDGE / np.maximum(weights, _LEAST_WEIGHT)
    inverse = np.linalg.inv(likenesses + np.diag(noise))
    return targets - inverse @ targets / np.diag(inverse)[:, None]


def _calibrated(scores: Array, labels: Array) -> tuple[float, Array]:
    """The rate of wrong labels, and the chance of every label of every row."""
    rows, classes = np.arange(len(labels)), scores.shape[1]
    rates = np.maximum(np.arange(0.0, _MOST_WRONG, 0.01), _LEAST_WRONG)[:, None]
    best: tuple[float, float, Array] | None = None
    for temperature in _TEMPERATURES:
        chances = softmax(scores / temperature)
        own = chances[rows, labels]
        likelihoods = np.log((1 - rates) * own + rates * (1 - own) / max(1, classes - 1) + 1e-12).sum(axis=1)
        place = int(likelihoods.argmax())
        if best is None or likelihoods[place] > best[0]:
            best = float(likelihoods[place]), float(rates[place, 0]), chances
    assert best is not None
    return best[1], best[2]


def softmax(scores: Array) -> Array:
    """Chances of the labels of each row."""
    raised = np.exp(scores - scores.max(axis=1, keepdims=True))
    return raised / raised.sum(axis=1, keepdims=True)


def likeness(texts: Sequence[str]) -> Array:
    """How alike each two texts are, 0 to 1: the mean over their words, pairs of words, runs of letters, and form."""
    plain = [normalised(text) for text in texts]
    ways: list[Callable[[str], Iterable[str]]] = [_words, _pairs, _letters]
    alike = sum(_cosines([Counter(way(text)) for text in plain]) for way in ways)
    return (alike + _cosines([Counter(_form(text)) for text in texts])) / (len(ways) + 1)


def _cosines(counted: Sequence[Counter[str]]) -> Array:
    """Cosines of rows of counts, each name weighed by how rare it is."""
    frequency = Counter(name for counts in counted for name in counts)
    # What stands in one row alone says nothing of any other.
    shared = sorted(name for name, rows in frequency.items() if rows > 1)
    places = {name: place for place, name in enumerate(shared)}
    rarity = [1 + math.log((1 + len(counted)) / (1 + frequency[name])) for name in shared]
    entries: list[tuple[int, int, float]] = []
    for row, counts in enumerate(counted):
        own = [
            (places[name], (1 + math.log(count)) * rarity[places[name]])
            for name, count in counts.items()
            if name in places
        ]
        length = math.sqrt(sum(value * value for _, value in own)) or 1.0
        entries += [(place, row, value / length) for place, value in own]
    entries.sort()
    columns = np.asarray([place for place, _, _ in entries], dtype=np.int64)
    rows = np.asarray([row for _, row, _ in entries], dtype=np.int64)
    values = np.asarray([value for _, _, value in entries])
    cosines = np.zeros((len(counted), len(counted)))
    for start in range(0, len(shared), _BLOCK):
        first, last = np.searchsorted(columns, (start, start + _BLOCK))
        block = np.zeros((len(counted), min(_BLOCK, len(shared) - start)))
        block[rows[first:last], columns[first:last] - start] = values[first:last]
        cosines += block @ block.T
    return cosines


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


def _form(text: str) -> list[str]:
    """How a text is written: capitals, digits, marks and short words in their order, its beginning, and its length."""
    marks = [_mark(piece) for piece in _MARK.findall(text)]
    marks = [mark for mark in marks if mark != " "]
    runs = ["|".join(marks[at : at + size]) for size in (1, 2, 3) for at in range(len(marks) - size + 1)]
    beginnings = ["<" + "|".join(marks[:size]) for size in (1, 2, 3)]
    return [*runs, *beginnings, *[f"length {int(2 * math.log2(1 + len(text)))}"] * 3]


def _mark(piece: str) -> str:
    if piece[0].isalpha():
        if piece[0].isupper():
            return "X" if len(piece) > 1 and piece.isupper() else "Xx"
        return piece if len(piece) <= _SHORT else "x"
    if piece[0].isdigit():
        return "9" * min(len(piece), 4)
    if piece.isspace():
        return "\n" if "\n" in piece else " "
    return piece


def _pairs(text: str) -> list[str]:
    """Words, and pairs of them."""
    words = _words(text)
    return [*words, *(" ".join(pair) for pair in pairwise(words))]


def _letters(text: str) -> list[str]:
    """Runs of letters, which stand for the forms of a word."""
    padded = [f" {word} " for word in _words(text)]
    return [
        word[start : start + length]
        for word in padded
        for length in _RUNS
        for start in range(len(word) - length + 1)
    ]
