"""Truncated importance sampling: what a sampler in another engine and the trainer disagree on.

The same weights give other log-probabilities in another engine (other kernels, other precision), so a policy gradient
on its samples is off policy from the first step.  Yao et al. 2025 ("Your efficient RL framework secretly brings you
off-policy RL training") weight each token's loss by min(π_trainer / π_sampler, C), both at the weights before the
update, and take the clipped ratio between the trainer's own log-probabilities.  Where tokens were sampled some updates
ago the same weight corrects for that too, as far as C reaches.

Different from the paper, the weight multiplies the advantage, which is the same where weights are not negative: the
clipped objective is homogeneous in it.  The terms of KL, entropy and value stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from .batch import Merged, parts
from .learner import Learner

Level = Literal["token", "sequence"]
_LARGEST = 20.0
"""Nats up to which a log-ratio is raised; e²⁰ is beyond every cap, and e⁸⁹ is infinite."""


def weights_of(log_ratios: Tensor, units: Tensor, level: Level, cap: float) -> tuple[Tensor, Tensor]:
    """(N,) weights, and which of them were cut.

    Args:
        log_ratios: (N,) log π_trainer − log π_sampler of each chosen token.
        units: (N,) its trajectory; at level `sequence` its tokens have the product of their ratios in common.
    """
    if level == "sequence":
        _, places = torch.unique(units, return_inverse=True)
        sums = torch.zeros(int(places.max()) + 1, dtype=log_ratios.dtype).index_add(0, places, log_ratios)
        log_ratios = sums[places]
    ratios = log_ratios.clamp(max=_LARGEST).exp()
    return ratios.clamp(max=cap), ratios > cap


@torch.no_grad()
def corrected(
    learner: Learner,
    sequences: Sequence[Merged],
    *,
    level: Level,
    cap: float,
    temperature: float,
    part_tokens: int,
) -> tuple[list[Merged], dict[str, float]]:
    """The sequences with the trainer's log-probabilities and weighted advantages, and the mismatch.

    mismatch (mean |Δ log p| in nats a token), mismatch_kl (k3 estimate of KL(sampler ‖ trainer)), mismatch_max,
    truncated (share of weights at the cap).
    """
    numbered, total = [], 0
    for sequence in sequences:
        rows = [float(total + place) for place in range(len(sequence.targets))]
        numbered.append(replace(sequence, extra={"row": rows}))
        total += len(rows)
    own, units, sampled = torch.zeros(total), torch.zeros(total, dtype=torch.long), torch.zeros(total)
    for part in parts(numbered, part_tokens):
        rows_of = part.extra["row"].long()
        own[rows_of] = learner.chosen(part, temperature).float().cpu()
        units[rows_of], sampled[rows_of] = part.units, part.logprobs
    apart = own - sampled
    weights, cut = weights_of(apart, units, level, cap)
    weighted, start = [], 0
    for sequence in sequences:
        end = start + len(sequence.targets)
        advantages = torch.tensor(sequence.advantages) * weights[start:end]
        weighted.append(replace(sequence, logprobs=own[start:end].tolist(), advantages=advantages.tolist()))
        start = end
    small = apart.clamp(max=_LARGEST).double()
    return weighted, {
        "mismatch": float(apart.abs().mean()),
        "mismatch_kl": float((small.exp() - 1 - small).mean()),
        "mismatch_max": float(apart.abs().max()),
        "truncated": float(cut.float().mean()),
    }
