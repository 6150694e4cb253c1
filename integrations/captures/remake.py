"""Remake tests/captures from real installs: python -m integrations.captures.remake [NAME ...] [--out FOLDER]

A capture is one run of a script `agents/with_NAME.py` (words after `__` are its arguments), against the
scripted model of `desk.py`.  `uv run --script` installs what the script pins.  Written are the requests
that its exporter sent, as OTLP/JSON without paths, ports and processes of the machine, and beside them the
calls that the model server saw, to which the capture is held.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
from google.protobuf import json_format
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from whet.models.fakes import ScriptedServer
from whet.record.tracing.dialects import calls
from whet.types import Span

from .desk import desk

HERE = Path(__file__).parent
CAPTURES = HERE.parents[1] / "tests" / "captures"
LIMIT = 300
"""Seconds that one agent may take, its installation included."""
_IDS = ("traceId", "spanId", "parentSpanId")
_KEPT = ("service.name", "telemetry.sdk.name", "telemetry.sdk.language", "telemetry.sdk.version")
_TOO_LONG = 6_000
"""Characters of an attribute nobody reads, a traceback or a repr, that are kept."""
_PATHS = re.compile(r"(?:file://)?/(?:[\w.@+-]+/)+(?=(?:site-packages|agents|python3\.\d+|desk_tools)\b)")
_ADDRESS = re.compile(r"127\.0\.0\.1:\d+|localhost:\d+")
_PLACE = re.compile(r" at 0x[0-9a-f]{6,}")


class _Receiver(BaseHTTPRequestHandler):
    """Takes OTLP/HTTP requests and keeps their bodies."""

    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *_: Any) -> None:
        """Nothing: what was sent is kept."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        self.server.bodies.append((self.path, self.headers.get("content-type") or "", body))
        self.send_response(200)
        self.send_header("Content-Type", self.headers.get("content-type") or "")
        self.send_header("Content-Length", "0")
        self.end_headers()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Receiver)
        self.bodies: list[tuple[str, str, bytes]] = []


@contextmanager
def receiver() -> Iterator[_Server]:
    """A collector on loopback; `bodies` are (path, content type, body) of what it was sent."""
    server = _Server()
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def capture(name: str, uv: str) -> dict[str, Any]:
    """Run the agent of a capture and give what it sent.

    Raises:
        AssertionError: the agent failed; says what it wrote.
    """
    script, *words = name.split("__")
    path = HERE / "agents" / f"with_{script}.py"
    with (
        tempfile.TemporaryDirectory() as folder,
        receiver() as collector,
        ScriptedServer(desk, models=("gpt-4o-mini",)) as model,
    ):
        port = collector.server_address[1]
        environ = {key: text for key, text in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
        environ |= {
            "OPENAI_BASE_URL": model.base_url,
            "OPENAI_API_BASE": model.base_url,
            "OPENAI_API_KEY": "sk-test",
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "HOME": folder,
            "UV_CACHE_DIR": os.environ.get("UV_CACHE_DIR")
            or str(HERE.parents[1] / ".integrations" / "cache"),
            # Frameworks report their use to their makers unless told not to.
            "OTEL_SDK_DISABLED": "false",
            "CREWAI_DISABLE_TELEMETRY": "true",
            "CREWAI_TRACING_ENABLED": "false",
            "TRACELOOP_TELEMETRY": "false",
            "AGNO_TELEMETRY": "false",
            "HAYSTACK_TELEMETRY_ENABLED": "False",
            "DO_NOT_TRACK": "1",
        }
        ended = subprocess.run(
            [uv, "run", "--quiet", "--no-project", "--python", sys.executable, "--script", str(path), *words],
            env=environ,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=LIMIT,
        )
        assert ended.returncode == 0, f"{name}: {ended.returncode}\n{ended.stdout}\n{ended.stderr[-4000:]}"
        pinned = re.findall(r'^# +"([^"]+)"', path.read_text(encoding="utf-8"), re.MULTILINE)
        return {
            "made_with": pinned,
            "printed": ended.stdout.strip().splitlines()[-1:],
            # Metrics are no part of a record.
            "requests": [
                as_json(*sent) for sent in collector.bodies if sent[0].endswith(("/traces", "/logs"))
            ],
            "calls": [_call(received, model) for received in model.requests if received.method == "POST"],
        }


def _call(received: Any, model: ScriptedServer) -> dict[str, Any]:
    """A call as the model server saw it, in the form in which the gateway's own record is read."""
    api = model.api(received.path)
    reply, completions = model.reply(received)
    response: Any = None
    if completions:
        from whet.models.fakes import answers

        whole = {**received.body, "stream": False}
        response = answers.answer(api, completions, whole)
    body = {"api": api, "request": received.body, "response": response}
    _, reading = calls.read(
        Span(bytes(16), bytes(8), b"", 0, 0, "", msgspec.json.encode(body), calls.ENCODING)
    )
    usage = completions[0].usage if completions else None
    return {
        "api": api,
        "streamed": bool(received.body.get("stream")),
        "status": reply.status,
        "input_messages": reading.input,
        "output": reading.output,
        "usage": None if usage is None else [usage.prompt_tokens, usage.output_tokens],
    }


def as_json(path: str, kind: str, body: bytes) -> dict[str, Any]:
    """A request as OTLP/JSON, without what belongs to the machine."""
    logs = path.endswith("logs")
    if "json" in kind:
        raw = json.loads(body)
    else:
        message = ExportLogsServiceRequest() if logs else ExportTraceServiceRequest()
        message.ParseFromString(body)
        raw = json_format.MessageToDict(message, use_integers_for_enums=True)
        _hexed(raw)
    for resource in raw.get("resourceSpans", raw.get("resourceLogs", ())):
        held = resource.get("resource", {}).get("attributes", [])
        resource["resource"] = {"attributes": [pair for pair in held if pair["key"] in _KEPT]}
    return {"logs": logs, "body": _cleaned(raw)}


def _hexed(value: Any) -> None:
    """Ids in hex, as OTLP/JSON has them; protobuf's own JSON has base64."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in _IDS and isinstance(inner, str):
                value[key] = base64.b64decode(inner).hex()
            else:
                _hexed(inner)
    elif isinstance(value, list):
        for inner in value:
            _hexed(inner)


def _cleaned(value: Any) -> Any:
    if isinstance(value, dict):
        if value.get("key") == "exception.stacktrace":
            lines = value["value"].get("stringValue", "").strip().splitlines()
            return {
                "key": value["key"],
                "value": {"stringValue": _cleaned("\n".join([*lines[:1], *lines[-1:]]))},
            }
        return {key: _cleaned(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_cleaned(inner) for inner in value]
    if isinstance(value, str):
        value = _PLACE.sub("", _ADDRESS.sub("127.0.0.1", _PATHS.sub("", value)))
        return value.replace(str(HERE.parents[1]), "").replace(os.path.expanduser("~") + "/", "")
    return value


def written(captured: dict[str, Any]) -> str:
    """One span a line, so that a diff says which changed."""
    lines = json.dumps(captured, ensure_ascii=False, indent=1)
    lines = re.sub(r"\n {6,}", " ", lines)
    return re.sub(r' (?=\{ "(traceId|timeUnixNano": "\d+", "observed))', "\n      ", lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="captures; those that are there if none is named")
    parser.add_argument("--out", type=Path, default=CAPTURES)
    parser.add_argument(
        "--uv", default=shutil.which("uv") or str(HERE.parents[1] / ".integrations/uv/bin/uv")
    )
    options = parser.parse_args()
    names = options.names or sorted(
        path.stem for path in CAPTURES.glob("*.json") if not path.name.endswith(".expected.json")
    )
    for name in names:
        captured = capture(name, options.uv)
        sent = sum(len(json.dumps(request)) for request in captured["requests"])
        (options.out / f"{name}.json").write_text(written(captured), encoding="utf-8")
        print(f"{name}: {len(captured['requests'])} requests of {sent} bytes, {len(captured['calls'])} calls")


if __name__ == "__main__":
    main()
