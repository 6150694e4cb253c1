"""Episodes: policies of a Bundle run on tasks, each scored, recorded and, where it failed, attributed.

Evolution runs tens of thousands of them, so what surrounds an episode is kept to some tens of microseconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace

from ..errors import ContractError, InputError, MissingExtra, SandboxError, TrainingRefused
from ..judge import Reward, ajudged, is_async, judged
from ..judge.base import JudgesRefused
from ..judge.ranking import AT_ONCE, is_group_reward, ranked
from ..record.env import EnvFactory, failed, held, rollout
from ..record.faults import fault_of, key_refused
from ..record.gym import adapted
from ..record.policy import PolicyFactory
from ..record.store import Store
from ..record.store.codec import recordable
from ..record.tracing.live import noting
from ..types import Budget, Bundle, Fault, Group, Json, Task, Trajectory, digest

CHUNK = 256
"""Episodes that are recorded together; one that is interrupted loses none that has ended."""
_ENDS_ALL = (ContractError, MissingExtra, SandboxError, TrainingRefused)
"""Errors that are not an episode's own and would recur in every one: they end the run."""
_REFUSED = 3
"""Answers in a row that are refused for their key, or judges', after which nothing more is asked."""


class Episodes:
    """Runs episodes of one environment.

    Args:
        (all): as in `Experiment`.
    """

    def __init__(
        self,
        *,
        env: EnvFactory,
        policy: PolicyFactory,
        rewards: Sequence[Reward],
        store: Store | None,
        name: str,
        seed: int,
        limits: Budget | None,
        concurrency: int,
    ) -> None:
        self.env, self.policy, self.rewards, self.store = env, policy, tuple(rewards), store
        self.name, self.seed, self.limits, self.concurrency = name, seed, limits, concurrency
        self._plain = not any(is_async(reward) for reward in self.rewards)
        self._ranks = any(is_group_reward(reward) for reward in self.rewards)
        self.read: dict[tuple[str, str], set[str]] = {}
        """Bundle id and phase → names of the resources that the episodes read through their handles."""
        self.run_so_far = 0
        """Episodes that have ended."""
        self.unrecorded = 0
        """Episodes that have ended and, by `share`, were not stored."""
        self._answered = set[str]()
        """Ids of Bundles under which a model answered."""
        self._refused = 0
        """Episodes in a row whose model refused the key."""
        self._unjudged = JudgesRefused(_REFUSED)
        self.watch: Callable[[Bundle, Sequence[Group]], None] = lambda bundle, groups: None
        """Called with what came of each `run`."""

    async def run(
        self,
        bundle: Bundle,
        tasks: Sequence[Task],
        n: int,
        *,
        seed: int,
        phase: str,
        prefix: Sequence[Json] | None = None,
        share: float = 1.0,
    ) -> list[Group]:
        """One Group of `n` trajectories per task, in the order given, once they are recorded.

        Args:
            phase: distinguishes the same task and seed run for two purposes; the record's `experiment` names it.
            share: of the trajectories that is stored, chosen by seed.

        Raises:
            StoreError: they could not be recorded.
            MissingExtra, SandboxError: from the environment or the policy, as it is made.
            ContractError: the environment lacks a method.
        """
        ended: list[Trajectory | None] = [None] * (len(tasks) * n)
        jobs = iter(range(len(ended)))
        record = _Record(self.store, f"{self.name}/{phase}", share)
        versions = bundle.ids

        async def worker() -> None:
            # One iterator for all workers, without a lock: they are coroutines of one loop.
            for job in jobs:
                task = tasks[job // n]
                # The Bundle is not in it, so two sides of a comparison draw the same numbers: ten points take
                # a median of 118 pairs where 60 % of the luck is shared, 234 where none is.
                chosen = int(digest((self.seed, seed, task.id, job % n), 12), 16)
                # No fresh id: an episode that is run again after a crash is the same record.
                id = digest((self.name, phase, bundle.id, task.id, chosen), 24)
                trajectory = await self.scored(
                    await self._one(bundle, task, chosen, id, prefix, versions, phase)
                )
                ended[job] = trajectory
                # Before it is recorded: run again with the key, it is the same record, which a refusal must not hold.
                self._end_if_refused(bundle, trajectory)
                if not self._ranks:
                    if not key_refused(trajectory.error):
                        record.add(trajectory)
                elif (group := self._whole(ended, job // n, n)) is not None:
                    # In the background: whoever ended a group does not wait for its judge.
                    workers.append(asyncio.ensure_future(rank(group)))

        slots = asyncio.Semaphore(AT_ONCE)

        async def rank(group: slice) -> None:
            async with slots:
                ended[group] = scored = await ranked(ended[group], self.rewards)  # type: ignore[arg-type]
            for own in scored:
                record.add(own)

        workers: list[asyncio.Future[None]] = []
        try:
            async with held(self.env, bundle):
                if n == 1 and prefix is None and (expect := getattr(self.env, "expect", None)) is not None:
                    expect(bundle, tasks)
                for _ in range(min(self.concurrency, len(ended))):
                    workers.append(asyncio.ensure_future(worker()))
                while waiting := [worker for worker in workers if not worker.done()]:
                    await asyncio.wait(waiting, return_when=asyncio.FIRST_EXCEPTION)
                    await asyncio.gather(*(worker for worker in workers if worker.done()))
        finally:
            for task in workers:  # after one has raised, the others would go on spending
                task.cancel()
            self.run_so_far += record.ended
            self.unrecorded += record.left_out
            record.submit()
            if not all(task.done() and not task.cancelled() and task.exception() is None for task in workers):
                record.settle()
        await record.durable()
        finished = [trajectory for trajectory in ended if trajectory is not None]
        groups = [Group(task, tuple(finished[k * n : (k + 1) * n])) for k, task in enumerate(tasks)]
        self.watch(bundle, groups)
        return groups

    def _end_if_refused(self, bundle: Bundle, run: Trajectory) -> None:
        """Stop where a key is refused: every further episode would cost a call that fails.

        A candidate that is refused where others were answered asks for something that it may not have: its own doing.

        Raises:
            TrainingRefused: the model of these episodes, or a judge of them, refused the last ones.
        """
        self._unjudged.note(run.scores.values())
        if not key_refused(run.error):
            self._answered.add(bundle.id)
            self._refused = 0
            return
        self._refused += 1
        if self._refused >= _REFUSED and (not self._answered or bundle.id in self._answered):
            assert run.error is not None
            raise TrainingRefused(
                f"the model cannot be asked: {run.error.message[:300]} Nothing more is asked, and what was answered is "
                "recorded: mend this, and run the same command again."
            )

    @staticmethod
    def _whole(ended: Sequence[Trajectory | None], number: int, n: int) -> slice | None:
        """The place of a task's trajectories, once all of them have ended: then they can be ranked."""
        group = slice(number * n, (number + 1) * n)
        return None if any(trajectory is None for trajectory in ended[group]) else group

    async def ranked(self, groups: Sequence[Group]) -> list[Group]:
        """Groups whose runs came one by one, with the scores of the rewards that score groups."""
        if not self._ranks:
            return list(groups)
        return [Group(group.task, await ranked(group.trajectories, self.rewards)) for group in groups]

    async def _one(
        self,
        bundle: Bundle,
        task: Task,
        seed: int,
        id: str,
        prefix: Sequence[Json] | None,
        versions: dict[str, str],
        phase: str,
    ) -> Trajectory:
        fault: Fault | None = Fault.ENVIRONMENT
        try:
            env = adapted(self.env())
            fault = None  # a policy that cannot be made is the candidate's own doing, unless a machine failed
            policy = self.policy(bundle, seed)
        except Exception as error:
            if isinstance(error, _ENDS_ALL):
                raise
            return failed(task, fault or fault_of(error), error, seed=seed, versions=versions, id=id)
        with noting() as read:
            done = await rollout(
                env, policy, task, seed=seed, budget=self.limits, versions=versions, id=id, prefix=prefix
            )
        if read:
            self.read.setdefault((bundle.id, phase), set()).update(read)
        # A function whose text may not run here ran as its default, whatever was assigned.
        served = {name: id for name, id in read.items() if versions.get(name, id) != id}
        return replace(done, versions={**versions, **served}) if served else done

    async def scored(self, trajectory: Trajectory) -> Trajectory:
        """The trajectory with the scores that the rewards give it."""
        return judged(trajectory, *self.rewards) if self._plain else await ajudged(trajectory, *self.rewards)


class _Record:
    """Episodes on their way to the store."""

    def __init__(self, store: Store | None, experiment: str, share: float) -> None:
        self._store, self._experiment, self._share = store, experiment, share
        self._waiting: list[Trajectory] = []
        self._writes: list[Future[None]] = []
        self.ended = self.left_out = 0

    def add(self, trajectory: Trajectory) -> None:
        self.ended += 1
        if self._store is None:
            return
        if self._share < 1 and (trajectory.seed or 0) % 1000 >= self._share * 1000:
            self.left_out += 1
            return
        self._waiting.append(trajectory)
        if len(self._waiting) >= CHUNK:
            self.submit()

    def submit(self) -> None:
        if self._store is None or not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        try:
            self._writes.append(self._store.submit(*waiting, experiment=self._experiment))
        except InputError:  # one answer without a JSON form does not cost the others
            self._writes.append(self._store.submit(*map(recordable, waiting), experiment=self._experiment))

    async def durable(self) -> None:
        """Return once all of it is.

        Raises:
            StoreError: it could not be written.
        """
        for write in self._writes:
            await asyncio.wrap_future(write)

    def settle(self) -> None:
        """Wait for the writes of a run that was broken off, where nothing can be awaited any more."""
        for write in self._writes:
            # Waits as result() does, but raises nothing over the error that is under way.
            write.exception()
