"""The limits of an evaluation, and its result."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from ..errors import InputError
from ..types import Failure, Json

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """Upper bounds of one evaluation.

    Raises:
        InputError: a limit is not a positive number.
    """

    memory: int = 512 * MIB
    """Bytes beyond what the warm process has.  The kernel holds each process to it; all of them together
    are looked at twenty times a second, and killed for it."""
    cpu_seconds: float = 10.0
    """Of the program with those it has waited for, looked at twenty times a second.  The kernel holds each further
    process to one second more, in whole seconds."""
    wall_seconds: float = 10.0
    processes: int = 8
    """Processes and threads together, the program itself included."""
    file_bytes: int = 64 * MIB
    """All that it may write to its folder, which lives in memory."""
    output_bytes: int = 4 * MIB
    """Of the text that one call may print, and of one answer."""

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            integral = limit.name not in ("cpu_seconds", "wall_seconds")
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise InputError(f"Limits({limit.name}={value!r}): it must be a number")
            if value <= 0 or (integral and value != int(value)):
                kind = "a whole number" if integral else "a number"
                raise InputError(f"Limits({limit.name}={value!r}): it must be {kind} above 0")

    @property
    def bound(self) -> int:
        """Bytes of memory that an evaluation cannot exceed even between two looks: every process at its limit."""
        return self.processes * self.memory + self.file_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class CallResult:
    """The result of one call: a value or a failure, and its cost.

    A failure with `Fault.SANDBOX` is the machine's and says nothing of the program.
    """

    value: Json = None
    failure: Failure | None = None
    seconds: float = 0.0
    """Wall-clock time inside."""
    cpu_seconds: float = 0.0
    """Of the program and the processes it waited for."""
    stdout: str = ""
    """The end of what it printed, standard output before standard error."""
    killed_by: str | None = None
    """`wall`, `cpu`, `memory`, `output` or `signal N`; None for one that came to its own end."""
    exit_code: int | None = None
    """Of a process that ended itself instead of answering."""
    co_resident: bool = False
    """The judge sat in one process with the judged: it may steer a search, and promotes nothing."""
    trusted_only: bool = False
    """It ran outside the sandbox, as trusted code: it promotes nothing."""

    @property
    def ok(self) -> bool:
        """True if there is a value."""
        return self.failure is None

    @property
    def promotable(self) -> bool:
        """True if a promotion may rest on it: an answer, judged from outside, of sandboxed code."""
        return self.ok and not self.co_resident and not self.trusted_only
