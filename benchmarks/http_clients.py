"""Per-request overhead of the HTTP clients that could sit under OpenAIModel, on loopback.

    python benchmarks/http_clients.py [--requests 400] [--rounds 5]

The server is a bare asyncio socket in a process of its own, so the CPU-seconds are the client's
alone.  Clients take turns within each round, because the machine's load drifts.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from typing import Any

ANSWER = (
    b'{"choices": [{"message": {"content": "fine"}}], "usage": {"prompt_tokens": 5, "completion_tokens": 1}}'
)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
BODY = b'{"model": "m", "messages": [{"role": "user", "content": "' + b"x" * 1000 + b'"}]}'


async def serve() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
                await reader.readexactly(length)
                writer.write(HEAD % len(ANSWER) + ANSWER)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def measure(name: str, url: str, requests: int, clients: int) -> tuple[float, float]:
    """(requests per second, client CPU-microseconds per request)."""
    module: Any = __import__(name)
    async with module.AsyncClient(trust_env=False) as client:

        async def ask(count: int) -> None:
            for _ in range(count):
                response = await client.post(url, content=BODY)
                assert response.status_code == 200
                json.loads(response.content)

        await asyncio.gather(*(ask(2) for _ in range(clients)))
        wall, cpu = time.perf_counter(), time.process_time()
        await asyncio.gather(*(ask(requests // clients) for _ in range(clients)))
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return requests / wall, cpu / requests * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clients", nargs="*", default=["httpx", "httpx2"])
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve())
        return
    with subprocess.Popen([sys.executable, __file__, "--serve"], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = f"http://127.0.0.1:{server.stdout.readline().strip()}/v1/chat/completions"
        try:
            for concurrency in (1, 32):
                found: dict[str, list[tuple[float, float]]] = {name: [] for name in options.clients}
                for _ in range(options.rounds):
                    for name in options.clients:
                        found[name].append(asyncio.run(measure(name, url, options.requests, concurrency)))
                for name, figures in found.items():
                    rate, cpu = (statistics.median(column) for column in zip(*figures, strict=True))
                    print(f"{name:8} {concurrency:3} at once: {rate:6.0f} requests/s, {cpu:6.0f} us CPU each")
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
