"""Kinds of rows: inputs that are put alike, whatever they are about.

A rule of a prompt acts on one kind of question and on no other.  Words that many rows share tell the kind, and so do
pairs of them in a row; what is named in few rows is what a question is about.  A word counts by how much its presence
tells, the entropy of its share, and rows are joined by average linkage of their cosines.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise

from ....types import Task

_MOST = 6
"""Kinds at most: of more than these too few rows each are run to tell them apart."""
_ALIKE = 0.35
"""Mean cosine from which on two groups of rows are of one kind."""
_LONGEST = 400
"""Characters of an input that are read."""


def row_kinds(rows: Sequence[Task]) -> dict[str, int]:
    """Row → its kind, counted from 0 in the order of the rows."""
    marks = [_marks(row.instruction) for row in rows]
    counts = Counter(mark for own in marks for mark in own)
    weights = {mark: _entropy(count / len(rows)) for mark, count in counts.items() if count > 1}
    vectors = [_unit({mark: weights[mark] for mark in own if weights.get(mark)}) for own in marks]
    groups = [[place] for place in range(len(rows))]
    alike = {(a, b): _dot(vectors[a], vectors[b]) for a, b in combinations(range(len(rows)), 2)}

    def mean(one: Sequence[int], other: Sequence[int]) -> float:
        return sum(alike[min(a, b), max(a, b)] for a in one for b in other) / (len(one) * len(other))

    means = {(a, b): value for (a, b), value in alike.items()}
    live = set(range(len(rows)))
    while len(live) > 1:
        (a, b), best = max(means.items(), key=lambda item: (item[1], item[0]))
        if best < _ALIKE and len(live) <= _MOST:
            break
        groups[a] += groups[b]
        live.discard(b)
        means = {pair: value for pair, value in means.items() if b not in pair and a not in pair}
        means |= {(min(a, c), max(a, c)): mean(groups[a], groups[c]) for c in live if c != a}
    kinds = {rows[place].id: kind for kind, group in enumerate(sorted(live)) for place in groups[group]}
    return {row.id: kinds[row.id] for row in rows}


def _marks(text: str) -> set[str]:
    words = re.findall(r"\w+", text[:_LONGEST].casefold())
    return {*words, *(f"{one} {other}" for one, other in pairwise(words))}


def _entropy(share: float) -> float:
    return -sum(part * math.log(part) for part in (share, 1 - share) if part > 0)


def _unit(vector: Mapping[str, float]) -> dict[str, float]:
    length = math.sqrt(sum(value * value for value in vector.values()))
    return {mark: value / length for mark, value in vector.items()} if length else {}


def _dot(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    return sum(value * other[mark] for mark, value in one.items() if mark in other)
