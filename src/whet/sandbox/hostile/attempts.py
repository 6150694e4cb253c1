"""What the attacks have in common: attempts, of which each fails or is told of."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable, Mapping
from typing import Any

C = ctypes.CDLL(None, use_errno=True)
"""The C library."""
X86 = os.uname().machine == "x86_64"


def achieved_by(attempts: Mapping[str, Callable[[], Any]]) -> list[str]:
    """Names of the attempts that did not fail; False and None are failures."""
    achievements = []
    for name, attempt in attempts.items():
        try:
            achievement = attempt()
        except (OSError, ImportError, ValueError, AttributeError):
            continue
        if achievement is not None and achievement is not False:
            achievements.append(f"{name}: {achievement!r:.80}")
    return achievements


def done(function: Callable[..., Any], *args: Any) -> bool:
    """True once a function whose answer says nothing has not raised."""
    function(*args)
    return True


def called(name: str, *args: Any) -> bool:
    """True if a function of the C library succeeded."""
    return int(getattr(C, name)(*args)) >= 0


def system_call(x86: int | None, arm: int | None, *args: Any) -> bool:
    """True if a system call succeeded; False where this machine has none of the kind."""
    number = x86 if X86 else arm
    return number is not None and int(C.syscall(number, *args)) >= 0


def in_a_child(attempt: Callable[[], Any]) -> bool:
    """True if an attempt succeeded in a process of its own, which the kernel may kill for it."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if attempt() not in (None, False) else 1)
        except BaseException:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    return status == 0


def ignoring(*signals: int) -> None:
    """Go on after these signals."""
    for number in signals:
        signal.signal(number, signal.SIG_IGN)
