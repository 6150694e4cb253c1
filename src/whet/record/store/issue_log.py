"""Writing and reading the issues of an agent (`issues.py`).

What was seen of an issue is written anew by each look at the record (`put`); where it stands is the last entry of a
log of moves, each with its reason, which nothing overwrites.  Two processes that move one issue at once do not both
succeed: the second is told what the first did.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import msgspec

from ...errors import ConflictError, InputError, NotFoundError, StoreError
from ...types import new_id
from .batch import Batch
from .database import Database
from .issues import MOST_RUNS, NEXT, START, AgentIssue, IssueMove, IssueStatus
from .schema import LISTED, listed


class Issues:
    """`Store.issues`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, *issues: AgentIssue, at: float | None = None) -> None:
        """Record what was seen, in one transaction; one that is new begins with its own status and reason.

        One that is known keeps the status that it has: it changes by `move` alone.

        Args:
            at: Unix time in seconds at which a new one begins; now if None.

        Raises:
            InputError: a new issue begins as something else than open or closed.
        """
        if not issues:
            return
        known = {issue.id for issue in self.read(ids=[issue.id for issue in issues])}
        fresh = [issue for issue in issues if issue.id not in known]
        for issue in fresh:
            if issue.status not in START:
                raise InputError(f"a new issue is {' or '.join(START)}; {issue.id} was given {issue.status}")
        began = time.time() if at is None else at
        batch = Batch(self._database)
        batch.put_issues(*(replace(issue, runs=tuple(issue.runs)[:MOST_RUNS]) for issue in issues))
        for issue in fresh:
            # Not a random id: another process that sees the same issue first has made the same entry.
            batch.move_issue(f"{issue.id}.1", issue.id, 1, issue.status, began, issue.reason)
        try:
            batch.submit().result()
        except StoreError:  # of which kind does not cross the owner's socket
            recorded = {issue.id for issue in self.read(ids=[issue.id for issue in fresh])}
            if not {issue.id for issue in fresh} & recorded:
                raise
            self.put(*issues, at=at)  # they are known now

    def read(
        self, *statuses: IssueStatus | str, ids: Sequence[str] | None = None, resource: str | None = None
    ) -> list[AgentIssue]:
        """The issues, oldest first.

        Args:
            statuses: only those that stand so; all of none.
            ids: only these.
            resource: only those put down to it.

        Raises:
            InputError: no such status.
        """
        try:
            wanted = {IssueStatus(status) for status in statuses}
        except ValueError as error:
            raise InputError(f"{error}; an issue is {', '.join(IssueStatus)}") from error
        where, values = ("", []) if ids is None else (f"WHERE i.id IN {LISTED}", [listed(ids)])
        rows = self._database.rows(
            "SELECT i.body, m.status, m.reason FROM issues i JOIN issue_moves m ON m.issue = i.id AND m.number = "
            f"(SELECT max(number) FROM issue_moves WHERE issue = i.id) {where} ORDER BY i.seq",
            values,
        )
        issues = [
            replace(msgspec.json.decode(body, type=AgentIssue), status=IssueStatus(status), reason=reason)
            for body, status, reason in rows
        ]
        return [
            issue
            for issue in issues
            if (not wanted or issue.status in wanted) and resource in (None, issue.resource)
        ]

    def get(self, id: str) -> AgentIssue:
        """The issue with this id.

        Raises:
            NotFoundError: there is none.
        """
        for issue in self.read(ids=[id]):
            return issue
        raise NotFoundError(f"the record holds no issue {id!r}; whet issues lists them")

    def history(self, id: str) -> list[IssueMove]:
        """All moves of an issue, the first one first.

        Raises:
            NotFoundError: there is no such issue.
        """
        rows = self._database.rows(
            "SELECT issue, number, status, at, reason FROM issue_moves WHERE issue = ? ORDER BY number", [id]
        )
        if not rows:
            raise NotFoundError(f"the record holds no issue {id!r}; whet issues lists them")
        return [
            IssueMove(issue, number, IssueStatus(status), at, why) for issue, number, status, at, why in rows
        ]

    def move(
        self,
        id: str,
        status: IssueStatus | str,
        *,
        reason: str,
        after: IssueStatus | None = None,
        at: float | None = None,
    ) -> AgentIssue:
        """Say where an issue stands now, and why.  One that stands so already stays as it is.

        Args:
            after: move it only if it stands like this now.
            at: Unix time in seconds; now if None. Runs from then on tell whether a closed issue is back.

        Raises:
            NotFoundError: there is no such issue.
            InputError: no reason, no such status, or one that does not follow from where the issue stands.
            ConflictError: it does not stand at `after`, or another process moved it meanwhile.
        """
        try:
            status = IssueStatus(status)
        except ValueError as error:
            raise InputError(f"{error}; an issue is {', '.join(IssueStatus)}") from error
        if not reason.strip():
            raise InputError(f"issue {id} is moved to {status} for a reason: say which")
        last = self.history(id)[-1]
        if after is not None and last.status is not after:
            raise ConflictError(
                f"issue {id} is {last.status} ({last.reason}), and not {after}; read it again"
            )
        if last.status is status:
            return self.get(id)
        if status not in NEXT[last.status]:
            raise InputError(
                f"issue {id} is {last.status}: it can become {', '.join(NEXT[last.status])}, not {status}"
            )
        entry = new_id()
        batch = Batch(self._database)
        batch.move_issue(entry, id, last.number + 1, status, time.time() if at is None else at, reason)
        try:
            batch.submit().result()
        except StoreError:  # of which kind does not cross the owner's socket
            newest = self.history(id)[-1]
            if newest.number == last.number:
                raise
            raise ConflictError(
                f"issue {id} was moved to {newest.status} meanwhile ({newest.reason}); read it again"
            ) from None
        return self.get(id)
