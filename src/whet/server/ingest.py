"""What comes in: native trajectories, and OpenTelemetry traces and logs.

A request is answered once what it carried is committed and synced; what was accepted can be read
at once.  One malformed item refuses its whole request and nothing of it is stored, except where
OTLP has its own word for that, partial success.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
import traceback
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Future
from typing import Annotated, Any

import msgspec

from ..errors import InputError
from ..store import Store
from ..tracing import otlp
from ..tracing.assemble import Assembler
from ..tracing.protobuf import write_field
from ..tracing.redact import Redactor
from ..types import Outcome, Trajectory
from .asgi import Refused, Request, Response, Role, Route, answer, reads, writes
from .auth import Limits
from .bridge import settled

WAITING = 48 * 1024 * 1024
"""Bytes that may wait for the disk before further ones are refused; less than the record's own
limit, beyond which it would hold up the loop instead."""
PAGE = 1_000
"""Most items of one answer."""

Id = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
Page = Annotated[int, msgspec.Meta(ge=1, le=PAGE)]


class Backlog:
    """Bounds what waits for the disk: a slow one makes clients wait and retry, not memory grow."""

    def __init__(self, limit: int = WAITING) -> None:
        self._limit, self._waiting = limit, 0

    async def durable(self, future: Future[Any], size: int) -> Any:
        """Wait until what was submitted is committed, and return the future's result."""
        self._waiting += size
        try:
            return await settled(future)
        finally:
            self._waiting -= size

    def admit(self) -> None:
        """Let a request in if not too much waits already.

        Raises:
            Refused: 503.
        """
        if self._waiting > self._limit:
            raise Refused(
                503,
                "disk_busy",
                "the disk does not keep up; try again in a second",
                headers={"retry-after": "1"},
            )


class Recorded(msgspec.Struct, forbid_unknown_fields=True):
    """Trajectories to record."""

    trajectories: list[Trajectory]
    experiment: str | None = None


class Stored(msgspec.Struct):
    """What was stored, by id, in the order given."""

    ids: list[str]


class Found(msgspec.Struct):
    """Some of what is in the record."""

    trajectories: list[Trajectory]


class Trajectories:
    """Native trajectories, in and out.

    Args:
        store: the record.
        backlog: shared by all that write.
        redactor: takes secrets out before they are stored.
    """

    def __init__(
        self, store: Store, backlog: Backlog | None = None, *, redactor: Redactor | None = None
    ) -> None:
        self._store, self._backlog, self._redactor = store, backlog or Backlog(), redactor
        self.routes: Sequence[Route] = (
            writes(
                "/api/trajectories",
                self._put,
                "Record trajectories; one whose id is known is left as it is",
                Recorded,
                Stored,
            ),
            reads(
                "/api/trajectories",
                self._list,
                "Trajectories in the order in which they were recorded",
                Found,
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

    @contextlib.asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Nothing runs."""
        yield

    async def _put(self, request: Request) -> Response:
        self._backlog.admit()
        body = await request.body()
        given: Recorded = request.parsed(body, Recorded)
        for one in given.trajectories:
            if not 0 < len(one.id) <= 200:
                raise InputError(f"a trajectory's id must have 1 to 200 characters, not {len(one.id)}")
        kept = given.trajectories
        if self._redactor is not None:
            kept = [self._redactor.trajectory(one) for one in kept]
        future = self._store.submit(*kept, experiment=given.experiment)
        await self._backlog.durable(future, len(body))
        return answer(Stored([one.id for one in given.trajectories]))

    async def _list(self, request: Request) -> Response:
        outcome, run = request.asked("outcome", Outcome), request.asked("run", str)
        found = await asyncio.to_thread(
            lambda: list(
                self._store.trajectories(
                    experiment=request.asked("experiment", str),
                    ids=None if run is None else [run],
                    since=request.asked("since", float),
                    outcome=outcome,
                    session=request.asked("session", str),
                    subject=request.asked("subject", str),
                    limit=request.asked("limit", Page, 100),
                )
            )
        )
        return answer(Found(found))

    async def _get(self, request: Request) -> Response:
        return answer(await asyncio.to_thread(self._store.trajectory, request.params["id"]))


PROTOBUF, JSON = "application/x-protobuf", "application/json"
_LARGE = 512 * 1024
"""Bytes beyond which a request is read in a thread, so that others get their turn."""


class OTLP:
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
        limits: Limits,
        backlog: Backlog | None = None,
        *,
        redactor: Redactor | None = None,
    ) -> None:
        self._store, self._backlog, self._redactor = store, backlog or Backlog(), redactor
        self._limit = limits.body
        self._limits = otlp.Limits(spans=limits.spans)
        self.accepted = self.rejected = 0
        """Spans and log records since the start."""
        self.routes: Sequence[Route] = tuple(
            Route(
                method="POST",
                path=path,
                handler=handler,
                role=Role.WRITE,
                summary=f"OTLP {what}; acknowledged once durable, a repeated one is stored once",
                request_media=(PROTOBUF, JSON),
            )
            for path, handler, what in (
                ("/v1/traces", self._traces, "spans"),
                ("/v1/logs", self._logs, "log records"),
            )
        )

    @contextlib.asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Nothing runs."""
        yield

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
            if size > _LARGE:
                found = await asyncio.to_thread(self._read, request, body, media, logs)
            else:
                found = self._read(request, body, media, logs)
        except InputError as error:
            if media == JSON:
                raise
            # The protocol wants a google.rpc.Status here: its field 2 is the message.
            return Response(400, write_field(2, str(error).encode("utf-8", "replace")), PROTOBUF)
        if found.spans:
            await self._backlog.durable(self._store.spans.put(found.spans), size)
        self.accepted += len(found.spans)
        self.rejected += found.rejected
        said = otlp.partial_success(found.rejected, "; ".join(found.reasons), json=media == JSON, logs=logs)
        return Response(200, said, media)

    def _read(self, request: Request, body: bytes, media: str, logs: bool) -> otlp.Decoded:
        encoding = (request.header("content-encoding") or "identity").strip().lower()
        if encoding == "gzip":
            body = otlp.gunzip(body, self._limit)
        elif encoding != "identity":
            raise InputError(f"content-encoding {encoding[:100]!r} is not taken: send gzip or nothing")
        found = otlp.decode(body, json=media == JSON, logs=logs, limits=self._limits)
        if self._redactor is None:
            return found
        return found._replace(spans=self._redactor.spans(found.spans, body, json=media == JSON))


class Assembly:
    """Turns the spans that arrive into trajectories, in a thread of its own, while it is served.

    Args:
        store: the record, owned by this process.
        grace: seconds without an arrival after which a run whose root has ended is complete.
    """

    routes: Sequence[Route] = ()

    def __init__(self, store: Store, *, grace: float = 2.0) -> None:
        self._assembler = Assembler(store, grace)

    @contextlib.asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Assembles; what is not complete when the server stops is taken up at its next start."""
        stop = threading.Event()
        thread = threading.Thread(target=self._run, args=(stop,), name="whet-assembler", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            await asyncio.to_thread(thread.join)

    def _run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            try:
                self._assembler.run(stop)
            except Exception:  # one run that nobody foresaw must not end the assembling of all others
                print("whet: the assembler failed; it goes on", file=sys.stderr)
                traceback.print_exc()
                stop.wait(1.0)
