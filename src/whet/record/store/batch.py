"""Writes of several kinds that commit together."""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import Future
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING

import msgspec

from ...errors import InputError, StoreError
from ...types import (
    Bundle,
    Feedback,
    Json,
    Preference,
    Rollout,
    Task,
    Trajectory,
    Verdict,
    Version,
    digest,
    new_id,
)
from .codec import encode, encode_json, encode_rollout
from .database import Database
from .group_commit import Value, Writes, ready
from .redaction.current import redaction, searching
from .releases import DECLARED, LIVE, Release, Stage, history, newest_id, trials

if TYPE_CHECKING:
    from .issues import AgentIssue, IssueStatus
    from .redaction.redact import Redactor


def trajectory_row(
    trajectory: Trajectory,
    experiment: str | None = None,
    *,
    task: str | None = None,
    body: bytes | None = None,
) -> tuple[Value, ...]:
    """A trajectory as its columns, the body last.

    Args:
        task: id of its task, where that is not looked at.
        body: the encoded trajectory, where it is there already.

    Raises:
        InputError: something in it has no JSON form.
    """
    run = trajectory.meta.get("run")
    return (
        trajectory.id,
        run if isinstance(run, str) else None,
        trajectory.task.id if task is None else task,
        experiment,
        digest(sorted(trajectory.versions.values())) if trajectory.versions else None,
        trajectory.outcome.value,
        trajectory.started,
        trajectory.session,
        trajectory.subject,
        # The body stands last: `schema.portions` weighs a row by its last value.
        encode(trajectory) if body is None else body,
    )


def feedback_row(feedback: Feedback, body: bytes | None = None) -> tuple[Value, ...]:
    """Feedback as its columns, the body last; it may be encoded already."""
    body = encode(feedback) if body is None else body
    return (feedback.id, feedback.run, feedback.at, feedback.session, body)


class Batch:
    """Collects writes; leaving the `with` block commits them in one transaction, all or none.

    An exception inside the block discards them.  Each method encodes at once, so what is
    changed afterwards is not recorded; it raises InputError for a value without a JSON form.
    Secrets are taken out of everything but Versions, which would no longer do what they did
    (`bundles.refuse_secrets`).

    Args:
        database: where it is committed; None only collects `writes`.
    """

    def __init__(self, database: Database | None = None) -> None:
        self._database = database
        self._writes: list[tuple[str, list[tuple[Value, ...]]]] = []
        self.redacted: Counter[str] = Counter()
        """Rule → secrets that were taken out of what was added."""

    def __enter__(self) -> Batch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.submit().result()

    def submit(self) -> Future[None]:
        """Commit without waiting; the future is done once the writes are durable.

        Raises:
            StoreError: the store is closed.
        """
        if self._database is None:
            raise StoreError("this batch has no store to commit to")
        # A fresh list: the writer's thread reads the old one, which later
        # calls on this batch must not change.
        writes, self._writes = self._writes, []
        if not writes:
            return ready(None)
        return self._database.write(writes)

    @property
    def writes(self) -> Writes:
        """The writes collected so far, encoded."""
        return self._writes

    def as_of(self, erasures: int) -> None:
        """Have the whole batch refused if a person was erased since there were so many erasures (`erasure.ERASURES`).

        For writes made from rows that were read before.  Must be the first call on the batch.
        """
        self._add("as_of", [(erasures,)])

    def _clean(self, body: bytes, *, learned: bool = False) -> bytes:
        redactor = redactor_of(self._database)
        if redactor is None:
            return body
        with searching:
            return redactor.body(body, self.redacted, learned=learned)

    def _clean_text(self, text: str) -> str:
        return str(msgspec.json.decode(self._clean(encode_json(text)))) if text else text

    def put_row(self, row: tuple[Value, ...], *, replace: bool = False) -> None:
        """Add a trajectory that is encoded already, as `trajectory_row` gives it, and without secrets."""
        self._add("trajectory_again" if replace else "trajectory", [row])

    def _add(self, key: str, rows: list[tuple[Value, ...]]) -> None:
        # Only neighbours of one kind are joined: the owner applies the writes in the order of the calls.
        if rows and self._writes and self._writes[-1][0] == key:
            self._writes[-1][1].extend(rows)  # one statement writes them all
        elif rows:
            self._writes.append((key, rows))

    def put(self, *trajectories: Trajectory, experiment: str | None = None, replace: bool = False) -> None:
        """See `Store.put`."""
        bodies = [encode(trajectory) for trajectory in trajectories]
        redactor, clean = redactor_of(self._database), list(trajectories)
        if redactor is not None:
            with searching:
                for number, body in enumerate(bodies):
                    if redactor.suspects_runs(body):
                        clean[number] = redactor.trajectory(clean[number], self.redacted)
                        if clean[number] is not trajectories[number]:
                            bodies[number] = encode(clean[number])
        rows = [trajectory_row(each, experiment, body=body) for each, body in zip(clean, bodies, strict=True)]
        self._add("trajectory_again" if replace else "trajectory", rows)
        self.add_feedback(*(feedback for trajectory in clean for feedback in trajectory.feedback))

    def withdraw(self, *ids: str) -> None:
        """Delete trajectories whose every step is in another one now; their spans stay."""
        self._add("withdraw", [(id,) for id in ids])

    def add_feedback(self, *feedback: Feedback) -> None:
        """See `Store.add_feedback`."""
        self._add("feedback", [feedback_row(noun, self._clean(encode(noun))) for noun in feedback])

    def put_tasks(self, *tasks: Task) -> None:
        """See `Store.put_tasks`."""
        rows: list[tuple[Value, ...]] = [
            (
                task.id,
                None if task.split is None else task.split.value,
                self._clean_text(task.group),
                self._clean(encode(task)),
            )
            for task in tasks
        ]
        self._add("task", rows)

    def add_rollouts(self, *rollouts: Rollout) -> None:
        """Queue rollouts and record their tasks; one whose id is already known stays as it stands."""
        self.put_tasks(*{rollout.task.id: rollout.task for rollout in rollouts}.values())
        rows = [encode_rollout(rollout) for rollout in rollouts]
        self._add("rollout", [(*row[:-1], self._clean(row[-1])) for row in rows])

    def put_versions(self, *versions: Version) -> None:
        """See `Store.put_versions`."""
        self._add(
            "version", [(version.id, version.resource, version.kind, encode(version)) for version in versions]
        )

    def put_preferences(self, *preferences: Preference) -> None:
        """See `Store.put_preferences`."""
        bodies = [self._clean(encode(preference)) for preference in preferences]
        self._add("preference", [(digest(body.decode()), body) for body in bodies])

    def put_issues(self, *issues: AgentIssue) -> None:
        """See `Issues.put`; their status is not written."""
        bodies = [encode_json(msgspec.to_builtins(replace(issue, reason=""))) for issue in issues]
        self._add(
            "issue", [(issue.id, self._clean(body)) for issue, body in zip(issues, bodies, strict=True)]
        )

    def move_issue(
        self, id: str, issue: str, number: int, status: IssueStatus, at: float, reason: str
    ) -> None:
        """An entry of an issue's log; the batch is refused where the issue has another one of this number."""
        self._add("issue_move", [(id, issue, number, status.value, at, self._clean_text(reason))])

    def put_state(self, key: str, value: Json, *, learned: bool = True) -> None:
        """See `Store.put_state`.

        Args:
            learned: as `Redactor.body` has it.
        """
        self._add("state", [(key, time.time(), self._clean(encode_json(value), learned=learned))])

    def declare(self, default: Version, *, content: bool = True) -> None:
        """Record that a program reads a resource, and the default that it came with.

        Args:
            content: False records the name alone.
        """
        if content:
            self.put_versions(default)
        self.put_state(f"{DECLARED}{default.resource}", default.id)

    def put_bundle(self, bundle: Bundle) -> None:
        """See `Store.put_bundle`."""
        self.put_versions(*bundle.values())
        self._add("bundle", [(bundle.id, time.time(), _ids(bundle))])

    def put_verdict(self, verdict: Verdict, *, experiment: str = "") -> str:
        """See `Store.put_verdict`."""
        if not verdict.candidate:
            raise InputError(
                "this Verdict does not say which Bundle it judged. Set its `candidate` to the Bundle's id."
            )
        reasons = tuple(self._clean_text(reason) for reason in verdict.reasons)
        if reasons != tuple(verdict.reasons):
            verdict = replace(verdict, reasons=reasons)  # with another id, which is the hash of its content
        row = (verdict.id, verdict.candidate, experiment, time.time(), encode(verdict))
        self._add("verdict", [row])
        return verdict.id

    def set_live(self, bundle: Bundle, name: str = LIVE, *, reason: str = "") -> Release:
        """See `Store.set_live`.

        The batch is refused where another release comes before its commit: this one was made from what is live now.
        """
        log = [] if self._database is None else history(self._database, name, 1)
        live = log[0] if log else None
        return self.add_release(
            Release(
                new_id(),
                name,
                bundle,
                None if live is None else live.id,
                time.time(),
                reason,
                unproven=bool(bundle),
                base=None if live is None else live.bundle.id,
            ),
            after=None if self._database is None else newest_id(self._database, name),
        )

    def add_release(self, release: Release, *, after: str | None, part_of: str | None = None) -> Release:
        """Add an entry to the release log; one that goes live ends the trials that were made from another Bundle.

        A trial of which a part goes live goes on with the rest (`goes_on`).

        Args:
            after: id of the newest entry that it was made from; None where there was none. The batch is refused
                where another one came meanwhile.
            part_of: id of a trial that carries all that goes live, whatever its Versions are.
        """
        release = replace(
            release,
            reason=self._clean_text(release.reason),
            candidate=release.candidate or release.bundle.id,
            trial=release.trial or release.id,
        )
        self._add("follows", [(release.name, after, release.id)])
        # In the same commit: a claim hands out the id of what is live, and the Bundle must be found by it.
        self.put_bundle(release.bundle)
        self._add("release", [_release_row(release)])
        if release.stage is Stage.LIVE and self._database is not None:
            log = history(self._database, release.name, 1)
            for trial in trials(self._database, release.name):
                if trial.trial != release.trial and trial.base != release.bundle.id:
                    before = log[0].bundle if log else Bundle()
                    own_part = trial.trial == part_of or goes_on(trial, before, release.bundle)
                    entry = carried_on(trial, release) if own_part else superseded(trial, release)
                    self._add("release", [_release_row(entry)])
        return release


def goes_on(trial: Release, before: Bundle, live: Bundle) -> bool:
    """True if nothing went live but a part of what is on trial: who is served what does not change for it."""
    added = [version for name, version in live.items() if before.get(name) != version]
    own = all(trial.bundle.get(version.resource) == version for version in added)
    return own and before.keys() <= live.keys() and live != trial.bundle


def carried_on(trial: Release, by: Release) -> Release:
    """The entry by which a trial stands on what went live of it."""
    reason = f"goes on with the rest: {by.id}, a part of it, is live"
    return replace(trial, id=new_id(), at=time.time(), base=by.bundle.id, reason=reason)


def superseded(trial: Release, by: Release) -> Release:
    """The entry that takes a trial off whose base is no longer live."""
    return replace(
        trial,
        id=new_id(),
        at=time.time(),
        stage=Stage.RETIRED,
        share=0.0,
        reason=f"what it was tried against is no longer live: {by.id} is. To try it again: "
        f"whet release {trial.candidate} --to {trial.stage}",
    )


def _release_row(release: Release) -> tuple[Value, ...]:
    return (
        release.id,
        release.name,
        release.bundle.id,
        release.previous,
        release.at,
        release.reason,
        release.verdict,
        int(release.unproven),
        release.stage.value,
        release.share,
        release.unit,
        release.candidate,
        release.trial,
        release.base,
        _ids(release.bundle),
    )


def redactor_of(database: Database | None) -> Redactor | None:
    """The Redactor that writes to a file go through: its server's own, or that of this process."""
    own = None if database is None else database.redactor
    return redaction() if own is None else own


def _ids(bundle: Bundle) -> bytes:
    """The ids of its Versions, as they are stored."""
    return encode_json([version.id for version in bundle.values()])
