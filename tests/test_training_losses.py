"""Advantages, losses and the optimizer against what can be computed by hand or enumerated."""

import itertools
import math

import pytest
import torch

from whet.errors import InputError
from whet.learn.training.losses import advantages, clipped, exact_kl, k1, k3, token_weights
from whet.learn.training.model import ModelOptions, build
from whet.learn.training.optim import MuonAdamW, OptimOptions, orthogonalise

ARMS = torch.tensor([0.0, 0.3, 1.0])


def expected_gradient(theta, size, **options):
    """Mean and total variance of the estimator over every possible group of `size` pulls."""
    mean, square = torch.zeros_like(theta), 0.0
    for pulls in itertools.product(range(len(theta)), repeat=size):
        chosen = torch.tensor(pulls)
        free = theta.clone().requires_grad_()
        logprobs = torch.log_softmax(free, dim=0)[chosen]
        advantage = torch.tensor(advantages([float(ARMS[arm]) for arm in pulls], **options))
        loss, _ = clipped(logprobs, logprobs.detach(), advantage)
        (gradient,) = torch.autograd.grad(-loss.mean(), free)
        chance = logprobs.detach().sum().exp()
        mean += chance * gradient
        square += float(chance * gradient.square().sum())
    return mean, square - float(mean.square().sum())


def exact_gradient(theta):
    free = theta.clone().requires_grad_()
    (gradient,) = torch.autograd.grad((torch.softmax(free, dim=0) * ARMS).sum(), free)
    return gradient


@pytest.mark.parametrize("size", [2, 5])
def test_the_group_mean_shrinks_the_gradient_by_g_minus_1_over_g_and_leave_one_out_does_not(size):
    theta = torch.tensor([0.5, 0.0, -0.7])
    exact = exact_gradient(theta)
    grpo, _ = expected_gradient(theta, size, baseline="group")
    rloo, _ = expected_gradient(theta, size, baseline="leave_one_out")
    reinforce, _ = expected_gradient(theta, size, baseline="none")
    torch.testing.assert_close(grpo, exact * (size - 1) / size, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(rloo, exact, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(reinforce, exact, atol=1e-6, rtol=1e-5)


def test_dividing_by_the_deviation_keeps_the_direction_nearly_and_not_the_scale():
    theta = torch.tensor([0.5, 0.0, -0.7])
    exact = exact_gradient(theta)
    scaled, _ = expected_gradient(theta, 5, baseline="group", scale="group")
    assert torch.cosine_similarity(scaled, exact, dim=0) > 0.95
    assert scaled.norm() / exact.norm() > 1.3


def test_a_group_baseline_lowers_the_variance_at_equal_scale():
    theta = torch.tensor([0.5, 0.0, -0.7])

    def relative(**options):
        mean, variance = expected_gradient(theta, 5, **options)
        return variance / float(mean.square().sum())

    grpo, rloo = relative(baseline="group"), relative(baseline="leave_one_out")
    assert grpo == pytest.approx(rloo, rel=1e-4)
    assert grpo < 0.9 * relative(baseline="none")


def test_scaling_uses_the_sample_deviation():
    scaled = advantages([0.0, 1.0, 1.0, 0.0], scale="group")
    assert scaled == pytest.approx([value / (math.sqrt(1 / 3) + 1e-4) for value in (-0.5, 0.5, 0.5, -0.5)])


def test_missing_rewards_stay_out_of_the_statistics():
    assert advantages([1.0, None, 0.0]) == [0.5, None, -0.5]
    assert advantages([1.0, None]) == [None, None]
    assert advantages([1.0, None], baseline="none") == [1.0, None]
    for odd in (math.nan, math.inf):
        with pytest.raises(InputError, match="finite"):
            advantages([1.0, odd])


@pytest.mark.parametrize(
    ("advantage", "ratio", "flows"),
    [
        (1, 1.3, False),
        (-1, 0.7, False),
        (-1, 1.3, True),
        (1, 0.7, True),
        (1, 1.1, True),
        (1, 1.25, True),
        (-1, 0.9, True),
    ],
)
def test_the_clip_stops_the_gradient_only_where_the_ratio_has_gone_far_enough(advantage, ratio, flows):
    old = torch.tensor([-1.0])
    now = (old + math.log(ratio)).requires_grad_()
    loss, held_back = clipped(now, old, torch.tensor([float(advantage)]))
    (gradient,) = torch.autograd.grad(loss.sum(), now)
    assert bool(gradient != 0) is flows
    assert bool(held_back) is not flows
    if flows:
        assert float(gradient) == pytest.approx(-advantage * ratio, rel=1e-5)


def test_aggregations_weigh_tokens_as_they_say():
    units = torch.tensor([0, 1, 1, 1])  # one output of one token, one of three
    part, other = units, torch.tensor([2, 2])
    every = torch.cat((part, other))

    def weigh(name, **options):
        return [round(value, 6) for value in token_weights(part, name, all_units=every, **options).tolist()]

    assert weigh("grpo") == pytest.approx([1 / 3, 1 / 9, 1 / 9, 1 / 9], abs=1e-6)
    assert weigh("dapo") == pytest.approx([1 / 6] * 4, abs=1e-6)
    assert weigh("bnpo") == pytest.approx([1 / 4] * 4, abs=1e-6)
    assert weigh("dr_grpo", completion_length=10) == pytest.approx([1 / 30] * 4, abs=1e-6)
    with pytest.raises(InputError, match="completion_length"):
        weigh("dr_grpo")
    with pytest.raises(InputError, match="no aggregation"):
        weigh("mean")


def test_divergences_agree_with_the_exact_one():
    generator = torch.Generator().manual_seed(0)
    policy = torch.log_softmax(torch.randn(7, generator=generator), dim=0)
    reference = torch.log_softmax(torch.randn(7, generator=generator), dim=0)
    exact = float(exact_kl(policy, reference))
    for estimate in (k1, k3):  # unbiased: the mean over the policy's own draws
        assert float((policy.exp() * estimate(policy, reference)).sum()) == pytest.approx(exact, rel=1e-5)
    assert (k3(policy, reference) >= 0).all()
    assert (k1(policy, reference) < 0).any()
    assert float(exact_kl(policy, policy)) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("shape", [(2, 40, 16), (3, 16, 16), (1, 8, 30)])
def test_orthogonalising_brings_singular_values_near_one(shape):
    matrices = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    values = torch.linalg.svdvals(orthogonalise(matrices))
    assert values.min() > 0.5
    assert values.max() < 1.3
    left, _, right = torch.linalg.svd(matrices, full_matrices=False)
    nearest = (left @ right).flatten(1)
    assert (torch.cosine_similarity(orthogonalise(matrices).flatten(1), nearest) > 0.97).all()


def test_the_rest_is_updated_as_torchs_adamw_does():
    decoder = build(ModelOptions(hidden=16, layers=1, heads=2, kv_heads=1, ffn=16), 9, 0)
    name = "model.embed_tokens.weight"
    oracle = torch.nn.Parameter(decoder.weight(name).detach().clone())
    theirs = torch.optim.AdamW([oracle], lr=1e-2, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    ours = MuonAdamW(decoder.weights(), OptimOptions(learning_rate=1e-2, weight_decay=0.1))
    generator = torch.Generator().manual_seed(0)
    for _ in range(5):
        gradient = torch.randn(oracle.shape, generator=generator)
        decoder.weight(name).grad, oracle.grad = gradient.clone(), gradient.clone()
        ours.step(1e-2, 0.0)
        theirs.step()
    torch.testing.assert_close(decoder.weight(name), oracle, atol=1e-6, rtol=1e-5)


def test_long_gradients_are_scaled_down():
    decoder = build(ModelOptions(hidden=16, layers=1, heads=2, kv_heads=1, ffn=16), 9, 0)
    ours = MuonAdamW(decoder.weights(), OptimOptions(max_norm=2.0))
    for parameter in decoder.parameters():
        parameter.grad = torch.ones_like(parameter)
    assert ours.gradient_norm() == pytest.approx(math.sqrt(decoder.count()), rel=1e-5)
    ours.step(1e-3, ours.gradient_norm())
    first = ours.state()["model.norm.weight/first"]  # (1 − β₁) · gradient
    assert float(first[0]) == pytest.approx(0.1 * 2.0 / math.sqrt(decoder.count()), rel=1e-4)


@pytest.mark.parametrize(("schedule", "middle"), [("constant", 1.0), ("linear", 0.55), ("cosine", 0.55)])
def test_the_learning_rate_follows_its_schedule(schedule, middle):
    options = OptimOptions(learning_rate=2.0, schedule=schedule, final_share=0.1, warmup=4)
    assert options.rate(0, 104) == pytest.approx(0.5)
    assert options.rate(4, 104) == pytest.approx(2.0)
    assert options.rate(54, 104) == pytest.approx(2.0 * middle)
    assert options.rate(500, 104) == pytest.approx(2.0 if schedule == "constant" else 0.2)


def test_optimizer_state_of_another_model_is_refused():
    small, large = (
        build(ModelOptions(hidden=16, layers=n, heads=2, kv_heads=1, ffn=16), 9, 0) for n in (1, 2)
    )
    with pytest.raises(InputError, match="another model"):
        MuonAdamW(small.weights(), OptimOptions()).restore(
            MuonAdamW(large.weights(), OptimOptions()).state(), 3
        )
