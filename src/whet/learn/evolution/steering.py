"""What steers a search where nothing that an answer shows tells whether people like it.

A wrong sum looks like a right one.  What is known all the same: answers that people disliked have to change, those that
they liked have to stay, and an answer that people dislike elsewhere, an apology or a guess, is no repair here.  That
proves nothing; it only chooses what people on real traffic are asked about first (`variants.py`).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence

from ...judge.fitted import FittedReward, Rated
from ...record.rows import as_text
from ...types import Score, Trajectory, digest
from .thumbed import LIKED

_WORD = re.compile(r"[^\W\d_]+")
_SMOOTH = 1.0
_MOST = 2.0
"""A word speaks for or against an answer with at most so much, in natural logarithms."""
_FEWEST = 5
"""Rated answers that a word stands in before it says anything."""


class AnswersElsewhere:
    """How people take answers that are worded like this one, by what they said outside of the part that is repaired.

    Naive Bayes over the words of answers (Maron 1961).  Words of the part alone say nothing: there the wrong answer
    and the right one share them.

    Args:
        rated: an answer, and whether people liked it; none of the part's.
    """

    def __init__(self, rated: Iterable[tuple[str, bool]]) -> None:
        ups, downs, counts = Counter[str](), Counter[str](), Counter[bool]()
        for answer, up in rated:
            counts[up] += 1
            (ups if up else downs).update(_words(answer))
        self._odds = {}
        for word in {*ups, *downs}:
            if ups[word] + downs[word] >= _FEWEST:
                liked = (ups[word] + _SMOOTH) / (counts[True] + 2 * _SMOOTH)
                disliked = (downs[word] + _SMOOTH) / (counts[False] + 2 * _SMOOTH)
                self._odds[word] = max(-_MOST, min(_MOST, math.log(liked / disliked)))

    def __call__(self, answer: str) -> float:
        """In (0, 1): .5 for an answer of words that nobody rated elsewhere."""
        told = sum(self._odds.get(word, 0.0) for word in _words(answer))
        return 1 / (1 + math.exp(-told))


def _words(text: str) -> set[str]:
    return {*_WORD.findall(text.casefold())}


class Steer:
    """A Reward that steers where nothing that an answer shows tells whether people like it.

    What they disliked has to change, what they liked has to stay; of answers that nobody knows, those are worth a
    little more that are like liked ones, here and elsewhere.  It proves nothing: any change that moves the disliked
    answers alone is worth much the same to it.

    Args:
        rated: what was said of each answer.
        elsewhere: how people take such answers outside of this part.
    """

    name, version = LIKED, "steer 2"

    def __init__(self, rated: Sequence[Rated], elsewhere: AnswersElsewhere) -> None:
        self._fitted, self._elsewhere = FittedReward(rated), elsewhere
        self._told: dict[str, Counter[str]] = {}
        for thumb in rated:
            told = self._told.setdefault(thumb.input, Counter())
            told[thumb.answer] += 1 if thumb.up else -1
        self.version = digest([[thumb.input, thumb.answer, thumb.up] for thumb in rated], 12)

    def __call__(self, trajectory: Trajectory) -> Score:
        """1 for an answer that people liked or that takes the place of one they did not; 0 for one they disliked."""
        if trajectory.error is not None:
            return Score(self.name, 0.0, f"it failed: {trajectory.error.type}", self.version)
        answer, told = trajectory.output_text, self._told.get(trajectory.task.instruction, Counter())
        if not answer.strip():
            return Score(self.name, 0.0, "nothing was answered", self.version)
        if answer in told:
            return Score(self.name, float(told[answer] > 0), "disliked" * (told[answer] <= 0), self.version)
        if any(balance > 0 for balance in told.values()):
            return Score(self.name, 0.3, "it takes the place of an answer that people liked", self.version)
        # Of answers that nobody knows those are likelier that are like some that people liked.
        like = self._fitted(as_text(trajectory.task.initial_state["input"]), answer)
        value = 0.3 + 0.2 * like + 0.5 * self._elsewhere(answer)
        return Score(self.name, round(value, 2), "", self.version)
