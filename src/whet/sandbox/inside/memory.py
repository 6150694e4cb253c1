"""Memory use of processes: read from /proc, or counted by the cgroup that they are in."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Collection


def mapped() -> int:
    """Address space of this process; half of all that can be, where there is no /proc to ask."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[0]) * resource.getpagesize()
    except OSError:
        return sys.maxsize // 2


def proportional_of(pid: str) -> int:
    """Resident bytes of a process, what it shares divided among those who share it; 0 if it is gone."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            for line in file:
                if line.startswith(b"Pss:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def proportional(others: Collection[int]) -> int:
    """Resident bytes of all processes that can be seen but those."""
    names = (name for name in os.listdir("/proc") if name.isdigit())
    return sum(proportional_of(name) for name in names if int(name) not in others)


def killed(events: int) -> int:
    """The number of processes of a cgroup killed for its memory; `events` is its open file of counters."""
    words = os.pread(events, 4096, 0).split()
    return int(words[words.index(b"oom_kill") + 1])
