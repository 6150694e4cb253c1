"""Composition: who enters and by what evidence, what it says of it, and what the gate does with the outcome."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import pytest

from whet.errors import GateError, InputError, TrainingRefused
from whet.learn.composition import Contender, Gain, cross_fit, judge, parts_of
from whet.learn.experiment import Experiment
from whet.learn.improvement import Improvement
from whet.learn.loop import Context, Update
from whet.prove.gate import TaskResult
from whet.record.env import StepResult
from whet.record.policy import FunctionPolicy
from whet.record.store import Store
from whet.types import Budget, Bundle, Group, Json, Outcome, Split, Task, Trajectory, Version


def tasks(validation: int = 160, gate: int = 400) -> list[Task]:
    counts = {Split.TRAIN: 160, Split.VALIDATION: validation, Split.GATE: gate}
    return [
        Task(instruction=f"{part.value} {number}", group=f"{part.value}{number // 4}", split=part)
        for part, count in counts.items()
        for number in range(count)
    ]


class Chance:
    """Right where the policy's skill reaches the task's difficulty, which only chance decides."""

    def reset(self, task: Task, seed: int) -> Json:
        self.difficulty = random.Random(task.instruction).random()
        return task.instruction

    def step(self, action: Json) -> StepResult:
        return StepResult(None, None, True, info={"success": action >= self.difficulty})


def skilled(bundle: Bundle, seed: int) -> FunctionPolicy:
    return FunctionPolicy(lambda _: 0.4 + sum(version.content for version in bundle.values()))


def success(trajectory: Trajectory) -> bool:
    return trajectory.outcome is Outcome.SUCCESS


class Adds:
    """Learns one resource worth so much skill."""

    group_size = 0
    on_policy = False
    ordered = False

    def __init__(self, name: str, skill: float, *, plays: bool = True) -> None:
        self.name, self.skill, self.plays = name, skill, plays
        self.steps: list[tuple[Bundle, int]] = []

    async def step(self, bundle: Bundle, groups: Sequence[Group], context: Context) -> Update:
        self.steps.append((bundle, len(groups)))
        if self.plays:
            await context.rollout(bundle, context.train[:10])
        return Update(bundle=bundle.put(Version(resource=self.name, content=self.skill)), done=True)


class Refuses(Adds):
    async def step(self, bundle: Bundle, groups: Sequence[Group], context: Context) -> Update:
        raise TrainingRefused("3 thumbs; at least 60 are needed")


class Unfit(Adds):
    async def step(self, bundle: Bundle, groups: Sequence[Group], context: Context) -> Update:
        raise InputError("the bundle has no resource 'policy'")


def experiment(**more: Any) -> Experiment:
    given: dict[str, Any] = {"env": Chance, "policy": skilled, "tasks": tasks(), "rewards": [success], **more}
    return Experiment(**given)


def test_each_learner_goes_on_from_the_best_and_enters_by_what_it_adds() -> None:
    rule, worse, head = Adds("rule", 0.2), Adds("worse", -0.1), Adds("head", 0.2)
    run = experiment()
    better = asyncio.run(run.compose([rule, worse, Refuses("refuses", 0), head]))
    assert [(one.name, one.entered) for one in better.candidates] == [
        ("rule", True),
        ("worse", False),
        ("refuses", False),
        ("head", True),
    ]
    assert sorted(better.bundle) == ["head", "rule"]
    assert sorted(head.steps[0][0]) == ["rule"]
    assert better.fallbacks == (better.candidates[0].bundle,)
    first, second, third, last = (one.reason for one in better.candidates)
    assert first.startswith("rule enters: +")
    assert "points over the start on validation (s.e. " in first
    assert first.endswith("160 pairs)")
    assert second.startswith("worse is left out: -")
    assert "beside rule" in second
    assert "3 thumbs" in third
    assert "over rule on validation" in last
    verdict = asyncio.run(run.gate(better))
    assert verdict.promote
    assert (verdict.candidate, verdict.baseline) == (better.bundle.id, Bundle().id)
    assert any("it takes 40" in reason for reason in verdict.reasons), "two chances share alpha"
    assert any(reason.startswith("head against rule") for reason in verdict.reasons)


def test_a_learner_that_does_not_fit_the_agent_costs_no_other_its_place() -> None:
    better = asyncio.run(experiment().compose([Unfit("weights", 0), Adds("rule", 0.2)]))
    assert [one.entered for one in better.candidates] == [False, True]
    assert "no resource 'policy'" in better.candidates[0].reason
    assert not better.fallbacks, "there is one candidate"


def test_a_clear_case_is_decided_on_validation_and_a_close_one_on_all_there_is() -> None:
    fresh = [Task(instruction=f"fresh {number}", group=f"f{number // 4}") for number in range(200)]
    with Store(":memory:") as store:
        base = experiment(store=store, name="users")
        runs = [group.trajectories[0] for group in asyncio.run(base.collect())]
        known = {run.task.id: run.id for run in runs}
        read = [
            Task(**{name: getattr(task, name) for name in ("id", "instruction", "group", "split")},
                 meta={"trajectories": [known[task.id]]} if task.id in known else {})
            for task in tasks()
        ]  # fmt: skip
        clear, close = Adds("clear", 0.3), Adds("close", 0.01, plays=False)
        run = experiment(store=store, tasks=read)
        better = asyncio.run(run.compose([clear, close], fresh=fresh))
    first, second = better.candidates
    assert (first.pairs, second.pairs) == (160, 160 + 200 + 160)
    assert "on validation (s.e." in first.reason
    assert "on validation and fresh tasks and 3 cross-fitted folds (s.e." in second.reason
    assert close.steps[0][1] == 160
    assert sum(groups for _, groups in close.steps[1:]) == 2 * 160
    assert first.error is not None
    assert second.error is not None
    assert 0 < second.error < first.error


def test_more_evidence_makes_fewer_wrong_choices() -> None:
    """Of learners that are truly two points better, more are chosen with the fresh tasks than without."""

    def chosen(fresh: int) -> int:
        right = 0
        for seed in range(24):
            parts = [
                Task(instruction=f"{seed}/{part}/{number}", group=f"{part}{number}", split=Split(part))
                for part, count in (("train", 4), ("validation", 40), ("gate", 4))
                for number in range(count)
            ]
            more = [Task(instruction=f"{seed}/fresh/{number}", group=f"f{number}") for number in range(fresh)]
            run = experiment(tasks=parts)
            right += (
                asyncio.run(run.compose([Adds("head", 0.05, plays=False)], fresh=more)).candidates[0].entered
            )
        return right

    assert chosen(0) < chosen(400) == 24, "the difference is a few points, and 40 tasks show none at times"


def groups_of(**sizes: int) -> list[Group]:
    return [
        Group(Task(instruction=f"{name} {number}", group=name), ())
        for name, size in sizes.items()
        for number in range(size)
    ]


def test_few_groups_of_any_size_are_dealt_whole_and_no_part_is_empty() -> None:
    parts = parts_of(groups_of(symes=210, steffes=37, williams=26))
    assert sorted(len(part) for part in parts) == [26, 37, 210]
    parts = parts_of(groups_of(a=50, b=30, c=20, d=10, e=10))
    assert [len(part) for part in parts] == [50, 40, 30]
    names = [{group.task.group for group in part} for part in parts]
    assert sum(len(part) for part in names) == 5, "a group is in one part alone"
    assert len(parts_of(groups_of(alone=9))) == 1
    assert parts_of([]) == []


def test_one_group_for_validation_settles_nothing_and_the_groups_learned_from_do() -> None:
    """Validation has one group of 40 tasks; a learner worth five points, and one worth nothing."""

    def candidate(seed: int, skill: float, *, record: bool) -> tuple[bool, str]:
        parts = [
            Task(instruction=f"{seed}/{name}/{number}", group=name, split=split)
            # By the hash of their names the three to learn from would all be one part.
            for name, split, count in (
                ("one", Split.TRAIN, 150),
                ("three", Split.TRAIN, 130),
                ("six", Split.TRAIN, 120),
                ("v", Split.VALIDATION, 40),
                ("g", Split.GATE, 4),
            )
            for number in range(count)
        ]
        run = experiment(tasks=parts, seed=seed)
        groups = asyncio.run(run.collect()) if record else []
        better = asyncio.run(run.compose([Adds("head", skill, plays=False)], groups=groups)).candidates[0]
        return better.entered, better.reason

    alone = [candidate(seed, 0.05, record=False) for seed in range(12)]
    crossed = [candidate(seed, 0.05, record=True) for seed in range(12)]
    assert all(entered for entered, _ in crossed)
    assert not all(entered for entered, _ in alone)
    assert "on validation and 3 cross-fitted folds (s.e. " in crossed[0][1]
    assert crossed[0][1].endswith("440 pairs)")
    assert not any(candidate(seed, 0.0, record=True)[0] for seed in range(4)), "the control"


def compared(learner: Adds, **sizes: int) -> set[str]:
    """The groups on which a learner is compared when it is cross-fitted on a record of these sizes."""
    gain, run = Gain(), experiment()
    asyncio.run(
        cross_fit(
            run, learner, groups_of(**sizes), best=Bundle(), gain=gain, metric="success", name=learner.name
        )
    )
    return {group for _, group, *_ in gain.rows}


def test_a_part_without_which_nothing_or_another_thing_is_learned_says_nothing() -> None:
    class Needs(Adds):
        async def step(self, bundle: Bundle, groups: Sequence[Group], context: Context) -> Update:
            if not any(group.task.group == "large" for group in groups):
                return Update(bundle=bundle, done=True, reason="the features tell nothing")
            return await super().step(bundle, groups, context)

    assert compared(Adds("head", 0.3, plays=False), large=20, small=10, other=10) == {
        "large",
        "small",
        "other",
    }
    assert compared(Needs("head", 0.3, plays=False), large=20, small=10, other=10) == {"small", "other"}
    assert compared(Adds("head", 0.3, plays=False), large=21, small=10, other=10) == {"small", "other"}
    assert compared(Adds("head", 0.3, plays=False), alone=20) == set()


def test_nothing_that_adds_nothing_is_promoted() -> None:
    promoted = 0
    for seed in range(20):
        parts = [
            Task(instruction=f"{seed}/{task.instruction}", group=task.group, split=task.split)
            for task in tasks(80, 200)
        ]

        def lucky(bundle: Bundle, run_seed: int) -> FunctionPolicy:
            """Another draw under each Bundle, none better than another."""
            return FunctionPolicy(lambda question: random.Random(f"{bundle.id}{question}").random())

        run = experiment(tasks=parts, policy=lucky, seed=seed)
        better = asyncio.run(run.compose([Adds("a", 1.0), Adds("b", 1.0), Adds("c", 1.0)]))
        promoted += better.bundle != Bundle() and asyncio.run(run.gate(better)).promote
    assert promoted <= 2


def test_a_composition_gone_on_with_runs_nothing_twice() -> None:
    learners = [Adds("rule", 0.2), Adds("head", 0.2)]
    with Store(":memory:") as store:
        first = asyncio.run(experiment(store=store).compose(learners))
        again = experiment(store=store)
        second = asyncio.run(again.compose(learners))
    assert [len(learner.steps) for learner in learners] == [1, 1]
    assert second.bundle == first.bundle
    assert [one.reason for one in second.candidates] == [one.reason for one in first.candidates]
    assert again.rollouts == 160, "only the start, for the baseline"


def test_a_budget_is_shared_by_learners_and_decisions() -> None:
    run = experiment()
    better = asyncio.run(
        run.compose([Adds("rule", 0.2), Adds("head", 0.2)], budget=Budget(rollouts=160 + 10 + 160 + 100))
    )
    assert [one.entered for one in better.candidates] == [True, False]
    assert "budget" in better.candidates[1].reason
    assert run.rollouts <= 430
    assert better.rollouts == run.rollouts


def test_a_candidate_that_has_no_value_where_it_would_have_failed_does_not_enter() -> None:
    def picky(bundle: Bundle, seed: int) -> FunctionPolicy:
        def act(question: str) -> float:
            left_out = int(question.split()[1]) % 4 == 0
            return 0.5 if "picky" not in bundle else -1.0 if left_out else 0.9

        return FunctionPolicy(act)

    def worth(trajectory: Trajectory) -> float | None:
        return None if trajectory.output < 0 else float(trajectory.output)

    run = experiment(policy=picky, rewards=[worth])
    better = asyncio.run(run.compose([Adds("picky", 0.0, plays=False)], metric="worth"))
    assert not better.candidates[0].entered
    assert better.candidates[0].reason == (
        "picky is left out: it has no value on 40 of 160 tasks where the start has one"
    )


def test_a_judge_that_is_silent_now_on_one_side_and_now_on_the_other_leaves_nobody_out() -> None:
    def shy(bundle: Bundle, seed: int) -> FunctionPolicy:
        def act(question: str) -> float:
            number = int(question.split()[1])
            return -1.0 if number % 8 == (1 if "shy" in bundle else 2) else 0.9 if "shy" in bundle else 0.5

        return FunctionPolicy(act)

    def worth(trajectory: Trajectory) -> float | None:
        return None if trajectory.output < 0 else float(trajectory.output)

    run = experiment(policy=shy, rewards=[worth])
    better = asyncio.run(run.compose([Adds("shy", 0.0, plays=False)], metric="worth"))
    assert better.candidates[0].entered, better.candidates[0].reason


class Spends(Adds):
    """Takes what the budget has before it says what it learned."""

    async def step(self, bundle: Bundle, groups: Sequence[Group], context: Context) -> Update:
        left = context.meter.left("rollouts")
        assert left is not None
        for _ in range(int(left)):
            await context.rollout(bundle, context.train[:1])
        return await super().step(bundle, groups, context)


def test_a_learner_that_spends_all_it_may_leaves_the_others_their_comparison() -> None:
    run = experiment()
    learners = [Spends("rule", 0.2, plays=False), Adds("head", 0.2, plays=False)]
    better = asyncio.run(run.compose(learners, budget=Budget(rollouts=160 + 50 + 160 + 160)))
    assert [one.rollouts for one in better.candidates] == [50, 0]
    assert [one.pairs for one in better.candidates] == [160, 160], [one.reason for one in better.candidates]
    assert better.rollouts == run.rollouts == 530


def test_a_composition_gone_on_with_leaves_the_next_learner_what_it_would_have_had() -> None:
    class Stops(Spends):
        async def step(self, bundle: Bundle, groups: Sequence[Group], context: Context) -> Update:
            raise KeyboardInterrupt

    def learners(second: type[Spends]) -> list[Adds]:
        return [
            Spends("rule", 0.2, plays=False),
            second("head", 0.2, plays=False),
            Adds("last", 0.2, plays=False),
        ]

    budget = Budget(rollouts=160 * 4 + 70)
    whole = asyncio.run(experiment().compose(learners(Spends), budget=budget))
    with Store(":memory:") as store:
        with pytest.raises(KeyboardInterrupt):
            asyncio.run(experiment(store=store).compose(learners(Stops), budget=budget))
        again = asyncio.run(experiment(store=store).compose(learners(Spends), budget=budget))
    assert [one.rollouts for one in again.candidates] == [one.rollouts for one in whole.candidates]
    assert [one.reason for one in again.candidates] == [one.reason for one in whole.candidates]


def test_composing_nothing_or_without_validation_is_refused() -> None:
    with pytest.raises(InputError, match="0 learner"):
        asyncio.run(experiment().compose([]))
    with pytest.raises(InputError, match="0 validation"):
        asyncio.run(experiment(tasks=tasks(0)).compose([Adds("rule", 0.2)]))
    with pytest.raises(GateError, match="gate"):
        asyncio.run(experiment().compose([Adds("rule", 0.2)], fresh=tasks()[-1:]))


def side(*values: float) -> list[TaskResult]:
    return [TaskResult(task=str(number), scores={"success": value}) for number, value in enumerate(values)]


def test_the_simplest_is_judged_in_the_place_of_a_proposal_that_does_not_pass() -> None:
    old = Contender("the agent", "0", side(*[0.0] * 120, *[1.0] * 80))
    rule = Contender("rule", "1", side(*[1.0] * 160, *[0.0] * 40))
    same = Contender("head", "2", side(*[1.0] * 70, *[0.0] * 50, *[1.0] * 80))
    verdict = judge([same, rule], old)
    assert verdict.promote
    assert verdict.candidate == "1", "better than the agent, but not shown to be within a point of the rule"
    assert any("head is neither better than rule" in reason for reason in verdict.reasons)
    alone = judge([same], old)
    assert alone.promote
    assert alone.candidate == "2"
    nothing = judge([old, old], old)
    assert not nothing.promote
    assert nothing.candidate == "0"


def test_only_what_was_promoted_is_released_and_it_can_be_rolled_back_from() -> None:
    with Store(":memory:") as store:
        run = experiment(store=store)
        better = asyncio.run(run.compose([Adds("rule", 0.3)]))
        verdict = asyncio.run(run.gate(better))
        assert run.release(verdict) == better.bundle
        assert store.live() == better.bundle
        bad = Improvement(
            bundle=Bundle([Version(resource="rule", content=-0.3)]), parent=Bundle(), optimizer="x"
        )
        with pytest.raises(GateError, match="did not promote"):
            run.release(asyncio.run(run.gate(bad)))
        assert store.live() == better.bundle
    with pytest.raises(InputError, match="no store"):
        experiment().release(verdict)
