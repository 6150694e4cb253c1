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
from ..types import Failure, Json, Lease, Mode, Rollout, Status, Trajectory
from .access import Access
from .batch import Batch, Target
from .board import Board, Entry
from .codec import MODES
from .commits import Commits
from .futures import follow, gather, pass_on, ready
from .owner import Arrival, Owner
from .rollouts import LOST, Finish, Report, Rollouts, claimed, listed, plain, stale, state, written
from .writer import Writes

__all__ = ["Finish", "Queue"]


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
        self._commits = Commits(store, self._board)
        self._ending: dict[int, tuple[str, Future[None]]] = {}
        self._wake = threading.Event()
        self._sleeps_until = 0.0
        with self._commits.held():
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

        Args:
            worker: who asks, for the record.
            lease: seconds until the rollout is given to someone else, unless a heartbeat comes.
            modes: only these; None takes any.

        Raises:
            InputError: an unknown mode, or a lease or number that is not positive.
            StoreError: the queue is closed; in the future: the claim could not be written.
        """
        _positive(lease)
        if n < 1:
            raise InputError(f"n is {n}; claim at least 1.")
        if unknown := sorted(set(modes or ()) - set(MODES)):
            raise InputError(f"no mode is called {unknown[0]!r}; give some of {', '.join(MODES)}.")
        with self._commits.held():
            now = self._clock()
            self._expire(now)
            taken = self._board.take(n, modes or MODES)
            if not taken:
                return ready([])
            for entry in taken:
                entry.attempts += 1
                self._board.fence += 1
                self._board.hold(entry, self._board.fence, worker, now + lease, lease)
            held = [
                (entry, entry.attempts, self._board.fence - left)
                for left, entry in enumerate(reversed(taken))
            ]
            held.reverse()
            settled = self._commits.submit(
                taken,
                [
                    ("rollout_state", listed([state(entry, "running") for entry in taken])),
                    (
                        "attempt",
                        listed([[fence, e.id, number, worker, time.time()] for e, number, fence in held]),
                    ),
                    ("counter", [("fence", self._board.fence)]),
                ],
                undo=lambda: self._unclaim(held),
            )
        if now + lease < self._sleeps_until:
            self._wake.set()
        until = time.time() + lease
        found = claimed(self._store, {entry.seq: number for entry, number, _ in held})
        leases = [
            Lease(
                rollout=found[entry.id],
                attempt=number,
                fence=fence,
                worker=worker,
                until=until,
            )
            for entry, number, fence in held
        ]
        return follow(settled, lambda: leases)

    def heartbeat(self, id: str, fence: int, *, lease: float = 60.0) -> Future[float]:
        """Hold a rollout for `lease` more seconds from now; the future gives until when (Unix time).

        Nothing is written unless the length of the lease changes, so it costs next to nothing.

        Raises:
            StaleLeaseError: the rollout is not held under this fence any more: stop working on it.
        """
        _positive(lease)
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
                settled = self._commits.submit([], [("rollout_state", listed([state(entry, "running")]))])
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
        problems: builtins.list[Exception | None] = [None] * len(finished)
        reports: builtins.list[Report | None] = []
        for place, each in enumerate(finished):
            try:
                reports.append(Report(each))
            except InputError as problem:
                problems[place] = problem
                reports.append(None)
        waits: builtins.list[tuple[int, Future[None]]] = []
        unknown: builtins.list[tuple[int, Report]] = []
        with self._commits.held():
            fresh: dict[int, tuple[Entry, Report]] = {}
            places: builtins.list[int] = []
            for place, report in enumerate(reports):
                if report is None:
                    continue
                fence = report.given.fence
                entry = self._board.entries.get(report.given.id)
                known = self._ending.get(fence)
                if known is not None and known[0] == report.digest:
                    waits.append((place, known[1]))
                elif fence in fresh and fresh[fence][1].digest == report.digest:
                    places.append(place)
                elif (
                    entry is not None and entry.fence == fence and entry.change is None and fence not in fresh
                ):
                    fresh[fence] = (entry, report)
                    places.append(place)
                else:
                    unknown.append((place, report))
            if fresh:
                settled = self._end([*fresh.values()])
                waits += [(place, settled) for place in places]
        for place, report in unknown:
            problems[place] = self._recorded(report)
        return gather(problems, waits)

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
            return self._expire(self._clock() if now is None else now)

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

    def _unclaim(self, held: Sequence[tuple[Entry, int, int]]) -> None:
        for entry, number, _ in reversed(held):
            self._board.give_back(entry, number - 1)

    def _end(self, fresh: Sequence[tuple[Entry, Report]]) -> Future[None]:
        states: builtins.list[Json] = []
        ends: builtins.list[Json] = []
        ended: builtins.list[Status] = []
        again: builtins.list[Entry] = []
        over: builtins.list[Entry] = []
        at = time.time()
        for entry, report in fresh:
            ends.append([entry.fence, at, report.outcome, report.error, report.digest])
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

        settled = self._commits.submit(
            [entry for entry, _ in fresh],
            [
                *written([report for _, report in fresh]),
                ("attempt_end", listed(ends)),
                *self._ends(states, ended),
            ],
            size=sum([report.size for _, report in fresh]),
            then=then,
            undo=forget,
        )
        for _, report in fresh:
            self._ending[report.given.fence] = (report.digest, settled)
        return settled

    def _ends(self, states: Sequence[Json], ended: Sequence[Status]) -> Writes:
        counted = [(status, ended.count(status)) for status in _ENDED if status in ended]
        return [
            ("rollout_state", listed(states)),
            ("counter", [("done", self._board.done)]),
            ("count", counted),
        ]

    def _next(self) -> int:
        self._board.done += 1
        return self._board.done

    def _cancel(self, entry: Entry) -> Future[bool]:
        waited = entry.fence is None
        self._board.withdraw(entry)
        ends = [] if waited else [[entry.fence, time.time(), "cancelled", None, None]]
        settled = self._commits.submit(
            [entry],
            [
                ("attempt_end", listed(ends)),
                *self._ends([state(entry, "cancelled", done=self._next())], ["cancelled"]),
            ],
            then=lambda: self._board.drop(entry),
            undo=(lambda: self._board.give_back(entry, entry.attempts)) if waited else None,
        )
        return follow(settled, lambda: True)

    def _expire(self, now: float) -> Future[int]:
        due = self._board.due(now)
        if not due:
            return ready(0)
        lost = plain(LOST)
        at = time.time()
        again = [entry for entry in due if entry.attempts < entry.max_attempts]
        over = [entry for entry in due if entry.attempts >= entry.max_attempts]
        states = [state(entry, "queued", error=lost) for entry in again]
        states += [state(entry, "failed", error=lost, done=self._next()) for entry in over]
        ends = [[entry.fence, at, "expired", lost, None] for entry in due]

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

        settled = self._commits.submit(
            due,
            [("attempt_end", listed(ends)), *self._ends(states, ["failed"] * len(over))],
            then=then,
            undo=undo,
        )
        return follow(settled, lambda: len(due))

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


def _positive(lease: float) -> None:
    if not 0 < lease < float("inf"):
        raise InputError(f"lease is {lease}; give seconds, more than 0.")
