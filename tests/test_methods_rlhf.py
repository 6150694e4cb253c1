"""RLHF's three stages in one run, and the tool-use reward of planners."""

import asyncio
from dataclasses import replace

import msgspec
import pytest
from methods_toys import FAST, RIGHT, beginning, collect, context, measured, shuffled, tasks

from whet.errors import InputError, TrainingRefused
from whet.judge.tool_use import Required, ToolUse, ToolUseOptions, matched
from whet.learn.optimizers.ppo import PPO, PPOOptions
from whet.learn.optimizers.reward_model import RewardModel, RewardModelOptions
from whet.learn.optimizers.rlhf import RLHF
from whet.learn.optimizers.sft import SFT, SFTOptions
from whet.learn.training.alarms import AlarmOptions
from whet.learn.training.local import LocalModels
from whet.learn.training.optim import OptimOptions
from whet.learn.training.scorer import LearnedReward
from whet.types import Failure, Fault, Outcome, Step, Task, Trajectory

NEVER = AlarmOptions(success_drop=None, min_entropy=None, max_no_signal=None)
ROUNDS = 14


def stages(models):
    clone = SFT(
        SFTOptions(epochs=2, batch=32, keep="all", optim=replace(FAST, learning_rate=2e-3)), models=models
    )
    reward = RewardModel(RewardModelOptions(epochs=12, batch=32, optim=FAST), models=models)
    reinforce = PPO(
        PPOOptions(
            steps=ROUNDS,
            checkpoint_every=ROUNDS // 2,
            group_size=4,
            score="learned",
            passes=2,
            kl_coefficient=0.02,
            entropy_bonus=0.02,
            alarms=NEVER,
            optim=OptimOptions(learning_rate=1e-2, schedule="constant"),
        ),
        models=models,
    )
    return RLHF(
        clone, reward, reinforce, make_reward=lambda version: LearnedReward(version, models=models).many
    )


async def run(folder, relabel, *, resume_at=None):
    models, start = LocalModels(), beginning(folder)
    groups = relabel(await collect(start, tasks(48), 8, models=models))
    optimizer, bundle, state, path = stages(models), start, None, []

    async def play(given, todo, n=1, *, seed=0, prefix=None):
        return await collect(given, todo, n, models=optimizer.stages[0].models, seed=seed + 50)

    while True:
        given = context(folder, state=state, rollout=play, train=tasks(24, 8))
        update = await optimizer.step(bundle, groups, given)
        bundle, state = update.bundle, update.state
        path.append(update.metrics["stage"])
        if update.done:
            return await measured(start, models), await measured(bundle, models), bundle, path
        if (
            resume_at is not None
            and state["resumable"]
            and state["stage"] == 2
            and state["rounds"] == resume_at
        ):
            models, resume_at = LocalModels(), None
            optimizer, state = stages(models), msgspec.json.decode(msgspec.json.encode(state))


def test_the_three_stages_raise_the_true_reward_and_with_shuffled_preferences_do_not(tmp_path):
    before, after, bundle, path = asyncio.run(run(tmp_path / "a", list))
    assert path == [0.0, 1.0] + [2.0] * ROUNDS
    assert sorted(bundle) == ["policy", "reward_model"]
    assert after >= before + 0.4
    _, broken, _, _ = asyncio.run(run(tmp_path / "b", shuffled))
    assert broken <= after - 0.3


def test_it_goes_on_in_the_stage_where_it_was(tmp_path):
    _, _, straight, _ = asyncio.run(run(tmp_path / "a", list))
    _, _, resumed, _ = asyncio.run(run(tmp_path / "b", list, resume_at=ROUNDS // 2))
    assert straight["policy"].id == resumed["policy"].id


def test_stages_that_do_not_fit_together_are_refused(tmp_path):
    models, start = LocalModels(), beginning(tmp_path)
    optimizer = stages(models)
    with pytest.raises(InputError, match="no state of rlhf"):
        asyncio.run(optimizer.step(start, [], context(tmp_path, state={"round": 1})))
    last = {"stage": 2, "inner": None, "rounds": 0}
    with pytest.raises(TrainingRefused, match="no learned reward"):
        asyncio.run(optimizer.step(start, [], context(tmp_path, state=last)))


NEEDED = [
    {"name": "search", "arguments": {"query": "invoice"}},
    {"name": "open", "after": [0]},
    {"name": "reply", "arguments": {"to": "ann"}, "after": [1]},
]


def planned(*calls, required=NEEDED):
    steps = [
        Step(
            kind="tool",
            name=name,
            observation=arguments,
            error=Failure(Fault.TOOL, "E", "x") if name == "broken" else None,
        )
        for name, arguments in calls
    ]
    task = Task(id="t", meta={} if required is None else {"required_calls": required})
    return Trajectory(task=task, steps=steps, outcome=Outcome.UNKNOWN)


SEARCH, OPEN, REPLY = ("search", {"query": "invoice"}), ("open", {"id": 3}), ("reply", {"to": "ann"})


def test_a_complete_plan_scores_above_everything_else():
    score = ToolUse()
    full = score(planned(SEARCH, OPEN, REPLY)).value
    assert full == pytest.approx(1.0)
    everything = [SEARCH, OPEN, REPLY, ("delete", {}), ("list", {}), ("list", {}), SEARCH]
    worse = {
        "call all": planned(*everything),
        "out of order": planned(REPLY, OPEN, SEARCH),
        "wrong argument": planned(("search", {"query": "x"}), OPEN, REPLY),
        "nothing": planned(),
        "failed": planned(SEARCH, OPEN, ("broken", {}), REPLY),
        "no object": planned(SEARCH, OPEN, ("reply", "to ann"), REPLY),
    }
    values = {name: score(trajectory).value for name, trajectory in worse.items()}
    assert all(value < full for value in values.values())
    assert values["call all"] == pytest.approx(1.0 - 0.1 * 4 / 7)
    assert values["out of order"] == pytest.approx(1 / 3 - 0.1 * 2 / 3)
    assert values["failed"] == pytest.approx(1.0 - 0.2)
    free = ToolUse(ToolUseOptions(redundancy=0.0))
    assert free(worse["call all"]).value == pytest.approx(1.0)  # why redundancy has a price


def test_what_a_task_does_not_say_is_not_scored():
    assert ToolUse()(planned(SEARCH, required=None)).value is None
    with pytest.raises(InputError, match="not a list of calls"):
        ToolUse()(planned(SEARCH, required=[3]))
    with pytest.raises(InputError, match="0 or more"):
        ToolUseOptions(errors=-1.0)
    covered, redundant = matched([Required("a"), Required("a")], [])
    assert (covered, redundant) == (set(), 0)
    assert RIGHT["0"] == "1"
