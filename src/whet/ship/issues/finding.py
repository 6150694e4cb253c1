"""`find_issues`: looks at the newest runs of a record, and brings its issues up to date.

What fails by itself, tools and runs that end in errors, is grouped by tool and error.  What fails by people's word, a
score or an outcome is looked for in slices (`slices.py`).  A slice that another one explains is that one, and a part of
an issue that stands, in which the same goes wrong, is that issue (`standing_whole.py`).  What is left
and comes since something drifted is an issue of that moment (`drifting.py`).  A burst that
is over is recorded and closed at once.  An issue that was closed or shipped is judged by the runs since then alone: it
is reopened where they fail as before, and a shipped one is closed where they do not.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from ...judge.drift import is_traffic
from ...record.store import Store
from ...record.store.issues import MOST_RUNS, AgentIssue, Component, IssueStatus
from ...record.tracing.signals import hear
from ...stats import wilson
from ...types import Trajectory, digest
from .drifting import drifted_slices, drifts, moments
from .failing import ERRORS, MEASURES, PEOPLE, RETURNS, SAID, SECONDS, TOKENS, TOOL_ERRORS
from .marks import ENDED, ERROR, SINCE, TOOL_MARK, WORD, RunMark, any_value
from .scanning import IssueScan, scan
from .slices import (
    BAD,
    FEWEST_PEOPLE,
    FEWEST_RUNS,
    LEAST_GAP,
    Remaining,
    RunTable,
    TrafficSlice,
    looked_at,
    slices_of,
)
from .standing_whole import slice_as, whole_of
from .timing import Timing, TrafficClock
from .weak_part import SliceEvidence, weak_part

NEWEST = 100_000
"""Runs that are looked at unless told otherwise."""
_EXPLAINED = 0.6
"""Share of a slice's failures that lie in others, from which it is no issue of its own."""
_RELAPSE = 0.01
"""Level at which runs since an issue was closed show that it is back."""
_ENOUGH = 20
"""Judged runs since a change was shipped from which it can be called repaired."""
_SURE = 0.6
"""Certainty from which an issue is diagnosed by looking alone."""
_SEVERAL = 3
"""Values that an error quotes, of none of which most runs are, from which on it is one issue and not one for each."""
_DIRECT = (ERRORS, TOOL_ERRORS)
"""Measures whose failures tell themselves where they are from."""


@dataclass(slots=True)
class _Seen:
    """A slice of failures as it was seen now."""

    slice: TrafficSlice
    runs: array[int]
    timing: Timing
    others: list[TrafficSlice] = field(default_factory=list)
    """Slices of the same runs by other measures."""
    drifted: Sequence[str] = ()
    """What drifted when they began, in sentences."""


def find_issues(
    store: Store,
    *,
    score: str | None = None,
    since: float | None = None,
    newest: int = NEWEST,
    now: float | None = None,
) -> list[AgentIssue]:
    """Look at a record, keep what is found in it, and return all its issues as they stand then.

    Args:
        score: name of a Score in [0, 1] that says which runs failed: those below a half. Their outcomes say so if None.
        since: Unix time in seconds; only runs that began then or later.
        newest: so many of the newest runs; of these shadows, replays and rollouts of learners are left out.
        now: Unix time in seconds that it is, where the record's is not this machine's.
    """
    hear(store, now=now)
    after = max(0, store.newest() - newest)
    served = (run for run in store.trajectories(served=True, after=after, since=since) if is_traffic(run))
    scanned = scan(served, score=score)
    scanned.drifts = drifts(store)
    return update(store, scanned, now=now)


def update(store: Store, scanned: IssueScan, *, now: float | None = None) -> list[AgentIssue]:
    """Bring the issues of a record up to date with what was scanned in it."""
    table = scanned.table
    if table.ids:
        recorded = store.issues.read()
        findings = seen_in(scanned, _repaired(store, table, recorded))
        findings += _since_in(scanned, findings, recorded)
        findings = _wholes(store, scanned, findings, recorded)
        issues = [_issue(store, table, failing, recorded) for failing in findings]
        store.issues.put(*{issue.id: issue for issue in issues}.values(), at=now)
        for issue in issues:
            _diagnosed(store, issue, now)
        for issue in store.issues.read(IssueStatus.CLOSED, IssueStatus.SHIPPED):
            _followed(store, table, issue, now)
    return store.issues.read()


def _repaired(store: Store, table: RunTable, recorded: Iterable[AgentIssue]) -> set[int]:
    """The runs of issues from before a repair of theirs went live.

    Beside those since then, which go well, each phrasing of them would stand out as an issue of its own.
    """
    repaired = set[int]()
    for issue in recorded:
        if issue.status not in (IssueStatus.SHIPPED, IssueStatus.CLOSED) or not issue.where:
            continue
        moves = store.issues.history(issue.id)
        if shipped := [move.at for move in moves if move.status is IssueStatus.SHIPPED]:
            runs = table.runs_with(RunMark(*next(iter(issue.where.items()))))
            repaired.update(run for run in runs if table.started[run] <= shipped[-1])
    return repaired


def seen_in(scanned: IssueScan, repaired: Collection[int] = ()) -> list[_Seen]:
    """The slices of failures in what was scanned, each once.

    Args:
        repaired: runs that say nothing any more (`slices_of`).
    """
    table = scanned.table
    clock = TrafficClock(table.started)
    measures = [measure for measure in MEASURES if measure in table.labels]
    tests = looked_at(table, (measure for measure in measures if measure not in _DIRECT))
    groups = [*_errors(table, ERROR, TOOL_ERRORS), *_errors(table, ENDED, ERRORS)]
    findings = [
        _Seen(failing, table.runs_with(failing.mark), _timing(clock, table, failing)) for failing in groups
    ]
    for measure in measures:
        if measure in _DIRECT:
            continue
        for failing in slices_of(table, measure, tests=tests, repaired=repaired):
            if measure in (SECONDS, TOKENS) and not _jumped(table, failing):
                continue
            explaining = _explaining(failing, findings)
            if explaining is None:
                findings.append(_Seen(failing, table.runs_with(failing.mark), _timing(clock, table, failing)))
            elif explaining:
                explaining[0].others.append(failing)
    return findings


def _jumped(table: RunTable, failing: TrafficSlice) -> bool:
    """True if the slice did not take so much from the beginning: what always has is what it takes."""
    failed = {*failing.failed}
    judged = [run in failed for run in sorted(failing.judged, key=lambda run: table.started[run])]
    first, rest = judged[: len(judged) // 4], judged[len(judged) // 4 :]
    return sum(first) / max(1, len(first)) < sum(rest) / len(rest) / 2


def _since_in(scanned: IssueScan, findings: Sequence[_Seen], recorded: Iterable[AgentIssue]) -> list[_Seen]:
    """Failures since something drifted that nothing else explains."""
    table, seen = scanned.table, list[_Seen]()
    known = [
        RunMark(SINCE, issue.where[SINCE]) for issue in recorded if SINCE in issue.where and not issue.over
    ]
    marks = moments(scanned.drifts, known)
    measures = [measure for measure in MEASURES if measure in table.labels and measure not in _DIRECT]
    explained = {run for finding in findings for run in finding.runs}
    clock = TrafficClock(table.started)
    for mark, sentences in marks.items():
        tests = len(marks) * max(1, len(measures))
        slices = drifted_slices(table, mark, measures, explained, tests=tests)
        if slices:
            runs = table.runs_with(mark)
            # Beside all runs: those since a moment would always be a burst.
            timing = clock.timing(table.started, [table.started[run] for run in slices[0].failed])
            seen.append(_Seen(slices[0], runs, timing, slices[1:], sentences))
            explained.update(runs)
    return seen


def _timing(clock: TrafficClock, table: RunTable, failing: TrafficSlice) -> Timing:
    runs = (
        table.runs_with(RunMark(TOOL_MARK, failing.mark.value.partition(": ")[0]))
        if failing.mark.kind == ERROR
        else ()
    )
    runs = runs or table.runs_with(failing.mark)
    return clock.timing([table.started[run] for run in runs], [table.started[run] for run in failing.failed])


def _explaining(failing: TrafficSlice, findings: Sequence[_Seen]) -> list[_Seen] | None:
    """What explains a slice, the one that explains most first; None where nothing does."""
    failed, explained = set(failing.failed), set[int]()
    shares: list[tuple[int, _Seen]] = []
    for beside in findings:
        both = failed.intersection(beside.runs)
        explained |= both
        shares.append((len(both), beside))
    if len(explained) < _EXPLAINED * len(failed):
        return None
    share, most = max(shares, key=lambda pair: pair[0])
    return [most] if share >= _EXPLAINED * len(failed) else []


def _errors(table: RunTable, kind: str, measure: str) -> list[TrafficSlice]:
    """Errors by tool and kind, where they are more than a few of a tool's calls, and of more than a few people."""
    groups: list[TrafficSlice] = []
    for mark in _error_marks(table, kind):
        failed = list(table.runs_with(mark))
        people = len({table.clusters[run] for run in failed})
        if len(failed) < FEWEST_RUNS or people < FEWEST_PEOPLE:
            continue
        calls = _calls(table, mark)
        onset = min(table.started[run] for run in failed)
        judged = [run for run in calls if table.started[run] >= onset] or failed
        ended = max(table.started[run] for run in failed)
        while_it_lasts = [run for run in judged if table.started[run] <= ended]
        if wilson(len(failed), len(while_it_lasts))[0] < LEAST_GAP:
            continue
        rate = len(failed) / len(judged)
        groups.append(TrafficSlice(mark, measure, judged, failed, rate, 0.0, people, 0.0, [mark]))
    return groups


def _error_marks(table: RunTable, kind: str) -> list[RunMark]:
    """The errors that groups are made of: one that fails for many values is one, whichever value it quotes."""
    by_value: dict[RunMark, list[RunMark]] = defaultdict(list)
    for mark in table.marks:
        if mark.kind == kind:
            by_value[RunMark(kind, any_value(mark.value))].append(mark)
    chosen: list[RunMark] = []
    for whole, marks in by_value.items():
        quoting = [mark for mark in marks if mark != whole]
        counts = [len(table.runs_with(mark)) for mark in quoting]
        if not quoting or (len(quoting) >= _SEVERAL and max(counts) <= sum(counts) / 2):
            chosen.append(whole)
        else:
            chosen += quoting
    return chosen


# -- an issue of what was seen ------------------------------------------------------------------------


def _issue(store: Store, table: RunTable, finding: _Seen, recorded: Iterable[AgentIssue]) -> AgentIssue:
    own = finding.slice
    newest_first = sorted(own.failed, key=lambda run: -table.started[run])
    shown = [table.ids[run] for run in newest_first[:MOST_RUNS]]
    suspect = weak_part(_evidence(table, finding, list(store.trajectories(ids=shown))))
    because = [*finding.drifted, *suspect.because, *(_besides(beside) for beside in finding.others)]
    status, reason = IssueStatus.OPEN, _numbers(own)
    component, resource, certainty = suspect.component, suspect.resource, suspect.certainty
    if finding.timing.traffic_burst:
        component, resource, certainty = Component.NONE, "", 0.8
        because.insert(0, "they came in a burst: hardly anybody asked so before or after")
        if finding.timing.over:
            status = IssueStatus.CLOSED
            reason = "no defect: a burst of questions that the agent cannot answer, and it is over"
    elif finding.timing.failure_burst:
        component, certainty = Component.UPSTREAM, 0.8
        because.insert(0, "they failed in a burst, and went well before")
        if finding.timing.over:
            status, reason = (
                IssueStatus.CLOSED,
                "nothing to repair: it went by itself, and they go well since",
            )
    marks = tuple(str(mark) for mark in own.alike)
    id = _id(own, marks, recorded)
    known = [each for each in recorded if each.id == id and each.status is not IssueStatus.REOPENED]
    tried = next((each for each in known if each.shown), None)
    if tried is not None:
        # What a change has shown stands over what a trace suggests; what comes back may be something else.
        component, resource, certainty = tried.component, tried.resource, tried.certainty
        because = [tried.shown, *because]
    versions = {
        mark.value.partition("=")[0]: mark.value.partition("=")[2]
        for mark in own.alike
        if mark.kind == "version"
    }
    return AgentIssue(
        id=id,
        name=f"{_subject(own)}: {SAID[own.measure]}",
        component=component,
        resource=resource,
        runs=shown,
        affected=len(own.failed),
        traffic=len(finding.runs) / len(table.ids),
        first_seen=min(table.started[run] for run in own.failed),
        last_seen=max(table.started[run] for run in own.failed),
        certainty=min(certainty, 1 - own.p),
        status=status,
        reason=reason,
        measure=own.measure,
        where={own.mark.kind: own.mark.value},
        marks=marks,
        rate=own.rate,
        usual=own.usual,
        people=own.people,
        versions=versions,
        because=because,
        shown="" if tried is None else tried.shown,
    )


def _id(own: TrafficSlice, marks: Sequence[str], recorded: Iterable[AgentIssue]) -> str:
    """The id of the issue that this slice was before, or one of its own."""
    for issue in recorded:
        # Of marks of nearly the same runs another one may be the closest by tomorrow.
        if set(marks) & set(issue.marks) and (str(own.mark) in issue.marks or issue.marks[0] in marks):
            return issue.id
    return digest([own.mark.kind, own.mark.value], 12)


def _wholes(
    store: Store, scanned: IssueScan, findings: Sequence[_Seen], recorded: Sequence[AgentIssue]
) -> list[_Seen]:
    """The findings, where issues that stand take the place of what is but a part of them."""
    table, clock = scanned.table, TrafficClock(scanned.table.started)
    places = {
        finding.slice.mark: _id(finding.slice, [*map(str, finding.slice.alike)], recorded)
        for finding in findings
    }
    known, whole = {issue.id for issue in recorded}, dict[str, _Seen]()
    seen = list[_Seen]()
    for finding in findings:
        own = finding.slice
        new = own.measure not in _DIRECT and own.mark.kind != SINCE and places[own.mark] not in known
        issue = whole_of(store, table, own, recorded) if new else None
        if issue is None:
            seen.append(finding)
        elif issue.id not in {*places.values(), *whole}:
            wide = slice_as(table, issue)
            whole[issue.id] = _Seen(wide, table.runs_with(wide.mark), _timing(clock, table, wide))
    return [*seen, *whole.values()]


def _evidence(table: RunTable, finding: _Seen, failed: Sequence[Trajectory]) -> SliceEvidence:
    own = finding.slice
    inside_runs = set(finding.runs)
    inside: dict[int, int] = {}
    for run in own.failed:
        for column in table.marks_of[run]:
            inside[column] = inside.get(column, 0) + 1
    in_slice: dict[int, int] = {}
    for run in inside_runs:
        for column in table.marks_of[run]:
            in_slice[column] = in_slice.get(column, 0) + 1
    places = set(inside) | {n for n, mark in enumerate(table.marks) if mark.kind == "tool argument"}
    counts = {
        table.marks[column]: (inside.get(column, 0), len(table.holders[column]) - in_slice.get(column, 0))
        for column in places
    }
    labels = table.labels.get(own.measure, bytearray())

    def fine(mark: RunMark) -> float | None:
        judged = [labels[run] for run in table.runs_with(mark) if run not in inside_runs and labels[run]]
        return judged.count(BAD) / len(judged) if len(judged) >= FEWEST_RUNS else None

    return SliceEvidence(
        own.mark,
        own.alike,
        own.measure,
        own.rate,
        finding.timing,
        counts,
        len(own.failed),
        len(table.ids) - len(inside_runs),
        failed,
        fine,
    )


def _subject(own: TrafficSlice) -> str:
    """What sets the slice apart, in words."""
    mark = own.mark
    value = mark.value
    if mark.kind == ERROR:
        tool, _, error = value.partition(": ")
        return f"Calls of {tool} that end in {error}"
    if mark.kind == TOOL_MARK:
        return f"Runs that call {'no tool' if value == 'none' else value}"
    if mark.kind == WORD:
        words = [alike.value for alike in own.alike if alike.kind == WORD]
        longest = sorted(words, key=lambda word: (-len(word.split()), -len(word)))[:1]
        single = [word for word in words if " " not in word and word not in longest[0].split()][:1]
        return "Questions with " + " and ".join(f"“{word}”" for word in [*longest, *single])
    if mark.kind == ENDED:
        return f"Runs that end in {value}"
    if mark.kind == SINCE:
        return f"Runs since {value}"
    return f"Runs with {mark.kind} {value}"


def _numbers(own: TrafficSlice) -> str:
    if own.measure in _DIRECT:
        return f"{len(own.failed)} of {len(own.judged)} fail; {own.people} people met it"
    return (
        f"{len(own.failed)} of {len(own.judged)} fail, {own.rate:.0%} where {own.usual:.0%} is usual for the same "
        f"people; {own.people} people met it"
    )


def _besides(beside: TrafficSlice) -> str:
    how = {PEOPLE: "people's word", RETURNS: "people who come back"}.get(beside.measure, beside.measure)
    return f"also by {how}: {_numbers(beside)}"


# -- its life -----------------------------------------------------------------------------------------


def _diagnosed(store: Store, finding: AgentIssue, at: float | None) -> None:
    """An issue whose part is plain from the record needs nobody to look."""
    stands = store.issues.get(finding.id).status
    if stands in (IssueStatus.OPEN, IssueStatus.REOPENED) and finding.certainty >= _SURE:
        reason = f"put down to {finding.component} {finding.resource}".strip() + f": {finding.because[0]}"
        store.issues.move(finding.id, IssueStatus.DIAGNOSED, reason=reason, after=stands, at=at)


def _followed(store: Store, table: RunTable, issue: AgentIssue, now: float | None) -> None:
    """Judge a shipped or closed issue by the runs since: they relapse, or show that it is repaired."""
    at = store.issues.history(issue.id)[-1].at
    kind, value = next(iter(issue.where.items()))
    look = _errors_since if kind in (ERROR, ENDED) else _failures_since
    step = look(table, issue, RunMark(kind, value), at)
    if step is not None and step[0] is not issue.status:
        store.issues.move(issue.id, step[0], reason=step[1], after=issue.status, at=now)


def _failures_since(
    table: RunTable, issue: AgentIssue, mark: RunMark, at: float
) -> tuple[IssueStatus, str] | None:
    if issue.measure not in table.labels:
        return None
    runs, labels = table.runs_with(mark), table.labels[issue.measure]
    remaining = Remaining(table, issue.measure)
    # What failed before would be the rest that the runs since are held against.
    remaining.take_out([run for run in runs if table.started[run] <= at], table.marks_of)
    windows = _latest(table, [run for run in runs if table.started[run] > at and labels[run]])
    half_way = (issue.rate + issue.usual) / 2
    for window in windows:
        latest = remaining.contrast(window)
        if latest.n >= FEWEST_RUNS and latest.p < _RELAPSE / len(windows) and latest.rate >= half_way:
            return (
                IssueStatus.REOPENED,
                f"it is back: {_counted(issue, latest.failed, latest.n, window, windows)}",
            )
    contrast = remaining.contrast(windows[0])
    if contrast.n >= _ENOUGH and contrast.rate < half_way and contrast.p > _RELAPSE:
        counted = _counted(issue, contrast.failed, contrast.n, windows[0], windows)
        return IssueStatus.CLOSED, f"repaired: {counted}, and {contrast.usual:.0%} is usual"
    return None


def _errors_since(
    table: RunTable, issue: AgentIssue, mark: RunMark, at: float
) -> tuple[IssueStatus, str] | None:
    ended = {*table.runs_with(mark)}
    windows = _latest(table, [run for run in _calls(table, mark) if table.started[run] > at])
    for window in windows:
        failed = len(ended.intersection(window))
        if failed >= FEWEST_RUNS and wilson(failed, len(window))[0] >= issue.rate / 2:
            return (
                IssueStatus.REOPENED,
                f"it is back: {_counted(issue, failed, len(window), window, windows)}",
            )
    failed, since = len(ended.intersection(windows[0])), len(windows[0])
    if since >= _ENOUGH and failed < issue.rate / 2 * since:
        return IssueStatus.CLOSED, f"repaired: {_counted(issue, failed, since, windows[0], windows)}"
    return None


def _latest(table: RunTable, runs: Sequence[int]) -> list[list[int]]:
    """Runs in the order of time: all, the newer half, the newest quarter and so on, the last still enough to judge by.

    What comes back after a long good time would be lost among all runs since.
    """
    windows = [sorted(runs, key=lambda run: table.started[run])]
    while len(windows[-1]) >= 2 * _ENOUGH:
        windows.append(windows[-1][len(windows[-1]) // 2 :])
    return windows


def _counted(
    issue: AgentIssue, failed: int, count: int, window: Sequence[int], windows: Sequence[Sequence[int]]
) -> str:
    newest = "" if window is windows[0] else f"the newest {count} "
    return f"{failed} of {newest or f'{count} '}since it was {issue.status} failed"


def _calls(table: RunTable, mark: RunMark) -> Sequence[int]:
    """The runs that could have ended in an error: those that call its tool, or all."""
    if mark.kind == ERROR:
        return table.runs_with(RunMark(TOOL_MARK, mark.value.partition(": ")[0]))
    return range(len(table.ids))


def standing(issues: Iterable[AgentIssue]) -> list[AgentIssue]:
    """Those that are to be dealt with, the surest and largest first."""
    ours = [issue for issue in issues if not issue.over and issue.component is not Component.NONE]
    return sorted(ours, key=lambda issue: (-issue.affected, issue.id))
