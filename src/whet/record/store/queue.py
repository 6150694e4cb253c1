"""`Store.queue`: rollouts handed out under leases, in the process that owns the file.

The queue and its leases are indexed in memory (`queue_index.py`), so a claim searches nothing; each change is
answered once it is durable, and the index is rebuilt from the file at start.  A rollout that has ended is forgotten
here and read from the file.

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

from ...errors import StoreError
from ...types import Failure, Lease, Mode, Rollout, Status, Trajectory
from .batch import Batch, redactor_of
from .codec import MODES
from .database import Database, holder
from .group_commit import Value, Writes, ready
from .owner import Arrival
from .queue_index import Change, Commits, QueuedRollout, QueueIndex, follow
from .read_ahead import AHEAD, LiveId, ReadAhead
from .rollouts import (
    LOST,
    Claim,
    EncodedFinish,
    Finish,
    Rollouts,
    encoded,
    failure_json,
    positive,
    redact,
    stale,
    state,
    written,
)
from .served import ServedAttempt, ServedAttempts
from .turns import Claimed, PreparedTurn, Turned, Wait, sort, turned

_AGAIN = 0.25
"""Seconds after which a lease that could not be ended is looked at again."""
_ENDED: tuple[Status, ...] = ("succeeded", "failed", "cancelled")


class Queue(Rollouts):
    """Made by the Store, once per process; its methods may be called from any thread.

    Args:
        database: of which this process owns the file.
        clock: seconds that never run backwards.  With another one than the machine's, leases end when
            `expire` is called and not by themselves.

    Raises:
        StoreError: another process owns the file, or the store is closed.
    """

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(database)
        owner = database.owner
        if database.read_only is not None:
            raise database.read_only
        if owner is None:
            raise StoreError(
                f"{database.path} is owned by process {holder(database.path)}; only it hands out work. Ask its "
                "server, or add work through the store (`Store.add_rollouts`)."
            )
        self._clock = clock
        self._index = QueueIndex()
        self._read_ahead = ReadAhead(database)
        self._live = LiveId(database)
        self._served = ServedAttempts(database)
        self._commits = Commits(database, self._index)
        self._ending: dict[int, tuple[str, Future[None]]] = {}
        self._wake = threading.Event()
        self._sleeps_until = 0.0
        with self._commits.held():
            owner.on_tasks = self._tasks_changed
            owner.on_release = self._live.forget
            owner.on_rollouts = self._arrived  # before the file is read, so that none falls between
            self._load()
        database.before_close(self._close)
        if clock is time.monotonic:
            threading.Thread(target=self._watch, name="whet-queue-leases", daemon=True).start()

    # -- what workers do ----------------------------------------------------------------------

    def add(self, rollouts: Sequence[Rollout]) -> Future[builtins.list[str]]:
        """Queue rollouts and record their tasks; the future gives their ids once they are durable.

        One whose id is known stays as it stands, so adding may be repeated.

        Raises:
            InputError: an unknown mode, no attempt allowed, or something has no JSON form.
        """
        batch = Batch(self._database)
        batch.add_rollouts(*rollouts)
        return follow(batch.submit(), lambda _: [rollout.id for rollout in rollouts])

    def claim(
        self,
        worker: str,
        *,
        n: int = 1,
        lease: float = 60.0,
        modes: Sequence[Mode] | None = None,
        undecoded: bool = False,
    ) -> Future[builtins.list[Lease]]:
        """Take up to `n` rollouts, the longest waiting first; an empty list if none waits.

        Each names the Bundle to run it under: its own, or the live one.

        Args:
            worker: name of the worker, for the record.
            lease: seconds until the rollout is given to someone else, unless a heartbeat comes.
            modes: only these; None takes any.
            undecoded: the leases are only to be encoded: their tasks and `meta` are the JSON that lies in the record.

        Raises:
            InputError: an unknown mode, or a lease or number that is not positive.
            StoreError: the queue is closed; in the future: the claim could not be written.
        """
        claim = Claim(worker, n, lease, None if modes is None else [*modes])
        claim.check()
        # Not `turn` without reports: what it does about them would make a claim a third dearer.
        # `live` before the lock is taken: the first look after a release reads the file.
        change, now, at, live = Change(), self._clock(), time.time(), self._live.get()
        with self._commits.held():
            self._expire(now)
            claimed, ahead = self._take(claim, now, at, change, live)
            if not claimed:
                return ready([])
            settled = self._commits.submit(change)
        leases = self._leases(claim, claimed, ahead, now, at, live, undecoded)
        return follow(settled, lambda _: leases)

    def heartbeat(self, id: str, fence: int, *, lease: float = 60.0) -> Future[float]:
        """Hold a rollout for `lease` more seconds from now; the future gives until when (Unix time).

        Nothing is written unless the length of the lease changes, so it costs next to nothing.

        Raises:
            StaleLeaseError: the rollout is not held under this fence any more: stop working on it.
        """
        positive(lease)
        with self._commits.held():
            entry = self._index.entries.get(id)
            if entry is None or entry.fence != fence:
                if fence not in self._ending:
                    raise stale(id, fence)
                return ready(time.time() + lease)
            self._index.extend(entry, self._clock() + lease)
            wake = entry.until < self._sleeps_until
            settled: Future[None] | None = None
            if entry.lease != lease and entry.change is None:
                entry.lease = lease
                # No entry in the change: a report that its worker sends meanwhile is not refused, and commits after it.
                change = Change()
                change.add([], [("rollout_state", [state(entry, "running")])])
                settled = self._commits.submit(change)
        if wake:
            self._wake.set()
        until = time.time() + lease
        return ready(until) if settled is None else follow(settled, lambda _: until)

    def finish(
        self, id: str, fence: int, *, trajectory: Trajectory | None = None, error: Failure | None = None
    ) -> Future[None]:
        """End an attempt: with the trajectory it came to, why it failed, or both; done once durable.

        The same report under the same fence may be repeated and is recorded once.  The task, the ids, the mode, the
        worker and the Versions of the trajectory are the queue's (`served.py`), whatever it says of them.

        Raises (in the future):
            StaleLeaseError: the rollout is not held under this fence any more; nothing was recorded.
            ConflictError: the record has another trajectory under the attempt's id.
            InputError: the trajectory has no JSON form.
            StoreError: it could not be written; the lease stands as it was.
        """
        return follow(self.finish_many([Finish(id, fence, trajectory, error)]), _raise_problem)

    def finish_many(self, finished: Sequence[Finish]) -> Future[builtins.list[Exception | None]]:
        """As `finish`, for many at once: the problem of each, None where it is recorded."""
        return follow(self.turn(finished), lambda turned: turned.problems)

    def served(self, id: str, fence: int) -> ServedAttempt | None:
        """What was given out under a fence; None where the rollout never had it."""
        return self._served.get(id, fence)

    def turn(
        self, finished: Sequence[Finish], claim: Claim | None = None, *, undecoded: bool = False
    ) -> Future[Turned]:
        """`finish_many` and `claim` in one commit: a worker's turn between two rollouts.

        A claim that finds nothing is answered like any other; it does not wait.

        Args:
            undecoded: as `claim` has it.

        Raises:
            InputError: as `claim` does; nothing was recorded.
            StoreError: the queue is closed; in the future: nothing could be written, neither the reports
                nor the claim.  Reports that were refused on their own are `problems`.
        """
        return follow(self.turns([self.prepared(finished, claim, undecoded=undecoded)]), _first)

    def prepared(
        self, finished: Sequence[Finish], claim: Claim | None = None, *, undecoded: bool = False
    ) -> PreparedTurn:
        """A turn as `turns` takes it.

        Raises:
            InputError: as `claim` does.
        """
        if claim is not None:
            claim.check()
        reports, problems = encoded(finished, self._served, redactor_of(self._database))
        return PreparedTurn(finished, claim, undecoded, reports, problems)

    def turns(self, turns: Sequence[PreparedTurn]) -> Future[builtins.list[Turned]]:
        """Turns of several workers in one commit, each answered as `turn` answers it.

        Raises:
            StoreError: the queue is closed; in the future, as any other error there: nothing of them could be
                written.  Of several turns it may be the fault of one: give each by itself then.
        """
        change, now, at = Change(), self._clock(), time.time()
        reports = [report for turn in turns for report in turn.reports]
        problems = [problem for turn in turns for problem in turn.problems]
        redact(reports, redactor_of(self._database))
        claims = any(turn.claim is not None for turn in turns)
        live = self._live.get() if claims else ""
        taken: builtins.list[tuple[PreparedTurn, Claimed]] = []
        with self._commits.held():
            if claims:
                self._expire(now)  # before the reports are sorted: one entry cannot change twice at once
            sorted_ = sort(reports, self._index, self._ending)
            waits = sorted_.waits
            if sorted_.fresh:
                self._end([*sorted_.fresh.values()], change)
            for turn in turns:
                if turn.claim is not None and (claimed := self._take(turn.claim, now, at, change, live))[0]:
                    taken.append((turn, claimed))
            if change.entries:
                settled = self._commits.submit(change)
                waits.append(([*sorted_.places, None] if taken else sorted_.places, settled))
                for _, report in sorted_.fresh.values():
                    self._ending[report.finish.fence] = (report.digest, settled)
        for position, report in sorted_.unknown:
            problems[position] = self._recorded(report)  # without the lock: it reads the file
        leases = {
            turn: self._leases(turn.claim, *claimed, now, at, live, turn.undecoded)
            for turn, claimed in taken
            if turn.claim is not None
        }
        return turned(turns, problems, waits, leases, self._apart)

    def _apart(self, turn: PreparedTurn) -> Future[builtins.list[Turned]]:
        """A turn whose commit met a conflict, with a commit for each report and for the claim."""
        leases: builtins.list[Lease] = []
        waits: builtins.list[Wait] = [
            ([position], follow(self.finish_many([finish]), _raise_problem))
            for position, finish in enumerate(turn.finished)
        ]
        if (claim := turn.claim) is not None:
            claimed = self.claim(
                claim.worker, n=claim.n, lease=claim.lease, modes=claim.modes, undecoded=turn.undecoded
            )
            waits.append(([None], follow(claimed, leases.extend)))
        return turned([turn], [None] * len(turn.finished), waits, {turn: leases})

    def cancel(self, id: str) -> Future[bool]:
        """End a rollout that waits or runs; False if it had ended before.  Its worker is refused from now on.

        Raises:
            NotFoundError: there is no such rollout.
        """
        with self._commits.held():
            entry = self._index.entries.get(id)
            if entry is not None and entry.change is None:
                return self._cancel(entry)
            change = None if entry is None else entry.change
        if change is None:
            self.get(id)
            return ready(False)
        cancelled: Future[bool] = Future()

        def settle(done: Future[bool]) -> None:
            if problem := done.exception():
                cancelled.set_exception(problem)
            else:
                cancelled.set_result(done.result())

        def again(_: Future[None]) -> None:
            try:
                self.cancel(id).add_done_callback(settle)
            except Exception as problem:
                cancelled.set_exception(problem)

        change.add_done_callback(again)  # one change of an entry at a time
        return cancelled

    def expire(self) -> Future[int]:
        """Take back the rollouts of dead workers; the future gives how many, once others may claim them.

        Called by the queue itself when a lease ends.
        """
        with self._commits.held():
            return self._expire(self._clock()) or ready(0)

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
        """Numbers of rollouts queued and running now, and succeeded, failed and cancelled ever."""
        with self._commits.held():
            queued, running = self._index.counts()
        rows = dict(self._database.rows("SELECT name, value FROM counters WHERE name IN (?, ?, ?)", _ENDED))
        return {"queued": queued, "running": running} | {name: rows.get(name, 0) for name in _ENDED}

    # -- inside -------------------------------------------------------------------------------

    def _take(self, claim: Claim, now: float, at: float, change: Change, live: str) -> Claimed:
        """Hold the first in line, each with its attempt and fence; and the next in line, if anything must be read."""
        modes = claim.modes or MODES
        entries = self._index.take(claim.n, modes)
        ahead = self._index.next(AHEAD, modes) if self._read_ahead.lacks(entries) else []
        claimed: builtins.list[tuple[QueuedRollout, int, int]] = []
        for entry in entries:
            # A claim that cannot be written gives the attempt back, never the fence: fences only grow.
            entry.attempts += 1
            self._index.fence += 1
            self._index.hold(entry, self._index.fence, claim.worker, now + claim.lease, claim.lease)
            # The numbers beside the entry: once the claim is durable another thread may change the entry.
            claimed.append((entry, entry.attempts, self._index.fence))
        if claimed:
            change.add(
                entries,
                [
                    ("rollout_state", [state(entry, "running") for entry in entries]),
                    (
                        "attempt",
                        [
                            (fence, e.id, e.seq, number, claim.worker, at, live)
                            for e, number, fence in claimed
                        ],
                    ),
                    ("counter", [("fence", self._index.fence)]),
                ],
                undo=lambda: self._unclaim(claimed),
            )
        return claimed, ahead

    def _unclaim(self, claimed: Sequence[tuple[QueuedRollout, int, int]]) -> None:
        for entry, number, _ in reversed(claimed):  # each goes first in line, so the first claimed comes last
            self._index.give_back(entry, number - 1)

    def _leases(
        self,
        claim: Claim,
        claimed: Sequence[tuple[QueuedRollout, int, int]],
        ahead: Sequence[QueuedRollout],
        now: float,
        at: float,
        live: str,
        undecoded: bool,
    ) -> builtins.list[Lease]:
        """The leases that the worker gets once the claim is durable.

        Args:
            now, at: the time of the claim on the queue's clock, and as Unix time, which the attempt has.
        """
        if now + claim.lease < self._sleeps_until:
            self._wake.set()
        until = at + claim.lease
        rollouts = self._read_ahead.take(
            [(entry, number) for entry, number, _ in claimed], ahead, live, undecoded=undecoded
        )
        leases: builtins.list[Lease] = []
        given_out: dict[int, ServedAttempt] = {}
        for (rollout, task, body), (_, number, fence) in zip(rollouts, claimed, strict=True):
            given_out[fence] = ServedAttempt(
                rollout.id, number, claim.worker, rollout.mode, rollout.resources, at, task, body
            )
            leases.append(
                Lease(rollout=rollout, attempt=number, fence=fence, worker=claim.worker, until=until)
            )
        self._served.put(given_out)
        return leases

    def _end(self, fresh: Sequence[tuple[QueuedRollout, EncodedFinish]], change: Change) -> None:
        states: builtins.list[Sequence[Value]] = []
        ends: builtins.list[Sequence[Value]] = []
        ended: builtins.list[Status] = []
        again: builtins.list[QueuedRollout] = []
        over: builtins.list[QueuedRollout] = []
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
        fences = [report.finish.fence for _, report in fresh]

        def forget() -> None:
            for fence in fences:
                self._ending.pop(fence, None)

        def then() -> None:
            forget()
            self._served.forget(fences)
            for entry in over:
                self._index.drop(entry)
            for entry in again:
                self._index.wait(entry)

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
        return [("rollout_state", states), ("counter", [("done", self._index.done)]), ("count", counted)]

    def _next(self) -> int:
        # A change that fails leaves a gap: `finished` needs the numbers in order, not without gaps.
        self._index.done += 1
        return self._index.done

    def _cancel(self, entry: QueuedRollout) -> Future[bool]:
        waited = entry.fence is None
        self._index.withdraw(entry)
        ends = [] if waited else [(entry.fence, time.time(), "cancelled", None, None)]
        change = Change()
        change.add(
            [entry],
            [
                ("attempt_end", ends),
                *self._ends([state(entry, "cancelled", done=self._next())], ["cancelled"]),
            ],
            then=lambda: self._index.drop(entry),
            undo=(lambda: self._index.give_back(entry, entry.attempts)) if waited else None,
        )
        return follow(self._commits.submit(change), lambda _: True)

    def _expire(self, now: float) -> Future[int] | None:
        """As `expire`, under the lock; None where no lease has ended, as nearly always."""
        due = self._index.due(now)
        if not due:
            return None
        lost = failure_json(LOST)
        at = time.time()
        again = [entry for entry in due if entry.attempts < entry.max_attempts]
        over = [entry for entry in due if entry.attempts >= entry.max_attempts]
        states = [state(entry, "queued", error=lost) for entry in again]
        states += [state(entry, "failed", error=lost, done=self._next()) for entry in over]
        ends = [(entry.fence, at, "expired", lost, None) for entry in due]

        def then() -> None:
            for entry in again:
                self._index.wait(entry)
            for entry in over:
                self._index.drop(entry)

        def undo() -> None:
            for entry in due:  # the disk is full, say: they are looked at again soon
                self._index.hold(
                    entry, entry.fence or 0, entry.worker or "", now + _AGAIN, entry.lease or _AGAIN
                )

        change = Change()
        change.add(
            due, [("attempt_end", ends), *self._ends(states, ["failed"] * len(over))], then=then, undo=undo
        )
        return follow(self._commits.submit(change), lambda _: len(due))

    def _recorded(self, report: EncodedFinish) -> Exception | None:
        """None if this report was recorded before, else why it is refused."""
        rows = self._database.rows(
            "SELECT 1 FROM attempts WHERE fence = ? AND rollout = ? AND digest = ?",
            [report.finish.fence, report.finish.id, report.digest],
        )
        return None if rows else stale(report.finish.id, report.finish.fence)

    def _tasks_changed(self, tasks: Sequence[str] | None) -> None:
        self._read_ahead.forget(tasks)
        if tasks is None:
            self._served.forget()  # one of them may be a person's; what was given out is read again, if it is there

    def _arrived(self, arrivals: builtins.list[Arrival]) -> None:
        def apply(_: BaseException | None) -> None:
            for seq, id, mode, max_attempts in arrivals:
                # `_load` may have read it already: the callback is set before the file is read.
                if id not in self._index.entries:
                    self._index.wait(QueuedRollout(seq, id, mode, max_attempts))

        self._commits.note(apply)

    def _load(self) -> None:
        index = self._index
        counters = dict(self._database.rows("SELECT name, value FROM counters"))
        index.fence, index.done = counters.get("fence", 0), counters.get("done", 0)
        now = self._clock()
        for seq, id, mode, limit, tried, fence, worker, lease in self._database.rows(
            "SELECT seq, id, mode, max_attempts, attempts, fence, worker, lease FROM rollouts "
            "WHERE done IS NULL ORDER BY seq"
        ):
            entry = QueuedRollout(seq, id, mode, limit, tried)
            if fence is None:
                index.wait(entry)
            else:
                index.hold(entry, fence, worker, now + lease, lease)

    def _watch(self) -> None:
        """End leases when their time is up."""
        with contextlib.suppress(StoreError):  # raised once the queue is closed
            while True:
                with self._commits.held():
                    deadline = self._index.deadline
                    self._sleeps_until = float("inf") if deadline is None else deadline
                self._wake.wait(None if deadline is None else max(0.0, deadline - self._clock()))
                # Before the index is looked at again, so that a shorter lease which
                # comes meanwhile is not slept over.
                self._wake.clear()
                self.expire()

    def _close(self) -> None:
        self._commits.closed = True
        self._wake.set()


def _raise_problem(problems: list[Exception | None]) -> None:
    if problems[0] is not None:
        raise problems[0]


def _first(turned: list[Turned]) -> Turned:
    return turned[0]
