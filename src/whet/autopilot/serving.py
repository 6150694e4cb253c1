"""The autopilot as a child of a server: started, started again when it dies, ended with it, and seen in its health.

The child is `whet autopilot`, a process of its own: what it computes delays nobody who is served, and its death ends
nothing.  Whether it may work, what it asks and what it did are in the record, which both read.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Literal

from ..record.store import Store
from .night import began_anew, stopped

_PARENT = "WHET_AUTOPILOT_PARENT"
"""Id of the server's process, in the environment of its autopilot."""
_LOOK = 0.5
"""Seconds between two looks at the child, the switch, or the parent."""
_FIRST, _LONGEST = 1.0, 300.0
"""Seconds before it is started again, doubled with each death in a row up to the longest."""
_HEALTHY = 60.0
"""Seconds of life after which a death is the first of a row again."""
_LAST_WORDS = 8.0
"""Seconds between the request to end and the kill."""

State = Literal["starting", "running", "restarting", "stopped", "over", "ended"]


def ends_with_its_server() -> None:
    """End this process once the server that started it is gone; without one, do nothing."""
    parent = os.environ.get(_PARENT)
    if parent is None:
        return

    def watch() -> None:
        while os.getppid() == int(parent):
            time.sleep(_LOOK)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_LAST_WORDS)
        # A step that computes hears no signal; what it has written stands.
        os._exit(1)

    threading.Thread(target=watch, name="whet-parent", daemon=True).start()


class PilotProcess:
    """The server's autopilot.

    Args:
        store: the server's record, in a file.
        words: options of `whet autopilot`, the agent among them.
    """

    def __init__(self, store: Store, words: Sequence[str]) -> None:
        self._store = store
        self._command = [sys.executable, "-m", "whet", "autopilot", f"--store={store.path}", *words]
        self._process: subprocess.Popen[bytes] | None = None
        self.state: State = "starting"
        """restarting: after a death; stopped: by the switch; over: the night is; ended: with the server."""
        self.restarts = 0
        """Times it died and was started again."""
        self.exit_code: int | None = None
        """Of its last death; None if it never died."""

    @property
    def pid(self) -> int | None:
        """Of the child that runs now."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    async def supervise(self) -> None:
        """Keep it running until this is cancelled, which ends it."""
        deaths, over_at = 0, 0.0
        try:
            while True:
                if await asyncio.to_thread(stopped, self._store):
                    self.state = "stopped"
                elif self.state != "over" or await asyncio.to_thread(began_anew, self._store, over_at):
                    began = time.monotonic()
                    code = await self._lived()
                    if code == 0:
                        self.state, over_at, deaths = "over", time.time(), 0
                        continue
                    deaths = 1 if time.monotonic() - began >= _HEALTHY else deaths + 1
                    self.state, self.exit_code = "restarting", code
                    await asyncio.sleep(min(_LONGEST, _FIRST * 2 ** min(deaths - 1, 16)))
                    self.restarts += 1
                    continue
                await asyncio.sleep(_LOOK)
        finally:
            self.state = "ended"
            await asyncio.shield(asyncio.to_thread(self._end))

    async def _lived(self) -> int:
        """Start it, wait for its end, and return its exit code."""
        environment = {**os.environ, _PARENT: str(os.getpid())}
        # In a session of its own: Ctrl-C in the server's terminal is the server's to pass on.
        self._process = subprocess.Popen(
            self._command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.state = "running"
        while (code := self._process.poll()) is None:
            await asyncio.sleep(_LOOK)
        return code

    def _end(self) -> None:
        process = self._process
        if process is None or process.poll() is not None:
            return
        process.terminate()
        try:
            process.wait(_LAST_WORDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
