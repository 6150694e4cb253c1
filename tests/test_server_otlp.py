"""OTLP over HTTP: encodings, partial success, durability, what is refused, and runs that come of it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import httpx2
import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from processes import until
from server_world import TOKENS, World, bearer, world

from whet.record.tracing.content import content
from whet.serve import Role

PROTOBUF, JSON = "application/x-protobuf", "application/json"


def export(
    trace: int = 1, spans: int = 1, *, name: str = "chat", attribute: str = "", first: int = 1
) -> ExportTraceServiceRequest:
    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add().scope_spans.add()
    for number in range(first, first + spans):
        span = scope.spans.add()
        span.trace_id, span.span_id = trace.to_bytes(16, "big"), number.to_bytes(8, "big")
        span.name, span.start_time_unix_nano, span.end_time_unix_nano = (
            name,
            10**18 + number,
            10**18 + 10**6 + number,
        )
        if number > 1:
            span.parent_span_id = (1).to_bytes(8, "big")
        if attribute:
            span.attributes.add(key="note").value.string_value = attribute
    return request


def as_json(trace: str, span: str) -> bytes:
    one = {"traceId": trace, "spanId": span, "name": "x", "startTimeUnixNano": "1", "endTimeUnixNano": "2"}
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [one]}]}]}).encode()


def send(
    here: World, body: bytes, media: str = PROTOBUF, path: str = "/v1/traces", **headers: str
) -> httpx2.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return here.http.post(path, content=body, headers={**bearer(Role.WRITE), "content-type": media, **named})


def test_what_is_accepted_can_be_read_at_once_in_either_encoding_plain_or_packed() -> None:
    with world() as here:
        body = export(1, 3).SerializeToString()
        assert send(here, body).status_code == 200
        assert len(here.store.spans.trace((1).to_bytes(16, "big"))) == 3
        answered = send(here, gzip.compress(export(2).SerializeToString()), content_encoding="gzip")
        assert answered.status_code == 200
        assert answered.headers["content-type"] == PROTOBUF
        assert ExportTraceServiceResponse.FromString(answered.content).partial_success.rejected_spans == 0
        answered = send(here, as_json("0" * 31 + "3", "0" * 15 + "1"), JSON + "; charset=utf-8")
        assert answered.json() == {}
        assert here.store.count("spans") == 5


def test_log_records_have_their_own_path() -> None:
    with world() as here:
        request = ExportLogsServiceRequest()
        record = request.resource_logs.add().scope_logs.add().log_records.add()
        record.trace_id, record.span_id = (1).to_bytes(16, "big"), (1).to_bytes(8, "big")
        record.body.string_value = "what was said"
        assert send(here, request.SerializeToString(), path="/v1/logs").status_code == 200
        (found,) = here.store.spans.trace((1).to_bytes(16, "big"))
        assert found.encoding == "log"
        assert b"what was said" in found.body


def test_spans_that_cannot_be_taken_are_counted_and_named_and_the_others_are_taken() -> None:
    with world() as here:
        request = export(1, 3)
        request.resource_spans[0].scope_spans[0].spans[1].trace_id = bytes(16)
        answered = send(here, request.SerializeToString())
        assert answered.status_code == 200
        partial = ExportTraceServiceResponse.FromString(answered.content).partial_success
        assert partial.rejected_spans == 1
        assert partial.error_message
        assert here.store.count("spans") == 2


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"\xff\xff\xff\xff", {}, 400),
        (export(1).SerializeToString()[:-3], {}, 400),
        (b"{", {"content_type": JSON}, 400),
        (b"[]", {"content_type": JSON}, 400),
        (b"not gzip", {"content_encoding": "gzip"}, 400),
        (gzip.compress(b"\0" * 5_000_000), {"content_encoding": "gzip"}, 400),
        (export(1).SerializeToString(), {"content_encoding": "br"}, 400),
        (export(1).SerializeToString(), {"content_type": "text/plain"}, 415),
        (b"x" * 2_000_000, {}, 413),
        (export(1, 200).SerializeToString(), {}, 400),
    ],
    ids=[
        "garbage",
        "cut",
        "half json",
        "json list",
        "no gzip",
        "bomb",
        "brotli",
        "text",
        "too large",
        "too many",
    ],
)
def test_what_is_malformed_is_refused_with_a_reason_and_nothing_is_stored(
    body: bytes, headers: dict[str, str], status: int
) -> None:
    with world(body=1_000_000, spans=100) as here:
        answered = send(here, body, headers.pop("content_type", PROTOBUF), **headers)
        assert answered.status_code == status, answered.text
        assert answered.content
        assert here.store.count("spans") == 0


def test_half_a_character_costs_no_batch_and_no_span() -> None:
    cut = {"key": "input.value", "value": {"stringValue": "cut \ud83d"}}
    spans = [
        {"traceId": f"{number:032x}", "spanId": f"{number:016x}", "name": "cut \ud83d", "attributes": [cut]}
        for number in (1, 2)
    ]
    body = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).encode()
    with world() as here:
        answered = send(here, body, JSON)
        assert (answered.status_code, answered.content) == (200, b"{}")
        (span,) = here.store.spans.trace((1).to_bytes(16, "big"))
    assert span.name == "cut \ufffd"
    assert content(span).attributes["input.value"] == "cut \ufffd"


def test_a_run_becomes_a_trajectory_once_it_is_quiet() -> None:
    with world(grace=0.2) as here:
        assert send(here, export(7, 3).SerializeToString()).status_code == 200
        until(lambda: here.get("/api/trajectories")["trajectories"], "no trajectory came of it")
        (found,) = here.get("/api/trajectories")["trajectories"]
        assert found["trace_ids"] == [f"{7:032x}"]


def test_a_secret_in_a_span_is_not_stored() -> None:
    secret = "sk-ant-api03-abcdefghijklmnop0123456789"
    with world() as here:
        assert send(here, export(1, attribute=f"key {secret}").SerializeToString()).status_code == 200
        (found,) = here.store.spans.trace((1).to_bytes(16, "big"))
        assert secret.encode() not in found.body
        assert b"redacted" in found.body
        one = {"id": "t", "task": {"instruction": f"use {secret}"}}
        here.post("/api/trajectories", {"trajectories": [one]})
        assert secret not in here.http.get("/api/trajectories/t", headers=bearer(Role.READ)).text


def test_the_opentelemetry_sdk_exports_to_it() -> None:
    with world() as here:
        exporter = OTLPSpanExporter(
            endpoint=f"{here.url}/v1/traces", headers={"authorization": f"Bearer {TOKENS[Role.WRITE]}"}
        )
        provider = TracerProvider()
        provider.add_span_processor(BatchSpanProcessor(exporter))
        with provider.get_tracer("test").start_as_current_span("outer") as span:
            trace: Any = span.get_span_context().trace_id
            span.set_attribute("gen_ai.operation.name", "chat")
        provider.force_flush()
        provider.shutdown()
        (found,) = here.store.spans.trace(trace.to_bytes(16, "big"))
        assert found.name == "outer"


def test_recorded_requests_of_real_frameworks_are_taken_whole(data: Path) -> None:
    with world() as here:
        for path in sorted((data / "otel").glob("*.pb")):
            where = "/v1/logs" if path.stem.endswith("__logs") else "/v1/traces"
            answered = send(here, path.read_bytes(), path=where)
            assert answered.status_code == 200, path.name
            assert answered.content == b"", f"{path.name}: {answered.content!r}"
        assert here.store.count("spans") > 50
