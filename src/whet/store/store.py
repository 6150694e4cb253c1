"""The Store: the durable record of everything, in one SQLite file.

Many processes may open one file.  The first becomes its owner and writes; the others hand
their writes to it and read the file themselves; when the owner ends, one of them takes over.
A call that writes returns once its data is committed and synced: acknowledged is durable.

It does not queue work, judge, or delete.  `writer.py` says how commits are grouped, `owner.py`
how processes share the file.
"""

from __future__ import annotations

import contextlib
import glob
import os
import sqlite3
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from ..errors import NotFoundError, StoreBusyError, StoreError
from ..types import (
    Bundle,
    Feedback,
    Json,
    Outcome,
    Preference,
    Split,
    Task,
    Trajectory,
    Version,
)
from . import spool
from .batch import Batch, Release
from .client import Client
from .codec import decode
from .owner import Owner, claim, failure
from .schema import TABLES
from .writer import Link, LinkLost, Value, Writer, Writes

PATIENCE = 30.0
"""Seconds that a process looks for an owner, or to become it, before a write fails."""
_PAGE = 500

Noun = TypeVar("Noun", Task, Version, Preference)
_stores: weakref.WeakSet[Store] = weakref.WeakSet()
_inherited: list[object] = []
"""SQLite connections that a fork copied: never to be used or closed in the child."""


class Store:
    """The record.  A context manager; `close` commits what waits and lets go of the file.

    Args:
        path: the file, made if it does not exist, or ":memory:" (gone at close; the fake for tests).
        serve: this process is the store's server; a second one is refused.

    Raises:
        StoreError: folder missing, no permission, not a store, damaged.
        StoreVersionError: written by a newer whet.
        StoreBusyError: `serve` is set and another server runs on this file.
    """

    def __init__(self, path: str | os.PathLike[str], *, serve: bool = False) -> None:
        given = os.fspath(path)
        self.path = given if given == ":memory:" else os.path.realpath(given)
        self._readers: deque[sqlite3.Connection] = deque()
        self._closed = False
        self._closing: list[Callable[[], None]] = []
        self._start = threading.Lock()
        self._server: int | None = None
        if serve and not self.in_memory:
            self._server = claim(self.path + ".server")
            if self._server is None:
                raise StoreBusyError(
                    f"another server runs on {self.path} (process {self._holder()}). Stop it first."
                )
        try:
            self._writer: Writer | None = Writer(self._connect)
        except BaseException:
            self._release_server()
            raise
        _stores.add(self)
        if self.owner and not self.in_memory:
            self.absorb()

    @property
    def in_memory(self) -> bool:
        return self.path == ":memory:"

    @property
    def owner(self) -> bool:
        """True if this process writes the file itself."""
        return self._writer is not None and isinstance(self._writer.link, Owner)

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Store({self.path!r})"

    def close(self) -> None:
        """Commit what waits, then let go of the file.  Repeating it does nothing."""
        if self._closed:
            return
        for callback in self._closing:
            callback()
        self._closed = True
        while self._readers:  # first, so that the writer is the last and leaves no WAL behind
            self._readers.pop().close()
        if self._writer is not None:
            self._writer.close()
        self._release_server()

    def before_close(self, callback: Callable[[], None]) -> None:
        """Have `callback` called when the store closes, while it can still be written to."""
        self._closing.append(callback)

    # -- writing ------------------------------------------------------------------------------

    def batch(self) -> Batch:
        """Several kinds of writes in one transaction: all of them or none.

        >>> with store.batch() as batch:
        ...     batch.put(*trajectories)
        ...     batch.put_state("round", 3)
        """
        return Batch(self)

    def put(self, *trajectories: Trajectory, experiment: str | None = None, replace: bool = False) -> None:
        """Record trajectories; returns once they are durable.

        One whose id is already stored is left as it is, or with `replace` overwritten (when it
        has been scored since).

        Raises:
            InputError: something in one of them has no JSON form; none was recorded.
            StoreError: they could not be written; none was recorded.
        """
        with self.batch() as batch:
            batch.put(*trajectories, experiment=experiment, replace=replace)

    def submit(self, *trajectories: Trajectory, experiment: str | None = None) -> Future[None]:
        """As `put`, without waiting: the future is done once they are durable."""
        batch = self.batch()
        batch.put(*trajectories, experiment=experiment)
        return batch.submit()

    def add_feedback(self, *feedback: Feedback) -> None:
        """Record what people said; `Feedback.run` is the id of a run or of a trajectory."""
        with self.batch() as batch:
            batch.add_feedback(*feedback)

    def put_tasks(self, *tasks: Task) -> None:
        """Record tasks; one already stored takes the new split, group and content."""
        with self.batch() as batch:
            batch.put_tasks(*tasks)

    def put_versions(self, *versions: Version) -> None:
        """Record Versions; one already stored stays as it is, for its id is its content."""
        with self.batch() as batch:
            batch.put_versions(*versions)

    def put_preferences(self, *preferences: Preference) -> None:
        """Record preference pairs; an equal one is stored once."""
        with self.batch() as batch:
            batch.put_preferences(*preferences)

    def put_state(self, key: str, value: Json) -> None:
        """Keep a JSON value under a key: an experiment's checkpoint."""
        with self.batch() as batch:
            batch.put_state(key, value)

    def set_live(self, bundle: Bundle, name: str = "live", *, reason: str = "") -> Release:
        """Make `bundle` what is live under `name`; its Versions are recorded with it."""
        with self.batch() as batch:
            return batch.set_live(bundle, name, reason=reason)

    def rollback(self, name: str = "live", *, reason: str = "rollback") -> Bundle:
        """Make live what was live before; repeated, it goes further back.

        Raises:
            NotFoundError: nothing was live before.
        """
        releases = {release.id: release for release in self.history(name)}
        current = next(reversed(releases.values()), None)
        before = releases.get(current.previous) if current and current.previous else None
        if before is None:
            raise NotFoundError(f"nothing was live as {name!r} before what is live now; see `Store.history`.")
        with self.batch() as batch:
            batch.set_live(before.bundle, name, reason=reason, previous=before.previous)
        return before.bundle

    def write(self, writes: Writes) -> Future[None]:
        """Queue encoded writes that commit together; what Batch and the spool use.

        Raises:
            StoreError: the store is closed.
        """
        if self._closed:
            raise StoreError(f"{self.path} is closed. Open it again with whet.Store(path).")
        writer = self._writer
        if writer is None:
            with self._start:
                if self._writer is None:
                    self._writer = Writer(self._connect)
                writer = self._writer
        return writer.submit(writes)

    def absorb(self) -> int:
        """Take in what tracing spooled while no owner could be reached; returns the rows taken in."""
        rows = 0
        for path in sorted(glob.glob(glob.escape(self.path) + ".spool-*")):
            rows += spool.absorb(path, lambda writes: self.write(writes).result())
        return rows

    # -- reading ------------------------------------------------------------------------------

    def trajectories(
        self,
        *,
        experiment: str | None = None,
        ids: Sequence[str] | None = None,
        since: float | None = None,
        outcome: Outcome | None = None,
        limit: int | None = None,
    ) -> Iterator[Trajectory]:
        """Trajectories in the order in which they were recorded, decoded as they are asked for.

        Args:
            ids: of trajectories, or of runs, whose trajectories come all.
            since: Unix time in seconds; only what started then or later.

        Feedback recorded for a trajectory or its run is joined to it.  What is recorded
        while one iterates may or may not come.
        """
        where = ["seq > ?"]
        values: list[Value] = []
        for column, value in (("experiment =", experiment), ("started >=", since), ("outcome =", outcome)):
            if value is not None:
                where.append(f"{column} ?")
                values.append(str(value) if isinstance(value, Outcome) else value)
        if ids is not None:
            marks = ", ".join("?" * len(ids))
            where.append(f"(id IN ({marks}) OR run IN ({marks}))")
            values += [*ids, *ids]
        query = (
            f"SELECT seq, id, run, body FROM trajectories WHERE {' AND '.join(where)} ORDER BY seq LIMIT ?"
        )
        last, left = 0, limit
        while left is None or left > 0:
            size = _PAGE if left is None else min(_PAGE, left)
            page = self._rows(query, [last, *values, size])
            said = self._feedback({key for _, id, run, _ in page for key in (id, run) if key})
            for seq, id, run, body in page:
                last = seq
                yield _joined(
                    decode(body, Trajectory), said.get(id, []) + (said.get(run, []) if run != id else [])
                )
            if len(page) < size:
                return
            if left is not None:
                left -= size

    def trajectory(self, id: str) -> Trajectory:
        """The one trajectory with this id, or the first of the run with this id.

        Raises:
            NotFoundError: there is none.
        """
        for found in self.trajectories(ids=[id], limit=1):
            return found
        raise NotFoundError(f"{self.path} holds no trajectory or run {id!r}.")

    def feedback(self, run: str | None = None) -> Iterator[Feedback]:
        """What people said, of one run or of all, in the order in which it was recorded."""
        where = "" if run is None else "WHERE run = ?"
        values: list[Value] = [] if run is None else [run]
        for (body,) in self._rows(f"SELECT body FROM feedback {where} ORDER BY seq", values):
            yield decode(body, Feedback)

    def tasks(self, *, split: Split | None = None, ids: Sequence[str] | None = None) -> Iterator[Task]:
        """Tasks in the order in which they were first recorded."""
        yield from self._all(Task, "tasks", split=None if split is None else str(split), ids=ids)

    def versions(self, resource: str | None = None, *, ids: Sequence[str] | None = None) -> Iterator[Version]:
        """Versions in the order in which they were first recorded."""
        yield from self._all(Version, "versions", resource=resource, ids=ids)

    def version(self, id: str) -> Version:
        """The Version with this id.

        Raises:
            NotFoundError: there is none.
        """
        for found in self.versions(ids=[id]):
            return found
        raise NotFoundError(f"{self.path} holds no Version {id!r}.")

    def preferences(self) -> Iterator[Preference]:
        """Preference pairs in the order in which they were recorded."""
        yield from self._all(Preference, "preferences")

    def state(self, key: str, default: Json = None) -> Json:
        """The value kept under `key`, else `default`."""
        rows = self._rows("SELECT body FROM states WHERE key = ?", [key])
        return msgspec.json.decode(rows[0][0]) if rows else default

    def live(self, name: str = "live") -> Bundle | None:
        """What is live under `name`, None if nothing ever was."""
        found = self.history(name, last=1)
        return found[0].bundle if found else None

    def history(self, name: str = "live", *, last: int | None = None) -> list[Release]:
        """What was live under `name`, oldest first; the last entry is live now."""
        rows = self._rows(
            "SELECT id, previous, at, reason, body FROM bundles WHERE name = ? ORDER BY seq DESC LIMIT ?",
            [name, -1 if last is None else last],
        )
        releases = []
        for id, previous, at, reason, body in reversed(rows):
            wanted = msgspec.json.decode(body, type=list[str])
            found = Bundle(self.versions(ids=wanted))
            if len(found) != len(wanted):
                raise StoreError(
                    f"{self.path}: Versions of release {id} of {name!r} are missing from the record."
                )
            releases.append(Release(id, name, found, previous, at, reason))
        return releases

    def counts(self) -> dict[str, int]:
        """Table → rows, and `trajectories.<outcome>` → rows."""
        found = {table: int(self._rows(f"SELECT count(*) FROM {table}")[0][0]) for table in TABLES}
        for outcome, count in self._rows("SELECT outcome, count(*) FROM trajectories GROUP BY outcome"):
            found[f"trajectories.{outcome}"] = count
        return found

    # -- inside -------------------------------------------------------------------------------

    def _connect(self, writer: Writer) -> Link:
        """Become the owner, or reach it."""
        if self.in_memory:
            return Owner(self.path, None, writer.submit)
        deadline = time.monotonic() + PATIENCE
        while True:
            lock = claim(self.path + ".lock")
            if lock is not None:
                owner = Owner(self.path, lock, writer.submit)
                try:
                    owner.listen()
                except BaseException:
                    owner.close()
                    raise
                return owner
            try:
                return Client(self.path)
            except LinkLost as exception:
                if time.monotonic() > deadline:
                    raise StoreError(
                        f"{self.path} is owned by process {self._holder()}, which does not answer "
                        f"({exception}). Stop it, or wait until it is done."
                    ) from exception
            time.sleep(0.02)

    def _holder(self) -> str:
        for suffix in (".server", ".lock"):
            with contextlib.suppress(OSError):
                if found := Path(self.path + suffix).read_text().strip():
                    return found
        return "unknown"

    def _rows(self, query: str, values: Sequence[Value] = ()) -> list[Any]:
        try:
            if self.in_memory:
                link = self._writer.link if self._writer and not self._closed else None
                if not isinstance(link, Owner):
                    raise StoreError("the store is closed, and what lay in memory is gone.")
                with link.mutex:
                    return link.connection.execute(query, values).fetchall()
            if self._closed:
                raise StoreError(f"{self.path} is closed. Open it again with whet.Store(path).")
            connection = self._readers.pop() if self._readers else self._reader()
            try:
                rows = connection.execute(query, values).fetchall()
            except BaseException:
                connection.close()
                raise
            self._readers.append(connection)
            return rows
        except sqlite3.Error as exception:
            raise failure(self.path, exception) from exception

    def _reader(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"file:{quote(self.path)}?mode=ro", uri=True, isolation_level=None, check_same_thread=False
        )
        connection.execute("PRAGMA busy_timeout = 10000")
        return connection

    def _all(
        self, noun: type[Noun], table: str, *, ids: Sequence[str] | None = None, **equal: Value
    ) -> Iterator[Noun]:
        where = ["seq > ?"]
        values: list[Value] = []
        for column, value in equal.items():
            if value is not None:
                where.append(f"{column} = ?")
                values.append(value)
        if ids is not None:
            where.append(f"id IN ({', '.join('?' * len(ids))})")
            values += list(ids)
        query = f"SELECT seq, body FROM {table} WHERE {' AND '.join(where)} ORDER BY seq LIMIT {_PAGE}"
        last = 0
        while page := self._rows(query, [last, *values]):
            for last, body in page:  # noqa: B007 - `last` is where the next page begins
                yield decode(body, noun)

    def _feedback(self, runs: set[str]) -> dict[str, list[Feedback]]:
        said: dict[str, list[Feedback]] = {}
        if runs:
            marks = ", ".join("?" * len(runs))
            for run, body in self._rows(
                f"SELECT run, body FROM feedback WHERE run IN ({marks}) ORDER BY seq", [*runs]
            ):
                said.setdefault(run, []).append(decode(body, Feedback))
        return said

    def _release_server(self) -> None:
        if self._server is not None:
            os.close(self._server)
            self._server = None

    def _after_fork(self) -> None:
        """In the child: the file, its lock and its socket are the parent's; connect anew when needed."""
        if self._writer is not None and not self.in_memory:
            _inherited.append(self._writer)
            self._writer.link.forget()
            self._writer = None
        _inherited.append(self._readers)
        self._readers = deque()
        self._start = threading.Lock()
        self._closing = []
        self._release_server()


def _joined(trajectory: Trajectory, said: list[Feedback]) -> Trajectory:
    """Add the feedback that the trajectory did not bring itself."""
    own = {feedback.id for feedback in trajectory.feedback}
    fresh = tuple(feedback for feedback in said if feedback.id not in own)
    if fresh:  # in place: the object was made just now, and nobody else has it
        object.__setattr__(trajectory, "feedback", (*trajectory.feedback, *fresh))
    return trajectory


def _forked() -> None:
    for store in list(_stores):
        store._after_fork()


os.register_at_fork(after_in_child=_forked)
