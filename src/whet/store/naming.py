"""Which spans are a person's, by what they say of themselves.

A search for them reads every body and takes its time, while others write; `up_to_now` makes good for that
inside the transaction that acts on it.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import msgspec

from ..types import Json

KEYS = ("user.id", "enduser.id", "user_id")
"""Attributes of a span that name its person."""


class Naming(msgspec.Struct):
    """Spans that say that they are of a person; ids in hexadecimal."""

    traces: list[str]
    """Theirs as a whole."""
    calls: list[tuple[str, str]] = []
    """Trace and id of model calls of theirs in traces that are other people's too."""
    runs: list[str] = []
    """The runs of those calls."""
    seen: int = 0
    """Number of the newest span that was there when the search began; what came later was not all looked at."""

    @property
    def shared(self) -> set[str]:
        """The traces that are other people's too."""
        return {trace for trace, _ in self.calls}


def needles(subject: str) -> list[bytes]:
    """How a span's body says that it is of this person, in each encoding; JSON as JavaScript and Python write it."""
    value = subject.encode()
    text = msgspec.json.encode(subject)
    found = [b'"subject":' + text]
    for key in (name.encode() for name in KEYS):
        for said in sorted({text, json.dumps(subject).encode()}):
            found.append(b'"%b","value":{"stringValue":%b' % (key, said))
            found.append(b'"%b", "value": {"stringValue": %b' % (key, said))
        inner = b"\x0a" + _varint(len(value)) + value
        found.append(b"\x0a" + _varint(len(key)) + key + b"\x12" + _varint(len(inner)) + inner)
    return found


Mention: TypeAlias = tuple[bytes, bytes, str, str | None]
"""Trace, id, encoding and run of a span that says that it is of the person."""


def mentions(subject: str) -> tuple[str, list[bytes]]:
    """A condition on a span's body, with its values: it says that it is of this person."""
    marks = needles(subject)
    return f"({' OR '.join(['instr(body, ?) > 0'] * len(marks))})", marks


def whole_traces(found: Iterable[Mention]) -> set[bytes]:
    """Those that are the person's whatever else is in them: a span of the program itself says so."""
    return {trace for trace, _, encoding, _ in found if not encoding.startswith("call")}


def named(
    found: Sequence[Mention], bodies: Iterable[tuple[bytes, bytes, str, bytes]], seen: int = 0
) -> Naming:
    """What is the person's, of the spans that say so and the bodies of their traces."""
    own = {(trace, id) for trace, id, _, _ in found}
    shared = {
        trace
        for trace, id, encoding, body in bodies
        if (trace, id) not in own and encoding.startswith("call") and b'"subject":"' in body
    } - whole_traces(found)
    single = [row for row in found if row[0] in shared]
    return Naming(
        traces=sorted({trace.hex() for trace, _, _, _ in found if trace not in shared}),
        calls=[(trace.hex(), id.hex()) for trace, id, _, _ in single],
        runs=sorted({run for _, _, _, run in single if run is not None}),
        seen=seen,
    )


def up_to_now(connection: sqlite3.Connection, subject: str, before: Naming) -> Naming:
    """With what has arrived since the search began: a trace that grew is looked at again, all of it."""
    where, marks = mentions(subject)
    known = listed([*before.traces, *sorted(before.shared)])
    grown: set[bytes] = set()
    for number in column(connection, "SELECT number FROM segments WHERE last > ?", before.seen):
        grown.update(
            column(
                connection,
                f"SELECT DISTINCT trace FROM spans_{number} WHERE seq > ? AND "
                f"({where} OR lower(hex(trace)) IN (SELECT value FROM json_each(?)))",
                before.seen,
                *marks,
                known,
            )
        )
    found: list[Mention] = []
    bodies: list[tuple[bytes, bytes, str, bytes]] = []
    for number in column(connection, "SELECT number FROM segments") if grown else ():
        for trace in grown:
            of = f"FROM spans_{number} WHERE trace = ?"
            found += connection.execute(f"SELECT trace, id, encoding, run {of} AND {where}", (trace, *marks))
            bodies += connection.execute(f"SELECT trace, id, encoding, body {of}", (trace,))
    now, gone = named(found, bodies), {trace.hex() for trace in grown}
    return Naming(
        traces=sorted({*before.traces} - gone) + now.traces,
        calls=[call for call in before.calls if call[0] not in gone] + now.calls,
        runs=sorted({*before.runs, *now.runs}),
    )


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def column(connection: sqlite3.Connection, query: str, *values: Any) -> list[Any]:
    """The first column of a query's rows."""
    return [row[0] for row in connection.execute(query, values).fetchall()]


def listed(value: Json) -> str:
    """Any number of values as the one parameter of a `json_each`."""
    return msgspec.json.encode(value).decode()
