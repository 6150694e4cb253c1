"""KTO, WebRL, GLAM and PPO's pieces against references written down from their papers' formulas.

Nothing of a method's own is used on the reference's side.  Values and gradients agree to 1e-6, and where a whole
float32 network is between to 1e-6 and 1e-5 of a gradient's size: the reference is transformers' forward in float64.
"""

import copy
import math
import random

import numpy as np
import pytest
import torch

from whet.learn.optimizers.candidates import ChoiceLoss
from whet.learn.optimizers.webrl import WebRL, WebRLOptions, phase_loss
from whet.learn.training.batch import by_unit, parts
from whet.learn.training.choice import sequences_of
from whet.learn.training.huggingface import CausalLM
from whet.learn.training.losses import clipped, gae, kto, kto_divergence, value_loss
from whet.learn.training.model import ModelOptions, build, to_transformers
from whet.learn.training.network import ScalarHead

SHAPE = ModelOptions(hidden=32, layers=2, heads=4, kv_heads=2, ffn=48, max_length=64)
WORDS = 23


def drawn(count, seed, spread=2.0):
    return np.random.default_rng(seed).normal(0.0, spread, count)


def with_gradient(loss, values):
    """A loss at float64 values and its gradient there."""
    tensor = torch.tensor(values, dtype=torch.float64, requires_grad=True)
    total = loss(tensor)
    total.backward()
    return float(total.detach()), tensor.grad.numpy()


def test_kto_is_the_papers_value_function():
    """Ethayarajh et al. 2024, equation 8: λ_y − v(x, y), v = λ_D σ(β(r − z₀)) or λ_U σ(β(z₀ − r))."""
    ratio, crossed = drawn(12, 0), drawn(12, 1, 0.5) + 0.4
    desirable = np.arange(12) % 3 == 0
    beta, good, bad = 0.3, 1.5, 0.7
    point = max(0.0, crossed.mean())
    assert float(kto_divergence(torch.tensor(crossed))) == pytest.approx(point, rel=1e-6)
    assert float(kto_divergence(torch.tensor(-np.abs(crossed)))) == 0.0
    sign, weight = np.where(desirable, 1.0, -1.0), np.where(desirable, good, bad)
    kept = 1.0 / (1.0 + np.exp(-beta * sign * (ratio - point)))
    value, gradient = with_gradient(
        lambda r: kto(r, torch.tensor(desirable), torch.tensor(point), beta=beta, weights=(good, bad)).mean(),
        ratio,
    )
    assert value == pytest.approx((weight * (1.0 - kept)).mean(), rel=1e-6)
    np.testing.assert_allclose(gradient, -weight * sign * beta * kept * (1 - kept) / 12, rtol=1e-6)


def test_webrl_is_the_papers_regression():
    """Qi et al. 2024, equation 6: E[(β log π/π_ref − A)²]."""
    ratio, advantage = drawn(9, 2), drawn(9, 3)
    options = WebRLOptions(beta=0.7)
    value, gradient = with_gradient(lambda r: phase_loss(r, torch.tensor(advantage), options).mean(), ratio)
    residual = 0.7 * ratio - advantage
    assert value == pytest.approx((residual**2).mean(), rel=1e-6)
    np.testing.assert_allclose(gradient, 2 * 0.7 * residual / 9, rtol=1e-6)


def test_webrls_released_loss_is_the_huber_of_what_was_better_than_expected():
    """The released code: target 1, β = min(1, 1/|h|) without a gradient, Huber at 1, the others masked."""
    ratio, advantage = drawn(40, 4), drawn(40, 5)
    options = WebRLOptions(loss="released")
    value, gradient = with_gradient(lambda r: phase_loss(r, torch.tensor(advantage), options).sum(), ratio)
    losses, slopes = [], []
    for h, a in zip(ratio, advantage, strict=True):
        beta = min(1.0, 1.0 / max(abs(h), 1e-6))
        away = beta * h - 1.0
        inside = abs(away) < 1.0
        losses.append((0.5 * away**2 if inside else abs(away) - 0.5) if a > 0 else 0.0)
        slopes.append(beta * (away if inside else math.copysign(1.0, away)) if a > 0 else 0.0)
    assert value == pytest.approx(sum(losses), rel=1e-6)
    np.testing.assert_allclose(gradient, slopes, rtol=1e-6)
    assert 0 < sum(slope != 0 for slope in slopes) < 40


def test_webrls_advantage_is_the_papers_mixture():
    """Equation 9: A = λ (r + V(s′) − V(s)) + (1 − λ)(r_T − V(s)), tool steps' rewards with the call before."""
    rewards, values = [0.0, 0.25, 0.0, 0.5], {0: 0.3, 2: 0.6, 3: 0.9}
    found = WebRL(WebRLOptions(lam=0.4))._advantages(rewards, values)
    assert found == pytest.approx(
        {
            0: 0.4 * (0.25 + 0.6 - 0.3) + 0.6 * (0.75 - 0.3),
            2: 0.4 * (0.0 + 0.9 - 0.6) + 0.6 * (0.75 - 0.6),
            3: 0.4 * (0.5 - 0.9) + 0.6 * (0.75 - 0.9),
        },
        rel=1e-6,
    )


def test_the_pieces_of_ppo_are_the_papers_in_float64():
    rng = np.random.default_rng(0)
    rewards, values = rng.normal(size=9), rng.normal(size=9)
    gains, returns = gae(rewards, values, gamma=0.9, lam=0.8, last_value=0.7)
    errors = rewards + 0.9 * np.append(values[1:], 0.7) - values
    expected = [sum((0.9 * 0.8) ** k * e for k, e in enumerate(errors[t:])) for t in range(9)]
    np.testing.assert_allclose(gains, expected, rtol=1e-6)
    np.testing.assert_allclose(returns, expected + values, rtol=1e-6)

    change, advantage = rng.normal(0.0, 0.4, 40), rng.normal(size=40)
    now = torch.tensor(change, requires_grad=True)
    losses, held = clipped(now, torch.zeros(40).double(), torch.tensor(advantage), low=0.2, high=0.2)
    losses.sum().backward()
    ratio = np.exp(change)
    # Constant, and so without a gradient, once the ratio has gone where the advantage wanted it.
    beyond = ((advantage > 0) & (ratio > 1.2)) | ((advantage < 0) & (ratio < 0.8))
    bound = np.where(advantage > 0, 1.2, 0.8)
    np.testing.assert_allclose(losses.detach(), -np.where(beyond, bound, ratio) * advantage, rtol=1e-6)
    np.testing.assert_allclose(now.grad, np.where(beyond, 0.0, -ratio * advantage), rtol=1e-6)
    assert held.tolist() == beyond.tolist()
    assert 0 < beyond.sum() < 40

    moved, before, target = rng.normal(0.0, 0.4, 40), np.zeros(40), rng.normal(size=40)
    value = torch.tensor(moved, requires_grad=True)
    of_value = value_loss(value, torch.tensor(before), torch.tensor(target), clip=0.2)
    of_value.sum().backward()
    bounded = np.clip(moved, -0.2, 0.2)
    worse = (bounded - target) ** 2 > (moved - target) ** 2
    np.testing.assert_allclose(
        of_value.detach(), 0.5 * np.where(worse, bounded - target, moved - target) ** 2, rtol=1e-6
    )
    np.testing.assert_allclose(value.grad, np.where(worse, 0.0, moved - target), rtol=1e-6)
    assert 0 < worse.sum() < 40


def decisions(seed=0):
    """Prompts with their admissible actions, and what PPO keeps of each decision."""
    rng = random.Random(seed)

    def ids(low, high):
        return [rng.randrange(4, WORDS) for _ in range(rng.randint(low, high))]

    return [
        {
            "prompt": ids(3, 9),
            "actions": [ids(1, 4) for _ in range(rng.randint(2, 5))],
            "old": rng.uniform(-2.0, -0.3),
            "advantage": rng.gauss(0, 1),
            "value": rng.gauss(0, 1),
            "return": rng.gauss(0, 1),
        }
        for _ in range(8)
    ]


def glam_reference(model, head, rows, *, normalised):
    """Carta et al. 2023: π(a|p) ∝ exp Σ log p(tokens of a | p); PPO's clip, ½ (V − R)² clipped, and entropy."""
    total = 0.0
    for number, row in enumerate(rows):
        scores = []
        for action in row["actions"]:
            out = model(torch.tensor([[*row["prompt"], *action]]), output_hidden_states=True)
            begin = len(row["prompt"]) - 1
            logs = torch.log_softmax(out.logits[0, begin : begin + len(action)], dim=-1)
            own = logs[torch.arange(len(action)), torch.tensor(action)]
            scores.append(own.mean() if normalised else own.sum())
            state = out.hidden_states[-1][0, begin]
        choices = torch.log_softmax(torch.stack(scores), dim=0)
        chosen = number % len(scores)
        ratio = (choices[chosen] - row["old"]).exp()
        policy = -torch.minimum(ratio * row["advantage"], ratio.clamp(0.8, 1.2) * row["advantage"])
        value = head(state)
        near = row["value"] + (value - row["value"]).clamp(-0.2, 0.2)
        of_value = 0.5 * torch.maximum((value - row["return"]) ** 2, (near - row["return"]) ** 2)
        entropy = -(choices.exp() * choices).sum()
        total = total + policy + 0.5 * of_value - 0.01 * entropy
    return total / len(rows)


@pytest.mark.parametrize("normalised", [False, True])
def test_glam_is_ppo_over_the_softmax_of_the_actions(normalised):
    rows = decisions()
    network = CausalLM(to_transformers(build(SHAPE, WORDS, 0)))
    head = ScalarHead(SHAPE.hidden, 8, seed=1)
    with torch.no_grad():
        head.out.weight.normal_(0.0, 0.3, generator=torch.Generator().manual_seed(2))
    model, other_head = copy.deepcopy(network.model), copy.deepcopy(head).double()
    # The packed attention of the copy knows no layout here, and computes as transformers' own.
    model = model.double()

    sequences = []
    for unit, row in enumerate(rows):
        own = sequences_of(row["prompt"], row["actions"], unit)
        for sequence in own:
            fixed = {name: row[name] for name in ("old", "advantage", "value", "return")}
            fixed["chosen"] = float(unit % len(row["actions"]))
            sequence.extra |= {name: [value] * len(sequence.targets) for name, value in fixed.items()}
        sequences += own
    cut = parts(sequences, 60, block=by_unit)
    assert len(cut) > 1
    loss = ChoiceLoss(
        parts=cut,
        clip_high=0.2,
        entropy_bonus=0.01,
        head=head,
        value_coefficient=0.5,
        value_clip=0.2,
        normalised=normalised,
    )
    total = 0.0
    for part in cut:
        share = loss.joint(network, part)
        share.backward()
        total += float(share.detach())
    expected = glam_reference(model, other_head, rows, normalised=normalised)
    expected.backward()
    assert total == pytest.approx(float(expected.detach()), rel=1e-6, abs=1e-6)
    assert 0 < loss.metrics["clip_share"] < 1
    pairs = [*zip(network.model.parameters(), model.parameters(), strict=True)]
    pairs += zip(head.parameters(), other_head.parameters(), strict=True)
    for mine, other in pairs:
        size = float(other.grad.abs().max())
        assert float((mine.grad.double() - other.grad).abs().max()) <= 1e-6 + 1e-5 * size
