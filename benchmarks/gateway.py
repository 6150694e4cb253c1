"""What the gateway adds to a model call beside a bare proxy, and how many it carries.

Run: python benchmarks/gateway.py [--chats FILE]

Processes on this machine: an upstream that answers at once, whet's server with the gateway, its record and
its assembler on a store on disk, one more of these whose answers wait for the commit, a bare proxy, and this client.
The bare proxy has the same libraries (aiohttp's server and client, uvloop) and forwards bytes: it reads and records
nothing.  Latency is taken one request at a time, by each way in turn; CPU over repetitions that alternate
between the two, all threads and the kernel's part included.  --chats takes the requests from recorded conversations, as
`[{"traj": [messages of the chat API]}]`.
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
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from aiohttp import web

from whet.record.store import Store

TOKEN = "only-for-timing-and-in-no-text"
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
WAYS = ("direct", "bare proxy", "gateway", "gateway, durable")
PATHS = ("/v1/chat/completions", *["/run/{run}/" + TOKEN + "/v1/chat/completions"] * 3)
CALLS = 8
"""Calls of one run, as an agent makes them."""
EVENTS = [
    b"data: "
    + msgspec.json.encode({"id": "c", "choices": [{"index": 0, "delta": {"content": word + " "}}]})
    + b"\n\n"
    for word in _TEXT.split()
] + [b'data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n']


Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


def serve(handler: Callable[[], Handler]) -> None:
    """Serve on a free port, which is printed, until it is killed; `handler` is made in the loop."""
    from whet.serve.app import event_loop, listen

    async def forever() -> None:
        bound = listen("127.0.0.1", 0)
        server = web.Server(handler(), access_log=None)
        await asyncio.get_running_loop().create_server(server, sock=bound)
        print(bound.getsockname()[1], flush=True)
        await asyncio.Event().wait()

    with asyncio.Runner(loop_factory=event_loop) as runner:
        runner.run(forever())


def serve_bare(target: str) -> None:
    """The bare proxy's process: it forwards a request and its answer as bytes."""
    signal.signal(signal.SIGUSR1, lambda *_: print(sum(os.times()[:2]), flush=True))

    def proxy() -> Handler:
        connector = aiohttp.TCPConnector(limit=0)
        session = aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None))

        async def forward(request: web.BaseRequest) -> web.StreamResponse:
            body = await request.content.read()
            kept = ("content-type", "authorization")
            headers = {name: request.headers[name] for name in kept if name in request.headers}
            path = request.path[request.path.index("/v1") + 3 :]
            async with session.post(target + path, data=body, headers=headers) as answer:
                passed = ("Content-Type", "Content-Length")
                outgoing = {name: answer.headers[name] for name in passed if name in answer.headers}
                response = web.StreamResponse(status=answer.status, headers=outgoing)
                await response.prepare(request)
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
                return response

        return forward

    serve(proxy)


async def upstream(request: web.BaseRequest) -> web.StreamResponse:
    """Answers every chat at once; streams one event for each word."""
    body = await request.content.read()
    if b'"stream":true' not in body:
        return web.Response(body=ANSWER, content_type="application/json")
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    for event in EVENTS:
        await response.write(event)
    return response


def serve_upstream() -> None:
    """The upstream's process."""
    serve(lambda: upstream)


def serve_gateway(store: str, url: str, durable: str) -> None:
    """The gateway's process; prints its CPU seconds and what it recorded when it is told to end."""
    import threading

    from whet.serve import Access, Role, Server, run, standard
    from whet.serve.gateway import Gateway, Upstream

    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    signal.signal(signal.SIGUSR1, lambda *_: print(sum(os.times()[:2]), flush=True))
    with Store(store, serve=True) as opened:
        parts = standard(opened, upstreams={"bench": Upstream(url=url)}, durable_calls=durable == "durable")
        (gateway,) = (part for part in parts if isinstance(part, Gateway))
        server = Server(Access({Role.WRITE: TOKEN}), parts)
        run(server, stopped, lambda url: print(url.rpartition(":")[2], flush=True))
        print(gateway.recorder.recorded, gateway.recorder.lost, flush=True)


class Connection:
    """One kept connection that sends one prepared request."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str, head: str, body: bytes
    ) -> None:
        self._reader, self._writer = reader, writer
        self._path, self._head, self._body = path, head, body
        self._message, self._asked = b"", 0

    @classmethod
    async def open(cls, port: int, path: str, body: bytes) -> Connection:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = (
            f" HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        )
        return cls(reader, writer, path, head, body)

    async def ask(self) -> float:
        """Seconds until the first byte of the body."""
        if self._asked % CALLS == 0:
            run = f"{id(self):x}-{time.time_ns():x}"
            self._message = f"POST {self._path.format(run=run)}{self._head}".encode() + self._body
        self._asked += 1
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


async def latency(ports: Sequence[int], count: int, bodies: Sequence[bytes]) -> list[list[float]]:
    """Seconds of each request by each way, taken in turn."""
    times: list[list[float]] = [[] for _ in ports]
    for body in bodies:
        ways = [await Connection.open(port, PATHS[place], body) for place, port in enumerate(ports)]
        for number in range(count // len(bodies) + 20):
            for way, seconds in zip(ways, times, strict=True):
                taken = await way.ask()
                if number >= 20:  # the first ones warm all of them up
                    seconds.append(taken)
        for way in ways:
            way.close()
    return times


async def load(port: int, path: str, bodies: Sequence[bytes], requests: int) -> float:
    """Requests a second, with all clients at once."""
    connections = [await Connection.open(port, path, bodies[n % len(bodies)]) for n in range(CLIENTS)]

    async def work(connection: Connection) -> None:
        for _ in range(requests // CLIENTS):
            await connection.ask()

    started = time.perf_counter()
    await asyncio.gather(*(work(connection) for connection in connections))
    spent = time.perf_counter() - started
    for connection in connections:
        connection.close()
    return requests // CLIENTS * CLIENTS / spent


def start(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, __file__, "--part", *words], stdout=subprocess.PIPE, text=True)


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def percentile(values: list[float], share: float) -> float:
    return statistics.quantiles(values, n=1000)[int(share * 1000) - 1]


def cpu(process: subprocess.Popen[str]) -> float:
    process.send_signal(signal.SIGUSR1)
    return float(line(process))


def report(name: str, times: Sequence[list[float]]) -> None:
    """Each way's latency, and what it adds to the direct one."""
    for way, seconds in zip(WAYS, times, strict=True):
        added = [through - direct for direct, through in zip(times[0], seconds, strict=True)]
        print(
            f"{name:22} {way:16} p50 {1e3 * percentile(seconds, 0.5):6.2f} ms p99"
            f" {1e3 * percentile(seconds, 0.99):6.2f}   adds p50 {1e3 * percentile(added, 0.5):5.2f} ms"
            f" p99 {1e3 * percentile(added, 0.99):5.2f} ms"
        )


def conversations(file: Path) -> list[bytes]:
    """Requests of real chats: each one up to a turn of the agent, a quarter, half and all of the way."""
    chats = [chat["traj"] for chat in msgspec.json.decode(file.read_bytes())][:CLIENTS]
    bodies = []
    for number, turns in enumerate(chats):
        taken = turns[: max(2, len(turns) * (1 + number % 4) // 4)]
        bodies.append(msgspec.json.encode({"model": "bench", "temperature": 0.0, "messages": taken}))
    return bodies


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2_000, help="requests for each latency figure")
    parser.add_argument("--requests", type=int, default=2_000, help="in each repetition of a CPU figure")
    parser.add_argument("--repeat", type=int, default=7, help="repetitions by each way")
    parser.add_argument("--chats", type=Path, help="recorded conversations to take requests from")
    parser.add_argument("--folder", type=Path, help="where the store lies; its disk decides the commit")
    parser.add_argument("--part", nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.part:
        parts: dict[str, Callable[..., None]] = {
            "upstream": serve_upstream,
            "bare": serve_bare,
            "gateway": serve_gateway,
        }
        parts[given.part[0]](*given.part[1:])
        return
    bodies = conversations(given.chats) if given.chats else [REQUEST]
    print(f"requests of {min(map(len, bodies)):,} to {max(map(len, bodies)):,} bytes")
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        behind = start("upstream")
        target = f"http://127.0.0.1:{line(behind)}/v1"
        stores = [str(Path(folder) / name) for name in ("runs.db", "durable.db")]
        proxy = start("bare", target)
        gateway, durable = (
            start("gateway", store, target, how)
            for store, how in zip(stores, ("fast", "durable"), strict=True)
        )
        processes = (behind, proxy, gateway, durable)
        try:
            ports = [
                int(target.split(":")[2].partition("/")[0]),
                *(int(line(each)) for each in processes[1:]),
            ]
            measure(ports, processes, bodies, given)
            for process, store in ((gateway, stores[0]), (durable, stores[1])):
                process.terminate()
                recorded, lost = map(int, line(process).split())
                with Store(store) as opened:
                    print(f"{recorded:,} calls recorded, {lost} lost, {opened.count('spans'):,} in the store")
        finally:
            for process in processes:
                process.kill()
                process.wait()


def measure(
    ports: Sequence[int], processes: Sequence[subprocess.Popen[str]], bodies: Sequence[bytes], given: Any
) -> None:
    """Print the table."""
    streamed = [body[:-1] + b',"stream":true}' for body in bodies]
    report("whole", asyncio.run(latency(ports, given.count, bodies)))
    report("streamed, first event", asyncio.run(latency(ports, given.count // 4, streamed)))
    for name, sent, requests in (
        ("whole", bodies, given.requests),
        ("streamed", streamed, given.requests // 4),
    ):
        used: list[list[float]] = [[] for _ in WAYS]
        rates: list[list[float]] = [[] for _ in WAYS]
        for repetition in range(given.repeat + 1):
            for way in (1, 2, 3):
                before = cpu(processes[way])
                rates[way].append(asyncio.run(load(ports[way], PATHS[way], sent, requests)))
                time.sleep(0.3)  # what it still has to write and to assemble is its CPU too
                if repetition:  # the first warms up
                    used[way].append((cpu(processes[way]) - before) / requests)
        for way in (1, 2, 3):
            ratios = [mine / bare for mine, bare in zip(used[way], used[1], strict=True)]
            print(
                f"{CLIENTS} clients, {name:10} {WAYS[way]:16} {statistics.median(rates[way]):7,.0f} /s   CPU "
                f"{1e6 * statistics.median(used[way]):6.0f} us each, {statistics.median(ratios):4.2f} of the bare one's"
            )


if __name__ == "__main__":
    main()
