"""A fuzzer of every route: a `whet serve` process over a file, asked for as long as one likes.

    python tests/server_fuzzer.py SECONDS [SEED]

Routes, parameters and bodies come from the server's own OpenAPI document, so a new route is covered by itself.
Most of a request is valid: ids are those that earlier answers named, and one or two places are odd.  Nothing may
answer with 500 or for more than `SLOW`, name a path of the host, leave a traceback, or keep the server from recording
a valid run afterwards.
"""

from __future__ import annotations

import gzip
import http.client
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from whet.models.fakes import ScriptedServer
from whet.record.store import Store

SLOW = 5.0
"""Seconds of processor time that the server may take for a request; one that hangs is waited for ninety seconds."""
HOST = re.compile(rb"(?:/(?:home|root|tmp|usr|work|var|opt)/[\w.]|site-packages|Traceback|File \\?\"/)")
"""What no answer may name: paths of the host, and tracebacks."""
ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63) - 1, 10**40, 0.1, -0.0, 1e308, 5e-324),
    *(
        "",
        " ",
        "\x00",
        "\ud83d",
        "\U0001f600",
        "é" * 300,
        "a" * 70_000,
        "../../etc",
        "%2e%2e/",
        "\x1b[31m",
        "\u202e",
    ),
    *(
        "NaN",
        "null",
        "2026-11-22",
        "' OR 1=1 --",
        "<script>",
        [],
        {},
        [[]],
        [None],
        {"": ""},
        {"a": {"a": {}}},
    ),
)
STATUSES = {500, 501, 505, 511}
"""Failures of the server itself; 502 to 504 tell of an upstream, of draining or of backpressure."""


@dataclass
class Fuzzer:
    """One server's requests.

    Args:
        url: of the server.
        tokens: by the name of the role.
        seed: of the requests.
        samples: OTLP requests that real exporters sent, to be damaged.
        pid: of the server.
    """

    url: str
    tokens: dict[str, str]
    seed: int
    samples: list[tuple[bytes, bool]]
    pid: int
    chance: random.Random = field(init=False)
    document: dict[str, Any] = field(init=False)
    operations: list[tuple[str, str, dict[str, Any]]] = field(init=False)
    ids: list[str] = field(default_factory=lambda: ["some-id"])
    answers: Counter[int] = field(default_factory=Counter)
    asked: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        status, body = self._send("GET", "/openapi.json", None, self._bearer("admin"))
        assert status == 200, body
        self.document = json.loads(body)
        self.operations = [
            (method.upper(), path, operation)
            for path, methods in self.document["paths"].items()
            for method, operation in methods.items()
        ]

    def round(self) -> None:
        """One request of a route that chance names; raises AssertionError where it was answered badly."""
        method, path, operation = self.chance.choice(self.operations)
        headers = self._bearer(operation.get("x-role", "admin"))
        target = re.sub(r"\{(\w+)\}", lambda name: quote(self._id(name[1]), safe=""), path)
        if query := self._query(operation):
            target += "?" + query
        body = None
        if content := operation.get("requestBody", {}).get("content"):
            media = self.chance.choice(list(content))
            body = self._body(content[media].get("schema"), media, path)
            headers["content-type"] = media if self.chance.random() < 0.97 else "text/plain"
            if self.chance.random() < 0.2:
                headers["content-encoding"] = "gzip"
                body = gzip.compress(body, 1) if self.chance.random() < 0.8 else body
        self.asked[f"{method} {path}"] += 1
        status, answered = self._send(method, target, body, headers)
        self.answers[status] += 1
        assert status not in STATUSES, (
            f"{status} of {method} {target}: {body!r:.2000} was answered {answered!r:.500}"
        )
        if status >= 400:
            assert not HOST.search(answered), f"{method} {target} names the host: {answered!r:.500}"
        self._remember(answered)
        if self.chance.random() < 0.02:
            self._garbage()
        if path.startswith("/api/gateway/"):  # a gateway that is paused holds every call
            self._send("POST", "/api/gateway/resume", b"", self._bearer("admin"))

    def sound(self) -> None:
        """A valid run is recorded and read; AssertionError where it is not."""
        id = f"sound-{self.chance.getrandbits(64):x}"
        run = {"task": {"instruction": "q"}, "id": id, "output": "a", "started": time.time()}
        body = json.dumps({"trajectories": [run]}).encode()
        headers = {**self._bearer("admin"), "content-type": "application/json"}
        status, answered = self._send("POST", "/api/trajectories", body, headers)
        assert status == 200, answered
        status, answered = self._send("GET", f"/api/trajectories/{id}", None, headers)
        assert (status, json.loads(answered)["output"]) == (200, "a")

    # -- the request --------------------------------------------------------------------------

    def _bearer(self, role: str) -> dict[str, str]:
        return {"authorization": f"Bearer {self.tokens[role]}"}

    def _id(self, name: str) -> str:
        if name == "token":
            return self.tokens["write"] if self.chance.random() < 0.9 else "wrong"
        odd = str(self.chance.choice(ODD))[:200].encode("utf-8", "replace").decode() or "x"
        return odd if self.chance.random() < 0.1 else self.chance.choice(self.ids)

    def _query(self, operation: dict[str, Any]) -> str:
        pairs = []
        for parameter in operation["parameters"]:
            if parameter["in"] == "query" and self.chance.random() < 0.4:
                chosen = self._of(parameter["schema"], 0, 0.2)
                pairs.append((parameter["name"], str(chosen)[:200].encode("utf-8", "replace")))
        return urlencode(pairs)

    def _body(self, schema: Any, media: str, path: str) -> bytes:
        if schema is None:
            return self._telemetry(json_media=media == "application/json", logs="logs" in path)
        if schema == {"type": "object"}:
            chosen: Any = self._call(path)
        else:
            chosen = self._of(schema, 0, self.chance.choice((0.0, 0.01, 0.05, 0.2)))
        for name in ("wait", "timeout", "seconds"):  # a long poll waits as long as it was asked to
            if isinstance(chosen, dict) and isinstance(chosen.get(name), int | float):
                chosen[name] = self.chance.choice((0, 0.01, -1))
        body = json.dumps(chosen).encode("utf-8", "replace")
        return self._damaged(body) if self.chance.random() < 0.05 else body

    def _of(self, schema: Any, depth: int, odd: float) -> Any:
        """A JSON value of a schema, odd at each place with this probability."""
        chance = self.chance
        if chance.random() < odd:
            return chance.choice(ODD)
        if not isinstance(schema, dict) or depth > 12:
            return chance.choice(ODD)
        if "$ref" in schema:
            name = schema["$ref"].rpartition("/")[2]
            return self._of(self.document["components"]["schemas"][name], depth + 1, odd)
        if "anyOf" in schema:
            return self._of(chance.choice(schema["anyOf"]), depth + 1, odd)
        if "enum" in schema:
            return chance.choice(schema["enum"])
        kind = schema.get("type")
        if kind == "object":
            named = {
                name: self._of(inner, depth + 1, odd)
                for name, inner in schema.get("properties", {}).items()
                if name in schema.get("required", ()) or chance.random() < 0.4
            }
            if isinstance(extra := schema.get("additionalProperties"), dict):
                named |= {self._text(): self._of(extra, depth + 1, odd) for _ in range(chance.randrange(3))}
            if chance.random() < odd:
                named[chance.choice(("", "extra", "\x00", "__proto__"))] = chance.choice(ODD)
            return named
        if kind == "array":
            return [self._of(schema.get("items", {}), depth + 1, odd) for _ in range(chance.randrange(4))]
        if kind == "integer":
            return chance.choice((0, 1, 2, 3, 10, 100))
        if kind == "number":
            return chance.choice((0, 1, 0.5, time.time(), 1e-3))
        if kind == "boolean":
            return chance.random() < 0.5
        if kind == "string":
            return self._text()
        return None if kind == "null" else chance.choice(ODD)

    def _text(self) -> str:
        return self.chance.choice(
            (*self.ids[-20:], "agent", "gateway.system_prompt", "ann@example.com", "why?")
        )

    def _call(self, path: str) -> Any:
        """A model call, odd in one place."""
        chance = self.chance
        tool = {"type": "function", "function": {"name": "look", "arguments": "{}"}, "id": "c1"}
        messages: list[Any] = [
            {"role": "user", "content": chance.choice(("hi", [{"type": "text", "text": "hi"}], ""))},
            {"role": "assistant", "content": None, "tool_calls": [tool]},
            {"role": "tool", "tool_call_id": "c1", "content": "found"},
        ][: chance.randrange(1, 4)]
        call: dict[str, Any] = {"model": chance.choice(("m", "", "x/y")), "stream": chance.random() < 0.3}
        call |= {"input": messages} if "responses" in path or "embed" in path else {"messages": messages}
        call |= {"max_tokens": 5} if "messages" in path else {}
        if chance.random() < 0.6:
            inner = chance.choice([call, *messages])
            inner[chance.choice([*inner, "tools", "temperature", "metadata"])] = chance.choice(ODD)
        return call

    def _telemetry(self, *, json_media: bool, logs: bool) -> bytes:
        if json_media:
            kind = "Logs" if logs else "Spans"
            item: dict[str, Any] = {
                "traceId": f"{self.chance.getrandbits(128):032x}",
                "spanId": "00f067aa0ba902b7",
            }
            for name in (
                "name",
                "startTimeUnixNano",
                "endTimeUnixNano",
                "attributes",
                "status",
                "parentSpanId",
            ):
                if self.chance.random() < 0.6:
                    item[name] = self.chance.choice(
                        (*ODD, "1700000000000000000", [{"key": "a", "value": {}}])
                    )
            inner = {"logRecords": [item]} if logs else {"spans": [item]}
            body = json.dumps({f"resource{kind}": [{f"scope{kind}": [inner]}]}).encode("utf-8", "replace")
        else:
            fitting = [sample for sample, of_logs in self.samples if of_logs == logs]
            body = self.chance.choice(fitting) if fitting else self.chance.randbytes(200)
        return self._damaged(body) if self.chance.random() < 0.7 else body

    def _damaged(self, body: bytes) -> bytes:
        data = bytearray(body)
        for _ in range(self.chance.randrange(1, 6)):
            place = self.chance.randrange(len(data) + 1)
            match self.chance.randrange(4):
                case 0:
                    del data[place : place + self.chance.randrange(1, 30)]
                case 1:
                    data[place:place] = self.chance.randbytes(self.chance.randrange(1, 9))
                case 2:
                    data[place : place + 1] = self.chance.randbytes(1)
                case _:
                    data[place:place] = data[place : place + 40]
        return bytes(data)

    # -- the wire -----------------------------------------------------------------------------

    def _send(
        self, method: str, target: str, body: bytes | None, headers: dict[str, str]
    ) -> tuple[int, bytes]:
        host = urlsplit(self.url).netloc
        connection = http.client.HTTPConnection(host, timeout=90)
        began = spent(self.pid)
        try:
            connection.request(method, target, body, headers)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()
            took = spent(self.pid) - began
            self.slowest = max(self.slowest, took)
            assert took < SLOW, f"{method} {target} took {took:.1f} s: {body!r:.1000}"

    def _garbage(self) -> None:
        """Bytes that are no HTTP, or a request that ends early."""
        host, _, port = urlsplit(self.url).netloc.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=90) as connection:
            head = b"POST /api/trajectories HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 5000\r\n\r\n{"
            connection.sendall(
                self.chance.choice((head, self.chance.randbytes(300), b"GET / HTTP/9\r\n\r\n"))
            )

    def _remember(self, answered: bytes) -> None:
        for id in re.findall(rb'"(?:id|run|trajectory|rollout)":"([^"\\]{1,80})"', answered[:20_000])[:3]:
            self.ids.append(id.decode("utf-8", "replace"))
        del self.ids[1:-200]


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, dict[str, str], subprocess.Popen[bytes], Path]]:
    """A `whet serve` process with every part, in front of a scripted model: URL, tokens, process, its stderr."""
    store, said = folder / "runs.db", folder / "stderr"
    with ScriptedServer("fine", speaks=("chat", "responses", "messages")) as model, said.open("wb") as errors:
        words = ["serve", "--store", store, "--port", "0", "--open-legacy", "--upstream", model.base_url]
        process = subprocess.Popen(
            [sys.executable, "-m", "whet", *map(str, words)], stdout=subprocess.PIPE, stderr=errors
        )
        try:
            assert process.stdout is not None
            url = None
            for line in process.stdout:
                if found := re.search(rb"http://127\.0\.0\.1:\d+", line):
                    url = found[0].decode()
                    break
            assert url, f"the server did not start: {said.read_text()}"
            tokens = json.loads((folder / "runs.db.tokens").read_text())
            yield url, tokens, process, said
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=300)


def spent(pid: int) -> float:
    """Seconds of processor time that a process has taken."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def resident(pid: int) -> float:
    """A process's memory in MB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def fuzz(
    *,
    seed: int,
    seconds: float = 1e9,
    rounds: int = sys.maxsize,
    samples: list[tuple[bytes, bool]] | None = None,
) -> tuple[Fuzzer, list[float]]:
    """Fuzz until `seconds` or `rounds` are over; the fuzzer, and the server's memory in MB at each tenth."""
    memory: list[float] = []
    with tempfile.TemporaryDirectory(prefix="whet fuzz ") as folder:
        with served(Path(folder)) as (url, tokens, process, said):
            fuzzer = Fuzzer(url, tokens, seed, samples or [], process.pid)
            began = time.monotonic()
            for number in range(rounds):
                fuzzer.round()
                if number % 500 == 0:
                    fuzzer.sound()
                passed = time.monotonic() - began
                if passed >= seconds * len(memory) / 10:
                    memory.append(resident(process.pid))
                if passed > seconds:
                    break
            fuzzer.sound()
        complaints = said.read_text(errors="replace")
        assert "Traceback" not in complaints, complaints[:3000]
        assert process.returncode == 0, (process.returncode, complaints[:3000])
        with Store(Path(folder) / "runs.db") as store:
            assert store.database.rows("PRAGMA integrity_check") == [("ok",)]
            assert sum(1 for _ in store.trajectories()) > 0
    return fuzzer, memory


if __name__ == "__main__":
    from otlp_fuzzer import recorded

    chosen = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    real = Path(os.environ.get("WHET_DATA") or "../shared/data") / "otel"
    done, held = fuzz(
        seed=chosen, seconds=float(sys.argv[1]), samples=recorded(real) if real.is_dir() else []
    )
    print(f"{done.asked.total():,} requests of {len(done.asked)} routes from seed {chosen}, no failure")
    print(f"answers {dict(sorted(done.answers.items()))}, most for one {done.slowest:.2f} s of CPU")
    print("memory, MB: " + " ".join(f"{megabytes:.0f}" for megabytes in held))
