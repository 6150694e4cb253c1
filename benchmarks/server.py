"""What the server carries, beside Agent Lightning 0.3.0 in the same run.  Run: python benchmarks/server.py

    python benchmarks/server.py [--peer PYTHON] [--seconds S] [--folder FOLDER]

PYTHON is that of an environment with agentlightning==0.3.0 and OpenTelemetry 1.39.1, its last
working version; without it only our own figures are printed.  A rollout is one claim, five spans of
1.35 kB and one finish, over HTTP on loopback.  Ours is durable (SQLite, FULL, group commit), so
--folder decides; the peer's store lies in memory.  Absolute figures mean little on a shared machine:
read the ratios.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from whet.tracing.protobuf import write_field

TOKEN = "benchmark"
SPANS, BYTES = 5, 1350
PROTOBUF = "application/x-protobuf"


@dataclass
class Figures:
    """What one server did: name → value, in the units of `LINES`."""

    values: dict[str, float] = field(default_factory=dict)


LINES: tuple[tuple[str, str, str], ...] = (
    ("start", "start until it answers", "s"),
    ("rss", "memory after the start", "MB"),
    ("rollouts_1", "rollouts/s, 1 worker", "/s"),
    ("rollouts_8", "rollouts/s, 8 workers", "/s"),
    ("cpu", "server CPU per rollout", "ms"),
    ("single", "single spans/s, 64 clients", "/s"),
    ("single_p99", "  acknowledged within, p99", "ms"),
    ("batched", "spans/s in batches of 100", "/s"),
    ("memory", "memory per 100,000 spans", "MB"),
    ("queue", "claim + finish/s in batches of 100", "/s"),
)


def export(trace: int, count: int) -> bytes:
    """An OTLP request with `count` spans of one trace."""
    spans = b""
    pad = "x" * (BYTES - 120)
    for number in range(1, count + 1):
        moment = (1_700_000_000_000_000_000 + number).to_bytes(8, "little")
        spans += write_field(
            2,
            write_field(1, trace.to_bytes(16, "big"))
            + write_field(2, number.to_bytes(8, "big"))
            + write_field(5, b"chat")
            + b"\x39"
            + moment
            + b"\x41"
            + moment
            + write_field(9, write_field(1, b"note") + write_field(2, write_field(1, pad.encode()))),
        )
    return write_field(1, write_field(2, spans))


class Link:
    """One connection that is kept, as a worker has it."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 0, timeout=60)
        self._headers = {"authorization": f"Bearer {TOKEN}"}

    def post(self, path: str, body: bytes, media: str = "application/json") -> bytes:
        self._connection.request("POST", path, body, {**self._headers, "content-type": media})
        answered = self._connection.getresponse()
        said = answered.read()
        if answered.status >= 400:
            raise RuntimeError(f"{path}: {answered.status} {said[:200]!r}")
        return said

    def json(self, path: str, body: Any) -> Any:
        return msgspec.json.decode(self.post(path, msgspec.json.encode(body)))


def cpu(process: int) -> float:
    """CPU seconds of a process so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident(process: int) -> float:
    """Megabytes of a process now."""
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{process}/status").read_text())
    return int(found[1]) / 1024 if found else 0.0


@contextmanager
def serving(folder: Path) -> Iterator[tuple[int, str, float]]:
    """`whet serve`: its process, URL, and the seconds until it answered."""
    command = [sys.executable, "-m", "whet.cli", "serve", "--store", str(folder / "runs.db"), "--port", "0"]
    before = time.perf_counter()
    with subprocess.Popen([*command, "--token", TOKEN], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"http://[^;\s]+", process.stdout.readline())
            assert found is not None
            yield process.pid, found[0], time.perf_counter() - before
        finally:
            process.terminate()


def work(url: str, seconds: float, name: str) -> int:
    """One worker: rollouts done in `seconds`."""
    link, done, stop = Link(url), 0, time.perf_counter() + seconds
    seed = random.getrandbits(60) << 32
    while time.perf_counter() < stop:
        leases = link.json("/api/rollouts/claim", {"worker": name, "n": 1})["leases"]
        if not leases:
            return done
        lease = leases[0]
        link.post("/v1/traces", export(seed + done, SPANS), PROTOBUF)
        trajectory = {"id": lease["rollout"]["id"], "task": {"instruction": "x"}, "started": 1.0}
        finished = [{"id": lease["rollout"]["id"], "fence": lease["fence"], "trajectory": trajectory}]
        link.json("/api/rollouts/finish", {"finished": finished})
        done += 1
    return done


def workers(script: list[str], count: int, url: str, seconds: float) -> float:
    """Rollouts a second of `count` processes, of which each prints how many it has done."""
    running = [
        subprocess.Popen([*script, url, str(seconds), f"w{number}"], stdout=subprocess.PIPE, text=True)
        for number in range(count)
    ]
    return (
        sum(int(process.communicate(timeout=seconds + 120)[0].split()[-1]) for process in running) / seconds
    )


async def flood(url: str, bodies: Iterator[bytes], clients: int, seconds: float) -> list[float]:
    """Seconds that each post took, from `clients` at once."""
    import aiohttp

    took: list[float] = []
    stop = time.perf_counter() + seconds
    headers = {"authorization": f"Bearer {TOKEN}", "content-type": PROTOBUF}

    async def one(http: aiohttp.ClientSession) -> None:
        for body in bodies:
            before = time.perf_counter()
            if before > stop:
                return
            async with http.post(f"{url}/v1/traces", data=body) as answered:
                assert answered.status == 200
                await answered.read()
            took.append(time.perf_counter() - before)

    async with aiohttp.ClientSession(headers=headers, connector=aiohttp.TCPConnector(limit=0)) as http:
        await asyncio.gather(*(one(http) for _ in range(clients)))
    return took


def ours(folder: Path, seconds: float) -> Figures:
    """Every line, of `whet serve`."""
    figures = Figures()
    values = figures.values
    with serving(folder) as (process, url, start):
        link = Link(url)
        values["start"], values["rss"] = start, resident(process)
        queued = 0

        def fill(count: int) -> None:
            nonlocal queued
            for _ in range(0, count, 500):
                one = [{"id": f"r{queued + n}", "task": {"instruction": f"{queued + n}"}} for n in range(500)]
                link.json("/api/rollouts", {"rollouts": one})
                queued += 500

        script = [sys.executable, __file__, "--worker"]
        for count in (1, 8):
            fill(int(1_500 * seconds))
            before = cpu(process)
            rate = values[f"rollouts_{count}"] = workers(script, count, url, seconds)
            values["cpu"] = (cpu(process) - before) / (rate * seconds) * 1000
        traces = iter(range(1 << 40, 1 << 50))
        singles = asyncio.run(flood(url, (export(trace, 1) for trace in traces), 64, seconds))
        values["single"] = len(singles) / seconds
        values["single_p99"] = sorted(singles)[int(len(singles) * 0.99)] * 1000
        before, hundreds = resident(process), [export(next(traces), 100) for _ in range(1_000)]
        began = time.perf_counter()
        asyncio.run(flood(url, iter(hundreds), 4, 60.0))
        values["batched"] = 100_000 / (time.perf_counter() - began)
        values["memory"] = resident(process) - before
        link = Link(url)  # one that was idle for half a minute has been closed
        fill(4_000)
        values["queue"] = _queue(link)
    return figures


def _queue(link: Link) -> float:
    began, done = time.perf_counter(), 0
    while leases := link.json("/api/rollouts/claim", {"worker": "q", "n": 100})["leases"]:
        finished = [{"id": one["rollout"]["id"], "fence": one["fence"]} for one in leases]
        link.json("/api/rollouts/finish", {"finished": finished})
        done += len(leases)
    return done / (time.perf_counter() - began)


def peer(python: str, seconds: float) -> Figures:
    """The same lines of the peer, as far as it has them; `server_peer.py` runs in its environment."""
    script = Path(__file__).with_name("server_peer.py")
    said = subprocess.run(
        [python, str(script), str(seconds), str(SPANS), str(BYTES)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=600,
    )
    return Figures(msgspec.json.decode(said.stdout.splitlines()[-1], type=dict[str, float]))


def show(mine: Figures, theirs: Figures | None, write: Callable[[str], None] = print) -> None:
    """The table."""
    write(f"{'':38}{'whet':>12}{'' if theirs is None else '0.3.0':>12}{'':>12}")
    for key, name, unit in LINES:
        if key not in mine.values:
            continue
        line = f"{name:38}{mine.values[key]:>10,.2f} {unit:2}"
        other = None if theirs is None else theirs.values.get(key)
        if other is not None:
            better = mine.values[key] / other if unit == "/s" else other / mine.values[key]
            line += f"{other:>10,.2f} {unit:2}{better:>9,.1f}x"
        write(line)


def main() -> None:
    if sys.argv[1:2] == ["--worker"]:
        print(work(sys.argv[2], float(sys.argv[3]), sys.argv[4]))
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peer")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        mine = ours(Path(folder), given.seconds)
    show(mine, peer(given.peer, given.seconds) if given.peer else None)


if __name__ == "__main__":
    main()
