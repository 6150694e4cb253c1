"""`Store.queue`: rollouts handed out under leases, in the process that owns the file.

What is queued and who holds what is kept in memory (`board.py`), so a claim searches nothing; each
change is answered once it is durable, and the memory is rebuilt from the file at start.  A rollout
that has ended is forgotten here and read from the file.

A lease runs on the monotonic clock: setting the machine's clock moves nothing.  After a restart it
lives on for its stated length.  Each lease has a fence, a number that only grows; a worker writes
under its fence, and one that was given up on, or whose rollout was cancelled, is refused.

An attempt fails when the worker says so, when its trajectory is an infrastructure error, or when
its lease runs out; the rollout is queued again while attempts are left.  `Rollout.error` keeps whose
fault the last one was.  A trajectory that failed at its task is a result like any other.
"""

from __future__ import annotations

import builtins
import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Protocol

from ..errors import InputError, StoreError
from ..types import Failure, Lease, Mode, Rollout, Status, Trajectory
from .access import Access
from .batch import Batch, Target
from .board import Board, Entry
from .codec import MODES
from .commits import Change, Commits
from .futures import follow, pass_on, ready
from .owner import Arrival, Owner
from .ready import AHEAD, LiveId, Ready
from .rollouts import LOST, Finish, Report, Rollouts, Want, plain, positive, stale, state, written
from .turns import Turned, sort, turned
from .writer import Value, Writes

__all__ = ["Finish", "Queue", "Turned", "Want"]


class Source(Access, Target, Protocol):
    """What the queue reads and writes: the Store."""


class Queue(Rollouts):
    """Made by the Store, once per process; its methods may be called from any thread.

    Args:
        store: an open one that owns its file.
        owner: its link into the file.
        clock: seconds that never run backwards.  With another one than the machine's, leases end when
            `expire` is called and not by themselves.
    """

    def __init__(self, store: Source, owner: Owner, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(store)
        self._target = store
        self._clock = clock
        self._board = Board()
        self._ready = Ready(store)
        self._live = LiveId(store)
        self._commits = Commits(store, self._board)
        self._ending: dict[int, tuple[str, Future[None]]] = {}
        self._wake = threading.Event()
        self._sleeps_until = 0.0
        with self._commits.held():
            owner.on_tasks = self._ready.forget
            owner.on_release = self._live.forget
            owner.on_rollouts = self._arrived  # before the file is read, so that none falls between
            self._load()
        store.before_close(self._close)
        if clock is time.monotonic:
            threading.Thread(target=self._watch, name="whet-queue-leases", daemon=True).start()

    # -- what workers do ----------------------------------------------------------------------

    def add(self, rollouts: Sequence[Rollout]) -> Future[builtins.list[str]]:
        """Queue rollouts and record their tasks; the future gives their ids once they are durable.

        One whose id is known stays as it stands, so adding may be repeated.

        Raises:
            InputError: an unknown mode, no attempt allowed, or something has no JSON form.
        """
        batch = Batch(self._target)
        batch.add_rollouts(*rollouts)
        return follow(batch.submit(), lambda: [each.id for each in rollouts])

    def claim(
        self, worker: str, *, n: int = 1, lease: float = 60.0, modes: Sequence[Mode] | None = None
    ) -> Future[builtins.list[Lease]]:
        """Take up to `n` rollouts, the longest waiting first; an empty list if none waits.

        Each names the Bundle to run it under: its own, or what is live now.

        Args:
            worker: who asks, for the record.
            lease: seconds until the rollout is given to someone else, unless a heartbeat comes.
            modes: only these; None takes any.

        Raises:
            InputError: an unknown mode, or a lease or number that is not positive.
            StoreError: the queue is closed; in the future: the claim could not be written.
        """
        want = Want(worker, n, lease, modes)
        want.check()
        change, now, live = Change(), self._clock(), self._live.get()
        with self._commits.held():
            self._expire(now)
            taken, ahead = self._take(want, now, change, live)
            if not taken:
                return ready([])
            settled = self._commits.submit(change)
        leases = self._leases(want, taken, ahead, now, live)
        return follow(settled, lambda: leases)

    def heartbeat(self, id: str, fence: int, *, lease: float = 60.0) -> Future[float]:
        """Hold a rollout for `lease` more seconds from now; the future gives until when (Unix time).

        Nothing is written unless the length of the lease changes, so it costs next to nothing.

        Raises:
            StaleLeaseError: the rollout is not held under this fence any more: stop working on it.
        """
        positive(lease)
        with self._commits.held():
            entry = self._board.entries.get(id)
            if entry is None or entry.fence != fence:
                if fence not in self._ending:
                    raise stale(id, fence)
                return ready(time.time() + lease)
            self._board.extend(entry, self._clock() + lease)
            wake = entry.until < self._sleeps_until
            settled: Future[None] | None = None
            if entry.lease != lease and entry.change is None:
                entry.lease = lease
                # It does not rest meanwhile: what its worker reports next is written after this.
                change = Change()
                change.add([], [("rollout_state", [state(entry, "running")])])
                settled = self._commits.submit(change)
        if wake:
            self._wake.set()
        until = time.time() + lease
        return ready(until) if settled is None else follow(settled, lambda: until)

    def finish(
        self, id: str, fence: int, *, trajectory: Trajectory | None = None, error: Failure | None = None
    ) -> Future[None]:
        """End an attempt: with the trajectory it came to, why it failed, or both; done once durable.

        The same report under the same fence may be repeated and is recorded once.

        Raises (in the future):
            StaleLeaseError: the rollout is not held under this fence any more; nothing was recorded.
            InputError: the trajectory has no JSON form.
            StoreError: it could not be written; the lease stands as it was.
        """
        result: Future[None] = Future()

        def copy(done: Future[builtins.list[Exception | None]]) -> None:
            problem = done.exception() or done.result()[0]
            if problem is None:
                result.set_result(None)
            else:
                result.set_exception(problem)

        self.finish_many([Finish(id, fence, trajectory, error)]).add_done_callback(copy)
        return result

    def finish_many(self, finished: Sequence[Finish]) -> Future[builtins.list[Exception | None]]:
        """As `finish`, for many at once: what was wrong with each, None where it is recorded."""
        result: Future[builtins.list[Exception | None]] = Future()
        self.turn(finished).add_done_callback(lambda done: result.set_result(done.result().problems))
        return result

    def turn(self, finished: Sequence[Finish], want: Want | None = None) -> Future[Turned]:
        """`finish_many` and `claim` in one commit: what a worker does between two rollouts.

        A claim that finds nothing is answered like any other; it does not wait.

        Raises:
            InputError: as `claim` does; nothing was recorded.
            StoreError: the queue is closed; in the future: nothing could be written, neither the reports
                nor the claim.  Reports that were refused on their own are `problems`.
        """
        if want is not None:
            want.check()
        problems: builtins.list[Exception | None] = [None] * len(finished)
        reports: builtins.list[Report | None] = []
        for place, each in enumerate(finished):
            try:
                reports.append(Report(each))
            except InputError as problem:
                problems[place] = problem
                reports.append(None)
        change, now, live = Change(), self._clock(), "" if want is None else self._live.get()
        taken: builtins.list[tuple[Entry, int, int]] = []
        with self._commits.held():
            if want is not None:
                self._expire(now)  # before the reports are looked at: one entry cannot change twice at once
            sorted_ = sort(reports, self._board, self._ending)
            waits = sorted_.waits
            if sorted_.fresh:
                self._end([*sorted_.fresh.values()], change)
            if want is not None:
                taken, ahead = self._take(want, now, change, live)
            if change.entries:
                settled = self._commits.submit(change)
                waits += [(place, settled) for place in sorted_.places]
                for _, report in sorted_.fresh.values():
                    self._ending[report.given.fence] = (report.digest, settled)
                waits += [(None, settled)] if taken else []
        for place, report in sorted_.unknown:
            problems[place] = self._recorded(report)
        leases = self._leases(want, taken, ahead, now, live) if want is not None and taken else []
        return turned(problems, waits, leases)

    def cancel(self, id: str) -> Future[bool]:
        """End a rollout that waits or runs; False if it had ended before.  Its worker is refused from now on.

        Raises:
            NotFoundError: there is no such rollout.
        """
        with self._commits.held():
            entry = self._board.entries.get(id)
            if entry is not None and entry.change is None:
                return self._cancel(entry)
            change = None if entry is None else entry.change
        if change is None:
            self.get(id)
            return ready(False)
        result: Future[bool] = Future()

        def again(_: Future[None]) -> None:
            try:
                self.cancel(id).add_done_callback(lambda done: pass_on(done, result))
            except Exception as problem:
                result.set_exception(problem)

        change.add_done_callback(again)
        return result

    def expire(self, now: float | None = None) -> Future[int]:
        """Take back what dead workers held; the future gives how many, once others may claim them.

        Called by the queue itself when a lease ends.

        Args:
            now: on the queue's clock; None asks it.
        """
        with self._commits.held():
            return self._expire(self._clock() if now is None else now) or ready(0)

    def on_available(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Have `callback` called, from some thread, when rollouts come to wait; returns what ends that.

        It must return at once and not raise: an event loop is woken with `call_soon_threadsafe`.
        """
        self._commits.listeners.append(callback)

        def remove() -> None:
            with contextlib.suppress(ValueError):
                self._commits.listeners.remove(callback)

        return remove

    def counts(self) -> dict[str, int]:
        """How many are queued and running, and how many have succeeded, failed and been cancelled, ever."""
        with self._commits.held():
            queued, running = self._board.counts()
        rows = dict(self._store.rows("SELECT name, value FROM counters WHERE name IN (?, ?, ?)", _ENDED))
        found: dict[str, int] = {"queued": queued, "running": running}
        return found | {name: rows.get(name, 0) for name in _ENDED}

    # -- inside -------------------------------------------------------------------------------

    def _take(
        self, want: Want, now: float, change: Change, live: str
    ) -> tuple[builtins.list[tuple[Entry, int, int]], builtins.list[Entry]]:
        """Hold what is first in line: each with its attempt and fence; and who is next, if it must be read."""
        modes = want.modes or MODES
        entries = self._board.take(want.n, modes)
        ahead = self._board.next(AHEAD, modes) if self._ready.lacks(entries) else []
        taken: builtins.list[tuple[Entry, int, int]] = []
        for entry in entries:
            entry.attempts += 1
            self._board.fence += 1
            self._board.hold(entry, self._board.fence, want.worker, now + want.lease, want.lease)
            taken.append((entry, entry.attempts, self._board.fence))
        if taken:
            at = time.time()
            change.add(
                entries,
                [
                    ("rollout_state", [state(entry, "running") for entry in entries]),
                    ("attempt", [(fence, e.id, number, want.worker, at, live) for e, number, fence in taken]),
                    ("counter", [("fence", self._board.fence)]),
                ],
                undo=lambda: self._unclaim(taken),
            )
        return taken, ahead

    def _unclaim(self, held: Sequence[tuple[Entry, int, int]]) -> None:
        for entry, number, _ in reversed(held):
            self._board.give_back(entry, number - 1)

    def _leases(
        self,
        want: Want,
        taken: Sequence[tuple[Entry, int, int]],
        ahead: Sequence[Entry],
        now: float,
        live: str,
    ) -> builtins.list[Lease]:
        """What the worker is told, once it is durable."""
        if now + want.lease < self._sleeps_until:
            self._wake.set()
        until = time.time() + want.lease
        rollouts = self._ready.take([(entry, number) for entry, number, _ in taken], ahead, live)
        return [
            Lease(rollout=rollout, attempt=number, fence=fence, worker=want.worker, until=until)
            for rollout, (_, number, fence) in zip(rollouts, taken, strict=True)
        ]

    def _end(self, fresh: Sequence[tuple[Entry, Report]], change: Change) -> None:
        states: builtins.list[Sequence[Value]] = []
        ends: builtins.list[Sequence[Value]] = []
        ended: builtins.list[Status] = []
        again: builtins.list[Entry] = []
        over: builtins.list[Entry] = []
        at = time.time()
        for entry, report in fresh:
            ends.append((entry.fence, at, report.outcome, report.error, report.digest))
            if report.error is not None and entry.attempts < entry.max_attempts:
                again.append(entry)
                states.append(state(entry, "queued", error=report.error))
                continue
            over.append(entry)
            ended.append("succeeded" if report.error is None else "failed")
            states.append(
                state(entry, ended[-1], error=report.error, trajectory=report.trajectory, done=self._next())
            )
        fences = [report.given.fence for _, report in fresh]

        def forget() -> None:
            for fence in fences:
                self._ending.pop(fence, None)

        def then() -> None:
            forget()
            for entry in over:
                self._board.drop(entry)
            for entry in again:
                self._board.wait(entry)

        reports = [report for _, report in fresh]
        change.add(
            [entry for entry, _ in fresh],
            [*written(reports), ("attempt_end", ends), *self._ends(states, ended)],
            size=sum([report.size for report in reports]),
            then=then,
            undo=forget,
        )

    def _ends(self, states: Sequence[Sequence[Value]], ended: Sequence[Status]) -> Writes:
        counted = [(status, ended.count(status)) for status in _ENDED if status in ended]
        return [("rollout_state", states), ("counter", [("done", self._board.done)]), ("count", counted)]

    def _next(self) -> int:
        self._board.done += 1
        return self._board.done

    def _cancel(self, entry: Entry) -> Future[bool]:
        waited = entry.fence is None
        self._board.withdraw(entry)
        ends = [] if waited else [(entry.fence, time.time(), "cancelled", None, None)]
        change = Change()
        change.add(
            [entry],
            [
                ("attempt_end", ends),
                *self._ends([state(entry, "cancelled", done=self._next())], ["cancelled"]),
            ],
            then=lambda: self._board.drop(entry),
            undo=(lambda: self._board.give_back(entry, entry.attempts)) if waited else None,
        )
        return follow(self._commits.submit(change), lambda: True)

    def _expire(self, now: float) -> Future[int] | None:
        """As `expire`, under the lock; None where nothing has to be taken back, as nearly always."""
        due = self._board.due(now)
        if not due:
            return None
        lost = plain(LOST)
        at = time.time()
        again = [entry for entry in due if entry.attempts < entry.max_attempts]
        over = [entry for entry in due if entry.attempts >= entry.max_attempts]
        states = [state(entry, "queued", error=lost) for entry in again]
        states += [state(entry, "failed", error=lost, done=self._next()) for entry in over]
        ends = [(entry.fence, at, "expired", lost, None) for entry in due]

        def then() -> None:
            for entry in again:
                self._board.wait(entry)
            for entry in over:
                self._board.drop(entry)

        def undo() -> None:
            for entry in due:  # the disk is full, say: they are looked at again soon
                self._board.hold(
                    entry, entry.fence or 0, entry.worker or "", now + _AGAIN, entry.lease or _AGAIN
                )

        change = Change()
        change.add(
            due, [("attempt_end", ends), *self._ends(states, ["failed"] * len(over))], then=then, undo=undo
        )
        return follow(self._commits.submit(change), lambda: len(due))

    def _recorded(self, report: Report) -> Exception | None:
        """None if this report was recorded before, else why it is refused."""
        rows = self._store.rows(
            "SELECT 1 FROM attempts WHERE fence = ? AND rollout = ? AND digest = ?",
            [report.given.fence, report.given.id, report.digest],
        )
        return None if rows else stale(report.given.id, report.given.fence)

    def _arrived(self, arrivals: builtins.list[Arrival]) -> None:
        def apply(_: BaseException | None) -> None:
            for seq, id, mode, max_attempts in arrivals:
                if id not in self._board.entries:
                    self._board.wait(Entry(seq, id, mode, max_attempts))

        self._commits.note(apply)

    def _load(self) -> None:
        board = self._board
        counters = dict(self._store.rows("SELECT name, value FROM counters"))
        board.fence, board.done = counters.get("fence", 0), counters.get("done", 0)
        now = self._clock()
        for seq, id, mode, limit, tried, fence, worker, lease in self._store.rows(
            "SELECT seq, id, mode, max_attempts, attempts, fence, worker, lease FROM rollouts "
            "WHERE done IS NULL ORDER BY seq"
        ):
            entry = Entry(seq, id, mode, limit, tried)
            if fence is None:
                board.wait(entry)
            else:
                board.hold(entry, fence, worker, now + lease, lease)

    def _watch(self) -> None:
        """End leases when their time is up."""
        with contextlib.suppress(StoreError):  # raised once the queue is closed
            while True:
                with self._commits.held():
                    deadline = self._board.deadline
                    self._sleeps_until = float("inf") if deadline is None else deadline
                self._wake.wait(None if deadline is None else max(0.0, deadline - self._clock()))
                self._wake.clear()
                self.expire()

    def _close(self) -> None:
        self._commits.closed = True
        self._wake.set()


_AGAIN = 0.25
"""Seconds after which a lease that could not be ended is looked at again."""
_ENDED: tuple[Status, ...] = ("succeeded", "failed", "cancelled")
