"""`Store.spans`: what arrived by OpenTelemetry or through the gateway, kept as it came.

Spans are put in by batches and found by trace or run; `touched` says which traces got spans since
a reader last looked.  Nothing here decodes a body.  `segments.py` says how they lie.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

import msgspec

from ..errors import StoreError
from ..types import Span
from .access import Access
from .naming import Mention, Naming, mentions, named, whole_traces
from .older import Older
from .writer import Value

_SELECT = "SELECT seq, trace, id, parent, started, ended, name, body, encoding, context, run FROM spans_{0}"
_TOGETHER = 8
"""Segments in one statement: it takes 2 KB for each, and is kept."""
_ASKED = 128
"""Traces or runs in one statement."""
_NOTED = 20_000
"""Traces or runs that are noted together."""
_SCANNED = 20_000
"""Spans that one call of `touched` looks at."""


class Touched(NamedTuple):
    """A trace, or a run of it, that got spans."""

    seq: int
    """Of the last one: the cursor to go on from."""
    trace: bytes
    run: str | None
    arrived: float
    """Unix time in seconds of the last one."""


class Spans:
    """Made by the Store; any process that has it open may use it."""

    def __init__(self, store: Access) -> None:
        self._store = store
        self._older = Older()

    def put(self, spans: Sequence[Span]) -> Future[None]:
        """Keep spans; the future is done once they are durable, all of them or none.

        One that was put before (same trace, id and encoding) is kept once, if it came within the
        deduplication window: the segment that is being filled and the one before it.

        Raises:
            StoreError: the store is closed; in the future: they could not be written.
        """
        return self._store.write([("span", spans)], sum([len(span[6]) for span in spans]) + 100 * len(spans))

    def trace(self, trace: bytes) -> list[Span]:
        """The spans of a trace by start, then id; empty if there are none."""
        return self.traces([trace])

    def run(self, run: str) -> list[Span]:
        """The spans that name this run, by start, then id."""
        return self._spans("run", [run])

    def traces(self, traces: Sequence[bytes]) -> list[Span]:
        """The spans of several traces by start, then id: one look at the file for all of them."""
        return self._spans("trace", traces)

    def named(self, runs: Sequence[str]) -> list[tuple[str, bytes]]:
        """Each of these runs with each trace that has a span that names it."""
        return self._everywhere("SELECT DISTINCT run, trace FROM spans_{0}", "run", runs)

    def touched(self, after: int, *, limit: int = 1000) -> list[Touched]:
        """Which traces got spans since a cursor, in the order of the last span that each got.

        Each trace and run comes once per call, `limit` of them at most.  Go on with the `seq` of the
        last one; nothing is missed, a trace that gets more spans comes again.
        """
        found: dict[tuple[bytes, str | None], Touched] = {}
        left = _SCANNED
        for number in self._segments(after):
            rows = self._query(
                number,
                "SELECT seq, trace, run, arrived FROM spans_{0} WHERE seq > ? ORDER BY seq LIMIT ?",
                after,
                left,
            )
            for row in rows:
                touched = Touched(*row)
                key = touched[1:3]
                if key not in found and len(found) >= limit:
                    return list(found.values())
                found.pop(key, None)
                found[key] = touched
            left -= len(rows)
            if left <= 0:
                break
        return list(found.values())

    def note_older(self) -> bool:
        """Note what one of the older segments holds, so that it need not be searched for anything else.

        For who looks for many traces, as the assembler does: it reads two indexes of each segment, once.

        Returns:
            False if all of them are noted.
        """
        fresh = [number for number in self._segments()[:-1] if number not in self._older.known]
        if not fresh:
            return False
        number = fresh[-1]
        for column in ("trace", "run"):
            last: bytes | str | None = b"" if column == "trace" else ""
            while last is not None:
                page = self._query(
                    number,
                    f"SELECT DISTINCT {column} FROM spans_{{0}} WHERE {column} > ? ORDER BY {column} LIMIT ?",
                    last,
                    _NOTED,
                )
                self._older.add(value for (value,) in page)
                last = page[-1][0] if len(page) == _NOTED else None
        self._older.close(number)
        return True

    def count(self) -> int:
        """How many are kept."""
        return int(self._store.rows("SELECT coalesce(sum(rows), 0) FROM segments")[0][0])

    def naming(self, subject: str) -> Naming:
        """What says that it is of this person; reads every body, so it takes its time.

        A trace is theirs as a whole, but for one whose model calls name other people too, which a program
        that serves many makes if it gives its calls no run each: of that only their own calls are.
        """
        where, marks = mentions(subject)
        ((seen,),) = self._store.rows("SELECT coalesce(max(last), 0) FROM segments")
        found: list[Mention] = []
        for number in self._segments():
            found += self._query(
                number, "SELECT trace, id, encoding, run FROM spans_{0} WHERE " + where, *marks
            )
        bodies = self._everywhere(
            "SELECT trace, id, encoding, body FROM spans_{0}",
            "trace",
            sorted({row[0] for row in found} - whole_traces(found)),
        )
        return named(found, bodies, seen)

    def _segments(self, after: int = 0) -> list[int]:
        return [
            number
            for (number,) in self._store.rows(
                "SELECT number FROM segments WHERE last > ? ORDER BY number", [after]
            )
        ]

    def _query(self, number: int, sql: str, *values: Value) -> list[Any]:
        """Rows of one segment; none if retention has taken it out since it was listed."""
        try:
            return self._store.rows(sql.format(number), values)
        except StoreError:
            if number in self._segments():
                raise
            return []

    def _everywhere(self, select: str, column: str, values: Sequence[Value]) -> list[Any]:
        """Rows of every segment where `column` is one of `values`."""
        numbers = self._segments()
        known = [number for number in numbers if number in self._older.known]
        # What the known ones do not hold is looked for in the others alone.
        held = [value for value in values if self._older.holds(value)] if known else []
        rest = [number for number in numbers if number not in known]
        try:
            return self._in(rest, select, column, values) + self._in(known, select, column, held)
        except StoreError:
            if set(numbers) <= set(self._segments()):
                raise
            return self._everywhere(select, column, values)  # retention has taken one out since

    def _in(self, numbers: Sequence[int], select: str, column: str, values: Sequence[Value]) -> list[Any]:
        """Rows of these segments where `column` is one of `values`."""
        rows: list[Any] = []
        for first in range(0, len(values), _ASKED):
            asked = _filled(values[first : first + _ASKED])
            # Numbered, so that each segment's part of the statement refers to the same values.
            where = f" WHERE {column} IN ({', '.join(f'?{place}' for place in range(1, len(asked) + 1))})"
            for start in range(0, len(numbers), _TOGETHER):
                part = numbers[start : start + _TOGETHER]
                rows += self._store.rows(
                    " UNION ALL ".join([select.format(number) + where for number in part]), asked
                )
        return rows

    def _spans(self, column: str, values: Sequence[Value]) -> list[Span]:
        rows = self._everywhere(_SELECT, column, values)
        rows.sort(key=_BY_START)
        contexts: dict[int | None, bytes] = {None: b""}
        wanted = msgspec.json.encode(sorted({row[9] for row in rows} - {None})).decode()
        contexts.update(
            self._store.rows(
                "SELECT id, body FROM contexts WHERE id IN (SELECT value FROM json_each(?))", [wanted]
            )
        )
        return [Span._make((*row[1:9], contexts.get(row[9], b""), row[10])) for row in rows]


def _filled(values: Sequence[Value]) -> Sequence[Value]:
    """Up to a power of two, with the last of them again: a statement for each number would be prepared and kept."""
    whole = 1 << (len(values) - 1).bit_length()
    return [*values, *[values[-1]] * (whole - len(values))]


_BY_START: Callable[[Any], Any] = lambda row: (row[4], row[2], row[0])  # noqa: E731
