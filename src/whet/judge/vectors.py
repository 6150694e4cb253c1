"""Texts as vectors of weighed words, without numpy: how alike two are, and which words tell them apart."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

Vector = Mapping[str, float]
"""Word → weight; of length 1, or empty."""


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
