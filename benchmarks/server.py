"""What the server carries, beside Agent Lightning 0.3.0 in the same run.  Run: python benchmarks/server.py

    python benchmarks/server.py [--peer PYTHON] [--seconds S] [--folder FOLDER]

PYTHON is that of an environment with agentlightning==0.3.0 and OpenTelemetry 1.39.1, its last
working version; without it only our own figures are printed.  A rollout is one claim, five spans of
1.35 kB and one finish, over HTTP on loopback.  Ours is durable (SQLite, FULL, group commit), so
--folder decides; the peer's store lies in memory.  The server's CPU is taken until it is at rest again, so
that ours has assembled the spans into trajectories, which has no counterpart in the peer.  Rates mean
little on a shared machine: read the ratios and the CPU.  `ingest.py` measures spans in batches, at a steady state.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import selectors
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from whet.record.store.protobuf import write_field, write_number

TOKEN = "whet-write-only-for-timing-and-in-no-text"
SPANS, BYTES = 5, 1350
START = 400.0
"""Seconds that a server may take to answer for the first time: some need minutes on a busy machine."""
WORDS = (
    "the",
    "agent",
    "was",
    "asked",
    "when",
    "they",
    "would",
    "move",
    "and",
    "looked",
    "through",
    "mail",
    "then",
)
PROTOBUF = "application/x-protobuf"


LINES: tuple[tuple[str, str, str], ...] = (
    ("start", "start until it answers", "s"),
    ("rss", "memory after the start", "MB"),
    ("rollouts_1", "rollouts/s, 1 worker", "/s"),
    ("rollouts_8", "rollouts/s, 8 workers", "/s"),
    ("cpu", "  server CPU for each", "ms"),
    ("single", "single spans/s, 64 clients", "/s"),
    ("single_p99", "  acknowledged within, p99", "ms"),
    ("client", "  of which the client takes CPU, each", "ms"),
    ("single_cpu", "  server CPU for each", "ms"),
    ("queue", "claim + finish/s in batches of 100", "/s"),
    ("queue_cpu", "  server CPU for each", "ms"),
)


PADS = tuple(" ".join(random.choices(WORDS, k=BYTES // 6))[: BYTES - 120] for _ in range(64))
"""Prose, in another order each time: what redaction has to look through, and compression cannot cheat on."""
TRACE = bytes(range(0xF0, 0x100))
"""Where the id of the trace stands in spans that were made ahead."""


def attribute(name: str, value: str | int) -> bytes:
    """An OTLP KeyValue."""
    said = write_field(1, value.encode()) if isinstance(value, str) else write_number(3, value)
    return write_field(1, name.encode()) + write_field(2, said)


def export(trace: int, count: int, resource: Mapping[str, str | int] | None = None) -> bytes:
    """An OTLP request with `count` spans of one trace."""
    head = b"".join(write_field(1, attribute(name, value)) for name, value in (resource or {}).items())
    spans = spans_ahead(count, random.choice(PADS)).replace(TRACE, trace.to_bytes(16, "big"))
    return write_field(1, (write_field(1, head) if head else b"") + write_field(2, spans))


@lru_cache(maxsize=512)
def spans_ahead(count: int, pad: str) -> bytes:
    """The spans of an export, made once: who asks shares the machine with who is measured."""
    spans = b""
    for number in range(1, count + 1):
        moment = (1_700_000_000_000_000_000 + number).to_bytes(8, "little")
        spans += write_field(
            2,
            write_field(1, TRACE)
            + write_field(2, number.to_bytes(8, "big"))
            + write_field(5, b"chat")
            + b"\x39"
            + moment
            + b"\x41"
            + moment
            + write_field(9, attribute("note", pad)),
        )
    return spans


class Link:
    """One connection that is kept, as a worker has it.

    Written by hand: Python's own client takes four times as long as whet's server for a request, and
    the two share this machine with what is measured.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host = f"{parts.hostname}:{parts.port}"
        self._socket = socket.create_connection((parts.hostname, parts.port), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self._socket.makefile("rb")

    def _ask(self, method: str, path: str, body: bytes, media: str) -> bytes:
        head = (
            f"{method} {path} HTTP/1.1\r\nhost: {self._host}\r\nauthorization: Bearer {TOKEN}\r\n"
            f"content-type: {media}\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        self._socket.sendall(head.encode() + body)
        status = int(self._file.readline().split()[1])
        length, chunked = 0, False
        while line := self._file.readline().strip().lower():
            if line.startswith(b"content-length:"):
                length = int(line[15:])
            chunked = chunked or line == b"transfer-encoding: chunked"
        said = self._chunks() if chunked else self._file.read(length)
        if status >= 400:
            raise RuntimeError(f"{path}: {status} {said[:200]!r}")
        return said

    def _chunks(self) -> bytes:
        said = b""
        while size := int(self._file.readline(), 16):
            said += self._file.read(size)
            self._file.readline()
        self._file.readline()
        return said

    def post(self, path: str, body: bytes, media: str = "application/json") -> bytes:
        return self._ask("POST", path, body, media)

    def get(self, path: str) -> bytes:
        return self._ask("GET", path, b"", "application/json")

    def json(self, path: str, body: Any) -> Any:
        return msgspec.json.decode(self.post(path, msgspec.json.encode(body)))


def cpu(process: int) -> float:
    """CPU seconds of a process so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rest(process: int, seconds: float = 60.0) -> float:
    """CPU seconds of a process once it has done what was left to do, assembling spans for instance."""
    deadline, before = time.perf_counter() + seconds, -1.0
    while (now := cpu(process)) - before > 0.03 and time.perf_counter() < deadline:
        before = now
        time.sleep(3.0)  # a run is assembled when nothing of it has come for two
    return now


def resident(process: int, kind: str = "VmRSS") -> float:
    """Megabytes of a process now."""
    found = re.search(rf"{kind}:\s+(\d+)", Path(f"/proc/{process}/status").read_text())
    return int(found[1]) / 1024 if found else 0.0


def own(process: int) -> float:
    """The same without pages of files, which the system takes back when it needs them."""
    return resident(process, "RssAnon")


class Whet:
    """How `whet serve` is started and spoken to."""

    health = "/healthz"

    def command(self, folder: Path, port: int) -> list[str]:
        store = str(folder / "runs.db")
        serve = ["-m", "whet", "serve", "--store", store, "--port", str(port), "--token", TOKEN]
        return [sys.executable, *serve]

    def fill(self, link: Link, count: int) -> None:
        for _ in range(0, count, 500):
            one = [{"task": {"instruction": f"{random.getrandbits(64)}"}} for _ in range(500)]
            link.json("/api/rollouts", {"rollouts": one})

    def claim(self, link: Link, name: str, n: int) -> list[Any]:
        return list(link.json("/api/rollouts/claim", {"worker": name, "n": n})["leases"])

    def finish(self, link: Link, leases: Sequence[Any]) -> None:
        link.json("/api/rollouts/finish", {"finished": [self.report(one) for one in leases]})

    def report(self, lease: Any) -> dict[str, Any]:
        id = lease["rollout"]["id"]
        trajectory = {"id": id, "task": {"instruction": "x"}, "started": 1.0}
        return {"id": id, "fence": lease["fence"], "trajectory": trajectory}

    def turn(self, link: Link, lease: Any, name: str, trace: int) -> list[Any]:
        """What `whet work` does between two rollouts: the report, its spans and the next claim in one request."""
        finished = self.report(lease)
        finished["spans"] = export(trace, SPANS, self.resource(lease))
        body = {"finished": [finished], "claim": {"worker": name}}
        return list(link.json("/api/rollouts/finish", body)["leases"])

    def resource(self, lease: Any) -> dict[str, str | int]:
        return {"service.name": "benchmark"}


class AgentLightning:
    """The same of `agl store` 0.3.0.

    Args:
        python: of its environment.
    """

    health = "/v1/agl/health"

    def __init__(self, python: str) -> None:
        self._python = python

    def command(self, folder: Path, port: int) -> list[str]:
        options = ["--host", "127.0.0.1", "--port", str(port), "--log-level", "ERROR"]
        return [self._python, "-m", "agentlightning.cli.store", *options]

    def fill(self, link: Link, count: int) -> None:
        for _ in range(0, count, 500):
            one = [{"input": f"{random.getrandbits(64)}"} for _ in range(500)]
            link.json("/v1/agl/queues/rollouts/enqueue", {"rollouts": one})

    def claim(self, link: Link, name: str, n: int) -> list[Any]:
        return list(link.json("/v1/agl/queues/rollouts/dequeue", {"limit": n, "worker_id": name}))

    def finish(self, link: Link, leases: Sequence[Any]) -> None:
        for one in leases:
            path = f"/v1/agl/rollouts/{one['rollout_id']}/attempts/{one['attempt']['attempt_id']}"
            link.json(path, {"status": "succeeded"})

    def turn(self, link: Link, lease: Any, name: str, trace: int) -> list[Any]:
        """What its runner does between two rollouts; it knows no request for all of it."""
        link.post("/v1/traces", export(trace, SPANS, self.resource(lease)), PROTOBUF)
        self.finish(link, [lease])
        return self.claim(link, name, 1)

    def resource(self, lease: Any) -> dict[str, str | int]:
        return {
            "agentlightning.rollout_id": lease["rollout_id"],
            "agentlightning.attempt_id": lease["attempt"]["attempt_id"],
        }


Side = Whet | AgentLightning


@contextmanager
def serving(side: Side, folder: Path) -> Iterator[tuple[int, str, float]]:
    """A server: its process, URL, and the seconds until it answered."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    before = time.perf_counter()
    log = folder / "log"
    with (
        log.open("wb") as said,
        subprocess.Popen(side.command(folder, port), stdout=said, stderr=said) as process,
    ):
        try:
            while True:
                try:
                    Link(url).get(side.health)
                    break
                except OSError:
                    if process.poll() is not None or time.perf_counter() - before > START:
                        raise RuntimeError(f"it did not start: {log.read_text()[-500:]}") from None
                    time.sleep(0.02)
            yield process.pid, url, time.perf_counter() - before
        finally:
            process.terminate()


def work(side: Side, url: str, seconds: float, name: str) -> int:
    """One worker: rollouts done in `seconds`."""
    link, done, stop = Link(url), 0, time.perf_counter() + seconds
    seed = random.getrandbits(60) << 32
    leases = side.claim(link, name, 1)
    while time.perf_counter() < stop:
        if not leases:
            raise RuntimeError("the queue ran dry: queue more for so many seconds")
        leases = side.turn(link, leases[0], name, seed + done)
        done += 1
    return done


def workers(python: str | None, count: int, url: str, seconds: float) -> float:
    """Rollouts a second of `count` processes, each of which prints how many it has done."""
    script = [sys.executable, __file__, "--worker", python or ""]
    running = [
        subprocess.Popen([*script, url, str(seconds), f"w{number}"], stdout=subprocess.PIPE, text=True)
        for number in range(count)
    ]
    return (
        sum(int(process.communicate(timeout=seconds + 120)[0].split()[-1]) for process in running) / seconds
    )


def flood(url: str, bodies: Iterator[bytes], clients: int, seconds: float) -> list[float]:
    """Seconds that each post took, from `clients` connections that each wait for their answer.

    By hand as `Link`, and for the same reason: aiohttp's client takes longer for a post than the server.
    """
    parts = urlsplit(url)
    head = f"POST /v1/traces HTTP/1.1\r\nhost: {parts.netloc}\r\nauthorization: Bearer {TOKEN}\r\n"
    head += f"content-type: {PROTOBUF}\r\ncontent-length: %d\r\n\r\n"
    took: list[float] = []
    stop = time.perf_counter() + seconds
    with ExitStack() as stack:
        ready = stack.enter_context(selectors.DefaultSelector())

        def send(connection: socket.socket) -> None:
            body = next(bodies, None)
            if body is None or time.perf_counter() > stop:
                ready.unregister(connection)
                return
            began = time.perf_counter()
            connection.sendall(head.encode() % len(body) + body)
            ready.modify(connection, selectors.EVENT_READ, (began, bytearray()))

        for _ in range(clients):
            connection = stack.enter_context(
                socket.create_connection((parts.hostname, parts.port), timeout=60)
            )
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            ready.register(connection, selectors.EVENT_READ)
            send(connection)
        while ready.get_map():
            for key, _ in ready.select():
                assert isinstance(key.fileobj, socket.socket)
                began, said = key.data
                said += (part := key.fileobj.recv(65536))
                if not part or not said.startswith(b"HTTP/1.1 200"):
                    raise RuntimeError(f"/v1/traces: {bytes(said[:200])!r}")
                if whole(said):
                    took.append(time.perf_counter() - began)
                    send(key.fileobj)
    return took


def whole(said: bytearray) -> bool:
    """Whether an answer has arrived to its end."""
    head, end, body = said.partition(b"\r\n\r\n")
    if not end:
        return False
    length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
    return body.endswith(b"0\r\n\r\n") if length is None else len(body) >= int(length[1])


def measure(python: str | None, folder: Path, seconds: float) -> dict[str, float]:
    """Every line, of `whet serve`, or with `python` of the peer."""
    side = Whet() if python is None else AgentLightning(python)
    values: dict[str, float] = {}
    with serving(side, folder) as (process, url, start):
        values["start"], values["rss"] = start, resident(process)
        for count in (1, 8):
            side.fill(Link(url), int(3_000 * seconds))
            before = rest(process)
            rate = values[f"rollouts_{count}"] = workers(python, count, url, seconds)
            values["cpu"] = (rest(process) - before) / (rate * seconds) * 1000
        link = Link(url)
        (lease,) = side.claim(link, "flood", 1)
        resource, traces = side.resource(lease), iter(range(1 << 40, 1 << 50))
        spent, before = rest(process), time.process_time()
        singles = flood(url, (export(trace, 1, resource) for trace in traces), 64, seconds)
        values["client"] = (time.process_time() - before) / len(singles) * 1000
        values["single"] = len(singles) / seconds
        values["single_p99"] = sorted(singles)[int(len(singles) * 0.99)] * 1000
        values["single_cpu"] = (rest(process) - spent) / len(singles) * 1000
        link = Link(url)  # one that has been idle for half a minute is closed
        spent, took, done = cpu(process), 0.0, 0
        while took < seconds:
            began = time.perf_counter()
            leases = side.claim(link, "queue", 100)
            side.finish(link, leases)
            took += time.perf_counter() - began
            done += len(leases)
            if not leases:  # more of them, which is not what is timed
                spent -= cpu(process)
                side.fill(link, 5_000)
                spent += cpu(process)
        values["queue"] = done / took
        values["queue_cpu"] = (rest(process) - spent) / done * 1000
    return values


def show(mine: Mapping[str, float], theirs: Mapping[str, float]) -> None:
    """The table."""
    print(f"{'':38}{'whet':>13}{'0.3.0' if theirs else '':>13}")
    for key, name, unit in LINES:
        line = f"{name:38}{mine[key]:>10,.{3 if unit == 'ms' else 2}f} {unit:2}"
        if key in theirs:
            line += f"{theirs[key]:>10,.{3 if unit == 'ms' else 2}f} {unit:2}"
            if min(mine[key], theirs[key]) > 0:  # memory may shrink
                better = mine[key] / theirs[key] if unit == "/s" else theirs[key] / mine[key]
                line += f"{better:>9,.1f}x"
        print(line)


def main() -> None:
    if sys.argv[1:2] == ["--worker"]:
        python, url, seconds, name = sys.argv[2:6]
        print(work(AgentLightning(python) if python else Whet(), url, float(seconds), name))
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peer")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    figures: list[dict[str, float]] = []
    for python in (None, given.peer) if given.peer else (None,):
        with tempfile.TemporaryDirectory(dir=given.folder) as folder:
            figures.append(measure(python, Path(folder), given.seconds))
    show(figures[0], figures[1] if given.peer else {})


if __name__ == "__main__":
    main()
