"""Texts → clusters that are named by their words: what an agent is asked about, and how much of each.

Spherical k-means (Dhillon and Modha 2001) on words weighed by how rare they are, begun by greedy k-means++ and
followed by the joining of clusters whose centres are alike and of crumbs.  It reads words and nothing else: "refund"
and "money back" are two subjects to it.  Clusters describe traffic, and choose tasks; they are no evidence of anything,
and the gate's groups are the user's.
"""

from __future__ import annotations

import math
import random
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ...judge.vectors import Vector, cosine, rarity, scaled, unit_vector
from ...record.tracing.signals import STOP_WORDS, stem

MOST_CLUSTERS = 24
"""More than that nobody reads."""
NOTHING_ALIKE = "unlike the others"
"""Name of what has no word in common with any cluster."""
_ALIKE = 0.35
"""Cosine of two centres from which on they are one cluster: on questions about sixteen databases the centres of one
database lie up to .5 from each other, those of two databases at .3 at most in all but one pair in a hundred."""
_CRUMB = 0.01
"""Share of the texts below which a cluster is no cluster of its own."""
_FITTED = 4_000
"""Texts that centres are fitted to; all others are given to the nearest."""
_ROUNDS, _STARTS, _CENTRE_WORDS, _NAME_WORDS = 15, 4, 200, 3
_TERM = re.compile(r"[^\W\d_]+")
_NO_SPACES = re.compile(r"[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff]")
"""Scripts that are written without spaces, and Korean, whose words carry their particles."""


@dataclass(frozen=True, slots=True)
class TextCluster:
    """Texts about the same."""

    name: str
    """The words that stand out in it, most telling first."""
    members: Sequence[int]
    """Places of its texts."""


@dataclass(frozen=True, slots=True)
class Clustering:
    """Clusters of texts, the largest first, and which of them a further text belongs to."""

    clusters: Sequence[TextCluster]
    places: Sequence[int]
    """Of each text its cluster."""
    vectors: Sequence[Vector]
    """Of each text, for what compares them further."""
    _centres: Sequence[Vector] = field(repr=False)
    _weights: Mapping[str, float] = field(repr=False)

    def vector(self, text: str) -> Vector:
        """A further text, weighed as these were."""
        return unit_vector(_counted(text), self._weights)

    def nearest(self, text: str) -> int | None:
        """The cluster that a further text belongs to; None if it shares no word with any."""
        vector = self.vector(text)
        likeness = [cosine(vector, centre) for centre in self._centres]
        best = max(likeness, default=0.0)
        return likeness.index(best) if best > 0 else None


def clustered(texts: Sequence[str], *, count: int | None = None, seed: int = 0) -> Clustering:
    """Cluster texts by their words.

    Args:
        count: clusters to begin with, before alike ones are joined; by the number of texts if None.
    """
    counted = [_counted(text) for text in texts]
    weights = rarity([*counted])
    vectors = [unit_vector(counts, weights) for counts in counted]
    rng = random.Random(f"clusters:{seed}")
    worded = [item for item, vector in enumerate(vectors) if vector]
    fitted = sorted(rng.sample(worded, _FITTED)) if len(worded) > _FITTED else worded
    most_clusters = count or max(1, min(MOST_CLUSTERS, round(math.sqrt(len(fitted) / 2))))
    centres = _fitted([vectors[item] for item in fitted], min(most_clusters, len(fitted)), rng)
    places = _assigned(vectors, centres)
    if count is None:
        centres = _joined(vectors, places, centres)
        places = _assigned(vectors, centres)
    return _ordered(texts, vectors, places, centres, weights)


def terms(text: str) -> list[tuple[str, str]]:
    """Each telling word as it is compared, and as it is written."""
    terms: list[tuple[str, str]] = []
    for word in _TERM.findall(text.casefold()):
        if _NO_SPACES.search(word):
            terms += [(pair, pair) for pair in (word[at : at + 2] for at in range(max(1, len(word) - 1)))]
        elif len(word) > 2 and word not in STOP_WORDS:
            terms.append((stem(word), word))
    return terms


def _counted(text: str) -> Counter[str]:
    return Counter(term for term, _ in terms(text))


def _fitted(vectors: Sequence[Vector], count: int, rng: random.Random) -> list[Vector]:
    """The centres of so many clusters."""
    centres = _begun(vectors, count, rng)
    before: list[int] = []
    for _ in range(_ROUNDS):
        places = _assigned(vectors, centres)
        if places == before:
            break
        before = places
        centres = _means(vectors, places, len(centres))
    return centres


def _begun(vectors: Sequence[Vector], count: int, rng: random.Random) -> list[Vector]:
    """Texts to begin with, each far from those before it: of some that are drawn the one that most texts are near."""
    centres: list[Vector] = []
    nearest = [0.0] * len(vectors)
    while len(centres) < count:
        distances = [(1 - likeness) ** 2 for likeness in nearest]
        if not any(distances):
            break
        drawn = rng.choices(range(len(vectors)), distances, k=_STARTS)
        likenesses = {item: [cosine(vectors[item], vector) for vector in vectors] for item in drawn}
        best = max(
            likenesses.values(),
            key=lambda row: sum(max(0.0, to - so_far) for to, so_far in zip(row, nearest, strict=True)),
        )
        centres.append(vectors[next(item for item, row in likenesses.items() if row is best)])
        nearest = [min(1.0, max(pair)) for pair in zip(best, nearest, strict=True)]
    return centres


def _assigned(vectors: Sequence[Vector], centres: Sequence[Vector]) -> list[int]:
    """The nearest centre of each; the number of centres for one that is like none."""
    holders: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for number, centre in enumerate(centres):
        for word, weight in centre.items():
            holders[word].append((number, weight))
    places = []
    for vector in vectors:
        likeness = [0.0] * len(centres)
        for word, weight in vector.items():
            for number, centre_weight in holders.get(word, ()):
                likeness[number] += weight * centre_weight
        best = max(likeness, default=0.0)
        places.append(likeness.index(best) if best > 0 else len(centres))
    return places


def _means(vectors: Sequence[Vector], places: Sequence[int], count: int) -> list[Vector]:
    sums: list[defaultdict[str, float]] = [defaultdict(float) for _ in range(count + 1)]
    for vector, cluster in zip(vectors, places, strict=True):
        for word, weight in vector.items():
            sums[cluster][word] += weight
    return [
        scaled(dict(sorted(total.items(), key=lambda pair: (-pair[1], pair[0]))[:_CENTRE_WORDS]))
        for total in sums[:count]
    ]


def _joined(vectors: Sequence[Vector], places: Sequence[int], centres: Sequence[Vector]) -> list[Vector]:
    """Centres without crumbs, and with alike ones as one, the most alike first."""
    sizes = Counter(places)
    least = max(2, _CRUMB * len(vectors))
    standing = [number for number in range(len(centres)) if sizes[number] >= least]
    standing = standing or list(range(len(centres)))
    remaining = [(centres[number], sizes[number]) for number in standing]
    while len(remaining) > 1:
        alike, left, right = max(
            (cosine(remaining[i][0], remaining[j][0]), i, j) for i in range(len(remaining)) for j in range(i)
        )
        if alike < _ALIKE:
            break
        (first, size), (second, more) = remaining[left], remaining[right]
        total: dict[str, float] = defaultdict(float)
        for vector, weight in ((first, size), (second, more)):
            for word, value in vector.items():
                total[word] += value * weight
        remaining = [pair for number, pair in enumerate(remaining) if number not in (left, right)]
        remaining.append((scaled(total), size + more))
    return [centre for centre, _ in remaining]


def _ordered(
    texts: Sequence[str],
    vectors: Sequence[Vector],
    places: Sequence[int],
    centres: Sequence[Vector],
    weights: Mapping[str, float],
) -> Clustering:
    members: dict[int, list[int]] = defaultdict(list)
    for item, number in enumerate(places):
        members[number].append(item)
    order = sorted(members, key=lambda number: (number == len(centres), -len(members[number]), number))
    spelled: dict[str, Counter[str]] = defaultdict(Counter)
    for text in texts:
        for term, word in terms(text):
            spelled[term][word] += 1
    clusters: list[TextCluster] = []
    for number in order:
        name = NOTHING_ALIKE
        if number < len(centres):
            tops = sorted(centres[number].items(), key=lambda pair: (-pair[1], pair[0]))[:_NAME_WORDS]
            name = ", ".join(spelled[term].most_common(1)[0][0] for term, _ in tops)
        clusters.append(TextCluster(name, members[number]))
    numbered = {number: rank for rank, number in enumerate(order)}
    own = [centres[number] if number < len(centres) else {} for number in order]
    return Clustering(clusters, [numbered[number] for number in places], vectors, own, weights)
