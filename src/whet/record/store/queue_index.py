"""The queue's index in memory: waiting rollouts, leases with their ends, and the commit of changes of either.

A change of entries is written, and brought into the index once it is durable, or undone if it could not be.  The
writer's thread brings that news and may not wait for the index's lock, because whoever holds the lock may be waiting
for the writer: so news is queued, and is applied by whoever has the lock or takes it next, before anything else is
looked at.  What a change means is `queue.py`'s to decide.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TypeVar

from ...errors import StoreError
from ...types import Mode
from .codec import MODES
from .database import Database
from .group_commit import Value, Writes

S = TypeVar("S")
T = TypeVar("T")

_REST = 0.05
"""Seconds after which an entry in the middle of a change is looked at again."""


@dataclass(slots=True, eq=False)
class QueuedRollout:
    """A rollout that has not ended."""

    seq: int
    id: str
    mode: Mode
    max_attempts: int
    attempts: int = 0
    order: int = 0
    """Place in line, as a number that only grows."""
    fence: int | None = None
    """Of the lease that holds it; None while it waits."""
    worker: str | None = None
    lease: float | None = None
    """Seconds, as stated by the worker."""
    until: float = 0.0
    """On the queue's clock."""
    listed: float = 0.0
    """The deadline by which it is looked at; its others in the heap are out of date."""
    change: Future[None] | None = None
    """A change that is being committed: until then it is neither handed out nor taken away."""


class QueueIndex:
    """The entries of all rollouts that have not ended; it takes no lock and writes nothing.

    `fence` and `done` are the last numbers given out.
    """

    def __init__(self) -> None:
        self.fence = 0
        self.done = 0
        self.entries: dict[str, QueuedRollout] = {}
        self.fresh = False
        """Something came to wait since this was last set to False."""
        self._waiting: dict[Mode, OrderedDict[str, QueuedRollout]] = {mode: OrderedDict() for mode in MODES}
        self._deadlines: list[tuple[float, int, QueuedRollout]] = []
        self._order = itertools.count(1)

    def wait(self, entry: QueuedRollout) -> None:
        """Put an entry, new or given up, at the end of those that wait."""
        entry.order = next(self._order)
        entry.fence = entry.worker = entry.lease = None
        self.entries[entry.id] = entry
        self._waiting[entry.mode][entry.id] = entry
        self.fresh = True

    def hold(self, entry: QueuedRollout, fence: int, worker: str, until: float, lease: float) -> None:
        """Give an entry that does not wait to a worker."""
        entry.fence, entry.worker, entry.until, entry.lease = fence, worker, until, lease
        self.entries[entry.id] = entry
        self._list(entry, until)

    def take(self, n: int, modes: Iterable[Mode]) -> list[QueuedRollout]:
        """Remove up to `n` that wait, the longest waiting first."""
        lines = [line for mode in dict.fromkeys(modes) if (line := self._waiting[mode])]
        entries: list[QueuedRollout] = []
        while lines and len(entries) < n:
            line = lines[0] if len(lines) == 1 else min(lines, key=_first_order)
            entries.append(line.popitem(last=False)[1])
            if not line:
                lines.remove(line)
        return entries

    def next(self, n: int, modes: Iterable[Mode]) -> list[QueuedRollout]:
        """Up to `n` that wait in each of the modes, the longest waiting first, left in line."""
        lines = [self._waiting[mode] for mode in dict.fromkeys(modes)]
        return [entry for line in lines for entry in itertools.islice(line.values(), n)]

    def give_back(self, entry: QueuedRollout, attempts: int) -> None:
        """Undo `take`: the entry is first in line again."""
        entry.attempts = attempts
        entry.fence = entry.worker = entry.lease = None
        self._waiting[entry.mode][entry.id] = entry
        self._waiting[entry.mode].move_to_end(entry.id, last=False)
        self.fresh = True

    def withdraw(self, entry: QueuedRollout) -> None:
        """Remove an entry from the line, if it waits."""
        self._waiting[entry.mode].pop(entry.id, None)

    def drop(self, entry: QueuedRollout) -> None:
        """Forget an entry that has ended."""
        self.withdraw(entry)
        entry.fence = None
        self.entries.pop(entry.id, None)

    def due(self, now: float) -> list[QueuedRollout]:
        """Held entries whose lease ended by `now`, in that order; those in the middle of a change come later."""
        expired: list[QueuedRollout] = []
        again: list[QueuedRollout] = []
        while self._deadlines and self._deadlines[0][0] <= now:
            at, fence, entry = heapq.heappop(self._deadlines)
            # What is out of date is skipped here and not taken out of the heap: of a lease
            # that was shortened and lengthened both deadlines are in it.
            if entry.fence == fence and entry.listed == at:
                (expired if entry.change is None and entry.until <= now else again).append(entry)
        for entry in again:
            self._list(entry, max(entry.until, now + _REST))
        return sorted(expired, key=lambda entry: (entry.until, entry.fence))

    def extend(self, entry: QueuedRollout, until: float) -> None:
        """Move the end of a lease."""
        entry.until = until
        # A later end is noticed when the earlier deadline comes: no heap work per heartbeat.
        if until < entry.listed:
            self._list(entry, until)

    def _list(self, entry: QueuedRollout, at: float) -> None:
        if entry.fence is not None:
            entry.listed = at
            # The fence stands before the entry because it is unique:
            # entries have no order to compare them by.
            heapq.heappush(self._deadlines, (at, entry.fence, entry))
        if len(self._deadlines) > 2 * len(self.entries) + 1000:  # mostly of leases that have ended
            # By `listed`, not by `until`: `due` passes over a deadline that is not the listed one, and a lease that
            # was extended would never end.
            self._deadlines = [
                (held.listed, held.fence, held) for held in self.entries.values() if held.fence is not None
            ]
            heapq.heapify(self._deadlines)

    @property
    def deadline(self) -> float | None:
        """The time at which the next lease may end, on the queue's clock."""
        return self._deadlines[0][0] if self._deadlines else None

    def counts(self) -> tuple[int, int]:
        """The number of entries that wait, and of those that are held or changing."""
        waiting = sum(len(line) for line in self._waiting.values())
        return waiting, len(self.entries) - waiting


def _first_order(line: OrderedDict[str, QueuedRollout]) -> int:
    return next(iter(line.values())).order


News = tuple[Callable[[BaseException | None], None], BaseException | None, Future[None] | None]
"""A commit that has succeeded or failed: how it changes the index, its exception, and the future that waits for it."""


class Commits:
    """The lock over a QueueIndex, and the way from it to the file and back.

    Args:
        database: where changes are written.
        index: whose entries they change.
    """

    def __init__(self, database: Database, index: QueueIndex) -> None:
        self._database = database
        self._index = index
        self._lock = threading.Lock()
        self._news: deque[News] = deque()
        self.listeners: list[Callable[[], None]] = []
        """Called, without the lock, when something came to wait."""
        self.closed = False

    def note(self, apply: Callable[[BaseException | None], None]) -> None:
        """Bring a change that is durable already into the index."""
        self._news.append((apply, None, None))
        self.settle()

    def held(self) -> _Held:
        """Hold the lock; commits that came meanwhile are applied first, their futures settled after its release."""
        return _Held(self)

    def _apply(self) -> list[News]:
        """Bring the news of commits, and of those that failed, into the index."""
        applied: list[News] = []
        while self._news:
            news = self._news.popleft()
            apply, problem, _ = news
            apply(problem)
            applied.append(news)
        return applied

    def settle(self) -> None:
        """Apply the news, unless another thread holds the lock: that one applies it when it releases it."""
        # Never blocking: the writer's thread calls this, and the holder of the lock may wait for the writer.
        while self._news and self._lock.acquire(blocking=False):
            try:
                applied = self._apply()
                fresh, self._index.fresh = self._index.fresh, False
            finally:
                self._lock.release()
            self._tell(applied, fresh)

    def _tell(self, applied: Sequence[News], fresh: bool) -> None:
        # Without the lock: a callback of a future may call the queue again.
        for _, problem, settled in applied:
            if settled is not None and problem is None:
                settled.set_result(None)
            elif settled is not None:
                settled.set_exception(problem)
        if fresh:
            for listener in tuple(self.listeners):
                listener()

    def submit(self, change: Change) -> Future[None]:
        """Write a change of entries; they rest until it is durable, then `then`, or `undo` if it failed."""
        settled: Future[None] = Future()
        for entry in change.entries:
            entry.change = settled

        def apply(problem: BaseException | None) -> None:
            for entry in change.entries:
                entry.change = None
            for call in change.then if problem is None else change.undo:
                call()

        def finished(done: Future[None]) -> None:
            self._news.append((apply, done.exception(), settled))
            self.settle()

        try:
            size = change.size + 200 * len(change.entries)
            # `finished` may run right here, under the caller's lock, if the commit is done by then.
            self._database.write(change.writes, size).add_done_callback(finished)
        except BaseException as problem:
            # Nothing was queued, so no news will come: it is undone here, where the caller has the lock.
            apply(problem)
            raise
        return settled


class _Held:
    """The block of `Commits.held`; written out, for every claim and report enters one."""

    __slots__ = ("_applied", "_commits")

    def __init__(self, commits: Commits) -> None:
        self._commits = commits

    def __enter__(self) -> None:
        commits = self._commits
        commits._lock.acquire()
        if commits.closed:
            commits._lock.release()
            raise StoreError("the queue is closed with its store. Open it again with whet.Store(path).")
        self._applied = commits._apply()

    def __exit__(self, *_: object) -> None:
        commits = self._commits
        try:
            self._applied += commits._apply()
            fresh, commits._index.fresh = commits._index.fresh, False
        finally:
            commits._lock.release()
        # Where the block has raised, too: the news are other callers' commits, and would not come again.
        commits._tell(self._applied, fresh)
        commits.settle()


@dataclass(slots=True)
class Change:
    """The writes of entries in one commit, and what the index does once it is durable or has failed."""

    entries: list[QueuedRollout] = field(default_factory=list)
    writes: list[tuple[str, Sequence[Sequence[Value]]]] = field(default_factory=list)
    size: int = 0
    then: list[Callable[[], None]] = field(default_factory=list)
    undo: list[Callable[[], None]] = field(default_factory=list)

    def add(
        self,
        entries: Sequence[QueuedRollout],
        writes: Writes,
        *,
        size: int = 0,
        then: Callable[[], None] | None = None,
        undo: Callable[[], None] | None = None,
    ) -> None:
        """Add to the change.

        Args:
            size: bytes of bodies.
            then: called once it is durable.
            undo: called if it could not be written.
        """
        self.entries += entries
        self.writes += writes
        self.size += size
        self.then += [] if then is None else [then]
        self.undo += [] if undo is None else [undo]


def follow(future: Future[S], value: Callable[[S], T]) -> Future[T]:
    """A future that is done when `future` is, with `value` of its result, or with the exception of either."""
    following: Future[T] = Future()

    def finished(done: Future[S]) -> None:
        try:
            following.set_result(value(done.result()))
        except BaseException as problem:
            following.set_exception(problem)

    future.add_done_callback(finished)
    return following
