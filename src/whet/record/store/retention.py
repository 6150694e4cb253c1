"""Retention: deletes what is older than a number of days, one portion per transaction.

Trajectories go with their feedback and revisions, unless a rule keeps them; old spans and ended rollouts
go all the same.  Nothing is marked: what was learned from old runs stays learned.
"""

from __future__ import annotations

import sqlite3

import msgspec

from .erasure import column, delete
from .schema import LISTED, listed

KEEP = ("feedback", "experiment", "lineage")
"""Rules by which retention leaves trajectories alone."""
PORTION = "retain-"
"""Prefix of the ids under which the counts of portions are kept until they are read."""
_CHUNK = 1_000
"""Trajectories, and spans of a segment, that one transaction deletes: others write between two."""


def retain(connection: sqlite3.Connection, id: str, before: float, keep: str, at: float) -> None:
    """Delete one portion of what is older than `before` (Unix seconds), and keep the count under `id`."""
    if connection.execute("SELECT 1 FROM erasures WHERE id = ?", (id,)).fetchone():
        return
    # Counts of portions whose process ended before it read them; others are read right after the commit.
    connection.execute("DELETE FROM erasures WHERE id LIKE ? AND at < ?", (PORTION + "%", at - 3_600))
    rules = msgspec.json.decode(keep, type=list[str])
    where = ["started < ?"]
    if "experiment" in rules:
        where.append("experiment IS NULL")
    if "feedback" in rules:
        # Explicit feedback alone: implicit signals of a session would keep nearly every trajectory.
        where.append(
            "NOT EXISTS (SELECT 1 FROM feedback f WHERE f.run IN (t.id, t.run) AND "
            "coalesce(json_extract(CAST(f.body AS TEXT), '$.kind'), '') NOT LIKE 'implicit.%')"
        )
    if "lineage" in rules:
        where.append(
            "id NOT IN (SELECT source.value FROM versions v, json_each(CAST(v.body AS TEXT), '$.meta.data') AS source)"
        )
    ids = column(
        connection,
        f"SELECT id FROM trajectories t WHERE {' AND '.join(where)} ORDER BY seq LIMIT {_CHUNK}",
        before,
    )
    old = listed(ids)
    connection.execute("PRAGMA secure_delete = FAST")  # overwriting whole segments would block the writers
    report = {
        "at": at,
        "feedback": delete(connection, f"feedback WHERE run IN {LISTED}", old),
        "revisions": delete(connection, f"trajectory_revisions WHERE id IN {LISTED}", old),
        "trajectories": delete(connection, f"trajectories WHERE id IN {LISTED}", old),
        "spans": _retain_spans(connection, before),
        "rollouts": delete(
            connection,
            f"rollouts WHERE seq IN (SELECT seq FROM rollouts WHERE done IS NOT NULL AND created < ? LIMIT {_CHUNK})",
            before,
        ),
    }
    delete(
        connection,
        "attempts WHERE ended < ? AND NOT EXISTS (SELECT 1 FROM rollouts WHERE id = attempts.rollout)",
        before,
    )
    connection.execute("PRAGMA secure_delete = ON")
    connection.execute("INSERT INTO erasures VALUES (?, ?, ?)", (id, at, msgspec.json.encode(report)))


def _retain_spans(connection: sqlite3.Connection, before: float) -> int:
    """Old segments go whole; of the two that spans are still compared with, a portion of the rows."""
    numbers = column(connection, "SELECT number FROM segments ORDER BY number")
    total = 0
    for number in numbers[:-2]:
        newest, rows = connection.execute(
            "SELECT newest, rows FROM segments WHERE number = ?", (number,)
        ).fetchone()
        if newest < before:
            connection.execute(f"DROP TABLE spans_{number}")
            connection.execute("DELETE FROM segments WHERE number = ?", (number,))
            # A context is marked with the newest segment that uses it
            # (`Segments._context`), so none in use goes.
            connection.execute("DELETE FROM contexts WHERE segment <= ?", (number,))
            total += rows
    for number in numbers[-2:]:
        oldest = connection.execute(f"SELECT arrived FROM spans_{number} ORDER BY seq LIMIT 1").fetchone()
        if oldest and oldest[0] < before:
            gone = delete(
                connection,
                f"spans_{number} WHERE seq IN "
                f"(SELECT seq FROM spans_{number} WHERE arrived < ? ORDER BY seq LIMIT {_CHUNK})",
                before,
            )
            connection.execute("UPDATE segments SET rows = rows - ? WHERE number = ?", (gone, number))
            total += gone
    return total
