"""The C library's memory, kept small in a process that runs for weeks.

Bodies of spans and SQLite's pages are too large for Python's own allocator, and come from the C library's.  glibc's
gives each of up to eight threads a core an arena of its own, and gives free memory back from the end of an arena alone:
behind one page in use a server kept a third of its memory free, and the more of it the longer it ran.  Elsewhere than
with glibc nothing is done.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

ARENAS = 2
"""Threads that allocate at the same time: Python lets one compute at a time, and SQLite holds a lock for it."""
_ARENA_MAX = -8  # M_ARENA_MAX of malloc.h


def share_arenas() -> None:
    """Have threads share `ARENAS` arenas; for a process that is nothing but a server, before its threads start."""
    if (mallopt := _glibc("mallopt")) is not None:
        mallopt(_ARENA_MAX, ARENAS)


def return_free_memory() -> None:
    """Give whole pages that are free back to the system."""
    if (trim := _glibc("malloc_trim")) is not None:
        trim(0)


def _glibc(function: str) -> Any:
    """A function of this process's C library, None if it has no such."""
    return getattr(ctypes.CDLL(None), function, None) if sys.platform == "linux" else None
