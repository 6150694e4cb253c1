"""Approvals: tool calls that permissions leave to a person wait here until one with a token of the role admin answers.

An agent's own token may not answer.  A call that nobody answers in time is denied, and so is one that comes while too
many wait.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

import msgspec

from ..errors import NotFoundError
from ..record.permissions.person import PermissionRequest
from ..types import new_id
from .http import HttpRoute, Request, Response, Role, answer, writes

WAITING = 100
"""Calls that wait at a time."""


class PendingApproval(msgspec.Struct):
    """A tool call that waits for a person."""

    id: str
    call: str
    """Tool and arguments in one line of plain characters."""
    reason: str
    """Of the rule that leaves it to a person."""
    seconds_left: float


class PendingApprovals(msgspec.Struct):
    """Those that wait, the oldest first."""

    approvals: list[PendingApproval]


class Answered(msgspec.Struct, forbid_unknown_fields=True):
    """A person's answer."""

    id: str
    allow: bool


@dataclass(slots=True)
class _Waiting:
    request: PermissionRequest
    until: float
    done: threading.Event = field(default_factory=threading.Event)
    allowed: bool = False


class Approvals:
    """A part of the server: what waits for a person, and the answers."""

    def __init__(self) -> None:
        self._waiting: dict[str, _Waiting] = {}
        self._lock = threading.Lock()
        self.routes: Sequence[HttpRoute] = (
            HttpRoute(
                method="GET",
                path="/api/approvals",
                handler=self._list,
                role=Role.ADMIN,
                summary="Tool calls that wait for a person's permission",
                response=PendingApprovals,
            ),
            writes(
                "/api/approvals",
                self._answer,
                "Allow or deny a tool call that waits",
                Answered,
                Answered,
                role=Role.ADMIN,
            ),
        )

    @contextlib.asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """At the end what still waits is denied."""
        try:
            yield
        finally:
            with self._lock:
                for waiting in self._waiting.values():
                    waiting.done.set()

    def ask(self, request: PermissionRequest) -> bool:
        """Wait for a person's answer, in a thread of the caller's; False if none comes in time."""
        waiting = _Waiting(request, time.monotonic() + request.seconds)
        id = new_id()
        with self._lock:
            if len(self._waiting) >= WAITING:
                return False
            self._waiting[id] = waiting
        try:
            return waiting.done.wait(request.seconds) and waiting.allowed
        finally:
            with self._lock:
                del self._waiting[id]

    async def _list(self, request: Request) -> Response:
        now = time.monotonic()
        with self._lock:
            pending = [
                PendingApproval(
                    id, waiting.request.shown, waiting.request.decision.reason, max(0.0, waiting.until - now)
                )
                for id, waiting in self._waiting.items()
            ]
        return answer(PendingApprovals(pending))

    async def _answer(self, request: Request) -> Response:
        answered = await request.json(Answered)
        with self._lock:
            waiting = self._waiting.get(answered.id)
            if waiting is None or waiting.done.is_set():
                raise NotFoundError(
                    f"no call waits under {answered.id!r:.60}: it was answered, or denied as nobody answered in time"
                )
            waiting.allowed = answered.allow
            waiting.done.set()
        return answer(answered)
