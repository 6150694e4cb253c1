"""Rollouts beside training: workers fill groups under the newest Bundle while an optimizer learns.

A barrier makes every round as slow as its slowest rollout, and a worker that fails without a word
leaves a queue that nobody can join (both seen in SkyRL-Agent's dispatchers).  Here a rollout that raises,
hangs or dies is retried and then becomes a Trajectory that says so, which group statistics
leave out; `Accounts` adds up at any time.

Staleness is counted in updates between the Bundle that a rollout began under and the one that
learns from it.  No group is started that could only arrive too late (the admission rule of AReaL,
Fu et al. 2025), and one that does is dropped, counted and its task put back.  What is left of the
difference an optimizer corrects by the recorded log-probabilities (`RoundOptions.max_staleness`, clipped
ratios).

`Experiment.improve(asynchronous=PipelineOptions(...))` drives it.  It moves no weights: the optimizer steps in a
thread of its own, so rollouts must sample from weights that are not being changed
(`learn.training.remote.RemoteModels`, or an endpoint).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from ..errors import BudgetExceeded, InputError, TrainingRefused
from ..types import Bundle, Failure, Fault, Group, Outcome, Task, Trajectory, digest
from .improvement import Accounts

CLEAN_UP = 2.0
"""Seconds that a rollout has to clean up when the pipeline is closed."""


class Runner(Protocol):
    """Runs one rollout."""

    async def __call__(self, bundle: Bundle, task: Task, seed: int, /) -> Trajectory:
        """The trajectory. An exception is an infrastructure failure; a policy's failure is in the trajectory.

        Raises:
            BudgetExceeded: the budget allows no further rollout.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class PipelineOptions:
    """Options of rollouts that run beside training."""

    workers: int = 16
    """Concurrent rollouts."""
    group_size: int = 8
    """Rollouts per task; an Experiment uses the optimizer's."""
    groups: int = 8
    """Groups per round."""
    max_staleness: int = 2
    """Most updates between the start of a rollout and learning from it; 0 is on-policy."""
    seconds: float | None = 600.0
    """Time limit of a rollout in seconds, after which it counts as hung; None for no limit."""
    attempts: int = 3
    """Attempts at a rollout, the first included."""
    seed: int = 0
    """Random seed of the rollouts."""
    publish: Callable[[Bundle], Awaitable[object]] | None = None
    """Loads a Bundle into the sampler; awaited before rollouts start under it."""

    def __post_init__(self) -> None:
        if min(self.workers, self.group_size, self.groups, self.attempts) < 1 or self.max_staleness < 0:
            raise InputError(f"workers, group_size, groups and attempts must be 1 or more: {self}")


@dataclass(slots=True)
class _Open:
    """A group under way."""

    task: Task
    number: int
    oldest: int
    """Number of updates when its first rollout started."""
    done: list[Trajectory | None]
    begun: int = 0


class Pipeline:
    """Keeps workers busy with groups; use it as `async with`.

    Args:
        run: runs one rollout.
        tasks: run in this order, and again from the start.
        bundle: the first rollouts run under it.
        begun: groups that an earlier pipeline, which this one resumes, has started.
    """

    def __init__(
        self,
        run: Runner,
        tasks: Sequence[Task],
        bundle: Bundle,
        options: PipelineOptions | None = None,
        *,
        begun: int = 0,
    ) -> None:
        if not tasks:
            raise InputError("a pipeline needs at least one task")
        self.options = options or PipelineOptions()
        self.accounts = Accounts()
        self.updates = 0
        """Number of times that the Bundle has changed."""
        self.bundle = bundle
        self._run = run
        self._todo: Iterator[Task] = islice(_forever(tasks), begun % len(tasks), None)
        self._again: deque[Task] = deque()
        self._groups = begun
        self._exhausted: BudgetExceeded | None = None
        self._admitted = 0
        self._filling: deque[_Open] = deque()
        self._ready: deque[_Open] = deque()
        self._changed = asyncio.Condition()
        self._workers: list[asyncio.Task[None]] = []
        self._abandoned: set[asyncio.Task[Trajectory]] = set()

    async def __aenter__(self) -> Pipeline:
        self._workers = [asyncio.create_task(self._work()) for _ in range(self.options.workers)]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop the workers; what is under way is cancelled and counted."""
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
        for task in self._abandoned:
            task.cancel()
        self._workers = []

    async def moved(self, bundle: Bundle) -> None:
        """Run what begins from now on under another Bundle: one update more."""
        async with self._changed:
            self.bundle = bundle
            self.updates += 1
            self._changed.notify_all()

    async def round(self) -> list[Group]:
        """The next groups to learn from, none of them too stale.

        Fewer than a round has where the budget allows no more.

        Raises:
            TrainingRefused: every rollout of a whole round has failed.
            BudgetExceeded: the budget allows not one more group.
        """
        complete: list[_Open] = []
        async with self._changed:
            while len(complete) < self.options.groups:
                await self._changed.wait_for(lambda: bool(self._ready) or self._over)
                if not self._ready:
                    break
                opened = self._ready.popleft()
                if self.updates - opened.oldest > self.options.max_staleness:
                    self.accounts.stale += len(opened.done)
                    self._again.append(opened.task)
                    self._admitted -= 1  # its place goes to a fresh one
                    self._changed.notify_all()
                    continue
                complete.append(opened)
        # By their number and not as they ended: with max_staleness 0 a seed then gives the same run.
        complete.sort(key=lambda opened: opened.number)
        if not complete:
            assert self._exhausted is not None
            raise self._exhausted
        groups = [
            Group(opened.task, [trajectory for trajectory in opened.done if trajectory is not None])
            for opened in complete
        ]
        every = [trajectory for group in groups for trajectory in group.trajectories]
        self.accounts.learned += len(every)
        if all(trajectory.outcome is Outcome.INFRASTRUCTURE_ERROR for trajectory in every):
            error = next((trajectory.error for trajectory in every if trajectory.error), None)
            raise TrainingRefused(f"all {len(every)} rollouts of a round failed, the first with {error}")
        return groups

    @property
    def _over(self) -> bool:
        """True if the budget ends it and nothing is under way any more."""
        return self._exhausted is not None and self.accounts.running == 0

    async def _work(self) -> None:
        while True:
            group, index = await self._next()
            try:
                trajectory = await self._insist(group, index)
            except BudgetExceeded as exceeded:
                async with self._changed:
                    self._exhausted = exceeded
                    self._changed.notify_all()
                return
            async with self._changed:
                group.done[index] = trajectory
                if all(rollout is not None for rollout in group.done):
                    self._filling.remove(group)
                    self._ready.append(group)
                self._changed.notify_all()

    async def _next(self) -> tuple[_Open, int]:
        """The next rollout to begin, once there may be one."""
        options = self.options
        async with self._changed:
            while True:
                if self._exhausted is not None:
                    raise asyncio.CancelledError  # this worker's end; nothing is under way for it
                for group in self._filling:
                    if group.begun < options.group_size:
                        group.begun += 1
                        return group, group.begun - 1
                if self._admitted < (self.updates + options.max_staleness + 1) * options.groups:
                    self._admitted += 1
                    task = self._again.popleft() if self._again else next(self._todo)
                    opened = _Open(task, self._groups, self.updates, [None] * options.group_size)
                    self._groups += 1
                    self._filling.append(opened)
                    continue
                await self._changed.wait()

    async def _insist(self, group: _Open, index: int) -> Trajectory:
        """The trajectory of one rollout, or of its failure."""
        accounts, options = self.accounts, self.options
        accounts.asked += 1
        accounts.running += 1
        ended = False
        try:
            failure = Failure(Fault.ENVIRONMENT, "RuntimeError", "never tried")
            for attempt in range(options.attempts):
                seed = int(digest([options.seed, group.number, index, attempt], 12), 16)
                attempted = await self._attempt(group.task, seed)
                if isinstance(attempted, Trajectory):
                    accounts.finished += 1
                    ended = True
                    return attempted
                failure = attempted
            accounts.failed += 1
            ended = True
            return Trajectory(task=group.task, outcome=Outcome.INFRASTRUCTURE_ERROR, error=failure)
        finally:
            accounts.running -= 1
            accounts.cancelled += not ended

    async def _attempt(self, task: Task, seed: int) -> Trajectory | Failure:
        # In a task of its own: one that swallows its cancellation is left behind, and holds nobody up.
        attempt = asyncio.create_task(_shielded(self._run(self.bundle, task, seed)))
        try:
            # Not wait_for, which goes on waiting until the cancelled task has really ended.
            done, _ = await asyncio.wait({attempt}, timeout=self.options.seconds)
        except asyncio.CancelledError:
            attempt.cancel()
            await asyncio.wait({attempt}, timeout=CLEAN_UP)
            raise
        if not done:
            self.accounts.hung += 1
            # The event loop holds tasks weakly: one that nobody else holds may be collected while it runs.
            self._abandoned.add(attempt)
            attempt.add_done_callback(self._abandoned.discard)
            attempt.cancel()
            return Failure(Fault.ENVIRONMENT, "TimeoutError", f"it did not end in {self.options.seconds:g} s")
        # exception() of a cancelled task raises, which would look like a cancellation of this worker.
        error: BaseException | None = (
            asyncio.CancelledError("its worker was cancelled") if attempt.cancelled() else attempt.exception()
        )
        if error is None:
            trajectory = attempt.result()
            if trajectory.outcome is not Outcome.INFRASTRUCTURE_ERROR:
                return trajectory
            self.accounts.raised += 1
            return trajectory.error or Failure(Fault.ENVIRONMENT, "RuntimeError", "the machine failed")
        if isinstance(error, BudgetExceeded):
            raise error
        died = not isinstance(error, Exception) or isinstance(error, _Died)
        self.accounts.died += died
        self.accounts.raised += not died
        return Failure(Fault.ENVIRONMENT, type(error.__cause__ or error).__name__, str(error))


class _Died(Exception):
    """A worker that wanted to end the whole process."""


async def _shielded(run: Awaitable[Trajectory]) -> Trajectory:
    try:
        return await run
    except (SystemExit, KeyboardInterrupt) as error:  # asyncio would end the event loop with them
        raise _Died(f"it ended with {error!r}") from error


def _forever(tasks: Sequence[Task]) -> Iterator[Task]:
    while True:
        yield from tasks
