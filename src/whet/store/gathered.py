"""What is written in one transaction, gathered: one statement for each kind, however many submissions.

Half of what a claim, a finish or a span costs the writer is the number of its statements; a group commit
has several of each.  Of the queue's, a later state of a rollout takes the place of an earlier one,
counters keep their highest, and counts add up, so that what is written is what the changes one by one
would have left.  New trajectories and spans, of which the first that came is kept, are written in the
order in which they came.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

from .schema import QUEUE_STATEMENTS, STATEMENTS, WIDTHS, portions
from .segments import Segments
from .writer import Value


class Gathered:
    """Made for each transaction.

    Args:
        segments: where spans go.
    """

    def __init__(self, segments: Segments) -> None:
        self._segments = segments
        self._rows: dict[str, dict[Value, Sequence[Value]]] = {}
        self._trajectories: list[Sequence[Value]] = []
        self._spans: list[Sequence[Value]] = []

    def takes(self, key: str, rows: Sequence[Sequence[Value]]) -> bool:
        """Gather rows, if they are of a kind that is gathered."""
        if key == "span":
            self._spans += rows
        elif key == "trajectory":
            self._trajectories += rows
        elif key in QUEUE_STATEMENTS:
            self._add(key, rows)
        else:
            return False
        return True

    def _add(self, key: str, rows: Sequence[Sequence[Value]]) -> None:
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
        if self._trajectories:
            run(connection, "trajectory", self._trajectories)
            self._trajectories = []
        if self._spans:
            self._segments.insert(self._spans)
            self._spans = []
        if self._rows:
            for key in QUEUE_STATEMENTS:
                if key in self._rows:
                    run(connection, key, list(self._rows.pop(key).values()))


def run(connection: sqlite3.Connection, key: str, rows: Sequence[Sequence[Value]]) -> list[Any]:
    """Write rows of one kind, in their order; what the statement returns of each."""
    returned: list[Any] = []
    for part in portions(rows):
        returned += connection.execute(_statement(key, len(part)), tuple(chain.from_iterable(part)))
    return returned


@lru_cache(maxsize=512)
def _statement(key: str, rows: int) -> str:
    width, statement = QUEUE_STATEMENTS[key] if key in QUEUE_STATEMENTS else (WIDTHS[key], STATEMENTS[key])
    row = f"({', '.join('?' * width)})"
    return statement.format(", ".join([row] * rows))
