"""The queue over HTTP: tasks, and rollouts with leases.

The state is the record's (`store.queue`); here are the long poll, the batches and the answers.  A
claim that waits is woken when something is queued, not by looking again; one whose client has
gone claims nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Annotated, Any, TypeVar

import msgspec

from ..data.formats import task_from_json
from ..errors import InputError, StaleLeaseError, StoreError
from ..store import Store
from ..store.rollouts import Finish, Want
from ..tracing import otlp
from ..tracing.redact import Redactor
from ..types import Json, Lease, Mode, Rollout, Span, Split, Status, Task, new_id
from ..worker import wire
from .asgi import Request, Response, Role, Route, answer, reads, writes
from .auth import Limits
from .bridge import settled

ATTACH = 1.0
"""Seconds between attempts to own the file, where another process does."""
PAGE = 1_000
LARGE = 512 * 1024
"""Bytes of spans beyond which they are read in a thread, so that other requests get their turn."""

Page = Annotated[int, msgspec.Meta(ge=1, le=PAGE)]
Cursor = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class Tasks(msgspec.Struct, forbid_unknown_fields=True):
    """Tasks to record, or found."""

    tasks: list[Task]


class Counts(msgspec.Struct):
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
        waiting = self._waiting.setdefault(None if modes is None else tuple(sorted(modes)), deque())
        waiting.append(mine)
        try:
            await asyncio.wait({mine, *ends}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            return mine.done()
        finally:
            if mine.done():
                pass
            elif mine in waiting:
                waiting.remove(mine)
            mine.cancel()


class Queue:
    """Tasks and rollouts.

    Args:
        store: the record, owned by this process.
        limits: how long a poll may wait, and how many spans a report may bring.
        redactor: takes secrets out of reports before they are stored.
    """

    def __init__(
        self, store: Store, limits: Limits | None = None, *, redactor: Redactor | None = None
    ) -> None:
        self._store, self._limits, self._redactor = store, limits or Limits(), redactor
        self._otlp = otlp.Limits(spans=self._limits.spans)
        self._waiters: Waiters | None = None
        self._polls: dict[str, set[asyncio.Event]] = {}
        """Worker → what ends each of its claims that wait."""
        self.routes: Sequence[Route] = self._routes()

    @contextlib.asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Claims that wait are woken while it is served."""
        waiters = self._waiters = Waiters(asyncio.get_running_loop())
        attaching = asyncio.create_task(self._attach(waiters))
        try:
            yield
        finally:
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
                    await asyncio.to_thread(self._store.take_over)
                await asyncio.sleep(ATTACH)

    # -- tasks --------------------------------------------------------------------------------

    async def _put_tasks(self, request: Request) -> Response:
        given = (await request.json(_Tasks)).tasks
        tasks = [_task(one, f"tasks[{number}]") for number, one in enumerate(given)]
        await asyncio.to_thread(self._store.put_tasks, *tasks)
        return answer(wire.Added([task.id for task in tasks]))

    async def _tasks(self, request: Request) -> Response:
        split = request.asked("split", Split)
        if split is Split.GATE and request.role is not Role.ADMIN:
            raise InputError("gate tasks are read with the role admin only: nothing that learns may see them")
        limit = request.asked("limit", Page, 100)
        found = await asyncio.to_thread(
            lambda: [*zip(range(limit), self._store.tasks(split=split), strict=False)]
        )
        shown = [task for _, task in found if task.split is not Split.GATE or request.role is Role.ADMIN]
        return answer(Tasks(shown))

    # -- rollouts -----------------------------------------------------------------------------

    async def _add(self, request: Request) -> Response:
        given = await request.json(_Add)
        await asyncio.to_thread(self._known, {one.resources for one in given.rollouts})
        rollouts = [
            Rollout(
                id=one.id or new_id(),
                task=_task(one.task, f"rollouts[{number}].task"),
                mode=one.mode,
                resources=one.resources,
                max_attempts=one.max_attempts,
                meta=one.meta,
            )
            for number, one in enumerate(given.rollouts)
        ]
        batch = self._store.batch()
        batch.add_rollouts(
            *rollouts
        )  # not through the queue: this works where another process owns the file too
        await settled(batch.submit())
        return answer(wire.Added([one.id for one in rollouts]))

    def _known(self, bundles: set[str | None]) -> None:
        """Refuse a Bundle that is not there: no worker could run what is queued under it.

        Raises:
            NotFoundError: names it.
        """
        for id in bundles:
            if id is not None:
                self._store.bundle(id)

    async def _claim(self, request: Request) -> Response:
        claim = await request.json(wire.Claim)
        leases = await self._claimed(claim)
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
            while not leases and (left := deadline - time.monotonic()) > 0:
                woken = await self._waiters.wait(claim.modes, left, *ends)
                if any(end.done() for end in ends):
                    if woken:
                        self._waiters.wake()  # what we were woken for is another's now
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

    async def _claimed(self, claim: wire.Claim) -> list[Lease]:
        queue = self._store.queue
        return await settled(queue.claim(claim.worker, n=claim.n, lease=claim.lease, modes=claim.modes))

    async def _heartbeat(self, request: Request) -> Response:
        beat = await request.json(wire.Beat)
        until: list[float | None] = []
        for held in beat.leases:
            try:
                kept = await settled(self._store.queue.heartbeat(held.id, held.fence, lease=beat.lease))
                until.append(kept)
            except StaleLeaseError:
                until.append(None)
        return answer(wire.Beaten(until))

    async def _beat(self, request: Request) -> Response:
        held = await request.json(wire.OneBeat)
        until = await settled(self._store.queue.heartbeat(request.params["id"], held.fence, lease=held.lease))
        return answer(wire.Beaten([until]))

    async def _finish_many(self, request: Request) -> Response:
        body = await request.body()
        given, sent = request.parsed(body, wire.FinishMany), _sent(body, _SentMany)
        reports = await self._reports(given.finished, () if sent is None else sent.finished)
        claim = given.claim
        want = None if claim is None else Want(claim.worker, claim.n, claim.lease, claim.modes)
        turned = await settled(self._store.queue.turn(reports, want))
        told = zip(reports, turned.problems, strict=True)
        return answer(wire.Results([_result(one.id, problem) for one, problem in told], turned.leases))

    async def _reports(self, finished: Sequence[wire.Finish], sent: Sequence[_Sent]) -> list[Finish]:
        """Reports as the record takes them: spans cut out of their export, secrets redacted."""
        pairs = [*itertools.zip_longest(finished, sent)]
        if sum([len(one.spans) for one in finished]) > LARGE:
            return await asyncio.to_thread(lambda: [self._report(*pair) for pair in pairs])
        return [self._report(*pair) for pair in pairs]

    def _report(self, one: wire.Finish, sent: _Sent | None) -> Finish:
        trajectory, error, redactor = one.trajectory, one.error, self._redactor
        spans: Sequence[Span] = ()
        if one.spans:
            # What does not name a run belongs to the rollout that it was reported with.
            found = otlp.decode(one.spans, json=False, logs=False, limits=self._otlp, run=one.id)
            if found.rejected:
                raise InputError(f"the spans of rollout {one.id}: {'; '.join(found.reasons)}")
            spans = found.spans
            if redactor is not None:
                spans = redactor.spans(found.spans, one.spans, json=False)
        if trajectory is not None and redactor is not None:
            trajectory = redactor.trajectory(trajectory)
        if error is not None and redactor is not None:
            error = redactor.failure(error)
        key = b"" if sent is None else b"%b\0%b" % (bytes(sent.trajectory), bytes(sent.error))
        return Finish(one.id, one.fence, trajectory, error, spans, key)

    async def _finish(self, request: Request) -> Response:
        body = await request.body()
        one = request.parsed(body, wire.OneFinish)
        report = self._report(
            wire.Finish(request.params["id"], one.fence, one.trajectory, one.error, one.spans),
            _sent(body, _Sent),
        )
        (problem,) = await settled(self._store.queue.finish_many([report]))
        if problem is not None:
            raise problem
        return answer(wire.Result(report.id, True))

    async def _cancel(self, request: Request) -> Response:
        id = request.params["id"]
        await settled(self._store.queue.cancel(id))
        return answer(self._store.queue.get(id))

    async def _get(self, request: Request) -> Response:
        return answer(await asyncio.to_thread(self._store.queue.get, request.params["id"]))

    async def _list(self, request: Request) -> Response:
        status, mode = request.asked("status", Status), request.asked("mode", Mode)
        after, limit = request.asked("after", str), request.asked("limit", Page, 100)
        found = await asyncio.to_thread(
            lambda: self._store.queue.list(status=status, mode=mode, after=after, limit=limit)
        )
        return answer(wire.Rollouts(found))

    async def _ended(self, request: Request) -> Response:
        after, limit = request.asked("after", Cursor, 0), request.asked("limit", Page, 100)
        found = await asyncio.to_thread(self._store.queue.finished, after, limit)
        return answer(wire.Rollouts([one for _, one in found], found[-1][0] if found else after))

    async def _counts(self, request: Request) -> Response:
        waiting = sum(len(polls) for polls in self._polls.values())
        counts = await asyncio.to_thread(self._store.queue.counts)
        return answer(Counts({str(status): count for status, count in counts.items()}, waiting))

    def _routes(self) -> tuple[Route, ...]:
        task = {"split": Split, "limit": Page}
        listed = {"status": Status, "mode": Mode, "after": str, "limit": Page}
        one = "/api/rollouts/{id}"
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
            reads("/api/rollouts", self._list, "Rollouts, by status and mode", wire.Rollouts, query=listed),
            reads("/api/rollouts/counts", self._counts, "How many there are", Counts),
            reads(
                "/api/rollouts/finished",
                self._ended,
                "Rollouts in the order in which they ended",
                wire.Rollouts,
                query={"after": Cursor, "limit": Page},
            ),
            writes(
                "/api/rollouts/claim",
                self._claim,
                "Claim rollouts, waiting for some if asked to",
                wire.Claim,
                wire.Claimed,
                open_stream=True,
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
                "Report what became, and claim more",
                wire.FinishMany,
                wire.Results,
            ),
            reads(one, self._get, "One rollout", Rollout),
            writes(f"{one}/heartbeat", self._beat, "Keep a lease; 409 if lost", wire.OneBeat, wire.Beaten),
            writes(f"{one}/finish", self._finish, "Report one; 409 if stale", wire.OneFinish, wire.Result),
            writes(f"{one}/cancel", self._cancel, "Cancel a rollout", None, Rollout),
        )


class _Tasks(msgspec.Struct, forbid_unknown_fields=True):
    """`Tasks` as they come: in the published shape too, and with fields of the sender's own."""

    tasks: list[dict[str, Json]]


class _Sent(msgspec.Struct):
    """A report as it was sent: what tells a repeated one, whose ids and times may be made up at each reading."""

    trajectory: msgspec.Raw = msgspec.Raw(b"")
    error: msgspec.Raw = msgspec.Raw(b"")


class _SentMany(msgspec.Struct):
    finished: list[_Sent]


_AsSent = TypeVar("_AsSent", _Sent, _SentMany)


def _sent(body: bytes, type: type[_AsSent]) -> _AsSent | None:
    """None of a body that only the lenient reader takes, with halves of characters in it."""
    try:
        return msgspec.json.decode(body, type=type)
    except (msgspec.MsgspecError, ValueError):
        return None


class _NewRollout(wire.NewRollout):
    task: dict[str, Json]  # type: ignore[assignment]  # as it comes


class _Add(wire.Add):
    rollouts: Annotated[list[_NewRollout], msgspec.Meta(max_length=wire.MOST)]  # type: ignore[assignment]


def _task(given: dict[str, Json], where: str) -> Task:
    """A task that somebody sends, read as `whet tasks add` reads it.

    Raises:
        InputError: it says nothing, or a field is not of its type.
    """
    try:
        task = task_from_json(given)
    except InputError as error:
        raise InputError(f"{where}: {error}") from error
    if len(task.id) > wire.LONGEST:
        raise InputError(f"{where}: an id has at most {wire.LONGEST} characters, not {len(task.id):,}")
    return task


def _result(id: str, problem: Exception | None) -> wire.Result:
    """What to say of one finish of a batch; what the store could not do at all fails the whole request.

    Raises:
        StoreError: it could not be written, and may be sent again.
    """
    if problem is None:
        return wire.Result(id, True)
    if isinstance(problem, StaleLeaseError):
        return wire.Result(id, False, True, str(problem))
    if isinstance(problem, InputError):
        return wire.Result(id, False, False, str(problem))
    raise problem
