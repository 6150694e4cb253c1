"""Spans as an exporter would write them, for the tests of what reads them."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from whet.record.store.protobuf import FIXED64, write_field, write_number
from whet.record.tracing.dialects import survey
from whet.record.tracing.otlp import decode, run_trace
from whet.types import Span, Trajectory

TRACE = bytes(range(1, 17))
SECOND = 1_000_000_000
START = 1_800_000_000 * SECOND


PARIS = [{"role": "user", "parts": [{"type": "text", "content": "weather?"}]}]
SUNNY = [{"role": "assistant", "parts": [{"type": "text", "content": "sunny"}], "finish_reason": "stop"}]
CHAT = {
    "gen_ai.operation.name": "chat",
    "gen_ai.request.model": "m",
    "gen_ai.input.messages": json.dumps(PARIS),
    "gen_ai.output.messages": json.dumps(SUNNY),
    "gen_ai.usage.input_tokens": 3,
}


def named(name: str) -> bytes:
    """An 8-byte span id that is the same for the same name."""
    return hashlib.sha256(name.encode()).digest()[:8]


def value(held: Any) -> dict[str, Any]:
    """An AnyValue in OTLP/JSON."""
    if isinstance(held, bool):
        return {"boolValue": held}
    if isinstance(held, int):
        return {"intValue": str(held)}
    if isinstance(held, float):
        return {"doubleValue": held}
    if isinstance(held, list):
        return {"arrayValue": {"values": [value(each) for each in held]}}
    if isinstance(held, dict):
        return {"kvlistValue": {"values": pairs(held)}}
    return {} if held is None else {"stringValue": held}


def pairs(held: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": value(each)} for key, each in held.items()]


def one(
    name: str,
    attributes: dict[str, Any] | None = None,
    *,
    parent: str | None = None,
    at: float = 0.0,
    lasts: float = 1.0,
    **more: Any,
) -> dict[str, Any]:
    """A span in OTLP/JSON; its id is made of its name, or of `id` where two have one name."""
    return {
        "traceId": more.pop("trace", TRACE).hex(),
        "spanId": named(more.pop("id", name)).hex(),
        **({} if parent is None else {"parentSpanId": named(parent).hex()}),
        "name": name,
        "startTimeUnixNano": str(START + round(at * SECOND)),
        "endTimeUnixNano": str(START + round((at + lasts) * SECOND)),
        "attributes": pairs(attributes or {}),
        **more,
    }


def request(
    *spans: dict[str, Any], scope: str = "test", resource: dict[str, Any] | None = None, logs: bool = False
) -> bytes:
    """The body of an export request in OTLP/JSON."""
    outer, middle, inner = ("Logs", "Logs", "logRecords") if logs else ("Spans", "Spans", "spans")
    held = {"scope": {"name": scope}, inner: list(spans)}
    above = {"attributes": pairs(resource or {})}
    return json.dumps({f"resource{outer}": [{"resource": above, f"scope{middle}": [held]}]}).encode()


def decoded(*spans: dict[str, Any], **how: Any) -> list[Span]:
    """Spans as `decode` cuts them."""
    found = decode(request(*spans, **how), json=True, logs=bool(how.get("logs")))
    assert not found.rejected, found.reasons
    return found.spans


def call(
    name: str = "call",
    *,
    parent: str | None = None,
    run: str | None = "run-1",
    at: float = 0.0,
    lasts: float = 1.0,
    trace: bytes | None = None,
    **body: Any,
) -> Span:
    """A gateway's record of a model call."""
    whole = {
        "api": "chat",
        "model": "m",
        "request": {"model": "m", "messages": [{"role": "user", "content": "weather?"}]},
        "response": {
            "id": name,
            "model": "m-2026",
            "choices": [{"message": {"role": "assistant", "content": "sunny"}, "finish_reason": "stop"}],
        },
        "status": 200,
        "error": None,
        "latency": lasts,
        "first_event": None,
        "usage": {"input": 3, "output": 1, "cached_input": None, "reasoning": None},
        "choices": None,
        "policy_version": None,
        "versions": None,
        "session": None,
        "subject": None,
        **body,
    }
    began = START + round(at * SECOND)
    where = trace if trace is not None else TRACE if parent is not None else run_trace(run or "")
    return Span(
        where,
        named(f"call {name}"),
        b"" if parent is None else named(parent),
        began,
        began + round(lasts * SECOND),
        "chat m",
        json.dumps(whole).encode(),
        "call+json",
        b"",
        run,
    )


def protobuf_value(held: Any) -> bytes:
    """An AnyValue in protobuf; a text, a whole number, a list or an object."""
    if isinstance(held, int):
        return write_number(3, held)
    if isinstance(held, list):
        return write_field(5, b"".join(write_field(1, protobuf_value(each)) for each in held))
    if isinstance(held, dict):
        return write_field(6, b"".join(write_field(1, protobuf_pair(*each)) for each in held.items()))
    return write_field(1, held.encode())


def protobuf_pair(key: str, held: Any) -> bytes:
    return write_field(1, key.encode()) + write_field(2, protobuf_value(held))


def protobuf_span(name: str, attributes: dict[str, Any] | None = None, *, parent: bytes = b"") -> bytes:
    """A Span message."""
    return (
        write_field(1, TRACE)
        + write_field(2, named(name))
        + (write_field(4, parent) if parent else b"")
        + write_field(5, name.encode())
        + write_number(6, 1)
        + write_number(7, START, FIXED64)
        + write_number(8, START + SECOND, FIXED64)
        + b"".join(write_field(9, protobuf_pair(*each)) for each in (attributes or {}).items())
    )


def protobuf_request(*spans: bytes, resource: dict[str, Any] | None = None) -> bytes:
    """An ExportTraceServiceRequest."""
    held = b"".join(write_field(1, protobuf_pair(*each)) for each in (resource or {}).items())
    scope = write_field(1, write_field(1, b"test"))
    inside = write_field(2, scope + b"".join(write_field(2, each) for each in spans))
    return write_field(1, write_field(1, held) + inside)


def agent(name: str, **how: Any) -> dict[str, Any]:
    """The span of an agent's run."""
    return one(name, {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": name}, **how)


def only(spans: list[Span]) -> Trajectory:
    """The one Trajectory that spans are."""
    (found,) = survey(spans).trajectories
    return found


def kinds(trajectory: Trajectory) -> list[tuple[str, str, str | None]]:
    """Kind, name and the parent's name of every step."""
    names = {step.id: step.name for step in trajectory.steps}
    return [(step.kind, step.name, names.get(step.parent or "")) for step in trajectory.steps]
