"""Every variant that the searches for one repair tried, and those of them that people may be asked about.

Where a search is only steered, its best variant is as likely wrong as the next: a table with one wrong entry is
"mended" by every other value of it.  So the search is not asked for one variant but for the few that answer
differently, and real traffic tells them apart, one after the other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from statistics import fmean

from ....types import Bundle, Group, Task

MOST_KEPT = 8
"""Variants of one issue that are kept."""
_FEWEST = 3
"""Rows that a variant was run on, and rows on which two that differ are compared."""
_LEAST_GAIN = 0.04
"""Below it is chance: a model answers a few rows otherwise for any change of its prompt."""
_MENDED, _UNTOUCHED = 0.4, -0.05
"""Mean score on disliked rows, and least mean gain on liked ones, of a variant that may well be the repair."""
_MENDED_ROWS = 6
"""Disliked rows that it was run on."""
_LEAST_MOVED = 0.25
"""Share of the disliked answers that a variant has to change: one that leaves them is no repair, and beside others on a
trial it would be taken for what they did."""
_FEWEST_ALIKE, _ALIKE = 3, 0.5
"""Different answers that the agent as it is gives to some rows, and share of them from which on a variant says the same
to everything."""
_ABOUT = 0.05
"""Gains that are taken for the same."""
_SHRINK = 4.0
"""Rows without a gain that are added to those of each variant: one that was run on few is trusted less."""


@dataclass(frozen=True, slots=True)
class AnsweredAgain:
    """What a variant answers to recorded questions whose answers people rated, beside the agent as it is."""

    moved: int
    """Disliked answers in whose place it has others."""
    disliked: int
    kept: int
    """Liked answers that it gives, too."""
    liked: int


@dataclass
class _Tried:
    bundle: Bundle
    values: dict[str, float] = field(default_factory=dict)
    """Task id → score."""
    answers: dict[str, str] = field(default_factory=dict)


class VariantPool:
    """What each variant answered.

    Args:
        start: the agent as it is.
        metric: name of the Score that steers.
        tasks: ids of the rows that count.
        prompts: resources whose variants may rightly answer everything alike: that nothing is known.
    """

    def __init__(self, start: Bundle, metric: str, tasks: Collection[str], prompts: Collection[str]) -> None:
        self._start, self._metric, self._tasks = start, metric, frozenset(tasks)
        self._prompts = frozenset(prompts)
        self._tried: dict[str, _Tried] = {start.id: _Tried(start)}

    def note(self, bundle: Bundle, groups: Sequence[Group]) -> None:
        """Take the runs of a variant; of a task that was run twice the last counts."""
        tried = self._tried.setdefault(bundle.id, _Tried(bundle))
        for group in groups:
            for run in group.trajectories:
                score = run.scores.get(self._metric)
                if score is not None and score.value is not None and group.task.id in self._tasks:
                    tried.values[group.task.id] = score.value
                    tried.answers[group.task.id] = run.output_text

    def bundles(self) -> dict[str, Bundle]:
        """Id → every Bundle that was run."""
        return {id: tried.bundle for id, tried in self._tried.items()}

    def start_value(self, task: Task) -> float:
        """What the agent as it is has on a row; 1 where it was not run."""
        return self._tried[self._start.id].values.get(task.id, 1.0)

    def gain(self, bundle: Bundle) -> float:
        """Mean gain over the start on the rows of both, drawn towards 0; 0 for one that was run on too few."""
        values, before = self._tried[bundle.id].values, self._tried[self._start.id].values
        shared = [values[task] - before[task] for task in values if task in before]
        return sum(shared) / (len(shared) + _SHRINK) if len(shared) >= _FEWEST else 0.0

    def moves(self, bundle: Bundle) -> bool:
        """True if it does better than the start on any row of both."""
        values, before = self._tried[bundle.id].values, self._tried[self._start.id].values
        return any(value > before.get(task, 1.0) + _LEAST_GAIN for task, value in values.items())

    def mended(self) -> Iterator[Bundle]:
        """Those that answer nearly all disliked rows otherwise, and not by an apology, and the other rows as before."""
        before = self._tried[self._start.id].values
        for id, tried in self._tried.items():
            shared = [(before[task], value) for task, value in tried.values.items() if task in before]
            low = [value for old, value in shared if old < 0.5]
            high = [value - old for old, value in shared if old >= 0.5]
            enough = id != self._start.id and len(low) >= _MENDED_ROWS
            mended = enough and fmean(low) >= _MENDED and (not high or fmean(high) >= _UNTOUCHED)
            if mended and not self._answers_alike(tried):
                yield tried.bundle

    def best(self) -> list[Bundle]:
        """Those that are better than the start and answer differently, the likeliest first.

        The best of each piece before the second one of any: which piece is at fault is the likelier mistake.  Of those
        of one piece that gain about the same the one goes first whose answers most others give, too: a limit that is
        twice or ten times as high answers alike once it is high enough, and one that is higher by 1 stands alone (the
        majority of self-consistency, Wang et al. 2023).
        """
        better = [
            tried
            for tried in self._tried.values()
            if tried.bundle.id != self._start.id
            and self.gain(tried.bundle) > _LEAST_GAIN
            and self._moved(tried) >= _LEAST_MOVED
            and (self._prompts.issuperset(self._changed(tried.bundle)) or not self._answers_alike(tried))
        ]
        better.sort(key=lambda tried: -self.gain(tried.bundle))
        pieces: dict[tuple[str, ...], list[_Tried]] = {}
        for tried in better:
            pieces.setdefault(self._changed(tried.bundle), []).append(tried)
        chosen: list[_Tried] = []
        for turn in zip_longest(*(self._ordered(variants) for variants in pieces.values())):
            chosen += [each for each in turn if each and not any(_alike(each, other) for other in chosen)]
        return [tried.bundle for tried in chosen][:MOST_KEPT]

    def replayed(self, bundle: Bundle) -> AnsweredAgain:
        """What it answers, of the rows that both were run on."""
        before = self._tried[self._start.id]
        same: dict[bool, list[bool]] = {True: [], False: []}
        for task, answer in self._tried.get(bundle.id, before).answers.items():
            if task in before.answers:
                same[before.values[task] >= 0.5].append(answer == before.answers[task])
        return AnsweredAgain(same[False].count(False), len(same[False]), sum(same[True]), len(same[True]))

    def _moved(self, tried: _Tried) -> float:
        """Share of the disliked answers that it has others for, and better ones."""
        before = self._tried[self._start.id]
        low = [task for task in tried.values if before.values.get(task, 1.0) < 0.5]
        moved = [
            tried.answers[task] != before.answers[task] and tried.values[task] > before.values[task]
            for task in low
        ]
        return sum(moved) / max(1, len(low))

    def _answers_alike(self, tried: _Tried) -> bool:
        """True if what it changes is the same answer to questions to which the agent as it is says different things.

        A tool that gives nothing any more changes every answer that people disliked, and none of them for the better.
        """
        before = self._tried[self._start.id].answers
        changed = [task for task, answer in tried.answers.items() if before.get(task, answer) != answer]
        were, are = ({answers[task] for task in changed} for answers in (before, tried.answers))
        return len(were) >= _FEWEST_ALIKE and len(are) <= _ALIKE * len(were)

    def _ordered(self, variants: list[_Tried]) -> list[_Tried]:
        """Variants of one piece, once for each way of answering, in the order in which they are to be tried."""
        beside = {id(one): sum(_alike(one, other) for other in variants) for one in variants}
        ordered: list[_Tried] = []
        for tried in sorted(
            variants, key=lambda each: (-round(self.gain(each.bundle) / _ABOUT), -beside[id(each)])
        ):
            if not any(_alike(tried, other) for other in ordered):
                ordered.append(tried)
        return ordered

    def _changed(self, bundle: Bundle) -> tuple[str, ...]:
        before = self._start.ids
        return tuple(sorted(name for name, id in bundle.ids.items() if before.get(name) != id))


def _alike(one: _Tried, other: _Tried) -> bool:
    """True if they answer everything alike that both were asked."""
    shared = one.answers.keys() & other.answers.keys()
    return len(shared) >= _FEWEST and all(one.answers[task] == other.answers[task] for task in shared)
