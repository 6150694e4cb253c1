"""Ingest: native trajectories, and OpenTelemetry traces and logs.

A request is answered once its content is committed and synced, and can be read at once.  One malformed
item refuses its whole request and nothing of it is stored, except where OTLP has its own word for that,
partial success.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
import traceback
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Annotated

import msgspec

from ..errors import ConflictError, InputError
from ..record.store import Store
from ..record.store.protobuf import write_field
from ..record.store.rollouts import LONGEST, MOST
from ..record.tracing import otlp
from ..record.tracing.assemble import Assembler
from ..record.tracing.export import Export, ExportRead
from ..record.tracing.progress import AssemblyProgress
from ..types import Outcome, Trajectory
from .durable import Backlog, settled
from .http import (
    HttpRoute,
    Page,
    Passive,
    Refused,
    Request,
    Response,
    Role,
    answer,
    reads,
    without_paths,
    writes,
)
from .readers import Readers
from .worker.wire import Added


class TrajectoriesBody(msgspec.Struct, forbid_unknown_fields=True):
    """Trajectories to record."""

    trajectories: Annotated[list[Trajectory], msgspec.Meta(max_length=10 * MOST)]
    experiment: str | None = None


class TrajectoryPage(msgspec.Struct):
    """Trajectories of the record."""

    trajectories: list[Trajectory]


class Trajectories(Passive):
    """Native trajectories, in and out.

    Args:
        store: the record.
        backlog: shared by all that write.
    """

    def __init__(self, store: Store, backlog: Backlog) -> None:
        self._store, self._backlog = store, backlog
        self.routes: Sequence[HttpRoute] = (
            writes(
                "/api/trajectories",
                self._put,
                "Record trajectories; the same one again is left as it is, another one under its id refused with 409",
                TrajectoriesBody,
                Added,
                of_run=True,
            ),
            reads(
                "/api/trajectories",
                self._list,
                "Trajectories in the order in which they were recorded",
                TrajectoryPage,
                query={
                    "experiment": str,
                    "since": float,
                    "outcome": Outcome,
                    "run": str,
                    "session": str,
                    "subject": str,
                    "limit": Page,
                },
            ),
            reads("/api/trajectories/{id}", self._get, "One trajectory, by its id or its run's", Trajectory),
        )

    async def _put(self, request: Request) -> Response:
        # Before the body is read: a client that has to come again should cost no memory.
        self._backlog.admit()
        body = await request.body()
        sent: TrajectoriesBody = request.parsed(body, TrajectoriesBody)
        ids = [trajectory.id for trajectory in sent.trajectories]
        for id in ids:
            if not 0 < len(id) <= LONGEST:
                raise InputError(f"a trajectory's id must have 1 to {LONGEST} characters, not {len(id)}")
        trajectories = [_own(request, trajectory) for trajectory in sent.trajectories]
        if clashing := await asyncio.to_thread(self._store.clashing, trajectories):
            raise ConflictError(
                f"the record has another trajectory under the id {clashing[0]!r}"
                + (f", and others under {len(clashing) - 1} more" if clashing[1:] else "")
                + ". Nothing was stored; give each run an id of its own."
            )
        batch = self._store.batch()
        batch.put(*trajectories, experiment=sent.experiment)
        self._backlog.admit(len(body))
        await settled(batch.submit())
        return answer(Added(ids, dict(batch.redacted)))

    async def _list(self, request: Request) -> Response:
        outcome, run = request.parameter("outcome", Outcome), request.parameter("run", str)
        trajectories = await asyncio.to_thread(
            lambda: list(
                self._store.trajectories(
                    experiment=request.parameter("experiment", str),
                    ids=None if run is None else [run],
                    since=request.parameter("since", float),
                    outcome=outcome,
                    session=request.parameter("session", str),
                    subject=request.parameter("subject", str),
                    limit=request.parameter("limit", Page, 100),
                )
            )
        )
        return answer(TrajectoryPage(trajectories))

    async def _get(self, request: Request) -> Response:
        return answer(await asyncio.to_thread(self._store.trajectory, request.params["id"]))


PROTOBUF, JSON = "application/x-protobuf", "application/json"
_FEW = 200
"""Spans up to which it is asked in the loop which traces are new; it takes some microseconds a trace."""
BEHIND, HOLD = 5.0, 2.0
"""Seconds of lag beyond which the answers to exporters are held back, and for how long at most."""


class OTLP:
    """OTLP over HTTP: `/v1/traces` and `/v1/logs`, protobuf and JSON, gzip or plain.

    Args:
        backlog: shared by all that write.
        readers: read the requests.
        assembly: of the same store; it commits the spans, and the Trajectories of traces that are whole.
    """

    def __init__(self, backlog: Backlog, readers: Readers, assembly: Assembly) -> None:
        self._backlog, self._readers, self._assembly = backlog, readers, assembly
        self.accepted = self.rejected = 0
        """Spans and log records since the start."""
        self.routes: Sequence[HttpRoute] = (
            *(
                HttpRoute(
                    method="POST",
                    path=path,
                    handler=handler,
                    role=Role.WRITE,
                    of_run=True,
                    summary=f"OTLP {signal}; acknowledged once durable, a repeated one is stored once",
                    request_media=(PROTOBUF, JSON),
                )
                for path, handler, signal in (
                    ("/v1/traces", self._traces, "spans"),
                    ("/v1/logs", self._logs, "log records"),
                )
            ),
            reads("/api/health", self._health, "How far assembling is behind, and what was accepted", Health),
        )

    @contextlib.asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Requests are read while it is served."""
        try:
            yield
        finally:
            await self._readers.close()

    async def _traces(self, request: Request) -> Response:
        return await self._export(request, logs=False)

    async def _logs(self, request: Request) -> Response:
        return await self._export(request, logs=True)

    async def _export(self, request: Request, *, logs: bool) -> Response:
        media = (request.header("content-type") or "").partition(";")[0].strip().lower()
        if media not in (PROTOBUF, JSON):
            raise Refused(
                415, "unsupported_media_type", f"content-type {media[:100]!r}: send {PROTOBUF} or {JSON}"
            )
        self._backlog.admit()
        body = await request.body()
        encoding = (request.header("content-encoding") or "identity").strip().lower()
        try:
            read = await self._readers.read(
                Export(
                    body, encoding, media == JSON, logs, None if request.grant is None else request.grant.run
                )
            )
        except InputError as error:
            if media == JSON:
                raise
            # The protocol wants a google.rpc.Status here: its field 2 is the message.
            return Response(
                400, write_field(2, without_paths(str(error)).encode("utf-8", "replace")), PROTOBUF
            )
        read = _reached(request, read)
        if read.spans:
            admit = self._assembly.assembler.admit
            self._backlog.admit(read.size)
            if len(read.spans) <= _FEW:
                future = admit(read.spans, read.wholes)
            else:
                future = await asyncio.to_thread(admit, read.spans, read.wholes)
            await settled(future)
        self.accepted += len(read.spans)
        self.rejected += read.rejected
        reasons = "; ".join(read.reasons)
        partial_success = otlp.partial_success(read.rejected, reasons, json=media == JSON, logs=logs)
        progress = self._assembly.assembler.progress
        if (lag := progress.lag()) > BEHIND:
            # After the commit: nothing is lost by a client that does not wait for it.
            await asyncio.sleep(min(HOLD, lag / 10))
        return Response(200, partial_success, media, _headers(progress, lag))

    async def _health(self, request: Request) -> Response:
        assembler = self._assembly.assembler
        conflicting = await asyncio.to_thread(lambda: self._assembly.store.spans.conflicting)
        progress = assembler.progress
        return answer(
            Health(
                status="ok" if assembler.failure is None else "failing",
                lag_seconds=round(progress.lag(), 3),
                open=progress.open,
                unassembled=progress.unassembled,
                whole=assembler.whole,
                failure=assembler.failure,
                accepted=self.accepted,
                rejected=self.rejected,
                conflicting=conflicting,
                held_bytes=assembler.held_bytes,
                waiting_bytes=self._assembly.store.database.waiting,
            )
        )


class Health(msgspec.Struct, kw_only=True):
    """How far assembling is behind, and what was accepted since the start."""

    status: str
    """`ok`, or `failing` while Trajectories cannot be written."""
    lag_seconds: float
    """For how long the longest waiting run that is complete has not been a Trajectory; 0 if there is none."""
    open: int
    """Runs of which spans arrived and that are not written yet."""
    unassembled: int
    """Of them those that are complete."""
    whole: int
    """Trajectories that were committed together with their spans."""
    failure: str | None
    accepted: int
    """Spans and log records."""
    rejected: int
    conflicting: int
    """Spans that came a second time with another content; the first one was kept.  Since the record began."""
    held_bytes: int
    """Of spans of open runs, kept in memory until they are Trajectories."""
    waiting_bytes: int
    """Of all that waits for the disk."""


def _headers(progress: AssemblyProgress, lag: float) -> dict[str, str]:
    return {
        "x-whet-lag-seconds": f"{lag:.3f}",
        "x-whet-open": str(progress.open),
        "x-whet-unassembled": str(progress.unassembled),
    }


def _own(request: Request, trajectory: Trajectory) -> Trajectory:
    """A trajectory that was sent with a run's token is that run's, or one's inside it.

    Raises:
        Refused: it says that it is another's.
    """
    if request.grant is None:
        return trajectory
    stated = trajectory.meta.get("run")
    run = request.own_run(None if stated is None else str(stated))
    return trajectory if run == stated else replace(trajectory, meta={**trajectory.meta, "run": run})


def _reached(request: Request, decoded: ExportRead) -> ExportRead:
    """The spans that the request's token is for; the others are rejected, with the reason."""
    grant = request.grant
    if grant is None:
        return decoded
    reached = [span for span in decoded.spans if span.run is not None and grant.reaches(span.run)]
    foreign = len(decoded.spans) - len(reached)
    if not foreign:
        return decoded
    reason = f"{foreign} name a run that this token, for the run {grant.run!r}, is not for"
    return decoded._replace(
        spans=reached, rejected=decoded.rejected + foreign, reasons=(*decoded.reasons, reason)
    )


class Assembly:
    """Turns the spans that arrive into trajectories while it is served: whole traces at once, others in a thread.

    Args:
        store: the record, owned by this process.
        grace: seconds without an arrival after which a run whose root has ended is complete.
    """

    routes: Sequence[HttpRoute] = ()

    def __init__(self, store: Store, *, grace: float = 2.0) -> None:
        self.store = store
        self.assembler = Assembler(store, grace)

    @contextlib.asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Assembles; a run that is not complete when the server stops is taken up at its next start."""
        stop = threading.Event()
        thread = threading.Thread(target=self._run, args=(stop,), name="whet-assembler", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            # In a thread: the run that is being assembled is finished first, and
            # the loop must not stand still for it.
            await asyncio.to_thread(thread.join)

    def _run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            try:
                self.assembler.run(stop)
            except Exception:  # one run that nobody foresaw must not end the assembling of all others
                print("whet: the assembler failed; it goes on", file=sys.stderr)
                traceback.print_exc()
                stop.wait(1.0)
