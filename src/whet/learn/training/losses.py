"""The losses of weight methods: pure functions of tensors, no model and no data.

From rewards: every policy-gradient variant is one sum, Σ wᵢ · lᵢ over the tokens that the policy
chose.  The variants differ in the weights (`token_weights`), in the advantages (`advantages`) and in
what the probability ratio is of (`log_ratios`), so no loss has a flag for another's.  From comparisons
and judgements of whole answers: DPO, IPO, KTO and Bradley–Terry.  With a value head: returns,
generalised advantages and the value loss of a *decision*, which is whatever has one value: a token for
PPO on text, a step for candidate-scoring policies.

Sources: GRPO, Shao et al. 2024 (DeepSeekMath); Dr. GRPO, Liu et al. 2025; DAPO, Yu et al. 2025
(clip-higher, token-level sum); GSPO, Zheng et al. 2025; RLOO, Ahmadian et al. 2024; DPO, Rafailov et al.
2023; IPO, Azar et al. 2023 (the margin is taken per token, as its authors confirmed for TRL); KTO,
Ethayarajh et al. 2024; the Bradley–Terry reward model as in InstructGPT (Ouyang et al. 2022), with the
centring term of Eisenstein et al. 2023; GAE, Schulman et al. 2016; the clipped value loss of Schulman et
al. 2017 as PPO's reference code has it.  Aggregations are named and defined as in TRL 1.16, and values
and gradients equal its (tests/test_training_oracle.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ...errors import InputError
from .options import Aggregation, Baseline, Ratio, Scale


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
        # `unique` is sorted, as searchsorted needs; a part's units are some of the step's.
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


def unit_sums(values: Tensor, units: Tensor, count: int) -> Tensor:
    """(count,) sums of (N,) values by their unit; 0 for a unit without any."""
    return values.new_zeros(count).index_add(0, units, values)


def dpo(chosen: Tensor, rejected: Tensor, *, beta: float = 0.1, label_smoothing: float = 0.0) -> Tensor:
    """−log σ(β (h_w − h_l)) of each pair, (P,).

    Args:
        chosen: (P,) log π(y_w) − log π_ref(y_w), summed over the answer's tokens.
        rejected: (P,) the same of y_l.
        label_smoothing: chance that a label is wrong (conservative DPO, Mitchell 2023).
    """
    margin = beta * (chosen - rejected)
    if not label_smoothing:
        return -F.logsigmoid(margin)
    return -(1.0 - label_smoothing) * F.logsigmoid(margin) - label_smoothing * F.logsigmoid(-margin)


def ipo(chosen: Tensor, rejected: Tensor, lengths: tuple[Tensor, Tensor], *, beta: float = 0.1) -> Tensor:
    """(h_w/|y_w| − h_l/|y_l| − 1/(2β))² of each pair, (P,): the margin has a target and stops there.

    Args:
        lengths: (P,) numbers of tokens of the chosen and of the rejected answers.
    """
    margin = chosen / lengths[0].clamp(min=1) - rejected / lengths[1].clamp(min=1)
    return (margin - 1.0 / (2.0 * beta)).square()


def kto_divergence(mismatched: Tensor) -> Tensor:
    """KTO's reference point z₀: mean log π/π_ref of answers to *other* prompts, at least 0, no gradient."""
    return mismatched.detach().mean().clamp(min=0.0)


def kto(
    log_ratio: Tensor,
    desirable: Tensor,
    reference_point: Tensor,
    *,
    beta: float = 0.1,
    weights: tuple[float, float] = (1.0, 1.0),
) -> Tensor:
    """λ (1 − σ(±β (h − z₀))) of each answer, (B,); plus for desirable ones.

    Args:
        log_ratio: (B,) log π(y) − log π_ref(y), summed over tokens.
        desirable: (B,) bool.
        reference_point: scalar from `kto_divergence`.
        weights: λ of desirable and of undesirable answers; balance them where one kind is rare.
    """
    sign = torch.where(desirable, 1.0, -1.0)
    weight = torch.where(desirable, weights[0], weights[1])
    return weight * (1.0 - torch.sigmoid(beta * sign * (log_ratio - reference_point)))


def bradley_terry(chosen: Tensor, rejected: Tensor, *, centring: float = 0.0) -> Tensor:
    """−log σ(r_w − r_l) + centring · (r_w + r_l)² of each pair, (P,).

    Args:
        centring: weight of the term that keeps the scores around 0, which a comparison leaves open.
    """
    loss = -F.logsigmoid(chosen - rejected)
    return loss + centring * (chosen + rejected).square() if centring else loss


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


def whiten(values: Tensor) -> Tensor:
    """Mean 0 and deviation 1 over all of (N,); a single value or a constant becomes 0."""
    centred = values - values.mean()
    return centred / (centred.square().mean().sqrt() + 1e-8)


def value_loss(values: Tensor, old: Tensor, returns: Tensor, *, clip: float | None = 0.2) -> Tensor:
    """½ max((V − R)², (clip(V, V_old ± ε) − R)²) of each decision, (N,); unclipped if `clip` is None."""
    free = (values - returns).square()
    if clip is None:
        return 0.5 * free
    near = old + (values - old).clamp(-clip, clip)
    return 0.5 * torch.maximum(free, (near - returns).square())
