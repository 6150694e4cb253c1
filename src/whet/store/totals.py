"""The number of rows of each table, kept without counting them and without slowing writers down.

A new row's `seq` is the highest so far and one.  So a table has the rows that it had up to some place,
which `totals` keeps, and as many more as the numbers since: nothing is written when rows come.  Where
rows are taken out, which `erase.py` alone does, the place is moved to the end first, and each row that goes
is subtracted by a trigger.
"""

from __future__ import annotations

import sqlite3

from .access import Access

COUNTED = (
    "trajectories",
    "feedback",
    "tasks",
    "versions",
    "bundles",
    "releases",
    "verdicts",
    "preferences",
    "rollouts",
)
_HIGHEST = "coalesce((SELECT max(seq) FROM {0}), 0)"


def count(source: Access, table: str) -> int:
    """Rows of one of `COUNTED`."""
    query = f"SELECT rows + {_HIGHEST.format(table)} - upto FROM totals WHERE name = ?"
    return int(source.rows(query, [table])[0][0])


def settle(connection: sqlite3.Connection) -> None:
    """Move the place to the end of each table: before rows are taken out, and after it, for the last may go."""
    for table in COUNTED:
        highest = _HIGHEST.format(table)
        connection.execute(
            f"UPDATE totals SET rows = rows + max(0, {highest} - upto), upto = {highest} WHERE name = ?",
            (table,),
        )
