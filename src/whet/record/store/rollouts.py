"""Rollouts and attempts as recorded: readable from any process, whoever owns the queue."""

from __future__ import annotations

import builtins
import hashlib
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec

from ...errors import InputError, NotFoundError, StaleLeaseError
from ...types import Failure, Fault, Feedback, Mode, Outcome, Rollout, Span, Status, Trajectory
from .batch import feedback_row, trajectory_row
from .codec import MODES, decode, decode_rollout, encode, encode_json
from .database import Database
from .group_commit import Value, Writes
from .queue_index import QueuedRollout
from .schema import FINISHED, OF_ROLLOUT
from .served import ServedAttempt, ServedAttempts, as_served

if TYPE_CHECKING:
    from .redaction.redact import Redactor

# `read_ahead.py` reads columns by their place: task_id, body, meta, attempts and seq.
ROLLOUT = (
    "SELECT r.id, r.task_id, t.body, r.mode, r.resources, r.max_attempts, r.created, r.meta, r.status, "
    "r.attempts, r.trajectory, r.error, r.done, r.seq FROM rollouts r LEFT JOIN tasks t ON t.id = r.task_id "
)
"""The columns that `decode_rollout` takes, then the number of its completion and its `seq`."""
_NUMBERED = re.compile(r"[.:]\d+\Z")
LONGEST = 200
"""Characters of an id."""
MOST = 1_000
"""Leases, finishes or rollouts in one request."""
Id = Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST)]
Seconds = Annotated[float, msgspec.Meta(ge=1, le=86_400)]
_TASK = len('{"task":')
LOST = Failure(Fault.ENVIRONMENT, "LeaseExpired", "nothing was heard of its worker until the lease ran out")
BROKEN = Failure(Fault.ENVIRONMENT, "InfrastructureError", "its trajectory ended as an infrastructure error")


class Finish(NamedTuple):
    """A worker's report at the end of an attempt: a trajectory, the failure that left none, or both."""

    id: str
    fence: int
    trajectory: Trajectory | None = None
    error: Failure | None = None
    spans: Sequence[Span] = ()
    """Kept with the report, in its commit; a report that is refused leaves none."""
    key: bytes = b""
    """The bytes that the worker sent: a report under the same fence with the same key is the same report.  b"" takes
    what is recorded of it, where a second decoding of the same bytes would give the same."""
    own: Mapping[str, str] = MappingProxyType({})
    """Resource name → id of the Version of the program's own that was read, of names that the Bundle does not have."""


class Claim(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Ask for work."""

    worker: Id
    n: Annotated[int, msgspec.Meta(ge=1, le=MOST)] = 1
    lease: Seconds = 60.0
    """Seconds until the rollout is somebody else's, unless a heartbeat comes."""
    modes: list[Mode] | None = None
    wait: Annotated[float, msgspec.Meta(ge=0, le=300)] = 0.0
    """Seconds to wait for work if there is none."""

    def check(self) -> None:
        """Refuse a claim that was made in this process, of which nothing has been validated.

        Raises:
            InputError: an unknown mode, or a lease or number that is not positive.
        """
        positive(self.lease)
        if self.n < 1:
            raise InputError(f"n is {self.n}; claim at least 1.")
        if unknown := sorted(set(self.modes or ()) - set(MODES)):
            raise InputError(f"no mode is called {unknown[0]!r}; give some of {', '.join(MODES)}.")


def positive(lease: float) -> None:
    """Raises: InputError for a lease that is not a positive number of seconds."""
    if not 0 < lease < float("inf"):
        raise InputError(f"lease is {lease}; give seconds, more than 0.")


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
    bundle: str | None
    """Id of the Bundle that it ran under; None in a record from before that was kept."""


class EncodedFinish:
    """A Finish, judged and encoded; `redact` takes the secrets out of its trajectory.

    Args:
        attempts: what the queue gave out, which the trajectory is recorded under.
        redactor: applied to the error.

    Raises:
        InputError: something in the trajectory has no JSON form.
    """

    __slots__ = (
        "digest",
        "error",
        "feedback",
        "finish",
        "outcome",
        "row",
        "served",
        "size",
        "trajectory",
    )

    def __init__(self, finish: Finish, attempts: ServedAttempts, redactor: Redactor | None) -> None:
        self.finish, trajectory = finish, finish.trajectory
        self.served = attempts.get(finish.id, finish.fence)
        broken = trajectory is not None and trajectory.outcome is Outcome.INFRASTRUCTURE_ERROR
        error = finish.error or (trajectory.error or BROKEN if broken and trajectory else None)
        if error is not None and redactor is not None:
            error = redactor.failure(error)
        self.error = None if error is None else failure_json(error)
        self.outcome = (
            "succeeded"
            if error is None
            else "failed"
            if error.fault is Fault.AGENT and not broken
            else "infrastructure_error"
        )
        self.trajectory: str | None = None
        self.row: tuple[Value, ...] | None = None
        self.feedback: Sequence[Feedback] = ()
        self.size = sum([len(span.body) + 100 for span in finish.spans]) if finish.spans else 0
        told = memoryview(b"")
        if trajectory is not None and self.served is not None:  # else it is refused, and written nowhere
            told = self._encode(trajectory, self.served, attempts)
        elif trajectory is not None and not finish.key:
            told = memoryview(encode(trajectory))
        head = encode_json([finish.id, None if finish.key else self.error])
        # The length keeps the two apart: no other head and body may have the same digest.
        known_by = hashlib.blake2b(b"%d:%b" % (len(head), head), digest_size=16)
        known_by.update(finish.key or told)
        self.digest = known_by.hexdigest()

    def _encode(self, sent: Trajectory, served: ServedAttempt, attempts: ServedAttempts) -> memoryview:
        """Make the row, and return the body without the task: what the report is known by when it is repeated."""
        versions = None if served.bundle is None else attempts.versions(served.bundle)
        trajectory = as_served(sent, served, versions, self.finish.own)
        body = encode(trajectory)
        self.trajectory, self.feedback = trajectory.id, trajectory.feedback
        self.row = trajectory_row(trajectory, task=served.task_id, body=body)
        self.size += len(body)
        # The task stands first and is the queue's: it may be recorded anew before a report is repeated.
        return memoryview(body)[_TASK + len(served.json) :]

    def redact(self, redactor: Redactor) -> None:
        """Take the secrets out of the trajectory."""
        body = None if self.row is None else self.row[-1]
        if self.served is None or not isinstance(body, bytes) or not redactor.suspects_runs(body):
            return
        trajectory = redactor.trajectory(decode(body, Trajectory))
        self.feedback = trajectory.feedback
        self.row = trajectory_row(trajectory, task=self.served.task_id)


def encoded(
    finished: Sequence[Finish], attempts: ServedAttempts, redactor: Redactor | None
) -> tuple[list[EncodedFinish | None], list[Exception | None]]:
    """Reports as they will be recorded once their secrets are out (`redact`); or the problem of each."""
    reports: list[EncodedFinish | None] = []
    problems: list[Exception | None] = []
    for finish in finished:
        try:
            reports.append(EncodedFinish(finish, attempts, redactor))
            problems.append(None)
        except InputError as problem:
            reports.append(None)
            problems.append(problem)
    return reports, problems


def redact(reports: Sequence[EncodedFinish | None], redactor: Redactor | None) -> None:
    """Take the secrets out of the trajectories of reports.

    All bodies are looked through at once: for a search of each of a hundred the interpreter's lock would change hands
    a hundred times, and what the search reads would have to come into the processor's cache anew.
    """
    rows = [report.row for report in reports if report is not None and report.row is not None]
    if redactor is not None and rows and redactor.suspects_runs(*[row[-1] for row in rows]):  # type: ignore[arg-type]
        for report in reports:
            if report is not None:
                report.redact(redactor)


def written(reports: Sequence[EncodedFinish]) -> Writes:
    """The writes that record the trajectories of reports, with their feedback and spans."""
    rows = [report.row for report in reports if report.row is not None]
    feedback = [feedback_row(noun) for report in reports for noun in report.feedback]
    spans = [span for report in reports for span in report.finish.spans]
    kinds = ((FINISHED, rows), ("feedback", feedback), ("span", spans))
    return [(key, rows_of_kind) for key, rows_of_kind in kinds if rows_of_kind]


def find(database: Database, where: str, values: Sequence[Value]) -> list[tuple[int | None, Rollout]]:
    """Rollouts as recorded, each with the number of its completion."""
    return [(row[12], decode_rollout(*row[:12])) for row in database.rows(ROLLOUT + where, values)]


def failure_json(failure: Failure) -> str:
    """A failure as JSON."""
    return encode_json(
        {"fault": failure.fault.value, "type": failure.type, "message": failure.message}
    ).decode()


def _failure(body: str | bytes | None) -> Failure | None:
    return None if body is None else msgspec.json.decode(body, type=Failure)


def state(
    entry: QueuedRollout,
    status: Status,
    *,
    error: str | None = None,
    trajectory: str | None = None,
    done: int | None = None,
) -> list[Value]:
    """The row of an entry for the statement `rollout_state`."""
    held = (entry.fence, entry.worker, entry.lease) if status == "running" else (None, None, None)
    return [entry.seq, status, entry.attempts, *held, trajectory, error, done]


def stale(id: str, fence: int) -> StaleLeaseError:
    return StaleLeaseError(
        f"rollout {id} is not held under fence {fence} any more: its lease ran out, or it ended or was "
        "cancelled. Nothing was recorded; drop the work and claim anew."
    )


class Rollouts:
    """Rollouts as recorded, for any process."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, id: str) -> Rollout:
        """A rollout as recorded.

        Raises:
            NotFoundError: there is none with this id.
        """
        for _, rollout in find(self._database, "WHERE r.id = ?", [id]):
            return rollout
        raise NotFoundError(f"the record holds no rollout {id!r}.")

    def attempts(self, id: str) -> builtins.list[Attempt]:
        """The tries at a rollout, oldest first."""
        rows = self._database.rows(
            "SELECT a.number, a.fence, a.worker, a.started, a.ended, a.outcome, a.error, "
            f"coalesce(r.resources, a.bundle) FROM rollouts r JOIN attempts a ON {OF_ROLLOUT} "
            "WHERE r.id = ? ORDER BY a.fence",
            [id],
        )
        return [Attempt._make((*row[:6], _failure(row[6]), row[7])) for row in rows]

    def bundle(self, run: str) -> str | None:
        """Id of the Bundle that the newest attempt at a rollout runs under; None where `run` is no such run.

        Args:
            run: id of the rollout, or the run id that an agent gets: the attempt's (`ID.NUMBER`), or its lease's in
                the old protocol (`ID:FENCE`).
        """
        rollout = _NUMBERED.sub("", run)
        rows = self._database.rows(
            # A rollout whose own id ends in a number comes before the one that the id without it would name.
            f"SELECT coalesce(r.resources, (SELECT a.bundle FROM attempts a WHERE {OF_ROLLOUT} "
            "ORDER BY a.fence DESC LIMIT 1)) FROM rollouts r WHERE r.id IN (?, ?) ORDER BY r.id = ? DESC LIMIT 1",
            [run, rollout, run],
        )
        return rows[0][0] if rows else None

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
        rollouts = find(
            self._database, f"WHERE {' AND '.join(where)} ORDER BY r.seq LIMIT ?", [*values, limit]
        )
        return [rollout for _, rollout in rollouts]

    def finished(self, after: int = 0, limit: int = 100) -> builtins.list[tuple[int, Rollout]]:
        """Rollouts that have ended since a cursor, in the order of completion: (cursor to go on from, rollout)."""
        ended = find(self._database, "WHERE r.done > ? ORDER BY r.done LIMIT ?", [after, limit])
        return [(done, rollout) for done, rollout in ended if done is not None]
