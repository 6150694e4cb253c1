"""The one thread that writes: it gathers what has been submitted and hands it on as a group.

While one group is being committed the next one collects, so the cost of a durable commit is
shared by whatever arrived meanwhile.  Where a group goes is a Link: into the file, if this
process owns it (`owner.py`), or through the owner's socket (`client.py`).  When a link is lost,
the writer finds another and sends again what was not acknowledged; every write may be repeated
without effect (`schema.STATEMENTS`).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Protocol

from ..errors import StoreError

Value = str | int | float | bytes | None
Writes = Sequence[tuple[str, Sequence[Sequence[Value]]]]
"""(key of `schema.STATEMENTS`, rows), applied in order and together."""

GROUP = 2_000
"""Rows that one commit gathers at most; beyond this a group gains nothing and delays its first."""
RELEASE = "release"
"""The key of a write that changes what is live."""
WAITING = 64 * 1024 * 1024
"""Bytes that may wait; a submitter beyond this waits too, which bounds memory on a slow disk."""


@dataclass(slots=True)
class Submission:
    """Writes that commit together, and the future that is done once they have."""

    writes: Writes
    rows: int
    size: int
    future: Future[None] = field(default_factory=Future)


class LinkLost(Exception):
    """The owner is gone; nothing is known of what was under way."""


class Link(Protocol):
    """Where groups go."""

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


class Writer:
    """Runs the thread.

    Args:
        connect: finds a Link; called again when one is lost.
        on_release: called once what is live has been written, before the futures are done.
    """

    def __init__(self, connect: Callable[[Writer], Link], on_release: Callable[[], None]) -> None:
        self._connect, self._on_release = connect, on_release
        self._waiting: deque[Submission] = deque()
        self._size = 0
        self._closed = False
        self._changed = threading.Condition()
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
        rows = sum(len(batch) for _, batch in writes)
        if size is None:
            size = sum(
                len(value) if isinstance(value, str | bytes) else 8
                for _, batch in writes
                for row in batch
                for value in row
            )
        submission = Submission(writes, rows, size)
        submission.future.set_running_or_notify_cancel()  # what is queued cannot be taken back
        with self._changed:
            while self._size > WAITING and not self._closed:
                self._changed.wait()
            if self._closed:
                raise StoreError("the store is closed. Open it again with whet.Store(path).")
            self._waiting.append(submission)
            self._size += size
            self._changed.notify_all()
        return submission.future

    def close(self) -> None:
        """Commit what waits, then let go of the link."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()
        self.link.close()

    def _take(self) -> list[Submission]:
        with self._changed:
            while not self._waiting and not self._closed:
                self._changed.wait()
            group: list[Submission] = []
            rows = 0
            while self._waiting and (not group or rows + self._waiting[0].rows <= GROUP):
                group.append(self._waiting.popleft())
                rows += group[-1].rows
                self._size -= group[-1].size
            self._changed.notify_all()
            return group

    def _run(self) -> None:
        while group := self._take():
            errors: list[Exception | None]
            try:
                errors = self._commit(group)
            except Exception as exception:  # whatever it was, nobody may wait for ever
                errors = [exception] * len(group)
            if any(key == RELEASE for submission in group for key, _ in submission.writes):
                self._on_release()  # before anybody is told that it is durable
            for submission, error in zip(group, errors, strict=True):
                if error is None:
                    submission.future.set_result(None)
                else:
                    submission.future.set_exception(error)

    def _commit(self, group: list[Submission]) -> list[Exception | None]:
        while True:
            try:
                return self.link.commit(group)
            except LinkLost:
                self.link.close()
                self.link = self._connect(self)
