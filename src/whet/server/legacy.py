"""The Agent Lightning 0.1 protocol, for its own unmodified client.

`GET /task`, `GET /resources/latest`, `GET /resources/{id}`, `POST /rollout` over the same queue as
`/api/rollouts`.  The protocol has no tokens, so `open_legacy` opens these four, to this machine
only; without it they need a token like everything else.  It has no leases either: the rollout id
that its client sees is `ID:FENCE`, so that a worker which was taken for dead and reports late is
refused here too, and nothing has to be remembered between claim and report.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from ..errors import InputError, NotFoundError
from ..store import Store
from ..types import Json
from ..worker.lit import Report, input_of, served, trajectory_of
from .asgi import Request, Response, Role, Route, answer

LEASE = 300.0
"""Seconds until a rollout that was not reported goes to another worker; this client cannot send a
heartbeat.  The original server's own figure."""
NONE_YET = "none"
"""Id of the empty snapshot that is served where no resources were ever put."""
_SERVED = ("llm", "prompt_template")
"""Kinds of resources that its client can read; it fails on any other."""


class Work(msgspec.Struct):
    """A rollout as that client knows it."""

    rollout_id: str
    input: Any
    mode: Literal["train", "val", "test"] | None
    resources_id: str | None
    create_time: float
    num_claims: int
    metadata: dict[str, Json]


class WorkIfAny(msgspec.Struct):
    """The answer to `GET /task`."""

    is_available: bool
    task: Work | None = None


class Update(msgspec.Struct):
    """A snapshot as that client knows it."""

    resources_id: str
    resources: dict[str, Json]


class Acknowledged(msgspec.Struct):
    """The answer to `POST /rollout`."""

    status: str
    message: str


class Legacy:
    """The four routes.

    Args:
        store: the record, owned by this process.
        open: without a token, to this machine only.
    """

    def __init__(self, store: Store, *, open: bool = False) -> None:
        self._store = store
        role, local = (None, True) if open else (Role.WRITE, False)

        def route(method: str, path: str, handler: Any, response: Any, request: Any = None) -> Route:
            return Route(
                method=method,
                path=path,
                handler=handler,
                role=role,
                local_only=local,
                request=request,
                response=response,
                summary="Agent Lightning 0.1",
            )

        self.routes: Sequence[Route] = (
            route("GET", "/task", self._task, WorkIfAny),
            route("GET", "/resources/latest", self._latest, Update),
            route("GET", "/resources/{id}", self._resources, Update),
            route("POST", "/rollout", self._rollout, Acknowledged, Report),
        )

    @contextlib.asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Nothing runs."""
        yield

    async def _task(self, request: Request) -> Response:
        leases = await asyncio.wrap_future(self._store.queue.claim("agent-lightning-0.1", n=1, lease=LEASE))
        if not leases:
            return answer(WorkIfAny(False))
        rollout = leases[0].rollout
        return answer(
            WorkIfAny(
                True,
                Work(
                    rollout_id=f"{rollout.id}:{leases[0].fence}",
                    input=input_of(rollout.task),
                    mode=rollout.mode,
                    resources_id=rollout.resources,
                    create_time=rollout.created,
                    num_claims=leases[0].attempt,
                    metadata=dict(rollout.meta),
                ),
            )
        )

    async def _latest(self, request: Request) -> Response:
        try:
            id, found = await asyncio.to_thread(self._store.latest_resources)
        except NotFoundError:
            # Its client gives up a rollout that it has claimed when there are no resources at all.
            return answer(Update(NONE_YET, {}))
        return answer(Update(id, _readable(found)))

    async def _resources(self, request: Request) -> Response:
        id = request.params["id"]
        return answer(Update(id, _readable(await asyncio.to_thread(self._store.resources, id))))

    async def _rollout(self, request: Request) -> Response:
        report = await request.json(Report)
        id, _, fence = report.rollout_id.rpartition(":")
        if not id or not fence.isdigit():
            raise InputError(
                f"rollout_id {report.rollout_id[:200]!r} was not given out by GET /task, which gives ID:NUMBER"
            )
        rollout = await asyncio.to_thread(self._store.queue.get, id)
        trajectory = trajectory_of(report, rollout.task, report.rollout_id.replace(":", "."))
        await asyncio.wrap_future(self._store.queue.finish(id, int(fence), trajectory=trajectory))
        return answer(Acknowledged("ok", f"Rollout {report.rollout_id} received and stored."))


def _readable(resources: Mapping[str, Json]) -> dict[str, Json]:
    """What that client can read of a snapshot; a bare text is a prompt template to it."""
    found = {name: served(content) for name, content in resources.items()}
    return {
        name: content
        for name, content in found.items()
        if isinstance(content, dict) and content.get("resource_type") in _SERVED
    }
