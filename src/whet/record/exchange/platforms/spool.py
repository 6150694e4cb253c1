"""What an import has read and not recorded yet: in a database on disk, which is gone with the process.

SQLite opens it without a name, so nobody else can, and nothing is left of it whatever ends the process.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import msgspec

from ....types import Span

Part = TypeVar("Part")
_SCHEMA = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
PRAGMA cache_size = -16384;
CREATE TABLE spans (
    trace BLOB, id BLOB, parent BLOB, started INTEGER, ended INTEGER, name TEXT, body BLOB, encoding TEXT, named TEXT
);
CREATE TABLE notes (trace BLOB PRIMARY KEY, body BLOB) WITHOUT ROWID;
CREATE TABLE opinions (trace BLOB, span TEXT, at REAL, id TEXT, body BLOB);
CREATE TABLE tasks (id TEXT UNIQUE, body BLOB);
BEGIN;
"""
_INDEXES = """
CREATE INDEX spans_of_trace ON spans (trace, started);
CREATE INDEX opinions_of_trace ON opinions (trace, at, id);
"""
_SPANS_AT_ONCE = 5_000
_TRACES_AT_ONCE = 500


class ImportSpool:
    """The parts by trace: a trace is its 16 bytes."""

    def __init__(self) -> None:
        self._database = sqlite3.connect("", isolation_level=None)
        self._database.executescript(_SCHEMA)

    def close(self) -> None:
        """Delete it."""
        self._database.close()

    def put_span(self, named: str, span: Span) -> None:
        """Add a span, which the product calls `named`."""
        self._database.execute("INSERT INTO spans VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", (*span[:8], named))

    def put_opinion(self, trace: bytes | None, span: str, at: float, id: str, opinion: Any) -> None:
        """Add an opinion; without a trace where only the span or the session is known."""
        row = (trace, span, at, id, _bytes(opinion))
        self._database.execute("INSERT INTO opinions VALUES (?, ?, ?, ?, ?)", row)

    def put_task(self, id: str, task: Any) -> None:
        """Add a dataset's item, or have it in the place of the one with its id."""
        self._database.execute(
            "INSERT INTO tasks VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET body = excluded.body",
            (id, _bytes(task)),
        )

    def note(self, trace: bytes, type: type[Part]) -> Part | None:
        """What is said of a trace."""
        for (body,) in self._database.execute("SELECT body FROM notes WHERE trace = ?", (trace,)):
            return _part(body, type)
        return None

    def put_note(self, trace: bytes, note: Any) -> None:
        """Say this of a trace."""
        self._database.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", (trace, _bytes(note)))

    def complete(self, trace_of: Callable[[str], bytes | None]) -> None:
        """Nothing is added any more; an opinion on a span alone is one on the trace of that span.

        Args:
            trace_of: the trace that an id of a span says itself, where no such span is here.
        """
        self._database.executescript(_INDEXES)
        (loose,) = self._database.execute(
            "SELECT COUNT(*) FROM opinions WHERE trace IS NULL AND span != ''"
        ).fetchone()
        if loose:
            self._database.create_function("trace_of", 1, trace_of)
            self._database.executescript(
                "CREATE INDEX spans_named ON spans (named);"
                "UPDATE opinions SET trace = COALESCE("
                "(SELECT spans.trace FROM spans WHERE named = opinions.span ORDER BY spans.rowid DESC), "
                "trace_of(span)) WHERE trace IS NULL AND span != ''"
            )

    def portions(self) -> Iterator[list[Span]]:
        """The spans of some traces at a time, all of each, in the order in which the traces began."""
        portion: list[Span] = []
        traces = 0
        order = "SELECT trace FROM spans GROUP BY trace ORDER BY MIN(started), trace"
        for (trace,) in self._database.execute(order):
            rows = self._database.execute(
                "SELECT trace, id, parent, started, ended, name, body, encoding FROM spans WHERE trace = ?",
                (trace,),
            )
            portion += [Span(*row) for row in rows]
            traces += 1
            if len(portion) >= _SPANS_AT_ONCE or traces >= _TRACES_AT_ONCE:
                yield portion
                portion, traces = [], 0
        if portion:
            yield portion

    def bare(self) -> Iterator[bytes]:
        """Traces of which something is said and no span is here."""
        rows = self._database.execute(
            "SELECT trace FROM notes WHERE trace NOT IN (SELECT trace FROM spans) ORDER BY trace"
        )
        return (trace for (trace,) in rows)

    def opinions(self, trace: bytes, type: type[Part]) -> list[Part]:
        """The opinions on a trace, the last one last; they are not in it any more."""
        rows = self._database.execute(
            "SELECT body FROM opinions WHERE trace = ? ORDER BY at, id", (trace,)
        ).fetchall()
        if rows:
            self._database.execute("DELETE FROM opinions WHERE trace = ?", (trace,))
        return [_part(body, type) for (body,) in rows]

    def others(self, type: type[Part]) -> Iterator[tuple[bytes | None, Part]]:
        """The opinions that are left, each with its trace."""
        for trace, body in self._database.execute("SELECT trace, body FROM opinions ORDER BY at, id"):
            yield trace, _part(body, type)

    def tasks(self, type: type[Part]) -> Iterator[Part]:
        """The items of datasets, in the order in which they came."""
        for (body,) in self._database.execute("SELECT body FROM tasks ORDER BY rowid"):
            yield _part(body, type)


def _bytes(part: Any) -> bytes:
    try:
        return msgspec.msgpack.encode(part, enc_hook=str)
    except OverflowError:
        return msgspec.msgpack.encode(_in_64_bits(msgspec.to_builtins(part, enc_hook=str)))


def _in_64_bits(value: Any) -> Any:
    """The value with whole numbers that no database takes, such as some products' ids, as text."""
    if isinstance(value, dict):
        return {key: _in_64_bits(held) for key, held in value.items()}
    if isinstance(value, list | tuple):
        return [_in_64_bits(held) for held in value]
    return str(value) if isinstance(value, int) and not -(2**63) <= value < 2**63 else value


def _part(body: bytes, type: type[Part]) -> Part:
    return msgspec.msgpack.decode(body, type=type)
