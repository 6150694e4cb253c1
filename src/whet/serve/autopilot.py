"""The autopilot over HTTP: what it does and has done, the switch, and the answers to what it asks.

All of it is the record's, so `whet autopilot` in another process sees the same; a child of the server runs it, where
the server was told to (`autopilot/serving.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Annotated

import msgspec

from ..autopilot.asking import decide, waiting
from ..autopilot.journal import JournalRow, page
from ..autopilot.night import NightAccount, account, start, steered, stop, stopped
from ..autopilot.serving import PilotProcess
from ..record.store import Store
from .http import PAGE, HttpRoute, Page, Request, Response, Role, answer, reads, writes


class AutopilotStatus(msgspec.Struct):
    """Where the autopilot stands."""

    process: str
    """Of this server's own: starting, running, restarting, stopped, over; none if it was not told to run one."""
    restarts: int
    """Times it died and was started again."""
    exit_code: int | None
    """Of its last death."""
    stopped: str
    """Why the switch is turned; "" if it is not."""
    night: NightAccount | None
    """The night that goes on, or the last one; null before the first."""
    trial: str
    """Id of the release that it has on trial; "" without one."""
    waiting: list[str]
    """What it asks for, by name."""


class JournalPage(msgspec.Struct):
    """Rows of the journal, oldest first."""

    rows: list[JournalRow]
    next: str
    """What to give as `after` for those that come behind."""


class StopAutopilot(msgspec.Struct, forbid_unknown_fields=True):
    """Stop it within a step, wherever it runs."""

    reason: Annotated[str, msgspec.Meta(min_length=1, max_length=2_000)] = "by hand"


class StartAutopilot(msgspec.Struct, forbid_unknown_fields=True):
    """Let a stopped one go on; where the night is over, let the next one begin."""


class AutopilotAnswer(msgspec.Struct, forbid_unknown_fields=True):
    """Let it do what it asks for, or have it leave that."""

    subject: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    allow: bool


class AutopilotPart:
    """The autopilot.

    Args:
        store: the record.
        process: runs it; None where it runs elsewhere or nowhere.
    """

    def __init__(self, store: Store, process: PilotProcess | None = None) -> None:
        self._store, self._process = store, process
        whole = {"role": Role.ADMIN}
        self.routes: Sequence[HttpRoute] = (
            reads("/api/autopilot", self._status, "Where the autopilot stands", AutopilotStatus),
            reads(
                "/api/autopilot/journal",
                self._journal,
                "What the autopilot did, in sentences; the rows behind a place",
                JournalPage,
                query={"after": str, "limit": Page},
            ),
            writes(
                "/api/autopilot/stop",
                self._stop,
                "Stop the autopilot within a step",
                StopAutopilot,
                AutopilotStatus,
                **whole,
            ),
            writes(
                "/api/autopilot/start",
                self._start,
                "Let the autopilot go on, or the next night begin",
                StartAutopilot,
                AutopilotStatus,
                **whole,
            ),
            writes(
                "/api/autopilot/answer",
                self._answer,
                "Approve or refuse what the autopilot asks for",
                AutopilotAnswer,
                AutopilotStatus,
                **whole,
            ),
        )

    @property
    def health(self) -> Mapping[str, str | int]:
        """For the health check; nothing where this server runs none."""
        process = self._process
        return {} if process is None else {"autopilot": process.state, "autopilot_restarts": process.restarts}

    @contextlib.asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Runs the child, and ends it."""
        process = self._process
        supervising = None if process is None else asyncio.create_task(process.supervise())
        try:
            yield
        finally:
            if supervising is not None:
                supervising.cancel()
                await asyncio.gather(supervising, return_exceptions=True)

    async def _status(self, request: Request) -> Response:
        return answer(await asyncio.to_thread(self._read))

    async def _journal(self, request: Request) -> Response:
        after, limit = request.parameter("after", str, ""), request.parameter("limit", Page, PAGE)
        return answer(JournalPage(*await asyncio.to_thread(page, self._store, after, limit)))

    async def _stop(self, request: Request) -> Response:
        wanted = await request.json(StopAutopilot)
        await asyncio.to_thread(stop, self._store, wanted.reason)
        return await self._status(request)

    async def _start(self, request: Request) -> Response:
        await request.json(StartAutopilot)
        await asyncio.to_thread(start, self._store)
        return await self._status(request)

    async def _answer(self, request: Request) -> Response:
        wanted = await request.json(AutopilotAnswer)
        await asyncio.to_thread(lambda: decide(self._store, wanted.subject, allow=wanted.allow))
        return await self._status(request)

    def _read(self) -> AutopilotStatus:
        store, process = self._store, self._process
        return AutopilotStatus(
            process="none" if process is None else process.state,
            restarts=0 if process is None else process.restarts,
            exit_code=None if process is None else process.exit_code,
            stopped=stopped(store),
            night=account(store),
            trial=steered(store),
            waiting=waiting(store),
        )
