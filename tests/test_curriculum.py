"""Drawing the tasks that can still teach."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from whet.learn.datasets.curriculum import drawn, in_band, informative, rates
from whet.learn.experiment import Experiment
from whet.learn.loop import Update
from whet.record.env import StepResult
from whet.record.policy import FunctionPolicy
from whet.record.store import Store
from whet.types import Group, Outcome, Split, Task, Trajectory


def test_a_band_of_chances_is_where_groups_are_informative():
    assert informative(0.01) == pytest.approx(0.077, abs=0.001)
    assert informative(0.05) == pytest.approx(0.337, abs=0.001)
    assert informative(0.3) == pytest.approx(0.942, abs=0.001)
    some = [Task(id=name) for name in ("hopeless", "fit", "solved", "new")]
    kept = in_band(some, {"hopeless": 0.01, "fit": 0.4, "solved": 0.9})
    assert [task.id for task in kept] == ["fit", "new"]


def test_a_task_that_always_failed_is_tried_again_and_one_that_nobody_judged_is_new():
    def group(name, *outcomes):
        task = Task(id=name)
        return Group(task, [Trajectory(task=task, outcome=outcome) for outcome in outcomes])

    found = rates(
        [
            group("lost", *[Outcome.FAILURE] * 8),
            group("odd", Outcome.UNKNOWN),
            group("won", *[Outcome.SUCCESS] * 8),
        ]
    )
    assert found == {"lost": pytest.approx(0.1), "won": pytest.approx(0.9)}
    assert [task.id for task in in_band([Task(id=name) for name in found], found)] == ["lost"]


def test_tasks_in_the_band_come_first_and_none_comes_twice():
    some = [Task(id=str(number)) for number in range(20)]
    chances = {str(number): 0.9 for number in range(12)} | {"12": 0.06, "13": 0.5}
    chosen = drawn(some, 10, chances, tries=8, rng=random.Random(0))
    assert len({task.id for task in chosen}) == 10
    assert {str(number) for number in range(12, 20)} <= {task.id for task in chosen}
    often = [drawn(some[12:14], 1, chances, tries=8, rng=random.Random(seed))[0].id for seed in range(300)]
    assert often.count("13") > 1.5 * often.count("12") > 0
    assert len(drawn(some, 50, chances, tries=8, rng=random.Random(0))) == 20


class Parity:
    """Right for even tasks, always."""

    def reset(self, task, seed):
        self._even = int(task.id) % 2 == 0
        return task.id

    def step(self, action):
        return StepResult(
            None, None, True, info={"success": self._even if int(action) < 20 else bool(int(action) % 3)}
        )


class Watches:
    name, group_size, on_policy, ordered = "watches", 4, True, False

    def __init__(self, curriculum):
        self.curriculum, self.seen = curriculum, []

    async def step(self, bundle, groups, context):
        self.seen.append(sorted(int(group.task.id) for group in groups))
        return Update(bundle=bundle)


def improve(store, watches, rounds):
    todo = [Task(id=str(number), split=Split.TRAIN) for number in range(20)]
    experiment = Experiment(
        env=Parity,
        policy=lambda bundle, seed: FunctionPolicy(lambda seen: seen),
        tasks=todo,
        rewards=[],
        store=store,
    )
    return asyncio.run(experiment.improve(watches, rounds=rounds, tasks=5))


def test_an_improve_draws_what_can_teach_and_goes_on_alike(tmp_path: Path):
    whole, plain = Watches(True), Watches(False)
    improve(None, whole, 6)
    improve(None, plain, 6)
    assert plain.seen != whole.seen
    solved = [number for number in {n for seen in whole.seen[:4] for n in seen} if number % 2 == 0]
    assert solved
    assert not set(whole.seen[4]) & set(solved), "what is solved is left aside while anything else is there"
    with Store(tmp_path / "runs.db") as store:
        improve(store, Watches(True), 3)
        rest = Watches(True)
        improve(store, rest, 6)
    assert rest.seen == whole.seen[3:]
