"""What is open in the queue, in memory: who waits, who holds what until when.

It decides nothing durable and takes no lock; `queue.py` does both.
"""

from __future__ import annotations

import heapq
import itertools
from collections import OrderedDict
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass

from ..types import Mode
from .codec import MODES

_REST = 0.05
"""Seconds after which an entry in the middle of a change is looked at again."""


@dataclass(slots=True, eq=False)
class Entry:
    """A rollout that has not ended."""

    seq: int
    id: str
    mode: Mode
    max_attempts: int
    attempts: int = 0
    order: int = 0
    """Since when it waits, as a number that only grows."""
    fence: int | None = None
    """Of the lease that holds it; None while it waits."""
    worker: str | None = None
    lease: float | None = None
    """Seconds, as stated by the worker."""
    until: float = 0.0
    """On the queue's clock."""
    listed: float = 0.0
    """Which of its deadlines is the one to look at it by."""
    change: Future[None] | None = None
    """A change that is being committed: until then it is neither handed out nor taken away."""


class Board:
    """All entries; `fence` and `done` are the last numbers given."""

    def __init__(self) -> None:
        self.fence = 0
        self.done = 0
        self.entries: dict[str, Entry] = {}
        self.fresh = False
        """Something came to wait since this was last set to False."""
        self._waiting: dict[Mode, OrderedDict[str, Entry]] = {mode: OrderedDict() for mode in MODES}
        self._deadlines: list[tuple[float, int, Entry]] = []
        self._order = itertools.count(1)

    def wait(self, entry: Entry) -> None:
        """Put an entry, new or given up, at the end of those that wait."""
        entry.order = next(self._order)
        entry.fence = entry.worker = entry.lease = None
        self.entries[entry.id] = entry
        self._waiting[entry.mode][entry.id] = entry
        self.fresh = True

    def hold(self, entry: Entry, fence: int, worker: str, until: float, lease: float) -> None:
        """Give an entry that does not wait to a worker."""
        entry.fence, entry.worker, entry.until, entry.lease = fence, worker, until, lease
        self.entries[entry.id] = entry
        self._list(entry, until)

    def take(self, n: int, modes: Iterable[Mode]) -> list[Entry]:
        """Up to `n` that wait, the longest waiting first; they wait no more."""
        lines = [self._waiting[mode] for mode in dict.fromkeys(modes)]
        taken: list[Entry] = []
        while len(taken) < n and (filled := [line for line in lines if line]):
            line = min(filled, key=_first_order)
            taken.append(line.popitem(last=False)[1])
        return taken

    def next(self, n: int, modes: Iterable[Mode]) -> list[Entry]:
        """Up to `n` that wait in each of the modes, the longest waiting first; they go on waiting."""
        lines = [self._waiting[mode] for mode in dict.fromkeys(modes)]
        return [entry for line in lines for entry in itertools.islice(line.values(), n)]

    def give_back(self, entry: Entry, attempts: int) -> None:
        """Undo that an entry was taken: it is first in line again."""
        entry.attempts = attempts
        entry.fence = entry.worker = entry.lease = None
        self._waiting[entry.mode][entry.id] = entry
        self._waiting[entry.mode].move_to_end(entry.id, last=False)
        self.fresh = True

    def withdraw(self, entry: Entry) -> None:
        """It waits no more, if it did."""
        self._waiting[entry.mode].pop(entry.id, None)

    def drop(self, entry: Entry) -> None:
        """It has ended."""
        self.withdraw(entry)
        entry.fence = None
        self.entries.pop(entry.id, None)

    def due(self, now: float) -> list[Entry]:
        """Held entries whose lease ended by `now`, in that order; those in the middle of a change come later."""
        found: list[Entry] = []
        again: list[Entry] = []
        while self._deadlines and self._deadlines[0][0] <= now:
            at, fence, entry = heapq.heappop(self._deadlines)
            if entry.fence == fence and entry.listed == at:
                (found if entry.change is None and entry.until <= now else again).append(entry)
        for entry in again:
            self._list(entry, max(entry.until, now + _REST))
        return sorted(found, key=lambda entry: (entry.until, entry.fence))

    def extend(self, entry: Entry, until: float) -> None:
        """Move the end of a lease; a later one is noticed when the earlier one comes."""
        entry.until = until
        if until < entry.listed:
            self._list(entry, until)

    def _list(self, entry: Entry, at: float) -> None:
        if entry.fence is not None:
            entry.listed = at
            heapq.heappush(self._deadlines, (at, entry.fence, entry))
        if len(self._deadlines) > 2 * len(self.entries) + 1000:  # mostly of leases that have ended
            self._deadlines = [
                (one.until, one.fence, one) for one in self.entries.values() if one.fence is not None
            ]
            heapq.heapify(self._deadlines)

    @property
    def deadline(self) -> float | None:
        """When the next lease may end, on the queue's clock."""
        return self._deadlines[0][0] if self._deadlines else None

    def counts(self) -> tuple[int, int]:
        """How many wait, and how many are held or changing."""
        waiting = sum(len(line) for line in self._waiting.values())
        return waiting, len(self.entries) - waiting


def _first_order(line: OrderedDict[str, Entry]) -> int:
    return next(iter(line.values())).order
