"""The sandbox attacks itself, and is refused when an attack succeeds.

The attacks are a program like any other (`hostile`), run with small limits through the
same pool.  Their success is judged out here, by facts that only the outside knows: whether a listener
was reached, whether a file appeared, which processes are left.  A pass is remembered until the machine
starts again or anything that it depends on changes (`passes.py`).  It proves that these attacks fail on
this kernel with this configuration, not that no other succeeds.
"""

from __future__ import annotations

import os
import socket
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..errors import SandboxError
from . import launch, passes
from .box import Local, Sandbox
from .limits import MIB, CallResult, Limits
from .process import advice
from .unchecked import UncheckedPool

LIMITS = Limits(
    memory=24 * MIB, cpu_seconds=5, wall_seconds=10, processes=5, file_bytes=2 * MIB, output_bytes=1 * MIB
)
"""The limits of the attacks."""

_SLACK = 4 * MIB
_COUNTED = 128
"""Of what an evaluation may have of the kernel's (`inside/walls.py`), where the limit is no one's choice."""
_AFTER_PLANTING = ("find_earlier_files", "find_earlier_text")
_ATTACK = "hostile:attack"
_SLEEPERS = ("endless_loop", "sleep_through_the_limit")
_LOOP_SECONDS = 0.3
_LATE = 5.0
"""Seconds; a busy machine is late, an attack that holds up its own end is later."""


@dataclass(frozen=True, slots=True)
class Attack:
    """One attack and what became of it."""

    name: str
    stopped: bool
    detail: str
    seconds: float


@dataclass(frozen=True, slots=True)
class _Bait:
    """The targets outside for the attacks to reach."""

    folder: Path
    listeners: tuple[socket.socket, ...]
    host: dict[str, Any]
    own: frozenset[str]
    """Values of the environment that the sandbox itself sets."""
    bound: list[int]
    """Bytes that all processes of an evaluation can have together, once that is known."""

    def reached(self) -> bool:
        """True if anybody connected to a listener."""
        for listener in self.listeners:
            try:
                listener.accept()[0].close()
            except BlockingIOError:
                continue
            return True
        return False


@contextmanager
def _baited(sandbox: Sandbox | Local) -> Iterator[_Bait]:
    abstract = f"whet-{os.urandom(8).hex()}"
    with (
        tempfile.TemporaryDirectory(prefix="whet-bait-") as folder,
        socket.socket(socket.AF_INET) as loopback,
        socket.socket(socket.AF_UNIX) as named,
    ):
        own, bound = launch.settings(), list[str]()
        if sandbox.image is None:
            python = launch.interpreter(sandbox.python)
            own = launch.environment(python)
            bound = launch.on_the_way(launch.binds(python, sandbox.paths))
        secret = Path(folder) / "secret"
        secret.write_text(os.urandom(16).hex())
        # Readable and writable for everybody, so that it is not the file's own mode that protects it.
        os.chmod(folder, 0o777)
        loopback.bind(("127.0.0.1", 0))
        named.bind("\0" + abstract)
        for listener in (loopback, named):
            listener.listen()
            listener.setblocking(False)
        host = {
            "secret": str(secret),
            "folder": folder,
            "port": loopback.getsockname()[1],
            "abstract": abstract,
            "parent": os.getpid(),
            "image": sandbox.image is not None,
            "home": os.path.expanduser("~"),
            "planted": f"planted-{os.urandom(16).hex()}",
            "bound": bound,
            "most": 16 * LIMITS.memory,
        }
        yield _Bait(Path(folder), (loopback, named), host, frozenset(own.values()), [])


def _nothing(result: CallResult, bait: _Bait) -> str:
    """The achievements as one sentence; the empty string if the attack got nowhere."""
    if not result.ok:
        assert result.failure is not None
        return f"it ended as {result.failure.type}: {result.failure.message}"
    if result.value:
        return "; ".join(str(achievement) for achievement in result.value)[:300]
    if bait.reached():
        return "a listener of the host was reached"
    return "" if os.listdir(bait.folder) == ["secret"] else "it wrote into a folder of the host"


def _no_host_value(result: CallResult, bait: _Bait) -> str:
    # A short value, such as 1, is in many environments by chance.
    host = {value for value in os.environ.values() if len(value) >= 8} - bait.own
    leaked = [value for value in result.value or () if value in host]
    return f"{len(leaked)} values of the host's environment were read" if leaked else _ok(result)


def _ok(result: CallResult) -> str:
    return "" if result.failure is None else f"it ended as {result.failure.type}: {result.failure.message}"


def _at_most(limit: int, unit: str) -> Callable[[CallResult, _Bait], str]:
    def judge(result: CallResult, bait: _Bait) -> str:
        if result.killed_by is not None:
            return ""  # killed for it, by a cgroup for instance
        if not isinstance(result.value, int):
            return _ok(result) or "it did not say how far it got"
        return "" if result.value <= limit else f"{result.value:,} {unit}, where {limit:,} are allowed"

    return judge


def _bounded(result: CallResult, bait: _Bait) -> str:
    return _at_most(max(bait.bound), "bytes of memory")(result, bait)


def _killed(cause: str) -> Callable[[CallResult, _Bait], str]:
    def judge(result: CallResult, bait: _Bait) -> str:
        if result.killed_by != cause:
            return f"it was to be killed by {cause}, and ended with {result.failure}"
        late = cause == "wall" and result.seconds > _LOOP_SECONDS + _LATE
        return f"it ran for {result.seconds:.1f} s" if late else ""

    return judge


def _only_itself(result: CallResult, bait: _Bait) -> str:
    # Killing its own group may kill the program itself; what counts is that the zygote lives on.
    if result.failure is not None and result.failure.type not in ("Killed", "SandboxLost"):
        return _ok(result)
    if result.failure is not None and result.failure.type == "SandboxLost":
        return "it killed the process that serves the evaluations"
    return "" if not result.ok else _nothing(result, bait)


def _no_name(result: CallResult, bait: _Bait) -> str:
    name = os.uname().nodename
    return "the host's name was read" if result.value == [name] and name != "localhost" else _ok(result)


def _daemon(result: CallResult, bait: _Bait) -> str:
    return "" if result.value == "left" else _ok(result) or f"it answered {result.value!r}"


JUDGES: dict[str, Callable[[CallResult, _Bait], str]] = {
    "read_host_files": _nothing,
    "read_host_environment": _no_host_value,
    "write_outside": _nothing,
    "open_sockets": _nothing,
    "abstract_sockets": _nothing,
    "fork_bomb": _at_most(LIMITS.processes, "processes"),
    "memory_bomb": _at_most(LIMITS.memory + _SLACK, "bytes of memory"),
    "memory_bomb_of_many": _bounded,
    "disk_bomb": _at_most(LIMITS.file_bytes, "bytes of files"),
    "endless_loop": _killed("wall"),
    "endless_output": _killed("output"),
    "signal_others": _only_itself,
    "trace_others": _nothing,
    "leave_a_daemon": _daemon,
    "nest_namespaces": _nothing,
    "use_proc": _nothing,
    "use_descriptors": _nothing,
    "become_root": _nothing,
    "use_the_kernel": _nothing,
    "use_asynchronous_io": _nothing,
    "watch_files": _nothing,
    "grow_pipes": _nothing,
    "queue_signals": _at_most(_COUNTED, "signals that wait"),
    "hold_timers": _at_most(_COUNTED, "timers"),
    "hold_descriptors": _at_most(_COUNTED, "descriptors"),
    "start_threads": _at_most(LIMITS.processes, "threads"),
    "make_empty_files": _at_most(LIMITS.file_bytes // 1024, "files"),
    "make_a_large_file": _nothing,
    "hold_memory_in_sockets": _bounded,
    "lock_memory": _nothing,
    "raise_limits": _nothing,
    "take_priority": _nothing,
    "share_memory": _nothing,
    "sleep_through_the_limit": _killed("wall"),
    "endless_complaint": _killed("output"),
    "claim_a_huge_answer": _killed("output"),
    "use_other_call_tables": _nothing,
    "mount_anew": _nothing,
    "open_by_handle": _nothing,
    "hold_others": _nothing,
    "change_the_machine": _nothing,
    "use_exotic_sockets": _nothing,
    "splice_into_files": _nothing,
    "type_on_the_terminal": _nothing,
    "run_with_more_rights": _nothing,
    "make_devices": _nothing,
    "leave_a_dump": _nothing,
    "find_earlier_files": _nothing,
    "find_earlier_text": _nothing,
    "lock_host_files": _nothing,
    "lease_host_files": _nothing,
    "change_host_files": _nothing,
    "see_what_is_cached": _nothing,
    "learn_the_hosts_name": _no_name,
}
"""Attack → its judge outside, which returns the achievement, or the empty string if it was stopped."""


async def attacks(sandbox: Sandbox | Local, *, only: Collection[str] = ()) -> list[Attack]:
    """Run the attacks against a sandbox configured like this one, with limits of the check's own.

    The outcome of all of them is remembered, see `passes.py`; what was remembered before is not asked.

    Args:
        only: names of attacks; all of JUDGES if empty.  Against `Local` some do damage.

    Raises:
        SandboxError: it cannot be started at all; says how to mend it.
    """
    attempts = []
    wanted = passes.dependencies(sandbox) if isinstance(sandbox, Sandbox) and not only else None
    with _baited(sandbox) as bait:
        # Not `Pool`, whose `_admit` asks `require` and so would come back here.
        async with UncheckedPool(replace(sandbox, limits=LIMITS)) as pool:
            before = await pool.processes()
            bait.bound.append((await pool.bounded())[0])
            for name, judge in JUDGES.items():
                if only and name not in only:
                    continue
                began = time.monotonic()
                seconds = _LOOP_SECONDS if name in _SLEEPERS else None
                asked = bait.host
                if name in _AFTER_PLANTING:
                    # Twice: the next evaluation is forked while one runs, and the one after when it is over.
                    for _ in range(2):
                        await pool.call(launch.HOSTILE, _ATTACK, ["plant", bait.host])
                    asked = {key: value for key, value in bait.host.items() if key != "planted"}
                result = await pool.call(launch.HOSTILE, _ATTACK, [name, asked], seconds=seconds)
                achieved = judge(result, bait)
                if not achieved and len(await pool.processes()) > len(before):
                    achieved = "it left processes behind"
                detail = achieved or _how(result)
                if name == "memory_bomb_of_many":
                    detail = f"{detail}; {(await pool.bounded())[1]}"
                attempts.append(Attack(name, not achieved, detail, time.monotonic() - began))
    passes.settle(wanted, all(attempt.stopped for attempt in attempts))
    return attempts


def _how(result: CallResult) -> str:
    if result.killed_by is not None:
        return f"killed: {result.killed_by}"
    if isinstance(result.value, int):
        return f"held at {result.value:,}"
    return "refused"


_passed: set[tuple[object, ...]] = set()


async def require(sandbox: Sandbox | Local) -> None:
    """Refuse a sandbox that an attack gets out of; attacks once for each configuration and boot.

    Raises:
        SandboxError: names the attacks that succeeded and the fix.
    """
    if isinstance(sandbox, Local):
        return
    what_it_is = (sandbox.chosen, sandbox.image, sandbox.python, tuple(sandbox.paths))
    # Limits are no part of it: the attacks run under their own.
    key = (*what_it_is, os.geteuid(), os.uname().release)
    if key in _passed:
        return
    wanted = passes.dependencies(sandbox)
    if passes.known(wanted):
        _passed.add(key)
        return
    through = [attack for attack in await attacks(sandbox) if not attack.stopped]
    if through:
        # A hole is there the second time, too; a machine that was too busy to answer may not be.
        names = {attack.name for attack in through}
        through = [attack for attack in await attacks(sandbox, only=names) if not attack.stopped]
        passes.settle(wanted, not through)
    if through:
        holes = "; ".join(f"{attack.name}: {attack.detail}" for attack in through)
        raise SandboxError(f"the sandbox does not hold here ({sandbox.describe()}): {holes}. {advice(holes)}")
    _passed.add(key)
