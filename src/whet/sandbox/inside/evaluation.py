"""One evaluation, seen from the zygote: forked, shut in, spoken to, and killed."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from importlib import machinery
from typing import Any

from . import frames, kernel, worker
from .walls import SPACES, Walls

_READY = b"ready"
_SHUT_IN = len(_READY).to_bytes(4, "little") + _READY
_REQUESTS, _ANSWERS = 3, 4
_LOOK_SECONDS = 0.05
"""Between two looks at the CPU time, and at the memory of all processes together."""
_FIRST_TO_DIE = b"1000"


def _stage(files: dict[str, Any], folder: str) -> None:
    """Write the staged files; names were checked outside, and cannot leave the box anyway."""
    for name, content in files.items():
        if "/" in name:
            os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
        raw = content.encode() if isinstance(content, str) else base64.b64decode(content[0])
        descriptor = os.open(f"{folder}/{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        unwritten = memoryview(raw)
        while unwritten:
            unwritten = unwritten[os.write(descriptor, unwritten) :]
        os.close(descriptor)


def settle(folder: str) -> None:
    """Make this process, and what it forks, a program whose code and temporary files lie below `folder`."""
    if loaded := sys.modules.get("tempfile"):
        vars(loaded)["tempdir"] = None
    os.environ["HOME"] = os.environ["TMPDIR"] = f"{folder}/tmp"
    code = f"{folder}/code"
    sys.path.insert(0, code)
    # Whoever asks for it while it is not there yet would be remembered to have found nothing.
    sys.path_importer_cache[code] = machinery.FileFinder(
        code,
        (machinery.ExtensionFileLoader, machinery.EXTENSION_SUFFIXES),
        (machinery.SourceFileLoader, machinery.SOURCE_SUFFIXES),
        (machinery.SourcelessFileLoader, machinery.BYTECODE_SUFFIXES),
    )


def _cpu_of_children(pid: int) -> float:
    """CPU seconds of the processes that one has started and waited for, to the clock's tick."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        # The name in brackets may hold blanks and brackets; counted behind it, proc(5)'s cutime and cstime
        # are fields 13 and 14.
        fields = file.read().rpartition(b")")[2].split()
    return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


class Evaluation:
    """A forked process that waits for staged code, seen from the zygote.

    Args:
        plan: of the sandbox, see `Zygote`; who isolates has called `settle` for the box.
        walls: what it is shut in with.
    """

    def __init__(self, plan: dict[str, Any], walls: Walls) -> None:
        self.plan, self.limits, self._walls = plan, plan["limits"], walls
        self.folder = plan["box"]
        if not plan["isolate"]:
            self.folder = f"{plan['box']}/{time.monotonic_ns():x}"
            os.mkdir(self.folder, 0o700)
        request_end, self._requests = os.pipe()
        self._answers, answer_end = os.pipe()
        self._out, out_end = os.pipe()
        self._err, err_end = os.pipe()
        self.pid = kernel.fork_into(SPACES) if plan["isolate"] else os.fork()
        if self.pid == 0:
            self._child(request_end, answer_end, out_end, err_end)
        for descriptor in (request_end, answer_end, out_end, err_end):
            os.close(descriptor)
        for descriptor in (self._requests, self._answers, self._out, self._err):
            os.set_blocking(descriptor, False)
        self._shut_in = False
        self._incoming = frames.Unshared()
        self._taken = 0
        """Bytes of the last answer, which are let go of when the next one is waited for."""
        self.printed = {self._out: frames.Unshared(), self._err: frames.Unshared()}
        self._total_printed = 0
        self.stream: Any = None
        self.too_much: Callable[[], bool] = lambda: False
        """True if all its processes together have had more memory than they may."""
        self.cpu = self._waited_for = 0.0
        self.status: int | None = None

    def _child(self, *ends: int) -> None:
        """In the fork: shut everything, say that it is ready, then become the staged code."""
        status, victim = 1, -1
        requests, answers, out, err = ends
        isolated: bool = self.plan["isolate"]
        try:
            # Out of the zygote's process group first: kill(0, SIGKILL) reaches across namespaces.
            os.setsid()
            if not isolated:
                # No namespace ends with the zygote, so this has to.
                kernel.die_with_parent()
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            # The zygote holds on to 3 and 4, so no end of a pipe is where another one goes.
            os.dup2(out, 1)
            os.dup2(err, 2)
            os.dup2(requests, _REQUESTS, inheritable=False)
            os.dup2(answers, _ANSWERS, inheritable=False)
            os.closerange(5, 256)
            if isolated:
                # Opened before `enter` covers /proc, and written once there is a program.
                victim = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
                self._walls.enter()
            code, temporary = f"{self.folder}/code", f"{self.folder}/tmp"
            os.mkdir(code)
            os.mkdir(temporary)
            for folder in self.plan["temporary"]:
                if os.path.isdir(folder):
                    kernel.mount(temporary, folder, "", kernel.MS_BIND)
            os.chdir(code)
            if not isolated:
                settle(self.folder)
            self._walls.close()  # last: after it nothing can be mounted
            os.write(_ANSWERS, _SHUT_IN)
        except BaseException as error:
            frames.write(_ANSWERS, f"{type(error).__name__}: {error}".encode())
            os._exit(1)
        try:
            self._become_the_program(code, victim)
            status = 0
        finally:
            os._exit(status)

    def _become_the_program(self, code: str, victim: int) -> None:
        first = frames.read(_REQUESTS)
        if first is None:
            return
        if victim >= 0:
            # Where memory runs out the kernel takes the program before what serves it and what waits.
            os.write(victim, _FIRST_TO_DIE)
            os.close(victim)
        spec = json.loads(first)
        staged = worker.attempt(_stage, spec["files"], code)
        if staged is not None:
            frames.read(_REQUESTS)
            frames.write(_ANSWERS, staged)
        elif spec["mode"] == "script":
            worker.script(_ANSWERS, os.path.join(code, spec["entry"]), spec["argv"])
        else:
            worker.serve(_REQUESTS, _ANSWERS, spec["entry"], spec["mode"] == "pair")

    def ready(self, seconds: float) -> str:
        """Wait until it is shut in; the empty string, or what failed on the way."""
        if self._shut_in:
            return ""
        answer, killed = self.exchange([], seconds)
        if answer is not None and bytes(answer) == _READY:
            self._shut_in = True
            return ""
        return str(answer or killed.encode() or b"the forked process died", "utf-8", "replace")

    def exchange(
        self, messages: list[memoryview], seconds: float, meanwhile: Callable[[], None] | None = None
    ) -> tuple[memoryview | None, str]:
        """Send messages and wait for one answer.

        Args:
            meanwhile: called once while the program is at work.

        Returns:
            The answer and "", or None and what ended the wait: `wall`, `cpu`, `memory`, `output`, or "" for its end.
        """
        self._total_printed = 0
        self._incoming.drop(self._taken)
        self._taken = 0
        outgoing = [part for message in messages for part in frames.framed(message)]
        deadline = time.monotonic() + seconds
        look = time.monotonic() + _LOOK_SECONDS
        poller = select.poll()
        for descriptor in (self._answers, *self.printed):
            poller.register(descriptor, select.POLLIN)
        outgoing = self._send(outgoing)
        if outgoing:
            poller.register(self._requests, select.POLLOUT)
        if meanwhile is not None:
            meanwhile()
        while True:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return None, "wall"
            now = time.monotonic()
            if now >= look:
                look = now + _LOOK_SECONDS
                if self.too_much():
                    return None, "memory"
                # The kernel counts its own limit by clock ticks, which on a busy machine run ahead of what was used.
                if self.cpu_seconds(look=True) >= self.limits["cpu_seconds"]:
                    return None, "cpu"
            for descriptor, _ in poller.poll(min(remaining, max(0.0, look - now)) * 1000):
                if descriptor == self._requests:
                    outgoing = self._send(outgoing)
                    if not outgoing:
                        poller.unregister(descriptor)
                elif descriptor == self._answers:
                    if not self._receive():
                        return None, ""
                elif not self._hear(descriptor):
                    poller.unregister(descriptor)
            if self._total_printed > self.limits["output_bytes"]:
                return None, "output"
            if len(self._incoming) >= 4:
                length = int.from_bytes(self._incoming.view(0, 4), "little")
                # The length is the program's own word: a larger one would be waited for, and kept.
                if length > self.limits["output_bytes"]:
                    return None, "output"
                if len(self._incoming) >= 4 + length:
                    self._taken = 4 + length
                    # What was printed before it is here, too: a pipe holds no more than one read takes.
                    return self._incoming.view(4, 4 + length), ""

    def _send(self, outgoing: list[frames.Part]) -> list[frames.Part]:
        try:
            return frames.written(outgoing, os.writev(self._requests, outgoing)) if outgoing else outgoing
        except BlockingIOError:
            return outgoing
        except BrokenPipeError:
            return []

    def _receive(self) -> bool:
        try:
            return self._incoming.receive(self._answers, 1 << 16) > 0
        except BlockingIOError:
            return True

    def _hear(self, descriptor: int) -> bool:
        """Read the printed bytes, keeping the tail or passing them on; False when there are no more now."""
        buffer = self.printed[descriptor]
        try:
            count = buffer.receive(descriptor, 1 << 16)
        except BlockingIOError:
            return False
        self._total_printed += count
        if self.stream is not None and count:
            self.stream(b"o" if descriptor == self._out else b"e", buffer.view())
            buffer.drop(len(buffer))
        else:
            buffer.drop(max(0, len(buffer) - self.plan["tail_bytes"]))
        return count > 0

    def tail(self) -> list[memoryview]:
        """The end of what it printed since the last call, standard output before standard error."""
        out, err = self.printed.values()
        out.drop(min(len(out), max(0, len(out) + len(err) - self.plan["tail_bytes"])))
        return [out.view(), err.view()]

    def forget_printed(self) -> None:
        """Let go of what `tail` gave."""
        for buffer in self.printed.values():
            buffer.drop(len(buffer))

    def cpu_seconds(self, *, look: bool = False) -> float:
        """Of its first process so far, and of what that had waited for when it was last looked at or is reaped."""
        if self.status is not None:
            return self.cpu
        try:
            # The clock of another process, its id made as clock_getcpuclockid(3) makes it.
            own = time.clock_gettime((~self.pid << 3) | 2)
        except OSError:
            return 0.0
        if look:
            with contextlib.suppress(OSError):  # where there is no /proc
                self._waited_for = _cpu_of_children(self.pid)
        return own + self._waited_for

    def kill(self) -> None:
        """Kill it and whatever it started; `reap` says when they are gone."""
        if self.status is not None:
            return
        if not self.plan["isolate"]:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        # Where it is isolated it is the first process of its namespace, which takes all others along.
        os.kill(self.pid, signal.SIGKILL)

    def reap(self, *, wait: bool) -> bool:
        """True if a killed evaluation is gone with all its processes; waited for if `wait`."""
        if self.status is not None:
            return True
        pid, status, used = os.wait4(self.pid, 0 if wait else os.WNOHANG)
        if not pid:
            return False
        self.status = status
        self.cpu = used.ru_utime + used.ru_stime
        if wait:  # for what it came to, and not only to be rid of it
            for descriptor in self.printed:
                while self._hear(descriptor) and self._total_printed <= self.limits["output_bytes"]:
                    pass
        for descriptor in (self._requests, self._answers, self._out, self._err):
            os.close(descriptor)
        if not self.plan["isolate"]:
            import shutil  # its compressors would be in every evaluation that is shut in

            shutil.rmtree(self.folder, ignore_errors=True)
        return True

    def died_of(self) -> str:
        """The cause of an end that was not ours: `cpu`, `signal N`, or `exit N`."""
        status = 0 if self.status is None else self.status
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            # Between two looks, or by ticks that ran ahead of what was used.
            if number in (signal.SIGXCPU, signal.SIGKILL) and self.cpu >= 0.5 * self.limits["cpu_seconds"]:
                return "cpu"
            return f"signal {number}"
        return f"exit {os.WEXITSTATUS(status)}"
