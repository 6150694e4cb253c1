"""Returns, advantages and losses where a value head says what was to be expected.

GAE is Schulman et al. 2016; the clipped value loss is that of Schulman et al. 2017
as PPO's reference code has it.  A *decision* here is whatever has one value: a
token for PPO on text, a step for candidate-scoring policies.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def discounted(rewards: Sequence[float], gamma: float) -> list[float]:
    """Return from each decision on: r_t + γ r_{t+1} + γ² r_{t+2} + …"""
    total, returns = 0.0, []
    for reward in reversed(rewards):
        total = reward + gamma * total
        returns.append(total)
    return returns[::-1]


def gae(
    rewards: Sequence[float],
    values: Sequence[float],
    *,
    gamma: float = 1.0,
    lam: float = 0.95,
    last_value: float = 0.0,
) -> tuple[list[float], list[float]]:
    """Generalised advantages and the returns that the value head is trained on, of one episode.

    Args:
        rewards: (T,) of each decision.
        values: (T,) expected before each decision.
        gamma: discount.
        lam: λ; 1 gives the Monte-Carlo return minus the value, 0 the one-step TD error.
        last_value: what was to be expected after the last decision: 0 where the episode ended,
            the value head's estimate where it was cut off by a limit.

    Returns:
        (T,) advantages Â, and (T,) returns Â + V.
    """
    ahead, running, advantages = last_value, 0.0, []
    for reward, value in zip(reversed(rewards), reversed(values), strict=True):
        running = reward + gamma * ahead - value + gamma * lam * running
        advantages.append(running)
        ahead = value
    advantages.reverse()
    return advantages, [advantage + value for advantage, value in zip(advantages, values, strict=True)]


def whiten(values: Tensor, epsilon: float = 1e-8) -> Tensor:
    """Mean 0 and deviation 1 over all of (N,); a single value or a constant becomes 0."""
    centred = values - values.mean()
    return centred / (centred.square().mean().sqrt() + epsilon)


def value_loss(values: Tensor, old: Tensor, returns: Tensor, *, clip: float | None = 0.2) -> Tensor:
    """½ max((V − R)², (clip(V, V_old ± ε) − R)²) of each decision, (N,); unclipped if `clip` is None."""
    free = (values - returns).square()
    if clip is None:
        return 0.5 * free
    near = old + (values - old).clamp(-clip, clip)
    return 0.5 * torch.maximum(free, (near - returns).square())
