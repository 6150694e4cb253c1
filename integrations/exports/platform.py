"""A server on loopback that answers the ingestion and reading APIs of Langfuse and LangSmith to their own SDKs.

Neither product's server runs without a cluster of databases, so what is stored there is put together here: an
observation of Langfuse from the attributes of the OpenTelemetry span that its SDK sent, a run of LangSmith from the
post and the patch of it. The SDK parses the answers by its own types, which refuse a wrong name or type.
"""

from __future__ import annotations

import base64
import gzip
import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

PROJECT = "11111111-1111-4111-8111-111111111111"
EPOCH = "2026-01-01T00:00:00.000Z"
_PROPERTIES = "langfuse.observation."


class _Platform(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.observations: list[dict[str, Any]] = []
        self.scores: list[dict[str, Any]] = []
        self.score_configs: list[dict[str, Any]] = []
        self.feedback_configs: list[dict[str, Any]] = []
        self.items: list[dict[str, Any]] = []
        self.runs: dict[str, dict[str, Any]] = {}
        self.feedback: list[dict[str, Any]] = []
        self.examples: list[dict[str, Any]] = []
        self.unanswered: list[str] = []


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Platform

    def log_message(self, *_: Any) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        query = {name: values[-1] for name, values in parse_qs(address.query).items()}
        self._answer(self._read(address.path, query))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        path = urlsplit(self.path).path
        if path.endswith("/otel/v1/traces"):
            self.server.observations += _observations(body)
            self._answer({})
        else:
            self._answer(self._write(path, json.loads(body)))

    def do_PATCH(self) -> None:
        self.do_POST()

    def _answer(self, value: Any) -> None:
        if value is None:
            self.server.unanswered.append(f"{self.command} {self.path}")
        body = json.dumps({} if value is None else value).encode()
        self.send_response(404 if value is None else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _read(self, path: str, query: dict[str, str]) -> Any:
        server = self.server
        start, limit = int(query.get("cursor") or query.get("offset") or 0), int(query.get("limit") or 50)
        following = {"cursor": str(start + limit)}
        match path:
            case "/api/public/v2/observations":
                rows = server.observations
                meta = following if start + limit < len(rows) else {}
                return {"data": rows[start : start + limit], "meta": meta}
            case "/api/public/v3/scores":
                rows = server.scores
                meta = following if start + limit < len(rows) else {}
                return {"data": rows[start : start + limit], "meta": {"limit": limit, **meta}}
            case "/api/public/score-configs":
                total = {"page": 1, "limit": 50, "totalItems": len(server.score_configs), "totalPages": 1}
                return {"data": server.score_configs, "meta": total}
            case "/feedback-configs":
                return server.feedback_configs[start : start + limit]
            case "/api/public/dataset-items":
                total = {"page": 1, "limit": 50, "totalItems": len(server.items), "totalPages": 1}
                return {"data": server.items, "meta": total}
            case "/api/public/projects":
                return {"data": [{"id": "desk", "name": "desk", "organization": {"id": "o", "name": "o"}}]}
            case "/info":
                limits = {"size_limit": 100, "size_limit_bytes": 20_000_000, "scale_up_nthreads_limit": 4}
                limits |= {"scale_up_qsize_trigger": 1000, "scale_down_nempty_trigger": 4}
                return {"version": "0.1", "batch_ingest_config": {**limits, "use_multipart_endpoint": False}}
            case "/sessions":
                project = {"id": PROJECT, "name": "desk", "tenant_id": PROJECT, "start_time": EPOCH}
                return [{**project, "reference_dataset_id": None}]
            case "/feedback":
                return server.feedback[start : start + limit]
            case "/datasets":
                named = {"id": PROJECT, "name": "desk rows", "created_at": EPOCH, "modified_at": EPOCH}
                return [named][start : start + limit]
            case "/examples":
                return server.examples[start : start + limit]
        return None

    def _write(self, path: str, body: Any) -> Any:
        server = self.server
        if path == "/api/public/scores":
            batch = body if isinstance(body, list) else body.get("scores", body.get("batch", [body]))
            server.scores += [_score(score) for score in batch]
            return {"accepted": len(batch), "rejected": 0, "errors": []}
        if path == "/api/public/score-configs":
            stated = {"minValue": None, "maxValue": None, "categories": None, "description": None, **body}
            stamps = {"createdAt": EPOCH, "updatedAt": EPOCH, "projectId": "desk", "isArchived": False}
            server.score_configs.append({"id": f"config-{len(server.score_configs)}", **stamps, **stated})
            return server.score_configs[-1]
        if path == "/feedback-configs":
            id = str(uuid.UUID(int=0xFC000000000000000000000000000000 + len(server.feedback_configs)))
            stamps = {"tenant_id": PROJECT, "modified_at": EPOCH, "is_first": True}
            server.feedback_configs.append({"id": id, **stamps, **body})
            return server.feedback_configs[-1]
        if path == "/api/public/v2/datasets":
            return {
                "id": "ds",
                "name": body["name"],
                "projectId": "desk",
                "createdAt": EPOCH,
                "updatedAt": EPOCH,
                "metadata": None,
                "inputSchema": None,
                "expectedOutputSchema": None,
                "description": None,
            }
        if path == "/api/public/dataset-items":
            item = {
                "id": f"item-{len(server.items)}",
                "status": "ACTIVE",
                "datasetId": "ds",
                "metadata": None,
            }
            item |= {"createdAt": EPOCH, "updatedAt": EPOCH, "mediaReferences": [], "expectedOutput": None}
            item |= {key: value for key, value in body.items() if value is not None}
            server.items.append(item)
            return item
        if path == "/runs/batch":
            for run in [*body.get("post", ()), *body.get("patch", ())]:
                stored = server.runs.setdefault(run["id"], {})
                stored |= {key: value for key, value in run.items() if value is not None}
            return {}
        if path == "/api/v2/runs/query":
            start, size = int(body.get("cursor") or 0), int(body.get("page_size") or 100)
            runs = [_run_v2(run) for run in server.runs.values()]
            following = str(start + size) if start + size < len(runs) else None
            return {"items": runs[start : start + size], "next_cursor": following}
        if path.startswith("/runs/query"):
            return {"runs": [_run(run) for run in server.runs.values()], "cursors": {"next": None}}
        if path.startswith("/runs"):
            id = body.get("id") or path.rpartition("/")[2]
            stored = server.runs.setdefault(id, {})
            stored |= {key: value for key, value in body.items() if value is not None}
            return {}
        if path == "/feedback":
            stamps = {"created_at": EPOCH, "modified_at": EPOCH, "session_id": PROJECT, "trace_id": None}
            server.feedback.append({**stamps, **body})
            return server.feedback[-1]
        if path == "/datasets":
            return {"id": PROJECT, "name": body["name"], "created_at": EPOCH, "modified_at": EPOCH}
        if path == "/examples/bulk":
            for number, row in enumerate(body):
                id = str(uuid.UUID(int=0xE0000000000000000000000000000000 + number))
                metadata = {**(row.get("metadata") or {}), "dataset_split": [row.get("split") or "base"]}
                example = {"id": id, "dataset_id": PROJECT, "created_at": EPOCH, "modified_at": EPOCH}
                example |= {"inputs": row["inputs"], "outputs": row.get("outputs"), "metadata": metadata}
                server.examples.append(example)
            return server.examples
        return None


def _time(nanoseconds: str) -> str:
    return (
        datetime.fromtimestamp(int(nanoseconds) / 1e9, UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )


def _held(pairs: list[dict[str, Any]]) -> dict[str, Any]:
    held = {}
    for pair in pairs:
        ((kind, value),) = pair["value"].items()
        if kind == "arrayValue":
            value = [next(iter(member.values())) for member in value.get("values", ())]
        held[pair["key"]] = int(value) if kind == "intValue" else value
    return held


def _observations(body: bytes) -> Iterator[dict[str, Any]]:
    message = ExportTraceServiceRequest()
    message.ParseFromString(body)
    for resource in json_format.MessageToDict(message)["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                yield _observation(span, _held(span.get("attributes", [])))


def _observation(span: dict[str, Any], held: dict[str, Any]) -> dict[str, Any]:
    def own(name: str) -> Any:
        return held.get(_PROPERTIES + name)

    def parsed(name: str) -> Any:
        return json.loads(own(name)) if own(name) else None

    parent = base64.b64decode(span.get("parentSpanId", "")).hex() or None
    usage = parsed("usage_details") or {}
    flat = {key: value for key, value in usage.items() if isinstance(value, int)}
    named = {"prompt_tokens": "input", "completion_tokens": "output", "total_tokens": "total"}
    usage = {named.get(key, key): value for key, value in flat.items()}
    prices = {"input": 0.15e-6, "output": 0.6e-6}
    cost = {key: usage[key] * price for key, price in prices.items() if key in usage}
    failed = own("level") == "ERROR" or span.get("status", {}).get("code") == "STATUS_CODE_ERROR"
    prefix = "langfuse.trace.metadata."
    metadata = {key.removeprefix(prefix): value for key, value in held.items() if key.startswith(prefix)}
    return {
        "id": base64.b64decode(span["spanId"]).hex(),
        "traceId": base64.b64decode(span["traceId"]).hex(),
        "startTime": _time(span["startTimeUnixNano"]),
        "endTime": _time(span["endTimeUnixNano"]),
        "projectId": "desk",
        "parentObservationId": parent,
        "type": (own("type") or "span").upper(),
        "isRootObservation": parent is None,
        "name": span["name"],
        "level": "ERROR" if failed else own("level") or "DEFAULT",
        "statusMessage": own("status_message") or span.get("status", {}).get("message"),
        "version": held.get("langfuse.version"),
        "environment": held.get("langfuse.environment") or "default",
        "bookmarked": False,
        "public": False,
        "userId": held.get("user.id"),
        "sessionId": held.get("session.id"),
        "createdAt": EPOCH,
        "updatedAt": EPOCH,
        "input": own("input"),
        "output": own("output"),
        "metadata": metadata,
        "model": own("model.name"),
        "modelParameters": parsed("model.parameters"),
        "usageDetails": usage or None,
        "costDetails": {**cost, "total": sum(cost.values())} if cost else None,
        "totalCost": sum(cost.values()) if cost else None,
        "latency": (int(span["endTimeUnixNano"]) - int(span["startTimeUnixNano"])) / 1e9,
        "tags": held.get("langfuse.trace.tags") or [],
        "release": held.get("langfuse.release"),
        "traceName": held.get("langfuse.trace.name"),
    }


def _score(sent: dict[str, Any]) -> dict[str, Any]:
    kind = sent.get("dataType") or ("NUMERIC" if isinstance(sent["value"], int | float) else "CATEGORICAL")
    subject: dict[str, Any] = {"kind": "trace", "id": sent.get("traceId")}
    if sent.get("observationId"):
        subject = {"kind": "observation", "id": sent["observationId"], "traceId": sent.get("traceId")}
    return {
        "id": sent.get("id") or str(uuid.uuid4()),
        "projectId": "desk",
        "name": sent["name"],
        "source": sent.get("source") or "API",
        "timestamp": sent.get("timestamp") or EPOCH,
        "environment": "default",
        "createdAt": EPOCH,
        "updatedAt": EPOCH,
        "comment": sent.get("comment"),
        "metadata": None,
        "configId": sent.get("configId"),
        "subject": subject,
        "dataType": kind,
        "value": bool(sent["value"]) if kind == "BOOLEAN" else sent["value"],
    }


def _run(run: dict[str, Any]) -> dict[str, Any]:
    usage = (run.get("extra") or {}).get("metadata", {}).get("usage_metadata") or (
        run.get("outputs") or {}
    ).get("usage_metadata")
    counts = {}
    if usage:
        prompt, output = usage["input_tokens"], usage["output_tokens"]
        counts = {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": usage["total_tokens"]}
        counts["total_cost"] = (prompt * 0.15 + output * 0.6) / 1e6
    clean = {key: value for key, value in run.items() if key not in ("session_name",)}
    return {"session_id": PROJECT, "status": "error" if run.get("error") else "success", **clean, **counts}


def _run_v2(run: dict[str, Any]) -> dict[str, Any]:
    """The same run in the names of the second version of the API."""
    old = _run(run)
    # The order is "TIME" + "ID" of each ancestor, joined by dots.
    ancestors = [part.partition("Z")[2] for part in old.get("dotted_order", "").split(".")[:-1]]
    kept = ("id", "name", "start_time", "end_time", "error", "inputs", "outputs", "tags", "trace_id")
    kept += ("prompt_tokens", "completion_tokens", "total_cost", "status", "dotted_order")
    new = {key: old[key] for key in kept if key in old}
    metadata = (old.get("extra") or {}).get("metadata", {})
    new |= {"run_type": old["run_type"].upper(), "project_id": PROJECT, "parent_run_ids": ancestors}
    return new | {"metadata": metadata, "thread_id": metadata.get("thread_id"), "is_root": not ancestors}


@contextmanager
def platform() -> Iterator[_Platform]:
    """The server while it runs."""
    server = _Platform()
    thread = Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
