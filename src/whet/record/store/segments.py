"""Time segments of spans: tables of the one file, each with its own small index.

A span goes into the newest segment, a table `spans_<n>` that the next one follows once it is full
or old.  What makes a repeated span recognisable is looked up in the newest segment and the one
before: an index over all time would cost more with every span it holds (88,000 → 61,000 rows/s at
2.5 million), these two never grow beyond their segments.  Resource and scope, the same for
thousands of spans, are kept once.

This is the owner's side, used inside its transactions alone; `spans.py` reads.  Who assembles is told of what a
transaction inserted (`Inserted`), so that it need not read it back.
"""

from __future__ import annotations

import hashlib
import sqlite3
import time
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple

from .schema import portions

SEGMENT = 250_000
"""Spans in a segment: 0.4 GB of the usual 1.4 KB, and an index of 14 MB, which stays in memory."""
SECONDS = 7 * 86_400.0
"""Age at which a segment is followed by the next although it is not full."""
STATEMENTS_KEPT = 128
"""Prepared statements of the owner's connection: several kinds, each of the lengths of `schema.LENGTHS`."""
_CONTEXTS = 10_000
CONFLICTS = "spans_conflicting"
"""The counter of spans that came a second time with another body; the first one is kept."""

_COLUMNS = "seq, trace, id, parent, started, ended, name, encoding, context, run, arrived, body"
_WIDTH = _COLUMNS.count(",") + 1

_TABLE = """
CREATE TABLE spans_{0} (
    seq INTEGER PRIMARY KEY, trace BLOB NOT NULL, id BLOB NOT NULL, parent BLOB NOT NULL, started INTEGER NOT NULL,
    ended INTEGER NOT NULL, name TEXT NOT NULL, encoding TEXT NOT NULL, context INTEGER, run TEXT,
    arrived REAL NOT NULL, body BLOB NOT NULL
)
"""


@lru_cache(maxsize=128)
def _insert(number: int, rows: int) -> str:
    """The statement that puts `rows` spans into a segment unless it or the one before has them."""
    values = ", ".join(["(" + ", ".join("?" * _WIDTH) + ")"] * rows)
    # Without the WHERE SQLite would take ON CONFLICT for the ON of a join.
    return (
        f"WITH given ({_COLUMNS}) AS (VALUES {values}) INSERT OR ROLLBACK INTO spans_{number} "
        f"({_COLUMNS}) "
        f"SELECT * FROM given WHERE NOT EXISTS (SELECT 1 FROM spans_{number - 1} AS before "
        "WHERE before.trace = given.trace AND before.id = given.id AND before.encoding = given.encoding) "
        "ON CONFLICT (trace, id, encoding) DO NOTHING"
    )


class Inserted(NamedTuple):
    """The spans that one commit inserted, without those that were there before."""

    first: int
    last: int
    """Every number from `first` to `last` was given out by this commit, to these spans or to repeated ones."""
    at: float
    """Unix time in seconds at which they arrived."""
    numbers: Sequence[int]
    """`seq` of each span."""
    spans: Sequence[Sequence[Any]]


class Segments:
    """Inserts spans; `rows` is how many a segment takes."""

    def __init__(self, connection: sqlite3.Connection, rows: int = SEGMENT) -> None:
        self._connection = connection
        self._limit = rows
        self.inserted: list[Inserted] = []
        """By the transaction under way; its owner clears it after the commit."""
        self.reload()

    def reload(self) -> None:
        """Read the position from the file: at the start, and after a rollback."""
        newest = self._connection.execute(
            "SELECT number, opened, last, rows FROM segments ORDER BY number DESC LIMIT 1"
        ).fetchone()
        state: tuple[int, float, int, int] = newest or (-1, 0.0, 0, 0)
        self._number, self._opened, self._last, self._rows = state
        # A rollback takes back contexts too, whose ids must not be used again.
        self._contexts: dict[bytes, int] = {}
        self._changed = False
        self.inserted = []
        tombs = self._connection.execute("SELECT kind, id FROM tombstones").fetchall()
        self._erased_traces = {bytes.fromhex(id) for kind, id in tombs if kind == "trace" and len(id) == 32}
        self._erased_runs = {id for kind, id in tombs if kind == "run"}

    def insert(self, spans: Sequence[Sequence[Any]]) -> None:
        """Insert the spans that are not there yet."""
        if self._erased_traces or self._erased_runs:  # a late span does not bring back what was erased
            spans = [
                span
                for span in spans
                if span[0] not in self._erased_traces and span[9] not in self._erased_runs
            ]
        now = time.time()
        # abs: a clock that was set back must not keep a segment open.
        if self._number < 0 or self._rows >= self._limit or abs(now - self._opened) > SECONDS:
            self._open(now)
        # After `_open`: each context is marked with the segment that its span goes into.
        contexts = {span[8]: self._context(span[8]) for span in spans}
        last = self._last
        # Repeated spans take numbers too: `seq` has gaps, so it does not count spans.
        self._last += len(spans)
        rows = [
            (
                last + offset,
                trace,
                id,
                parent,
                started,
                ended,
                name,
                encoding,
                contexts[context],
                run,
                now,
                body,
            )
            for offset, (trace, id, parent, started, ended, name, body, encoding, context, run) in enumerate(
                spans, 1
            )
        ]
        before = self._connection.total_changes
        for part in portions(rows):
            self._connection.execute(_insert(self._number, len(part)), tuple(chain.from_iterable(part)))
        added = self._connection.total_changes - before
        self._rows += added
        self._changed = True
        numbers: Sequence[int] = range(last + 1, self._last + 1)
        if added < len(rows):
            numbers = self._kept(rows)
            spans = [spans[number - last - 1] for number in numbers]
        self.inserted.append(Inserted(last + 1, self._last, now, numbers, spans))

    def _kept(self, rows: Sequence[Sequence[Any]]) -> list[int]:
        """The numbers of the rows that were inserted; counts those that differ from the one that is there.

        Asked for only where something was repeated: an exporter that had no answer sends its batch again.
        """
        select = " UNION ALL ".join(
            f"SELECT seq, body FROM spans_{segment} WHERE trace = ? AND id = ? AND encoding = ?"
            for segment in (self._number, self._number - 1)
        )
        numbers, conflicts = [], 0
        for row in rows:
            key = (row[1], row[2], row[7])
            ((number, body),) = self._connection.execute(select, key + key).fetchall()
            if number == row[0]:
                numbers.append(number)
            elif body != row[11]:
                conflicts += 1
        if conflicts:
            self._connection.execute(
                "INSERT INTO counters VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = value + excluded.value",
                (CONFLICTS, conflicts),
            )
        return numbers

    def note(self) -> None:
        """Write the position of the newest segment: the last thing in a transaction."""
        if self._changed:
            self._changed = False
            self._connection.execute(
                "UPDATE segments SET last = ?, rows = ?, newest = ? WHERE number = ?",
                (self._last, self._rows, time.time(), self._number),
            )

    def _forget_statements(self) -> None:
        """Push prepared statements that name earlier segments out of the connection.

        It keeps `STATEMENTS_KEPT`, each with the values that it was last given, and has no call that drops one.  Those
        for every length of batch come to 0.9 MB a segment, which looked like a leak until eight segments had filled it.
        """
        for number in range(STATEMENTS_KEPT):
            self._connection.execute(f"SELECT {number}")

    def _open(self, now: float) -> None:
        self.note()
        first = self._number < 0
        self._number, self._opened, self._rows = self._number + 1 + first, now, 0
        self._contexts = {}  # so that each is marked as used in this segment too
        if not first:
            self._forget_statements()
        for number in (self._number - 1, self._number) if first else (self._number,):
            # The first one has an empty one before it, so that there is always one to look in.
            self._connection.execute(_TABLE.format(number))
            self._connection.execute(
                f"CREATE UNIQUE INDEX spans_{number}_trace ON spans_{number} (trace, id, encoding)"
            )
            self._connection.execute(
                f"CREATE INDEX spans_{number}_run ON spans_{number} (run) WHERE run IS NOT NULL"
            )
            self._connection.execute(
                "INSERT INTO segments VALUES (?, ?, ?, ?, 0)", (number, now, now, self._last)
            )

    def _context(self, body: bytes) -> int | None:
        if not body:
            return None
        context_id = self._contexts.get(body)
        if context_id is None:
            key = hashlib.sha256(body).digest()[:16]
            ((context_id,),) = self._connection.execute(
                "INSERT INTO contexts (hash, segment, body) VALUES (?, ?, ?) "
                "ON CONFLICT (hash) DO UPDATE SET segment = excluded.segment RETURNING id",
                (key, self._number, body),
            ).fetchall()
            if len(self._contexts) >= _CONTEXTS:
                self._contexts.clear()
            self._contexts[body] = context_id
        return context_id
