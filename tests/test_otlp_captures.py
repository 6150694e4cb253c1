"""What real frameworks sent, read back field by field against what should be read from it."""

from __future__ import annotations

import base64
import json
import random
from pathlib import Path
from typing import Any

import pytest

from whet.record.tracing.dialects import form, survey
from whet.record.tracing.otlp import decode
from whet.types import Span

CAPTURES = [
    "agent_framework__builtin",
    "autogen__builtin",
    "crewai__openinference",
    "langgraph__openinference",
    "langgraph__openinference__error",
    "langgraph__openllmetry",
    "openai__openai_v2",
    "openai__openai_v2__latest",
    "openai__openinference",
    "openai__openinference__llmerror",
    "openai__openinference__parallel",
    "openai__openinference__responses",
    "openai__openinference__stream",
    "openai__openllmetry",
    "openai__openllmetry__parallel",
    "openai__openllmetry__stream",
    "openai_agents__openinference",
    "openai_agents__openinference__noinstructions",
    "openai_agents__openllmetry",
    "pydantic_ai__builtin",
    "pydantic_ai__builtin__concurrent",
    "smolagents__openinference",
]
ENUMS = {"SPAN_KIND_INTERNAL": 1, "SPAN_KIND_SERVER": 2, "SPAN_KIND_CLIENT": 3}
STATUS = {"STATUS_CODE_OK": 1, "STATUS_CODE_ERROR": 2}
FIELDS = (
    "kind",
    "name",
    "span_ids",
    "trace_id",
    "model",
    "input_messages",
    "arguments",
    "output",
    "finish_reason",
    "usage",
    "aggregate_usage",
    "error",
)


@pytest.fixture(scope="session")
def otel(data: Path) -> Path:
    return data / "otel"


def as_otlp_json(value: Any) -> Any:
    """protobuf's JSON for people as OTLP/JSON: ids in hex, enumerations as numbers."""
    if isinstance(value, list):
        return [as_otlp_json(each) for each in value]
    if not isinstance(value, dict):
        return ENUMS.get(value, STATUS.get(value, value)) if isinstance(value, str) else value
    found = {}
    for key, each in value.items():
        if key in ("traceId", "spanId", "parentSpanId"):
            found[key] = base64.b64decode(each).hex()
        else:
            found[key] = each if key in ("stringValue", "name") else as_otlp_json(each)
    return found


def captured(folder: Path, files: list[str], *, as_json: bool) -> list[Span]:
    spans: list[Span] = []
    for name in files:
        path = folder / name
        body = path.read_bytes()
        if as_json:
            body = json.dumps(as_otlp_json(json.loads(path.with_suffix(".json").read_text()))).encode()
        decoded = decode(body, json=as_json, logs="logs" in name)
        assert decoded.rejected == 0
        spans += decoded.spans
    return spans


def expectation(folder: Path, capture: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / f"{capture}.expected.json").read_text())
    return found


def assert_as_expected(spans: list[Span], expected: dict[str, Any]) -> None:
    found = survey(spans)
    shown = [form(each) for each in found.trajectories]
    assert [each["trace_ids"] for each in shown] == [run["trace_ids"] for run in expected["runs"]]
    steps = []
    for run in shown:
        for step in run["steps"]:
            if step["parent"] is not None:
                step["parent"] += len(steps) - step["index"]
            steps.append(step)
    assert len(steps) == len(expected["steps"])
    for step, wanted in zip(steps, expected["steps"], strict=True):
        for name in FIELDS:
            assert step[name] == wanted[name], (wanted["index"], name)
        assert step["parent"] == wanted["parent"], wanted["index"]
        assert step["tool_call_id"] == wanted.get("tool_call_id"), wanted["index"]
        if wanted["response_model"] is not None:
            assert step["response_model"] == wanted["response_model"]
        assert step.get("transcript") == (
            expected.get("recoverable_transcript") if not step["index"] else None
        )
    merged = [each for run in shown for each in run["meta"].get("merged_spans", [])]
    assert merged == expected["merged_spans"]
    apart = [each for run in shown for each in run["meta"].get("spans_not_steps", [])]
    apart += [{"span_id": span.id.hex(), "name": span.name} for span in found.left_out]
    assert sorted(apart, key=repr) == sorted(expected["spans_not_steps"], key=repr)
    for run, wanted in zip(shown, expected["runs"], strict=True):
        assert run["session"] == wanted.get("session_id")
        assert run["meta"].get("metadata", {}) == wanted.get("metadata", {})
        assert "unread" not in run["meta"]


def test_every_capture_is_in_the_list(otel: Path) -> None:
    assert (
        sorted(path.name.removesuffix(".expected.json") for path in otel.glob("*.expected.json")) == CAPTURES
    )


@pytest.mark.parametrize("capture", CAPTURES)
def test_protobuf_reads_as_expected(otel: Path, capture: str) -> None:
    expected = expectation(otel, capture)
    assert_as_expected(captured(otel, expected["files"], as_json=False), expected)


@pytest.mark.parametrize("capture", CAPTURES)
def test_json_reads_as_expected(otel: Path, capture: str) -> None:
    expected = expectation(otel, capture)
    assert_as_expected(captured(otel, expected["files"], as_json=True), expected)


@pytest.mark.parametrize("capture", CAPTURES)
def test_the_order_of_arrival_and_repeats_do_not_matter(otel: Path, capture: str) -> None:
    expected = expectation(otel, capture)
    spans = captured(otel, expected["files"], as_json=False)
    for seed in range(3):
        shuffled = [*spans, *spans]
        random.Random(seed).shuffle(shuffled)
        assert_as_expected(shuffled, expected)
