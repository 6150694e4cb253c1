"""What several agents' answers to the same tasks say of the answers that are taken for right.

Each source of answers has an accuracy of its own, and the given answers are one more source: nobody knows what is
right, and accuracies and right answers are estimated in turn (Dawid and Skene 1979, with one number a source in the
place of a table, since the answers are open texts).  Tasks are easy or hard, with an accuracy of each source for
either (after Whitehill et al. 2009, who give each task a difficulty): where all agents fail in different ways the task
is hard, and the given answer no worse for it.  Wrong answers agree now and then, which is estimated too, since models
fall for the same traps.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

GIVEN = ""
"""The source of the answers that are taken for right."""
ROUNDS = 40
_PRIOR = 4.0
"""Tasks that an accuracy needs to weigh as much as where it begins."""
_BEGIN, _BEGIN_GIVEN = (0.8, 0.3), 0.8
"""Accuracies of a source at easy and at hard tasks, and of the given answers, before anything is known."""
_ALIKE = 0.1
"""Chance that two wrong answers are the same, before anything is known."""
_NOBODY = 0.02
"""Chance that nobody's answer is right, before anything is known."""
_EASY, _HARD = 0, 1

Answers = Mapping[str, Sequence[tuple[str, str]]]
"""Task → (source, answer)."""
_Case = tuple[int, str | None]
"""Easy or hard, and the right answer; None for one that nobody gave."""


@dataclass(frozen=True, slots=True)
class Consensus:
    """What is known of one task's answers."""

    right: float
    """The chance that the given answer is right."""
    best: str
    """The likeliest answer of all."""
    sure: float
    """The chance that it is right."""
    sources: int
    """That answered it."""
    agreeing: int
    """Of them with the given answer."""
    backing: int
    """Of them with the likeliest answer."""


class _Estimate:
    """Accuracies, and how often wrong answers agree."""

    def __init__(self, told: Mapping[str, Sequence[tuple[str, str]]]) -> None:
        self.told = told
        sources = {source for each in told.values() for source, _ in each} - {GIVEN}
        self.accuracy = {(source, level): _BEGIN[level] for source in sources for level in (_EASY, _HARD)}
        self.accuracy |= {(GIVEN, _EASY): _BEGIN_GIVEN, (GIVEN, _HARD): _BEGIN_GIVEN}
        self.alike, self.hard = _ALIKE, 0.3

    def chances(self, each: Sequence[tuple[str, str]]) -> dict[_Case, float]:
        """How likely each case is, of one task's answers."""
        answers = list(dict.fromkeys(answer for _, answer in each))
        logs: dict[_Case, float] = {}
        for level, share in ((_EASY, 1 - self.hard), (_HARD, self.hard)):
            for candidate in (*answers, None):
                prior = _NOBODY if candidate is None else (1 - _NOBODY) / len(answers)
                total = math.log(max(1e-6, share) * prior)
                for source, answer in each:
                    right = min(0.99, max(0.01, self.accuracy[source, level]))
                    total += math.log(right if answer == candidate else (1 - right) * self.alike)
                logs[level, candidate] = total
        highest = max(logs.values())
        raised = {case: math.exp(log - highest) for case, log in logs.items()}
        whole = sum(raised.values())
        return {case: weight / whole for case, weight in raised.items()}

    def learn(self, chances: Mapping[str, Mapping[_Case, float]]) -> None:
        """The accuracies under which these chances are likeliest."""
        right, seen = defaultdict[tuple[str, int], float](float), defaultdict[tuple[str, int], float](float)
        same = pairs = hard = 0.0
        for task, each in self.told.items():
            counts = Counter(answer for _, answer in each)
            repeated = sum(count * (count - 1) for count in counts.values())
            for (level, candidate), chance in chances[task].items():
                hard += chance * (level == _HARD)
                own = 0 if candidate is None else counts[candidate]
                wrong = len(each) - own
                same += chance * (repeated - own * (own - 1))
                pairs += chance * wrong * (wrong - 1)
                for source, answer in each:
                    seen[source, level] += chance
                    right[source, level] += chance * (answer == candidate)
        for (source, level), count in seen.items():
            if source == GIVEN:  # whoever wrote it down erred as often at either
                continue
            self.accuracy[source, level] = (right[source, level] + _PRIOR * _BEGIN[level]) / (count + _PRIOR)
        given = (right[GIVEN, _EASY] + right[GIVEN, _HARD] + _PRIOR * _BEGIN_GIVEN) / (
            len(self.told) + _PRIOR
        )
        self.accuracy |= {(GIVEN, _EASY): given, (GIVEN, _HARD): given}
        self.alike = (same + _ALIKE * _PRIOR) / (pairs + _PRIOR)
        self.hard = (hard + 0.3 * _PRIOR) / (len(self.told) + _PRIOR)


def agreement(given: Mapping[str, str], answers: Answers) -> dict[str, Consensus]:
    """How far the sources agree with the answers that were given, for each task that has others.

    Args:
        given: task → answer, as comparable text.
        answers: those of the sources, as comparable text; tasks that are not in `given` are passed over.
    """
    told = {task: [(GIVEN, given[task]), *answers[task]] for task in given if answers.get(task)}
    estimate = _Estimate(told)
    chances = {task: estimate.chances(each) for task, each in told.items()}
    for _ in range(ROUNDS if told else 0):
        estimate.learn(chances)
        chances = {task: estimate.chances(each) for task, each in told.items()}
    return {task: _agreement(each, chances[task]) for task, each in told.items()}


def _agreement(each: Sequence[tuple[str, str]], chances: Mapping[_Case, float]) -> Consensus:
    likely = defaultdict[str, float](float)
    for (_, candidate), chance in chances.items():
        if candidate is not None:
            likely[candidate] += chance
    given, others = each[0][1], [answer for _, answer in each[1:]]
    best = max(likely, key=lambda answer: (likely[answer], answer == given))
    return Consensus(
        right=likely[given],
        best=best,
        sure=likely[best],
        sources=len(others),
        agreeing=others.count(given),
        backing=others.count(best),
    )
