"""The head learns from thumbs, beats the rule it replaces, and learns nothing from coin flips."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import lightgbm
import numpy as np
import pytest
from evolution_world import World

from whet.errors import EnvError, InputError, TrainingRefused
from whet.learn.loop import Context
from whet.learn.loop_checks import check_optimizer
from whet.learn.optimizers.head import Head, HeadOptions
from whet.models.heads import Decided, Forest, HeadDecision, Seen, decided, judge, load_head, seen
from whet.record.env import StepResult
from whet.record.policy import Action
from whet.types import (
    Budget,
    Bundle,
    Failure,
    Fault,
    Feedback,
    Group,
    Json,
    Outcome,
    Score,
    Step,
    Task,
    Trajectory,
    Version,
)

LIMIT = 4


def pile(number: int, name: str) -> Task:
    """Four candidates, of which at most one is right; what is seen of them is noisy."""
    rng = random.Random(f"{name}{number}")
    right = rng.randrange(LIMIT) if rng.random() < 0.7 else None
    candidates = []
    for place in range(LIMIT):
        good = place == right
        candidates.append(
            {
                "missing": max(0, round(rng.gauss(0.4 if good else 2.2, 0.9))),
                "rarity": round(rng.gauss(0.2 if good else 0.6, 0.2), 3),
                "sender": rng.choice([1, 1, -1] if good else [0, 0, 1, -1]),
                "values": 1 if good else rng.choice([0, 1, 1, 2]),
                "noise": rng.random(),
                "id": f"m{place}",
                "place": place,
                "remaining": LIMIT - place - 1,
            }
        )
    state = {"candidates": candidates, "right": right}
    return Task(id=f"{name}{number}", group=f"{name}{number // 4}", initial_state=state)


class PileEnv:
    """Shows a pile; the answer is the accepted candidate or `unknown`."""

    def __init__(self) -> None:
        self._task: Task | None = None

    def reset(self, task: Task, seed: int) -> Json:
        self._task = task
        return task.initial_state["candidates"]

    def step(self, action: Json) -> StepResult:
        if self._task is None:
            raise EnvError("step before reset")
        task, self._task = self._task, None
        right = task.initial_state["right"]
        success = action == ("unknown" if right is None else right)
        return StepResult("over", None, True, False, {"success": success})


def weak(read: Sequence[Mapping[str, Json]]) -> int | str:
    """A mediocre rule that says `unknown` rarely and accepts all sorts of things."""
    last = read[-1]
    if last["values"] >= 1 and last["missing"] <= 2:
        return len(read) - 1
    return "more" if last["remaining"] else "unknown"


class Reader:
    """Reads one candidate after another and asks the decision each time."""

    def __init__(self, decide: Callable[..., int | str]) -> None:
        self.decide = decide

    async def act(self, pile: Sequence[Mapping[str, Json]], /) -> Action:
        steps = []
        for place in range(len(pile)):
            read = list(pile[: place + 1])
            choice = self.decide(read)
            steps.append(Step(kind="function", name="decide", observation={"read": read}, action=choice))
            if choice != "more":
                return Action(choice, steps=steps)
        return Action("unknown", steps=steps)


def reader(bundle: Bundle, seed: int) -> Reader:
    return Reader(load_head(bundle["decide"], weak) if "decide" in bundle else weak)


def thumbed(
    groups: Sequence[Group], seed: int, *, rate: float = 0.4, wrong: float = 0.15, coin: bool = False
) -> list[Group]:
    """The groups with the thumbs that simulated users would give."""
    rng = random.Random(seed)
    made = []
    for group in groups:
        each = []
        for trajectory in group.trajectories:
            good = (trajectory.outcome is Outcome.SUCCESS) != (rng.random() < wrong)
            if coin:
                good = rng.random() < 0.5
            if rng.random() < rate:
                thumb = Feedback(run=trajectory.id, value=1.0 if good else -1.0, id="f", at=0.0)
                trajectory = replace(trajectory, feedback=(thumb,))
            each.append(replace(trajectory, started=0.0, seconds=0.0, steps=_untimed(trajectory.steps)))
        made.append(Group(group.task, tuple(each)))
    return made


def _untimed(steps: Sequence[Step]) -> tuple[Step, ...]:
    return tuple(replace(step, latency=None) for step in steps)


def recorded(count: int, seed: int, **thumbs: float) -> list[Group]:
    world = World(PileEnv, reader)
    groups = asyncio.run(world.rollout(Bundle(), [pile(number, f"t{seed}-") for number in range(count)]))
    return thumbed(groups, seed, **thumbs)


def rate(bundle: Bundle, name: str = "held", count: int = 800) -> float:
    groups = asyncio.run(
        World(PileEnv, reader).rollout(bundle, [pile(number, name) for number in range(count)])
    )
    return sum(group.trajectories[0].outcome is Outcome.SUCCESS for group in groups) / count


def learn(groups: Sequence[Group], options: HeadOptions | None = None, seed: int = 0):  # type: ignore[no-untyped-def]
    context = World(PileEnv, reader).context([], seed=seed)
    return asyncio.run(Head(options=options).step(Bundle(), groups, context))


OPTIONS = HeadOptions(at_least={"values": 1})


@pytest.fixture(scope="module")
def record() -> list[Group]:
    return recorded(2000, 0)


@pytest.fixture(scope="module")
def learned(record: list[Group]) -> Version:
    return learn(record, OPTIONS).bundle["decide"]


def test_the_head_learned_from_noisy_thumbs_beats_the_rule_on_held_out_tasks(record: list[Group]) -> None:
    update = learn(record, OPTIONS)
    assert 600 < update.metrics["runs"] < 1000
    before, after = rate(Bundle()), rate(update.bundle)
    assert after > before + 0.12, (before, after)
    assert update.done
    assert update.metrics["expected"] > update.metrics["expected_before"]
    importance = update.bundle["decide"].meta["importance"]
    assert next(iter(importance)) in ("missing", "rarity", "sender")
    assert importance["noise"] < 0.15
    assert sum(importance.values()) == pytest.approx(1.0)
    assert "id" not in importance  # text is not looked at
    assert "remaining" not in importance


def test_the_head_learns_where_every_task_is_of_one_group(record: list[Group]) -> None:
    alone = []
    for group in record:
        task = replace(group.task, group="one mailbox")
        alone.append(Group(task, tuple(replace(run, task=task) for run in group.trajectories)))
    update = learn(alone, OPTIONS)
    assert "decide" in update.bundle, update.reason
    assert update.metrics["auc"] > 0.7


@pytest.mark.parametrize("seed", range(4))
def test_coin_flips_in_place_of_thumbs_bring_nothing(seed: int) -> None:
    update = learn(recorded(1200, seed, coin=True), OPTIONS, seed)
    assert update.done
    assert rate(update.bundle) <= rate(Bundle()) + 0.01
    if update.bundle == Bundle():
        assert "tell nothing" in update.reason


def test_coin_flips_are_mostly_recognised_as_such() -> None:
    kept = [
        learn(recorded(800, seed, coin=True, rate=0.6), OPTIONS, seed).bundle == Bundle() for seed in range(5)
    ]
    assert sum(kept) >= 4


def test_a_score_can_take_the_place_of_thumbs() -> None:
    groups = recorded(800, 3, rate=0.0)
    update = learn(groups, replace(OPTIONS, label="success"))
    assert update.metrics["auc"] > 0.8
    assert update.metrics["runs"] == 800


def test_too_few_labels_or_one_kind_only_are_refused(record: list[Group]) -> None:
    with pytest.raises(TrainingRefused, match="at least 60"):
        learn(record[:30], OPTIONS)
    with pytest.raises(TrainingRefused, match="'elsewhere'"):
        asyncio.run(Head("elsewhere").step(Bundle(), record, World().context([])))
    pleased = [
        Group(
            group.task,
            [replace(each, feedback=[Feedback(run=each.id, value=1.0)]) for each in group.trajectories],
        )
        for group in record[:200]
    ]
    with pytest.raises(TrainingRefused, match="of both kinds"):
        learn(pleased, OPTIONS)


def test_runs_on_which_people_disagree_or_without_a_thumb_are_no_labels(record: list[Group]) -> None:
    rated = sum(bool(each.feedback) for group in record for each in group.trajectories)
    split = [
        Group(
            group.task,
            [
                replace(
                    each,
                    feedback=(
                        *each.feedback,
                        Feedback(run=each.id, value=-sum(f.value or 0 for f in each.feedback)),
                    ),
                )
                for each in group.trajectories
            ],
        )
        for group in record[:400]
    ]
    update = learn([*split, *record[400:]], OPTIONS)
    assert update.metrics["runs"] < rated


def test_what_may_not_be_accepted_never_is(learned: Version) -> None:
    head = HeadDecision(learned)
    good = {"missing": 0, "rarity": 0.1, "sender": 1, "values": 1, "noise": 0.5, "place": 0, "remaining": 0}
    assert head([good]) == 0
    assert head([{**good, "values": 0}]) == "unknown"
    assert head([{**good, "values": None}]) == "unknown"
    bad = {**good, "missing": 4, "rarity": 0.9, "sender": 0}
    assert head([{**bad, "remaining": 3}]) == "more"
    assert head([{**good, "remaining": 1}, bad]) == 0
    assert head([]) == "more"
    assert head([], remaining=0) == "unknown"


def test_the_arguments_are_found_by_signature_and_in_every_recorded_form(learned: Version) -> None:
    good = {"missing": 0, "rarity": 0.1, "sender": 1, "values": 1, "noise": 0.5, "place": 0}

    def decide(rule: object, read: object, left: int) -> None: ...

    version = replace(learned, content={**learned.content, "key": "read", "remaining": "left"}, id="")
    head = load_head(version, decide)
    other = [{"a": 1}]
    assert head(other, [good], 0) == 0
    assert head(other, [{**good, "missing": 4, "rarity": 1.0, "sender": 0}], left=[]) == "unknown"
    assert head(rule=other, read=[{**good, "missing": 4, "rarity": 1.0, "sender": 0}], left=2) == "more"
    for observation in (
        {"read": [good], "rule": {}},
        {"args": [[good], {}], "kwargs": {}},
        [[good], {}],
        [good],
    ):
        found = seen(observation)
        assert found is not None
        assert found.candidates == [good]
        assert found.remaining
    assert seen({"args": [[good]], "kwargs": {"remaining": 0}}) == Seen([good], False, told=True)
    assert seen([{**good, "remaining": 3}]) == Seen([{**good, "remaining": 3}], True, told=True)
    assert seen([good], remaining="left") == Seen([good], True, told=False)
    assert seen("text") is None
    with pytest.raises(InputError, match="no argument of 1"):
        HeadDecision(learned)("text")


def test_a_version_that_is_no_head_is_refused(learned: Version) -> None:
    with pytest.raises(InputError, match="not a head"):
        HeadDecision(Version(resource="decide", content="text"))
    with pytest.raises(InputError, match="features"):
        HeadDecision(replace(learned, content={**learned.content, "features": ["missing"]}, id=""))


def test_the_judge_ranks_answers_as_the_checker_does(record: list[Group], learned: Version) -> None:
    held = asyncio.run(World(PileEnv, reader).rollout(Bundle(), [pile(number, "j") for number in range(600)]))
    judged = judge(learned)
    pairs = []
    for group in held:
        score = judged(group.trajectories[0])
        assert score.evaluator == learned.id
        assert score.value is not None
        pairs.append((score.value, group.trajectories[0].outcome is Outcome.SUCCESS))
    good = [value for value, right in pairs if right]
    bad = [value for value, right in pairs if not right]
    wins = sum((one > other) + (one == other) / 2 for one in good for other in bad) / (len(good) * len(bad))
    assert wins > 0.8
    values = [value for value, _ in pairs]
    assert (
        abs(sum(values) / len(values) - len(good) / len(pairs)) < 0.12
    )  # near the true rate, thumbs being noisy


def test_the_judge_does_not_reward_refusing_without_looking(learned: Version) -> None:
    judged = judge(learned)
    task = Task(id="t")
    blind = judged(Trajectory(task=task)).value
    hopeless = [
        {"missing": 4, "rarity": 1.0, "sender": 0, "values": 1, "noise": 0.5, "place": 0, "remaining": 0}
    ]
    step = Step(kind="function", name="decide", observation={"read": hopeless}, action="unknown")
    looked = judged(Trajectory(task=task, steps=(step,))).value
    assert blind is not None
    assert looked is not None
    assert looked > blind + 0.2
    broken = Trajectory(task=task, error=Failure(Fault.AGENT, "ValueError", "oops"), outcome=Outcome.FAILURE)
    assert judged(broken).value == 0.0
    assert judged(Trajectory(task=task, outcome=Outcome.INFRASTRUCTURE_ERROR)).value is None
    other = judge(learned, name="j", read=lambda trajectory: Decided([{**hopeless[0], "missing": 0}], 0))
    assert other(Trajectory(task=task)) == Score(
        "j", other(Trajectory(task=task)).value, "accepted candidate 0", learned.id
    )


def test_decisions_that_failed_or_name_no_candidate_are_not_read() -> None:
    read = {"read": [{"a": 1}, {"a": 2}]}
    steps = [
        Step(kind="function", name="decide", observation=read, action=1),
        Step(kind="function", name="decide", observation=read, error=Failure(Fault.AGENT, "E", "")),
        Step(kind="tool", name="decide", observation=read, action=0),
    ]
    found = decided(Trajectory(task=Task(id="t"), steps=steps), "decide")
    assert found == Decided(read["read"], 1)
    for action in (True, 7, -1, "more", None):
        steps = [Step(kind="function", name="decide", observation=read, action=action)]
        assert decided(Trajectory(task=Task(id="t"), steps=steps), "decide") == Decided(read["read"], None)


def test_unknown_answers_can_give_labels_too(record: list[Group]) -> None:
    rows = {
        unknowns: learn(record, replace(OPTIONS, unknowns=unknowns)).metrics["rows"]
        for unknowns in ("ignore", "up", "both")
    }
    assert rows["ignore"] < rows["up"] < rows["both"]


def picked(answer: Callable[[int], Json]) -> list[Group]:
    """Runs whose decision takes one of three candidates, mostly the first, and never says that it knows none."""
    rng, groups = random.Random(3), []
    for number in range(600):
        seen = [{"match": round(rng.random(), 3), "age": round(rng.random(), 3)} for _ in range(3)]
        choice = rng.choice((0, 0, 1, 2))
        good = rng.random() < (0.9 if seen[choice]["match"] > 0.6 else 0.1)
        task = Task(instruction=str(number), group=f"g{number // 4}")
        step = Step(kind="function", name="pick", observation={"candidates": seen}, action=answer(choice))
        run = Trajectory(task=task, steps=[step])
        thumb = Feedback(run=run.id, value=1.0 if good else -1.0)
        groups.append(Group(task, [replace(run, feedback=(thumb,))]))
    return groups


def test_a_head_says_no_word_that_the_record_does_not_have() -> None:
    update = learn(picked(lambda choice: choice))
    head = load_head(update.bundle["pick"])
    poor, good = {"match": 0.05, "age": 0.5}, {"match": 0.95, "age": 0.5}
    assert [head([poor, good, poor]), head([good, poor, poor])] == [1, 0]
    assert head([poor, poor, poor]) in (0, 1, 2), "the best of a bad lot: the agent knows no other word"


def test_a_head_asks_for_more_where_its_decision_is_told_what_is_left() -> None:
    record = picked(lambda choice: choice)
    told = [
        Group(
            group.task,
            [
                replace(run, steps=[replace(step, observation={**step.observation, "remaining": 2})])
                for run in group.trajectories
                for step in run.steps
            ],
        )
        for group in record
    ]
    poor = {"match": 0.05, "age": 0.5}
    for groups, answers in ((record, {0, 1, 2}), (told, {"more"})):
        head = load_head(learn(groups).bundle["pick"])
        assert head.decide(Seen([poor, poor, poor], remaining=True)) in answers


def test_a_decision_that_refuses_in_its_own_words_is_left_as_it_is() -> None:
    with pytest.raises(TrainingRefused, match="was recorded to answer -1; a head stands in for"):
        learn(picked(lambda choice: choice if choice else -1))


def test_monotone_features_only_raise_the_probability(record: list[Group]) -> None:
    version = learn(record, replace(OPTIONS, monotone={"missing": -1})).bundle["decide"]
    head, rng = HeadDecision(version), random.Random(0)
    for _ in range(100):
        candidate = {
            "rarity": rng.random(),
            "sender": rng.randint(-1, 1),
            "values": 1,
            "noise": 0.5,
            "place": 1,
        }
        values = [head.probability({**candidate, "missing": missing}) for missing in range(5)]
        assert values == sorted(values, reverse=True)


def test_thresholds_can_be_tried_on_validation_within_the_budget(record: list[Group]) -> None:
    validation = [pile(number, "v") for number in range(60)]
    for rollouts, tried in ((10, None), (150, 2.0), (10_000, 7.0)):
        world = World(PileEnv, reader, budget=Budget(rollouts=rollouts))
        context = world.context([], validation)
        update = asyncio.run(
            Head(options=replace(OPTIONS, tune_score="success")).step(Bundle(), record, context)
        )
        assert update.metrics.get("settings_tried") == tried
        assert world.count <= rollouts


def test_head_keeps_the_optimizer_contract(record: list[Group]) -> None:
    def context(budget: Budget) -> Context:
        return World(PileEnv, reader, budget=budget).context(
            [], [pile(number, "v") for number in range(5)], seed=3
        )

    def make() -> Head:
        return Head(options=replace(OPTIONS, tune_score="success"))

    asyncio.run(check_optimizer(make, Bundle(), record[:1000], context))


def forest(
    seed: int, rows: int = 700, columns: int = 8, **settings: object
) -> tuple[lightgbm.Booster, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = np.round(rng.normal(size=(rows, columns)), 1)
    X[:, 0] = rng.integers(0, 3, rows)
    X[rng.random(X.shape) < 0.15] = np.nan
    X[rng.random(X.shape) < 0.1] = 0.0
    X[:, 1] = np.nan_to_num(X[:, 1])  # a column without missing values
    y = np.nan_to_num(X[:, 0]) + np.isnan(X[:, 2]) - np.nan_to_num(X[:, 1]) + rng.normal(size=rows) > 0.7
    base = {"objective": "binary", "num_leaves": 15, "min_data_in_leaf": 5, "verbose": -1, "num_threads": 1}
    booster = lightgbm.train(
        {**base, **settings}, lightgbm.Dataset(X, y, params={"verbose": -1}), num_boost_round=50
    )
    return booster, X


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"zero_as_missing": True},
        {"use_missing": False},
        {"num_leaves": 2},
        {"num_leaves": 60, "min_data_in_leaf": 1},
        {"num_leaves": 20, "sigmoid": 0.7, "is_unbalance": True},
        {"min_data_in_leaf": 100_000},
        {"max_bin": 4, "extra_trees": True},
        {"boosting": "dart", "learning_rate": 0.3},
    ],
)
def test_predictions_equal_lightgbm_on_data_with_missing_values_and_zeros(
    settings: dict[str, object],
) -> None:
    booster, X = forest(1, **settings)
    runtime = Forest(booster.model_to_string())
    rng = np.random.default_rng(9)
    fresh = rng.normal(scale=3.0, size=(300, X.shape[1]))
    fresh[rng.random(fresh.shape) < 0.2] = np.nan
    fresh[rng.random(fresh.shape) < 0.1] = 0.0
    fresh[rng.random(fresh.shape) < 0.02] = np.inf
    fresh[rng.random(fresh.shape) < 0.02] = -np.inf
    both = np.vstack([X[:300], fresh])
    expected = booster.predict(both, num_threads=1)
    for row, probability in zip(both.tolist(), expected, strict=True):
        missing = [None if math.isnan(value) else value for value in row]
        assert runtime.predict(row) == pytest.approx(probability, abs=1e-9)
        assert runtime.predict(missing) == runtime.predict(row)


def test_a_prediction_takes_microseconds() -> None:
    booster, X = forest(2, columns=12)
    runtime = Forest(booster.model_to_string())
    rows = X.tolist()
    best = math.inf
    for _ in range(5):
        begun = time.process_time()
        for row in rows:
            runtime.predict(row)
        best = min(best, (time.process_time() - begun) / len(rows))
    assert best < 30e-6, f"{best * 1e6:.1f} µs"


def test_models_that_cannot_be_run_are_refused_with_the_reason(learned: Version) -> None:
    X = np.arange(200.0).reshape(100, 2) % 7
    y = X[:, 0] > 3
    quiet = {"verbose": -1, "min_data_in_leaf": 1, "num_threads": 1}
    data = lightgbm.Dataset(X, y, categorical_feature=[0], params=quiet)
    categorical = lightgbm.train(
        {**quiet, "objective": "binary", "min_data_per_group": 1}, data, num_boost_round=2
    )
    with pytest.raises(InputError, match="categorical"):
        Forest(categorical.model_to_string())
    regression = lightgbm.train(
        {**quiet, "objective": "l2"}, lightgbm.Dataset(X, y, params=quiet), num_boost_round=2
    )
    with pytest.raises(InputError, match="not binary"):
        Forest(regression.model_to_string())
    text = learned.content["model"]
    for broken in ("", "nonsense", text[: len(text) // 2], text.replace("threshold=", "threshold=1 ", 1)):
        with pytest.raises(InputError, match="not a LightGBM text model"):
            Forest(broken)


def test_nodes_that_form_a_loop_are_refused() -> None:
    booster, _ = forest(3, num_leaves=4)
    lines = booster.model_to_string().splitlines()
    place = next(number for number, line in enumerate(lines) if line.startswith("left_child="))
    lines[place] = "left_child=0 0 0"
    with pytest.raises(InputError, match="form a tree"):
        Forest("\n".join(lines))
