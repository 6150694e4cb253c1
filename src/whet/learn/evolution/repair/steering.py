"""What steers a search where nothing that an answer shows tells whether people like it.

A wrong sum looks like a right one.  What is known all the same: answers that people disliked have to change, those that
they liked have to stay, and an answer that people dislike elsewhere, an apology or a guess, is no repair here.  That
proves nothing; it only chooses what people on real traffic are asked about first (`variants.py`).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from ....judge.fitted import FittedReward, Rated
from ....record.rows import as_text
from ....types import Score, Trajectory, digest
from ..prompts.thumbed import LIKED

_WORD = re.compile(r"[^\W\d_]+")
_DIGITS = re.compile(r"[.,]?\d")
_SMOOTH = 1.0
_MOST = 2.0
"""A word speaks for or against an answer with at most so much, in natural logarithms."""
_EXTREME = 0.02
"""Least share of right answers, and of wrong ones, that is believed."""
_LOSS = 0.3
"""What another answer is worth where the one in its place was right: a question may have two."""
_FEWEST = 5
"""Rated answers that a word stands in before it says anything, and times that the same answer was rated."""


class AnswersElsewhere:
    """How people take answers that are worded like this one, by what they said outside of the part that is repaired.

    Naive Bayes over the words of answers (Maron 1961).  Words of the part alone say nothing: there the wrong answer
    and the right one share them.

    Args:
        rated: an answer, and whether people liked it; none of the part's.
    """

    def __init__(self, rated: Iterable[tuple[str, bool]]) -> None:
        ups, downs, counts = Counter[str](), Counter[str](), Counter[bool]()
        self.said = Counter[tuple[str, bool]]()
        """An answer and whether people liked it → how often, whatever was asked."""
        for answer, up in rated:
            counts[up] += 1
            self.said[answer, up] += 1
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


def _cut_short(answer: str, whole: str) -> bool:
    """True if an answer is the beginning of another one; 160 is no beginning of 1605, nor of 160.50."""
    part = answer.rstrip(" .…")
    rest = whole[len(part) :]
    return whole.startswith(part) and not (part[-1:].isdigit() and _DIGITS.match(rest))


class Steer:
    """A Reward that steers where nothing that an answer shows tells whether people like it.

    What they disliked has to change, what they liked has to stay; of answers that nobody knows, those are worth a
    little more that are like liked ones, here and elsewhere.  It proves nothing: any change that moves the disliked
    answers alone is worth much the same to it.

    Thumbs are wrong now and then, so an answer is right with a probability: that of the thumbs which it got, and of how
    many answers are right at all, here and elsewhere apart.  Where nearly every answer is bad, the few that somebody
    liked are mostly mistakes and hold nothing in place.

    Args:
        rated: what was said of each answer.
        own: inputs of the part that is repaired.
        wrong: share of wrong thumbs.
        elsewhere: how people take such answers outside of this part.
    """

    name, version = LIKED, "steer 3"

    def __init__(
        self, rated: Sequence[Rated], own: Collection[str], wrong: float, elsewhere: AnswersElsewhere
    ) -> None:
        self._fitted, self._elsewhere = FittedReward(rated), elsewhere
        self._right: dict[str, dict[str, float]] = {}
        """Input → answer → probability that it is right."""
        told: dict[tuple[str, str], int] = Counter()
        for thumb in rated:
            told[thumb.input, thumb.answer] += 1 if thumb.up else -1
        base = {}
        for inside in (True, False):
            ups = [thumb.up for thumb in rated if (thumb.input in own) is inside]
            share = (sum(ups) / len(ups) - wrong) / (1 - 2 * wrong) if ups else 0.5
            base[inside] = min(1 - _EXTREME, max(_EXTREME, share))
        for (input, answer), balance in told.items():
            prior = base[input in own]
            odds = math.log(prior / (1 - prior)) + balance * math.log((1 - wrong) / wrong)
            self._right.setdefault(input, {})[answer] = 1 / (1 + math.exp(-odds))
        self._said = elsewhere.said + Counter((thumb.answer, thumb.up) for thumb in rated)
        self._wrong = wrong
        self.version = digest([[thumb.input, thumb.answer, thumb.up] for thumb in rated], 12)

    def __call__(self, trajectory: Trajectory) -> Score:
        """The probability that an answer is right which people rated; for another one, what may be hoped of it."""
        if trajectory.error is not None:
            return Score(self.name, 0.0, f"it failed: {trajectory.error.type}", self.version)
        answer, right = trajectory.output_text, self._right.get(trajectory.task.instruction, {})
        if not answer.strip():
            return Score(self.name, 0.0, "nothing was answered", self.version)
        if answer in right:
            return Score(self.name, round(right[answer], 3), "as people's thumbs have it", self.version)
        # A limit of words changes every answer, and mends none.
        cut = [value for whole, value in right.items() if _cut_short(answer, whole)]
        if cut:
            return Score(self.name, round(min(cut), 3), "a rated answer, cut short", self.version)
        # Of answers that nobody knows those are likelier that are like some that people liked.
        like = self._fitted(as_text(trajectory.task.initial_state["input"]), answer)
        hope = min(0.3 + 0.2 * like + 0.5 * self._elsewhere(answer), self._liked_of(answer))
        lost = max(right.values(), default=0.0)
        reason = "it takes the place of an answer that people liked" * (lost > 0.5)
        return Score(self.name, round(lost * _LOSS + (1 - lost) * hope, 3), reason, self.version)

    def _liked_of(self, answer: str) -> float:
        """Share of people who liked this very answer, to whatever they asked; 1 of one that few were given.

        An apology is no better for the question that it was not given to yet.
        """
        ups, downs = self._said[answer, True], self._said[answer, False]
        if ups + downs < _FEWEST:
            return 1.0
        share = (ups + _SMOOTH) / (ups + downs + 2 * _SMOOTH)
        return min(1 - _EXTREME, max(_EXTREME, (share - self._wrong) / (1 - 2 * self._wrong)))
