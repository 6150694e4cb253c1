"""The judge of a search, and its judgement of a candidate.

Both judges run candidates by `context.rollout`: `rows.py` on tasks, `pair.py` by an evaluator beside the program.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol

from ....types import Trajectory
from ..editing.program import Program
from .population import Judged
from .screening import Screened, Spectrum

RETRIES = 2
"""Times that a failure of the machine is tried again."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The judgement of one candidate; a failure is data."""

    score: float | None = None
    """None if it has none: it failed, or the machine did."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    artifacts: Mapping[str, str] = field(default_factory=dict)
    instances: Mapping[str, float] = field(default_factory=dict)
    """Instance → score, where the evaluator gives them under `instances`."""
    failure: str | None = None
    """The failure, in a line that a model can mend its program from."""
    timeout: bool = False
    infrastructure: bool = False
    """The machine failed, not the program."""
    behaviour: str = ""
    """Fingerprint; "" where nothing is known."""
    first: float | None = None
    """The score of the first stage alone."""


class Benched(Protocol):
    """One candidate at work: `smoke` where it is asked for, then `score`."""

    rollouts: int
    """That it has taken so far."""

    async def smoke(self) -> Judgement: ...
    async def score(self) -> Judgement: ...


class Judging(Protocol):
    """The judge of a search: `pair.PairJudge` beside the program, or `rows.RowJudge`."""

    @property
    def cpu_seconds(self) -> float:
        """Of candidates, so far."""
        ...

    @property
    def most(self) -> int:
        """Rollouts that judging one candidate takes at most."""
        ...

    async def prepare(self, start: Program) -> Judgement: ...
    def bench(self, program: Program) -> AbstractAsyncContextManager[Benched]: ...

    async def spectrum(self, judged: Judged) -> Spectrum | None:
        """Which lines of a member to suspect, and what its versions are screened by; None where nothing is known."""
        return None

    async def screen(self, spectrum: Spectrum, programs: Sequence[Program]) -> list[Screened]:
        """Versions of a spectrum's program, side by side on a few rows; in the order of the versions."""
        raise NotImplementedError

    async def confirm(self, program: Program) -> bool:
        """True if a program at the target is as good where nothing was searched: the search is done."""
        return True

    async def score(self, program: Program, benches: list[Benched] | None = None) -> Judgement:
        """`Benched.score` on a bench for it alone; the machine's failures are tried again.

        Args:
            benches: every bench that this took is appended, so that its rollouts can be counted.
        """
        judged = Judgement()
        for _ in range(RETRIES + 1):
            async with self.bench(program) as bench:
                if benches is not None:
                    benches.append(bench)
                judged = await bench.score()
            if not judged.infrastructure:
                break
        return judged


def timed_out(run: Trajectory) -> bool:
    """It was ended for taking too long."""
    return run.meta.get("killed_by") in ("wall", "cpu")


def unreadable(program: Program, most: int) -> str | None:
    """The reason why a program is not worth a process, or None: over `most` characters, or not Python."""
    length = sum(map(len, program.parts.values()))
    if length > most:
        return f"TooLong: {length} characters, and {most} are allowed (max_code_length)"
    for name, text in program.parts.items():
        if name.endswith(".py"):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # a blind edit subscripts numbers; that is its affair
                    # Otherwise the text is compiled under the __future__ imports of this module.
                    compile(text, name, "exec", dont_inherit=True)
            except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
                return f"SyntaxError: {error}"
    return None
