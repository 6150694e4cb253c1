"""Where the groups of a round come from: the record, fresh rollouts, or rollouts beside training."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import replace

from ..errors import InputError
from ..models.budget import Meter
from ..record.store import Log
from ..types import Bundle, Group, Task, Trajectory
from .checkpoint import Course
from .datasets import curriculum
from .improvement import Accounts
from .loop import Context, Optimizer, Update
from .pipeline import Pipeline, PipelineOptions, Runner

RECORDED = {name: f"recorded_{name}" for name in ("reward", "success", "unknown")}
"""Metric of trajectories → its name where they are recorded ones, which no later weights made."""


Ranking = Callable[[Sequence[Group]], Awaitable[Sequence[Group]]]
"""Gives whole groups the scores of rewards that score groups."""


class GroupSource:
    """Gives the groups of each round; an async context manager."""

    ended = ""
    """The reason why there is no further round; empty if the source never runs dry."""
    accounts: Accounts | None = None

    async def __aenter__(self) -> GroupSource:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    def more(self, number: int) -> bool:
        """True if there is a round `number`, counted from 0."""
        return True

    def last(self, number: int, context: Context) -> bool:
        """True if no round can follow round `number`, whose groups were given."""
        return False

    async def groups(self, number: int, bundle: Bundle, context: Context) -> Sequence[Group]:
        """The groups of a round.

        Raises:
            BudgetExceeded: the rollouts would overshoot.
        """
        raise NotImplementedError

    async def step(
        self, optimizer: Optimizer, bundle: Bundle, groups: Sequence[Group], context: Context
    ) -> Update:
        """The optimizer's step on them."""
        return await optimizer.step(bundle, groups, context)

    def named(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """The metrics by the names that say what they are of."""
        return dict(metrics)


class FixedGroups(GroupSource):
    """The same groups every round: for what learns from a record as long as it likes."""

    def __init__(self, groups: Sequence[Group]) -> None:
        self._groups = groups

    async def groups(self, number: int, bundle: Bundle, context: Context) -> Sequence[Group]:
        """All of them."""
        return self._groups


class Once(GroupSource):
    """Recorded groups for a learner that wants its own tokens: each trajectory is learned from once.

    The log says what each round learned from, so a round that is run again gets the same, and a run that goes
    on later, with more in the record, gets what is new.

    Args:
        count: groups of a round; all of them if None.
    """

    ended = (
        "one pass over the recorded trajectories: the weights that sampled them are no longer the newest, so they "
        "are not learned from twice. Sample again with the new weights and go on, or let the experiment sample"
    )

    def __init__(self, groups: Sequence[Group], count: int | None, log: Log) -> None:
        self._groups, self._count, self._log = groups, count, log
        self._learned: set[str] = set()
        for key in log:
            if key.startswith("pass/"):
                self._learned.update(log.get(key))

    def _unlearned(self) -> list[Group]:
        unlearned = [
            Group(group.task, [run for run in group.trajectories if run.id not in self._learned])
            for group in self._groups
        ]
        return [group for group in unlearned if group.trajectories]

    def more(self, number: int) -> bool:
        """True if trajectories are left, or this round was begun before."""
        return f"pass/{number}" in self._log or bool(self._unlearned())

    def last(self, number: int, context: Context) -> bool:
        """True if nothing is left."""
        return not self.more(number + 1)

    async def groups(self, number: int, bundle: Bundle, context: Context) -> Sequence[Group]:
        """Those of the next tasks; of a round that was begun before the same again.

        Raises:
            InputError: they are no longer in the record.
        """
        key = f"pass/{number}"
        ids = self._log.get(key)
        if ids is None:
            chosen = self._unlearned()[: self._count]
            ids = [run.id for group in chosen for run in group.trajectories]
            self._learned.update(ids)
            # On disk before anything is learned: a run that is started again must take the same groups.
            await asyncio.wrap_future(self._log.put(key, ids))
            return chosen
        round_ids = set(ids)
        again = [
            Group(group.task, [run for run in group.trajectories if run.id in round_ids])
            for group in self._groups
        ]
        missing = round_ids - {run.id for group in again for run in group.trajectories}
        if missing:
            raise InputError(
                f"round {number + 1} learned from {len(missing)} trajectories that are no longer in the record, "
                f"first {min(missing)}; give the same record, or begin anew"
            )
        return [group for group in again if group.trajectories]

    def named(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Means over recorded trajectories are named so."""
        return {RECORDED.get(name, name): value for name, value in metrics.items()}


class Fresh(GroupSource):
    """New rollouts of tasks drawn from the train split.

    Args:
        count: tasks of a round; all if None.
        chance: makes the random generator of a round's draw.
        measured: task id → chance of success by its last group; changed as groups come. None to draw all
            tasks alike.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        tasks: Sequence[Task],
        count: int | None,
        *,
        chance: Callable[[int], random.Random],
        measured: MutableMapping[str, float] | None = None,
    ) -> None:
        self._tasks, self._count, self._n = tasks, count, optimizer.group_size
        self._chance, self._measured = chance, measured

    def last(self, number: int, context: Context) -> bool:
        """True if the budget allows no further round."""
        budget_left = context.meter.left("rollouts")
        size = min(len(self._tasks), self._count or len(self._tasks)) * self._n
        return budget_left is not None and budget_left < size

    async def groups(self, number: int, bundle: Bundle, context: Context) -> Sequence[Group]:
        """`group_size` rollouts of each task drawn; none for an optimizer that wants none."""
        if self._n == 0:
            return []
        chosen = list(self._tasks)
        if self._count is not None and self._count < len(chosen):
            rng = self._chance(number)
            if self._measured is None:
                chosen = rng.sample(chosen, self._count)
            else:
                chosen = curriculum.drawn(chosen, self._count, self._measured, tries=self._n, rng=rng)
        groups = await context.rollout(bundle, chosen, self._n, seed=number)
        if self._measured is not None:
            self._measured.update(curriculum.rates(groups))
        return groups


class Beside(GroupSource):
    """Rollouts that go on while the optimizer learns, in a thread of its own.

    Args:
        episode: runs one rollout, recorded and scored.
        ranked: gives whole groups the scores of rewards that score groups.
        begun: rounds that the run has had already.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        episode: Runner,
        tasks: Sequence[Task],
        options: PipelineOptions,
        *,
        bundle: Bundle,
        meter: Meter,
        ranked: Ranking,
        rounds_before: int = 0,
    ) -> None:
        if not optimizer.group_size:
            raise InputError(
                f"{optimizer.name} learns from records and asks for no rollouts to run beside it"
            )

        async def run(bundle: Bundle, task: Task, seed: int, /) -> Trajectory:
            meter.reserve(rollouts=1)
            return await episode(bundle, task, seed)

        chosen = replace(options, group_size=optimizer.group_size)
        self._ranked = ranked
        self._round = chosen.groups * chosen.group_size
        self._pipeline = Pipeline(run, tasks, bundle, chosen, begun=rounds_before * options.groups)
        self._publish: Callable[[Bundle], Awaitable[object]] | None = options.publish
        self.accounts = self._pipeline.accounts

    async def __aenter__(self) -> GroupSource:
        if self._publish is not None:
            await self._publish(self._pipeline.bundle)
        await self._pipeline.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._pipeline.close()

    def last(self, number: int, context: Context) -> bool:
        """True if the budget may not reach for another round; some of it may be under way already."""
        budget_left = context.meter.left("rollouts")
        return budget_left is not None and budget_left < self._round

    async def groups(self, number: int, bundle: Bundle, context: Context) -> Sequence[Group]:
        """The next groups that are whole and not too old."""
        return await self._ranked(await self._pipeline.round())

    async def step(
        self, optimizer: Optimizer, bundle: Bundle, groups: Sequence[Group], context: Context
    ) -> Update:
        """The step, while rollouts go on; then they run under what it has learned."""

        async def apart() -> Update:
            return await optimizer.step(bundle, groups, context)

        # A loop of its own in a thread: training would stop the rollouts that go on in this one.
        # So the step must not await what belongs to this loop: a lock, a client's connections.
        update = await asyncio.to_thread(asyncio.run, apart())
        # In this order: whatever samples has the weights before a rollout begins under their Bundle.
        if self._publish is not None:
            await self._publish(update.bundle)
        await self._pipeline.moved(update.bundle)
        return replace(
            update, metrics={**update.metrics, "stale_rollouts": float(self._pipeline.accounts.stale)}
        )


def source_of(
    optimizer: Optimizer,
    course: Course,
    tasks: Sequence[Task],
    *,
    count: int | None,
    groups: Sequence[Group] | None,
    asynchronous: PipelineOptions | None,
    log: Log,
    meter: Meter,
    chance: Callable[[int], random.Random],
    episode: Runner,
    ranked: Ranking,
) -> GroupSource:
    """Where the groups of an `improve` come from; arguments as of `Experiment.improve` and the sources."""
    if groups is not None:
        return Once(groups, count, log) if optimizer.on_policy else FixedGroups(groups)
    if asynchronous is None:
        measured = course.chances if getattr(optimizer, "curriculum", False) else None
        return Fresh(optimizer, tasks, count, chance=chance, measured=measured)
    options = asynchronous if count is None else replace(asynchronous, groups=count)
    before = len(course.metrics)
    return Beside(
        optimizer,
        episode,
        tasks,
        options,
        bundle=course.live,
        meter=meter,
        ranked=ranked,
        rounds_before=before,
    )
