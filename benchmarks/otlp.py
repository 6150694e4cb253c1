"""What reading OpenTelemetry costs: cutting spans out, looking for secrets, and making trajectories of them.

    python benchmarks/otlp.py FOLDER [--json]

FOLDER holds recorded OTLP/HTTP bodies (`*.pb`).  Beside each figure stands what the same bytes cost
google.protobuf in the same run: parsing (in C), parsing and reading what a record needs (ids, times,
name, body), and the parse with `MessageToDict`, which is what a server without a reader of its own
does.  Microseconds of CPU per span, the best of several rounds; a busy machine doubles both columns.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from whet.record.store.redaction.redact import Redactor
from whet.record.tracing.content import content
from whet.record.tracing.dialects import survey
from whet.record.tracing.otlp import decode
from whet.types import Span

BATCH = 100


def batches(folder: Path) -> list[bytes]:
    """The recorded spans as a busy exporter sends them: one resource, about 100 spans, grouped by scope."""
    whole = ExportTraceServiceRequest()
    for path in sorted(folder.glob("*.pb")):
        if "logs" not in path.name:
            whole.MergeFromString(path.read_bytes())
    pairs = [
        (scope.scope, span)
        for each in whole.resource_spans
        for scope in each.scope_spans
        for span in scope.spans
    ]
    pairs.sort(key=lambda pair: pair[0].name)
    requests = []
    for start in range(0, len(pairs), BATCH):
        request = ExportTraceServiceRequest()
        one = request.resource_spans.add(resource=whole.resource_spans[0].resource)
        for scope, span in pairs[start : start + BATCH]:
            if not one.scope_spans or one.scope_spans[-1].scope.name != scope.name:
                one.scope_spans.add(scope=scope)
            one.scope_spans[-1].spans.add().CopyFrom(span)
        requests.append(request.SerializeToString())
    return requests


def per_span(work: Callable[[], object], spans: int, rounds: int) -> float:
    """Microseconds of CPU a span, the best of `rounds`."""
    best = float("inf")
    for _ in range(rounds):
        began = time.thread_time()
        work()
        best = min(best, time.thread_time() - began)
    return best / spans * 1e6


def fields_read(body: bytes) -> list[tuple[object, ...]]:
    """What `decode` reads, through google.protobuf."""
    return [
        (
            span.trace_id,
            span.span_id,
            span.parent_span_id,
            span.start_time_unix_nano,
            span.end_time_unix_nano,
            span.name,
            span.SerializeToString(),
        )
        for each in ExportTraceServiceRequest.FromString(body).resource_spans
        for scope in each.scope_spans
        for span in scope.spans
    ]


def measure(folder: Path, rounds: int) -> dict[str, float]:
    requests = batches(folder)
    spans: list[Span] = [span for body in requests for span in decode(body, json=False, logs=False).spans]
    redactor = Redactor()
    count = len(spans)

    def each(work: Callable[[bytes], object]) -> float:
        return per_span(lambda: [work(body) for body in requests], count, rounds)

    return {
        "spans": count,
        "bytes_per_span": sum(map(len, requests)) / count,
        "decode": each(lambda body: decode(body, json=False, logs=False)),
        "google_parse": each(ExportTraceServiceRequest.FromString),
        "google_fields": each(fields_read),
        "google_dict": per_span(
            lambda: [MessageToDict(ExportTraceServiceRequest.FromString(body)) for body in requests],
            count,
            max(1, rounds // 10),
        ),
        "look_for_secrets": per_span(lambda: [redactor.span(span) for span in spans], count, rounds),
        "content": per_span(lambda: [content(span) for span in spans], count, max(1, rounds // 4)),
        "normalise": per_span(lambda: survey(spans), count, max(1, rounds // 4)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    found = measure(chosen.folder, chosen.rounds)
    if chosen.json:
        print(json.dumps({key: round(value, 2) for key, value in found.items()}))
        return
    print(
        f"{found['spans']:.0f} spans of {found['bytes_per_span']:.0f} bytes, requests of {BATCH}; µs of CPU a span"
    )
    for name, label in (
        ("decode", "cut out and indexed (ours)"),
        ("google_parse", "google.protobuf: parsed only"),
        ("google_fields", "google.protobuf: parsed, indexed and written again"),
        ("google_dict", "google.protobuf: MessageToDict"),
        ("look_for_secrets", "looked through for secrets"),
        ("content", "read whole (ours)"),
        ("normalise", "read whole and made trajectories of"),
    ):
        print(f"  {label:52} {found[name]:8.1f}   {found[name] / found['decode']:6.1f} × decode")


if __name__ == "__main__":
    main()
