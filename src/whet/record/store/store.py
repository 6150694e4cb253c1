"""The Store: the durable record of everything, in one SQLite file.

Many processes may open one file.  The first becomes its owner and writes; the others hand
their writes to it and read the file themselves; when the owner ends, one of them takes over.
A call that writes returns once its data is committed and synced: acknowledged is durable.

`database.py` says how processes share the file, `group_commit.py` how commits are grouped.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from types import TracebackType

import msgspec

from ...errors import InputError, NotFoundError, StoreError
from ...types import (
    Bundle,
    Feedback,
    Json,
    Outcome,
    Preference,
    Rollout,
    Split,
    Task,
    Trajectory,
    Verdict,
    Version,
    new_id,
)
from . import staging
from .batch import Batch, redactor_of
from .bundles import EMPTY
from .codec import decode
from .database import Database
from .erasure import FIGURES, Erased, Naming
from .issue_log import Issues
from .proof import read_verdicts
from .queries import clashing, read_all, read_trajectories
from .queue import Queue
from .releases import (
    LIVE,
    Release,
    Stage,
    history,
    newest_id,
    release_log,
    stored_bundle,
    trials,
)
from .retention import KEEP, PORTION
from .rollouts import Rollouts
from .schema import TABLES, count_query, listed
from .segments import SEGMENT
from .spans import Spans
from .staging import SHARES, Wish
from .subjects import Subjects

_stores: weakref.WeakSet[Store] = weakref.WeakSet()


class Store:
    """The record.  A context manager; `close` commits all that waits and lets go of the file.

    Args:
        path: the file, made if it does not exist, or ":memory:" (gone at close; the fake for tests).
        serve: this process is the store's server; a second one is refused.
        segment: spans in a time segment; a repeated span is recognised across two of them.

    A file that may not be written, or whose folder may not, is read all the same; each write raises a StoreError.

    Raises:
        StoreError: folder missing, no permission, a folder, not a store, damaged.
        StoreVersionError: written by a newer whet.
        StoreBusyError: `serve` is set and another server runs on this file.
    """

    def __init__(self, path: str | os.PathLike[str], *, serve: bool = False, segment: int = SEGMENT) -> None:
        name = os.fspath(path)
        # Resolved, so that two names of one file meet at one lock and one socket.
        self.path = name if name == ":memory:" else os.path.realpath(name)
        self.database = Database(self.path, serve=serve, segment=segment)
        self.spans = Spans(self.database)
        self.rollouts = Rollouts(self.database)
        self.subjects = Subjects(self.database)
        self.issues = Issues(self.database)
        self._start = threading.Lock()
        self._queue: Queue | None = None
        _stores.add(self)

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Store({self.path!r})"

    def close(self) -> None:
        """Commit all that waits, then let go of the file.  Repeating it does nothing."""
        self.database.close()

    @property
    def queue(self) -> Queue:
        """The work to hand out; only the process that owns the file has it.

        Raises:
            StoreError: another process owns the file, or the store is closed.
        """
        with self._start:
            if self._queue is None:
                self._queue = Queue(self.database)
            return self._queue

    # -- writing ------------------------------------------------------------------------------

    def batch(self) -> Batch:
        """Several kinds of writes in one transaction: all of them or none.

        >>> with store.batch() as batch:
        ...     batch.put(*trajectories)
        ...     batch.put_state("round", 3)
        """
        return Batch(self.database)

    def put(self, *trajectories: Trajectory, experiment: str | None = None, replace: bool = False) -> None:
        """Record trajectories; returns once they are durable.

        One whose id is already stored is left as it is, or with `replace` overwritten (when it
        has been scored since, or spans of it came late); `revisions` has the earlier contents.

        Raises:
            InputError: something in one of them has no JSON form; none was recorded.
            StoreError: they could not be written; none was recorded.
        """
        with self.batch() as batch:
            batch.put(*trajectories, experiment=experiment, replace=replace)

    def clashing(self, trajectories: Sequence[Trajectory]) -> list[str]:
        """Ids of those that the record has with another task, other steps or another output: `put` would drop them."""
        return clashing(self.database, trajectories, redactor_of(self.database))

    def submit(self, *trajectories: Trajectory, experiment: str | None = None) -> Future[None]:
        """As `put`, without waiting: the future is done once they are durable."""
        batch = self.batch()
        batch.put(*trajectories, experiment=experiment)
        return batch.submit()

    def add_feedback(self, *feedback: Feedback) -> None:
        """Record feedback of people; `Feedback.run` is the id of a run or of a trajectory."""
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
        """Delete everything that came from a person, mark what was learned from it, and report what remains.

        Works from any process; all spans are searched before anything is written, which takes its time
        in a large store.  `erasure.py` says what is deleted and what cannot be.

        Raises:
            InputError: no subject given.
            StoreError: it could not be done; nothing was deleted.
        """
        if not subject:
            raise InputError("erase needs the id of a subject.")
        report = self._erase(subject, self.spans.naming(subject))
        if self.database.owner is not None:
            for id in report.open_rollouts:
                self.queue.cancel(id).result()
        return report

    def _erase(self, subject: str, naming: Naming) -> Erased:
        return self._delete("erase", new_id(), subject, time.time(), msgspec.json.encode(naming).decode())

    def erased(self) -> set[str]:
        """Ids of the trajectories and runs that erasures deleted, which a dataset must not hold either."""
        return {id for (id,) in self.database.rows("SELECT id FROM tombstones WHERE kind = 'run'")}

    def retain(self, *, days: float, keep: Sequence[str] = KEEP) -> Erased:
        """Delete what is older than `days`, in portions between which others write; returns the sums.

        Args:
            keep: what stays whatever its age: trajectories with `feedback`, of an `experiment`, or that
                a Version was made from (`lineage`).  Their spans go all the same.

        Raises:
            InputError: days is negative, or `keep` names something else.
        """
        if not days >= 0:
            raise InputError(f"days is {days}; give 0 or more.")
        if unknown := sorted(set(keep) - set(KEEP)):
            raise InputError(f"retention cannot keep {unknown[0]!r}; it knows {', '.join(KEEP)}.")
        # One time for all portions: with one that moves on, rows that
        # age meanwhile would keep the loop going.
        now = time.time()
        sums = dict.fromkeys(FIGURES, 0)
        while True:
            portion = self._delete("retain", PORTION + new_id(), now - days * 86_400, listed(keep), now)
            if not (portion.trajectories or portion.spans or portion.rollouts):
                return msgspec.convert({"at": now, **sums}, Erased)
            sums = {name: count + getattr(portion, name) for name, count in sums.items()}

    def _delete(self, key: str, id: str, *row: str | float) -> Erased:
        """Have the owner erase or apply retention, and read the report that it kept under `id`."""
        self.database.write([(key, [(id, *row)])]).result()
        # From the file: the owner may be another process, and a commit gives nothing back but errors.
        ((body,),) = self.database.rows("SELECT body FROM erasures WHERE id = ?", [id])
        return msgspec.json.decode(body, type=Erased)

    # -- reading ------------------------------------------------------------------------------

    def trajectories(
        self,
        *,
        experiment: str | None = None,
        served: bool = False,
        ids: Sequence[str] | None = None,
        since: float | None = None,
        outcome: Outcome | None = None,
        session: str | None = None,
        subject: str | None = None,
        limit: int | None = None,
        after: int | None = None,
        upto: int | None = None,
    ) -> Iterator[Trajectory]:
        """Trajectories in the order in which they were recorded, decoded as they are asked for.

        Args:
            served: leave out what experiments tried: a search, a gate, a baseline.
            ids: of trajectories, or of runs, whose trajectories come all; of a run of `whet run` also those
                of the runs that its program opened itself.
            since: Unix time in seconds; only what started then or later.
            after: a number that `newest` gave; only what was recorded later.
            upto: such a number; only what was recorded up to then.

        Feedback recorded for a trajectory or its run is joined to it.  What is recorded
        while one iterates may or may not come.
        """
        equal = {
            "experiment =": experiment,
            # The plus keeps SQLite from the index of outcomes: pages are read in the order of `seq`.
            "+outcome =": None if outcome is None else outcome.value,
            "session =": session,
            "subject =": subject,
            "seq >": after,
            "seq <=": upto,
        }
        return read_trajectories(self.database, equal, ids, since, limit, served=served)

    def experiments(self) -> dict[str, int]:
        """Name of each experiment with trajectories here → how many."""
        rows = self.database.rows(
            "SELECT experiment, count(*) FROM trajectories WHERE experiment IS NOT NULL GROUP BY experiment"
        )
        return {name: int(count) for name, count in rows}

    def newest(self) -> int:
        """The number of the newest trajectory in the order of recording, 0 without any; a revision keeps it."""
        return int(self.database.rows("SELECT coalesce(max(seq), 0) FROM trajectories")[0][0])

    def trajectory(self, id: str) -> Trajectory:
        """The one trajectory with this id, or the first of the run with this id.

        Raises:
            NotFoundError: there is none.
        """
        for trajectory in self.trajectories(ids=[id], limit=1):
            return trajectory
        raise NotFoundError(f"the record holds no trajectory or run {id!r}.")

    def feedback(self, run: str | None = None, *, session: str | None = None) -> Iterator[Feedback]:
        """Feedback on one run or session or on all, in the order in which it was recorded."""
        return read_all(self.database, Feedback, "feedback", run=run, session=session)

    def revisions(self, id: str) -> list[Trajectory]:
        """The contents of a trajectory before it was overwritten, oldest first; empty if it never was."""
        query = "SELECT body FROM trajectory_revisions WHERE id = ? ORDER BY seq"
        return [decode(body, Trajectory) for (body,) in self.database.rows(query, [id])]

    def tasks(self, *, split: Split | None = None, ids: Sequence[str] | None = None) -> Iterator[Task]:
        """Tasks in the order in which they were first recorded."""
        return read_all(self.database, Task, "tasks", split=None if split is None else str(split), ids=ids)

    def versions(self, resource: str | None = None, *, ids: Sequence[str] | None = None) -> Iterator[Version]:
        """Versions in the order in which they were first recorded."""
        return read_all(self.database, Version, "versions", resource=resource, ids=ids)

    def version(self, id: str) -> Version:
        """The Version with this id.

        Raises:
            NotFoundError: there is none.
        """
        for version in self.versions(ids=[id]):
            return version
        raise NotFoundError(f"the record holds no Version {id!r}.")

    def preferences(self) -> Iterator[Preference]:
        """Preference pairs in the order in which they were recorded."""
        return read_all(self.database, Preference, "preferences")

    def state(self, key: str, default: Json = None) -> Json:
        """The value kept under `key`, else `default`."""
        rows = self.database.rows("SELECT body FROM states WHERE key = ?", [key])
        return msgspec.json.decode(rows[0][0]) if rows else default

    def count(self, table: str) -> int:
        """Rows of one table; it takes no longer with more of them.

        Raises:
            InputError: there is no such table.
        """
        if table not in (*TABLES, "spans"):
            raise InputError(f"no table is called {table!r}; there are spans, {', '.join(TABLES)}")
        return int(self.database.rows(count_query(table))[0][0])

    def served(self) -> int:
        """Runs that somebody asked for, and no experiment; it takes longer with more that an experiment did."""
        ((tried,),) = self.database.rows("SELECT count(*) FROM trajectories WHERE experiment IS NOT NULL")
        return self.count("trajectories") - int(tried)

    def counts(self) -> dict[str, int]:
        """Table → rows, `spans` among them, and `trajectories.<outcome>` → rows: 0.05 s for a million."""
        counts = {table: self.count(table) for table in (*TABLES, "spans")}
        by_outcome = "SELECT outcome, count(*) FROM trajectories GROUP BY outcome"
        return counts | {f"trajectories.{outcome}": rows for outcome, rows in self.database.rows(by_outcome)}

    # -- Bundles ------------------------------------------------------------------------------

    def put_bundle(self, bundle: Bundle) -> str:
        """Record a Bundle and its Versions, without making it live; returns its id.

        One already stored stays as it is, for its id is its content.
        """
        with self.batch() as batch:
            batch.put_bundle(bundle)
        return bundle.id

    def bundle(self, id: str) -> Bundle:
        """The recorded Bundle with this id; the empty one is the agent as it came, and always there.

        Raises:
            NotFoundError: there is none.
        """
        if id == EMPTY.id:
            return EMPTY
        rows = self.database.rows("SELECT body FROM bundles WHERE id = ?", [id])
        if not rows:
            raise NotFoundError(f"the record holds no Bundle {id!r}.")
        return stored_bundle(self.database, rows[0][0], f"Bundle {id}")

    # -- Verdicts -----------------------------------------------------------------------------

    def put_verdict(self, verdict: Verdict, *, experiment: str = "") -> str:
        """Record the gate's decision on a Bundle; returns the Verdict's id.

        Args:
            experiment: name of the one that judged.

        Raises:
            InputError: the Verdict does not say which Bundle was judged.
        """
        with self.batch() as batch:
            return batch.put_verdict(verdict, experiment=experiment)

    def verdicts(self, *, candidate: str | None = None) -> Iterator[Verdict]:
        """Verdicts in the order in which they were recorded.

        Args:
            candidate: only those on the Bundle with this id.
        """
        yield from read_verdicts(self.database, *([] if candidate is None else [candidate]))

    # -- releases -----------------------------------------------------------------------------

    def live(self, name: str = LIVE) -> Bundle | None:
        """The Bundle that is live under `name`, None if nothing was ever released under it."""
        log = self.history(name, last=1)
        return log[0].bundle if log else None

    def history(self, name: str = LIVE, *, last: int | None = None) -> list[Release]:
        """The releases that went live under `name`, oldest first; the last one is live now."""
        return history(self.database, name, last)

    def release_log(self, name: str = LIVE, *, last: int | None = None) -> list[Release]:
        """All entries of the release log of `name`, trials and their ends too, oldest first."""
        return release_log(self.database, name, last)

    def on_trial(self, name: str = LIVE) -> list[Release]:
        """The shadows and canaries that stand now, each as its newest entry, in the order of these."""
        return trials(self.database, name)

    def release(
        self,
        bundle: Bundle,
        verdict: Verdict | None = None,
        *,
        stage: Stage = Stage.LIVE,
        share: float | None = None,
        unit: str = "session",
        unproven: bool = False,
        new_names: bool = False,
        reason: str = "",
        name: str = LIVE,
        following: str | None = None,
        part_of: str | None = None,
    ) -> Release:
        """Make the Versions of `bundle` live, or try them, beside what is live under other names; the one way to do so.

        Every run that begins later has them, without a restart: the gateway, workers, traced programs, policy
        servers and old-protocol clients follow the record. What goes live ends the trials that were made from
        what it replaces. A trial whose share or stage changes is the same trial.

        Args:
            verdict: on this Bundle, promoting it; the newest recorded one if None. A shadow needs none.
            stage: `SHADOW`, `CANARY` or `LIVE`.
            share: of a canary (.1 if None) or a shadow (1 if None).
            unit: what a canary is drawn by: session, subject or run.
            unproven: release without such a Verdict; the log says so.
            new_names: allow names that nothing reads yet.
            reason: for the log.
            name: of the log: another one than "live" is another agent of the same record.
            following: id of the entry of a trial that this was decided on. It is refused where another one of that
                trial came between, in the transaction that would write it.
            part_of: id of a trial that carries all that goes live, though in the same pieces it has more: it goes on
                with the rest, as one whose very Versions go live does by itself.

        Raises:
            ConflictError: another entry came between; nothing is changed. Look at the trial again.
            GateError: no Verdict promotes this Bundle, or it does and something forbids to (`proof.py`); the
                sentence says what would clear it.
            InputError: the Bundle is empty, the Verdict is on another one, nothing reads one of its names, or the
                canaries would leave nobody with what is live.
        """
        wish = Wish(
            bundle=bundle,
            verdict=verdict,
            stage=Stage(stage),
            share=SHARES.get(Stage(stage), 0.0) if share is None else share,
            unit=unit,
            unproven=unproven,
            new_names=new_names,
            reason=reason,
            name=name,
            following=following,
            part_of=part_of,
        )
        wish.check()
        return self._released(name, lambda batch: staging.release(self.database, batch, wish))

    def rollback(self, name: str = LIVE, *, reason: str = "rollback") -> Bundle:
        """Make the previous release live; repeated, it goes further back, at last to the agent as it came.

        Returns:
            The Bundle that is live now; empty is the agent as it came.

        Raises:
            NotFoundError: the agent as it came is live: there is nothing before it.
        """
        return self._released(name, lambda batch: staging.rollback(self.database, batch, name, reason)).bundle

    def retire(
        self, id: str, *, reason: str = "taken back", name: str = LIVE, following: str | None = None
    ) -> Release:
        """End a trial: nobody is served by it any more. Repeating it does nothing.

        Args:
            id: of the release or any entry of its trial, or of its Bundle.
            following: as of `release`.

        Raises:
            ConflictError: as of `release`.
            NotFoundError: nothing of this id was ever on trial.
            InputError: it is live: roll back.
        """
        return self._released(
            name, lambda batch: staging.retire(self.database, batch, name, id, reason, following)
        )

    def set_live(self, bundle: Bundle, name: str = LIVE, *, reason: str = "") -> Release:
        """Make exactly `bundle` live without asking for a proof; callers want `release`, which uses the same write."""
        return self._released(name, lambda batch: batch.set_live(bundle, name, reason=reason))

    def _released(self, name: str, prepare: Callable[[Batch], Release]) -> Release:
        """Commit a release that is made from what is live; made anew where another one came in between.

        Args:
            prepare: adds it to a batch, which holds the id of what it was made from.
        """
        while True:
            before = newest_id(self.database, name)
            batch = self.batch()
            release = prepare(batch)
            try:
                batch.submit().result()
                return release
            except StoreError:  # of which kind does not cross the owner's socket
                if self.database.rows("SELECT 1 FROM releases WHERE id = ?", [release.id]):
                    return release
                if newest_id(self.database, name) == before:
                    raise

    def _after_fork(self) -> None:
        """In the child: connect anew when needed; the queue is the parent's."""
        self.database.forked()
        self._queue = None
        self._start = threading.Lock()  # the parent's may have been held at the fork


def _forked() -> None:
    for store in list(_stores):
        store._after_fork()


os.register_at_fork(after_in_child=_forked)
