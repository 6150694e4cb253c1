"""Truncated importance sampling between an engine that samples and the trainer, against a reference of its own."""

import asyncio
import math
import random
from dataclasses import replace

import pytest
import torch
from methods_toys import FAST, beginning, collect, context, tasks

from whet.learn.optimizers.grpo import GRPO, GRPOOptions
from whet.learn.training.correction import weights_of
from whet.learn.training.local import LocalModels
from whet.types import Group

LEARNED = {"steps": 1, "checkpoint_every": 1, "optim": FAST, "entropy_bonus": 0.0, "off_policy": True}


class Elsewhere(LocalModels):
    """Weights in this process, treated as sampled by another engine."""

    elsewhere = True


def disturbed(groups, size, seed=0):
    """The log-probabilities of an engine that computes otherwise."""
    rng = random.Random(seed)

    def of(tokens):
        return replace(tokens, logprobs=tuple(min(0.0, p + rng.gauss(0, size)) for p in tokens.logprobs))

    return [
        Group(
            group.task,
            [
                replace(run, steps=[replace(step, tokens=of(step.tokens)) for step in run.steps])
                for run in group.trajectories
            ],
        )
        for group in groups
    ]


def step(folder, groups, models, start, **options):
    update = asyncio.run(
        GRPO(GRPOOptions(**LEARNED, **options), models=models).step(start, groups, context(folder))
    )
    return models.decoder(update.bundle["policy"]).weights(), update.metrics


@pytest.fixture
def played(tmp_path):
    start = beginning(tmp_path)
    groups = asyncio.run(collect(start, tasks(6, turns=3), 8, models=LocalModels()))
    return start, groups


def same(one, other):
    return all(torch.equal(one[name], other[name]) for name in one)


def reference(start, groups, level, cap):
    """Weights by plain loops over a full forward: trajectory id → weight of each of its tokens, and Δ log p of all."""
    network = LocalModels().decoder(start["policy"])
    from whet.learn.training.forward import logits

    weights, every = {}, []
    for group in groups:
        for run in group.trajectories:
            apart = []
            for one in run.steps:
                ids = [*one.tokens.prompt_ids, *one.tokens.output_ids]
                with torch.no_grad():
                    table = torch.log_softmax(logits(network, torch.tensor([ids]))[0], dim=-1)
                for place, (token, sampled) in enumerate(
                    zip(one.tokens.output_ids, one.tokens.logprobs, strict=True)
                ):
                    apart.append(float(table[len(one.tokens.prompt_ids) + place - 1, token]) - sampled)
            every += apart
            ratios = [math.exp(sum(apart))] * len(apart) if level == "sequence" else [*map(math.exp, apart)]
            weights[run.id] = [min(ratio, cap) for ratio in ratios]
    return weights, every


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_the_gradient_is_that_of_advantages_weighted_by_the_truncated_ratio(tmp_path, played, level):
    start, groups = played
    odd = disturbed(groups, 0.5)
    cap = 1.3
    given = {"rollout_correction": level, "rollout_correction_cap": cap}
    ours, metrics = step(tmp_path / "ours", odd, LocalModels(), start, **given)
    weights, apart = reference(start, odd, level, cap)

    class Weighted(GRPO):
        """GRPO without a correction, whose advantages are multiplied outside and whose ratios are all 1."""

        def _credit(self, clean):
            credited = super()._credit(clean)
            trajectories = [run for group in clean for run in group.trajectories]
            kept = [
                run
                for group in clean
                if len({one.reward for one in group.trajectories}) > 1
                for run in group.trajectories
            ]
            assert len(trajectories) >= len(kept) == len(credited.sequences)
            for run, sequence in zip(kept, credited.sequences, strict=True):
                sequence.advantages = [
                    a * w for a, w in zip(sequence.advantages, weights[run.id], strict=True)
                ]
            return credited

    optimizer = Weighted(GRPOOptions(**LEARNED, rollout_correction="off"), models=LocalModels())
    update = asyncio.run(optimizer.step(start, groups, context(tmp_path / "theirs")))
    theirs = LocalModels().decoder(update.bundle["policy"]).weights()
    first = LocalModels().decoder(start["policy"]).weights()
    moved = max(float((ours[name] - first[name]).detach().abs().max()) for name in ours)
    error = max(float((ours[name] - theirs[name]).detach().abs().max()) for name in ours)
    assert moved > 1e-3
    assert error < 2e-3 * moved
    uncorrected, _ = step(tmp_path / "off", odd, LocalModels(), start, rollout_correction="off")
    off = max(float((uncorrected[name] - theirs[name]).detach().abs().max()) for name in ours)
    assert off > 20 * error, "without the correction the step is another: the comparison could fail"
    assert metrics["mismatch"] == pytest.approx(sum(map(abs, apart)) / len(apart), rel=0.2)
    assert 0 < metrics["truncated"] < 1
    assert metrics["mismatch_max"] <= max(map(abs, apart)) + 1e-5
    assert metrics["mismatch_kl"] > 0


def test_in_process_nothing_is_corrected_and_the_step_is_the_same_bits(tmp_path, played):
    start, groups = played
    auto, metrics = step(tmp_path / "auto", groups, LocalModels(), start)
    off, _ = step(tmp_path / "off", groups, LocalModels(), start, rollout_correction="off")
    assert same(auto, off)
    assert "mismatch" not in metrics


def test_where_another_engine_samples_the_mismatch_is_corrected_and_shown_by_default(tmp_path, played):
    start, groups = played
    shown = {}

    def progress(what, done, total=None, **figures):
        shown.update(figures)

    optimizer = GRPO(GRPOOptions(**LEARNED), models=Elsewhere())
    asyncio.run(optimizer.step(start, disturbed(groups, 0.05), context(tmp_path / "r", progress=progress)))
    assert 0.02 < shown["mismatch"] < 0.08
    assert shown["truncated"] == 0.0
    alike, metrics = step(tmp_path / "same", groups, Elsewhere(), start)
    off, _ = step(tmp_path / "off", groups, LocalModels(), start, rollout_correction="off")
    assert metrics["mismatch"] < 1e-6, "the same engine: what is left is the last bit of a float"
    apart = max(float((alike[name] - off[name]).detach().abs().max()) for name in off)
    first = LocalModels().decoder(start["policy"]).weights()
    assert apart < 1e-3 * max(float((off[name] - first[name]).detach().abs().max()) for name in off)


def test_weights_are_cut_at_the_cap_and_stay_finite():
    log_ratios, units = torch.tensor([0.5, 1.0, -1.0, 500.0]), torch.tensor([0, 0, 1, 2])
    weights, cut = weights_of(log_ratios, units, "token", 2.0)
    assert weights.tolist() == pytest.approx([math.exp(0.5), 2.0, math.exp(-1.0), 2.0])
    assert cut.tolist() == [False, True, False, True]
    weights, cut = weights_of(log_ratios, units, "sequence", 2.0)
    assert weights.tolist() == pytest.approx([2.0, 2.0, math.exp(-1.0), 2.0])
    assert cut.tolist() == [True, True, False, True]
