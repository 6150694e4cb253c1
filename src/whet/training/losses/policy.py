"""Policy-gradient losses and advantages, over packed targets.

Every variant here is one sum, Σ wᵢ · lᵢ over the tokens that the policy chose.
The variants differ in the weights (`token_weights`), in the advantages
(`advantages`) and in what the probability ratio is of (`log_ratios`), so no loss
has a flag for another's.

Sources: GRPO, Shao et al. 2024 (DeepSeekMath); Dr. GRPO, Liu et al. 2025; DAPO,
Yu et al. 2025 (clip-higher, token-level sum); GSPO, Zheng et al. 2025; RLOO,
Ahmadian et al. 2024; the aggregations are named and defined as in TRL 1.16.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ...errors import InputError
from ..options.variants import Aggregation, Baseline, Ratio, Scale


def advantages(
    rewards: Sequence[float | None],
    *,
    baseline: Baseline = "group",
    scale: Scale = "none",
    epsilon: float = 1e-4,
) -> list[float | None]:
    """Advantage of each trajectory of one group.

    Args:
        rewards: of one task; None where there is none (not scored, or the machine failed), which
            counts neither in the mean nor in the deviation.
        baseline: `group` subtracts the mean (GRPO); `leave_one_out` the mean of the others (RLOO),
            which is G/(G−1) times as much; `none` nothing (REINFORCE).
        scale: `group` divides by the standard deviation (ddof 1) plus `epsilon`, as the GRPO paper
            does; it over-weights very easy and very hard tasks.

    Returns:
        None for what has no reward, and for all of a group with fewer than two rewards unless
        `baseline` is `none`.

    Raises:
        InputError: a reward is NaN or infinite.
    """
    known_rewards = [reward for reward in rewards if reward is not None]
    if not all(math.isfinite(reward) for reward in known_rewards):
        raise InputError(f"rewards must be finite numbers, or None where there is none; got {list(rewards)}")
    count = len(known_rewards)
    if not count or (count < 2 and baseline != "none"):
        return [None] * len(rewards)
    mean = math.fsum(known_rewards) / count
    if baseline == "none":
        centred = [None if reward is None else reward for reward in rewards]
    else:
        factor = count / (count - 1) if baseline == "leave_one_out" else 1.0
        centred = [None if reward is None else (reward - mean) * factor for reward in rewards]
    if scale == "group" and count > 1:
        deviation = math.sqrt(math.fsum((reward - mean) ** 2 for reward in known_rewards) / (count - 1))
        return [None if value is None else value / (deviation + epsilon) for value in centred]
    return centred


def token_weights(
    units: Tensor, aggregation: Aggregation, *, all_units: Tensor, completion_length: int | None = None
) -> Tensor:
    """The weight of each token's loss, (N,).

    Args:
        units: (N,) trajectory of each token of this part.
        all_units: (M,) the same for the whole optimizer step, this part included.
        completion_length: the constant of `dr_grpo`.

    `grpo`: mean over trajectories of each one's token mean (long wrong answers are cheap).
    `dapo`: mean over the step's tokens. `dr_grpo`: sum over trajectories × a constant length.
    `bnpo`: mean over this part's tokens; the parts are averaged by the caller's count of them.

    Raises:
        InputError: `dr_grpo` without `completion_length`, or an unknown name.
    """
    if aggregation == "dapo":
        return torch.full(units.shape, 1.0 / len(all_units))
    if aggregation == "bnpo":
        return torch.full(units.shape, 1.0 / len(units))
    if aggregation == "dr_grpo":
        if not completion_length:
            raise InputError("aggregation dr_grpo needs completion_length, the longest output in tokens")
        return torch.full(units.shape, 1.0 / (len(torch.unique(all_units)) * completion_length))
    if aggregation == "grpo":
        unique, counts = torch.unique(all_units, return_counts=True)
        per_unit = counts[torch.searchsorted(unique, units)]
        weights: Tensor = 1.0 / (per_unit * len(unique))
        return weights
    raise InputError(f"{aggregation!r} is no aggregation; choose grpo, bnpo, dr_grpo or dapo")


def log_ratios(logprobs: Tensor, old: Tensor, units: Tensor, level: Ratio = "token") -> Tensor:
    """log π − log π_old of what the importance ratio is taken of, on every token of it, (N,).

    Args:
        units: (N,) trajectory of each token; all tokens of one must be here.
        level: `token` each by itself (GRPO, PPO); `sequence` the mean over the trajectory's tokens
            (GSPO); `trajectory` their sum, the whole of it being one action (RLOO).
    """
    token_ratios = logprobs - old
    if level == "token":
        return token_ratios
    unique, places = torch.unique(units, return_inverse=True)
    sums = token_ratios.new_zeros(len(unique)).index_add(0, places, token_ratios)
    if level == "sequence":
        sums = sums / torch.bincount(places, minlength=len(unique))
    return sums[places]


def clipped(
    logprobs: Tensor, old: Tensor, advantage: Tensor, *, low: float = 0.2, high: float = 0.28
) -> tuple[Tensor, Tensor]:
    """−min(ρA, clip(ρ, 1−low, 1+high)·A) per token, and which tokens the clip holds back, both (N,).

    Args:
        logprobs: (N,) of the chosen tokens now.
        old: (N,) of the same when sampled.
    """
    ratio = (logprobs - old).exp()
    free = ratio * advantage
    bound = ratio.clamp(1.0 - low, 1.0 + high) * advantage
    return -torch.minimum(free, bound), bound < free


def k1(logprobs: Tensor, reference: Tensor) -> Tensor:
    """log π − log π_ref of sampled tokens: an unbiased estimate of KL(π‖π_ref) that may be negative."""
    return logprobs - reference


def k3(logprobs: Tensor, reference: Tensor) -> Tensor:
    """exp(Δ) − Δ − 1 with Δ = log π_ref − log π: unbiased and never negative; noisier than k1 at large KL."""
    delta = reference - logprobs
    return delta.exp() - delta - 1.0


def exact_kl(logprobs: Tensor, reference: Tensor) -> Tensor:
    """KL(π‖π_ref) of (N, vocabulary) log-probabilities, (N,); affordable where the vocabulary is small."""
    return (logprobs.exp() * (logprobs - reference)).sum(dim=-1)
