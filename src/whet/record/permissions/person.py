"""A person who is asked whether a call may be made, by a function or at the terminal."""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from ...types import Json
from .rules import PermissionDecision, shown_call


@dataclass(frozen=True, slots=True)
class PermissionRequest:
    """A call that the rules leave to a person."""

    tool: str
    arguments: Json
    decision: PermissionDecision
    seconds: float
    """How long the call waits."""

    @property
    def shown(self) -> str:
        """The call in one line of plain characters."""
        return shown_call(self.tool, self.arguments)


AskPerson: TypeAlias = Callable[[PermissionRequest], bool]
"""Says whether a call may be made; False where nobody answers."""

_one_at_a_time = threading.Lock()


def ask_terminal(request: PermissionRequest) -> bool:
    """Ask at the process's own terminal, whatever its input is; False without one, and without a `y` in time."""
    with _one_at_a_time:
        try:
            terminal = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            return _answer(terminal, request)
        except OSError:
            return False
        finally:
            os.close(terminal)


def _answer(terminal: int, request: PermissionRequest) -> bool:
    # What was typed before the question is no answer to it.
    while select.select([terminal], [], [], 0)[0]:
        if not os.read(terminal, 4_096):
            return False
    question = (
        f"\nwhet: the agent wants to call {request.shown}\n"
        f"      {request.decision.sentence}\n"
        f"      allow it? [y/N, denied in {request.seconds:.0f} s] "
    )
    os.write(terminal, question.encode("ascii", "backslashreplace"))
    deadline = time.monotonic() + request.seconds
    typed = b""
    while b"\n" not in typed and len(typed) < 100:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([terminal], [], [], left)[0]:
            os.write(terminal, b"denied\n")
            return False
        more = os.read(terminal, 100)
        if not more:
            return False
        typed += more
    return typed.strip().lower() in (b"y", b"yes")
