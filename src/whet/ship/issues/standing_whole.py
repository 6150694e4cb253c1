"""The standing issue that a slice is but a part of: a table with six wrong prices is one issue and not six.

With more traffic each value of an argument and each word of a question stands out alone.  A slice that lies within an
issue that stands, where failures are about as frequent all over, and whose failed answers are worded as some beside
them are, is that issue.  Where they are worded otherwise something else goes wrong there: an issue of its own.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence

from ...record.store import Store
from ...record.store.issues import AgentIssue, IssueStatus
from ...types import Trajectory
from .marks import ENDED, ERROR, SINCE, RunMark, question_of
from .slices import BAD, Remaining, RunTable, TrafficSlice

_WITHIN = 0.9
"""Share of a slice's failures that lie in the issue that it is a part of."""
_AS_OFTEN = 0.6
"""Share of the slice's rate that the whole issue reaches."""
_ALIKE = 0.7
"""Cosine of an answer's words and those of the part's answers from which it is worded as they are."""
_SOME = 0.15
"""Share of the failed answers beside the part that are worded so: the issue may be several, the part one of them."""
_READ = 60
"""Answers that are read on each side."""
_FEWEST = 4
"""Failures beside the slice, below which it is all that there is of the issue."""
_OVER = (IssueStatus.CLOSED, IssueStatus.SHIPPED)
_WORD = re.compile(r"[^\W\d_]+")


def whole_of(
    store: Store, table: RunTable, part: TrafficSlice, recorded: Iterable[AgentIssue]
) -> AgentIssue | None:
    """The issue that stands and has this slice as a part, the widest of several; None where it is one of its own."""
    failed = set(part.failed)
    held: list[tuple[int, AgentIssue, list[int]]] = []
    for issue in recorded:
        kind, value = next(iter(issue.where.items()), ("", ""))
        if issue.status in _OVER or issue.measure != part.measure or kind in (ERROR, ENDED, SINCE, ""):
            continue
        labels = table.labels[part.measure]
        runs = [run for run in table.runs_with(RunMark(kind, value)) if labels[run]]
        bad = [run for run in runs if labels[run] == BAD]
        if len(failed.intersection(bad)) >= _WITHIN * len(failed) and len(bad) >= _AS_OFTEN * part.rate * len(
            runs
        ):
            held.append((len(runs), issue, bad))
    for _, issue, bad in sorted(held, key=lambda each: (-each[0], each[1].id)):
        beside = [run for run in bad if run not in failed]
        if len(beside) < _FEWEST or _alike(_newest(store, table, part.failed), _newest(store, table, beside)):
            return issue
    return None


def slice_as(table: RunTable, issue: AgentIssue) -> TrafficSlice:
    """What a table shows of an issue that is recorded."""
    mark = RunMark(*next(iter(issue.where.items())))
    remaining = Remaining(table, issue.measure)
    judged = remaining.runs(table.runs_with(mark))
    contrast = remaining.contrast(judged)
    marks = [RunMark(*each.split(": ", 1)) for each in issue.marks]
    return remaining.slice(mark, judged, contrast, list(dict.fromkeys([mark, *marks])))


def _newest(store: Store, table: RunTable, runs: Sequence[int]) -> list[set[str]]:
    """The words of the newest answers, but for numbers and for what was asked about."""
    newest = sorted(runs, key=lambda run: -table.started[run])[:_READ]
    return [_words(run) for run in store.trajectories(ids=[table.ids[run] for run in newest])]


def _words(run: Trajectory) -> set[str]:
    asked = _WORD.findall(question_of(run).casefold())
    return {*_WORD.findall(run.output_text.casefold())}.difference(asked)


def _alike(part: Sequence[set[str]], beside: Sequence[set[str]]) -> bool:
    """True if the answers of the part are worded as some of those beside it are."""
    counts = Counter(word for answer in part for word in answer)
    length = math.hypot(*counts.values())
    alike = 0
    for answer in beside:
        along = sum(counts[word] for word in answer)
        alike += (
            along >= _ALIKE * length * math.sqrt(len(answer))
            if answer and counts
            else not answer and not counts
        )
    return alike >= _SOME * len(beside)
