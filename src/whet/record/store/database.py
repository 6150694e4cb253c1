"""The file of a store, which processes share: rows are read from it, writes go through the process that owns it.

The first process to open the file becomes its owner and commits; the others send it their writes.  When the owner
ends, one of them takes over.  `group_commit.py` gathers what is written, `owner.py` commits it, `client.py` reaches
the owner.
"""

from __future__ import annotations

import contextlib
import glob
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ...errors import StoreBusyError, StoreError
from .client import OwnerClient, absorb_spool, ask_to_yield
from .codec import encode_json
from .group_commit import CommitThread, Link, LinkLost, Value, Writes
from .owner import SQLITE_ERRORS, Owner, claim, failure
from .read_only import ReadOnlyLink, check_readable, denied, log_problem, unmerged
from .segments import SEGMENT

if TYPE_CHECKING:
    from .redaction.redact import Redactor

STATEMENTS_KEPT = 24
"""Prepared statements of a connection: those that look for spans take 8 to 17 KB each, and each segment has its own."""
PATIENCE = 30.0
"""Seconds that a process looks for an owner, or to become it, before a write fails."""
TAKE_OVER = 3.0
"""Seconds that a server tries to get the file from the process that owns it."""
COURTESY = 1.0
"""Seconds for which a process that gave the file up does not take it again."""
_inherited: list[object] = []
"""SQLite connections that a fork copied: never to be used or closed in the child."""


class DatabaseReader:
    """A file of a store that is only read: read-only connections, one for each thread that reads at the time.

    Args:
        path: of the file; it is opened by the first query.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        # The pool needs no lock: append and pop of a deque are atomic.
        self._idle: deque[sqlite3.Connection] = deque()
        self._closed = False
        self._immutable = False
        """No log stands beside the file and none can be made, nor what readers of one share."""

    def rows(self, query: str, values: Sequence[Value] = ()) -> list[Any]:
        """All rows of a query on the committed content.

        Raises:
            StoreError: closed, damaged, or not readable.
        """
        if self._closed:
            raise StoreError(f"{self.path} is closed. Open it again with whet.Store(path).")
        if self._immutable and unmerged(self.path):  # somebody writes it, who sees it by another path
            self._immutable, self._idle = False, deque()
        try:
            try:
                connection = self._idle.pop()
            except IndexError:
                connection = self._open()
            try:
                # All rows at once: a cursor left open would hold a read
                # transaction, and the log could not be reset.
                rows = connection.execute(query, values).fetchall()
            except BaseException:
                connection.close()
                raise
            self._idle.append(connection)
            return rows
        except SQLITE_ERRORS as exception:
            raise failure(self.path, exception) from exception

    def close(self) -> None:
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            # Quoted: a `?`, `#` or `%` in the path would mean something else in a URI.
            f"file:{quote(self.path)}?mode=ro{'&immutable=1' if self._immutable else ''}",
            uri=True,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=STATEMENTS_KEPT,
        )
        connection.execute("PRAGMA busy_timeout = 10000")
        return connection


class Database(DatabaseReader):
    """The file with its one writer: what the parts of a Store read and write through.

    Args:
        path: a file, made if it does not exist, or ":memory:".
        serve: this process is the store's server; a second one is refused.
        segment: spans in a time segment.

    Raises:
        StoreError: folder missing, no permission, a folder, not a store, damaged.
        StoreVersionError: written by a newer whet.
        StoreBusyError: `serve` is set and another server runs on this file.
    """

    def __init__(self, path: str, *, serve: bool = False, segment: int = SEGMENT) -> None:
        super().__init__(path)
        self.redactor: Redactor | None = None
        """Takes secrets out of what is written; if None, the one of this process does (`redaction/current.py`)."""
        self._segment = segment
        self._closing: list[Callable[[], None]] = []
        self._start = threading.Lock()
        self._server: int | None = None
        self._writer: CommitThread | None = None
        serve_file = serve and not self.in_memory
        if not self.in_memory:
            self._check(serve)
        if serve_file:
            # Before the file is opened: a second server must not become its owner, however briefly.
            self._server = claim(self.path + ".server")
            if self._server is None:
                raise StoreBusyError(
                    f"another server runs on {self.path} (process {holder(self.path)}). Stop it first."
                )
        try:
            self._writer = CommitThread(self._connect)
        except BaseException:
            self._release_server()
            raise
        if self.read_only is not None:
            self._check_readable()
        if serve_file:
            self.take_over()
        if self.owner and not self.in_memory:
            self._absorb()

    def _check(self, serve: bool) -> None:
        """Refuse a path that cannot be a store, before anything is made beside it."""
        if os.path.isdir(self.path):
            raise StoreError(
                f"{self.path} is a folder, and a store is a file. Name one in it: {self.path}/runs.db"
            )
        if serve and os.path.exists(self.path) and not os.access(self.path, os.W_OK):
            raise StoreError(
                f"{self.path} is not writable by this user, and a server has to write it. Change its owner or mode."
            )

    def _check_readable(self) -> None:
        """Refuse a store that may only be read, and cannot be."""
        self._immutable = not unmerged(self.path)
        try:
            connection = self._open()
            try:
                check_readable(self.path, connection)
            finally:
                connection.close()
        except SQLITE_ERRORS as exception:
            self.close()
            raise (
                failure(self.path, exception) if self._immutable else log_problem(self.path, exception)
            ) from exception
        except StoreError:
            self.close()
            raise

    @property
    def read_only(self) -> StoreError | None:
        """The reason why this process may only read the file; None where it may write, itself or through the owner."""
        link = self._writer.link if self._writer is not None else None
        return link.refusal if isinstance(link, ReadOnlyLink) else None

    @property
    def in_memory(self) -> bool:
        return self.path == ":memory:"

    @property
    def owner(self) -> Owner | None:
        """The link into the file, None where another process writes it."""
        link = self._writer.link if self._writer is not None and not self._closed else None
        return link if isinstance(link, Owner) and not link.gave_way else None

    def rows(self, query: str, values: Sequence[Value] = ()) -> list[Any]:
        """All rows of a read-only query.

        Raises:
            StoreError: the store is closed, damaged or not readable.
        """
        if not self.in_memory:
            return super().rows(query, values)
        owner = self.owner
        if owner is None:
            raise StoreError("the store is closed, and what lay in memory is gone.")
        try:
            with owner.mutex:  # in memory, readers share the writer's connection
                return owner.connection.execute(query, values).fetchall()
        except SQLITE_ERRORS as exception:
            raise failure(self.path, exception) from exception

    def write(self, writes: Writes, size: int | None = None) -> Future[None]:
        """Queue encoded writes that commit together; the future is done once they are durable.

        Args:
            size: their bytes, where known.

        Raises:
            StoreError: the store is closed.
        """
        if self._closed:
            raise StoreError(f"{self.path} is closed. Open it again with whet.Store(path).")
        writer = self._writer
        if writer is None:  # in a forked child
            with self._start:
                if self._writer is None:
                    self._writer = CommitThread(self._connect)
                writer = self._writer
        return writer.submit(writes, size)

    @property
    def waiting(self) -> int:
        """Bytes that wait for their commit; a writer beyond `group_commit.WAITING` has to wait."""
        return 0 if self._writer is None else self._writer.waiting

    def before_close(self, callback: Callable[[], None]) -> None:
        """Have `callback` called when the store closes, while it can still be written to."""
        self._closing.append(callback)

    def close(self) -> None:
        """Commit all that waits, then let go of the file.  Repeating it does nothing."""
        if self._closed:
            return
        # They may still write: `_closed` is set by the base class's close, below.
        for callback in self._closing:
            callback()
        super().close()  # readers first, so that the writer is the last and leaves no WAL behind
        if self._writer is not None:
            self._writer.close()
        self._release_server()

    def take_over(self) -> bool:
        """Have the process that owns the file give it to this one; True if this one owns it now.

        For a server, which must own what it hands out.  The other process goes on recording, through
        this one.  It keeps the file if it hands out work itself (`Store.queue`).

        Raises:
            StoreError: the store is closed, or cannot be written.
        """
        deadline = time.monotonic() + TAKE_OVER
        while not self.owner and time.monotonic() < deadline and ask_to_yield(self.path):
            # Only a write finds out that its owner is gone.
            state = ("server", time.time(), encode_json({"pid": os.getpid()}))
            self.write([("state", [state])]).result()
        return self.owner is not None

    def _absorb(self) -> None:
        """Take in what tracing spooled while no owner could be reached.

        A spool that cannot be taken in now, because the disk is full for instance, stays for the next owner.
        """
        for path in sorted(glob.glob(glob.escape(self.path) + ".spool-*")):
            with contextlib.suppress(StoreError):
                absorb_spool(path, lambda writes: self.write(writes).result())

    def _connect(self, writer: CommitThread) -> Link:
        """Become the owner of the file, or reach it.

        Raises:
            StoreError: the file cannot be owned, and its owner does not answer.
        """
        if self.in_memory:
            return Owner(self.path, None, writer.submit, segment=self._segment)
        began = time.monotonic()
        deadline = began + PATIENCE
        lost_link = getattr(writer, "link", None)  # the writer's first link is made before it has one
        # A process that was asked to give the file up lets the other have it, and takes it back if nobody comes.
        polite = began + COURTESY if isinstance(lost_link, Owner) and lost_link.gave_way else began
        while True:
            forbidden: StoreError | None = None
            try:
                # The lock before the socket: a killed owner leaves its socket behind, but never its lock.
                lock = claim(self.path + ".lock") if time.monotonic() >= polite else None
                if lock is not None:
                    return self._own(lock, writer)
            except StoreError as exception:
                if not denied(self.path, exception):
                    raise
                forbidden = exception
            try:
                return OwnerClient(self.path)
            except LinkLost as exception:
                if forbidden is not None:  # nobody who may write it is there
                    return ReadOnlyLink(self.path, forbidden)
                if time.monotonic() > deadline:
                    raise StoreError(
                        f"{self.path} is owned by process {holder(self.path)}, which does not answer "
                        f"({exception}). Stop it, or wait until it is done."
                    ) from exception
            # An owner that has the lock may not listen yet, so a refused connection is tried again.
            time.sleep(0.02)

    def _own(self, lock: int, writer: CommitThread) -> Owner:
        owner = Owner(self.path, lock, writer.submit, segment=self._segment)
        try:
            owner.listen()
        except BaseException:
            owner.close()
            raise
        return owner

    def _release_server(self) -> None:
        if self._server is not None:
            os.close(self._server)
            self._server = None

    def forked(self) -> None:
        """In a forked child: the file, its lock and its socket are the parent's; connect anew when needed."""
        if self._writer is not None and not self.in_memory:
            # Kept forever: sqlite3 closes a connection that is collected, and
            # that of the parent must not be touched.
            _inherited.append(self._writer)
            self._writer.link.forget()
            self._writer = None
        _inherited.append(self._idle)
        self._idle = deque()
        self._start = threading.Lock()  # the parent's may have been held at the fork
        self._release_server()


def holder(path: str) -> str:
    """The process that serves or owns the store at `path`, for messages."""
    for suffix in (".server", ".lock"):
        with contextlib.suppress(OSError):
            if pid := Path(path + suffix).read_text().strip():
                return pid
    return "unknown"
