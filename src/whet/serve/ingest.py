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

import msgspec

from ..errors import InputError
from ..record.store import Store
from ..record.store.rollouts import LONGEST
from ..record.tracing import otlp
from ..record.tracing.assemble import Assembler
from ..record.tracing.protobuf import write_field
from ..record.tracing.redact import Redactor
from ..types import Outcome, Trajectory
from .asgi import HttpRoute, Page, Passive, Refused, Request, Response, Role, answer, reads, writes
from .auth import RequestLimits
from .durable import Backlog
from .worker.wire import Added


class TrajectoriesBody(msgspec.Struct, forbid_unknown_fields=True):
    """Trajectories to record."""

    trajectories: list[Trajectory]
    experiment: str | None = None


class TrajectoryPage(msgspec.Struct):
    """Trajectories of the record."""

    trajectories: list[Trajectory]


class Trajectories(Passive):
    """Native trajectories, in and out.

    Args:
        store: the record.
        backlog: shared by all that write.
        redactor: takes secrets out before they are stored.
    """

    def __init__(self, store: Store, backlog: Backlog, redactor: Redactor) -> None:
        self._store, self._backlog, self._redactor = store, backlog, redactor
        self.routes: Sequence[HttpRoute] = (
            writes(
                "/api/trajectories",
                self._put,
                "Record trajectories; one whose id is known is left as it is",
                TrajectoriesBody,
                Added,
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
        trajectories = map(self._redactor.trajectory, sent.trajectories)
        future = self._store.submit(*trajectories, experiment=sent.experiment)
        await self._backlog.durable(future, len(body))
        return answer(Added(ids))

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
_LARGE = 512 * 1024
"""Bytes beyond which a request is read in a thread, so that others get their turn."""


class OTLP(Passive):
    """OTLP over HTTP: `/v1/traces` and `/v1/logs`, protobuf and JSON, gzip or plain.

    Args:
        store: the record, owned by this process.
        limits: the server's.
        backlog: shared by all that write.
        redactor: takes secrets out of spans before they are stored.
    """

    def __init__(
        self,
        store: Store,
        limits: RequestLimits,
        backlog: Backlog,
        redactor: Redactor,
    ) -> None:
        self._store, self._backlog, self._redactor = store, backlog, redactor
        self._limit = limits.body
        self._limits = otlp.DecodeLimits(spans=limits.spans)
        self.accepted = self.rejected = 0
        """Spans and log records since the start."""
        self.routes: Sequence[HttpRoute] = tuple(
            HttpRoute(
                method="POST",
                path=path,
                handler=handler,
                role=Role.WRITE,
                summary=f"OTLP {signal}; acknowledged once durable, a repeated one is stored once",
                request_media=(PROTOBUF, JSON),
            )
            for path, handler, signal in (
                ("/v1/traces", self._traces, "spans"),
                ("/v1/logs", self._logs, "log records"),
            )
        )

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
        size = len(body)
        try:
            # By the size as it was sent: a small body that gzip packed well is still read in the loop.
            if size > _LARGE:
                decoded = await asyncio.to_thread(self._read, request, body, media, logs)
            else:
                decoded = self._read(request, body, media, logs)
        except InputError as error:
            if media == JSON:
                raise
            # The protocol wants a google.rpc.Status here: its field 2 is the message.
            return Response(400, write_field(2, str(error).encode("utf-8", "replace")), PROTOBUF)
        if decoded.spans:
            await self._backlog.durable(self._store.spans.put(decoded.spans), size)
        self.accepted += len(decoded.spans)
        self.rejected += decoded.rejected
        reasons = "; ".join(decoded.reasons)
        partial_success = otlp.partial_success(decoded.rejected, reasons, json=media == JSON, logs=logs)
        return Response(200, partial_success, media)

    def _read(self, request: Request, body: bytes, media: str, logs: bool) -> otlp.Decoded:
        encoding = (request.header("content-encoding") or "identity").strip().lower()
        if encoding == "gzip":
            body = otlp.gunzip(body, self._limit)
        elif encoding != "identity":
            raise InputError(f"content-encoding {encoding[:100]!r} is not supported: send gzip or nothing")
        decoded = otlp.decode(body, json=media == JSON, logs=logs, limits=self._limits)
        return decoded._replace(spans=self._redactor.spans(decoded.spans, body, json=media == JSON))


class Assembly:
    """Turns the spans that arrive into trajectories, in a thread of its own, while it is served.

    Args:
        store: the record, owned by this process.
        grace: seconds without an arrival after which a run whose root has ended is complete.
    """

    routes: Sequence[HttpRoute] = ()

    def __init__(self, store: Store, *, grace: float = 2.0) -> None:
        self._assembler = Assembler(store, grace)

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
                self._assembler.run(stop)
            except Exception:  # one run that nobody foresaw must not end the assembling of all others
                print("whet: the assembler failed; it goes on", file=sys.stderr)
                traceback.print_exc()
                stop.wait(1.0)
