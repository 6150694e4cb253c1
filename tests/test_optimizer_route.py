"""Route finds who is better at what, and does not route where there is nothing to find."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import pytest
from evolution_world import World

from whet.errors import InputError, TrainingRefused
from whet.learn.loop import Context, Update
from whet.learn.loop_checks import check_optimizer
from whet.learn.optimizers.route import Route, RouteOptions
from whet.models.heads import RouterTable
from whet.types import Budget, Bundle, Group, Outcome, Score, Task, Trajectory, Version

ARMS = ("rule", "head", "policy")
KINDS = ("phone", "amount", "date")
RATE = {
    ("phone", "hard"): {"rule": 0.5, "head": 0.9, "policy": 0.6},
    ("amount", "hard"): {"rule": 0.6, "head": 0.4, "policy": 0.8},
}
OTHERWISE = {"rule": 0.75, "head": 0.8, "policy": 0.7}


def features(task: Task) -> dict[str, str | int]:
    return {name: task.meta[name] for name in ("kind", "tier", "size", "moon")}


def make_tasks(count: int, seed: int) -> list[Task]:
    rng = random.Random(seed)
    return [
        Task(
            id=f"{seed}-{number}",
            group=f"{seed}-g{number % 40}",
            meta={
                "kind": rng.choice(KINDS),
                "tier": rng.choice(("easy", "hard")),
                "size": rng.randrange(3),
                "moon": rng.choice(("new", "full")),
            },
        )
        for number in range(count)
    ]


def outcome(task: Task, arm: str, seed: int) -> float:
    """1 or 0; how lucky a task is, is shared by all arms, as a hard question is hard for all."""
    kind, tier = task.meta["kind"], task.meta["tier"]
    luck = (
        random.Random(f"{seed}:{task.id}").random() * 0.7
        + random.Random(f"{seed}:{task.id}:{arm}").random() * 0.3
    )
    return float(luck < RATE.get((kind, tier), OTHERWISE)[arm])


def record(tasks: Sequence[Task], seed: int = 0, *, shuffled: bool = False) -> list[Group]:
    values = {(task.id, arm): outcome(task, arm, seed) for task in tasks for arm in ARMS}
    if shuffled:
        rng = random.Random(seed)
        for task in tasks:
            mixed = [values[task.id, arm] for arm in ARMS]
            rng.shuffle(mixed)
            values.update({(task.id, arm): value for arm, value in zip(ARMS, mixed, strict=True)})
    return [
        Group(
            task,
            tuple(
                Trajectory(
                    id=f"{task.id}:{arm}",
                    task=task,
                    meta={"arm": arm},
                    started=0.0,
                    scores={"success": Score("success", values[task.id, arm])},
                )
                for arm in ARMS
            ),
        )
        for task in tasks
    ]


def learn(groups: Sequence[Group], seed: int = 0, **options: float) -> Update:
    route = Route(ARMS, features, options=RouteOptions(**options))  # type: ignore[arg-type]
    return asyncio.run(route.step(Bundle(), groups, World().context([], seed=seed)))


def held_out_gain(update: Update, seed: int, count: int = 2000) -> float:
    table = RouterTable.of(update.bundle["router"])
    gains = [
        outcome(task, table.choose(features(task)), seed) - outcome(task, table.default, seed)
        for task in make_tasks(count, seed)
    ]
    return sum(gains) / count


@pytest.mark.parametrize("seed", range(3))
def test_the_planted_features_are_found_and_gain_on_held_out_tasks(seed: int) -> None:
    update = learn(record(make_tasks(600, seed), seed), seed)
    content = update.bundle["router"].content
    assert content["by"] == ["kind", "tier"]
    assert content["table"]["kind=amount,tier=hard"] == "policy"
    assert content["table"]["kind=phone,tier=hard"] == "head"
    assert content["default"] == "head"
    assert update.metrics["routed"] == 1.0
    assert "routing by kind and tier gains +" in update.reason
    assert held_out_gain(update, seed + 100) > 0.03


def test_shuffled_outcomes_fall_back_to_no_routing() -> None:
    updates = [learn(record(make_tasks(300, seed), seed, shuffled=True), seed) for seed in range(20)]
    routed = [update for update in updates if update.metrics["routed"]]
    assert len(routed) <= 4  # alpha is 0.1
    for update in updates:
        if not update.metrics["routed"]:
            assert update.bundle["router"].content["table"] == {}
            assert "routing adds nothing" in update.reason


def test_where_one_arm_is_best_everywhere_it_takes_everything() -> None:
    groups = []
    for task in make_tasks(300, 5):
        better = float(random.Random(task.id).random() < 0.9)
        worse = better * float(random.Random(task.id + "x").random() < 0.8)
        made = [
            Trajectory(task=task, meta={"arm": arm}, scores={"success": Score("success", value)})
            for arm, value in zip(ARMS, (worse, worse, better), strict=True)
        ]
        groups.append(Group(task, made))
    update = learn(groups)
    table = RouterTable.of(update.bundle["router"])
    assert table.default == "policy"
    assert table.by == []
    assert table.choose({}) == "policy"
    assert "routing adds nothing over 'policy'" in update.reason


def test_ties_go_to_the_arm_that_is_named_first() -> None:
    groups = [
        Group(
            task,
            [Trajectory(task=task, meta={"arm": arm}, outcome=Outcome.SUCCESS) for arm in reversed(ARMS)],
        )
        for task in make_tasks(60, 6)
    ]
    assert learn(groups).bundle["router"].content["default"] == "rule"


def test_a_cell_with_few_tasks_stays_with_the_default() -> None:
    tasks = [
        Task(id=f"t{n}", group=f"g{n}", meta={"kind": "rare" if n < 15 else KINDS[n % 2]}) for n in range(400)
    ]
    groups = []
    for task in tasks:
        kind = task.meta["kind"]
        best = {"rare": "policy", "phone": "head", "amount": "rule"}[kind]
        made = [
            Trajectory(task=task, meta={"arm": arm}, scores={"success": Score("success", float(arm == best))})
            for arm in ARMS
        ]
        groups.append(Group(task, made))
    route = Route(ARMS, lambda task: {"kind": task.meta["kind"]})
    update = asyncio.run(route.step(Bundle(), groups, World().context([])))
    content = update.bundle["router"].content
    assert content["table"]["kind=phone"] == "head"
    assert content["table"]["kind=amount"] == "rule"
    assert content["table"]["kind=rare"] == content["default"]


def test_missing_scores_and_unknown_arms_are_left_out() -> None:
    tasks = make_tasks(200, 7)
    groups = record(tasks, 7)
    noisy = [
        Group(
            group.task,
            [
                *group.trajectories,
                Trajectory(task=group.task, meta={"arm": "rule"}, scores={"success": Score("success", None)}),
                Trajectory(task=group.task, meta={"arm": "rule"}, outcome=Outcome.INFRASTRUCTURE_ERROR),
                Trajectory(task=group.task, meta={"arm": "other"}, outcome=Outcome.SUCCESS),
                Trajectory(task=group.task, outcome=Outcome.SUCCESS),
            ],
        )
        for group in groups
    ]
    assert learn(noisy).bundle == learn(groups).bundle


def test_too_little_to_compare_is_refused() -> None:
    tasks = make_tasks(100, 8)
    with pytest.raises(TrainingRefused, match="at least 20"):
        learn(record(tasks[:10]))
    alone = [Group(group.task, group.trajectories[:1]) for group in record(tasks)]
    with pytest.raises(TrainingRefused, match="0 tasks were tried by two"):
        learn(alone)
    with pytest.raises(InputError, match="no choice"):
        Route(("rule", "rule"), features)


def test_the_table_can_be_read() -> None:
    update = learn(record(make_tasks(600, 1), 1), 1)
    text = RouterTable.of(update.bundle["router"]).render()
    lines = text.splitlines()
    assert lines[0].split() == ["when", "arm", *ARMS]
    row = next(line for line in lines if line.startswith("kind=amount, tier=hard"))
    assert row.split()[2] == "policy"
    assert "0." in row
    assert lines[-1].startswith("otherwise")
    assert lines[-1].split()[1] == "head"
    alone = learn(record(make_tasks(60, 2), 2, shuffled=True), alpha=1e-9)
    assert RouterTable.of(alone.bundle["router"]).render().splitlines()[1].startswith("all tasks")


def test_the_runtime_takes_any_values_and_refuses_what_is_no_table() -> None:
    content = {"by": ["a", "b"], "table": {"a=x%2Cb%3Dy,b=1": "head"}, "default": "rule"}
    table = RouterTable(content)
    assert table.choose({"a": "x,b=y", "b": 1}) == "head"
    assert table.choose({"a": "x", "b": "y,b=1"}) == "rule"
    assert table.choose({"a": "x"}) == "rule"
    with pytest.raises(InputError, match="default"):
        RouterTable({"by": []})
    with pytest.raises(InputError, match="not a router"):
        RouterTable.of(Version(resource="router", content=content))


def test_route_keeps_the_optimizer_contract() -> None:
    def context(budget: Budget) -> Context:
        return World(budget=budget).context([], seed=3)

    groups = record(make_tasks(120, 4), 4)
    asyncio.run(check_optimizer(lambda: Route(ARMS, features), Bundle(), groups, context))
