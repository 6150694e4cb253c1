"""The content of a Span, read from its bytes on demand.

`content(span)` gives attributes, events, status and body of a span or log record as Python values,
the same for protobuf and OTLP/JSON.  It knows what OpenTelemetry's messages look like and nothing
of what any instrumentor means by them: that is `dialects/`.

A value nested deeper than `nesting` is refused rather than cut.  Bytes come as base64 text, for
whatever is read here may be stored as JSON; bytes that should be UTF-8 and are not come with
replacement characters, because some exporters cut long strings inside a character.
"""

from __future__ import annotations

import base64
import functools
import re
import struct
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from ...errors import InputError
from ...types import Json, Span
from ..store.protobuf import FIXED64, LENGTH, VARINT, fields, varint, write_varint

NESTING = 64
"""Depth of values inside attributes; a span that goes deeper is stored and not read."""
ERROR = 2
"""Status code: the operation failed."""


class SpanEvent(msgspec.Struct, frozen=True):
    """Something that happened in a span, or a log record of it."""

    name: str
    at: int
    """Unix time in nanoseconds; 0 if not stated."""
    attributes: Mapping[str, Json]
    body: Json = None
    """Of a log record; None in a span's own events."""


class Content(msgspec.Struct, frozen=True):
    """A span or log record as Python values; a Struct, for one is made of every span that is assembled."""

    span: Span
    attributes: Mapping[str, Json]
    events: tuple[SpanEvent, ...] = ()
    status: int = 0
    """0 unset, 1 ok, 2 error."""
    message: str = ""
    """Of the status."""
    body: Json = None
    """Of a log record."""
    resource: Mapping[str, Json] = {}
    scope: str = ""
    """Name of the instrumentation scope."""


def content(span: Span, *, nesting: int = NESTING) -> Content:
    """A span or log record as Python values.

    Raises:
        InputError: its body or context is broken or nested too deeply, or is a gateway call's.
    """
    try:
        if span.encoding == "span":
            return _protobuf_span(span, nesting)
        if span.encoding == "log":
            return _protobuf_log(span, nesting)
        if span.encoding in ("span+json", "log+json"):
            return _json(span, nesting)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exception:
        raise InputError(f"{span.encoding} {span.id.hex()} cannot be read: {exception}") from exception
    raise InputError(f"{span.encoding!r} is not an encoding that holds a span or log record.")


# -- protobuf ---------------------------------------------------------------------------------


# What every span begins with in the order of the exporters, up to its name, which has up to 127 bytes; and what comes
# between the name and the attributes: kind, start, end.  None of it is read here, so it is stepped over in C.
_HEAD = re.compile(rb"\x0a\x10.{16}\x12\x08.{8}(?:\x22\x08.{8})?\x2a([\x01-\x7f])", re.DOTALL)
_TIMES = re.compile(rb"(?:\x30[\x00-\x7f])?\x39.{8}\x41.{8}", re.DOTALL)
_ATTRIBUTE, _NO_STATUS = 9 << 3 | LENGTH, 15 << 3 | LENGTH
_SHORT = 80
"""Bytes up to which an attribute is remembered with its value: most are the same in span after span."""
_KNOWN_PAIRS = 8_192
_known_pairs: dict[bytes, tuple[str, Json | tuple[str, ...]]] = {}
"""KeyValue → name and value, a list of texts as a tuple."""
_known_keys: dict[bytes, str] = {}


def _protobuf_span(span: Span, nesting: int) -> Content:
    data = span.body
    attrs: dict[str, Json] = {}
    events: list[SpanEvent] = []
    status, message = 0, ""
    at, end = _behind_head(data), len(data)
    known, text_head = _known_pairs.get, _text_head
    while at < end:
        tag = data[at]
        if tag == _ATTRIBUTE and at + 3 < end:
            size, first = data[at + 1], at + 2
            if size >= 0x80:
                # Lengths of two bytes, up to 16 KB, are read here: the call would cost more.
                if data[first] < 0x80:
                    size, first = size & 0x7F | data[first] << 7, first + 1
                else:
                    size, first = varint(data, at + 1, end)
            if first + size <= end:
                at = first + size
                if size <= _SHORT:
                    raw = data[first:at]
                    key, held = known(raw) or _remembered(data, first, at, nesting, raw)
                    # A list is copied, so that nobody changes it.
                    attrs[key] = [*held] if type(held) is tuple else held
                    continue
                # A short key and then a text, whose lengths fit to the byte, as nearly all long ones are.
                value = first + 2 + data[first + 1]
                head = text_head(at - value)
                if head and data[first] == 0x0A and data[first + 1] < 0x80 and data.startswith(head, value):
                    key = _known_keys.get(data[first + 2 : value]) or _key(data[first + 2 : value])
                    attrs[key] = data[value + len(head) : at].decode("utf-8", "replace")
                else:
                    _pair(data, first, at, nesting, attrs)
                continue
        elif tag == _NO_STATUS and at + 1 < end and not data[at + 1]:
            at += 2
            continue
        # One field at a time: whatever is not an attribute, or is broken, as `fields` has it.
        number, kind, value, at = next(fields(data, at, end))
        if kind != LENGTH:
            continue
        if number == 9:
            _pair(data, value, at, nesting, attrs)
        elif number == 11:
            events.append(_event(data, value, at, nesting))
        elif number == 15:
            for part, wire, first, last in fields(data, value, at):
                if part == 2 and wire == LENGTH:
                    message = _text(data, first, last)
                elif part == 3 and wire == VARINT:
                    status = first
    resource, scope = _protobuf_context(span.context, nesting)
    return Content(span, attrs, tuple(events), status, message, None, resource, scope)


def _behind_head(data: bytes) -> int:
    """Where to begin reading: behind ids, name, kind and times, if they stand where they usually do; else 0."""
    head = _HEAD.match(data)
    if head is None:
        return 0
    times = _TIMES.match(data, head.end() + data[head.end() - 1])
    return 0 if times is None else times.end()


@functools.lru_cache(maxsize=16_384)
def _text_head(size: int) -> bytes:
    """How an attribute's value of `size` bytes begins if it is a text: field 2, in it field 1; b"" if too short."""
    around = _length(size - 1)
    inside = _length(size - 2 - len(around))
    return b"\x12" + around + b"\x0a" + inside if around and inside else b""


def _length(size: int) -> bytes:
    """The length that stands before a payload if the two have `size` bytes together; b"" if none is so long."""
    for width in range(1, 6):
        if size > width and len(length := write_varint(size - width)) == width:
            return length
    return b""


def _key(raw: bytes) -> str:
    """A name, the same object for the same bytes: it is looked up by in every span."""
    if len(_known_keys) >= _KNOWN_PAIRS:
        _known_keys.clear()
    return _known_keys.setdefault(raw, sys.intern(raw.decode("utf-8", "replace")))


def _remembered(data: bytes, at: int, end: int, nesting: int, raw: bytes) -> tuple[str, Any]:
    """The KeyValue in `data[at:end]`, which is remembered as `raw`."""
    pairs: dict[str, Json] = {}
    _pair(data, at, end, nesting, pairs)
    ((key, held),) = pairs.items()
    if isinstance(held, list) and all(isinstance(text, str) for text in held):
        held = tuple(held)
    pair = sys.intern(key), held
    if nesting > 1 and not isinstance(held, list | dict):
        if len(_known_pairs) >= _KNOWN_PAIRS:
            _known_pairs.clear()
        _known_pairs[raw] = pair
    return pair


def _protobuf_log(span: Span, nesting: int) -> Content:
    data = span.body
    attrs: dict[str, Json] = {}
    body: Json = None
    for number, kind, value, stop in fields(data, 0, len(data)):
        if kind == LENGTH and number == 6:
            _pair(data, value, stop, nesting, attrs)
        elif kind == LENGTH and number == 5:
            body = _value(data, value, stop, nesting)
    resource, scope = _protobuf_context(span.context, nesting)
    return Content(span, attrs, body=body, resource=resource, scope=scope)


# All spans of a context share the one dict: whoever changes it changes it for the others.
@functools.lru_cache(maxsize=512)
def _protobuf_context(data: bytes, nesting: int) -> tuple[dict[str, Json], str]:
    """The context that `otlp.decode` keeps: ResourceSpans with one scope and no spans; the same for many spans."""
    resource: dict[str, Json] = {}
    scope = ""
    for number, _, value, stop in _messages(data, 0, len(data)):
        if number == 1:
            for part, _, at, end in _messages(data, value, stop):
                if part == 1:
                    _pair(data, at, end, nesting, resource)
        elif number == 2:
            for part, _, at, end in _messages(data, value, stop):
                if part == 1:
                    for inner, _, first, last in _messages(data, at, end):
                        if inner == 1:
                            scope = _text(data, first, last)
    return resource, scope


def _messages(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    return (field for field in fields(data, at, end) if field[1] == LENGTH)


def _event(data: bytes, at: int, end: int, nesting: int) -> SpanEvent:
    name, time = "", 0
    attrs: dict[str, Json] = {}
    for number, kind, value, stop in fields(data, at, end):
        if number == 1 and kind == FIXED64:
            time = value
        elif number == 2 and kind == LENGTH:
            name = _text(data, value, stop)
        elif number == 3 and kind == LENGTH:
            _pair(data, value, stop, nesting, attrs)
    return SpanEvent(name, time, attrs)


def _pair(data: bytes, at: int, end: int, nesting: int, into: dict[str, Json]) -> None:
    """A KeyValue.  Nearly all are a short key and then a text, which is read without walking over fields."""
    if end - at > 5 and data[at] == 0x0A and data[at + 1] < 0x80:
        first = at + 2 + data[at + 1]  # where the value begins, and with it its own length
        if first + 3 < end and data[first] == 0x12:
            size, start = data[first + 1], first + 2
            if size >= 0x80:
                size, start = varint(data, first + 1, end)
            if start + size == end and size > 1 and data[start] == 0x0A:
                length, begin = data[start + 1], start + 2
                if length >= 0x80:
                    length, begin = varint(data, start + 1, end)
                if begin + length == end:
                    # Only where all lengths fit to the byte: fields may come in any order, and twice.
                    into[data[at + 2 : first].decode("utf-8", "replace")] = data[begin:end].decode(
                        "utf-8", "replace"
                    )
                    return
    key = ""
    held: Json = None
    for number, kind, value, stop in fields(data, at, end):
        if kind != LENGTH:
            continue
        if number == 1:
            key = _text(data, value, stop)
        elif number == 2:
            held = _value(data, value, stop, nesting)
    into[key] = held


def _value(data: bytes, at: int, end: int, nesting: int) -> Json:
    """An AnyValue; of several kinds in one, the last, as the format wants."""
    if nesting <= 0:
        raise InputError("a value is nested too deeply to be read.")
    decoded: Json = None
    for number, kind, value, stop in fields(data, at, end):
        if kind == LENGTH and number == 1:
            decoded = _text(data, value, stop)
        elif kind == VARINT and number == 2:
            decoded = bool(value)
        elif kind == VARINT and number == 3:
            # A negative int64 is a varint of ten bytes, in two's complement.
            decoded = value - (1 << 64) if value >> 63 else value
        elif kind == FIXED64 and number == 4:
            (decoded,) = struct.unpack_from("<d", data, stop - 8)
        elif kind == LENGTH and number == 5:
            decoded = [
                _value(data, first, last, nesting - 1)
                for part, _, first, last in _messages(data, value, stop)
                if part == 1
            ]
        elif kind == LENGTH and number == 6:
            pairs: dict[str, Json] = {}
            for part, _, first, last in _messages(data, value, stop):
                if part == 1:
                    _pair(data, first, last, nesting - 1, pairs)
            decoded = pairs
        elif kind == LENGTH and number == 7:
            decoded = base64.b64encode(data[value:stop]).decode()
    return decoded


def _text(data: bytes, at: int, end: int) -> str:
    return data[at:end].decode("utf-8", "replace")


# -- JSON -------------------------------------------------------------------------------------


def _json(span: Span, nesting: int) -> Content:
    raw = msgspec.json.decode(span.body)
    if not isinstance(raw, dict):
        raise InputError("an OTLP/JSON span is an object.")
    context = msgspec.json.decode(span.context) if span.context else {}
    resource = member(context, "resource")
    scope = member(context, "scope").get("name")
    status = member(raw, "status")
    code, message = status.get("code"), status.get("message")
    events = []
    for event in _items(raw, "events"):
        name = event.get("name")
        held = _json_pairs(event, nesting)
        events.append(
            SpanEvent(name if isinstance(name, str) else "", _integer(event.get("timeUnixNano")), held)
        )
    return Content(
        span,
        _json_pairs(raw, nesting),
        tuple(events),
        code if type(code) is int else {"STATUS_CODE_OK": 1, "STATUS_CODE_ERROR": 2}.get(str(code), 0),
        message if isinstance(message, str) else "",
        _json_value(raw.get("body"), nesting) if span.encoding == "log+json" else None,
        _json_pairs(resource, nesting),
        scope if isinstance(scope, str) else "",
    )


def member(parent: Json, key: str) -> dict[str, Json]:
    """The object under a key; an empty one where there is none."""
    child = parent.get(key) if isinstance(parent, dict) else None
    return child if isinstance(child, dict) else {}


def _items(value: Json, key: str) -> list[dict[str, Json]]:
    children = value.get(key) if isinstance(value, dict) else None
    return [child for child in children if isinstance(child, dict)] if isinstance(children, list) else []


def _json_pairs(value: Json, nesting: int, key: str = "attributes") -> dict[str, Json]:
    return {
        name: _json_value(pair.get("value"), nesting)
        for pair in _items(value, key)
        if isinstance(name := pair.get("key"), str)
    }


def _json_value(value: Json, nesting: int) -> Json:
    """An AnyValue in protobuf's JSON: an object with one member that names its kind."""
    if nesting <= 0:
        raise InputError("a value is nested too deeply to be read.")
    if not isinstance(value, dict):
        return None
    for kind, held in value.items():
        if kind == "intValue":
            return _integer(held)
        if kind == "doubleValue":
            return _double(held)
        if kind == "arrayValue":
            return [_json_value(inner, nesting - 1) for inner in _items(held, "values")]
        if kind == "kvlistValue":
            return _json_pairs(held, nesting - 1, "values")
        if kind in ("stringValue", "boolValue", "bytesValue"):
            return held if isinstance(held, str | bool) else None
    return None


def _integer(value: Json) -> int:
    """An int64, which protobuf's JSON writes as a string; 0 for anything else."""
    if isinstance(value, str):
        digits = value.removeprefix("-")
        # isdecimal() also takes the digits of other scripts, and int() raises for more than 4,300 of them.
        value = int(value) if digits.isascii() and digits.isdecimal() and len(digits) <= 20 else 0
    return value if isinstance(value, int) and -(1 << 63) <= value < 1 << 64 else 0


def _double(value: Json) -> float | None:
    """A double; NaN and the infinities are words in protobuf's JSON."""
    words = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
    if isinstance(value, str):
        return words.get(value)
    try:
        # type, not isinstance: true is no double.
        return float(value) if type(value) in (int, float) else None
    except OverflowError:
        return None  # a whole number of more than 308 digits, which no double is
