"""The Experiment: who sees which tasks, what is recorded, and that stopping changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

import whet
from whet.agent_env import calls
from whet.env import StepResult
from whet.errors import BudgetExceeded, GateError, InputError
from whet.loop import Context, Experiment, Update, means
from whet.policy import FunctionPolicy
from whet.store import Store
from whet.types import Budget, Bundle, Group, Json, Outcome, Split, Task, Trajectory, Version

TASKS = [
    Task(instruction=f"{number} + 1", answer=number + 1, group=f"g{number // 4}", split=split)
    for split, numbers in (
        (Split.TRAIN, range(24)),
        (Split.VALIDATION, range(24, 36)),
        (Split.GATE, range(36, 96)),
    )
    for number in numbers
]


class Sums:
    """One question, one answer."""

    def reset(self, task: Task, seed: int) -> Json:
        self.task: Task | None = task
        return task.instruction

    def step(self, action: Json) -> StepResult:
        assert self.task is not None
        return StepResult(None, None, True, info={"success": action == self.task.answer})


def success(trajectory: Trajectory) -> bool:
    return trajectory.outcome is Outcome.SUCCESS


def adds(bundle: Bundle, seed: int) -> FunctionPolicy:
    """Adds what the Bundle says, and nothing at all without it."""
    addend = bundle["addend"].content if "addend" in bundle else 0
    return FunctionPolicy(lambda question: int(question.split()[0]) + addend)


def experiment(**more: object) -> Experiment:
    given = {"env": Sums, "tasks": TASKS, "rewards": [success], "policy": adds, "seed": 3, **more}
    return Experiment(**given)  # type: ignore[arg-type]


class Climb:
    """An optimizer that tries the next addend; asks for `n` groups a round."""

    name = "climb"
    group_size = 2
    on_policy = True
    ordered = False

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self.rounds: list[float] = []

    async def step(self, bundle: Bundle, groups: Sequence[Group], context: Context) -> Update:
        self.seen |= {group.task.id for group in groups}
        self.seen |= {task.id for task in (*context.train, *context.validation)}
        tried = 0 if context.state is None else context.state["tried"]
        self.rounds.append(context.rng.random())
        candidate = bundle.put(Version(resource="addend", content=tried - 1))
        before, after = (
            means(groups)["success"],
            means(await context.rollout(candidate, context.train, seed=tried)),
        )
        better = candidate if after["success"] > before else bundle
        return Update(
            bundle=better, state={"tried": tried + 1}, metrics={"best": max(before, after["success"])}
        )


def test_an_optimizer_never_sees_a_gate_task_and_cannot_ask_for_one() -> None:
    climb = Climb()
    run = experiment()
    asyncio.run(run.improve(climb, rounds=2))
    gate = {task.id for task in TASKS if task.split is Split.GATE}
    assert climb.seen
    assert not climb.seen & gate

    class Cheat(Climb):
        async def step(self, bundle: Bundle, groups: Sequence[Group], context: Context) -> Update:
            await context.rollout(bundle, [task for task in TASKS if task.split is Split.GATE][:1])
            raise AssertionError("not reached")

    with pytest.raises(GateError, match="gate"):
        asyncio.run(run.improve(Cheat()))
    with pytest.raises(GateError, match="gate"):
        asyncio.run(run.collect(tasks=[task for task in TASKS if task.split is Split.GATE]))


def test_what_improved_is_promoted_and_what_did_not_is_refused() -> None:
    run = experiment()
    better = asyncio.run(run.improve(Climb(), rounds=4))
    assert better.bundle["addend"].content == 1
    verdict = asyncio.run(run.gate(better))
    assert verdict.promote
    assert verdict.effect == 1.0
    assert verdict.n == 60
    assert not asyncio.run(run.gate(Bundle([Version(resource="addend", content=5)]))).promote
    assert "+1" in better.diff()


def test_groups_on_both_sides_of_the_gate_are_refused() -> None:
    leaky = [*TASKS, Task(instruction="7 + 1", answer=8, group=TASKS[-1].group, split=Split.TRAIN)]
    with pytest.raises(GateError, match="both sides"):
        experiment(tasks=leaky)


def test_tasks_without_a_split_are_split_by_group() -> None:
    bare = [Task(instruction=task.instruction, answer=task.answer, group=task.group) for task in TASKS]
    run = experiment(tasks=bare)
    sides = [{task.group for task in part} for part in (run.train, run.validation)]
    assert sides[0]
    assert not sides[0] & sides[1]


def test_a_budget_is_checked_before_the_spend() -> None:
    run = experiment()
    with pytest.raises(BudgetExceeded, match="rollouts"):
        asyncio.run(run.improve(Climb(), rounds=2, budget=Budget(rollouts=100)))


def test_an_interrupted_improve_goes_on_to_the_same_result(tmp_path: Path) -> None:
    whole = Climb()
    expected = asyncio.run(experiment(name="e").improve(whole, rounds=4))

    class Stops(Climb):
        async def step(self, bundle: Bundle, groups: Sequence[Group], context: Context) -> Update:
            if len(self.rounds) == 2:
                raise KeyboardInterrupt
            return await super().step(bundle, groups, context)

    with Store(tmp_path / "runs.db") as store:
        with pytest.raises(KeyboardInterrupt):
            asyncio.run(experiment(store=store, name="e").improve(Stops(), rounds=4))
        rest = Climb()
        resumed = asyncio.run(experiment(store=store, name="e").improve(rest, rounds=4))
    assert len(rest.rounds) == 2
    assert rest.rounds == whole.rounds[2:]
    assert resumed.bundle == expected.bundle
    assert resumed.metrics == expected.metrics
    assert resumed.rollouts == expected.rollouts


def test_every_trajectory_is_recorded_once_with_what_produced_it(tmp_path: Path) -> None:
    with Store(tmp_path / "runs.db") as store:
        run = experiment(store=store, name="e")
        bundle = Bundle([Version(resource="addend", content=1)])
        first = asyncio.run(run.collect(bundle))
        asyncio.run(run.collect(bundle))
        stored = list(store.trajectories())
    assert len(stored) == len(first) == 24
    assert {one.versions["addend"] for one in stored} == {bundle["addend"].id}
    assert {one.id for one in stored} == {group.trajectories[0].id for group in first}
    assert all(one.score("success") == 1.0 for one in stored)


def test_what_is_not_recorded_is_counted() -> None:
    store = Store(":memory:")
    run = experiment(store=store, record=0.25)
    asyncio.run(run.improve(Climb(), rounds=2))
    kept = sum(1 for _ in store.trajectories())
    assert 0 < kept < 144
    assert kept + run.unrecorded == 2 * (24 * 2 + 24)
    store.close()


def test_an_infrastructure_error_is_in_no_mean() -> None:
    def fails_sometimes(bundle: Bundle, seed: int) -> FunctionPolicy:
        def act(question: str) -> int:
            if question.startswith("3 "):
                raise whet_model_error()
            return int(question.split()[0]) + 1

        return FunctionPolicy(act)

    def whet_model_error() -> Exception:
        from whet.errors import ModelError

        return ModelError("down")

    groups = asyncio.run(experiment(policy=fails_sometimes).collect())
    outcomes = [one.outcome for group in groups for one in group.trajectories]
    assert outcomes.count(Outcome.INFRASTRUCTURE_ERROR) == 1
    assert means(groups) == {"success": 1.0}


def test_calls_runs_an_agent_under_the_candidate_and_keeps_its_steps() -> None:
    offset = whet.resource("calls_offset", default={"by": 0})

    @whet.step(kind="tool")
    def add(number: int) -> int:
        return number + offset["by"]

    def agent(question: str) -> int:
        return add(int(question.split()[0]))

    def exact(trajectory: Trajectory) -> bool:
        return bool(trajectory.output == trajectory.task.answer)

    run = Experiment(env=calls(agent), tasks=TASKS, rewards=[exact], seed=0)
    right = Bundle([Version(resource="calls_offset", content={"by": 1})])
    assert means(asyncio.run(run.collect()))["exact"] == 0.0
    groups = asyncio.run(run.collect(right))
    assert means(groups)["exact"] == 1.0
    assert next(step.name for step in groups[0].trajectories[0].steps if step.kind == "tool").endswith("add")

    async def slow(question: str) -> int:
        await asyncio.sleep(0)
        return add(int(question.split()[0]))

    run = Experiment(env=calls(slow), tasks=TASKS, rewards=[exact], seed=0)
    assert means(asyncio.run(run.collect(right)))["exact"] == 1.0


def test_an_env_without_a_policy_says_what_is_missing() -> None:
    with pytest.raises(InputError, match="policy="):
        Experiment(env=Sums, tasks=TASKS, rewards=[success])


def test_one_answer_that_json_cannot_carry_costs_no_other_its_record() -> None:
    tasks = [Task(instruction=str(number), group=str(number)) for number in range(20)]
    with Store(":memory:") as store:
        split = Experiment(env=calls(str), tasks=tasks, rewards=[], seed=0)
        cut, odd = (task.instruction for task in split.train[:2])

        def agent(question: str) -> object:
            return {cut: "cut \ud83d", odd: object()}.get(question, "fine")

        experiment = Experiment(env=calls(agent), tasks=tasks, rewards=[], seed=0, store=store)
        asyncio.run(experiment.collect())
        recorded = {each.task.instruction: each for each in store.trajectories()}
    assert sorted(recorded) == sorted(task.instruction for task in split.train)
    assert (recorded.pop(cut).output, recorded.pop(odd).outcome) == ("cut \ufffd", Outcome.FAILURE)
    assert {each.output for each in recorded.values()} == {"fine"}
