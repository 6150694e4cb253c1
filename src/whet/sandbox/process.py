"""One zygote, seen from outside: its process, its channel, and its answers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import tempfile
from collections import deque
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from ..errors import SandboxError
from . import box, cgroup, docker, launch
from .box import Local, Sandbox
from .inside.zygote import READY_SECONDS, READY_TRIES

_GRACE = READY_TRIES * READY_SECONDS + 10.0
"""Seconds that the zygote may take beyond a call's own limit before it counts as lost: all its waits and some."""
_START_SECONDS = _GRACE + 60.0
"""Until its first evaluation is shut in, the imports before it included."""


class ZygoteLost(Exception):
    """The zygote died or did not answer; the evaluation in it is nobody's fault."""


class _Channel(asyncio.Protocol):
    """Frames from a zygote: four bytes of length, then the bytes.

    Not a StreamReader: a search makes tens of thousands of calls, and one that finds its answer here waits for
    nothing and sets no timer.
    """

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self._frames: deque[bytes] = deque()
        self._rest = bytearray()
        self._lost: Exception | None = None
        self._arrived: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self._rest += data
        begin, end = 0, len(self._rest)
        while end - begin >= 4:
            length = int.from_bytes(self._rest[begin : begin + 4], "little")
            if end - begin - 4 < length:
                break
            self._frames.append(bytes(self._rest[begin + 4 : begin + 4 + length]))
            begin += 4 + length
        if begin:
            del self._rest[:begin]
            self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = exc or EOFError("the channel was closed")
        self._wake()

    def _wake(self) -> None:
        if self._arrived is not None and not self._arrived.done():
            self._arrived.set_result(None)

    async def frame(self, seconds: float) -> bytes:
        """The next frame.

        Raises:
            TimeoutError: it did not come in time.
            ConnectionError: it will not come any more.
        """
        # Frames that came before the channel was lost are still handed out.
        if not self._frames:
            async with asyncio.timeout(seconds):
                while not self._frames:
                    if self._lost is not None:
                        raise ConnectionError(str(self._lost)) from self._lost
                    self._arrived = asyncio.get_running_loop().create_future()
                    await self._arrived
        return self._frames.popleft()


class ZygoteProcess:
    """Starts on `start`, serves one evaluation at a time, is killed on `kill`."""

    def __init__(self, sandbox: Sandbox | Local, modules: tuple[str, ...]) -> None:
        self.sandbox, self.modules = sandbox, modules
        self.hello: dict[str, Any] = {}
        self.co_resident: bool | None = None
        """True if it serves evaluators beside their programs; None while it has served nothing."""
        self._process: subprocess.Popen[bytes] | None = None
        self._stderr: BinaryIO | None = None
        self._scratch = ""
        self._container = ""
        self._cgroup: cgroup.Cgroup | None = None
        self._channel: _Channel

    @property
    def alive(self) -> bool:
        """True if it can serve a call."""
        return self._process is not None and self._process.poll() is None

    async def start(self) -> None:
        """Start it and wait until its first evaluation is shut in.

        Raises:
            SandboxError: it cannot be shut in here, or a module cannot be imported; says how to mend it.
        """
        try:
            ours = self._launch()
        except BaseException:
            self.kill()
            raise
        ours.setblocking(False)
        loop = asyncio.get_running_loop()
        _, self._channel = await loop.create_connection(_Channel, sock=ours)
        try:
            self.hello = await self._meta(_START_SECONDS)
        except ZygoteLost:
            self.hello = {"ready": False, "error": self._complaint() or "the process ended without a word"}
        except BaseException:
            self.kill()
            raise
        reason = self.hello["error"]
        by_systemd = self._cgroup is not None and self._cgroup.place.parent is None
        failed = self._limit_memory() if self.hello["ready"] else reason if by_systemd else ""
        if failed:
            # Everything but the exact limit works without, and is watched then.
            self.kill()
            cgroup.give_up(failed)
            # Once only: after `give_up` no cgroup is made in this process.
            await self.start()
        elif not self.hello["ready"]:
            self.kill()
            raise SandboxError(f"the sandbox could not be started: {reason}. {advice(reason)}")

    def _launch(self) -> socket.socket:
        """Start the process; our end of its channel."""
        if self.sandbox.image is not None:
            self._container = docker.fresh_name()
        elif not self.sandbox.isolated:
            self._scratch = tempfile.mkdtemp(prefix="whet-local-")
        elif isinstance(place := cgroup.here(), cgroup.CgroupParent):
            with contextlib.suppress(OSError):  # watched then, as where there is no place
                self._cgroup = cgroup.Cgroup(place)
        with contextlib.ExitStack() as stack:
            entrance = stack.enter_context(self._cgroup.entrance()) if self._cgroup is not None else None
            descriptors, prefix, passed = (
                (entrance.descriptors, entrance.prefix, entrance.passed) if entrance else (None, (), ())
            )
            command = self.sandbox.command(self.modules, self._container or self._scratch, descriptors)
            ours, theirs = socket.socketpair()
            stack.enter_context(theirs)
            # A file and not a pipe: nobody reads while the zygote runs, and a full pipe would stop it.
            self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  closed by kill
            try:
                # The zygote dies with the thread that starts it (PR_SET_PDEATHSIG), so this is never handed
                # to a worker thread that may end before the pool.
                self._process = subprocess.Popen(
                    [*prefix, *command],
                    stdin=theirs.fileno(),
                    stdout=theirs.fileno(),
                    stderr=self._stderr,
                    env=self._environment(bool(prefix)),
                    pass_fds=passed,
                    cwd="/",
                    # Out of the terminal's process group: Ctrl-C is for this process alone.
                    start_new_session=True,
                )
            except OSError as error:
                ours.close()
                raise SandboxError(
                    f"the sandbox could not be started: {error}. "
                    "Give an interpreter (python=) or an image that this user can start."
                ) from error
        return ours

    def _environment(self, by_systemd: bool) -> dict[str, str]:
        """Of the process that is started, which clears it before it lets anything in."""
        if not self.sandbox.isolated:
            return launch.environment(launch.interpreter(self.sandbox.python), self._scratch)
        # Where docker and systemd find their daemons, and what they start.
        return dict(os.environ) if self._container or by_systemd else {}

    def _limit_memory(self) -> str:
        """Put the limit on all processes together, now that the modules are there; what failed, or ""."""
        limits = self.sandbox.limits
        if self._cgroup is not None and self._process is not None and self.hello["grouped"]:
            try:
                self._cgroup.allow(limits.memory + limits.file_bytes + cgroup.RESERVE, self._process.pid)
            except OSError as error:
                return f"it took no memory limit: {error}"
        return ""

    @property
    def bound(self) -> int:
        """Bytes that an evaluation cannot exceed, whatever it starts; watched where it is no cgroup's limit."""
        limits = self.sandbox.limits
        if self._cgroup is not None and self._cgroup.limit:
            return limits.memory + limits.file_bytes + cgroup.RESERVE
        return min(limits.bound, docker.most(limits)) if self._container else limits.bound

    def bounded(self) -> str:
        """The limit on the memory of all its processes together, in words for tables."""
        if self._cgroup is not None and self._cgroup.limit:
            return self._cgroup.describe()
        most = f"looked at every 50 ms, {self.bound >> 20} MiB at most between two looks"
        if self._container:
            return f"{most}; the container has {docker.most(self.sandbox.limits) >> 20} MiB"
        place = cgroup.here()
        return f"{most}; {place.describe() if isinstance(place, cgroup.Nowhere) else 'the cgroup could not be entered'}"

    def _complaint(self) -> str:
        assert self._stderr is not None
        self._stderr.seek(0)
        text = self._stderr.read().decode("utf-8", "replace")
        # Docker goes on with how to get help on Docker.
        return text.partition("\n\nRun 'docker")[0].strip()[-2000:].rstrip(".")

    async def _frame(self, seconds: float) -> bytes:
        try:
            return await self._channel.frame(seconds)
        except (ConnectionError, TimeoutError) as error:
            raise ZygoteLost(f"{type(error).__name__} while waiting for the sandbox") from error

    async def _meta(self, seconds: float) -> dict[str, Any]:
        frame = await self._frame(seconds)
        meta: dict[str, Any] = msgspec.json.decode(frame[1:])
        return meta

    def send(self, *messages: bytes) -> None:
        """Queue messages to the zygote, at once so that it wakes once; each begins with its letter."""
        self._channel.transport.write(
            b"".join(len(message).to_bytes(4, "little") + message for message in messages)
        )

    async def ask(self, seconds: float, stream: Any = None) -> tuple[dict[str, Any], bytes]:
        """The answer to a call that may take `seconds`: the zygote's report on it with what it printed, and its body.

        Args:
            stream: told `o` or `e` and the bytes that a script printed, as they come.

        Raises:
            ZygoteLost: nothing came in time.
        """
        while True:
            frame = await self._frame(seconds + _GRACE)
            if frame[:1] == b"r":
                meta, answer = msgspec.json.decode(frame[1:]), await self._frame(_GRACE)
                meta["printed"] = (await self._frame(_GRACE)).decode("utf-8", "replace")
                return meta, answer
            if stream is not None:
                stream(frame[:1].decode(), frame[1:])

    async def census(self) -> list[int]:
        """Process ids that exist inside the outer namespaces."""
        self.send(b"p")
        pids: list[int] = (await self._meta(_GRACE))["processes"]
        return pids

    def kill(self) -> None:
        """End it and everything inside it."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                # All inside goes with it: the zygote dies with its parent, its namespaces with the zygote.
                self._process.kill()
            self._process.wait()
            self._process = None
            if self._container:  # the process was its messenger alone
                docker.remove(self._container)
        # After the process: a cgroup that holds one cannot be removed.
        if self._cgroup is not None:
            self._cgroup.remove()
            self._cgroup = None
        if hasattr(self, "_channel"):
            self._channel.transport.abort()
        if self._stderr is not None:
            self._stderr.close()
            self._stderr = None
        if self._scratch:
            box.remove(self._scratch)
            self._scratch = ""


def advice(reason: str, *, settings: Path = Path("/proc/sys")) -> str:
    """Advice on a sandbox that could not be started.

    Args:
        reason: its error message.
        settings: where the kernel's settings are.
    """
    if of_docker := docker.advice(reason):
        return of_docker
    low = reason.lower()
    if "modulenotfound" in low or "importerror" in low or "no module" in low:
        return "Install the module for the sandbox's interpreter, or leave it out of `modules`."
    if _setting(settings / "kernel/apparmor_restrict_unprivileged_userns") == "1":
        return (
            "This Ubuntu restricts user namespaces: sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0 "
            "(to keep it: a file in /etc/sysctl.d), or an AppArmor profile that allows `userns` for this Python."
        )
    for name, usable in (("kernel/unprivileged_userns_clone", "1"), ("user/max_user_namespaces", "15000")):
        if _setting(settings / name) == "0":
            return f"User namespaces are switched off: sudo sysctl {name.replace('/', '.')}={usable}."
    if "not permitted" in low or "denied" in low or "clone" in low or "namespace" in low:
        return (
            "Namespaces cannot be made here; in a container start it with `--security-opt seccomp=unconfined "
            "--security-opt apparmor=unconfined` (Docker) or as privileged. For code that you trust there is "
            "Local() and --unsafe-local; what that scores is never promoted."
        )
    return "Run `whet sandbox check` for the table of what works here."


def _setting(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return ""
