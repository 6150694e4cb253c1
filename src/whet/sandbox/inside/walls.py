"""The walls of an evaluation, made ready before the fork: namespaces, mounts, limits, no privilege.

A forked process copies every page that it touches, which is most of what it costs.  So all that can be
known before is put into the form that the kernel wants by the zygote, once for all evaluations.
"""

from __future__ import annotations

import os
import resource
from typing import Any

from . import kernel, seccomp

SPACES = kernel.NEWUSER | kernel.NEWPID | kernel.NEWNS
"""The namespaces that each evaluation has for itself."""


class Walls:
    """The walls of every evaluation of one zygote.

    Args:
        plan: of the sandbox, see `Zygote`.
        address_space: bytes of address space that one process may have.
    """

    def __init__(self, plan: dict[str, Any], address_space: int) -> None:
        self._isolated: bool = plan["isolate"]
        self._ids = os.geteuid(), os.getegid()
        self._mounts = _mounts(plan) if self._isolated else []
        self._limits = _limits(plan["limits"], address_space, isolated=self._isolated)
        self._filter = seccomp.Filter(seccomp.FINAL) if self._isolated else None

    def enter(self) -> None:
        """In the new namespaces: an identity, an empty folder of limited size, and no /proc."""
        kernel.map_ids(*self._ids, *self._ids)
        for mount in self._mounts:
            mount()

    def close(self) -> None:
        """Limits, then no capability, then no system call that could undo any of it."""
        for which, value in self._limits:
            resource.setrlimit(which, value)
        if self._filter is not None:
            kernel.drop_capabilities()
            self._filter.install()


def _mounts(plan: dict[str, Any]) -> list[kernel.Mount]:
    file_bytes: int = plan["limits"]["file_bytes"]
    quiet = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
    # Empty files take memory of the kernel that `size` does not count.
    size = f"size={file_bytes},nr_inodes={max(64, file_bytes // 1024)},mode=0700"
    mounts = [kernel.Mount("box", plan["box"], "tmpfs", quiet, size)]
    for path in ("/proc", *plan["hidden"]):
        if path == "/proc" or os.path.isdir(path):
            options = "size=4k,nr_inodes=1,mode=0555"
            mounts.append(kernel.Mount("none", path, "tmpfs", quiet | kernel.MS_RDONLY, options))
    return mounts


def _limits(
    limits: dict[str, Any], address_space: int, *, isolated: bool
) -> list[tuple[int, tuple[int, int]]]:
    """None above what there is; without namespaces the process count is the whole user's, and stays."""
    ceilings = {
        resource.RLIMIT_AS: address_space,
        # A second more than the first process gets: its own clock is looked at, and this one runs ahead under load.
        resource.RLIMIT_CPU: 1 - int(-limits["cpu_seconds"] // 1),
        resource.RLIMIT_FSIZE: limits["file_bytes"],
        resource.RLIMIT_NOFILE: 64,
        # Not 0: where the kernel hands dumps to a program of the host's, it starts that one for 0 and not for 1.
        resource.RLIMIT_CORE: 1,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_SIGPENDING: 128,
    }
    if isolated:
        ceilings[resource.RLIMIT_NPROC] = limits["processes"]
    pairs = []
    for which, value in ceilings.items():
        hard = resource.getrlimit(which)[1]
        least = value if hard == resource.RLIM_INFINITY else min(value, hard)
        pairs.append((which, (least, least)))
    return pairs
