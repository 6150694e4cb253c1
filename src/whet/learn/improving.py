"""The rounds of one `improve`: groups, a step, a checkpoint, until there is nothing left to do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from ..errors import BudgetExceeded
from ..models.budget import Meter
from ..record.store import Log
from ..types import Bundle, Json
from .checkpoint import Clock, Course
from .loop import Context, Optimizer, Progress
from .sources import GroupSource

Watch = Callable[[int, Mapping[str, float]], None]
"""Called with the number of a round, from 1, and all its metrics."""


def told(
    progress: Progress, name: str, rounds: int | None, number: int, metrics: Mapping[str, float]
) -> None:
    """A Watch: tell a Progress the first few metrics of a round."""
    progress(name, number, rounds, **dict(list(metrics.items())[:4]))


async def once(log: Log, key: str, measure: Callable[[], Awaitable[Json]]) -> Json:
    """The log's entry under `key`, measured and entered if there is none yet."""
    if key not in log:
        await asyncio.wrap_future(log.put(key, await measure()))
    return log.get(key)


async def rounds_of(
    course: Course,
    source: GroupSource,
    optimizer: Optimizer,
    *,
    rounds: int | None,
    meter: Meter,
    context: Callable[[int], Context],
    checkpoint: Callable[[Course], None],
    watch: Watch,
) -> None:
    """Let an optimizer learn from a source's groups; `course` keeps its progress.

    Args:
        rounds: in all, those of earlier processes included; None until the optimizer is done, the source
            dry or the budget used up.
        context: of the round of this number, from 0.
        watch: called with each round before its checkpoint.

    Raises:
        TrainingRefused: from the optimizer.
        BudgetExceeded: the budget does not allow `rounds`, or not even the first one.
    """
    clock = Clock(course)
    written = (course.live, course.state, len(course.metrics))
    async with source:
        while not course.done and (rounds is None or len(course.metrics) < rounds):
            number = len(course.metrics)
            if not source.more(number):
                course.reason = source.ended
                break
            round_context = context(number)
            try:
                groups = await source.groups(number, course.live, round_context)
                # Before the step, which has to write the weights if it is the last.
                round_context.last = number + 1 == rounds or source.last(number, round_context)
                update = await source.step(optimizer, course.live, groups, round_context)
            except BudgetExceeded as exceeded:
                # A fixed number of rounds is a promise; without one the budget is the end that was meant.
                if rounds is not None or not number:
                    raise
                course.reason = f"the budget ends it: {exceeded}"
                _back_to(written, course)
                break
            course.live, course.state = update.bundle, update.state
            course.reason, course.done = update.reason, update.done
            course.metrics.append({**source.named(update.metrics), "rollouts": meter.spent["rollouts"]})
            watch(number + 1, course.metrics[-1])
            course.spent = dict(meter.spent)
            clock.stop(course)
            if _resumable(course.state) or course.done:
                checkpoint(course)
                # only after the checkpoint: a crash in between resumes from the one before
                written = (course.live, course.state, len(course.metrics))
    clock.stop(course)


def _resumable(state: Json) -> bool:
    return not isinstance(state, dict) or bool(state.get("resumable", True))


def _back_to(written: tuple[Bundle, Json, int], course: Course) -> None:
    """Take a course back to where it was last written: everything since then lives in this process only."""
    if _resumable(course.state):
        return
    course.live, course.state, rounds = written
    course.reason += (
        f". It is left at round {rounds} of {len(course.metrics)}, the last whose weights were written"
    )
    del course.metrics[rounds:]
