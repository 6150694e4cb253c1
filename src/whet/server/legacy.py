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
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from ..errors import InputError
from ..store import Store
from ..tracing.redact import Redactor
from ..types import Json
from ..worker.lit import Report, bundle_of, input_of, served, trajectory_of
from .asgi import Request, Response, Role, Route, answer
from .bridge import settled

LEASE = 300.0
"""Seconds until a rollout that was not reported goes to another worker; this client cannot send a
heartbeat.  The original server's own figure."""
REMEMBERED = 100_000
"""Rollouts under way whose snapshot is remembered."""
NONE_YET = "none"
"""Id of the empty snapshot that is served where no resources were ever put."""
_FENCE = re.compile("[0-9]{1,18}")
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
        redactor: takes secrets out of reports before they are stored.
    """

    def __init__(self, store: Store, *, open: bool = False, redactor: Redactor | None = None) -> None:
        self._store, self._redactor = store, redactor
        self._under: dict[int, str] = {}
        """Fence → snapshot that was given out with it, for what is under way."""
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
        leases = await settled(self._store.queue.claim("agent-lightning-0.1", n=1, lease=LEASE))
        if not leases:
            return answer(WorkIfAny(False))
        rollout, fence = leases[0].rollout, leases[0].fence
        resources = rollout.resources
        if resources is None:
            # Its client would take what is latest when it asks; named here, it can be recorded.
            latest = await asyncio.to_thread(self._store.resources.latest)
            resources = None if latest is None else latest[0]
        if resources is not None and len(self._under) < REMEMBERED:
            self._under[fence] = resources
        return answer(
            WorkIfAny(
                True,
                Work(
                    rollout_id=f"{rollout.id}:{fence}",
                    input=input_of(rollout.task),
                    mode=rollout.mode,
                    resources_id=resources,
                    create_time=rollout.created,
                    num_claims=leases[0].attempt,
                    metadata=dict(rollout.meta),
                ),
            )
        )

    async def _latest(self, request: Request) -> Response:
        found = await asyncio.to_thread(self._store.resources.latest)
        if found is None:
            # Its client gives up a rollout that it has claimed when there are no resources at all.
            return answer(Update(NONE_YET, {}))
        return answer(Update(found[0], _readable(found[1])))

    async def _resources(self, request: Request) -> Response:
        id = request.params["id"]
        return answer(Update(id, _readable(await asyncio.to_thread(self._store.resources.get, id))))

    async def _rollout(self, request: Request) -> Response:
        report = await request.json(Report)
        id, _, fence = report.rollout_id.rpartition(":")
        if not id or not _FENCE.fullmatch(fence):
            raise InputError(
                f"rollout_id {report.rollout_id[:200]!r} was not given out by GET /task, which gives ID:NUMBER"
            )
        rollout = await asyncio.to_thread(self._store.queue.get, id)
        under = self._under.get(int(fence), rollout.resources)
        found = {} if under is None else await asyncio.to_thread(self._store.resources.get, under)
        trajectory = trajectory_of(
            report, rollout.task, f"{id}.{fence}", versions=bundle_of(found).ids, run=id
        )
        if self._redactor is not None:
            trajectory = self._redactor.trajectory(trajectory)
        await settled(self._store.queue.finish(id, int(fence), trajectory=trajectory))
        self._under.pop(int(fence), None)
        return answer(Acknowledged("ok", f"Rollout {report.rollout_id} received and stored."))


def _readable(resources: Mapping[str, Json]) -> dict[str, Json]:
    """What that client can read of a snapshot; a bare text is a prompt template to it."""
    found = {name: served(content) for name, content in resources.items()}
    return {
        name: content
        for name, content in found.items()
        if isinstance(content, dict) and content.get("resource_type") in _SERVED
    }
