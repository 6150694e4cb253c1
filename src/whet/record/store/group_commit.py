"""Group commit: one thread writes, many submissions share one durable commit and one statement per kind.

While one group is being committed the next one collects.  Where a group goes is a Link: into the file, if this
process owns it (`owner.py`), or through the owner's socket (`client.py`).  When a link is lost, the writer finds
another and sends again what was not acknowledged; every write may be repeated without effect (`schema.STATEMENTS`).
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from typing import Any, Protocol, TypeVar

from ...errors import StoreError
from .schema import FINISHED, QUEUE_STATEMENTS, STATEMENTS, WIDTHS, portions
from .segments import Segments

T = TypeVar("T")
Value = str | int | float | bytes | None
Writes = Sequence[tuple[str, Sequence[Sequence[Value]]]]
"""(key of `schema.STATEMENTS`, rows), applied in order and together."""

GROUP = 2_000
"""Rows that one commit gathers at most; beyond this a group gains nothing and delays its first."""
WAITING = 64 * 1024 * 1024
"""Bytes that may wait; a submitter beyond this waits too, which bounds memory on a slow disk."""
GATHERING = 0.5
"""Share of a commit's usual time for which the next one waits for those who shared the last one."""
LONGEST_GATHERING = 0.002
"""Seconds of that at most."""


_releases = 0


def releases_written() -> int:
    """Number of releases that this process may have written, to any store: a change means to read again."""
    return _releases


@dataclass(slots=True)
class Submission:
    """Writes that commit together, and the future that is done once they have."""

    writes: Writes
    rows: int
    size: int
    releases: bool = False
    future: Future[None] = field(default_factory=Future)


def ready(value: T) -> Future[T]:
    """A future that is done."""
    future: Future[T] = Future()
    future.set_result(value)
    return future


class LinkLost(Exception):
    """The owner is gone; whether it committed what was under way is unknown."""


class Link(Protocol):
    """The destination of groups."""

    def commit(self, group: Sequence[Submission]) -> list[Exception | None]:
        """Make the group durable; one entry per submission, None where it is.

        Raises:
            LinkLost: find another link and commit the same group there.
        """
        ...

    def close(self) -> None: ...

    def forget(self) -> None:
        """In a forked child: close the copied descriptors and touch nothing else."""
        ...


class CommitThread:
    """Runs the thread.

    Args:
        connect: finds a Link; called again when one is lost.
    """

    def __init__(self, connect: Callable[[CommitThread], Link]) -> None:
        self._connect = connect
        self._waiting: deque[Submission] = deque()
        self._size = 0
        self._closed = False
        self._changed = threading.Condition()
        self._expected = 1
        """Submissions of the last group: who shared a commit is answered together, and comes again together."""
        self._wanted = 1
        """Submissions at which the thread is woken."""
        self._takes = 0.0
        """Seconds of a commit, a moving average."""
        # Last but for the thread: an owner's socket is public before this
        # returns, and peers may submit through it.
        self.link = connect(self)
        self._thread = threading.Thread(target=self._run, name="whet-store-writer", daemon=True)
        self._thread.start()

    def submit(self, writes: Writes, size: int | None = None) -> Future[None]:
        """Queue writes that commit together.

        Args:
            size: their bytes, where the caller knows it more cheaply than by counting.

        Raises:
            StoreError: the store is closed.
        """
        rows = sum([len(batch) for _, batch in writes])
        if size is None:
            size = sum(
                len(value) if isinstance(value, str | bytes) else 8
                for _, batch in writes
                for row in batch
                for value in row
            )
        submission = Submission(writes, rows, size, any(key == "release" for key, _ in writes))
        submission.future.set_running_or_notify_cancel()  # a queued submission cannot be cancelled
        with self._changed:
            # Asked before the own bytes are added: a submission of any size
            # is let in once little enough waits.
            # Never in the writer's own thread, which runs the callbacks of futures: it would wait for itself.
            while (
                self._size > WAITING and not self._closed and threading.current_thread() is not self._thread
            ):
                self._changed.wait()
            if self._closed:
                raise StoreError("the store is closed. Open it again with whet.Store(path).")
            self._waiting.append(submission)
            self._size += size
            if len(self._waiting) >= self._wanted or self._size > WAITING:
                self._changed.notify_all()
        return submission.future

    @property
    def waiting(self) -> int:
        """Bytes that wait for their commit, without those of the one under way."""
        return self._size

    def close(self) -> None:
        """Commit all that waits, then let go of the link."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()  # it commits all that waits before it ends
        self.link.close()

    def _take(self) -> list[Submission]:
        with self._changed:
            while not self._waiting and not self._closed:
                self._changed.wait()
            self._gather()
            group: list[Submission] = []
            rows = 0
            # `not group`: a submission of more than GROUP rows is a group of its own.
            while self._waiting and (not group or rows + self._waiting[0].rows <= GROUP):
                group.append(self._waiting.popleft())
                rows += group[-1].rows
                self._size -= group[-1].size
            self._expected = len(group)
            self._changed.notify_all()
            return group

    def _gather(self) -> None:
        """Wait a moment for those who shared the last commit, where not all of them are here yet.

        Eight workers in step would have two commits for each turn otherwise: the first one back would get a commit
        of its own, for which the other seven wait.  Where nobody comes, the next commit expects as few.
        """
        if len(self._waiting) >= self._expected or self._closed:
            return
        self._wanted = self._expected
        longest = min(LONGEST_GATHERING, GATHERING * self._takes)
        self._changed.wait_for(
            lambda: len(self._waiting) >= self._wanted or self._size > WAITING or self._closed, longest
        )
        self._wanted = 1

    def _run(self) -> None:
        global _releases
        while group := self._take():
            errors: list[Exception | None]
            try:
                errors = self._commit(group)
            except Exception as exception:  # this thread must not end: every later future would wait forever
                errors = [exception] * len(group)
            # Before the futures are done: who waits for one reads what it released.
            # Only inequality matters, so two writers at once may count as one.
            _releases += sum([submission.releases for submission in group])
            for submission, error in zip(group, errors, strict=True):
                if error is None:
                    submission.future.set_result(None)
                else:
                    submission.future.set_exception(error)

    def _commit(self, group: list[Submission]) -> list[Exception | None]:
        while True:
            began = time.perf_counter()
            try:
                errors = self.link.commit(group)
                self._takes += 0.2 * (time.perf_counter() - began - self._takes)
                return errors
            except LinkLost:
                self.link.close()
                # If this raises, the closed link stays, and the next commit on it is LinkLost again.
                self.link = self._connect(self)


class Gathered:
    """The rows of one transaction, gathered so that one statement writes all of a kind.

    Half of what a claim, a finish or a span costs the writer is the number of its statements; a group commit
    has several of each.  Of the queue's rows, a later state of a rollout replaces an earlier one, counters keep
    their highest, and counts add up: what is written is what the changes one by one would have left.  New
    trajectories and spans, of which the first that came is kept, are written in the order in which they came.

    Args:
        segments: where spans go.
    """

    def __init__(self, segments: Segments) -> None:
        self._segments = segments
        self._rows: dict[str, dict[Value, Sequence[Value]]] = {}
        self._trajectories: list[Sequence[Value]] = []
        self._finished: list[Sequence[Value]] = []
        self._spans: list[Sequence[Value]] = []

    def takes(self, key: str, rows: Sequence[Sequence[Value]]) -> bool:
        """Gather rows; False if they are of a kind that is not gathered."""
        if key == "span":
            self._spans += rows
        elif key == "trajectory":
            self._trajectories += rows
        elif key == FINISHED:
            self._finished += rows
        elif key in QUEUE_STATEMENTS:
            self._add(key, rows)
        else:
            return False
        return True

    def _add(self, key: str, rows: Sequence[Sequence[Value]]) -> None:
        """Gather rows of one of `QUEUE_STATEMENTS`; the first column is the key of a row."""
        latest = self._rows.setdefault(key, {})
        if key not in ("counter", "count"):
            latest.update([(row[0], row) for row in rows])
            return
        for row in rows:
            before = latest.get(row[0])
            if before is None:
                latest[row[0]] = row
                continue
            numbers = [value for value in (before[1], row[1]) if isinstance(value, int)]
            latest[row[0]] = (row[0], max(numbers) if key == "counter" else sum(numbers))

    def write(self, connection: sqlite3.Connection) -> None:
        """Run the statements and forget the rows."""
        if self._trajectories:
            run(connection, "trajectory", self._trajectories)
            self._trajectories = []
        if self._finished:
            run(connection, FINISHED, self._finished)
            self._finished = []
        if self._spans:
            self._segments.insert(self._spans)
            self._spans = []
        if self._rows:
            for key in QUEUE_STATEMENTS:
                if key in self._rows:
                    run(connection, key, list(self._rows.pop(key).values()))


def run(connection: sqlite3.Connection, key: str, rows: Sequence[Sequence[Value]]) -> list[Any]:
    """Write rows of one kind, in their order, and return what the statement returns."""
    returned: list[Any] = []
    for part in portions(rows):
        returned += connection.execute(_statement(key, len(part)), tuple(chain.from_iterable(part)))
    return returned


@lru_cache(maxsize=512)
def _statement(key: str, rows: int) -> str:
    width, statement = QUEUE_STATEMENTS[key] if key in QUEUE_STATEMENTS else (WIDTHS[key], STATEMENTS[key])
    row = f"({', '.join('?' * width)})"
    return statement.format(", ".join([row] * rows))
