"""The second process of a job, as the first one sees it: a place where stages run.

The first names the stage to run and waits for the message that it has ended; the stage's result passes
through the store, which the first process owns.  It is a fresh interpreter, not a fork: torch's and the
store's threads do not survive one.  Its own side is `second.py`.

    →  {"options": ..., "store": path, "name": job}, then {"stage": name} each time
    ←  {"ready": timing}, {"progress": [what, done, total, figures]}, {"ended": name}, {"failed": why}
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from ...learn.loop import Progress
from .stages import Lost

if TYPE_CHECKING:
    from .job import JobOptions


def cores() -> int:
    """Cores that this process may use."""
    # cpu_count is the machine's; taskset or a container's cpuset may allow fewer.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class SecondProcess:
    """The second process, seen from the first: a Place for stages.

    Args:
        progress: called with the state of the work there.
        ready: called with the row of timings of its reading the mail.
    """

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        *,
        progress: Progress,
        ready: Callable[[dict[str, Any]], None],
    ) -> None:
        self._process, self._progress, self._ready = process, progress, ready

    @classmethod
    async def start(
        cls,
        options: JobOptions,
        *,
        store: str,
        name: str,
        progress: Progress,
        ready: Callable[[dict[str, Any]], None],
    ) -> SecondProcess:
        """Start it for the job of this name; it takes some seconds to get ready."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "whet.worlds.demo.second"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            # It finds whet where this process did; and a Ctrl-C in the terminal is for this process to handle.
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            start_new_session=True,
        )
        second = cls(process, progress=progress, ready=ready)
        second._tell({"options": msgspec.to_builtins(options, enc_hook=str), "store": store, "name": name})
        return second

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    async def __call__(self, stage: str) -> None:
        """Run that stage there.

        Raises:
            Lost: the process is gone, or the stage failed: run where it can be seen, it will say why.
        """
        assert self._process.stdout is not None
        self._tell({"stage": stage})
        while line := await self._process.stdout.readline():
            match msgspec.json.decode(line):
                case {"progress": [what, done, total, figures]}:
                    # Both may be doing the same, to different ends.
                    self._progress(what if what == stage else f"{stage}: {what}", done, total, **figures)
                case {"ready": timing}:
                    self._ready(timing)
                case {"ended": name} if name == stage:
                    return
                case {"failed": why}:
                    await self.close()
                    raise Lost(f"{stage} failed in the second process ({why}); it runs again in the first")
        code = await self._process.wait()
        raise Lost(f"the second process ended with code {code}; the first goes on with {stage} alone")

    def _tell(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(message) + b"\n")  # if it is gone, reading finds out

    async def close(self) -> None:
        """End it, whatever it is doing: as the store has it, so it stays."""
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
