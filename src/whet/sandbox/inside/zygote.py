"""The warm process of a sandbox: modules imported once, each evaluation a fork into fresh namespaces.

It stands inside the outer namespaces and runs no code but ours and the modules it was told to
import.  An evaluation is forked while the one before it runs, waits for its code, and is killed with
everything it started when it has answered.  The zygote serves one evaluation at a time; a Pool
has as many zygotes as workers.

Messages are four bytes of length (little endian) and a body.  To the zygote: `o` + JSON (files, entry, mode, argv)
opens a program, `s` does and wants what is printed as it comes; `c` or, for the last one, `l` + 16 characters of
seconds + JSON [args, kwargs] calls it; `e` ends it; `p` asks for the processes inside. From it: `r` + JSON about
the call, then the answer as the program gave it, then what it printed; `o` and `e` + what a script printed. The
answer is a letter (`v` value, `x` raised, `r` refused, `e` exit code) and JSON.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import importlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from . import frames, kernel, memory, seccomp
from .evaluation import Evaluation, settle
from .walls import Walls

READY_SECONDS = 30.0
"""Until an evaluation must be shut in; a busy machine is not a reason to give up."""

READY_TRIES = 2
"""One that waited beside another evaluation may have been starved or killed by it."""

_WORTH_A_LOOK = 0.05
"""Seconds of a call from which on what its child processes took is read: a shorter one starts no interpreter."""

_MOST_DYING = 3
"""Evaluations that may be taken apart by the kernel while the next ones run."""


class Zygote:
    """Serves evaluations to the process outside.

    Args:
        incoming: where requests come from.
        outgoing: where answers go.
        plan: `isolate` (fork into namespaces), `box` (folder of an evaluation), `modules` to import,
            `path` to put on sys.path, `become` (a user to change to, or None), `limits`, `tail_bytes`,
            `hidden` (folders that an evaluation finds empty), `temporary` (that are its temporary one),
            `cgroup` (descriptors: `enter` takes this process, `events` counts those killed for memory).
    """

    def __init__(self, incoming: int, outgoing: int, plan: dict[str, Any]) -> None:
        self.incoming, self.outgoing, self.plan = incoming, outgoing, plan
        # After the imports: the limit is on address space, and the modules' is in it.
        self._walls = Walls(plan, memory.mapped() + plan["limits"]["memory"])
        self._warm = memory.proportional_of("self")
        self._spare: Evaluation | None = None
        self._dying: list[Evaluation] = []

    def serve(self) -> None:
        """Until the outside closes the channel."""
        failed = self._ready()
        self._say(
            ready=not failed,
            error=failed,
            python=sys.version.split()[0],
            grouped=self.plan["cgroup"] is not None,
        )
        spec = frames.Unshared()
        while spec.message(self.incoming):
            letter = bytes(spec.view(0, 1))
            if letter == b"p":
                self._reap(wait=True)
                self._say(processes=sorted(int(name) for name in os.listdir("/proc") if name.isdigit()))
            elif letter in (b"o", b"s"):
                self._evaluation(spec.view(1), script=letter == b"s")

    def _ready(self) -> str:
        """Have an evaluation shut in and waiting; what failed, or the empty string."""
        failed = ""
        for _ in range(READY_TRIES):
            try:
                if self._spare is None:
                    self._spare = Evaluation(self.plan, self._walls)
            except OSError as error:
                failed = str(error)
                continue
            failed = self._spare.ready(READY_SECONDS)
            if not failed:
                return ""
            self._spare.kill()
            self._dying.append(self._spare)
            self._spare = None
        return failed

    def _too_much(self) -> Callable[[], bool]:
        """A test whether the processes of the running evaluation have had more memory than they may."""
        cgroup = self.plan["cgroup"]
        if cgroup is not None:
            events: int = cgroup["events"]
            killed = memory.killed(events)
            return lambda: memory.killed(events) > killed
        most: int = self.plan["limits"]["memory"] + self._warm

        def together() -> bool:
            others = {1, os.getpid(), *({self._spare.pid} if self._spare is not None else ())}
            return memory.proportional(others) > most

        return together

    def _ahead(self) -> None:
        """While an evaluation runs: clear away the last one and fork the next, without waiting for it."""
        self._reap()
        with contextlib.suppress(OSError):  # asked again, and then reported, when it is needed
            self._spare = Evaluation(self.plan, self._walls)

    def _reap(self, *, wait: bool = False) -> None:
        """Clear away killed evaluations.

        Taking namespaces apart is a third of what an evaluation costs the kernel, and nobody's answer
        waits for it; only when several are at it at once the next one does.
        """
        wait = wait or len(self._dying) > _MOST_DYING
        self._dying = [evaluation for evaluation in self._dying if not evaluation.reap(wait=wait)]

    def _say(self, answer: frames.Part = b"", printed: Sequence[memoryview] = (), **meta: Any) -> None:
        reply = frames.framed(b"r" + _json(meta).encode())
        if "answered" in meta:
            reply += [*frames.framed(answer), *frames.framed(*printed)]
        frames.send(self.outgoing, reply)

    def _evaluation(self, spec: memoryview, *, script: bool) -> None:
        """Serve the calls of one opened program until it is closed or over."""
        failed = self._ready()
        evaluation, self._spare = self._spare, None
        over: dict[str, Any] = {}
        if evaluation is None:
            over = {"answered": False, "broken": failed, "seconds": 0, "cpu": 0}
        else:
            if self.plan["isolate"]:
                evaluation.too_much = self._too_much()
            if script:
                evaluation.stream = lambda kind, part: frames.send(self.outgoing, frames.framed(kind, part))
        first, request = [spec], frames.Unshared()
        while request.message(self.incoming):
            letter = bytes(request.view(0, 1))
            if letter == b"e":
                break
            seconds, call = float(bytes(request.view(1, 17))), request.view(17)
            if evaluation is None or over:
                self._say(**over)
            else:
                over = self._call(evaluation, [*first, call], seconds)
            first = []
            if letter == b"l":
                break
        if evaluation is not None:
            evaluation.kill()
            self._dying.append(evaluation)

    def _call(self, evaluation: Evaluation, messages: list[memoryview], seconds: float) -> dict[str, Any]:
        """One call; the answer to give to all further ones, if it ended the evaluation."""
        began, before = time.monotonic(), evaluation.cpu_seconds()
        meanwhile = self._ahead if self._spare is None else None
        answer, killed = evaluation.exchange(messages, seconds, meanwhile)
        elapsed = time.monotonic() - began
        if answer is not None and self.plan["cgroup"] is not None and evaluation.too_much():
            answer, killed = None, "memory"  # by those that are left, of which some were killed for it
        if answer is None:
            evaluation.kill()
            evaluation.reap(wait=True)
            killed = killed or ("memory" if evaluation.too_much() else evaluation.died_of())
        meta = {
            "answered": answer is not None,
            "killed": killed,
            "seconds": elapsed,
            "cpu": max(0.0, evaluation.cpu_seconds(look=elapsed >= _WORTH_A_LOOK) - before),
        }
        self._say(b"" if answer is None else answer, evaluation.tail(), **meta)
        evaluation.forget_printed()
        return {} if answer is not None else {**meta, "seconds": 0, "cpu": 0}


def _json(meta: dict[str, Any]) -> str:
    """As json.dumps, which each time it is asked copies thirty pages of a process that forks; here only for texts."""
    return "{" + ",".join([f'"{name}":{_value(value)}' for name, value in meta.items()]) + "}"


def _value(value: Any) -> str:
    if value is True or value is False:
        return "true" if value else "false"
    if type(value) is float:
        return f"{value:.6f}"
    return '""' if value == "" else json.dumps(value)


def _take(descriptor: int) -> int:
    """A copy of a descriptor where no evaluation looks for one."""
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 32)


def _enter(cgroup: dict[str, Any]) -> dict[str, Any] | None:
    """Enter the cgroup of these descriptors; those still open, None where it cannot be entered."""
    events = _take(cgroup["events"])
    os.close(cgroup["events"])
    if cgroup["enter"] is not None:
        try:
            os.write(cgroup["enter"], b"0")
        except OSError:
            return None
        finally:
            os.close(cgroup["enter"])
    return {"events": events}


def main() -> None:
    """Take the channel from descriptors 0 and 1 and the plan from the command line."""
    plan = json.loads(sys.argv.pop())  # what is evaluated has no arguments
    incoming, outgoing = _take(0), _take(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1):
        os.dup2(nothing, standard)
    if plan["cgroup"] is not None:
        plan["cgroup"] = _enter(plan["cgroup"])
    needed = {incoming, outgoing, *((plan["cgroup"] or {}).values())}
    for descriptor in {*range(3, 256)} - needed:
        with contextlib.suppress(OSError):
            os.close(descriptor)
    for standard in (3, 4):  # where an evaluation has its channel: no pipe of the zygote's is to be there
        os.dup2(0, standard, inheritable=False)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.path[:] = [*plan["path"], *(folder for folder in sys.path if folder not in ("", plan["library"]))]
    try:
        if plan["become"] is not None:
            kernel.become(plan["become"])
        if plan["isolate"]:
            kernel.die_with_parent()  # a change of user forgets it
            kernel.forbid_new_privileges()
            seccomp.Filter(seccomp.program()).install()
        for name in plan["modules"]:
            # Last: an import runs the module's code, and by now root is given up and the filter is on.
            importlib.import_module(name)
    except BaseException as error:
        hello = {"ready": False, "error": f"{type(error).__name__}: {error}"}
        frames.write(outgoing, b"r" + json.dumps(hello).encode())
        return
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    if plan["isolate"]:
        settle(plan["box"])
    gc.collect()
    # A collection in a fork would write to every object, and so copy its page.
    gc.freeze()
    Zygote(incoming, outgoing, plan).serve()
