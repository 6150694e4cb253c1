"""Failures that nothing marks out but the time from which they come: what drifted since the last release.

`judge.drift` finds the moment, with an e-value that no threshold was tuned for; the runs from then on, without those
that other slices explain, are then held against the rest as any slice is.  So a drift of what is asked that hurts
nobody is no issue, and one that a tool's new answers explain is that tool's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from ...judge.drift import LEAST, Drift, drift, windows
from ...record.store import Store
from .marks import SINCE, RunMark
from .slices import ALPHA, FEWEST_PEOPLE, FEWEST_RUNS, LEAST_GAP, Remaining, RunTable, TrafficSlice

_MOST = 3
"""Moments that are looked at: the surest."""
_APART = 86_400.0
"""Seconds between two moments, below which they are one."""


def drifts(store: Store) -> list[Drift]:
    """What drifted since the last release, the surest first."""
    reference, current = windows(store)
    if min(len(reference), len(current)) < LEAST:
        return []
    return [each for each in drift(reference, current) if each.drifted and each.since is not None]


def since(moment: float) -> RunMark:
    """The mark of all runs from a moment on."""
    return RunMark(SINCE, datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds"))


def moments(found: Sequence[Drift], known: Iterable[RunMark]) -> dict[RunMark, list[str]]:
    """Mark → what drifted then, in sentences.

    Args:
        known: marks of issues that are recorded; the evidence moves with each look, and it is the same drift.
    """
    marks: dict[RunMark, list[str]] = {}
    stand = [*known]
    for each in found:
        assert each.since is not None
        near = [mark for mark in (*marks, *stand) if abs(started(mark) - each.since) < _APART]
        mark = near[0] if near else since(each.since)
        if mark in marks or len(marks) < _MOST:
            marks.setdefault(mark, []).append(each.sentence)
    return marks


def started(mark: RunMark) -> float:
    """The moment of a mark, as Unix time in seconds."""
    return datetime.fromisoformat(mark.value).timestamp()


def drifted_slices(
    table: RunTable, mark: RunMark, measures: Sequence[str], explained: Iterable[int], *, tests: int
) -> list[TrafficSlice]:
    """By which measures the runs from a moment on fail more than those before, the first of the measures first.

    Args:
        explained: runs of slices that are issues of their own.
        tests: moments and measures that are looked at, by which the level is divided.
    """
    gone, slices = [*explained], []
    for measure in measures:
        remaining = Remaining(table, measure)
        remaining.take_out(gone, table.marks_of)
        judged = remaining.runs(table.runs_with(mark))
        contrast = remaining.contrast(judged)
        enough = contrast.n >= FEWEST_RUNS and contrast.people >= FEWEST_PEOPLE
        if enough and contrast.p <= ALPHA / tests and contrast.rate - contrast.usual >= LEAST_GAP:
            failed = remaining.failures(judged)
            slices.append(
                TrafficSlice(
                    *(
                        mark,
                        measure,
                        judged,
                        failed,
                        contrast.rate,
                        contrast.usual,
                        contrast.people,
                        contrast.p,
                    ),
                    [mark],
                )
            )
    return slices
