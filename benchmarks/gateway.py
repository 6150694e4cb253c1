"""What the gateway adds to a model call, and how many it carries.  Run: python benchmarks/gateway.py

Three processes on this machine: an upstream that answers at once (raw ASGI), the gateway on a store
on disk, and this client.  Latency is taken one request at a time, direct and through the gateway in
turn, so that both see the same machine; throughput with 32 kept connections.  The gateway's CPU
per request is what one process could carry if it had a core of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from whet.record.store import Store

TOKEN = "bench"
CLIENTS = 32
REQUEST = msgspec.json.encode(
    {
        "model": "bench",
        "temperature": 0.5,
        "messages": [
            {"role": "system", "content": "You are a careful assistant. " * 20},
            {"role": "user", "content": "When is the move, and who ordered the van? " * 8},
        ],
    }
)
STREAMED = REQUEST[:-1] + b',"stream":true}'
_TEXT = "The move is on Friday; Dana ordered the van. " * 10
ANSWER = msgspec.json.encode(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "bench",
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": _TEXT}, "finish_reason": "stop"}
        ],
        "usage": {"prompt_tokens": 200, "completion_tokens": 90, "total_tokens": 290},
    }
)
EVENTS = [
    b"data: "
    + msgspec.json.encode({"id": "c", "choices": [{"index": 0, "delta": {"content": word + " "}}]})
    + b"\n\n"
    for word in _TEXT.split()
] + [b'data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n']


async def upstream(scope: Any, receive: Any, send: Any) -> None:
    """Answers every chat at once; streams one event for each word."""
    body = (await receive()).get("body", b"")
    if b'"stream":true' not in body:
        head = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(ANSWER))]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": ANSWER})
        return
    head = [(b"content-type", b"text/event-stream")]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    for event in EVENTS:
        await send({"type": "http.response.body", "body": event, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


def serve_upstream() -> None:
    """The upstream's process."""
    from granian.constants import Interfaces

    from whet.serve.app import _Embedded, event_loop, listen

    bound = listen("127.0.0.1", 0)
    print(bound.getsockname()[1], flush=True)
    with asyncio.Runner(loop_factory=event_loop) as runner:
        runner.run(_Embedded(upstream, bound).serve())
    assert Interfaces


def serve_gateway(store: str, url: str) -> None:
    """The gateway's process; prints its CPU seconds and what it recorded when it is told to end."""
    import threading

    from whet.serve import Access, Role, Server, run
    from whet.serve.gateway import Gateway, Upstream

    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    signal.signal(signal.SIGUSR1, lambda *_: print(sum(os.times()[:2]), flush=True))
    with Store(store, serve=True) as opened:
        gateway = Gateway(opened, {"bench": Upstream(url=url)})
        server = Server(Access({Role.WRITE: TOKEN}), [gateway])
        run(server, stopped, lambda url: print(url.rpartition(":")[2], flush=True))
        print(gateway.recorder.recorded, gateway.recorder.lost, flush=True)


class Connection:
    """One kept connection that sends one prepared request."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, message: bytes) -> None:
        self._reader, self._writer, self._message = reader, writer, message

    @classmethod
    async def open(cls, port: int, path: str, body: bytes) -> Connection:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = (
            f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        )
        return cls(reader, writer, head.encode() + body)

    async def ask(self) -> float:
        """Seconds until the first byte of the body."""
        started = time.perf_counter()
        self._writer.write(self._message)
        head = await self._reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise SystemExit(f"not answered: {head!r}")
        length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
        if length:
            await self._reader.readexactly(int(length))
            return time.perf_counter() - started
        first = 0.0
        while size := int(await self._reader.readuntil(b"\r\n"), 16):
            await self._reader.readexactly(size + 2)
            first = first or time.perf_counter() - started
        await self._reader.readexactly(2)
        return first

    def close(self) -> None:
        self._writer.close()


async def latency(ports: tuple[int, int], count: int, body: bytes) -> tuple[list[float], list[float]]:
    """Seconds of each request, direct and through the gateway, taken in turn."""
    direct = await Connection.open(ports[0], "/v1/chat/completions", body)
    through = await Connection.open(ports[1], f"/run/one/{TOKEN}/v1/chat/completions", body)
    found: tuple[list[float], list[float]] = ([], [])
    for number in range(count + 100):
        pair = (await direct.ask(), await through.ask())
        if number >= 100:  # the first ones warm both up
            for times, seconds in zip(found, pair, strict=True):
                times.append(seconds)
    direct.close()
    through.close()
    return found


async def throughput(open_one: Callable[[int], Awaitable[Connection]], seconds: float) -> float:
    """Requests a second with all clients at once."""
    connections = [await open_one(number) for number in range(CLIENTS)]
    done = 0
    end = time.perf_counter() + seconds

    async def work(connection: Connection) -> None:
        nonlocal done
        while time.perf_counter() < end:
            await connection.ask()
            done += 1

    started = time.perf_counter()
    await asyncio.gather(*(work(connection) for connection in connections))
    spent = time.perf_counter() - started
    for connection in connections:
        connection.close()
    return done / spent


def start(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, __file__, *words], stdout=subprocess.PIPE, text=True)


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def percentile(values: list[float], share: float) -> float:
    return statistics.quantiles(values, n=1000)[int(share * 1000) - 1]


def cpu(process: subprocess.Popen[str]) -> float:
    process.send_signal(signal.SIGUSR1)
    return float(line(process))


def report(name: str, times: tuple[list[float], list[float]]) -> None:
    direct, through = times
    added = [b - a for a, b in zip(direct, through, strict=True)]
    print(
        f"{name:34} direct p50 {1e3 * percentile(direct, 0.5):6.2f} ms p99 {1e3 * percentile(direct, 0.99):6.2f}, "
        f"through {1e3 * percentile(through, 0.5):6.2f} / {1e3 * percentile(through, 0.99):6.2f}, "
        f"added p50 {1e3 * percentile(added, 0.5):5.2f} ms p99 {1e3 * percentile(added, 0.99):5.2f} ms"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2_000, help="requests for each latency figure")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each throughput figure")
    parser.add_argument("--folder", type=Path, help="where the store lies; its disk decides the commit")
    parser.add_argument("--part", nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.part:
        serve_upstream() if given.part[0] == "upstream" else serve_gateway(*given.part[1:])
        return
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        store = str(Path(folder) / "runs.db")
        behind = start("--part", "upstream")
        ports = [int(line(behind))]
        gateway = start("--part", "gateway", store, f"http://127.0.0.1:{ports[0]}/v1")
        try:
            ports.append(int(line(gateway)))
            measure((ports[0], ports[1]), gateway, given.count, given.seconds)
            gateway.terminate()
            recorded, lost = map(int, line(gateway).split())
            with Store(store) as opened:
                kept = opened.count("spans")
            print(f"{recorded:,} calls recorded, {lost} lost, {kept:,} in the store")
        finally:
            for process in (gateway, behind):
                process.kill()
                process.wait()


def measure(ports: tuple[int, int], gateway: subprocess.Popen[str], count: int, seconds: float) -> None:
    """Print the table."""
    report("1 client, 1.5 kB", asyncio.run(latency(ports, count, REQUEST)))
    report("1 client, streamed, first event", asyncio.run(latency(ports, count // 4, STREAMED)))
    for name, body in (("plain", REQUEST), ("streamed, 90 events", STREAMED)):

        async def direct(number: int, body: bytes = body) -> Connection:
            return await Connection.open(ports[0], "/v1/chat/completions", body)

        async def through(number: int, body: bytes = body) -> Connection:
            return await Connection.open(ports[1], f"/run/{number}/{TOKEN}/v1/chat/completions", body)

        bare = asyncio.run(throughput(direct, seconds / 2))
        before = cpu(gateway)
        rate = asyncio.run(throughput(through, seconds))
        used = (cpu(gateway) - before) / (rate * seconds)
        print(
            f"{CLIENTS} clients, {name:22} direct {bare:8,.0f} /s, through {rate:8,.0f} /s; "
            f"{1e6 * used:6.0f} us of the gateway's CPU each: {1 / used:6,.0f} /s a core"
        )


if __name__ == "__main__":
    main()
