"""An OTLP exporter's request, cut into Spans without being read.

`decode` takes the body of a request to `/v1/traces` or `/v1/logs`, protobuf or JSON.  Of each
span only what a record searches by is read: ids, times, name, and the attribute `whet.run`, on the
span or on its resource.  The rest stays the exporter's own bytes; `content.py` reads them when
somebody asks.  A body whose framing is broken is refused whole.  A span that the protocol calls
invalid (an id of zeros) or whose ids and times cannot be found is left out, counted and named, as the
protocol's partial-success answer wants.  One that is broken further inside is kept, and counted as
unread by whoever reads it.

It opens no socket and stores nothing.  Sources: opentelemetry-proto 1.x (trace.proto, logs.proto,
*_service.proto), OTLP specification 1.x, "JSON Protobuf Encoding".
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import re
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from ...errors import InputError
from ...escapes import whole
from ...types import Span
from ..store.protobuf import FIXED64, LENGTH, fields, write_field, write_number

RUN = "whet.run"
"""The attribute that names the run a span belongs to; on a resource it holds for all of its spans."""
_RUN = RUN.encode()


@dataclass(frozen=True, slots=True)
class DecodeLimits:
    """Limits of a request on the process that reads it."""

    spans: int = 50_000
    """Spans or log records in one request; more is an error."""
    span_bytes: int = 8 << 20
    """A longer span is left out and counted."""
    items: int = 30_000
    """Attributes and events of a span, in JSON the keys in it; one with more is left out and counted.  Each becomes
    objects of a hundred times its bytes when it is read."""


LIMITS = DecodeLimits()


class Decoded(NamedTuple):
    """The Spans of one request, and what was left out."""

    spans: list[Span]
    rejected: int
    reasons: tuple[str, ...]
    """Each reason once, with the number of the first span that it holds for."""


def decode(
    body: bytes, *, json: bool, logs: bool, limits: DecodeLimits = LIMITS, run: str | None = None
) -> Decoded:
    """The spans (or with `logs` the log records) of one export request.

    Args:
        run: the run of what does not name one.

    Raises:
        InputError: the body is not such a request, or holds more than `limits.spans`; none of it counts.
    """
    gather = _Gather(limits, logs, run)
    # One search of the request spares every span a look at its attributes, unless somebody names a run.
    gather.marked = _RUN in body
    try:
        if json:
            _read_json(body, gather)
        else:
            _read_protobuf(body, gather)
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError) as exception:
        raise InputError(f"OTLP/JSON: {exception or 'nested too deeply'}. Nothing was stored.") from exception
    except UnicodeDecodeError as exception:
        raise InputError(f"OTLP/JSON: not UTF-8: {exception}. Nothing was stored.") from exception
    return Decoded(gather.spans, gather.rejected, tuple(gather.reasons))


def run_trace(run: str) -> bytes:
    """The 16 bytes that stand for a trace where a run has an id and nobody sent a traceparent."""
    return hashlib.sha256(run.encode("utf-8", "surrogatepass")).digest()[:16]


def partial_success(rejected: int, reason: str, *, json: bool = False, logs: bool = False) -> bytes:
    """The body of the answer to an export request: empty if all was taken, else how much was not, and why."""
    if json:
        if not rejected and not reason:
            return b"{}"
        # int64 is a string in protobuf's JSON.
        count = {"rejectedLogRecords" if logs else "rejectedSpans": str(rejected)}
        return msgspec.json.encode({"partialSuccess": {**count, "errorMessage": reason}})
    if not rejected and not reason:
        return b""
    inner = (write_number(1, rejected) if rejected else b"") + (
        write_field(2, reason.encode("utf-8", "replace")) if reason else b""
    )
    return write_field(1, inner)


def gunzip(body: bytes, limit: int) -> bytes:
    """The content of a gzip body, of at most `limit` bytes.

    Raises:
        InputError: not gzip, cut off, followed by something else, or longer than `limit` when unpacked;
            no more than `limit` bytes are ever unpacked.
    """
    parts: list[bytes] = []
    room, rest = limit, body
    while True:
        unpacker = zlib.decompressobj(wbits=31)
        try:
            part = unpacker.decompress(rest, room + 1)  # one byte more tells that there is more
        except zlib.error as exception:
            raise InputError(f"the body says gzip and is not: {exception}.") from exception
        if len(part) > room:
            raise InputError(f"the body is more than {limit} bytes when unpacked. Send smaller batches.")
        parts.append(part)
        room -= len(part)
        if not unpacker.eof:
            raise InputError("the gzip body is cut off.")
        rest = unpacker.unused_data
        if not rest:
            return b"".join(parts)


class _Gather:
    """Collects the spans of one request and why others were rejected."""

    def __init__(self, limits: DecodeLimits, logs: bool, run: str | None) -> None:
        self.limits = limits
        self.logs = logs
        self.spans: list[Span] = []
        self.rejected = 0
        self.reasons: list[str] = []
        self.context = b""
        """Of the scope that is being read."""
        self.otherwise = run
        """The run of spans that name none, nor does their resource."""
        self.run = run
        """The run that the resource being read names."""
        self.marked = False
        """True if the letters of `whet.run` occur anywhere in the request."""
        self._stated: set[str] = set()
        self._parts = 0

    def keep(self, span: Span) -> None:
        """Take a span, unless the protocol calls it invalid or it is too long."""
        if len(span.trace) != 16 or span.trace == _NO_TRACE or len(span.id) != 8 or span.id == _NO_SPAN:
            self.reject("its trace or span id is missing, zero or of the wrong length")
        elif len(span.body) > self.limits.span_bytes:
            self.reject(f"it is longer than {self.limits.span_bytes} bytes")
        elif _items(span.body, self.limits.items, span.encoding) > self.limits.items:
            self.reject(f"it has more than {self.limits.items} attributes, events or keys")
        else:
            self.take(span)

    def part(self, parts: int = 1) -> None:
        """Count resources, scopes, or spans that are not read yet, which cost memory even where they are empty."""
        self._parts += parts
        if self._parts > 4 * self.limits.spans:
            raise InputError(
                f"more than {4 * self.limits.spans} resources, scopes and spans in one request. Send smaller batches."
            )

    def within(self, context: bytes, encoding: str) -> None:
        """Go on inside of a resource and a scope, which all that comes next is read with.

        Raises:
            InputError: they have more attributes than a span may have.
        """
        if _items(context, self.limits.items, encoding) > self.limits.items:
            raise InputError(
                f"a resource or scope has more than {self.limits.items} attributes or keys. Send fewer."
            )
        self.context = context

    def take(self, span: Span) -> None:
        """Take a span that was checked."""
        self.spans.append(span)
        if len(self.spans) + self.rejected > self.limits.spans:
            self._count()

    def keep_log(self, trace: bytes, parent: bytes, at: int, name: str, body: bytes, run: str | None) -> None:
        """Take a log record: its id is its content, and a run id stands in for a trace id."""
        if len(trace) != 16 or trace == _NO_TRACE:
            if run is None:
                self.reject("it has neither a trace id nor the attribute whet.run, so it belongs to no run")
                return
            trace = run_trace(run)
        encoding = "log+json" if body[:1] == b"{" else "log"  # no protobuf field begins with a brace
        # A log record has no id of its own: one that is sent again must be known again.
        id = hashlib.sha256(body).digest()[:8]
        self.keep(Span(trace, id, _parent(parent), at, at, name, body, encoding, self.context, run))

    def reject(self, reason: str) -> None:
        """Leave out the span that comes next."""
        if reason not in self._stated:
            self._stated.add(reason)
            number = len(self.spans) + self.rejected
            self.reasons.append(f"{'log record' if self.logs else 'span'} {number}: {reason}")
        self.rejected += 1
        self._count()

    def _count(self) -> None:
        if len(self.spans) + self.rejected > self.limits.spans:
            unit = "log records" if self.logs else "spans"
            raise InputError(f"more than {self.limits.spans} {unit} in one request. Send smaller batches.")


_NO_TRACE, _NO_SPAN = bytes(16), bytes(8)
_LONG = 64 * 1024
"""Bytes beyond which the items of a span are counted: fewer bytes hold no more than can be borne."""
_KEY = re.compile(rb'(?<!\\)(?:\\\\)*"\s*:')
"""The end of a key of a JSON object; within a text its quotation mark would be escaped."""


_HOLDING: dict[str, dict[int, str]] = {
    "span": {9: "pair", 11: "pairs", 13: "pairs"},
    "log": {5: "value", 6: "pair"},
    "context": {1: "resource", 2: "scoped"},
    "resource": {1: "pair"},
    "scoped": {1: "pairs"},
    "pairs": {3: "pair", 4: "pair"},
    "pair": {2: "value"},
    "value": {5: "list", 6: "map"},
    "list": {1: "value"},
    "map": {1: "pair"},
}
"""Message → its fields in which there may be attributes and values; `pairs` are events, links and scopes."""


def _items(body: bytes, most: int, encoding: str) -> int:
    """Attributes, events and values inside them, in JSON the keys; the counting ends beyond `most`.

    Args:
        encoding: of a Span, or `context` and `context+json`.
    """
    if len(body) <= _LONG:
        return 0
    try:
        found = _KEY.finditer(body) if encoding.endswith("+json") else _parts(body, encoding)
        return sum(1 for _ in itertools.islice(found, most + 1))
    except InputError:
        return 0  # it is kept, and counted as unread by whoever reads it


def _parts(body: bytes, message: str) -> Iterator[int]:
    """Where each field of a message of `_HOLDING` stands, and of those inside it."""
    inside = [(message, fields(body, 0, len(body)))]
    while inside:
        holding, rest = _HOLDING[inside[-1][0]], inside[-1][1]
        for number, kind, at, end in rest:
            yield at
            if kind == LENGTH and (held := holding.get(number)) is not None:
                inside.append((held, fields(body, at, end)))
                break
        else:
            inside.pop()


def _parent(id: bytes) -> bytes:
    return id if len(id) == 8 and id != _NO_SPAN else b""


# -- protobuf ---------------------------------------------------------------------------------


def _read_protobuf(body: bytes, gather: _Gather) -> None:
    """ExportTraceServiceRequest or ExportLogsServiceRequest: field 1 of both is the resources."""
    for number, kind, at, end in fields(body, 0, len(body)):
        if number == 1 and kind == LENGTH:
            gather.part()
            _protobuf_resource(body, at, end, gather)


def _protobuf_resource(body: bytes, at: int, end: int, gather: _Gather) -> None:
    """ResourceSpans or ResourceLogs.  The resource may come after its spans: two passes."""
    scopes = []
    resource = b""
    for number, kind, start, stop in fields(body, at, end):
        if kind != LENGTH:
            continue
        if number == 1:
            resource += body[start:stop]  # a message that comes twice is one: the halves are concatenated
        elif number == 2:
            gather.part()
            scopes.append((start, stop))
    named = _protobuf_run_or_none(resource, 0, len(resource), 1) if gather.marked else None
    gather.run = named or gather.otherwise
    for start, stop in scopes:
        scope = b""
        items = []
        for number, kind, first, last in fields(body, start, stop):
            if kind == LENGTH and number == 1:
                scope += body[first:last]
            elif kind == LENGTH and number == 2:
                gather.part()
                items.append((first, last))
        gather.within(write_field(1, resource) + write_field(2, write_field(1, scope)), "context")
        if gather.logs:
            for first, last in items:
                _protobuf_log(body, first, last, gather)
        else:
            _protobuf_spans(body, items, gather)


def _protobuf_run(data: bytes, at: int, end: int, number: int) -> str | None:
    """The string value of the attribute `whet.run` among the KeyValues that are field `number`."""
    for field_number, kind, start, stop in fields(data, at, end):
        if field_number != number or kind != LENGTH:
            continue
        key = value = None
        for part, wire, first, last in fields(data, start, stop):
            if part == 1 and wire == LENGTH:
                key = data[first:last]
            elif part == 2 and wire == LENGTH:
                for inner, inner_wire, begin, finish in fields(data, first, last):
                    if inner == 1 and inner_wire == LENGTH:
                        value = data[begin:finish]
        if key == _RUN and value:
            return value.decode("utf-8", "replace")
    return None


_TIMES = struct.Struct("<xQxQ")
# What nearly every exporter writes first, in this order: trace id, span id, the parent unless it is a
# root, then a name of up to 127 bytes.  Matched in C; anything else takes the long way to the same result.
_HEAD = re.compile(rb"\x0a\x10(.{16})\x12\x08(.{8})(?:\x22\x08(.{8}))?\x2a[\x01-\x7f]", re.DOTALL)
_new_span: Callable[[tuple[Any, ...]], Span] = functools.partial(tuple.__new__, Span)
_PARENT_FIELD = b"\x22\x08"


def _protobuf_spans(data: bytes, items: Sequence[tuple[int, int]], gather: _Gather) -> None:
    """The spans of one scope.  The loop stays in one frame: it is what ingest spends most of its time on."""
    match, unpack = _HEAD.match, _TIMES.unpack_from
    # A longer one goes the long way, where its items are counted.
    context, marked, most = gather.context, gather.marked, min(_LONG, gather.limits.span_bytes)
    # Stepping over each attribute here, to refuse what is broken further inside, cost 6 µs more a span (051).
    for at, end in items:
        head = match(data, at, end)
        if head is None or end - at > most:
            _protobuf_span_in_any_order(data, at, end, gather)
            continue
        first = head.end()
        last = first + data[first - 1]
        times = last + 2 if data[last : last + 1] == b"\x30" else last  # after the kind, one byte
        trace, id, parent = head.groups()
        if (
            times + 18 > end
            # Fields 7 and 8 as fixed64: when it started and ended. Anything else goes the long way.
            or data[times] != 0x39
            or data[times + 9] != 0x41
            or trace == _NO_TRACE
            or id == _NO_SPAN
            or (parent is None and data.find(_PARENT_FIELD, times + 18, end) >= 0)  # the parent may come late
        ):
            _protobuf_span_in_any_order(data, at, end, gather)
            continue
        try:
            name = data[first:last].decode()
        except UnicodeDecodeError:
            gather.reject("its name is not UTF-8")
            continue
        run = gather.run
        if marked:
            run = _protobuf_run_or_none(data, at, end) or run
        if parent is None or parent == _NO_SPAN:
            parent = b""
        started, ended = unpack(data, times)
        # A tuple's own constructor: the named one is a Python function around it.
        gather.take(_new_span((trace, id, parent, started, ended, name, data[at:end], "span", context, run)))


def _protobuf_span_in_any_order(data: bytes, at: int, end: int, gather: _Gather) -> None:
    payloads: dict[int, bytes] = {}
    times = {7: 0, 8: 0}
    try:
        for number, kind, value, stop in fields(data, at, end):
            if kind == LENGTH and number in (1, 2, 4, 5):
                payloads[number] = data[value:stop]
            elif kind == FIXED64 and number in times:
                times[number] = value
        name = payloads.get(5, b"").decode()
    except (InputError, UnicodeDecodeError) as exception:
        return gather.reject(f"it cannot be read: {exception}")
    run = (_protobuf_run_or_none(data, at, end) if gather.marked else None) or gather.run
    trace, id, parent = payloads.get(1, b""), payloads.get(2, b""), _parent(payloads.get(4, b""))
    body = data[at:end]
    gather.keep(Span(trace, id, parent, times[7], times[8], name, body, "span", gather.context, run))


def _protobuf_run_or_none(data: bytes, at: int, end: int, number: int = 9) -> str | None:
    if data.find(_RUN, at, end) < 0:
        return None
    try:
        return _protobuf_run(data, at, end, number)
    except InputError:
        return None  # as unreadable as the rest of it, which is kept and counted when it is read


def _protobuf_log(data: bytes, at: int, end: int, gather: _Gather) -> None:
    payloads: dict[int, bytes] = {}
    times = {1: 0, 11: 0}
    try:
        for number, kind, value, stop in fields(data, at, end):
            if kind == LENGTH and number in (9, 10, 12):
                payloads[number] = data[value:stop]
            elif kind == FIXED64 and number in times:
                times[number] = value
        name = payloads.get(12, b"").decode()
    except (InputError, UnicodeDecodeError) as exception:
        return gather.reject(f"it cannot be read: {exception}")
    run = (_protobuf_run_or_none(data, at, end, 6) if gather.marked else None) or gather.run
    # The time it was observed, where the program does not say when it happened.
    at_ns = times[1] or times[11]
    gather.keep_log(payloads.get(9, b""), payloads.get(10, b""), at_ns, name, data[at:end], run)


# -- JSON -------------------------------------------------------------------------------------

Number = int | str
"""An int64 in protobuf's JSON: a string, and a number from those who do not know."""


class _Scope(msgspec.Struct, rename="camel"):
    scope: msgspec.Raw = msgspec.Raw(b"{}")
    spans: list[msgspec.Raw] | None = None
    log_records: list[msgspec.Raw] | None = None


class _Resource(msgspec.Struct, rename="camel"):
    resource: msgspec.Raw = msgspec.Raw(b"{}")
    scope_spans: list[_Scope] | None = None
    scope_logs: list[_Scope] | None = None


class _Request(msgspec.Struct, rename="camel"):
    resource_spans: list[_Resource] | None = None
    resource_logs: list[_Resource] | None = None


class _Span(msgspec.Struct, rename="camel"):
    trace_id: str | None = None
    span_id: str | None = None
    parent_span_id: str | None = None
    start_time_unix_nano: Number | None = None
    end_time_unix_nano: Number | None = None
    name: str | None = None


class _Log(msgspec.Struct, rename="camel"):
    trace_id: str | None = None
    span_id: str | None = None
    time_unix_nano: Number | None = None
    observed_time_unix_nano: Number | None = None
    event_name: str | None = None


class _Value(msgspec.Struct, rename="camel"):
    string_value: str | None = None


class _Attribute(msgspec.Struct):
    key: str | None = None
    value: _Value | None = None


class _Attributes(msgspec.Struct):
    attributes: list[_Attribute] | None = None


_requests = msgspec.json.Decoder(_Request)
_span_heads = msgspec.json.Decoder(_Span)
_log_heads = msgspec.json.Decoder(_Log)
_attributes = msgspec.json.Decoder(_Attributes)


def _read_json(body: bytes, gather: _Gather) -> None:
    # Mended before it is cut: each span keeps its own bytes, which msgspec must be able to read later.
    request = _requests.decode(whole(body))
    for resource in (request.resource_logs if gather.logs else request.resource_spans) or ():
        above = bytes(resource.resource)
        gather.run = _json_run(above) or gather.otherwise
        for scope in (resource.scope_logs if gather.logs else resource.scope_spans) or ():
            gather.within(b'{"resource":%b,"scope":%b}' % (above, bytes(scope.scope)), "context+json")
            for item in (scope.log_records if gather.logs else scope.spans) or ():
                record = bytes(item)
                try:
                    (_json_log if gather.logs else _json_span)(record, gather)
                except msgspec.ValidationError as exception:
                    gather.reject(f"it is not one: {exception}")


def _json_span(body: bytes, gather: _Gather) -> None:
    head = _span_heads.decode(body)
    span = Span(
        _hex(head.trace_id),
        _hex(head.span_id),
        _parent(_hex(head.parent_span_id)),
        _nanoseconds(head.start_time_unix_nano),
        _nanoseconds(head.end_time_unix_nano),
        head.name or "",
        body,
        "span+json",
        gather.context,
        _json_run(body) or gather.run,
    )
    gather.keep(span)


def _json_log(body: bytes, gather: _Gather) -> None:
    head = _log_heads.decode(body)
    at = _nanoseconds(head.time_unix_nano) or _nanoseconds(head.observed_time_unix_nano)
    run = _json_run(body) or gather.run
    gather.keep_log(_hex(head.trace_id), _hex(head.span_id), at, head.event_name or "", body, run)


def _json_run(body: bytes) -> str | None:
    if _RUN not in body or _items(body, LIMITS.items, "span+json") > LIMITS.items:
        return None
    try:
        attributes = _attributes.decode(body).attributes or ()
    except msgspec.ValidationError:
        return None  # the letters stand elsewhere, or their value is no string
    for attribute in attributes:
        if attribute.key == RUN and attribute.value is not None and attribute.value.string_value:
            return attribute.value.string_value
    return None


def _hex(text: str | None) -> bytes:
    try:
        return bytes.fromhex(text or "")
    except ValueError:
        return b""  # an id of the wrong length, which is refused


def _nanoseconds(value: Number | None) -> int:
    """0 to 2⁶⁴-1; 0 also for anything else."""
    if isinstance(value, str):
        value = int(value) if value.isdecimal() and value.isascii() and len(value) <= 20 else 0
    return value if value is not None and 0 <= value < 1 << 64 else 0
