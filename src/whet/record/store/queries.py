"""Pages of nouns out of the record, decoded as they are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from ...types import Feedback, Outcome, Preference, Task, Trajectory, Version
from .codec import decode, encode
from .database import DatabaseReader
from .group_commit import Value
from .schema import LISTED, OF_RUNS, listed

if TYPE_CHECKING:
    from .redaction.redact import Redactor

_PAGE = 500

Noun = TypeVar("Noun", Task, Version, Preference, Feedback)


def read_trajectories(
    reader: DatabaseReader,
    equal: Mapping[str, Value],
    ids: Sequence[str] | None,
    since: float | None,
    limit: int | None,
    *,
    served: bool = False,
) -> Iterator[Trajectory]:
    """See `Store.trajectories`; `equal` is a column with its comparison → a value, None for any."""
    where = ["seq > ?"]
    last = 0
    values: list[Value] = []
    for column, value in equal.items():
        if value is not None:
            where.append(f"{column} ?")
            values.append(value)
    if served:
        where.append("experiment IS NULL")
    if since is not None:
        # The index of times says where to begin; from there on the order of commit is the cheaper way, and the
        # plus keeps SQLite from using the index again.
        ((first,),) = reader.rows(
            "SELECT min(seq) FROM trajectories INDEXED BY trajectories_outcome "
            f"WHERE outcome IN {LISTED} AND started >= ?",
            [listed(Outcome), since],
        )
        if first is None:
            return
        last = first - 1
        where.append("+started >= ?")
        values.append(since)
    if ids is not None:
        where.append(f"(id IN {LISTED} OR {OF_RUNS.format('?')} OR process_run IN {LISTED})")
        values += [listed(ids)] * 4
    query = f"SELECT seq, id, run, body FROM trajectories WHERE {' AND '.join(where)} ORDER BY seq LIMIT ?"
    remaining = limit
    # By pages: a cursor held open while the caller takes its time would keep the log from being reset.
    while remaining is None or remaining > 0:
        size = _PAGE if remaining is None else min(_PAGE, remaining)
        page = reader.rows(query, [last, *values, size])
        feedback = _feedback(reader, {key for _, id, run, _ in page for key in (id, run) if key})
        for seq, id, run, body in page:
            last = seq
            # Where the trajectory has its run's id, that feedback is in the first list already.
            of_run = feedback.get(run, []) if run != id else []
            yield _joined(decode(body, Trajectory), feedback.get(id, []) + of_run)
        if len(page) < size:
            return
        if remaining is not None:
            remaining -= size


def clashing(
    reader: DatabaseReader, trajectories: Sequence[Trajectory], redactor: Redactor | None
) -> list[str]:
    """See `Store.clashing`; two of them under one id clash as well."""
    ids = listed(trajectory.id for trajectory in trajectories)
    rows = reader.rows(f"SELECT id, body FROM trajectories WHERE id IN {LISTED}", [ids])
    contents: dict[str, bytes] = {id: _content(decode(body, Trajectory)) for id, body in rows}
    if not contents and len({trajectory.id for trajectory in trajectories}) == len(trajectories):
        return []
    clashes: dict[str, None] = {}
    for trajectory in trajectories:
        clean = trajectory if redactor is None else redactor.trajectory(trajectory)
        if contents.setdefault(clean.id, _content(clean)) != _content(clean):
            clashes[clean.id] = None
    return list(clashes)


def _content(trajectory: Trajectory) -> bytes:
    """What a run did, in bytes; scores, feedback and Versions may be added to it later."""
    bare = Trajectory(
        id=trajectory.id,
        task=trajectory.task,
        steps=trajectory.steps,
        output=trajectory.output,
        error=trajectory.error,
        started=0.0,
    )
    return encode(bare)


def read_all(
    reader: DatabaseReader, noun: type[Noun], table: str, *, ids: Sequence[str] | None = None, **equal: Value
) -> Iterator[Noun]:
    """The nouns of a table in the order in which they were first recorded."""
    where = ["seq > ?"]
    values: list[Value] = []
    for column, value in equal.items():
        if value is not None:
            where.append(f"{column} = ?")
            values.append(value)
    if ids is not None:
        where.append(f"id IN {LISTED}")
        values.append(listed(ids))
    query = f"SELECT seq, body FROM {table} WHERE {' AND '.join(where)} ORDER BY seq LIMIT {_PAGE}"
    last = 0
    while page := reader.rows(query, [last, *values]):
        for last, body in page:  # noqa: B007 - `last` is where the next page begins
            yield decode(body, noun)


def _feedback(reader: DatabaseReader, runs: set[str]) -> dict[str, list[Feedback]]:
    feedback: dict[str, list[Feedback]] = {}
    if runs:
        query = f"SELECT run, body FROM feedback WHERE run IN {LISTED} ORDER BY seq"
        for run, body in reader.rows(query, [listed(runs)]):
            feedback.setdefault(run, []).append(decode(body, Feedback))
    return feedback


def _joined(trajectory: Trajectory, feedback: list[Feedback]) -> Trajectory:
    """Add the feedback that the trajectory did not bring itself."""
    own = {brought.id for brought in trajectory.feedback}
    fresh = tuple(late for late in feedback if late.id not in own)
    if fresh:  # in place: the object was made just now, and nobody else has it
        object.__setattr__(trajectory, "feedback", (*trajectory.feedback, *fresh))
    return trajectory
