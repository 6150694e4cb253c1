"""An agent's own process, and the line to it: its entry is called there, one input after the other.

The other end of the line is `agent_process.py`, which imports nothing of whet.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from ....record.faults import fault_by
from ....sandbox.shut import Shut
from ....types import Fault, Json
from .forking import AgentZygote, ForkedAgent

Asked = Callable[[str, list[Json], dict[str, Json], dict[str, Json] | None], Awaitable[dict[str, Json]]]
"""The answer to what the agent asks of this side: a name, arguments, keywords, and a method's state of its object."""
_ENDING_SECONDS = 1.0
"""That an agent which has closed its connection may take to end by itself; it is killed then."""


class AgentProcessEnded(Exception):
    """The agent's process is over, or was killed because its line was; says what it printed last.

    Args:
        code: with which it ended; None where it was killed.
    """

    def __init__(self, code: int | None, printed: str) -> None:
        how = (
            f"ended with code {code}"
            if code is not None
            else "broke its connection, did not end, and was killed"
        )
        super().__init__(f"the agent's process {how}: {printed}")
        self.code = code


class AgentProcess:
    """A process that imports an entry once and calls it; started by the first call, and again after an end.

    Args:
        entry: `module:qualname`.
        folder: in which it runs.
        environment: its whole environment.
        port: of 127.0.0.1: shut in, it reaches nothing but this, and changes nothing (`sandbox/shut.py`); None runs it
            as its owner does.
        zygote: forks it, where it can; not one that is shut in.
    """

    def __init__(
        self,
        entry: str,
        folder: Path,
        environment: Mapping[str, str],
        *,
        port: int | None = None,
        zygote: AgentZygote | None = None,
    ) -> None:
        self._entry, self._folder, self._environment = entry, folder, dict(environment)
        self._zygote = zygote
        self._shut = None if port is None else Shut(folder, port=port)
        self._process: subprocess.Popen[bytes] | ForkedAgent | None = None
        self._stderr: BinaryIO | None = None

    async def call(
        self, positional: Json, keywords: Json, made: Json = None, *, asked: Asked | None = None
    ) -> dict[str, Any]:
        """The entry's answer: `{"value": ...}`, or `{"raised", "message", "faults"}` of an exception.

        Args:
            made: what a method's instance is made with.
            asked: answers what the agent asks of this side meanwhile.

        Raises:
            AgentProcessEnded: it has ended, or what it said cannot be read.
        """
        try:
            if self._process is None:
                await self._start()
            return await self._answered({"args": positional, "kwargs": keywords, "made": made or {}}, asked)
        except (ConnectionError, ValueError) as error:
            raise await self._ended() from error

    async def helper(
        self, entry: str, args: Sequence[Json], kwargs: Mapping[str, Json], *, asked: Asked
    ) -> dict[str, Any]:
        """The answer of another function of the agent, while it waits for one of `asked`; as of `call`.

        Raises:
            AgentProcessEnded: it has ended, or what it said cannot be read.
        """
        try:
            return await self._answered(
                {"helper": entry, "args": list(args), "kwargs": dict(kwargs), "made": {}}, asked
            )
        except (ConnectionError, ValueError) as error:
            raise await self._ended() from error

    async def _answered(self, message: dict[str, Json], asked: Asked | None) -> dict[str, Any]:
        self._say(message)
        while True:
            line = await self._reader.readline()
            if not line:
                raise await self._ended()
            heard: dict[str, Any] = json.loads(line)
            if "ask" not in heard or asked is None:
                return heard
            self._say(await asked(heard["ask"], heard["args"], heard["kwargs"], heard["state"]))

    async def _start(self) -> None:
        ours, theirs = socket.socketpair()
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  closed by end
        try:
            # Closed here once it is inherited: while this process holds it, no end of the other is seen.
            with theirs:
                self._process = await self._forked(theirs) or self._started(theirs)
        except BaseException:
            ours.close()
            raise
        if self._shut is not None:
            self._shut.started()
        ours.setblocking(False)
        # Above the limit, by default 64 KiB, `readline` raises a ValueError.
        self._reader, self._writer = await asyncio.open_connection(sock=ours, limit=64 << 20)

    async def _forked(self, line: socket.socket) -> ForkedAgent | None:
        if self._zygote is None or self._stderr is None:
            return None
        return await self._zygote.fork(self._entry, self._folder, self._environment, line, self._stderr)

    def _started(self, line: socket.socket) -> subprocess.Popen[bytes]:
        text = Path(__file__).with_name("agent_process.py").read_text(encoding="utf-8")
        words, inherited = [str(line.fileno()), self._entry], [line.fileno()]
        command = [sys.executable, "-c", text, *words]
        if self._shut is not None:
            command = self._shut.command(text, words)
            inherited += self._shut.descriptors
        return subprocess.Popen(
            command,
            cwd=self._folder,
            env=self._environment,
            pass_fds=inherited,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._stderr,
            start_new_session=True,  # so that killpg ends all that the agent started
        )

    def _say(self, message: dict[str, Json]) -> None:
        self._writer.write(json.dumps(message).encode() + b"\n")

    async def _ended(self) -> AgentProcessEnded:
        """The end of a process whose connection is over; of one that lives on, too."""
        code = await self._code()
        printed = b""
        if self._stderr is not None:
            self._stderr.seek(0)
            printed = self._stderr.read()[-1500:]
        self.end()
        return AgentProcessEnded(code, printed.decode("utf-8", "replace").strip())

    async def _code(self) -> int | None:
        """The exit code of the process; None for one that goes on, which nobody may wait for."""
        deadline = time.monotonic() + _ENDING_SECONDS
        while self._process is not None:
            code = self._process.poll()
            if code is not None:
                return code
            if time.monotonic() >= deadline:
                return None
            await asyncio.sleep(0.01)
        return 0

    def end(self) -> None:
        """End the process with all that it started."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None
            self._writer.transport.abort()
            if self._shut is not None:
                self._shut.end()
        if self._stderr is not None:
            self._stderr.close()
            self._stderr = None


def fault_of_raised(message: Mapping[str, Any]) -> Fault:
    """The fault behind what the entry raised (`AgentProcess.call`): a machine's, where one of the chain is."""
    for error in message["faults"]:
        fault = fault_by([tuple(kind) for kind in error["kinds"]], error["status"])
        if fault is not Fault.AGENT:
            return fault
    return Fault.AGENT
