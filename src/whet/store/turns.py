"""What a worker does between two rollouts, sorted: reports that are new, repeated or refused."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import NamedTuple

from ..types import Lease
from .board import Board, Entry
from .rollouts import Report


class Turned(NamedTuple):
    """What became of a turn."""

    problems: list[Exception | None]
    """One for each report, None where it is recorded."""
    leases: list[Lease]


class Sorted(NamedTuple):
    """Reports, by what is to be done about them; each with its place among those given."""

    fresh: dict[int, tuple[Entry, Report]]
    """By fence: to be recorded."""
    places: list[int]
    """Of what is fresh, and of what it repeats."""
    waits: list[tuple[int | None, Future[None]]]
    """Being recorded already."""
    unknown: list[tuple[int, Report]]


def turned(
    problems: list[Exception | None],
    waits: Sequence[tuple[int | None, Future[None]]],
    leases: list[Lease],
) -> Future[Turned]:
    """The answer to a turn, once all that it waits for is settled.

    Args:
        problems: of the reports, as far as they are known.
        waits: what is being written, with the place of the report in it; None for the claim.
    """
    result: Future[Turned] = Future()
    left = len(waits)
    lock = threading.Lock()
    unclaimed: BaseException | None = None
    if not waits:
        result.set_result(Turned(problems, leases))

    def finished(place: int | None, done: Future[None]) -> None:
        nonlocal left, unclaimed
        problem = done.exception()
        with lock:
            if place is None:
                unclaimed = problem
            else:
                problems[place] = problem if isinstance(problem, Exception) else None
            left -= 1
            last = left == 0
        if not last:
            return
        if unclaimed is not None:
            result.set_exception(unclaimed)
        else:
            result.set_result(Turned(problems, leases))

    for place, future in waits:
        future.add_done_callback(partial(finished, place))
    return result


def sort(
    reports: Sequence[Report | None], board: Board, ending: Mapping[int, tuple[str, Future[None]]]
) -> Sorted:
    """Which reports are new, which are being recorded, and which the file has to be asked about.

    Args:
        reports: None where there is nothing to record.
        ending: fence → digest of the report that is being recorded under it, and when that is done.
    """
    found = Sorted({}, [], [], [])
    fresh = found.fresh
    for place, report in enumerate(reports):
        if report is None:
            continue
        fence = report.given.fence
        entry = board.entries.get(report.given.id)
        known = ending.get(fence)
        if known is not None and known[0] == report.digest:
            found.waits.append((place, known[1]))
        elif fence in fresh and fresh[fence][1].digest == report.digest:
            found.places.append(place)
        elif entry is not None and entry.fence == fence and entry.change is None and fence not in fresh:
            fresh[fence] = (entry, report)
            found.places.append(place)
        else:
            found.unknown.append((place, report))
    return found
