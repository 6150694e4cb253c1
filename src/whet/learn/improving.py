"""The rounds of one `improve`: groups, a step, a checkpoint, until there is nothing left to do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from ..errors import BudgetExceeded
from ..judge.hacking import Traits, detect, traits
from ..models.budget import Meter
from ..record.store import Log
from ..record.store.findings import RewardFinding
from ..types import Bundle, Group, Json
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


class FirstAndLast:
    """The runs of the first and of the last round of one process, to tell whether more than the score changed."""

    def __init__(self, metric: str) -> None:
        self.metric = metric
        self._first: list[Traits] | None = None
        self._last: Sequence[Group] = ()

    def take(self, groups: Sequence[Group]) -> None:
        """The groups of a round."""
        if self._first is None:
            self._first = _shown(groups)
        else:
            self._last = groups

    def findings(self) -> list[RewardFinding] | None:
        """What the last round shows beside the first; None where there were not two."""
        if not self._first or not self._last:
            return None
        return detect(self._first, _shown(self._last), metric=self.metric)


def _shown(groups: Sequence[Group]) -> list[Traits]:
    return [traits(run) for group in groups for run in group.trajectories]


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
    seen: Callable[[Sequence[Group]], None],
) -> None:
    """Let an optimizer learn from a source's groups; `course` keeps its progress.

    Args:
        rounds: in all, those of earlier processes included; None until the optimizer is done, the source
            dry or the budget used up.
        context: of the round of this number, from 0.
        watch: called with each round before its checkpoint.
        seen: called with the groups of each round.

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
            seen(groups)
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
