"""The decoder: what it takes, what it leaves out and says so, what it refuses whole."""

from __future__ import annotations

import contextlib
import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from otlp_spans import (
    SECOND,
    START,
    TRACE,
    call,
    decoded,
    named,
    one,
    pairs,
    protobuf_request,
    protobuf_span,
    request,
)

from whet.errors import InputError
from whet.record.store.protobuf import fields, write_field, write_number, write_varint
from whet.record.tracing.content import content
from whet.record.tracing.otlp import DecodeLimits, decode, gunzip, partial_success, run_trace

FIVE = protobuf_request(*(protobuf_span(f"span {place}", {"key": "value"}) for place in range(5)))


def test_a_protobuf_span_is_cut_out_as_it_came() -> None:
    body = protobuf_span("chat", {"a": "b", "n": 3}, parent=named("above"))
    (span,) = decode(protobuf_request(body, resource={"service.name": "agent"}), json=False, logs=False).spans
    assert span[:6] == (TRACE, named("chat"), named("above"), START, START + SECOND, "chat")
    assert span.body == body
    assert span.encoding == "span"
    read = content(span)
    assert read.attributes == {"a": "b", "n": 3}
    assert read.resource == {"service.name": "agent"}
    assert read.scope == "test"


def test_fields_may_come_in_any_order() -> None:
    body = protobuf_span("chat", {"a": "b"}, parent=named("above"))
    pieces = []
    at = 0
    for _, _, _, stop in list(fields(body, 0, len(body))):
        pieces.append(body[at:stop])
        at = stop
    (straight,) = decode(protobuf_request(body), json=False, logs=False).spans
    for turned in (pieces[::-1], pieces[3:] + pieces[:3], pieces[:2] + pieces[3:] + [pieces[2]]):
        (span,) = decode(protobuf_request(b"".join(turned)), json=False, logs=False).spans
        assert span[:6] == straight[:6]
        assert content(span).attributes == {"a": "b"}


def test_unknown_fields_and_long_names_are_no_obstacle() -> None:
    extra = write_field(200, b"new") + write_number(201, 7) + write_number(16, 256, 5)
    (span,) = decode(protobuf_request(protobuf_span("n" * 300) + extra), json=False, logs=False).spans
    assert span.name == "n" * 300
    assert decode(b"" + write_field(9, b"new"), json=False, logs=False).spans == []


@pytest.mark.parametrize("as_json", [True, False])
def test_a_run_is_named_by_span_or_resource(as_json: bool) -> None:
    if as_json:
        body = request(one("a", {"whet.run": "mine"}), one("b"), resource={"whet.run": "all"})
    else:
        spans = protobuf_span("a", {"whet.run": "mine"}), protobuf_span("b")
        body = protobuf_request(*spans, resource={"whet.run": "all"})
    assert [span.run for span in decode(body, json=as_json, logs=False).spans] == ["mine", "all"]


def test_the_letters_of_whet_run_elsewhere_name_no_run() -> None:
    body = protobuf_request(protobuf_span("a", {"prompt": "what is whet.run?", "whet.run": 3}))
    assert [span.run for span in decode(body, json=False, logs=False).spans] == [None]
    assert [span.run for span in decoded(one("a", {"prompt": "what is whet.run?", "whet.run": 3}))] == [None]


def test_json_says_the_same_as_protobuf() -> None:
    held = {"s": "text", "i": -3, "f": 0.5, "b": True, "list": ["x", 1], "map": {"k": "v"}, "none": None}
    event = {"name": "exception", "timeUnixNano": "5", "attributes": pairs({"exception.type": "E"})}
    (span,) = decoded(one("chat", held, events=[event], status={"code": 2, "message": "broke"}))
    read = content(span)
    assert read.attributes == held
    assert (read.status, read.message) == (2, "broke")
    assert [(each.name, each.at, each.attributes) for each in read.events] == [
        ("exception", 5, {"exception.type": "E"})
    ]
    assert read.scope == "test"


def test_json_takes_times_as_numbers_and_ids_in_capitals() -> None:
    item = one("a") | {"startTimeUnixNano": START, "traceId": TRACE.hex().upper(), "flags": 1}
    (span,) = decoded(item)
    assert (span.started, span.trace) == (START, TRACE)


@pytest.mark.parametrize(
    "broken",
    [
        one("a") | {"traceId": "00" * 16},
        one("a") | {"traceId": ""},
        one("a") | {"spanId": "zz"},
        one("a") | {"spanId": None},
        one("a") | {"name": 7},
        {},
        "no span",
    ],
)
def test_an_invalid_span_is_left_out_and_counted(broken: object) -> None:
    body = json.loads(request(one("good")))
    body["resourceSpans"][0]["scopeSpans"][0]["spans"].append(broken)
    found = decode(json.dumps(body).encode(), json=True, logs=False)
    assert [span.name for span in found.spans] == ["good"]
    assert found.rejected == 1
    assert found.reasons[0].startswith("span 1: ")


def test_an_invalid_protobuf_span_is_left_out_and_counted() -> None:
    zero = write_field(1, bytes(16)) + write_field(2, named("x"))
    cut = protobuf_span("cut")[:30]
    body = protobuf_request(protobuf_span("good"), zero, cut, write_field(1, TRACE), zero)
    found = decode(body, json=False, logs=False)
    assert [span.name for span in found.spans] == ["good"]
    assert found.rejected == 4
    assert len(found.reasons) == 2


def test_a_cut_request_is_refused_whole_wherever_it_was_cut() -> None:
    for size in range(1, len(FIVE)):
        with pytest.raises(InputError, match="byte"):
            decode(FIVE[:size], json=False, logs=False)


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b'{"resourceSpans": 3}', b'{"resourceSpans": [[]]}', b"\xff", b"[" * 100_000]
)
def test_json_that_is_no_request_is_refused(body: bytes) -> None:
    with pytest.raises(InputError, match="OTLP/JSON"):
        decode(body, json=True, logs=False)


@pytest.mark.parametrize(
    "body", [b"{}", b'{"resourceSpans": null}', b'{"resourceSpans": [{"scopeSpans": [{}]}]}']
)
def test_an_empty_request_is_one(body: bytes) -> None:
    assert decode(body, json=True, logs=False) == ([], 0, ())


def test_limits_hold() -> None:
    body = request(*(one(f"s{place}") for place in range(6)))
    with pytest.raises(InputError, match="more than 5 spans"):
        decode(body, json=True, logs=False, limits=DecodeLimits(spans=5))
    long = protobuf_request(protobuf_span("long", {"text": "x" * 2000}), protobuf_span("short"))
    found = decode(long, json=False, logs=False, limits=DecodeLimits(span_bytes=1000))
    assert [span.name for span in found.spans] == ["short"]
    assert found.rejected == 1


def test_deep_values_are_refused_when_they_are_read() -> None:
    deep: object = "x"
    for _ in range(200):
        deep = [deep]
    for span in (decoded(one("a", {"deep": deep}))[0], protobuf_deep(200)):
        with pytest.raises(InputError, match="nested"):
            content(span)
        assert content(span, nesting=300)


def protobuf_deep(levels: int):  # type: ignore[no-untyped-def]
    held = write_field(1, b"x")
    for _ in range(levels):
        held = write_field(5, write_field(1, held))
    pair = write_field(1, b"deep") + write_field(2, held)
    body = protobuf_request(protobuf_span("a") + write_field(9, pair))
    return decode(body, json=False, logs=False).spans[0]


def test_log_records_belong_to_spans_or_runs() -> None:
    record = {
        "timeUnixNano": str(START),
        "eventName": "gen_ai.choice",
        "body": {"stringValue": "x"},
        "traceId": TRACE.hex(),
        "spanId": named("above").hex(),
    }
    (log,) = decoded(record, logs=True)
    assert (log.trace, log.parent, log.name, log.encoding) == (
        TRACE,
        named("above"),
        "gen_ai.choice",
        "log+json",
    )
    assert decoded(record, logs=True)[0].id == log.id, "the id is the content"
    bare = {"timeUnixNano": "1", "body": {"stringValue": "x"}}
    found = decode(request(bare, logs=True), json=True, logs=True)
    assert (found.spans, found.rejected) == ([], 1)
    (log,) = decoded(bare | {"attributes": pairs({"whet.run": "r"})}, logs=True)
    assert (log.trace, log.run) == (run_trace("r"), "r")


def test_partial_success_in_both_encodings() -> None:
    assert partial_success(0, "") == b""
    assert partial_success(0, "", json=True) == b"{}"
    assert json.loads(partial_success(3, "why", json=True)) == {
        "partialSuccess": {"rejectedSpans": "3", "errorMessage": "why"}
    }
    assert "rejectedLogRecords" in json.loads(partial_success(1, "", json=True, logs=True))["partialSuccess"]
    assert partial_success(300, "why") == write_field(1, write_number(1, 300) + write_field(2, b"why"))


def test_gzip_is_unpacked_up_to_a_limit() -> None:
    assert gunzip(gzip.compress(b"x" * 1000), 1000) == b"x" * 1000
    assert gunzip(gzip.compress(b"a") + gzip.compress(b"b"), 10) == b"ab"
    bomb = gzip.compress(bytes(50_000_000))
    for body, reason in (
        (bomb, "more than 1000 bytes"),
        (gzip.compress(b"x" * 1001), "more than 1000 bytes"),
        (gzip.compress(b"x" * 600) * 2, "more than 1000 bytes"),
        (gzip.compress(b"whole")[:-3], "cut off"),
        (b"plain", "is not"),
        (gzip.compress(b"a") + b"tail", "is not"),
        (b"", "cut off"),
    ):
        with pytest.raises(InputError, match=reason):
            gunzip(body, 1000)


def test_a_gateway_call_is_no_span_to_read() -> None:
    with pytest.raises(InputError, match="call"):
        content(call())


@given(st.integers(0, 2**64 - 1), st.integers(1, 2**29 - 1))
def test_numbers_come_back(value: int, number: int) -> None:
    data = write_number(number, value)
    assert list(fields(data, 0, len(data))) == [(number, 0, value, len(data))]


@settings(max_examples=300)
@given(st.binary(max_size=200), st.booleans(), st.booleans())
def test_any_bytes_are_read_or_refused(body: bytes, as_json: bool, logs: bool) -> None:
    try:
        found = decode(body, json=as_json, logs=logs)
    except InputError:
        return
    for span in found.spans:
        with contextlib.suppress(InputError):
            content(span)


@settings(max_examples=300)
@given(st.data())
def test_a_damaged_capture_is_read_or_refused(
    otel_bodies: list[tuple[bytes, bool]], data: st.DataObject
) -> None:
    body, logs = data.draw(st.sampled_from(otel_bodies))
    damaged = bytearray(body)
    for _ in range(data.draw(st.integers(1, 6))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = decode(bytes(damaged), json=False, logs=logs)
    except InputError:
        return
    for span in found.spans:
        with contextlib.suppress(InputError):
            content(span)


@pytest.fixture(scope="session")
def otel_bodies(data: Path) -> list[tuple[bytes, bool]]:
    return [(path.read_bytes(), "logs" in path.name) for path in sorted((data / "otel").glob("*.pb"))]


def test_a_length_that_claims_gigabytes_allocates_nothing() -> None:
    body = b"\x0a" + write_varint(1 << 40) + b"x"
    with pytest.raises(InputError, match="1099511627776 bytes long"):
        decode(body, json=False, logs=False)


def many(keys: int) -> str:
    return json.dumps({f"k{number}": number for number in range(keys)})


@pytest.mark.parametrize("encoding", ["protobuf", "json"])
def test_a_span_of_a_hundred_thousand_attributes_is_left_out_and_the_next_is_taken(encoding: str) -> None:
    attributes = {f"key {number}": "" for number in range(100_000)}
    if encoding == "json":
        body = request(one("wide", attributes), one("next"))
    else:
        body = protobuf_request(protobuf_span("wide", attributes), protobuf_span("next"))
    taken = decode(body, json=encoding == "json", logs=False)
    assert ([span.name for span in taken.spans], taken.rejected) == (["next"], 1)
    assert "attributes" in taken.reasons[0]


def test_keys_inside_a_text_are_not_counted_and_those_that_end_in_a_backslash_are() -> None:
    text = one("long", {"gen_ai.input.messages": json.dumps(many(40_000))})
    assert [span.name for span in decode(request(text), json=True, logs=False).spans] == ["long"]
    span = json.dumps(one("sly"))[:-1].encode()
    keys = b",".join([b'"%d\\\\" : 1' % number for number in range(40_000)])
    body = b'{"resourceSpans":[{"scopeSpans":[{"spans":[%b,%b}]}]}]}' % (span, keys)
    assert decode(body, json=True, logs=False).rejected == 1


@pytest.mark.parametrize("part", [b"\x0a\x00", b"\x12\x00"], ids=["resources", "scopes"])
def test_a_million_empty_parts_of_a_request_are_refused_before_they_take_memory(part: bytes) -> None:
    body = part * 1_000_000
    if part[:1] == b"\x12":
        body = write_field(1, body)
    with pytest.raises(InputError, match="resources, scopes and spans"):
        decode(body, json=False, logs=False)
