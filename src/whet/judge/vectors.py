"""Texts as vectors of weighed words, without numpy: how alike two are, and which words tell them apart."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

Vector = Mapping[str, float]
"""Word → weight; of length 1, or empty."""
_MOST_KNOWN = 4096
"""Vectors whose similarities are kept; beyond that all are computed again."""


def rarity(documents: Sequence[Collection[str]]) -> dict[str, float]:
    """Word → weight: the fewer documents hold it, the more it tells.

    Args:
        documents: the distinct words of each.
    """
    counts = Counter(word for words in documents for word in words)
    return {word: math.log(1 + len(documents) / count) for word, count in counts.items()}


def unit_vector(counts: Mapping[str, int], weights: Mapping[str, float]) -> Vector:
    """Counted words, weighed; a word without a weight counts as the rarest."""
    rare = max(weights.values(), default=1.0)
    return scaled({word: (1 + math.log(count)) * weights.get(word, rare) for word, count in counts.items()})


def scaled(vector: Mapping[str, float]) -> Vector:
    """The vector at length 1; empty if it has none."""
    length = math.sqrt(sum(value * value for value in vector.values()))
    return {word: value / length for word, value in vector.items()} if length else {}


def cosine(one: Vector, other: Vector) -> float:
    """Similarity of two vectors of length 1, from 0 to 1 where no weight is negative."""
    if len(other) < len(one):
        one, other = other, one
    return sum([value * other[word] for word, value in one.items() if word in other])


@dataclass
class Neighbours:
    """How alike a vector is to each of some others; what is equal is compared once."""

    vectors: Sequence[Vector]
    _distinct: list[Vector] = field(init=False)
    _places: list[int] = field(init=False)
    """Of each vector, its place among the distinct ones."""
    _known: dict[frozenset[tuple[str, float]], Sequence[float]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        keys = [frozenset(each.items()) for each in self.vectors]
        # The vectors as they came: a set's order is another in each process, and so is the last digit of a sum.
        distinct = dict(zip(keys, self.vectors, strict=True))
        place_of = {key: place for place, key in enumerate(distinct)}
        self._distinct = list(distinct.values())
        self._places = [place_of[key] for key in keys]

    def of(self, vector: Vector) -> Sequence[float]:
        """The cosine with each, in their order."""
        key = frozenset(vector.items())
        if key not in self._known:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            cosines = [cosine(vector, other) for other in self._distinct]
            self._known[key] = [cosines[place] for place in self._places]
        return self._known[key]
