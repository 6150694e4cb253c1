"""The verifiable reward for programs: does the code that was written pass cases that it never saw?

The code gets one input per call in the sandbox, in a process of its own; what it should answer stays
out here and is compared by type and value.  Ending the process, printing a score or patching what
compares therefore earns nothing.  A sandbox that fails gives no score, and never a zero.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from ..sandbox import Pool, exact
from ..types import Fault, Json, Score, Trajectory

_FENCE = re.compile(r"```(?:python|py)?[ \t]*\n(.*?)```", re.DOTALL)


class _Cases(msgspec.Struct):
    """The form of `Task.answer`."""

    function: str
    cases: list[tuple[list[Json], Json]]


class Passes:
    """Share of the task's hidden cases that the answered program gets right.

    The task's answer is `{"function": name, "cases": [[[argument, ...], result], ...]}`; the trajectory's
    output is a program, alone or as the last fenced block of a text.

    >>> async with Pool() as pool:
    ...     score = await Passes(pool)(trajectory)

    Args:
        pool: where the program runs; open for as long as the reward is used.
        name: of the Score.
        all_or_nothing: 1 if every case is right, else 0.
    """

    def __init__(self, pool: Pool, *, name: str = "passes", all_or_nothing: bool = False) -> None:
        self.name, self.version = name, "1"
        self._pool, self._whole = pool, all_or_nothing

    async def __call__(self, trajectory: Trajectory) -> Score:
        """The score; None where the task has no cases, or the sandbox failed."""
        return await self.by(trajectory.task.answer, trajectory.output)

    async def by(self, cases: Json, output: Json) -> Score:
        """The score of a program by these cases, in the form of a task's answer."""
        try:
            hidden = msgspec.convert(cases, _Cases)
        except msgspec.ValidationError as error:
            return self._score(None, f"the task's answer holds no cases: {error}")
        if not hidden.cases:
            return self._score(None, "the task's answer holds no cases")
        source, right, wrong = program_in(output), 0, ""
        for arguments, expected in hidden.cases:
            result = await self._pool.call(source, hidden.function, arguments)
            if result.failure is not None and result.failure.fault is Fault.SANDBOX:
                return self._score(None, f"the sandbox failed: {result.failure.message}")
            if result.ok and exact(result.value, expected):
                right += 1
            elif not wrong:
                # The reason may reach the learner: it says what went wrong, and not what was wanted.
                wrong = (
                    f"{result.failure.type}: {result.failure.message}" if result.failure else "another result"
                )
        share = right / len(hidden.cases)
        value = float(right == len(hidden.cases)) if self._whole else share
        return self._score(
            value, f"{right} of {len(hidden.cases)} cases{'; first: ' if wrong else ''}{wrong}"[:500]
        )

    def _score(self, value: float | None, reason: str) -> Score:
        return Score(self.name, value, reason, self.version)


def program_in(output: Any) -> str:
    """The program of an answer: its last fenced block, or all of it."""
    text = output if isinstance(output, str) else ""
    blocks = _FENCE.findall(text)
    return str(blocks[-1]) if blocks else text
