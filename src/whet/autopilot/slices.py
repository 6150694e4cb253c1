"""Which part of the traffic an issue is about, told by the words of a question alone.

What the agent did in a run may be another thing under a candidate, so an arm that is compared may not be marked out by
it; a question is the same under both.  Naive Bayes over words on the issue's runs and the others, in which a word that
the issue's questions share speaks also where it is absent (half of the multivariate Bernoulli model of McCallum and
Nigam 1998): what a lamp costs with a coupon and what it costs have all words in common but those of the coupon.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..types import Trajectory

_WORD = re.compile(r"[^\W\d_]{2,}")
_SMOOTH = 0.05
"""Of a run, added to every count: a word that none of twenty runs has speaks against."""
_MOST = 4.0
"""A word speaks for or against with at most so much, in natural logarithms: one rare word decides nothing."""


def words_of(text: str) -> set[str]:
    """The words of a question, without numbers."""
    return {*_WORD.findall(text.casefold())}


@dataclass(frozen=True, slots=True)
class PartOfTraffic:
    """The questions of one issue."""

    weights: dict[str, float]
    """Word → log odds that it adds where it stands, over those where it does not."""
    base: float = 0.0
    """Log odds of a question without any word."""

    @classmethod
    def of(cls, own: Sequence[str], questions: Iterable[str], *, share: float) -> PartOfTraffic:
        """From some questions that belong to it, and all questions, of which a share does.

        What the rest asks is what all ask less the part's own (Elkan and Noto 2008 learn from positive examples and
        unlabelled ones in this way).

        Args:
            share: of all questions, in [0, 1).
        """
        here, everywhere, count = Counter[str](), Counter[str](), 0
        for question in own:
            here.update(words_of(question))
        for question in questions:
            count += 1
            everywhere.update(words_of(question))
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
        return cls(weights, base)

    def holds(self, question: str) -> bool:
        """True if the question belongs to this part."""
        return self.base + sum(self.weights.get(word, 0.0) for word in words_of(question)) > 0

    def runs(self, runs: Iterable[Trajectory]) -> list[Trajectory]:
        """Those of its questions."""
        return [run for run in runs if self.holds(run.task.instruction)]


def _bounded(odds: float) -> float:
    return max(-_MOST, min(_MOST, odds))
