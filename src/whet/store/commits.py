"""Keeps the queue's memory and the record consistent.

A change of entries is written first, and applied to the memory once it is durable, or undone if the write
failed.  The writer's thread reports this and must not wait for the queue's lock, because its holder may be
waiting for the writer: so reports are queued, and applied by the lock's holder, or by whoever takes it
next, before anything else is read.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future

from ..errors import StoreError
from .access import Access
from .board import Board, Entry
from .futures import Event
from .writer import Value, Writes


class Commits:
    """The lock over a Board, and the way from it to the file and back.

    Args:
        store: where changes are written.
        board: what they are of.
    """

    def __init__(self, store: Access, board: Board) -> None:
        self._store = store
        self._board = board
        self._lock = threading.Lock()
        self._events: deque[Event] = deque()
        self.listeners: list[Callable[[], None]] = []
        """Called, without the lock, when something came to wait."""
        self.closed = False

    def note(self, apply: Callable[[BaseException | None], None]) -> None:
        """Have something that is durable already brought into the memory."""
        self._events.append(Event(apply, None, None))
        self.settle()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """The lock, with what was committed meanwhile applied first; then tell whom it concerns."""
        with self._lock:
            if self.closed:
                raise StoreError("the queue is closed with its store. Open it again with whet.Store(path).")
            told = self._apply()
            try:
                yield
            finally:
                told += self._apply()
                fresh, self._board.fresh = self._board.fresh, False
        self._tell(told, fresh)
        self.settle()

    def _apply(self) -> list[Event]:
        """Bring what was committed, or was not, into the memory."""
        told: list[Event] = []
        while self._events:
            event = self._events.popleft()
            event.apply()
            told.append(event)
        return told

    def settle(self) -> None:
        """Apply what came in, unless someone holds the lock: whoever does applies it when letting go.

        The writer's thread calls this, and it may not wait: who holds the lock may wait for the writer.
        """
        while self._events and self._lock.acquire(blocking=False):
            try:
                told = self._apply()
                fresh, self._board.fresh = self._board.fresh, False
            finally:
                self._lock.release()
            self._tell(told, fresh)

    def _tell(self, told: Sequence[Event], fresh: bool) -> None:
        for event in told:
            event.tell()
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
            self._events.append(Event(apply, done.exception(), settled))
            self.settle()

        try:
            size = change.size + 200 * len(change.entries)
            self._store.write(change.writes, size).add_done_callback(finished)
        except BaseException as problem:
            apply(problem)
            raise
        return settled


class Change:
    """What is written of entries in one commit, and what their memory does about it."""

    __slots__ = ("entries", "size", "then", "undo", "writes")

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.writes: list[tuple[str, Sequence[Sequence[Value]]]] = []
        self.size = 0
        self.then: list[Callable[[], None]] = []
        self.undo: list[Callable[[], None]] = []

    def add(
        self,
        entries: Sequence[Entry],
        writes: Writes,
        *,
        size: int = 0,
        then: Callable[[], None] | None = None,
        undo: Callable[[], None] | None = None,
    ) -> None:
        """More of it.

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
