"""Pages of nouns out of the record, decoded as they are asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import msgspec

from ..types import Feedback, Outcome, Preference, Task, Trajectory, Verdict, Version
from .access import Access, Rows
from .codec import decode
from .writer import Value

_PAGE = 500
_LISTED = "(SELECT value FROM json_each(?))"
"""A list of any length as one parameter."""

Noun = TypeVar("Noun", Task, Version, Preference, Verdict)


def read_trajectories(
    source: Access,
    equal: Mapping[str, Value],
    ids: Sequence[str] | None,
    since: float | None,
    limit: int | None,
) -> Iterator[Trajectory]:
    """See `Store.trajectories`; `equal` is a column with its comparison → a value, None for any."""
    where = ["seq > ?"]
    last = 0
    values: list[Value] = []
    for column, value in equal.items():
        if value is not None:
            where.append(f"{column} ?")
            values.append(value)
    if since is not None:
        # Where it begins the index of times says; from there on the order of commit is the way to go, which
        # the plus leaves SQLite no choice about.
        ((first,),) = source.rows(
            "SELECT min(seq) FROM trajectories INDEXED BY trajectories_outcome "
            f"WHERE outcome IN {_LISTED} AND started >= ?",
            [_listed(Outcome), since],
        )
        if first is None:
            return
        last = first - 1
        where.append("+started >= ?")
        values.append(since)
    if ids is not None:
        where.append(f"(id IN {_LISTED} OR run IN {_LISTED} OR process_run IN {_LISTED})")
        values += [_listed(ids)] * 3
    query = f"SELECT seq, id, run, body FROM trajectories WHERE {' AND '.join(where)} ORDER BY seq LIMIT ?"
    left = limit
    while left is None or left > 0:
        size = _PAGE if left is None else min(_PAGE, left)
        page = source.rows(query, [last, *values, size])
        said = _feedback(source, {key for _, id, run, _ in page for key in (id, run) if key})
        for seq, id, run, body in page:
            last = seq
            heard = said.get(id, []) + (said.get(run, []) if run != id else [])
            yield _joined(decode(body, Trajectory), heard)
        if len(page) < size:
            return
        if left is not None:
            left -= size


def read_all(
    source: Rows, noun: type[Noun], table: str, *, ids: Sequence[str] | None = None, **equal: Value
) -> Iterator[Noun]:
    """The nouns of a table in the order in which they were first recorded."""
    where = ["seq > ?"]
    values: list[Value] = []
    for column, value in equal.items():
        if value is not None:
            where.append(f"{column} = ?")
            values.append(value)
    if ids is not None:
        where.append(f"id IN {_LISTED}")
        values.append(_listed(ids))
    query = f"SELECT seq, body FROM {table} WHERE {' AND '.join(where)} ORDER BY seq LIMIT {_PAGE}"
    last = 0
    while page := source.rows(query, [last, *values]):
        for last, body in page:  # noqa: B007 - `last` is where the next page begins
            yield decode(body, noun)


def read_feedback(source: Access, run: str | None, session: str | None) -> Iterator[Feedback]:
    """See `Store.feedback`."""
    given = {"run": run, "session": session}
    where = [f"{column} = ?" for column, value in given.items() if value is not None]
    values = [value for value in given.values() if value is not None]
    query = f"SELECT body FROM feedback {'WHERE ' * bool(where)}{' AND '.join(where)} ORDER BY seq"
    for (body,) in source.rows(query, values):
        yield decode(body, Feedback)


def _feedback(source: Access, runs: set[str]) -> dict[str, list[Feedback]]:
    said: dict[str, list[Feedback]] = {}
    if runs:
        query = f"SELECT run, body FROM feedback WHERE run IN {_LISTED} ORDER BY seq"
        for run, body in source.rows(query, [_listed(runs)]):
            said.setdefault(run, []).append(decode(body, Feedback))
    return said


def _joined(trajectory: Trajectory, said: list[Feedback]) -> Trajectory:
    """Add the feedback that the trajectory did not bring itself."""
    own = {feedback.id for feedback in trajectory.feedback}
    fresh = tuple(feedback for feedback in said if feedback.id not in own)
    if fresh:  # in place: the object was made just now, and nobody else has it
        object.__setattr__(trajectory, "feedback", (*trajectory.feedback, *fresh))
    return trajectory


def _listed(ids: Iterable[str]) -> str:
    return msgspec.json.encode(list(ids)).decode()
