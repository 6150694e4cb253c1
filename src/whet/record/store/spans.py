"""`Store.spans`: spans that arrived by OpenTelemetry or through the gateway, kept as they came.

Spans are put in by batches and found by trace or run; `touched` says which traces got spans since
a reader last looked.  Nothing here decodes a body.  `segments.py` says how they lie.

Nearly every trace lies in the newest segment alone.  Searching all the others costs the more the older a record is,
in time and in statements that are prepared for them, so a Bloom filter notes what they hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from ...errors import StoreError
from ...types import Span
from .database import Database
from .erasure import Mention, Naming, mentions, named, whole_traces
from .group_commit import Value, Writes
from .schema import LISTED, listed
from .segments import CONFLICTS

_SELECT = "SELECT seq, trace, id, parent, started, ended, name, body, encoding, context, run FROM spans_{0}"
_ASKED = 32
"""Traces or runs in one statement: of 32 it takes 17 KB, of 128 it takes 40, and is kept."""
_NOTED = 1_000
"""Traces or runs that are noted together; 20,000 of them take 4 MB for a moment, for no less CPU."""
_SCANNED = 20_000
"""Spans that one call of `touched` looks at."""
BITS = 1 << 26
"""8 MB: of four million traces and runs it lets 0.5 % through, of twenty million 20 %."""


class Touched(NamedTuple):
    """A trace, or a run of it, that got spans."""

    seq: int
    """Of the last one: the cursor to go on from."""
    trace: bytes
    run: str | None
    arrived: float
    """Unix time in seconds of the last one."""


class BloomFilter:
    """The traces and runs of older segments: it never misses one, and now and then reports one that is not there.

    Args:
        bits: a power of two; the memory is taken by the first `add`.
    """

    def __init__(self, bits: int = BITS) -> None:
        self._bits = bits
        self._filter = bytearray()
        self.segments: frozenset[int] = frozenset()
        """Numbers of the segments that need not be searched for a key that the filter does not hold."""

    def add(self, keys: Iterable[Value]) -> None:
        """Note traces or runs of a segment that takes no more."""
        if not self._filter:
            self._filter = bytearray(self._bits // 8)
        filled, mask = self._filter, self._bits - 1
        for key in keys:
            # hash() is another in each process, so the filter is never written to a file.
            hashed = hash(key)
            bit, stride = hashed & mask, (hashed >> 32) | 1
            # Written out: three bits for each of millions of keys.
            filled[bit >> 3] |= 1 << (bit & 7)
            bit = bit + stride & mask
            filled[bit >> 3] |= 1 << (bit & 7)
            bit = bit + stride & mask
            filled[bit >> 3] |= 1 << (bit & 7)

    def close(self, segment: int) -> None:
        """Note that every key of this segment was added."""
        # A new set in place of the old one, over which a reader in another thread may be iterating.
        self.segments |= {segment}

    def __contains__(self, key: Value) -> bool:
        """False if no closed segment has it."""
        filled = self._filter
        if not filled:
            return False
        mask, hashed = self._bits - 1, hash(key)
        bit, stride = hashed & mask, (hashed >> 32) | 1
        for _ in range(3):
            if not filled[bit >> 3] >> (bit & 7) & 1:
                return False
            bit = bit + stride & mask
        return True


class Spans:
    """Made by the Store; any process that has it open may use it."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._older = BloomFilter()

    def put(
        self,
        spans: Sequence[Span],
        also: Writes = (),
        *,
        trajectories: Sequence[Sequence[Any]] = (),
        erasures: int = 0,
    ) -> Future[None]:
        """Keep spans; the future is done once they are durable, all of them or none.

        Args:
            also: written by the same commit.

        One that was put before (same trace, id and encoding) is kept once, if it came within the
        deduplication window: the segment that is being filled and the one before it.

        Args:
            trajectories: rows (`batch.trajectory_row`) of Trajectories that were read from these spans, to commit
                with them.  All of it is refused if a person was erased since there were `erasures`.

        Raises:
            StoreError: the store is closed; in the future: they could not be written.
        """
        size = sum([len(span[6]) for span in spans]) + 100 * len(spans)
        if not trajectories:
            return self._database.write([("span", spans), *also], size)
        size += sum([len(row[-1]) for row in trajectories])
        return self._database.write(
            [("as_of", [(erasures,)]), ("span", spans), ("trajectory", trajectories), *also], size
        )

    def trace(self, trace: bytes) -> list[Span]:
        """The spans of a trace by start, then id; empty if there are none."""
        return self.traces([trace])

    def run(self, run: str) -> list[Span]:
        """The spans that name this run, by start, then id."""
        return self._spans("run", [run])

    def traces(self, traces: Sequence[bytes]) -> list[Span]:
        """The spans of several traces by start, then id: one look at the file for all of them."""
        return self._spans("trace", traces)

    def known(self, *, trace: bytes | None = None, run: str | None = None) -> bool:
        """True if there is a span of this trace or run.  Reads an index alone, in a few microseconds."""
        column, value = ("run", run) if trace is None else ("trace", trace)
        return bool(self._everywhere("SELECT 1 FROM spans_{0}", column, [value], " GROUP BY 1"))

    def sizes(self, traces: Sequence[bytes]) -> dict[bytes, int]:
        """Number of stored spans of each of these traces; one that has none is left out.  Reads an index alone."""
        sizes: dict[bytes, int] = {}
        for trace, spans in self._everywhere(
            "SELECT trace, count(*) FROM spans_{0}", "trace", traces, " GROUP BY trace"
        ):
            sizes[trace] = sizes.get(trace, 0) + spans  # a long run may lie in several segments
        return sizes

    @property
    def conflicting(self) -> int:
        """Spans that came a second time with another body, so far; the first one is kept."""
        rows = self._database.rows("SELECT value FROM counters WHERE name = ?", [CONFLICTS])
        return int(rows[0][0]) if rows else 0

    @property
    def newest(self) -> int:
        """`seq` of the last span that arrived, 0 if there is none."""
        ((newest,),) = self._database.rows("SELECT coalesce(max(last), 0) FROM segments")
        return int(newest)

    def named(self, runs: Sequence[str]) -> list[tuple[str, bytes]]:
        """Each of these runs with each trace that has a span that names it."""
        return self._everywhere("SELECT DISTINCT run, trace FROM spans_{0}", "run", runs)

    def touched(self, after: int, *, limit: int = 1000) -> list[Touched]:
        """Traces that got spans since a cursor, in the order of their last spans.

        Each trace and run comes once per call, `limit` of them at most.  Go on with the `seq` of the
        last one; nothing is missed, a trace that gets more spans comes again.
        """
        latest: dict[tuple[bytes, str | None], Touched] = {}
        budget = _SCANNED
        for number in self._segments(after):
            rows = self._query(
                number,
                "SELECT seq, trace, run, arrived FROM spans_{0} WHERE seq > ? ORDER BY seq LIMIT ?",
                after,
                budget,
            )
            for row in rows:
                touched = Touched(*row)
                key = touched[1:3]
                if key not in latest and len(latest) >= limit:
                    return list(latest.values())
                latest.pop(key, None)  # to the end: the order is that of the last span
                latest[key] = touched
            budget -= len(rows)
            if budget <= 0:
                break
        return list(latest.values())

    def note_older(self) -> bool:
        """Note the traces and runs of one older segment, so that it need not be searched for any other.

        For a reader of many traces, as the assembler is: it reads two indexes of each segment, once.

        Returns:
            False if all of them are noted.
        """
        # The newest segment still takes spans, so it is never noted.
        fresh = [number for number in self._segments()[:-1] if number not in self._older.segments]
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
                self._older.add(key for (key,) in page)
                last = page[-1][0] if len(page) == _NOTED else None
        # Only now that both columns were read to their end: a segment noted by halves would hide traces.
        self._older.close(number)
        return True

    def naming(self, subject: str) -> Naming:
        """The spans of a person; reads every body, so it takes its time.

        A trace is theirs as a whole, except one whose model calls name other people too, as a program that
        serves many makes if it gives its calls no run each: of that only their own calls are.
        """
        where, marks = mentions(subject)
        # Before the search: a span that comes meanwhile has a greater
        # number, and `erasure.up_to_now` sees it.
        newest = self.newest
        mentioned: list[Mention] = []
        for number in self._segments():
            mentioned += self._query(
                number, "SELECT trace, id, encoding, run FROM spans_{0} WHERE " + where, *marks
            )
        bodies = self._everywhere(
            "SELECT trace, id, encoding, body FROM spans_{0}",
            "trace",
            sorted({row[0] for row in mentioned} - whole_traces(mentioned)),
        )
        return named(mentioned, bodies, newest)

    def _segments(self, after: int = 0) -> list[int]:
        return [
            number
            for (number,) in self._database.rows(
                "SELECT number FROM segments WHERE last > ? ORDER BY number", [after]
            )
        ]

    def _query(self, number: int, sql: str, *values: Value) -> list[Any]:
        """Rows of one segment; none if retention has deleted it since it was listed."""
        try:
            return self._database.rows(sql.format(number), values)
        except StoreError:
            if number in self._segments():
                raise
            return []

    def _everywhere(self, select: str, column: str, values: Sequence[Value], after: str = "") -> list[Any]:
        """Rows of every segment where `column` is one of `values`; `after` follows the condition."""
        if not values:
            return []
        numbers = self._segments()
        noted = [number for number in numbers if number in self._older.segments]
        # Only what the filter holds is looked for in the noted segments.
        held = [value for value in values if value in self._older] if noted else []
        rest = [number for number in numbers if number not in noted]
        try:
            return self._in(rest, select, column, values, after) + self._in(
                noted, select, column, held, after
            )
        except StoreError:
            if set(numbers) <= set(self._segments()):
                raise
            return self._everywhere(select, column, values, after)  # retention has deleted one since

    def _in(
        self, numbers: Sequence[int], select: str, column: str, values: Sequence[Value], after: str = ""
    ) -> list[Any]:
        """Rows of these segments where `column` is one of `values`."""
        rows: list[Any] = []
        for first in range(0, len(values), _ASKED):
            parameters = _filled(values[first : first + _ASKED])
            placeholders = ", ".join("?" * len(parameters))
            where = f" WHERE {column} IN ({placeholders}){after}"
            # A statement of its own for each: one over all of them would be prepared anew for every segment that
            # opens, and each connection keeps its statements, so that memory would grow with the record.
            for number in numbers:
                rows += self._database.rows(select.format(number) + where, parameters)
        return rows

    def _spans(self, column: str, values: Sequence[Value]) -> list[Span]:
        rows = self._everywhere(_SELECT, column, values)
        rows.sort(key=_BY_START)
        contexts: dict[int | None, bytes] = {None: b""}
        context_ids = listed(sorted({row[9] for row in rows} - {None}))
        contexts.update(
            self._database.rows(f"SELECT id, body FROM contexts WHERE id IN {LISTED}", [context_ids])
        )
        return [Span._make((*row[1:9], contexts.get(row[9], b""), row[10])) for row in rows]


def _filled(values: Sequence[Value]) -> Sequence[Value]:
    """Values padded with the last of them to a power of two: each length is a statement, prepared and kept."""
    length = 1 << (len(values) - 1).bit_length()
    return [*values, *[values[-1]] * (length - len(values))]


_BY_START: Callable[[Any], Any] = lambda row: (row[4], row[2], row[0])  # noqa: E731
