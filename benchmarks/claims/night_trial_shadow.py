"""Requests through a gateway, in blocks with shadows and without: bytes, status and times.

Six candidates stand in every second block, each of which answers every call: one crashes, one hangs, one streams
garbage, one floods memory, one leaves descriptors open, one calls a tool.  Meanwhile the process that asks them is
killed and stopped (SIGSTOP) now and then.  The endpoint's answers follow from the request alone, so what is right is
known; the agent runs the tools that its answers name, and counts them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
from newcomers_shell import Noted
from night_trial_server import TOKEN, payload

from whet.record.store import Stage, Store
from whet.types import Bundle, Version

MISCHIEF = ("crash", "hang", "garbage", "memory", "descriptors", "tools")
BLOCK = 100
HEADERS = {"authorization": f"Bearer {TOKEN}"}


@contextlib.contextmanager
def _process(errors: Path, *words: str) -> Iterator[tuple[int, str]]:
    """Its pid, and the address that it prints."""
    program = Path(__file__).with_name("night_trial_server.py")
    with errors.open("w") as stderr:
        process = subprocess.Popen(
            [sys.executable, str(program), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
    assert process.stdout is not None
    try:
        yield process.pid, process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait(20)


def shadows(folder: Path, *, seed: int, requests: int) -> Noted:
    """Serve, ask, and compare."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "shadow.db"
    for old in folder.glob("shadow.db*"):
        old.unlink()
    errors = [folder / f"{name}.log" for name in ("good", "evil", "server")]
    with (
        _process(errors[0], "endpoint") as (_, good),
        _process(errors[1], "mischief") as (_, evil),
        _process(errors[2], "gateway", str(path), good, evil) as (server, url),
        Store(path) as store,
    ):
        asked = asyncio.run(_ask(url, store, server, requests, seed))
    ran = errors[1].read_text().count("RAN A TOOL")
    off, on = (sorted(asked[f"{name} seconds"]) for name in ("off", "on"))
    p99 = [times[int(0.99 * len(times))] * 1000 for times in (off, on)]
    added = p99[1] - p99[0]
    status = asked["status"]
    return Noted(
        f"{requests:,} requests, half of them with six shadows",
        {
            "wrong bytes or status": f"{asked['wrong']}",
            "p50 without, with, ms": f"{statistics.median(off) * 1000:.2f}, {statistics.median(on) * 1000:.2f}",
            "p99 without, with, ms": f"{p99[0]:.2f}, {p99[1]:.2f}",
            "added p99, ms": f"{added:+.2f}",
            "mirrored, dropped": f"{status.get('mirrored', 0):,}, {status.get('dropped', 0):,}",
            "shadow runs recorded": f"{status.get('recorded', 0):,}",
            "shadows answered, failed": f"{status.get('answered', 0):,}, {status.get('failed', 0):,}",
            "mirror died": f"{status.get('deaths', 0)}",
            "tools run, of the agent, of the provider": f"{asked['tools']}, {ran}",
        },
        {
            "bytes and status equal": asked["wrong"] == 0,
            "added p99 ≤ 2 ms": added <= 2.0,
            "no effect on any tool": asked["tools"] == 0 and ran == 0,
            "shadows were asked": status.get("answered", 0) > 0 and status.get("failed", 0) > 0,
            "the mirror was killed and came back": status.get("deaths", 0) >= 2,
        },
    )


async def _ask(url: str, store: Store, server: int, requests: int, seed: int) -> dict[str, Any]:
    asked: dict[str, Any] = {"on seconds": [], "off seconds": [], "wrong": 0, "tools": 0}
    async with aiohttp.ClientSession(headers=HEADERS) as session:
        for number in range(200):  # until it is warm
            await _one(session, url, number, asked, "warm", seed)
        stopped: int | None = None
        for block in range(requests // BLOCK):
            name = ("off", "on")[block % 2]
            trials = _stand(store) if name == "on" else []
            await asyncio.sleep(1.2)  # until the gateway has seen it, and its process has started
            for number in range(BLOCK):
                await _one(session, url, block * BLOCK + number, asked, name, seed)
                if name == "on" and number == BLOCK // 2 and (mirror := _mirror(server)) is not None:
                    if block % 20 == 7:
                        os.kill(mirror, signal.SIGKILL)
                    elif block % 20 == 15:
                        os.kill(mirror, signal.SIGSTOP)
                        stopped = mirror
            for trial in trials:
                store.retire(trial)
            if stopped is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(stopped, signal.SIGCONT)
                stopped = None
        await asyncio.sleep(3.0)
        async with session.get(f"{url}/api/gateway") as answer:
            asked["status"] = (await answer.json())["shadows"]
    return asked


def _stand(store: Store) -> list[str]:
    return [
        store.release(
            Bundle(
                [
                    Version(resource="gateway.system_prompt", content=mischief),
                    Version(resource="gateway.route", content={"upstream": "evil"}),
                ]
            ),
            stage=Stage.SHADOW,
            new_names=True,
        ).trial
        for mischief in MISCHIEF
    ]


async def _one(
    session: aiohttp.ClientSession, url: str, number: int, asked: dict[str, Any], name: str, seed: int
) -> None:
    body: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": f"{seed} {number}"}]}
    if number % 3 == 0:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    if number % 7 == 0:
        body["tools"] = [{"type": "provider_search"}]
    right = payload(body, tools=False).partition(b"\r\n\r\n")[2]
    began = time.perf_counter()
    async with session.post(f"{url}/v1/chat/completions", json=body) as answer:
        got = await answer.read()
    asked.setdefault(f"{name} seconds", []).append(time.perf_counter() - began)
    asked["wrong"] += answer.status != 200 or got != right
    if not body.get("stream"):
        calls = json.loads(got)["choices"][0]["message"].get("tool_calls") or ()
        asked["tools"] += len(calls)


def _mirror(server: int) -> int | None:
    """The process that asks the shadows, of this server."""
    for children in Path(f"/proc/{server}/task").glob("*/children"):
        for child in children.read_text().split():
            if b"mirror_process" in Path(f"/proc/{child}/cmdline").read_bytes():
                return int(child)
    return None
