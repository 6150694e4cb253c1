"""What the queue writes in one transaction, gathered: one statement for each kind, however many changes.

Half of what a claim or a finish costs the writer is the number of its statements; a group commit has
several of each.  A later state of a rollout takes the place of an earlier one, counters keep their
highest, and counts add up, so that what is written is what the changes one by one would have left.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain, islice

from .schema import QUEUE_STATEMENTS
from .writer import Value

_TOGETHER = 50
"""Rows in one statement."""


class Gathered:
    """Made for each transaction."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[Value, Sequence[Value]]] = {}

    def add(self, key: str, rows: Sequence[Sequence[Value]]) -> None:
        """Rows of one of `QUEUE_STATEMENTS`; the first column says what a row is of."""
        kept = self._rows.setdefault(key, {})
        for row in rows:
            before = kept.get(row[0])
            if before is None or key not in ("counter", "count"):
                kept[row[0]] = row
                continue
            numbers = [value for value in (before[1], row[1]) if isinstance(value, int)]
            kept[row[0]] = (row[0], max(numbers) if key == "counter" else sum(numbers))

    def write(self, connection: sqlite3.Connection) -> None:
        """Run the statements, and begin anew."""
        for key in QUEUE_STATEMENTS:
            rows = iter(self._rows.pop(key, {}).values())
            while part := list(islice(rows, _TOGETHER)):
                connection.execute(_statement(key, len(part)), tuple(chain.from_iterable(part)))


@lru_cache(maxsize=256)
def _statement(key: str, rows: int) -> str:
    width, statement = QUEUE_STATEMENTS[key]
    row = f"({', '.join('?' * width)})"
    return statement.format(", ".join([row] * rows))
