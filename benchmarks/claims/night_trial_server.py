"""The processes of `night-trial`'s shadows: an endpoint that answers, one that misbehaves, and a gateway before both.

    python night_trial_server.py endpoint|mischief
    python night_trial_server.py gateway STORE ENDPOINT MISCHIEF

Each prints its address and serves until its standard input ends.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
import threading

TOKEN = "night-trial"
ENDLESS = b"y" * 65_536


async def endpoint() -> None:
    """Chat completions whose bytes follow from the request alone; a system prompt names what goes wrong."""
    server = await asyncio.start_server(_connection, "127.0.0.1", 0, limit=2**20)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    await asyncio.to_thread(sys.stdin.read)


async def _connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            fields = {
                name.lower(): text.strip()
                for name, _, text in (line.partition(":") for line in head.decode("latin-1").split("\r\n"))
            }
            body = json.loads(await reader.readexactly(int(fields.get("content-length", 0))))
            if not await _answer(writer, body):
                break
    except (asyncio.IncompleteReadError, ConnectionError, ValueError):
        pass
    finally:
        writer.close()


async def _answer(writer: asyncio.StreamWriter, body: dict) -> bool:  # type: ignore[type-arg]
    first = body["messages"][0]
    mischief = first["content"] if first["role"] == "system" else ""
    if "provider" in json.dumps(body.get("tools") or ""):
        print("RAN A TOOL OF THE PROVIDER", file=sys.stderr, flush=True)
    if mischief == "crash":
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{")
        return False
    if mischief == "hang":
        await asyncio.sleep(3_600)
    if mischief == "garbage":
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + b"\x00\xff{{data: [" * 4_000
        )
        return False
    if mischief in ("memory", "descriptors"):
        # Of descriptors: each call leaves a connection open that neither ends nor says anything more.
        size = "" if mischief == "memory" else "content-length: 1000000\r\n"
        writer.write(f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n{size}\r\n".encode())
        for _ in range(4_000 if mischief == "memory" else 1):
            writer.write(ENDLESS)
            await writer.drain()
        await asyncio.sleep(0 if mischief == "memory" else 3_600)
        return False
    writer.write(payload(body, tools=mischief == "tools"))
    await writer.drain()
    return True


def payload(body: dict, *, tools: bool) -> bytes:  # type: ignore[type-arg]
    text = hashlib.sha256(json.dumps(body["messages"]).encode()).hexdigest()
    message: dict[str, object] = {"role": "assistant", "content": text}
    if tools:
        call = {"name": "delete_everything", "arguments": "{}"}
        message = {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c", "type": "function", "function": call}],
        }
    if body.get("stream"):
        lines = [
            {
                "id": "s",
                "object": "chat.completion.chunk",
                "choices": [{"index": 0, "delta": {"content": part}}],
            }
            for part in (text[:30], text[30:])
        ]
        lines[-1]["choices"][0]["finish_reason"] = "stop"  # type: ignore[index]
        events = (
            b"".join(b"data: " + json.dumps(line).encode() + b"\n\n" for line in lines) + b"data: [DONE]\n\n"
        )
        kind = b"text/event-stream"
    else:
        answer = {
            "id": "c",
            "object": "chat.completion",
            "model": "m",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 5, "completion_tokens": 9, "total_tokens": 14},
        }
        events, kind = json.dumps(answer).encode(), b"application/json"
    return b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n%b" % (
        kind,
        len(events),
        events,
    )


def gateway(path: str, good: str, evil: str) -> None:
    """`whet serve`'s gateway with two upstreams."""
    from whet.record.store import Store
    from whet.serve import Access, Role, Server, run, standard
    from whet.serve.gateway import Upstream
    from whet.serve.gateway.mirror_wire import MirrorLimits

    stopped = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), stopped.set()), daemon=True).start()
    with Store(path, serve=True) as store:
        upstreams = {"good": Upstream(url=good), "evil": Upstream(url=evil)}
        limits = MirrorLimits(calls=None, seconds=2.0, concurrency=8)
        parts = standard(store, upstreams=upstreams, shadow_limits=limits)
        access = Access({Role.ADMIN: TOKEN})
        run(Server(access, parts), stopped, lambda url: print(url, flush=True))


if __name__ == "__main__":
    if sys.argv[1] == "mischief":
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))  # it stands for another machine
    if sys.argv[1] in ("endpoint", "mischief"):
        asyncio.run(endpoint())
    else:
        gateway(*sys.argv[2:])
