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
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any

import msgspec

from ..errors import InputError, NotFoundError, StoreBusyError, StoreError
from ..types import (
    Feedback,
    Json,
    Outcome,
    Preference,
    Rollout,
    Split,
    Task,
    Trajectory,
    Version,
)
from . import spool, totals
from .batch import Batch
from .client import ask_for
from .codec import decode
from .connect import connect, holder
from .erase import Erased, erase_subject
from .owner import Owner, claim, failure
from .queue import Queue
from .reader import Readers
from .reading import read_all, read_feedback, read_trajectories
from .release import note_written
from .releases import Releases
from .retain import KEEP, erase_old
from .rollouts import Rollouts
from .schema import TABLES
from .segments import SEGMENT
from .spans import Spans
from .subjects import Subjects
from .writer import Link, Value, Writer, Writes

_stores: weakref.WeakSet[Store] = weakref.WeakSet()
_inherited: list[object] = []
"""SQLite connections that a fork copied: never to be used or closed in the child."""


class Store(Releases):
    """The record.  A context manager; `close` commits what waits and lets go of the file.

    Args:
        path: the file, made if it does not exist, or ":memory:" (gone at close; the fake for tests).
        serve: this process is the store's server; a second one is refused.
        segment: spans in a time segment; a repeated span is recognised across two of them.

    Raises:
        StoreError: folder missing, no permission, a folder, not a store, damaged.
        StoreVersionError: written by a newer whet.
        StoreBusyError: `serve` is set and another server runs on this file.
    """

    def __init__(self, path: str | os.PathLike[str], *, serve: bool = False, segment: int = SEGMENT) -> None:
        given = os.fspath(path)
        self.path = given if given == ":memory:" else os.path.realpath(given)
        self._readers = Readers(self.path)
        self._closed = False
        self._segment = segment
        self._closing: list[Callable[[], None]] = []
        self._start = threading.Lock()
        self._server: int | None = None
        self._queue: Queue | None = None
        self.spans = Spans(self)
        self.rollouts = Rollouts(self)
        self.subjects = Subjects(self)
        if not self.in_memory:
            self._check(serve)
        if serve and not self.in_memory:
            self._server = claim(self.path + ".server")
            if self._server is None:
                raise StoreBusyError(
                    f"another server runs on {self.path} (process {holder(self.path)}). Stop it first."
                )
        try:
            self._writer: Writer | None = Writer(self._connect, note_written)
        except BaseException:
            self._release_server()
            raise
        _stores.add(self)
        if serve:
            self.take_over()
        if self.owner and not self.in_memory:
            self.absorb()

    def _check(self, serve: bool) -> None:
        """Refuse, before anything is made beside it, what can be no store."""
        if os.path.isdir(self.path):
            raise StoreError(
                f"{self.path} is a folder, and a store is a file. Name one in it: {self.path}/runs.db"
            )
        if serve and os.path.exists(self.path) and not os.access(self.path, os.W_OK):
            raise StoreError(
                f"{self.path} cannot be written by this user, and a server has to. Change who owns it or its mode."
            )

    @property
    def in_memory(self) -> bool:
        return self.path == ":memory:"

    @property
    def owner(self) -> bool:
        """True if this process writes the file itself."""
        link = self._writer.link if self._writer is not None else None
        return isinstance(link, Owner) and not link.gave_way

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
        self._readers.close()  # first, so that the writer is the last and leaves no WAL behind
        if self._writer is not None:
            self._writer.close()
        self._release_server()

    def take_over(self, patience: float = 3.0) -> bool:
        """Have the process that owns the file give it to this one; whether this one has it now.

        For a server, which must own what it hands out.  The other process goes on recording, through
        this one.  It keeps the file if it hands out work itself (`Store.queue`).

        Raises:
            StoreError: the store is closed, or cannot be written.
        """
        deadline = time.monotonic() + patience
        while not self.owner and time.monotonic() < deadline and ask_for(self.path):
            self.put_state("server", {"pid": os.getpid()})  # a write finds out that its owner is gone
        return self.owner

    def before_close(self, callback: Callable[[], None]) -> None:
        """Have `callback` called when the store closes, while it can still be written to."""
        self._closing.append(callback)

    @property
    def queue(self) -> Queue:
        """The work to hand out; only the process that owns the file has it.

        Raises:
            StoreError: another process owns the file, or the store is closed.
        """
        with self._start:
            if self._queue is None:
                link = None if self._closed or self._writer is None else self._writer.link
                if not isinstance(link, Owner):
                    raise StoreError(
                        f"{self.path} is owned by process {holder(self.path)}; only it hands out work. Ask its server, "
                        "or add work through the store (`Store.add_rollouts`)."
                    )
                self._queue = Queue(self, link)
            return self._queue

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
        has been scored since, or spans of it came late); `revisions` has what it was before.

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

    def add_rollouts(self, *rollouts: Rollout) -> None:
        """Queue work and record its tasks; from any process.  A rollout whose id is known stays as it stands.

        Raises:
            InputError: an unknown mode, no attempt allowed, or something has no JSON form.
        """
        with self.batch() as batch:
            batch.add_rollouts(*rollouts)

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

    def erase(self, subject: str) -> Erased:
        """Take out everything that came from a person, mark what was learned from it, say what remains.

        Works from any process; all spans are searched before anything is written, which takes its time
        in a large store.  `erase.py` says what goes and what cannot.

        Raises:
            InputError: no subject given.
            StoreError: it could not be done; nothing was.
        """
        found = erase_subject(self, subject, self.spans.naming(subject))
        if self.owner:
            for id in found.open_rollouts:
                self.queue.cancel(id).result()
        return found

    def erased(self) -> set[str]:
        """Ids of the trajectories and runs that erasures took out: what a dataset must not hold either."""
        return {id for (id,) in self.rows("SELECT id FROM tombstones WHERE kind = 'run'")}

    def retain(self, *, days: float, keep: Sequence[str] = KEEP) -> Erased:
        """Take out what is older than `days`, in portions between which others write; returns the sums.

        Args:
            keep: what stays whatever its age: trajectories with `feedback`, of an `experiment`, or that
                a Version was made from (`lineage`).  Their spans go all the same.

        Raises:
            InputError: days is negative, or `keep` names something else.
        """
        return erase_old(self, days, keep)

    def write(self, writes: Writes, size: int | None = None) -> Future[None]:
        """Queue encoded writes that commit together; what Batch, Spans and the spool use.

        Args:
            size: their bytes, where known.

        Raises:
            StoreError: the store is closed.
        """
        if self._closed:
            raise StoreError(f"{self.path} is closed. Open it again with whet.Store(path).")
        writer = self._writer
        if writer is None:
            with self._start:
                if self._writer is None:
                    self._writer = Writer(self._connect, note_written)
                writer = self._writer
        return writer.submit(writes, size)

    def absorb(self) -> int:
        """Take in what tracing spooled while no owner could be reached; returns the rows taken in.

        An owner does so when it opens the store.  A spool that cannot be taken in now, the disk
        being full, stays for the next time.
        """
        rows = 0
        for path in sorted(glob.glob(glob.escape(self.path) + ".spool-*")):
            with contextlib.suppress(StoreError):
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
        session: str | None = None,
        subject: str | None = None,
        limit: int | None = None,
    ) -> Iterator[Trajectory]:
        """Trajectories in the order in which they were recorded, decoded as they are asked for.

        Args:
            ids: of trajectories, or of runs, whose trajectories come all; of a run of `whet run` also those
                of the runs that its program opened itself.
            since: Unix time in seconds; only what started then or later.

        Feedback recorded for a trajectory or its run is joined to it.  What is recorded
        while one iterates may or may not come.
        """
        equal = {
            "experiment =": experiment,
            "+outcome =": None if outcome is None else outcome.value,
            "session =": session,
            "subject =": subject,
        }
        return read_trajectories(self, equal, ids, since, limit)

    def trajectory(self, id: str) -> Trajectory:
        """The one trajectory with this id, or the first of the run with this id.

        Raises:
            NotFoundError: there is none.
        """
        for found in self.trajectories(ids=[id], limit=1):
            return found
        raise NotFoundError(f"{self.path} holds no trajectory or run {id!r}.")

    def feedback(self, run: str | None = None, *, session: str | None = None) -> Iterator[Feedback]:
        """What people said, of one run or session or of all, in the order in which it was recorded."""
        return read_feedback(self, run, session)

    def revisions(self, id: str) -> list[Trajectory]:
        """What a trajectory was before it was overwritten, oldest first; empty if it never was."""
        found = self.rows("SELECT body FROM trajectory_revisions WHERE id = ? ORDER BY seq", [id])
        return [decode(body, Trajectory) for (body,) in found]

    def tasks(self, *, split: Split | None = None, ids: Sequence[str] | None = None) -> Iterator[Task]:
        """Tasks in the order in which they were first recorded."""
        return read_all(self, Task, "tasks", split=None if split is None else str(split), ids=ids)

    def versions(self, resource: str | None = None, *, ids: Sequence[str] | None = None) -> Iterator[Version]:
        """Versions in the order in which they were first recorded."""
        return read_all(self, Version, "versions", resource=resource, ids=ids)

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
        return read_all(self, Preference, "preferences")

    def state(self, key: str, default: Json = None) -> Json:
        """The value kept under `key`, else `default`."""
        rows = self.rows("SELECT body FROM states WHERE key = ?", [key])
        return msgspec.json.decode(rows[0][0]) if rows else default

    def count(self, table: str) -> int:
        """Rows of one table, which the record keeps: it takes no longer with more of them.

        Raises:
            InputError: there is no such table.
        """
        if table == "spans":
            return self.spans.count()
        if table not in TABLES:
            raise InputError(f"no table is called {table!r}; there are spans, {', '.join(TABLES)}")
        if table in totals.COUNTED:
            return totals.count(self, table)
        return int(self.rows(f"SELECT count(*) FROM {table}")[0][0])

    def counts(self) -> dict[str, int]:
        """Table → rows, `spans` among them, and `trajectories.<outcome>` → rows: 0.05 s for a million."""
        found = {table: self.count(table) for table in TABLES}
        found["spans"] = self.spans.count()
        for outcome, count in self.rows("SELECT outcome, count(*) FROM trajectories GROUP BY outcome"):
            found[f"trajectories.{outcome}"] = count
        return found

    # -- inside -------------------------------------------------------------------------------

    def _connect(self, writer: Writer) -> Link:
        """Become the owner, or reach it."""
        if self.in_memory:
            return Owner(self.path, None, writer.submit, segment=self._segment)
        return connect(self.path, writer, self._segment)

    def rows(self, query: str, values: Sequence[Value] = ()) -> list[Any]:
        """All rows of a read-only query; what Spans, Queue and Releases use.

        Raises:
            StoreError: the store is closed, damaged or not readable.
        """
        if not self.in_memory:
            return self._readers.rows(query, values)
        link = self._writer.link if self._writer and not self._closed else None
        if not isinstance(link, Owner):
            raise StoreError("the store is closed, and what lay in memory is gone.")
        try:
            with link.mutex:
                return link.connection.execute(query, values).fetchall()
        except sqlite3.Error as exception:
            raise failure(self.path, exception) from exception

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
        _inherited.append((self._readers, self._queue))
        self._readers = Readers(self.path)
        self._queue = None
        self._start = threading.Lock()
        self._release_server()


def _forked() -> None:
    for store in list(_stores):
        store._after_fork()


os.register_at_fork(after_in_child=_forked)
