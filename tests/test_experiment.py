"""The Experiment: who sees which tasks, what is recorded, and that stopping changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import whet
from whet.errors import BudgetExceeded, GateError, InputError, MissingExtra
from whet.judge.agent_env import calls
from whet.learn.experiment import REMEMBERED, Experiment
from whet.learn.loop import Context, Update, means
from whet.prove.guardrails import Guardrail
from whet.record.env import StepResult
from whet.record.policy import FunctionPolicy
from whet.record.store import Store
from whet.record.tracing.sink import flush
from whet.types import (
    Budget,
    Bundle,
    Fault,
    Group,
    Json,
    Outcome,
    Preference,
    Split,
    Task,
    Trajectory,
    Version,
)

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


def test_preferences_come_from_the_store_or_from_whoever_gives_them() -> None:
    told: list[list[str]] = []

    class Reads(Climb):
        async def step(self, bundle: Bundle, groups: Sequence[Group], context: Context) -> Update:
            told.append([preference.chosen for preference in context.preferences])
            return Update(bundle=bundle, done=True)

    pair = Preference(prompt="p", chosen="stored", rejected="r")
    with Store(":memory:") as store:
        store.put_preferences(pair)
        asyncio.run(experiment(store=store).improve(Reads()))
        asyncio.run(
            experiment(store=store, name="b", preferences=[replace(pair, chosen="given")]).improve(Reads())
        )
    asyncio.run(experiment().improve(Reads()))
    assert told == [["stored"], ["given"], []]


def test_an_async_reward_scores_every_rollout_of_a_learner_and_of_the_gate() -> None:
    async def judged(trajectory: Trajectory) -> bool:
        await asyncio.sleep(0)
        return trajectory.outcome is Outcome.SUCCESS

    run = experiment(rewards=[success, judged])
    better = asyncio.run(run.improve(Climb(), rounds=4))
    assert asyncio.run(run.gate(better, metric="judged")).promote


def test_a_checkpoint_of_other_settings_is_not_gone_on_from_and_it_is_said_why() -> None:
    said: list[object] = []

    def progress(what: str, done: int, total: int | None = None, **figures: object) -> None:
        said.append(figures.get("begins_anew"))

    class Set(Climb):
        def __init__(self, identity: str) -> None:
            super().__init__()
            self.identity = identity

        async def step(self, bundle: Bundle, groups: Sequence[Group], context: Context) -> Update:
            known = set(context.log)
            await asyncio.wrap_future(context.log.put(f"answer/{self.identity}", 1))
            update = await super().step(bundle, groups, context)
            return replace(update, metrics={**update.metrics, "known": float(len(known))})

    with Store(":memory:") as store:
        first = asyncio.run(experiment(store=store, progress=progress).improve(Set("a"), rounds=2))
        again = Set("a")
        asyncio.run(experiment(store=store, progress=progress).improve(again, rounds=2))
        assert not again.rounds
        assert not any(said)
        other = Set("b")
        second = asyncio.run(experiment(store=store, progress=progress).improve(other, rounds=2))
    assert len(other.rounds) == 2
    assert [row["known"] for row in first.metrics] == [0, 1]
    assert [row["known"] for row in second.metrics] == [0, 1], "paid for by other settings"
    assert [reason for reason in said if reason] == ["changed: the optimizer's settings"]


def test_a_checkpoint_of_another_start_is_not_gone_on_from() -> None:
    with Store(":memory:") as store:
        asyncio.run(experiment(store=store).improve(Climb(), rounds=3))
        start = Bundle([Version(resource="addend", content=7)])
        anew = Climb()
        improvement = asyncio.run(experiment(store=store).improve(anew, bundle=start, rounds=3))
    assert len(anew.rounds) == 3
    assert improvement.parent == start


def test_without_a_number_of_rounds_it_goes_on_until_done_or_until_the_budget_is_used_up() -> None:
    class Ends(Climb):
        async def step(self, bundle: Bundle, groups: Sequence[Group], context: Context) -> Update:
            return replace(await super().step(bundle, groups, context), done=len(self.rounds) == 3)

    assert asyncio.run(experiment().improve(Ends())).rounds == 3
    spent = asyncio.run(experiment().improve(Climb(), budget=Budget(rollouts=200)))
    assert (spent.rounds, spent.rollouts) == (2, 192)
    assert "budget" in spent.reason


def test_a_policy_or_environment_that_cannot_be_made_is_a_failure_with_a_name_and_ends_nothing() -> None:
    def breaks(bundle: Bundle, seed: int) -> FunctionPolicy:
        if "addend" in bundle:
            raise KeyError("the candidate lacks a knob")
        return adds(bundle, seed)

    bad = Bundle([Version(resource="addend", content=1)])
    run = experiment(policy=breaks)
    runs = [one for group in asyncio.run(run.collect(bad)) for one in group.trajectories]
    assert {one.outcome for one in runs} == {Outcome.FAILURE}
    assert {one.error.fault for one in runs if one.error} == {Fault.AGENT}

    def down() -> Sums:
        raise OSError("no display")

    runs = [one for group in asyncio.run(experiment(env=down).collect()) for one in group.trajectories]
    assert {one.outcome for one in runs} == {Outcome.INFRASTRUCTURE_ERROR}
    assert {one.error.fault for one in runs if one.error} == {Fault.ENVIRONMENT}

    def needs(bundle: Bundle, seed: int) -> FunctionPolicy:
        raise MissingExtra("torch", "train")

    with pytest.raises(MissingExtra, match="torch"):
        asyncio.run(experiment(policy=needs).collect())


def test_what_ended_before_a_run_was_broken_off_is_recorded(tmp_path: Path) -> None:
    class Breaks(Sums):
        count = 0

        def step(self, action: Json) -> StepResult:
            Breaks.count += 1
            if Breaks.count == 12:
                raise KeyboardInterrupt
            return super().step(action)

    with Store(":memory:") as store:
        with pytest.raises(KeyboardInterrupt):
            asyncio.run(experiment(env=Breaks, store=store, concurrency=1).collect())
        assert sum(1 for _ in store.trajectories()) == 11


def test_what_an_evaluation_remembers_is_what_is_judged_and_no_more() -> None:
    run = experiment()
    first = asyncio.run(run.evaluate(Bundle()))
    again = asyncio.run(run.evaluate(Bundle()))
    assert run.rollouts == 12, "asked again, nothing is run"
    assert all(one.steps for group in first for one in group.trajectories)
    assert not any(one.steps for group in again for one in group.trajectories)
    assert means(again) == means(first)
    for addend in range(REMEMBERED):
        asyncio.run(run.evaluate(Bundle([Version(resource="addend", content=addend)])))
    before = run.rollouts
    asyncio.run(run.evaluate(Bundle()))
    assert run.rollouts == before + 12, "what was long ago is forgotten"


def test_a_guardrail_and_a_level_reach_the_gate() -> None:
    def costs(trajectory: Trajectory) -> float:
        return float(trajectory.outcome is Outcome.SUCCESS)

    run = experiment(rewards=[success, costs])
    better = Bundle([Version(resource="addend", content=1)])
    assert asyncio.run(run.gate(better)).promote
    refused = asyncio.run(run.gate(better, guardrails=[Guardrail("costs", 0.1, higher_is_better=False)]))
    assert not refused.promote
    assert refused.guardrails == {"costs": False}
    assert (refused.candidate, refused.baseline) == (better.id, Bundle().id)
    assert not asyncio.run(run.gate(better, alpha=1e-30)).promote


class Reads:
    """A learner that takes what there is on record."""

    name, group_size, on_policy, ordered = "reads", 0, False, False

    def __init__(self) -> None:
        self.given: list[Sequence[Group]] = []

    async def step(self, bundle: Bundle, groups: Sequence[Group], context: Context) -> Update:
        self.given.append(groups)
        count = sum(len(group.trajectories) for group in groups)
        return Update(bundle=bundle.put(Version(resource="addend", content=count)), done=True)

    @property
    def runs(self) -> set[str]:
        return {run.id for group in self.given[-1] for run in group.trajectories}


class Explores(Reads):
    """A learner that runs its own rollouts."""

    takes_groups = False


def test_a_learner_from_records_gets_the_runs_that_the_train_tasks_were_read_from() -> None:
    with Store(":memory:") as store:
        first = asyncio.run(experiment(store=store, name="users").collect())
        runs = {group.task.id: group.trajectories[0].id for group in first}
        read = [
            replace(task, meta={"trajectories": [runs[task.id]]}) if task.id in runs else task
            for task in TASKS
        ]
        learner = Reads()
        better = asyncio.run(experiment(store=store, tasks=read).improve(learner))
    assert learner.runs == set(runs.values())
    assert better.bundle["addend"].content == 24
    assert all("success" in run.scores for group in learner.given[0] for run in group.trajectories)


def test_a_learner_from_records_gets_what_this_experiment_collected_and_nothing_else() -> None:
    with Store(":memory:") as store:
        run, learner = experiment(store=store), Reads()
        asyncio.run(run.improve(learner))
        assert not learner.runs, "nothing is on record"
        asyncio.run(experiment(store=store, name="another").collect())
        asyncio.run(run.collect(tasks=run.validation))
        asyncio.run(run.collect(label="compared"))
        own = asyncio.run(run.collect(n=2))
        asyncio.run(run.gate(Bundle().put(Version(resource="addend", content=1))))
        asyncio.run(run.improve(learner))
    assert learner.runs == {run.id for group in own for run in group.trajectories}
    assert {group.task.id for group in learner.given[-1]} == {task.id for task in run.train}


def test_more_evidence_begins_anew_and_the_same_goes_on() -> None:
    with Store(":memory:") as store:
        learner = Reads()
        asyncio.run(experiment(store=store).collect())
        first = asyncio.run(experiment(store=store).improve(learner))
        again = asyncio.run(experiment(store=store).improve(learner))
        assert len(learner.given) == 1, "it was done"
        assert again.bundle == first.bundle
        asyncio.run(experiment(store=store).collect(seed=1))
        more = asyncio.run(experiment(store=store).improve(learner))
    assert more.bundle["addend"].content == 2 * len(learner.given[0])


def test_a_composition_learns_from_the_same_and_its_comparisons_are_no_evidence() -> None:
    with Store(":memory:") as store:
        learner = Reads()
        own = asyncio.run(experiment(store=store).collect())
        asyncio.run(experiment(store=store).compose([learner]))
        steps = len(learner.given)
        assert learner.given[0] == own
        assert steps == 4, "cross-fitted on three parts beside"
        asyncio.run(experiment(store=store).compose([learner]))
    assert len(learner.given) == steps


def test_a_judge_is_asked_of_recorded_runs_once_and_not_for_a_learner_that_reads_none() -> None:
    asked: list[str] = []

    async def judge(trajectory: Trajectory) -> bool:
        asked.append(trajectory.task.id)
        return trajectory.outcome is Outcome.SUCCESS

    with Store(":memory:") as store:
        asyncio.run(experiment(store=store).collect())
        run = experiment(store=store, rewards=[judge])
        asyncio.run(run.improve(Explores()))
        assert not asked
        asyncio.run(run.improve(Reads()))
        asyncio.run(run.improve(Reads(), label="again"))
    assert sorted(asked) == sorted(task.id for task in run.train)


def test_recorded_runs_are_judged_by_the_answer_that_people_corrected_since() -> None:
    def correct(trajectory: Trajectory) -> bool | None:
        return trajectory.output == trajectory.task.answer if trajectory.task.answer_known else None

    with Store(":memory:") as store:
        asked = [
            Task(instruction=f"{number} + 0", group=f"g{number}", split=Split.TRAIN) for number in range(4)
        ]
        for group in asyncio.run(experiment(store=store, tasks=asked, name="users").collect()):
            whet.feedback(group.trajectories[0].id, correction=7, store=store)
        flush()
        read = [replace(task, split=Split.TRAIN) for task in whet.tasks(store)]
        groups = asyncio.run(experiment(store=store, tasks=read, rewards=[correct]).recorded())
    assert [run.scores["correct"].value for group in groups for run in group.trajectories] == [0.0] * 4


def test_a_gate_task_is_no_evidence() -> None:
    run = experiment()
    hidden = [task for task in TASKS if task.split is Split.GATE]
    with pytest.raises(GateError):
        asyncio.run(run.recorded(hidden))
    with pytest.raises(GateError):
        asyncio.run(run.improve(Reads(), groups=[Group(hidden[0], ())]))


def test_the_gate_leaves_out_what_weights_from_elsewhere_learned_from() -> None:
    runs = {task.id: Trajectory(task=task, output=0) for task in TASKS}
    hidden = [task for task in TASKS if task.split is Split.GATE]
    first = [task for task in hidden if task.group in {"g9", "g10", "g11"}]

    def learned(*seen: Task) -> Bundle:
        data: list[Json] = [runs[task.id].id for task in seen]
        return Bundle([Version(resource="addend", content=1, meta={"data": data})])

    with Store(":memory:") as store:
        store.put(*runs.values())
        unseen = asyncio.run(experiment(store=store).gate(learned()))
        assert (unseen.promote, unseen.n) == (True, len(hidden))
        one_each = learned(*first[::4])
        some = asyncio.run(experiment(store=store, name="some").gate(one_each))
        assert some.n == len(hidden) - 12, "the others of their groups are left out too"
        assert "12 of 60 gate tasks are left out, for a contender learned from them" in some.reasons
        run = experiment(store=store, name="all")
        with pytest.raises(GateError, match="all 60 gate tasks are of runs that a contender learned from"):
            asyncio.run(run.gate(learned(*hidden)))
        assert run.rollouts == 0
    read = [replace(task, meta={"trajectories": [runs[task.id].id]}) for task in TASKS]
    with pytest.raises(GateError, match="all 60"):
        asyncio.run(experiment(tasks=read).gate(learned(*hidden)))


class InMemory:
    """Weights that only a checkpoint writes: every third round, and the last one as far as it is known."""

    name, group_size, on_policy, ordered = "in memory", 1, True, False

    async def step(self, bundle: Bundle, groups: Sequence[Group], context: Context) -> Update:
        number = 1 + (0 if context.state is None else context.state["number"])
        await context.rollout(bundle, context.train)  # no source can foresee it
        written = context.last or number % 3 == 0
        made = Version(resource="addend", content={"round": number, "written": written})
        return Update(bundle=bundle.put(made), state={"number": number, "resumable": written})


@pytest.mark.parametrize(("rollouts", "rounds"), [(48 * 5, 3), (48 * 6, 6), (48 * 4 + 34, 3)])
def test_a_budget_that_ends_between_checkpoints_leaves_what_was_written(rollouts: int, rounds: int) -> None:
    with Store(":memory:") as store:
        run = experiment(store=store, policy=lambda bundle, seed: FunctionPolicy(lambda question: 0))
        better = asyncio.run(run.improve(InMemory(), budget=Budget(rollouts=rollouts)))
    assert better.bundle["addend"].content == {"round": rounds, "written": True}
    assert len(better.metrics) == better.rounds == rounds
    left = {48 * 5: "left at round 3 of 5", 48 * 6: "the budget ends it", 48 * 4 + 34: "left at round 3 of 4"}
    assert left[rollouts] in better.reason


greeting = whet.resource("test.greeting", default="hello")
farewell = whet.resource("test.farewell", default="bye")
GREETED = [
    Task(instruction=str(number), answer="good day", group=f"g{number}", split=split)
    for number in range(120)
    for split in [Split.GATE if number % 2 else Split.VALIDATION]
]


def exact(trajectory: Trajectory) -> bool:
    return bool(trajectory.output == trajectory.task.answer)


@pytest.mark.parametrize("read", ["as it is used", "at import", "by half"])
def test_a_candidate_that_the_agent_never_read_is_not_promoted(read: str) -> None:
    baked = "good day"  # the candidate has what the agent says anyhow
    new = Bundle([Version(resource="test.greeting", content="good day", kind="prompt")])
    if read == "by half":
        new = new.put(Version(resource="test.farewell", content="so long", kind="prompt"))

    def agent(question: str) -> str:
        return baked if read == "at import" else str(greeting)

    run = Experiment(env=whet.calls(agent), tasks=GREETED, rewards=[exact])
    verdict = asyncio.run(run.gate(new, metric="exact", margin=0.1))
    assert verdict.promote == (read != "at import")
    if read == "at import":
        assert verdict.reasons[0].startswith(
            "The agent read nothing in which the two sides differ (test.greeting)"
        )
    if read == "by half":
        assert verdict.reasons[-1] == "Nothing is shown of test.farewell: the agent never read it here."


def test_what_was_read_on_other_tasks_does_not_count_on_those_of_the_gate() -> None:
    hidden = {task.instruction for task in GREETED if task.split is Split.GATE}

    def agent(question: str) -> str:
        return "good day" if question in hidden else str(greeting)

    new = Bundle([Version(resource="test.greeting", content="good day", kind="prompt")])
    run = Experiment(env=whet.calls(agent), tasks=GREETED, rewards=[exact])
    asyncio.run(run.evaluate(new))
    assert not asyncio.run(run.gate(new, metric="exact", margin=0.1)).promote


def test_a_bundle_is_not_promoted_over_itself() -> None:
    same = Bundle([Version(resource="addend", content=1)])
    verdict = asyncio.run(experiment().gate(same, against=same, margin=0.1))
    assert not verdict.promote
    assert verdict.reasons[0].startswith("Both sides are the same Bundle")


def test_what_an_episode_reads_by_a_handle_s_version_is_recorded_as_read() -> None:
    seen: list[str] = []

    def agent(question: str) -> str:
        seen.append(greeting.version.id)
        return "good day"

    new = Bundle([Version(resource="test.greeting", content="good day", kind="prompt")])
    run = Experiment(env=whet.calls(agent), tasks=GREETED, rewards=[exact])
    assert asyncio.run(run.gate(new, metric="exact", margin=0.1)).promote
    assert set(seen) == {new["test.greeting"].id, greeting.default_version.id}
