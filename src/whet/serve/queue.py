"""The queue over HTTP: tasks, and rollouts with leases.

The state is in the store (`record/store/queue.py`); here are the long poll, the batches and the answers.  A
claim that waits is woken when something is queued; it does not poll, and one whose client has gone claims nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import msgspec

from ..errors import ConflictError, InputError, StaleLeaseError, StoreError
from ..record.exchange.formats import task_from_json
from ..record.store import Store
from ..record.store.redaction.redact import Redactor
from ..record.store.rollouts import LONGEST, MOST, Claim, Finish
from ..record.store.served import UNSENT
from ..record.store.turns import Turned
from ..record.tracing import otlp
from ..types import Json, Lease, Mode, Rollout, Span, Split, Status, Task, Trajectory, new_id
from .auth import RequestLimits
from .durable import Backlog, settled
from .http import HttpRoute, Page, Request, Response, Role, answer, reads, writes
from .turns import SharedTurns
from .worker import wire

ATTACH = 1.0
"""Seconds between attempts to own the file, where another process does."""
LARGE = 512 * 1024
"""Bytes of spans beyond which they are read in a thread, so that other requests get their turn."""

Cursor = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class Tasks(msgspec.Struct, forbid_unknown_fields=True):
    """Tasks to record, or found."""

    tasks: list[Task]


class QueueCounts(msgspec.Struct):
    """Status → rollouts, and the claims that wait for some."""

    counts: dict[str, int]
    waiting: int


class Waiters:
    """Claims that wait for work, woken in the order in which they came.

    Args:
        loop: in which they wait; `wake` may be called from any thread.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: dict[tuple[str, ...] | None, deque[asyncio.Future[None]]] = {}

    @property
    def lines(self) -> int:
        """Sets of modes that some claim waits for."""
        return len(self._waiting)

    def wake(self) -> None:
        """Something was queued: let one claim of each kind look."""
        self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        for waiting in self._waiting.values():
            while waiting:
                first = waiting.popleft()
                if not first.done():
                    first.set_result(None)
                    break

    async def wait(self, modes: Sequence[str] | None, seconds: float, *ends: asyncio.Future[Any]) -> bool:
        """Wait to be woken; False if the time was up or one of `ends` was done first."""
        mine = self._loop.create_future()
        # By what is wanted, not by how it was written: a client's list may repeat a mode as it likes.
        line = None if modes is None else tuple(sorted(set(modes)))
        waiting = self._waiting.setdefault(line, deque())
        waiting.append(mine)
        try:
            await asyncio.wait({mine, *ends}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            return mine.done()
        finally:
            if not mine.done() and mine in waiting:
                waiting.remove(mine)
            mine.cancel()
            # `is`: while this one was woken and did not run yet, the line may have gone and come anew.
            if not waiting and self._waiting.get(line) is waiting:
                del self._waiting[line]


class QueuePart:
    """Tasks and rollouts.

    Args:
        store: the record, owned by this process.
        limits: how long a poll may wait, and how many spans a report may bring.
        backlog: shared by all that write.
        redactor: takes secrets out of the spans of reports.
    """

    def __init__(self, store: Store, limits: RequestLimits, backlog: Backlog, redactor: Redactor) -> None:
        self._store, self._limits, self._backlog, self._redactor = store, limits, backlog, redactor
        self._otlp = otlp.DecodeLimits(spans=self._limits.spans)
        self._waiters: Waiters | None = None
        self._turns: SharedTurns | None = None
        self._polls: dict[str, set[asyncio.Event]] = {}
        """Worker → what ends each of its claims that wait."""
        self.routes: Sequence[HttpRoute] = self._routes()

    @contextlib.asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Claims that wait are woken while it is served."""
        loop = asyncio.get_running_loop()
        waiters = self._waiters = Waiters(loop)
        self._turns = SharedTurns(self._store, self._backlog, loop)
        attaching = asyncio.create_task(self._attach(waiters))
        try:
            yield
        finally:
            # Where it has attached by now, cancelling does nothing and its result is what detaches.
            attaching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                (await attaching)()

    async def _attach(self, waiters: Waiters) -> Callable[[], None]:
        """Listen to the queue, as soon as this process owns the file.

        Where another process had opened it first, that is once it has let go of it, which an agent's
        process does when it is asked, or has ended.
        """
        while True:
            try:
                return self._store.queue.on_available(waiters.wake)
            except StoreError:
                with contextlib.suppress(StoreError):
                    await asyncio.to_thread(self._store.database.take_over)
                await asyncio.sleep(ATTACH)

    # -- tasks --------------------------------------------------------------------------------

    async def _put_tasks(self, request: Request) -> Response:
        sent = (await request.json(_Tasks)).tasks
        tasks = [_task(task, f"tasks[{number}]") for number, task in enumerate(sent)]
        batch = self._store.batch()
        await asyncio.to_thread(batch.put_tasks, *tasks)
        await settled(batch.submit())
        return answer(wire.Added([task.id for task in tasks], dict(batch.redacted)))

    async def _tasks(self, request: Request) -> Response:
        split = request.parameter("split", Split)
        if split is Split.GATE and request.role is not Role.ADMIN:
            raise InputError("gate tasks are read with the role admin only: nothing that learns may see them")
        limit = request.parameter("limit", Page, 100)
        tasks = await asyncio.to_thread(lambda: [*itertools.islice(self._store.tasks(split=split), limit)])
        admin = request.role is Role.ADMIN
        return answer(Tasks([task for task in tasks if task.split is not Split.GATE or admin]))

    # -- rollouts -----------------------------------------------------------------------------

    async def _add(self, request: Request) -> Response:
        self._backlog.admit()
        body = await request.body()
        sent = request.parsed(body, _Add).rollouts
        # Before anything is queued: a rollout under a Bundle that is not there would fail at every worker.
        await asyncio.to_thread(self._known, {new.resources for new in sent})
        rollouts = [
            Rollout(
                id=new.id or new_id(),
                task=_task(new.task, f"rollouts[{number}].task"),
                mode=new.mode,
                resources=new.resources,
                max_attempts=new.max_attempts,
                meta=new.meta,
            )
            for number, new in enumerate(sent)
        ]
        batch = self._store.batch()
        batch.add_rollouts(*rollouts)
        # Not through the queue: another process may own the file.
        self._backlog.admit(len(body))
        await settled(batch.submit())
        return answer(wire.Added([rollout.id for rollout in rollouts], dict(batch.redacted)))

    def _known(self, bundles: set[str | None]) -> None:
        """Refuse an unknown Bundle: no worker could run a rollout under it.

        Raises:
            NotFoundError: names it.
        """
        for id in bundles:
            if id is not None:
                self._store.bundle(id)

    async def _claim(self, request: Request) -> Response:
        self._backlog.admit()
        claim = await request.json(Claim)
        leases = await self._claimed(claim)
        # A claim that finds nothing is answered without giving way to the loop, and nothing is
        # awaited from there to `wait`: so no wake-up falls between the two.
        if leases or claim.wait <= 0 or self._waiters is None:
            return answer(wire.Claimed(leases))
        deadline = time.monotonic() + min(claim.wait, self._limits.wait)
        withdrawn = asyncio.Event()
        events = self._polls.setdefault(claim.worker, set())
        events.add(withdrawn)
        ends = [
            asyncio.ensure_future(end)
            for end in (request.disconnected(), request.closing.wait(), withdrawn.wait())
        ]
        try:
            while not leases and (remaining := deadline - time.monotonic()) > 0:
                woken = await self._waiters.wait(claim.modes, remaining, *ends)
                if any(end.done() for end in ends):
                    if woken:
                        self._waiters.wake()  # this claim ends: the rollout is for another one
                    break
                leases = await self._claimed(claim)
            if leases:
                self._waiters.wake()  # there may be more
        finally:
            for end in ends:
                end.cancel()
            events.discard(withdrawn)
            if not events:
                self._polls.pop(claim.worker, None)
        return answer(wire.Claimed(leases))

    async def _withdraw(self, request: Request) -> Response:
        polls = self._polls.get((await request.json(wire.Withdraw)).worker, set())
        for withdrawn in polls:
            withdrawn.set()
        return answer(wire.Withdrawn(len(polls)))

    async def _claimed(self, claim: Claim) -> list[Lease]:
        queue = self._store.queue
        return await settled(
            queue.claim(claim.worker, n=claim.n, lease=claim.lease, modes=claim.modes, undecoded=True)
        )

    async def _heartbeat(self, request: Request) -> Response:
        beat = await request.json(wire.Beat)
        until: list[float | None] = []
        for held in beat.leases:
            try:
                held_until = await settled(self._store.queue.heartbeat(held.id, held.fence, lease=beat.lease))
                until.append(held_until)
            except StaleLeaseError:
                until.append(None)
        return answer(wire.Beaten(until))

    async def _beat(self, request: Request) -> Response:
        held = await request.json(wire.OneBeat)
        until = await settled(self._store.queue.heartbeat(request.params["id"], held.fence, lease=held.lease))
        return answer(wire.Beaten([until]))

    async def _finish_many(self, request: Request) -> Response:
        self._backlog.admit()
        body = await request.body()
        parsed = request.parsed(body, _FinishMany)
        sent = _sent(body, _SentMany) if any(map(_made_up, parsed.finished)) else None
        reports = await self._reports(parsed.finished, () if sent is None else sent.finished)
        self._backlog.admit(len(body))
        turned = await self._turned(reports, parsed.claim, len(body))
        results = [_result(*pair) for pair in zip(reports, turned.problems, strict=True)]
        return answer(wire.Results(results, turned.leases))

    async def _turned(self, reports: Sequence[Finish], claim: Claim | None, size: int) -> Turned:
        if self._turns is None:
            raise StoreError("the server does not run")
        return await self._turns.take(reports, claim, size)

    async def _reports(self, finished: Sequence[wire.FinishRequest], sent: Sequence[_Sent]) -> list[Finish]:
        """Reports as the record takes them: spans cut out of their export, secrets redacted."""
        pairs = [*itertools.zip_longest(finished, sent)]
        if sum([len(finish.spans) for finish in finished]) > LARGE:
            return await asyncio.to_thread(lambda: [self._report(*pair) for pair in pairs])
        return [self._report(*pair) for pair in pairs]

    def _report(self, finish: wire.FinishRequest, sent: _Sent | None) -> Finish:
        spans: Sequence[Span] = ()
        if finish.spans:
            # Spans that name no run belong to the rollout that they were reported with.
            decoded = otlp.decode(finish.spans, json=False, logs=False, limits=self._otlp, run=finish.id)
            if decoded.rejected:
                raise InputError(f"the spans of rollout {finish.id}: {'; '.join(decoded.reasons)}")
            spans = self._redactor.spans(decoded.spans, finish.spans, json=False)
        key = b"" if sent is None else b"%b\0%b" % (bytes(sent.trajectory), bytes(sent.error))
        return Finish(finish.id, finish.fence, finish.trajectory, finish.error, spans, key, finish.own)

    async def _finish(self, request: Request) -> Response:
        self._backlog.admit()
        body = await request.body()
        finish = request.parsed(body, _OneFinish)
        report = self._report(
            wire.FinishRequest(
                request.params["id"],
                finish.fence,
                finish.trajectory,
                finish.error,
                finish.spans,
                finish.own,
            ),
            _sent(body, _Sent) if _made_up(finish) else None,
        )
        self._backlog.admit(len(body))
        (problem,) = (await self._turned([report], None, len(body))).problems
        if problem is not None:
            raise problem
        return answer(wire.FinishResult(report.id, True))

    async def _cancel(self, request: Request) -> Response:
        id = request.params["id"]
        await settled(self._store.queue.cancel(id))
        return answer(self._store.queue.get(id))

    async def _get(self, request: Request) -> Response:
        return answer(await asyncio.to_thread(self._store.queue.get, request.params["id"]))

    async def _list(self, request: Request) -> Response:
        status, mode = request.parameter("status", Status), request.parameter("mode", Mode)
        after, limit = request.parameter("after", str), request.parameter("limit", Page, 100)
        rollouts = await asyncio.to_thread(
            lambda: self._store.queue.list(status=status, mode=mode, after=after, limit=limit)
        )
        return answer(wire.RolloutPage(rollouts))

    async def _ended(self, request: Request) -> Response:
        after, limit = request.parameter("after", Cursor, 0), request.parameter("limit", Page, 100)
        ended = await asyncio.to_thread(self._store.queue.finished, after, limit)
        return answer(wire.RolloutPage([rollout for _, rollout in ended], ended[-1][0] if ended else after))

    async def _counts(self, request: Request) -> Response:
        waiting = sum(len(polls) for polls in self._polls.values())
        counts = await asyncio.to_thread(self._store.queue.counts)
        return answer(QueueCounts({str(status): count for status, count in counts.items()}, waiting))

    def _routes(self) -> tuple[HttpRoute, ...]:
        task = {"split": Split, "limit": Page}
        listed = {"status": Status, "mode": Mode, "after": str, "limit": Page}
        rollout = "/api/rollouts/{id}"
        return (
            writes("/api/tasks", self._put_tasks, "Record tasks", Tasks, wire.Added),
            reads("/api/tasks", self._tasks, "Tasks in the order they were recorded in", Tasks, query=task),
            writes(
                "/api/rollouts",
                self._add,
                "Queue rollouts; a known id is left as it is",
                wire.Add,
                wire.Added,
            ),
            reads(
                "/api/rollouts", self._list, "Rollouts, by status and mode", wire.RolloutPage, query=listed
            ),
            reads("/api/rollouts/counts", self._counts, "Numbers of rollouts by status", QueueCounts),
            reads(
                "/api/rollouts/finished",
                self._ended,
                "Rollouts in the order in which they ended",
                wire.RolloutPage,
                query={"after": Cursor, "limit": Page},
            ),
            writes(
                "/api/rollouts/claim",
                self._claim,
                "Claim rollouts, waiting for some if asked to",
                Claim,
                wire.Claimed,
            ),
            writes(
                "/api/rollouts/withdraw",
                self._withdraw,
                "End a worker's waiting claims; they answer at once",
                wire.Withdraw,
                wire.Withdrawn,
            ),
            writes(
                "/api/rollouts/heartbeat",
                self._heartbeat,
                "Keep leases; null if lost",
                wire.Beat,
                wire.Beaten,
            ),
            writes(
                "/api/rollouts/finish",
                self._finish_many,
                "Report rollouts, and claim more",
                wire.FinishMany,
                wire.Results,
            ),
            reads(rollout, self._get, "One rollout", Rollout),
            writes(
                f"{rollout}/heartbeat", self._beat, "Keep a lease; 409 if lost", wire.OneBeat, wire.Beaten
            ),
            writes(
                f"{rollout}/finish",
                self._finish,
                "Report one; 409 if stale",
                wire.OneFinish,
                wire.FinishResult,
            ),
            writes(f"{rollout}/cancel", self._cancel, "Cancel a rollout", None, Rollout),
        )


class _Tasks(msgspec.Struct, forbid_unknown_fields=True):
    """`Tasks` as they come: in the published shape too, and with fields of the sender's own."""

    tasks: Annotated[list[dict[str, Json]], msgspec.Meta(max_length=10 * MOST)]


def _made_up(finish: wire.FinishRequest | wire.OneFinish) -> bool:
    """True if ids or times in a report may be made up at each decoding, so that its bytes tell a repeated one."""
    return finish.trajectory is not None and bool(finish.trajectory.feedback)


class _Sent(msgspec.Struct):
    """A report as it was sent."""

    trajectory: msgspec.Raw = msgspec.Raw(b"")
    error: msgspec.Raw = msgspec.Raw(b"")


class _SentMany(msgspec.Struct):
    finished: list[_Sent]


_AsSent = TypeVar("_AsSent", _Sent, _SentMany)


def _sent(body: bytes, type: type[_AsSent]) -> _AsSent | None:
    """A body as it was sent; None if only the lenient reader takes it, with halves of characters in it."""
    try:
        return msgspec.json.decode(body, type=type)
    except (msgspec.MsgspecError, ValueError):
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reported(Trajectory):
    """A trajectory as it was reported: what the queue knows of it may have been left out."""

    task: Task = UNSENT
    id: str = ""
    started: float = 0.0
    """0.0 stands for the time of the claim."""


class _FinishRequest(wire.FinishRequest):
    trajectory: _Reported | None = None


class _FinishMany(wire.FinishMany):
    finished: Annotated[list[_FinishRequest], msgspec.Meta(max_length=MOST)]  # type: ignore[assignment]


class _OneFinish(wire.OneFinish):
    trajectory: _Reported | None = None


class _NewRollout(wire.NewRollout):
    task: dict[str, Json]  # type: ignore[assignment]  # as it comes


class _Add(wire.Add):
    rollouts: Annotated[list[_NewRollout], msgspec.Meta(max_length=MOST)]  # type: ignore[assignment]


def _task(body: dict[str, Json], where: str) -> Task:
    """A task of a request, read as `whet tasks add` reads it.

    Raises:
        InputError: it is empty, or a field is not of its type.
    """
    try:
        task = task_from_json(body)
    except InputError as error:
        raise InputError(f"{where}: {error}") from error
    if len(task.id) > LONGEST:
        raise InputError(f"{where}: an id has at most {LONGEST} characters, not {len(task.id):,}")
    return task


def _result(report: Finish, problem: Exception | None) -> wire.FinishResult:
    """The answer to one finish of a batch; a failure of the store fails the whole request.

    Raises:
        StoreError: it could not be written, and may be sent again.
    """
    if problem is None:
        return wire.FinishResult(report.id, True)
    if isinstance(problem, StaleLeaseError):
        return wire.FinishResult(report.id, False, True, str(problem))
    if isinstance(problem, InputError | ConflictError):
        return wire.FinishResult(report.id, False, False, str(problem))
    raise problem
