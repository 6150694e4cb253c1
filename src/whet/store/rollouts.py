"""Rollouts and attempts as recorded: readable from any process, whoever owns the queue."""

from __future__ import annotations

import builtins
import hashlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from ..errors import NotFoundError, StaleLeaseError
from ..types import Failure, Fault, Json, Mode, Outcome, Rollout, Status, Trajectory
from .access import Access
from .batch import feedback_row, trajectory_row
from .board import Entry
from .codec import decode_rollout, encode_json
from .writer import Value, Writes

_ROLLOUT = (
    "SELECT r.id, r.task_id, t.body, r.mode, r.resources, r.max_attempts, r.created, r.meta, r.status, "
    "r.attempts, r.trajectory, r.error, r.done, r.seq FROM rollouts r LEFT JOIN tasks t ON t.id = r.task_id "
)
LOST = Failure(Fault.ENVIRONMENT, "LeaseExpired", "nothing was heard of its worker until the lease ran out")
BROKEN = Failure(Fault.ENVIRONMENT, "InfrastructureError", "its trajectory ended as an infrastructure error")


class Finish(NamedTuple):
    """What a worker reports at the end of an attempt: a trajectory, why there is none, or both."""

    id: str
    fence: int
    trajectory: Trajectory | None = None
    error: Failure | None = None


class Attempt(NamedTuple):
    """One try at a rollout, as recorded."""

    number: int
    fence: int
    worker: str
    started: float
    """Unix time in seconds."""
    ended: float | None
    outcome: str
    """`running`, `succeeded`, `failed`, `infrastructure_error`, `expired` or `cancelled`."""
    error: Failure | None


class Report:
    """A Finish, judged and encoded."""

    __slots__ = ("digest", "error", "given", "outcome", "row", "size", "trajectory")

    def __init__(self, given: Finish) -> None:
        self.given = given
        broken = given.trajectory is not None and given.trajectory.outcome is Outcome.INFRASTRUCTURE_ERROR
        error = given.error or (given.trajectory.error or BROKEN if broken and given.trajectory else None)
        self.trajectory = None if given.trajectory is None else given.trajectory.id
        self.error = None if error is None else plain(error)
        self.outcome = (
            "succeeded"
            if error is None
            else "failed"
            if error.fault is Fault.AGENT and not broken
            else "infrastructure_error"
        )
        self.row = None if given.trajectory is None else trajectory_row(given.trajectory)
        body = b"" if self.row is None else self.row[-1]
        assert isinstance(body, bytes)
        self.size = len(body)
        said = encode_json([given.id, self.error])
        self.digest = hashlib.blake2b(b"%d:%b%b" % (len(said), said, body), digest_size=16).hexdigest()


def written(reports: Sequence[Report]) -> Writes:
    """What records the trajectories of reports, and the feedback that they bring."""
    rows = [report.row for report in reports if report.row is not None]
    said = [
        feedback_row(one)
        for report in reports
        if report.given.trajectory
        for one in report.given.trajectory.feedback
    ]
    return [*([("trajectory", rows)] if rows else []), *([("feedback", said)] if said else [])]


def claimed(source: Access, taken: Mapping[int, int]) -> dict[str, Rollout]:
    """Rollouts that were just claimed, from their place and the number of the attempt, as they will be recorded."""
    rows = source.rows(_ROLLOUT + "WHERE r.seq IN (SELECT value FROM json_each(?))", [json(list(taken))])
    values = [[*row[:8], "running", taken[row[13]], *row[10:12]] for row in rows]
    return {row[0]: decode_rollout(*row) for row in values}


def find(source: Access, where: str, values: Sequence[Value]) -> list[tuple[int | None, Rollout]]:
    """Rollouts as recorded, each with the number of its completion."""
    return [(row[12], decode_rollout(*row[:12])) for row in source.rows(_ROLLOUT + where, values)]


def plain(failure: Failure) -> dict[str, Json]:
    return {"fault": failure.fault.value, "type": failure.type, "message": failure.message}


def _failure(body: str | bytes | None) -> Failure | None:
    return None if body is None else msgspec.json.decode(body, type=Failure)


def state(
    entry: Entry,
    status: Status,
    *,
    error: Json = None,
    trajectory: str | None = None,
    done: int | None = None,
) -> list[Json]:
    """What `rollout_state` writes of an entry."""
    held = (entry.fence, entry.worker, entry.lease) if status == "running" else (None, None, None)
    return [entry.seq, status, entry.attempts, *held, trajectory, error, done]


def json(value: Json) -> str:
    return encode_json(value).decode()


def listed(rows: Sequence[Json]) -> list[tuple[str]]:
    return [(json(rows),)] if rows else []


def stale(id: str, fence: int) -> StaleLeaseError:
    return StaleLeaseError(
        f"rollout {id} is not held under fence {fence} any more: its lease ran out, or it ended or was "
        "cancelled. Nothing was recorded; drop the work and claim anew."
    )


class Rollouts:
    """What can be asked about rollouts."""

    def __init__(self, store: Access) -> None:
        self._store = store

    def get(self, id: str) -> Rollout:
        """A rollout as recorded.

        Raises:
            NotFoundError: there is none with this id.
        """
        for _, found in find(self._store, "WHERE r.id = ?", [id]):
            return found
        raise NotFoundError(f"{self._store.path} holds no rollout {id!r}.")

    def attempts(self, id: str) -> builtins.list[Attempt]:
        """The tries at a rollout, oldest first."""
        rows = self._store.rows(
            "SELECT number, fence, worker, started, ended, outcome, error FROM attempts WHERE rollout = ? "
            "ORDER BY fence",
            [id],
        )
        return [Attempt._make((*row[:6], _failure(row[6]))) for row in rows]

    def list(
        self,
        *,
        status: Status | None = None,
        mode: Mode | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> builtins.list[Rollout]:
        """Rollouts in the order in which they were added.

        Args:
            after: id of the last one of the page before.
        """
        where, values = ["r.seq > coalesce((SELECT seq FROM rollouts WHERE id = ?), 0)"], [after or ""]
        for column, value in (("status", status), ("mode", mode)):
            if value is not None:
                where.append(f"r.{column} = ?")
                values.append(value)
        if status in ("queued", "running"):
            where.append("r.done IS NULL")  # which the index knows
        found = find(self._store, f"WHERE {' AND '.join(where)} ORDER BY r.seq LIMIT ?", [*values, limit])
        return [rollout for _, rollout in found]

    def finished(self, after: int = 0, limit: int = 100) -> builtins.list[tuple[int, Rollout]]:
        """What has ended since a cursor, in the order of completion: (cursor to go on from, rollout)."""
        found = find(self._store, "WHERE r.done > ? ORDER BY r.done LIMIT ?", [after, limit])
        return [(done, rollout) for done, rollout in found if done is not None]
