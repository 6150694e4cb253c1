"""Slices of the traffic in which runs fail more than in the rest, by a test that has looked at many of them.

Runs come in clusters, one for each person: a slice counts by how much more often people fail in it than the same people
do elsewhere, so that one who likes nothing makes no slice.  Of person i with n_i judged runs in a slice b_i failed, and
n_i·q_i were to be expected, where q_i is the person's rate elsewhere, shrunk to that of all others by as much as five
runs.  Σ(b_i − n_i·q_i) is divided by the larger of two standard errors, that of independent runs if there is no
difference and that of the people as they differ, and compared with Student's t of G−1 degrees of freedom for G people:
a hundred failures of one person are one piece of evidence.  The level is divided by the number of slices that were
looked at (Bonferroni): where nothing is wrong, anything is named with a probability of about `ALPHA`.

Slices overlap: whatever fails in a tool fails under the words that lead to it.  The one that surely fails most often is
named, widened as long as what it gains fails as often, its runs are taken out, and the rest is looked at anew.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias

from ...stats import t_tail, wilson
from .marks import AGENT, ARGUMENT, CHOICE, RESULT, SEQUENCE, SINCE, SYSTEM, TELLING, TOOL_MARK, RunMark

ALPHA = 0.05
FEWEST_RUNS, FEWEST_PEOPLE = 8, 4
"""Judged runs of a slice, and people, below which nothing is said."""
LEAST_GAP = 0.1
"""Points above the rest below which a slice is no issue, however sure it is."""
_SHRUNK = 5.0
_LOOKED_AT = 120
"""Slices whose people are counted, of those that stand out when runs are just counted."""
_MOST_SLICES = 100
_INSIDE, _AS_OFTEN = 0.9, 0.75
"""Share of a slice that a wider one must hold, and of its rate that the rest of the wider one must reach."""
_DEEPEST = 6
_PART, _WHOLE, _MADE_UP = 0.1, 0.8, 0.6
"""Share of its failures that a part of it must hold, and may hold, and that all its parts must hold together."""
_WAYS = frozenset((TOOL_MARK, SEQUENCE, CHOICE, AGENT, SYSTEM))
"""Kinds of mark that may say which way a run took through the agent, and not what was asked."""
_ANYBODY = 0.7
"""Of the people who would have runs of a way if these were drawn, so many have."""
UNKNOWN, GOOD, BAD = 0, 1, 2


@dataclass(slots=True)
class RunTable:
    """Runs as numbers: a kilobyte each or so, whatever they hold."""

    ids: list[str] = field(default_factory=list)
    started: array[float] = field(default_factory=lambda: array("d"))
    clusters: array[int] = field(default_factory=lambda: array("l"))
    """Person of each run, or session, or the run alone, as a number."""
    labels: dict[str, bytearray] = field(default_factory=dict)
    """Measure → UNKNOWN, GOOD or BAD for each run."""
    marks: list[RunMark] = field(default_factory=list)
    holders: list[array[int]] = field(default_factory=list)
    """For each mark its runs, ascending."""
    values: set[int] = field(default_factory=set)
    """Marks, by their numbers, of the very runs in which an argument or a result of a tool has some value."""
    marks_of: list[list[int]] = field(default_factory=list)
    """For each run its marks, by their numbers."""
    unlike: list[int] = field(default_factory=list)
    """Marks, by their numbers, of which no two have the very same runs: of such the one that says most."""
    ways: set[int] = field(default_factory=set)
    """Marks, by their numbers, that say which way a run took through the agent, whoever asked."""
    _numbers: dict[RunMark, int] = field(default_factory=dict)
    _people: dict[str, int] = field(default_factory=dict)

    def add(self, id: str, started: float, person: str, marks: Iterable[RunMark]) -> int:
        """One more run; its number."""
        number = len(self.ids)
        self.ids.append(id)
        self.started.append(started)
        self.clusters.append(self._people.setdefault(person, len(self._people)))
        for mark in marks:
            column = self._numbers.get(mark)
            if column is None:
                column = self._numbers[mark] = len(self.marks)
                self.marks.append(mark)
                self.holders.append(array("l"))
            self.holders[column].append(number)
        return number

    def label(self, measure: str, run: int, failed: bool | None) -> None:
        """Say whether a run failed by a measure."""
        if failed is not None:
            labels = self.labels.setdefault(measure, bytearray())
            labels.extend(bytes(run + 1 - len(labels)))
            labels[run] = BAD if failed else GOOD

    def prune(self, fewest: int) -> None:
        """Drop marks that hardly any run has: they can never be told from chance."""
        columns = [column for column, holders in enumerate(self.holders) if len(holders) >= fewest]
        self.marks = [self.marks[column] for column in columns]
        self.holders = [self.holders[column] for column in columns]
        self._numbers = {mark: column for column, mark in enumerate(self.marks)}

    def runs_with(self, mark: RunMark) -> array[int]:
        """The runs of a slice, ascending."""
        if mark.kind == SINCE:
            moment = datetime.fromisoformat(mark.value).timestamp()
            return array("l", (run for run, started in enumerate(self.started) if started >= moment))
        column = self._numbers.get(mark)
        return array("l") if column is None else self.holders[column]

    def finish(self) -> None:
        """Give each measure a label of each run, and find the marks that only repeat a value."""
        same = {
            bytes(self.holders[n]) for n, mark in enumerate(self.marks) if mark.kind in (ARGUMENT, RESULT)
        }
        self.values = {n for n, holders in enumerate(self.holders) if bytes(holders) in same}
        first: dict[bytes, int] = {}
        for n in sorted(
            range(len(self.marks)), key=lambda n: (TELLING.index(self.marks[n].kind), self.marks[n].value)
        ):
            first.setdefault(bytes(self.holders[n]), n)
        self.unlike = sorted(first.values())
        self.marks_of = [[] for _ in self.ids]
        for n, holders in enumerate(self.holders):
            for run in holders:
                self.marks_of[run].append(n)
        for labels in self.labels.values():
            labels.extend(bytes(len(self.ids) - len(labels)))
        people_by_runs = Counter(Counter(self.clusters).values())
        self.ways = {
            n
            for n, mark in enumerate(self.marks)
            if mark.kind in _WAYS and self._of_anybody(self.holders[n], people_by_runs)
        }

    def _of_anybody(self, holders: Sequence[int], people_by_runs: Mapping[int, int]) -> bool:
        """True if about as many people have these runs as if they were drawn: what is known of a person is no way.

        Args:
            people_by_runs: number of runs → how many people have so many.
        """
        share = len(holders) / len(self.ids)
        drawn = sum(people * (1 - (1 - share) ** runs) for runs, people in people_by_runs.items())
        return len({self.clusters[run] for run in holders}) >= _ANYBODY * drawn


@dataclass(slots=True)
class TrafficSlice:
    """A slice in which runs fail more than in the rest."""

    mark: RunMark
    measure: str
    judged: list[int]
    """Numbers of its runs of which one knows."""
    failed: list[int]
    rate: float
    usual: float
    """Rate of the rest, without the slices that were named before."""
    people: int
    """Who failed in it."""
    p: float
    alike: list[RunMark] = field(default_factory=list)
    """Marks of nearly the same runs, its own first."""


@dataclass(frozen=True, slots=True)
class Contrast:
    """A slice against the rest."""

    n: int
    failed: int
    rate: float
    usual: float
    people: int
    p: float

    @property
    def surely(self) -> float:
        """The rate that it has at least, by Wilson's interval."""
        return wilson(self.failed, self.n)[0]


class Remaining:
    """The judged runs of one measure that no slice explains yet."""

    def __init__(self, table: RunTable, measure: str) -> None:
        self.table, self.measure = table, measure
        self._labels = bytearray(table.labels[measure])
        people = max(table.clusters, default=-1) + 1
        self._n, self._bad = [0] * people, [0] * people
        for number, label in enumerate(self._labels):
            if label:
                self._n[table.clusters[number]] += 1
                self._bad[table.clusters[number]] += label == BAD
        self.n, self.failed = sum(self._n), sum(self._bad)
        self.counts = [self._count(holders) for holders in table.holders]
        """For each mark its judged runs and those that failed."""

    def _count(self, runs: Sequence[int]) -> tuple[int, int]:
        labels = [self._labels[number] for number in runs]
        bad = labels.count(BAD)
        return labels.count(GOOD) + bad, bad

    def runs(self, runs: Iterable[int]) -> list[int]:
        """Those of the runs that are still judged here."""
        return [number for number in runs if self._labels[number]]

    def failures(self, runs: Iterable[int]) -> list[int]:
        """Those that failed."""
        return [number for number in runs if self._labels[number] == BAD]

    def slice(
        self, mark: RunMark, judged: list[int], contrast: Contrast, alike: list[RunMark]
    ) -> TrafficSlice:
        """The slice of a mark, as these runs show it."""
        failures = self.failures(judged)
        figures = (contrast.rate, contrast.usual, contrast.people, contrast.p)
        return TrafficSlice(mark, self.measure, judged, failures, *figures, alike)

    def contrast(self, runs: Iterable[int], apart: Iterable[int] = ()) -> Contrast:
        """How a slice compares with the rest, person by person.

        Args:
            apart: runs that are no part of the rest, such as those of a wider slice.
        """
        own, beside = self._by_person(runs), self._by_person(apart)
        n, bad = sum(count for count, _ in own.values()), sum(failed for _, failed in own.values())
        all_n = self.n - sum(count for count, _ in beside.values())
        all_bad = self.failed - sum(failed for _, failed in beside.values())
        rest, rest_bad = all_n - n, all_bad - bad
        if not n or not rest:
            return Contrast(n, bad, bad / n if n else 0.0, 0.0, 0, 1.0)
        usual = (rest_bad + 0.5) / (rest + 1)
        # If there is no difference, that of all together is the rate: that of a rest with few failures is too low.
        pooled = all_bad / all_n
        expected, independent = 0.0, n * n * pooled * (1 - pooled) / rest
        differences: list[tuple[int, float]] = []
        for person, (count, failed) in own.items():
            besides, besides_bad = beside.get(person, (0, 0))
            elsewhere = self._n[person] - count - besides
            elsewhere_bad = self._bad[person] - failed - besides_bad
            rate = (elsewhere_bad + _SHRUNK * usual) / (elsewhere + _SHRUNK)
            expected += count * rate
            independent += count * max(rate * (1 - rate), pooled * (1 - pooled))
            differences.append((count, failed - count * rate))
        total = bad - expected
        people_differ = sum((difference - count * total / n) ** 2 for count, difference in differences)
        people_differ *= len(own) / max(1, len(own) - 1)
        t = (total - 0.5) / math.sqrt(max(independent, people_differ, 1e-9))
        p = t_tail(t, len(own) - 1) if t > 0 and len(own) > 1 else 1.0
        people = sum(failed > 0 for _, failed in own.values())
        return Contrast(n, bad, bad / n, expected / n, people, p)

    def _by_person(self, runs: Iterable[int]) -> dict[int, tuple[int, int]]:
        """Person → judged runs, and those that failed."""
        counts: dict[int, tuple[int, int]] = {}
        for number in runs:
            if label := self._labels[number]:
                n, bad = counts.get(self.table.clusters[number], (0, 0))
                counts[self.table.clusters[number]] = (n + 1, bad + (label == BAD))
        return counts

    def take_out(self, runs: Iterable[int], marks_of: Sequence[Sequence[int]]) -> None:
        """These runs are explained: they count neither for a slice nor for the rest any more."""
        for number in runs:
            label = self._labels[number]
            if not label:
                continue
            self._labels[number] = UNKNOWN
            person, bad = self.table.clusters[number], int(label == BAD)
            self._n[person] -= 1
            self._bad[person] -= bad
            self.n, self.failed = self.n - 1, self.failed - bad
            for column in marks_of[number]:
                count, failed = self.counts[column]
                self.counts[column] = (count - 1, failed - bad)


def _gain(n: int, bad: int, usual: float) -> float:
    """Log-likelihood of a slice's own rate over the usual one; 0 where it is not above it."""
    rate = bad / n
    if rate <= usual:
        return 0.0
    usual = min(max(usual, 1e-4), 1 - 1e-4)
    gain = bad * math.log(rate / usual)
    return gain + ((n - bad) * math.log((1 - rate) / (1 - usual)) if bad < n else 0.0)


Proven: TypeAlias = Callable[[int, frozenset[int], int | None], Contrast | None]
"""How a mark's slice compares with the rest without some runs, as one of so many slices that are looked at (all of them
if None); None where that proves nothing."""


def slices_of(
    table: RunTable,
    measure: str,
    *,
    tests: int,
    without: frozenset[str] = frozenset(),
    repaired: Iterable[int] = (),
) -> list[TrafficSlice]:
    """The slices that fail more than the rest by one measure, the one that explains most first.

    Args:
        tests: slices that are looked at over all measures, by which the level is divided.
        repaired: runs from before a repair of theirs went live, which count for no slice and for no rest.
        without: kinds of mark that say the same as the measure does.
    """
    remaining, marks_of = Remaining(table, measure), table.marks_of
    remaining.take_out(repaired, marks_of)
    if remaining.failed < FEWEST_PEOPLE:
        return []
    usable = [column for column in table.unlike if table.marks[column].kind not in without]
    tests = max(1, tests)
    named: list[TrafficSlice] = []

    def proven(column: int, apart: frozenset[int] = frozenset(), among: int | None = None) -> Contrast | None:
        own = table.holders[column]
        contrast = remaining.contrast(own, apart.difference(own) if apart else ())
        enough = contrast.n >= FEWEST_RUNS and contrast.people >= FEWEST_PEOPLE
        return (
            contrast
            if enough
            and contrast.p <= ALPHA / (among or tests)
            and contrast.rate - contrast.usual >= LEAST_GAP
            else None
        )

    while len(named) < _MOST_SLICES:
        standing_out = _standing_out(remaining, usable)
        candidates = [(contrast, column) for column in standing_out if (contrast := proven(column))]
        if not candidates:
            return named
        column = _one(remaining, candidates, usable, proven)
        column = _widened(remaining, column, usable, proven)
        contrast = remaining.contrast(table.holders[column])
        judged = remaining.runs(table.holders[column])
        named.append(remaining.slice(table.marks[column], judged, contrast, _alike(table, column, marks_of)))
        remaining.take_out(judged, marks_of)
    return named


def _one(
    remaining: Remaining,
    candidates: Sequence[tuple[Contrast, int]],
    usable: Sequence[int],
    proven: Proven,
) -> int:
    """The slice that surely fails most often; where it is several that stand alone, the surest of these.

    Its parts are held against the rest without it: against each other none of them stands out.
    """
    column = max(candidates, key=lambda entry: (entry[0].surely, entry[0].n, -entry[1]))[1]
    for _ in range(_DEEPEST):
        slice_runs = frozenset(remaining.table.holders[column])
        bad = set(remaining.failures(slice_runs))
        neighbours = [neighbour for neighbour in usable if neighbour != column]
        alone = _alone(remaining, slice_runs, bad, neighbours, proven)
        parts = _parts_of(remaining, bad, alone, most=_WHOLE)
        if not parts:
            break
        column = max(parts, key=lambda part: (alone[part].surely, -part))
    return column


def _alone(
    remaining: Remaining,
    slice_runs: frozenset[int],
    bad: set[int],
    usable: Sequence[int],
    proven: Proven,
) -> dict[int, Contrast]:
    """Slices that hold a part of the failures of another one and fail more than what is outside of it.

    They lie inside of it; or they are ways through the agent, no wider than it, that fail outside of it as often, so
    that a word which two of them happen to share is no issue.  That the other one fails is known, so that the ways that
    lie in it are but a few that are looked at (a hierarchy of tests, Meinshausen 2008).  Of words that level would make
    an issue of each phrasing of one fault.
    """
    table, inside, beside = remaining.table, list[int](), list[int]()
    size = len(remaining.runs(slice_runs))
    for column in usable:
        n, failed = remaining.counts[column]
        if n < FEWEST_RUNS or failed < max(FEWEST_PEOPLE, _PART * len(bad)):
            continue
        # By its runs and not by its failures: where one tool alone fails, all failures of any word are its.
        own = remaining.runs(table.holders[column])
        both = len(slice_runs.intersection(own))
        if both >= _INSIDE * n:
            inside.append(column)
        elif column in table.ways and both and n <= size and _fails_beside(remaining, slice_runs, own):
            beside.append(column)
    ways = len(table.ways.intersection(inside))
    tried = [(column, ways if column in table.ways else None) for column in inside]
    tried += [(column, None) for column in beside]
    contrasts = ((column, proven(column, slice_runs, among)) for column, among in tried)
    return {column: contrast for column, contrast in contrasts if contrast is not None}


def _fails_beside(remaining: Remaining, slice_runs: frozenset[int], own: Sequence[int]) -> bool:
    """True if these runs fail outside of a slice about as often as in it, as far as so few can tell."""
    within, outside = ([run for run in own if (run in slice_runs) is side] for side in (True, False))
    if len(outside) < FEWEST_PEOPLE:
        return False
    rate = len(remaining.failures(within)) / len(within)
    return wilson(len(remaining.failures(outside)), len(outside))[1] >= _AS_OFTEN * rate


def _parts_of(remaining: Remaining, bad: set[int], proven: Collection[int], *, most: float) -> list[int]:
    """Slices that stand alone, hold a part of these failures each and hardly one in common; the largest first.

    Ways before words: what goes one way through the agent is nearer to one fault than what is asked by one word.  A way
    that crosses several words shuts them out; where too little is left by that, the larger goes first, word or way.

    Returns:
        Marks by their numbers; none where they do not make up the failures together.
    """
    table = remaining.table
    inside = {column: bad & set(table.holders[column]) for column in proven}
    # The values of one argument are no parts: a tool that fails fails for each of them.
    possible = [
        column
        for column, own in inside.items()
        if table.marks[column].kind not in (ARGUMENT, RESULT)
        and (column not in table.values or column in table.ways)
        and _PART * len(bad) <= len(own) <= most * len(bad)
    ]
    # The largest first: two halves are told apart before a piece of either.
    possible.sort(key=lambda column: -len(inside[column]))
    for order in (sorted(possible, key=lambda column: column not in table.ways), possible):
        parts, claimed, held = list[int](), set[int](), 0
        for column in order:
            own = inside[column]
            if len(own & claimed) <= (1 - _INSIDE) * len(own):
                parts.append(column)
                claimed |= own
                held += len(own)
        if held >= _MADE_UP * len(bad):
            return parts
    return []


def _widened(remaining: Remaining, column: int, usable: Sequence[int], proven: Proven) -> int:
    """The widest slice around a slice of which the rest fails about as often: what was picked may be its worst part.

    Not where what it adds is made up of slices that stand alone: then it is several, and not one.
    """
    holders, considered = remaining.table.holders, set(usable)
    own = set(remaining.runs(remaining.table.holders[column]))
    bad = len(remaining.failures(own))
    shared: dict[int, int] = {}
    for number in own:
        for neighbour in remaining.table.marks_of[number]:
            shared[neighbour] = shared.get(neighbour, 0) + 1
    widest, most = column, bad
    for neighbour, both in shared.items():
        n, failed = remaining.counts[neighbour]
        if (
            neighbour not in considered
            or both < _INSIDE * len(own)
            or n - both < FEWEST_PEOPLE
            or failed <= most
        ):
            continue
        added = set(remaining.runs(holders[neighbour])) - own
        added_bad = set(remaining.failures(added))
        # As often as the slice itself, as far as so few runs can tell.
        share = len(added_bad) / len(added)
        if wilson(len(added_bad), len(added))[1] < wilson(bad, len(own))[0] or share < _AS_OFTEN * bad / len(
            own
        ):
            continue
        outside = [part for part in usable if part != neighbour and own.isdisjoint(holders[part])]
        alone = _alone(remaining, frozenset(holders[neighbour]), added_bad, outside, proven)
        if not _parts_of(remaining, added_bad, alone, most=1.0):
            widest, most = neighbour, failed
    return widest


def _standing_out(remaining: Remaining, usable: Sequence[int]) -> list[int]:
    """The marks whose runs stand out when they are just counted: the others need no closer look."""
    usual = remaining.failed / remaining.n if remaining.n else 0.0
    gains = []
    for column in usable:
        n, bad = remaining.counts[column]
        if n >= FEWEST_RUNS and bad >= FEWEST_PEOPLE and bad / n > usual:
            rest = (remaining.failed - bad + 0.5) / (remaining.n - n + 1)
            gains.append((_gain(n, bad, rest), column))
    gains.sort(key=lambda entry: (-entry[0], entry[1]))
    return [column for _, column in gains[:_LOOKED_AT]]


def _alike(table: RunTable, column: int, marks_of: Sequence[Sequence[int]]) -> list[RunMark]:
    """Marks that nearly the same runs have, the slice's own first, then the closest."""
    own = set(table.holders[column])
    shared: dict[int, int] = {}
    for number in own:
        for neighbour in marks_of[number]:
            shared[neighbour] = shared.get(neighbour, 0) + 1
    near = []
    for neighbour, both in shared.items():
        union = len(own) + len(table.holders[neighbour]) - both
        if neighbour != column and both / union >= 0.8:
            near.append((both / union, table.marks[neighbour]))
    near.sort(key=lambda entry: (-entry[0], entry[1]))
    return [table.marks[column], *(mark for _, mark in near[:12])]


def looked_at(table: RunTable, measures: Iterable[str]) -> int:
    """How many slices are looked at over all measures: those with as many judged runs as anything is said of.

    Marks of the very same runs are one slice.
    """
    tests = 0
    unique = [table.holders[column] for column in table.unlike]
    for measure in measures:
        labels = table.labels[measure]
        for holders in unique:
            labelled = 0
            for number in holders:
                labelled += labels[number] != UNKNOWN
                if labelled >= FEWEST_RUNS:
                    tests += 1
                    break
    return tests
