"""Which part of the traffic an issue is about, told by the words of a question alone.

What the agent did in a run may be another thing under a candidate, so an arm that is compared may not be marked out by
it; a question is the same under both.  Naive Bayes over words on the issue's runs and the others, in which a word that
the issue's questions share speaks also where it is absent (half of the multivariate Bernoulli model of McCallum and
Nigam 1998): what a lamp costs with a coupon and what it costs have all words in common but those of the coupon.

Words that stand in for each other are beyond it: if the prices of six articles of thirty are wrong, every question
for a price has most of what theirs share.  Where it holds far more than the issue's share, a logistic regression tells
the issue's questions from the others that it holds.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from ..types import Trajectory, digest

_WORD = re.compile(r"[^\W\d_]{2,}")
_SMOOTH = 0.05
"""Of a run, added to every count: a word that none of twenty runs has speaks against."""
_MOST = 4.0
"""A word speaks for or against with at most so much, in natural logarithms: one rare word decides nothing."""
_TOO_MANY = 1.5
"""Times the issue's share that may be held before the words are weighed against each other."""
_EPOCHS, _STEP, _DECAY = 60, 0.5, 1e-3
"""Of the logistic regression: passes over the questions, length of a step (AdaGrad), and weight decay."""
_OWN = 0.7
"""Share of the issue's own questions that have to be told from the others."""
_MOST_HELD = 3_000
"""Questions that it is fitted to."""
_EVEN = math.log(1 / 3)
"""Log odds from which a question belongs: a quarter, where one that surely does has a half, as it is on both sides."""


@lru_cache(maxsize=1 << 15)
def words_of(text: str) -> frozenset[str]:
    """The words of a question, without numbers: remembered, for each look asks them of every run and every part."""
    return frozenset(_WORD.findall(text.casefold()))


@dataclass(frozen=True, slots=True)
class PartOfTraffic:
    """The questions of one issue."""

    weights: dict[str, float]
    """Word → log odds that it adds where it stands, over those where it does not."""
    base: float = 0.0
    """Log odds of a question without any word."""
    among: PartOfTraffic | None = None
    """Tells the issue's questions from the others that these weights hold."""

    @classmethod
    def of(cls, own: Sequence[str], questions: Iterable[str], *, share: float) -> PartOfTraffic:
        """From some questions that belong to it, and all questions, of which a share does.

        What the rest asks is what all ask less the part's own (Elkan and Noto 2008 learn from positive examples and
        unlabelled ones in this way).

        Args:
            share: of all questions, in [0, 1).
        """
        asked = Counter(map(words_of, questions))
        here, everywhere, count = Counter[str](), Counter[str](), asked.total()
        for question in own:
            here.update(words_of(question))
        for words, times in asked.items():
            for word in words:
                everywhere[word] += times
        share = min(0.95, max(share, 1 / max(1, count)))
        weights, base = dict[str, float](), math.log(share / (1 - share)) / 2
        least = _SMOOTH / max(1, count)
        for word in {*here, *everywhere}:
            inside = (here[word] + _SMOOTH) / (len(own) + 2 * _SMOOTH)
            rest = (everywhere[word] / max(1, count) - share * inside) / (1 - share)
            rest = min(1 - least, max(rest, least))
            # That a word of others is absent says nothing more: what it is here instead was counted already.
            absent = min(0.0, _bounded(math.log(1 - inside) - math.log(1 - rest)))
            weights[word] = _bounded(math.log(inside) - math.log(rest)) - absent
            base += absent
        part = cls(weights, base)
        held = {words: times for words, times in asked.items() if part._odds(words) > 0}
        if sum(held.values()) <= _TOO_MANY * share * count:
            return part
        among = _among([words_of(question) for question in own], held, share * count)
        narrow = cls(weights, base, among)
        # One that its own questions do not belong to was misled by the share.
        return narrow if sum(map(narrow.holds, own)) >= _OWN * sum(map(part.holds, own)) else part

    def holds(self, question: str) -> bool:
        """True if the question belongs to this part."""
        words = words_of(question)
        return self._odds(words) > 0 and (self.among is None or self.among._odds(words) > _EVEN)

    def _odds(self, words: Collection[str]) -> float:
        return self.base + sum(self.weights.get(word, 0.0) for word in words)

    def runs(self, runs: Iterable[Trajectory]) -> list[Trajectory]:
        """Those of its questions."""
        return [run for run in runs if self.holds(run.task.instruction)]


def _among(
    own: Sequence[Collection[str]], held: Mapping[frozenset[str], int], belong: float
) -> PartOfTraffic:
    """Logistic regression of words, of the issue's questions against all that are held (Elkan and Noto 2008).

    Args:
        held: word sets, and how often each was asked.
        belong: how many of them belong to the issue: what its own questions weigh together.
    """
    chosen = sorted(held.items(), key=lambda entry: digest(sorted(entry[0]), 8))[:_MOST_HELD]
    rows: list[tuple[Collection[str], float, float]] = [(words, 0.0, float(times)) for words, times in chosen]
    part_of_held = sum(times for _, times in chosen) / sum(held.values())
    rows += [(words, 1.0, belong * part_of_held / len(own)) for words in own]
    rows.sort(key=lambda row: digest([sorted(row[0]), row[1]], 8))
    mean = sum(weight for *_, weight in rows) / len(rows)
    weights, squares, base, base_square = dict[str, float](), dict[str, float](), 0.0, 1e-8
    for _ in range(_EPOCHS):
        for words, label, weight in rows:
            odds = base + sum(weights.get(word, 0.0) for word in words)
            slope = weight / mean * (1 / (1 + math.exp(-max(-30.0, min(30.0, odds)))) - label)
            base_square += slope * slope
            base -= _STEP * slope / math.sqrt(base_square)
            for word in words:
                now = weights.get(word, 0.0)
                gradient = slope + _DECAY * now
                squares[word] = squares.get(word, 1e-8) + gradient * gradient
                weights[word] = now - _STEP * gradient / math.sqrt(squares[word])
    return PartOfTraffic(weights, base)


def _bounded(odds: float) -> float:
    return max(-_MOST, min(_MOST, odds))
