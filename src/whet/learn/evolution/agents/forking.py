"""Processes of an agent's candidates, forked from one that has imported already what they all begin with.

The import of an agent's packages takes a second and more of processor time, and every candidate has a process of its
own.  The other end is `agent_zygote.py`, which says what a fork takes over and when there is none.  Where there is
none, on other systems than Linux and on every doubt, a candidate's process starts by itself.
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
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from ....types import digest
from .copies import AgentCopies

_REFUSED: dict[str, str] = {}
"""Digest of an agent's folder, imports and environment → why nothing of it is forked: each search would import it in
vain once more."""
_END_SECONDS = 10.0
"""That the zygote may take to say what became of a fork that was killed, and to end itself."""


class ForkedAgent:
    """A forked process: as much of `subprocess.Popen` as its owner needs."""

    def __init__(self, pid: int, status: socket.socket, heard: bytes) -> None:
        self.pid = pid
        self._status, self._heard = status, heard
        self._code: int | None = None

    def poll(self) -> int | None:
        """Its exit code; None while it runs."""
        self._status.settimeout(0)
        return self._told()

    def wait(self) -> int:
        """Its exit code, once it has ended."""
        self._status.settimeout(_END_SECONDS)
        code = self._told()
        self._code = -signal.SIGKILL if code is None else code
        self._status.close()
        return self._code

    def _told(self) -> int | None:
        while self._code is None:
            if self._heard.endswith(b"\n"):
                self._code = int(self._heard.removeprefix(b"c"))
                break
            try:
                part = self._status.recv(64)
            except (BlockingIOError, TimeoutError):
                return None
            # At its end the zygote is gone, and nobody knows any more how this ended.
            self._heard += part or b"%d\n" % -signal.SIGKILL
        return self._code


class AgentZygote:
    """Forks candidates of one agent; started by the first of them.

    Args:
        copies: of the agent.
    """

    def __init__(self, copies: AgentCopies) -> None:
        self._copies = copies
        self.refused = "" if sys.platform == "linux" and hasattr(os, "pidfd_open") else "not on this system"
        """The reason why nothing is forked; "" without one."""
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._place: tempfile.TemporaryDirectory[str] | None = None
        self._ready = False
        self._environment: dict[str, str] = {}
        self._imports, self._known_by = "", ""
        self._lock = asyncio.Lock()

    async def fork(
        self,
        entry: str,
        folder: Path,
        environment: Mapping[str, str],
        line: socket.socket,
        errors: BinaryIO,
    ) -> ForkedAgent | None:
        """A process for a candidate; None where it has to start by itself.

        Args:
            line, errors: its socket and its standard error.
        """
        async with self._lock:  # one zygote for all that come at once
            if not self.refused and not self._ready:
                await self._start()
        if self.refused or self._control is None or not self._alike(folder, environment):
            return None
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                request = {"folder": str(folder), "path": environment["PYTHONPATH"], "entry": entry}
                passed = [line.fileno(), errors.fileno(), theirs.fileno()]
                socket.send_fds(self._control, [json.dumps(request).encode()], passed)
            ours.setblocking(False)
            heard = b""
            while b"\n" not in heard:
                part = await asyncio.get_running_loop().sock_recv(ours, 64)
                heard += part
                if not part or not heard.startswith(b"p"):
                    raise ConnectionError("there is no fork")
        except OSError as error:
            ours.close()
            self.refused = f"{error}"
            return None
        except BaseException:
            ours.close()  # the fork ends with its line, which its asker closes
            raise
        pid, _, rest = heard.partition(b"\n")
        return ForkedAgent(int(pid[1:]), ours, rest)

    async def _start(self) -> None:
        """Start the zygote if need be, and wait until it can fork, or says why not."""
        if self._control is None:
            root = self._copies.agent.repository.root
            self._known_by = digest([str(root), self._copies.imports(root), {**os.environ}])
            self.refused = _REFUSED.get(self._known_by, "")
            if self.refused:
                return
            self._launch()
        assert self._control is not None
        try:
            packet = await asyncio.get_running_loop().sock_recv(self._control, 1 << 16)
        except OSError as error:
            packet = json.dumps({"why": str(error)}).encode()
        self.refused = json.loads(packet)["why"] if packet else "it ended"
        if self.refused:
            _REFUSED[self._known_by] = self.refused
            self.end()
        self._ready = not self.refused

    def _launch(self) -> None:
        self._place = tempfile.TemporaryDirectory(prefix="whet-agent-")
        # As the zygote will name it itself.
        folder = Path(self._place.name).resolve()
        self._copies.write(folder)
        self._environment, self._imports = self._copies.environment(folder), self._copies.imports(folder)
        zygote, process = (
            Path(__file__).with_name(name).read_text(encoding="utf-8")
            for name in ("agent_zygote.py", "agent_process.py")
        )
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", zygote, str(theirs.fileno()), self._imports, process],
                cwd=folder,
                env=self._environment,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._control.setblocking(False)

    def _alike(self, folder: Path, environment: Mapping[str, str]) -> bool:
        """True if this candidate begins as the agent as it came does."""
        mine, theirs = dict(self._environment), dict(environment)
        for each in (mine, theirs):
            each.pop("PYTHONPATH", None)
        return mine == theirs and self._copies.imports(folder) == self._imports

    def end(self) -> None:
        """End the zygote with all that it forked."""
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            # One that can fork ends what it forked, too; one that still imports would be waited for.
            try:
                self._process.wait(_END_SECONDS if self._ready else 0)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
            self._process = None
        self._ready = False
        if self._place is not None:
            self._place.cleanup()
            self._place = None
