"""A small world that optimizers are tested in: real environments, a real asynchronous rollout.

`KnobEnv` asks for a setting; the policy answers with what its rule says; a task succeeds with a
probability that grows with the share of the settings it depends on that are right.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from whet.errors import EnvError
from whet.learn.loop import Context
from whet.models.budget import Meter
from whet.record.env import Env, StepResult, rollout
from whet.record.policy import FunctionPolicy, Policy
from whet.types import Budget, Bundle, Group, Json, Score, Task, Trajectory, Version

BEST: dict[str, Json] = {
    "match": "any",
    "missing": 3,
    "top": 7,
    "sender": True,
    "month": False,
    "boost": 2.0,
    "words": 5,
    "retry": 2,
    "order": "date",
    "strict": True,
}
START: dict[str, Json] = {
    "match": "all",
    "missing": 1,
    "top": 3,
    "sender": False,
    "month": True,
    "boost": 0.5,
    "words": 2,
    "retry": 0,
    "order": "rank",
    "strict": False,
}
RULE_SOURCE = """
RULE = {
    "match": "all",  # all | any
    "missing": 1,  # 0..4
    "top": 3,  # 1..10
    "sender": False,
    "month": True,
    "boost": 0.5,  # 0..3
    "words": 2,  # 1..6
    "retry": 0,  # 0..2
    "order": "rank",  # rank | date | size
    "strict": False,
}
"""


def fit(key: str, value: Json) -> float:
    """1 for the planted optimum, less the further away."""
    best = BEST[key]
    if isinstance(best, bool | str):
        return float(value == best)
    return max(0.0, 1.0 - abs(value - best) / (0.75 * best))


class KnobEnv:
    """One question about a few knobs; the answer succeeds by how well they are set."""

    def __init__(self) -> None:
        self._task: Task | None = None
        self._seed = 0

    def reset(self, task: Task, seed: int) -> Json:
        self._task, self._seed = task, seed
        return task.initial_state["needs"]

    def step(self, action: Json) -> StepResult:
        if self._task is None:
            raise EnvError("step before reset")
        task, self._task = self._task, None
        needs = task.initial_state["needs"]
        chance = sum(fit(key, value) for key, value in zip(needs, action, strict=True)) / len(needs)
        success = random.Random(f"{self._seed}:{task.id}").random() < 0.05 + 0.9 * chance
        return StepResult("over", float(success), True, False, {"success": success})


def knob_policy(bundle: Bundle, seed: int) -> Policy:
    """Answers with the settings that the rule holds."""
    rule = bundle["rule"].content
    return FunctionPolicy(lambda needs: [rule[key] for key in needs])


def tasks(count: int, seed: int, name: str) -> list[Task]:
    """Tasks that each depend on three of the ten knobs."""
    rng = random.Random(seed)
    return [
        Task(
            id=f"{name}{number}",
            group=f"{name}{number % 20}",
            initial_state={"needs": rng.sample(list(BEST), 3)},
        )
        for number in range(count)
    ]


Judge = Callable[[Trajectory, Bundle], Trajectory]


class World:
    """Runs real rollouts within a meter, counts them, and can judge them otherwise."""

    def __init__(
        self,
        make: Callable[[], Env] = KnobEnv,
        policy: Callable[[Bundle, int], Policy] = knob_policy,
        *,
        budget: Budget | None = None,
        judge: Judge | None = None,
    ) -> None:
        self.make, self.policy, self.judge = make, policy, judge
        self.meter = Meter(budget)
        self.count = 0

    async def rollout(
        self,
        bundle: Bundle,
        tasks: Sequence[Task],
        n: int = 1,
        *,
        seed: int = 0,
        prefix: Sequence[Json] | None = None,
    ) -> list[Group]:
        self.meter.reserve(rollouts=len(tasks) * n)
        groups = []
        for task in tasks:
            made = []
            for attempt in range(n):
                own = random.Random(f"{seed}:{task.id}:{attempt}").getrandbits(31)
                policy = self.policy(bundle, own)
                done = await rollout(
                    self.make(),
                    policy,
                    task,
                    seed=own,
                    versions=bundle.ids,
                    id=f"{task.id}:{attempt}",
                    prefix=prefix,
                )
                self.count += 1
                made.append(self.judge(done, bundle) if self.judge else done)
            groups.append(Group(task, tuple(made)))
        return groups

    def context(
        self, train: Sequence[Task], validation: Sequence[Task] = (), *, seed: int = 0, **more: Any
    ) -> Context:
        return Context(
            rollout=self.rollout,
            train=train,
            validation=validation,
            meter=self.meter,
            rng=random.Random(seed),
            folder=more.pop("folder", Path(".")),
            **more,
        )


async def success(bundle: Bundle, on: Sequence[Task], *, n: int = 1, seed: int = 99) -> float:
    """Mean success of a bundle, outside of any budget."""
    groups = await World().rollout(bundle, on, n, seed=seed)
    values = [float(each.outcome == "success") for group in groups for each in group.trajectories]
    return sum(values) / len(values)


def start_bundle(rule: Mapping[str, Json] = START) -> Bundle:
    return Bundle([Version(resource="rule", content=dict(rule))])


def without_score(trajectory: Trajectory, reason: str = "the judge was down") -> Trajectory:
    """The same trajectory with a score that is missing, which is not zero."""
    return replace(trajectory, scores={"success": Score("success", None, reason)})
