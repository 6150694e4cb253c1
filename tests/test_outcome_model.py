"""A reward learned from outcomes: what it learns, what it refuses, and that it transfers to other databases."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from whet.errors import InputError, TrainingRefused
from whet.judge.leaks import telling
from whet.judge.outcome import OutcomeReward
from whet.learn.boosting import BoostingOptions, boosted
from whet.learn.loop import Context, Update
from whet.learn.optimizers.outcome_model import OutcomeModel, OutcomeModelOptions
from whet.stats import auc
from whet.types import Bundle, Group, Outcome, Step, Task, Trajectory, Version

SQL_REWARD = Path(__file__).parents[1] / "examples" / "sql_reward"
QUICK = BoostingOptions(trees=(20, 60), leaves=(3, 7))


def endings(trajectory: Trajectory, limit: int) -> dict[str, float | None]:
    """How a run went on and ended: facts that stand in a record, and at no moment of deployment.

    Whether it stopped before the `limit` of its steps is such a fact, too.
    """
    steps = len(trajectory.steps)
    return {
        "steps": float(steps),
        "ended by the environment": float(bool(steps) and trajectory.steps[-1].done),
        "seconds": trajectory.seconds,
        "failed steps": float(sum(step.error is not None for step in trajectory.steps)),
        "stopped before the limit": float(steps < limit),
    }


def runs(count: int, seed: int = 0, *, groups: int = 12) -> list[Trajectory]:
    """Runs whose length tells half of the truth, and whose end tells all of it."""
    rng, made = random.Random(seed), []
    for number in range(count):
        length, other = rng.random(), rng.random()
        good = rng.random() < (0.85 if length > 0.5 else 0.15)
        made.append(
            Trajectory(
                task=Task(instruction=f"question {number}", group=f"g{number % groups}"),
                steps=tuple(Step(done=good) for _ in range(3 if good else 10)),
                output=[length, other],
                outcome=Outcome.SUCCESS if good else Outcome.FAILURE,
                seconds=1.0,
            )
        )
    return made


def features(run: Trajectory) -> Mapping[str, float | None] | None:
    return {"length": run.output[0], "other": run.output[1]} if run.output is not None else None


def learned(
    made: Sequence[Trajectory], read: object = features, options: OutcomeModelOptions | None = None
) -> Update:
    async def none(*_: object, **__: object) -> list[Group]:
        raise AssertionError("an offline learner asked for rollouts")

    model = OutcomeModel(read, options or OutcomeModelOptions(boosting=QUICK))  # type: ignore[arg-type]
    groups = [Group(task=run.task, trajectories=(run,)) for run in made]
    return asyncio.run(model.step(Bundle(), groups, Context(rollout=none)))


def test_it_learns_what_the_features_tell_and_scores_runs_of_other_groups() -> None:
    update = learned(runs(600))
    version = update.bundle["outcome_model"]
    assert next(iter(version.meta["importance"])) == "length"
    others = runs(400, seed=1, groups=40)
    reward = OutcomeReward(version, features)
    found = auc(
        [reward(run).value or 0.0 for run in others], [run.outcome is Outcome.SUCCESS for run in others]
    )
    assert found > 0.8, "the best that can be known here is .85"
    assert abs(found - update.metrics["auc"]) < 0.06, "cross-validation promised something else"
    assert all(0 <= (reward(run).value or 0.0) <= 1 for run in others)


def test_the_same_seed_gives_the_same_version_and_it_survives_json() -> None:
    import msgspec

    first, second = learned(runs(300)).bundle, learned(runs(300)).bundle
    assert first["outcome_model"].id == second["outcome_model"].id
    sent = msgspec.json.decode(msgspec.json.encode(first["outcome_model"]), type=Version)
    run = runs(1, seed=9)[0]
    assert (
        OutcomeReward(sent, features)(run).value == OutcomeReward(first["outcome_model"], features)(run).value
    )


def test_shuffled_outcomes_teach_nothing() -> None:
    for seed in range(3):
        made = runs(400, seed)
        outcomes = [run.outcome for run in made]
        random.Random(seed).shuffle(outcomes)
        update = learned([replace(run, outcome=one) for run, one in zip(made, outcomes, strict=True)])
        assert "outcome_model" not in update.bundle
        assert "tell nothing" in update.reason


def test_a_feature_that_gives_the_outcome_away_is_refused_until_someone_vouches_for_it() -> None:
    def leaking(run: Trajectory) -> dict[str, float | None]:
        return {**(features(run) or {}), "stopped": float(len(run.steps) < 10)}

    with pytest.raises(TrainingRefused, match=r"stopped \(AUC 1\.000 alone.*vouched"):
        learned(runs(300), leaking)
    options = OutcomeModelOptions(boosting=QUICK, vouched=("stopped",))
    assert learned(runs(300), leaking, options).metrics["auc"] > 0.99


def test_a_fact_that_is_known_of_the_good_ones_alone_is_a_leak_too() -> None:
    rows: list[dict[str, float | None]] = [
        {"grade time": 0.5 if good else None} for good in (True, False) * 40
    ]
    (tell,) = telling(rows, [True, False] * 40)
    assert tell.name == "grade time is known"
    assert tell.auc == 1.0


def test_how_runs_ended_is_told_apart_from_what_they_said() -> None:
    made = runs(200)
    right = [run.outcome is Outcome.SUCCESS for run in made]
    told = {tell.name for tell in telling([endings(run, limit=10) for run in made], right)}
    assert told == {"steps", "ended by the environment", "stopped before the limit"}
    assert not telling([features(run) or {} for run in made], right)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (runs(20), "20 judged runs"),
        ([run for run in runs(300) if run.outcome is Outcome.SUCCESS], "right ones and wrong ones"),
        (runs(300, groups=1), "of 1 groups"),
        ([replace(run, outcome=Outcome.INFRASTRUCTURE_ERROR) for run in runs(300)], "0 judged runs"),
    ],
)
def test_what_cannot_be_learned_from_is_refused_with_the_reason(made: list[Trajectory], said: str) -> None:
    with pytest.raises(TrainingRefused, match=said):
        learned(made)


def test_features_that_come_and_go_are_named() -> None:
    def fickle(run: Trajectory) -> dict[str, float | None]:
        return {"length": 1.0} | ({"odd": 1.0} if run.output[0] > 0.5 else {})

    with pytest.raises(InputError, match="'odd' comes and goes"):
        learned(runs(100), fickle)


def test_a_reward_says_none_where_there_is_nothing_to_score_and_names_a_missing_feature() -> None:
    version = learned(runs(300)).bundle["outcome_model"]
    reward, run = OutcomeReward(version, features), runs(1)[0]
    assert reward(replace(run, output=None)).value is None
    assert reward(replace(run, outcome=Outcome.INFRASTRUCTURE_ERROR)).value is None
    with pytest.raises(InputError, match="'other' is not among those"):
        OutcomeReward(version, lambda run: {"length": 1.0})(run)
    with pytest.raises(InputError, match="without trees"):
        OutcomeReward(Version(resource="prompt", content="x", kind="prompt"), features)


def test_rows_of_one_group_never_stand_on_both_sides() -> None:
    """A feature that only names the group looks perfect across rows, and says nothing of a group unseen."""
    rng = random.Random(0)
    good = {f"g{number}": rng.random() < 0.5 for number in range(24)}
    groups = [f"g{number % 24}" for number in range(480)]
    rows = [[float(group[1:])] for group in groups]
    right = [good[group] if rng.random() < 0.9 else not good[group] for group in groups]
    assert boosted(rows, right, groups, ["owner"], options=QUICK).auc < 0.7


def test_on_recorded_sql_the_stop_is_caught_and_queries_are_judged_on_other_databases(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(SQL_REWARD), *sys.path])
    import features as sql
    import recordings

    whole = recordings.episodes(data / "intercode_sql")
    every = [run for run in whole if run.meta["model"] in ("gpt-3.5", "gpt-4", "vicuna")]
    right = [run.outcome is Outcome.SUCCESS for run in every]
    told = telling([endings(run, limit=recordings.TURNS) for run in every], right)
    assert "stopped before the limit" in {tell.name for tell in told}

    answers = recordings.answers(data / "intercode_sql")
    databases = sorted({run.task.group for run in answers})
    held = set(databases[::4])
    update = learned(
        [run for run in answers if run.task.group not in held],
        sql.features,
        OutcomeModelOptions(boosting=BoostingOptions(trees=(80,), leaves=(7,), folds=2)),
    )
    reward = OutcomeReward(update.bundle["outcome_model"], sql.features)
    test = [run for run in answers if run.task.group in held]
    found = auc([reward(run).value or 0.0 for run in test], [run.outcome is Outcome.SUCCESS for run in test])
    assert found > 0.8
