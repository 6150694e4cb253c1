"""Tokens of other weights: told from one's own before the first update, and learned from only if asked to."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from methods_toys import FAST, beginning, collect, context, tasks

from whet.errors import TrainingRefused
from whet.learn.optimizers.grpo import GRPO, GRPOOptions
from whet.learn.optimizers.ppo import PPO, PPOOptions
from whet.learn.training.local import LocalModels
from whet.learn.training.off_policy import TOLERANCE
from whet.types import Group


def options(kind=GRPOOptions, **given):
    return kind(steps=1, optim=FAST, **given)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Two policies, and what the first of them sampled."""
    folder, models = tmp_path_factory.mktemp("weights"), LocalModels()
    own, other = beginning(folder / "own", seed=0), beginning(folder / "other", seed=1)
    return own, other, asyncio.run(collect(own, tasks(16), 4, models=models))


def learn(optimizer, bundle, groups, folder):
    return asyncio.run(optimizer.step(bundle, groups, context(folder)))


@pytest.mark.parametrize("method", [GRPO, PPO])
def test_tokens_of_other_weights_are_refused_and_ones_own_are_not(method, world, tmp_path):
    own, other, groups = world
    kind = {GRPO: GRPOOptions, PPO: PPOOptions}[method]
    found = learn(method(options(kind), models=LocalModels()), own, groups, tmp_path / "own").metrics
    assert found["gap"] < 1e-4
    assert found["effective_share"] == pytest.approx(1.0, abs=1e-3)
    with pytest.raises(
        TrainingRefused, match=r"not sampled from these weights: in \d+ of \d+ .*--off-policy"
    ):
        learn(method(options(kind), models=LocalModels()), other, groups, tmp_path / "other")


def test_with_off_policy_they_are_learned_from_and_the_ratios_are_shown(world, tmp_path):
    _, other, groups = world
    found = learn(GRPO(options(off_policy=True), models=LocalModels()), other, groups, tmp_path).metrics
    assert found["gap"] > TOLERANCE
    assert 0 < found["effective_share"] < 0.95
    assert found["updates"] == 1


def test_another_temperature_is_other_weights(world, tmp_path):
    own, _, _ = world
    models = LocalModels()
    cold = asyncio.run(collect(own, tasks(16), 4, models=models, temperature=0.5))
    with pytest.raises(TrainingRefused, match="or the temperature that they were sampled at"):
        learn(GRPO(options(), models=LocalModels()), own, cold, tmp_path / "warm")
    learn(GRPO(options(temperature=0.5), models=LocalModels()), own, cold, tmp_path / "cold")


def test_a_mixture_with_tokens_of_other_weights_is_refused(world, tmp_path):
    own, other, groups = world
    foreign = asyncio.run(collect(other, tasks(16), 4, models=LocalModels()))
    mixed = [
        Group(mine.task, [*mine.trajectories, *(replace(t, id=f"other-{t.id}") for t in theirs.trajectories)])
        for mine, theirs in zip(groups, foreign, strict=True)
    ]
    with pytest.raises(TrainingRefused, match=r"in \d+ of 128 trajectories"):
        learn(GRPO(options(), models=LocalModels()), own, mixed, tmp_path)
