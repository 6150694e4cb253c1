"""The turns of workers between two rollouts: what they report, what they get, and the commit that settles both."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import NamedTuple

from ...errors import ConflictError
from ...types import Lease
from .queue_index import QueuedRollout, QueueIndex
from .rollouts import Claim, EncodedFinish, Finish

Wait = tuple[Sequence[int | None], Future[None]]
"""A commit under way, with the places of its reports; None for the claims."""
Claimed = tuple[list[tuple[QueuedRollout, int, int]], list[QueuedRollout]]
"""What a claim holds, each with its attempt and fence; and what is next in line, if anything must be read."""


class Turned(NamedTuple):
    """The answer to a turn."""

    problems: list[Exception | None]
    """One for each report, None where it is recorded."""
    leases: list[Lease]


class PreparedTurn:
    """Reports, encoded, and a claim.

    Args:
        problems: for each report, why it cannot be recorded.
    """

    __slots__ = ("claim", "finished", "problems", "reports", "undecoded")

    def __init__(
        self,
        finished: Sequence[Finish],
        claim: Claim | None,
        undecoded: bool,
        reports: Sequence[EncodedFinish | None],
        problems: Sequence[Exception | None],
    ) -> None:
        self.finished, self.claim, self.undecoded = finished, claim, undecoded
        self.reports, self.problems = reports, problems


class Sorted(NamedTuple):
    """Reports by how they are answered; each with its place in the request."""

    fresh: dict[int, tuple[QueuedRollout, EncodedFinish]]
    """By fence: to be recorded."""
    places: list[int]
    """Places of fresh reports and of their repetitions."""
    waits: list[Wait]
    """Being recorded already."""
    unknown: list[tuple[int, EncodedFinish]]


def sort(
    reports: Sequence[EncodedFinish | None], index: QueueIndex, ending: Mapping[int, tuple[str, Future[None]]]
) -> Sorted:
    """Sort reports into new ones, those being recorded, and those that the file has to be asked about.

    Args:
        reports: None where there is nothing to record.
        ending: fence → digest of the report that is being recorded under it, and when that is done.
    """
    by_kind = Sorted({}, [], [], [])
    fresh = by_kind.fresh
    for position, report in enumerate(reports):
        if report is None:
            continue
        fence = report.finish.fence
        entry = index.entries.get(report.finish.id)
        recording = ending.get(fence)
        if recording is not None and recording[0] == report.digest:
            by_kind.waits.append(([position], recording[1]))
        elif fence in fresh and fresh[fence][1].digest == report.digest:
            by_kind.places.append(position)
        elif (
            entry is not None
            and entry.fence == fence
            and entry.change is None
            and fence not in fresh
            and report.served is not None
        ):
            fresh[fence] = (entry, report)
            by_kind.places.append(position)
        else:
            by_kind.unknown.append((position, report))
    return by_kind


def turned(
    turns: Sequence[PreparedTurn],
    problems: list[Exception | None],
    waits: Sequence[Wait],
    leases: Mapping[PreparedTurn, list[Lease]],
    apart: Callable[[PreparedTurn], Future[list[Turned]]] | None = None,
) -> Future[list[Turned]]:
    """The answers to turns, once all commits that they wait for are settled.

    Of several turns whose own commit, the last that they wait for, has failed, the future has its exception.

    Args:
        problems: of all reports, as far as they are known.
        apart: gives the answer of one turn where one report's conflict kept all of its commit from being written.
    """
    answer: Future[list[Turned]] = Future()
    unsettled = len(waits)
    lock = threading.Lock()
    unclaimed: BaseException | None = None
    several, last_wait = len(turns) > 1, len(waits) - 1
    # One report that cannot be recorded shall not cost the others of its turn theirs, nor the claim.
    parts = len(turns[0].finished) + (turns[0].claim is not None)

    def told() -> list[Turned]:
        start, answers = 0, []
        for turn in turns:
            end = start + len(turn.reports)
            answers.append(Turned(problems[start:end], leases.get(turn, [])))
            start = end
        return answers

    # It knows no future by name: a future keeps its callbacks, and the two would be a circle.
    def finished(positions: Sequence[int | None], number: int, done: Future[None]) -> None:
        nonlocal unsettled, unclaimed
        problem = done.exception()
        if several and number == last_wait:
            unclaimed = problem
        with lock:
            for position in positions if problem is not None else ():
                if position is None:
                    unclaimed = problem
                else:
                    problems[position] = problem if isinstance(problem, Exception) else None
            unsettled -= 1
            last = unsettled == 0
        if not last:
            return
        if (
            not several
            and apart is not None
            and parts > 1
            and any(isinstance(problem, ConflictError) for problem in (*problems, unclaimed))
        ):
            try:
                apart(turns[0]).add_done_callback(partial(_settle, answer))
            except Exception as problem:  # the store was closed meanwhile
                answer.set_exception(problem)
        elif unclaimed is not None:
            answer.set_exception(unclaimed)
        else:
            answer.set_result(told())

    if not waits:
        answer.set_result(told())
    for number, (positions, future) in enumerate(waits):
        future.add_done_callback(partial(finished, positions, number))
    return answer


def _settle(answer: Future[list[Turned]], done: Future[list[Turned]]) -> None:
    if problem := done.exception():
        answer.set_exception(problem)
    else:
        answer.set_result(done.result())
