"""What the queue gave out under a fence, and the trajectory that a worker's report of it becomes.

A worker knows what its agent did.  What it was given to do (the task, the mode, the Bundle and its Versions), which
rollout and attempt it was, and who it is, the queue knows: that is written here and never taken from a report.  Where
the two differ, the trajectory has the queue's, and `meta["mismatch"]` what was sent.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import Any, NamedTuple, cast

import msgspec

from ...types import BY_WORKER, Feedback, Json, Mode, Score, Task, Trajectory
from .bundles import EMPTY
from .codec import decode, encode
from .database import Database
from .releases import stored_bundle

MISMATCH = "mismatch"
"""Key of `Trajectory.meta`: what a worker said of its rollout that the queue knows otherwise."""
KEPT_BYTES = 8 * 1024 * 1024
"""Bytes of tasks under way that are kept; beyond that the oldest are read from the file when they are reported."""
KEPT_BUNDLES = 1_000
UNSENT = Task(id="unsent")
"""Stands for the task in a report that names none."""
_AsRecorded: Any = msgspec.defstruct("Trajectory", [field.name for field in fields(Trajectory)], kw_only=True)
"""A Trajectory's fields in their order, for its JSON alone: made and encoded in half the time."""
_QUERY = (
    "SELECT a.number, a.worker, r.mode, coalesce(r.resources, a.bundle), a.started, r.task_id, t.body "
    "FROM attempts a JOIN rollouts r ON r.id = a.rollout LEFT JOIN tasks t ON t.id = r.task_id "
    "WHERE a.fence = ? AND a.rollout = ?"
)


class ServedAttempt(NamedTuple):
    """One attempt as the queue gave it out."""

    rollout: str
    number: int
    """1 for the first."""
    worker: str
    mode: Mode
    bundle: str | None
    """Id; None in a record from before that was kept."""
    started: float
    """Unix time in seconds."""
    task_id: str
    body: bytes | None
    """JSON of the task; None where it was erased."""

    @property
    def id(self) -> str:
        """Id of the trajectory, which the agent has as the id of its run."""
        return f"{self.rollout}.{self.number}"

    @property
    def json(self) -> bytes:
        """The task as JSON."""
        return encode(self.task) if self.body is None else self.body

    @property
    def task(self) -> Task:
        """The task, as it was given out."""
        return Task(id=self.task_id) if self.body is None else decode(self.body, Task)


class ServedAttempts:
    """Attempts under way by their fence, and the Versions of Bundles; what is not kept is read from the file."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._attempts: dict[int, ServedAttempt] = {}
        self._size = 0
        self._versions: dict[str, Mapping[str, str]] = {EMPTY.id: {}}

    def put(self, given_out: Mapping[int, ServedAttempt]) -> None:
        """Keep attempts that were just given out, by their fences."""
        with self._lock:
            self._attempts.update(given_out)
            self._size += sum([_weight(served) for served in given_out.values()])
            while self._size > KEPT_BYTES:
                self._size -= _weight(self._attempts.pop(next(iter(self._attempts))))

    def forget(self, fences: Iterable[int] | None = None) -> None:
        """Forget attempts that have ended, or all of them: a person was erased, perhaps with their tasks."""
        with self._lock:
            if fences is None:
                self._attempts.clear()
                self._size = 0
            for fence in fences or ():
                if (served := self._attempts.pop(fence, None)) is not None:
                    self._size -= _weight(served)

    def get(self, rollout: str, fence: int) -> ServedAttempt | None:
        """The attempt under this fence; None where the rollout never had one."""
        served = self._attempts.get(fence)
        if served is None:
            rows = self._database.rows(_QUERY, [fence, rollout])
            served = ServedAttempt(rollout, *rows[0]) if rows else None
        return served if served is not None and served.rollout == rollout else None

    def versions(self, bundle: str) -> Mapping[str, str]:
        """Resource name → Version id of a recorded Bundle; empty where the record does not have it."""
        versions = self._versions.get(bundle)
        if versions is None:
            rows = self._database.rows("SELECT body FROM bundles WHERE id = ?", [bundle])
            versions = stored_bundle(self._database, rows[0][0], f"Bundle {bundle}").ids if rows else {}
            if len(self._versions) >= KEPT_BUNDLES:
                self._versions = {EMPTY.id: {}}
            if rows:  # one that is not there now may be recorded later
                self._versions[bundle] = versions
        return versions


def as_served(
    sent: Trajectory, served: ServedAttempt, versions: Mapping[str, str] | None, own: Mapping[str, str]
) -> Trajectory:
    """A worker's trajectory with all that the queue knows better.

    Its scores are marked as the worker's.  It is made to be encoded: `task` holds the task's JSON.

    Args:
        versions: of the Bundle that was served; None where the record does not know which that was.
        own: Versions of the program's own, of names that the Bundle does not have.
    """
    id, meta = served.id, sent.meta
    known: dict[str, Json] = {
        "run": served.rollout,
        "rollout": served.rollout,
        "attempt": served.number,
        "mode": served.mode,
        "worker": served.worker,
    }
    if served.bundle is not None:
        known["bundle"] = served.bundle
    recorded = {**meta, **known}
    mismatch: dict[str, Json] = {}
    if recorded != meta:  # as it is for a worker that states all of it
        mismatch = {key: meta[key] for key in known if meta.get(key, known[key]) != known[key]}
    if MISMATCH in meta:
        mismatch[MISMATCH] = meta[MISMATCH]
    if sent.id and sent.id != id:
        mismatch["id"] = sent.id
    if sent.task is not UNSENT and sent.task.id != served.task_id:
        mismatch["task"] = sent.task.id
    lineage = sent.versions if versions is None else {**own, **versions}
    if sent.versions and (
        others := {name: id for name, id in sent.versions.items() if lineage.get(name) != id}
    ):
        mismatch["versions"] = others
    recorded.pop(MISMATCH, None)
    if mismatch:
        recorded[MISMATCH] = mismatch
    as_recorded: Any = _AsRecorded(
        # As it lies in the record: decoding a task only to encode it again costs as much as all else here.
        task=msgspec.Raw(served.json),
        steps=sent.steps,
        id=id,
        output=sent.output,
        versions=lineage,
        scores={name: _marked(score) for name, score in sent.scores.items()} if sent.scores else {},
        feedback=tuple([_of_run(feedback, sent.id, id) for feedback in sent.feedback]),
        outcome=sent.outcome,
        error=sent.error,
        trace_ids=sent.trace_ids,
        session=sent.session,
        subject=sent.subject,
        seed=sent.seed,
        started=sent.started or served.started,
        seconds=sent.seconds,
        meta=recorded,
    )
    return cast("Trajectory", as_recorded)


def _marked(score: Score) -> Score:
    return score if score.by_worker else replace(score, evaluator=BY_WORKER + score.evaluator)


def _of_run(feedback: Feedback, sent: str, id: str) -> Feedback:
    """Feedback on the run itself, under whatever id its worker had for it, as feedback on the attempt."""
    return replace(feedback, run=id) if not feedback.session and feedback.run in ("", sent) else feedback


def _weight(served: ServedAttempt) -> int:
    return 300 + len(served.body or b"")
