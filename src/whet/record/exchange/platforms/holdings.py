"""The collected parts of an import: spans, notes on their runs, opinions and tasks, and whatever was not read.

They wait in a database of their own (`spool.py`), so that a file may be larger than the memory.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Literal

import msgspec
from msgspec import UNSET

from ....types import Json, Span, digest
from ...columns import GROUP
from ...rows import as_text, row
from ...tracing.dialects.values import parsed, structure
from .spool import ImportSpool

_NOTES = 256
"""Notes that are at hand: the records of a trace mostly stand together."""
_VALUES = 4
"""One more than the different numbers that thumbs may have."""
By = Literal["person", "judge", "unsaid"]
"""Who gave an opinion: a person, a program or model, or nobody says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opinion:
    """One score, annotation, assessment or feedback of another product."""

    id: str
    name: str
    value: Json = None
    """A number, a truth value, a label; None where there is only a comment, a correction or an error."""
    by: By = "unsaid"
    author: str = ""
    comment: str = ""
    correction: Json = UNSET
    """What should have been answered."""
    error: str = ""
    """Why there is no value, where something should have given one."""
    at: float = 0.0
    """Unix time in seconds."""
    trace: str = ""
    """The product's id of the trace; "" where only the span or session is known."""
    span: str = ""
    session: str = ""
    scale: str = ""
    """Of a number: the key under which the product declares its range."""


@dataclass(frozen=True, slots=True)
class DeclaredRange:
    """The least and the greatest number of a scale; None where it has no bound."""

    least: float | None
    most: float | None

    @property
    def words(self) -> str:
        """`from 1 to 5`."""
        ends = [("from", self.least), ("to", self.most)]
        return " ".join(f"{word} {bound:g}" for word, bound in ends if bound is not None)

    @property
    def is_thumb(self) -> bool:
        """True if its ends may be a no and a yes."""
        return self.most == 1.0 and self.least in (0.0, -1.0)

    def holds(self, number: float) -> bool:
        """True if the number is no lower and no higher."""
        return (self.least is None or number >= self.least) and (self.most is None or number <= self.most)

    @property
    def bounded(self) -> bool:
        """True if both ends are known."""
        return self.least is not None and self.most is not None and self.least < self.most

    def share(self, number: float) -> float:
        """How far up a scale with both ends a number is, in [0, 1]."""
        assert self.least is not None
        assert self.most is not None
        return (number - self.least) / (self.most - self.least)


@dataclass(slots=True)
class TraceNote:
    """What a product says of a trace beside its spans."""

    session: str | None = None
    subject: str | None = None
    tags: list[str] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    metadata: dict[str, Json] = field(default_factory=dict)
    input: Json = None
    output: Json = None
    transcript: bool = False
    """Its calls are read from what was said: nothing tells how long they took."""

    def settled(self) -> TraceNote:
        """The same with texts alone where texts are wanted: files have numbers for the id of a person or a session."""
        session, subject = (
            None if value is None else as_text(value) for value in (self.session, self.subject)
        )
        versions = {str(name): as_text(version) for name, version in self.versions.items()}
        return replace(
            self, session=session, subject=subject, tags=list(map(as_text, self.tags)), versions=versions
        )


class Holdings:
    """Everything that an import has read so far.

    Args:
        product: whose it is.
    """

    def __init__(self, product: str) -> None:
        self.product = product
        self.spool = ImportSpool()
        self.values: dict[str, set[float]] = {}
        """Name of an opinion → its different numbers, of which no more than four are kept."""
        self.ranges: dict[str, DeclaredRange] = {}
        """Key of a scale → its range."""
        self.unread: Counter[str] = Counter()
        """Field that nothing here reads → how many records have it."""
        self.refused: list[str] = []
        """Records that could not be read: where, and why."""
        self._notes: dict[bytes, TraceNote] = {}
        self._seen: Counter[str] = Counter()
        self.began = time.time_ns()
        """When this import began, for what does not say when it was: in 1970 a rule of retention would delete it."""

    def close(self) -> None:
        """Forget all of it."""
        self.spool.close()

    def again(self, content: str) -> int:
        """How often a record with this content was read before in this import."""
        self._seen[content] += 1
        return self._seen[content] - 1

    def note(self, trace: str) -> TraceNote:
        """What is said of a trace, to be added to before much else is read."""
        key = trace_bytes(trace)
        note = self._notes.pop(key, None)
        if note is None:
            note = self.spool.note(key, TraceNote) or TraceNote()
            if len(self._notes) >= _NOTES:
                oldest = next(iter(self._notes))
                self.spool.put_note(oldest, self._notes.pop(oldest).settled())
        self._notes[key] = note
        return note

    def noted(self, trace: bytes) -> TraceNote:
        """What was said of a trace, once nothing more comes."""
        return self.spool.note(trace, TraceNote) or TraceNote()

    def complete(self) -> ImportSpool:
        """All that was read, once nothing more comes."""
        for key, note in self._notes.items():
            self.spool.put_note(key, note.settled())
        self._notes.clear()
        # LangSmith's runs: the root has the id of its trace.
        self.spool.complete(lambda span: trace_bytes(span) if "-" in span else None)
        return self.spool

    def declare(self, scale: str, least: Json, most: Json) -> None:
        """Note the range of a scale, where it has one."""
        bounds = [None if bound is None else float(bound) for bound in (least, most)]
        if bounds != [None, None]:
            self.ranges[scale] = DeclaredRange(*bounds)

    def opinion(self, opinion: Opinion) -> None:
        """Add a score, an annotation or feedback."""
        if isinstance(opinion.value, int | float) and not isinstance(opinion.value, bool):
            values = self.values.setdefault(opinion.name, set())
            if len(values) < _VALUES:
                values.add(float(opinion.value))
        self.spool.put_opinion(
            trace_bytes(opinion.trace) if opinion.trace else None,
            opinion.span,
            opinion.at,
            opinion.id,
            opinion,
        )

    def span(
        self,
        *,
        trace: str,
        id: str,
        parent: str | None,
        name: str,
        started: int,
        ended: int,
        attributes: Mapping[str, Json],
        error: tuple[str, str] | None = None,
    ) -> None:
        """Add a span in the attributes of one of the dialects.

        Args:
            started, ended: Unix time in nanoseconds.
            error: type and message, if it failed.
        """
        failed: dict[str, Json] = {}
        if error is not None:
            told = _pairs({"exception.type": error[0], "exception.message": error[1]})
            failed = {
                "status": {"code": 2, "message": error[1]},
                "events": [{"name": "exception", "timeUnixNano": str(ended), "attributes": told}],
            }
        body = msgspec.json.encode({"attributes": _pairs(attributes), **failed})
        above = b"" if not parent else span_bytes(parent)
        span = Span(trace_bytes(trace), span_bytes(id), above, started, ended, name, body, "span+json")
        self.spool.put_span(id, span)

    def task(
        self,
        *,
        dataset: str,
        id: str,
        input: Json,
        expected: Json,
        metadata: Json = None,
        split: str = "",
        group: str = "",
    ) -> None:
        """Add a dataset's item: `expected` is UNSET where no right answer is known."""
        held = structure(metadata)
        told = held if isinstance(held, dict) else {}
        keys = (str(told[name]) for name in GROUP if told.get(name))
        item = row(
            lone(input),
            expected=lone(expected) if expected is not UNSET else UNSET,
            group=group or next(keys, ""),
            provenance={
                "how": self.product,
                "dataset": dataset,
                "item": id,
                **({"split": split} if split else {}),
                **({"metadata": told} if told else {}),
            },
            id=digest([self.product, dataset, id], 24),
        )
        self.spool.put_task(item.id, item)

    def unknown(self, record: Mapping[str, Json], known: Iterable[str]) -> None:
        """Count the fields of a record that nothing reads, where they hold something."""
        for name in set(record).difference(known):
            # pandas writes the index of a table as a column.
            if record[name] not in (None, "", [], {}) and not name.startswith("__index"):
                self.unread[name] += 1


def names(text: str) -> frozenset[str]:
    """The words of a text: names of fields."""
    return frozenset(text.split())


def lone(value: Json) -> Json:
    """The one value of an object with one member, at any depth of such objects; JSON in a text is read first."""
    value = parsed(value) if isinstance(value, str) and value[:1] in ("{", "[") else value
    while isinstance(value, dict) and len(value) == 1:
        (value,) = value.values()
    return value


def trace_bytes(id: str) -> bytes:
    """The 16 bytes of a trace's id: those that it spells, as OpenTelemetry's and UUIDs do, else its hash."""
    return _bytes(id, 16)


def span_bytes(id: str) -> bytes:
    """The 8 bytes of a span's id, in the same way; a UUID is hashed, for its first half may be a time."""
    return _bytes(id, 8)


def _bytes(id: str, size: int) -> bytes:
    digits = id.removeprefix("tr-").replace("-", "")
    if len(digits) == 2 * size:
        try:
            return bytes.fromhex(digits)
        except ValueError:
            pass
    return hashlib.sha256(id.encode()).digest()[:size]


def nanoseconds(value: Json) -> int:
    """A time in Unix nanoseconds: from ISO 8601, or a number of seconds, milliseconds, micro- or nanoseconds.

    Raises:
        ValueError: it is none of these.
    """
    if value is None or value == "":
        return 0
    if isinstance(value, datetime):
        moment = value
    elif isinstance(value, int | float) and not isinstance(value, bool):
        number = float(value)
        for least, factor in ((1e17, 1), (1e14, 1_000), (1e11, 1_000_000)):
            if number >= least:
                return int(value) * factor
        return int(number * 1e9)
    else:
        moment = datetime.fromisoformat(str(value).replace("Z", "+00:00"))
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    # By whole microseconds: the float of `timestamp()` loses some.
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400_000_000 + since.seconds * 1_000_000 + since.microseconds) * 1_000


def error_of(text: str) -> tuple[str, str]:
    """Type and message of an error that is told as one text, a traceback perhaps."""
    first = text.partition("Traceback (most recent call last)")[0].strip() or text.strip().splitlines()[-1]
    kind, paren, rest = first.partition("(")
    if paren and kind.isidentifier() and kind.endswith(("Error", "Exception")):
        quoted = rest.partition(")")[0].strip("'\"")
        return kind, quoted
    kind, colon, rest = first.partition(": ")
    if colon and kind.replace(".", "").isidentifier() and kind.endswith(("Error", "Exception")):
        return kind, rest
    return "_OTHER", first


def _pairs(attributes: Mapping[str, Json]) -> list[Json]:
    return [
        {"key": key, "value": held}
        for key, value in attributes.items()
        if value is not None and (held := _value(value))
    ]


def _value(value: Json) -> dict[str, Json]:
    """An OTLP AnyValue in JSON; what is neither text, number nor a list of texts stands as JSON in a text."""
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, str):
        return {"stringValue": value}
    if isinstance(value, list) and value and all(isinstance(member, str) for member in value):
        return {"arrayValue": {"values": [{"stringValue": member} for member in value]}}
    return {"stringValue": msgspec.json.encode(value, enc_hook=str).decode()}
