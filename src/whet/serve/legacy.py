"""The Agent Lightning 0.1 protocol, for its own unmodified client.

`GET /task`, `GET /resources/latest`, `GET /resources/{id}`, `POST /rollout` over the same queue as
`/api/rollouts`.  The protocol has no tokens, so `open_legacy` opens these four, to this machine
only; without it they need a token like everything else.  It has no leases either: the rollout id
that its client sees is `ID:FENCE`, so that a worker which was taken for dead and reports late is
refused here too, and nothing has to be remembered between claim and report.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import msgspec

from ..errors import InputError
from ..record.store import Finish, Store
from ..record.store.bundles import EMPTY
from ..record.store.rollouts import stale
from ..types import Bundle, Json, Trajectory
from .durable import Backlog, settled
from .http import HttpRoute, Passive, Request, Response, Role, answer
from .worker.lit import LitReport, input_of, served, trajectory_of

LEASE = 300.0
"""Seconds until a rollout that was not reported goes to another worker; this client cannot send a
heartbeat.  The original server's own figure."""
# 18 digits at most, so that the number fits SQLite's 64 bits.
_FENCE = re.compile("[0-9]{1,18}")
_SERVED = ("llm", "prompt_template")
"""Kinds of resources that its client can read; it fails on any other."""


class LegacyRollout(msgspec.Struct):
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
    task: LegacyRollout | None = None


class LegacyBundle(msgspec.Struct):
    """A Bundle as that client knows it."""

    resources_id: str
    resources: dict[str, Json]


class Acknowledged(msgspec.Struct):
    """The answer to `POST /rollout`."""

    status: str
    message: str


class Legacy(Passive):
    """The four routes.

    Args:
        store: the record, owned by this process.
        open: without a token, to this machine only.
        backlog: shared by all that write.
    """

    def __init__(self, store: Store, backlog: Backlog, *, open: bool = False) -> None:
        self._store, self._backlog = store, backlog
        role, local = (None, True) if open else (Role.WRITE, False)

        def route(method: str, path: str, handler: Any, response: Any, request: Any = None) -> HttpRoute:
            return HttpRoute(
                method=method,
                path=path,
                handler=handler,
                role=role,
                local_only=local,
                request=request,
                response=response,
                summary="Agent Lightning 0.1",
            )

        self.routes: Sequence[HttpRoute] = (
            route("GET", "/task", self._task, WorkIfAny),
            route("GET", "/resources/latest", self._latest, LegacyBundle),
            route("GET", "/resources/{id}", self._resources, LegacyBundle),
            route("POST", "/rollout", self._rollout, Acknowledged, LitReport),
        )

    async def _task(self, request: Request) -> Response:
        leases = await settled(self._store.queue.claim("agent-lightning-0.1", n=1, lease=LEASE))
        if not leases:
            return answer(WorkIfAny(False))
        rollout, fence = leases[0].rollout, leases[0].fence
        return answer(
            WorkIfAny(
                True,
                LegacyRollout(
                    rollout_id=f"{rollout.id}:{fence}",
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
        live = await asyncio.to_thread(lambda: self._store.live() or EMPTY)
        return answer(LegacyBundle(live.id, _readable(live)))

    async def _resources(self, request: Request) -> Response:
        bundle = await asyncio.to_thread(self._store.bundle, request.params["id"])
        return answer(LegacyBundle(bundle.id, _readable(bundle)))

    async def _rollout(self, request: Request) -> Response:
        body = await request.body()
        report = request.parsed(body, LitReport)
        # From the right: the rollout's own id may have a colon in it.
        id, _, fence = report.rollout_id.rpartition(":")
        if not id or not _FENCE.fullmatch(fence):
            raise InputError(
                f"rollout_id {report.rollout_id[:200]!r} does not come from GET /task, which gives ID:NUMBER"
            )
        self._backlog.admit()
        trajectory = await asyncio.to_thread(self._trajectory, report, id, int(fence))
        # The bytes are the key: `seconds` is another at each reading, and
        # a repeated report must be known as one.
        finish = Finish(id, int(fence), trajectory, key=body)
        self._backlog.admit(len(body))
        finishing = self._store.queue.finish_many([finish])
        (problem,) = await settled(finishing)
        if problem is not None:
            raise problem
        return answer(Acknowledged("ok", f"Rollout {report.rollout_id} received and stored."))

    def _trajectory(self, report: LitReport, id: str, fence: int) -> Trajectory:
        """The reported trajectory, with its start.

        Raises:
            NotFoundError: there is no such rollout.
            StaleLeaseError: it was never given out under this number.
        """
        served = self._store.queue.served(id, fence)
        if served is None:
            self._store.queue.get(id)
            raise stale(id, fence)
        seconds = max(0.0, time.time() - served.started)
        return replace(trajectory_of(report, served.task, served.id), started=served.started, seconds=seconds)


def _readable(bundle: Bundle) -> dict[str, Json]:
    """The resources of a Bundle that this client can read; a bare text is a prompt template to it."""
    contents = {name: served(version.content) for name, version in bundle.items()}
    return {
        name: content
        for name, content in contents.items()
        if isinstance(content, dict) and content.get("resource_type") in _SERVED
    }
