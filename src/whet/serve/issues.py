"""The issues of an agent over HTTP: read them, look at the record for them, and say where one stands."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated

import msgspec

from ..record.store import AgentIssue, IssueMove, Store
from ..record.store.issues import IssueStatus
from ..ship.issues import find_issues
from .http import HttpRoute, Passive, Request, Response, Role, answer, reads, writes


class IssueList(msgspec.Struct):
    """Issues, oldest first."""

    issues: Sequence[AgentIssue]


class IssueHistory(msgspec.Struct):
    """An issue, and all that became of it."""

    issue: AgentIssue
    history: Sequence[IssueMove]


class LookForIssues(msgspec.Struct, forbid_unknown_fields=True):
    """Look at the newest runs for issues."""

    score: str | None = None
    """Name of a Score in [0, 1] that says which runs failed: those below a half; their outcomes if None."""
    since: float | None = None
    """Unix time in seconds; only runs that began then or later."""
    newest: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 20_000
    """So many of the newest runs; a look takes the server's processor, a second for every five thousand or so."""


class MoveIssue(msgspec.Struct, forbid_unknown_fields=True):
    """Where an issue stands now, and why."""

    status: IssueStatus
    reason: Annotated[str, msgspec.Meta(min_length=1, max_length=2_000)]


class IssuesPart(Passive):
    """Issues of the agent.

    Args:
        store: the record.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._looking = asyncio.Lock()
        self.routes: Sequence[HttpRoute] = (
            reads("/api/issues", self._list, "Issues of the agent", IssueList, query={"status": IssueStatus}),
            reads("/api/issues/{id}", self._get, "An issue, and all that became of it", IssueHistory),
            writes(
                "/api/issues",
                self._look,
                "Look at the newest runs for issues; all of them as they stand then",
                LookForIssues,
                IssueList,
                role=Role.ADMIN,
            ),
            writes(
                "/api/issues/{id}",
                self._move,
                "Say where an issue stands now",
                MoveIssue,
                IssueHistory,
                role=Role.ADMIN,
            ),
        )

    async def _list(self, request: Request) -> Response:
        status = request.parameter("status", IssueStatus)
        wanted = [] if status is None else [status]
        return answer(IssueList(await asyncio.to_thread(self._store.issues.read, *wanted)))

    async def _get(self, request: Request) -> Response:
        return answer(await asyncio.to_thread(self._whole, request.params["id"]))

    async def _look(self, request: Request) -> Response:
        wanted = await request.json(LookForIssues)

        def look() -> list[AgentIssue]:
            return find_issues(self._store, score=wanted.score, since=wanted.since, newest=wanted.newest)

        # One after another: two that see the same issue first would both begin it.
        async with self._looking:
            return answer(IssueList(await asyncio.to_thread(look)))

    async def _move(self, request: Request) -> Response:
        wanted, id = await request.json(MoveIssue), request.params["id"]

        def move() -> IssueHistory:
            self._store.issues.move(id, wanted.status, reason=wanted.reason)
            return self._whole(id)

        return answer(await asyncio.to_thread(move))

    def _whole(self, id: str) -> IssueHistory:
        return IssueHistory(self._store.issues.get(id), self._store.issues.history(id))
