"""Losses from comparisons and judgements of whole answers.

Sources: DPO, Rafailov et al. 2023; IPO, Azar et al. 2023 (the margin is taken per
token, as its authors confirmed for TRL); KTO, Ethayarajh et al. 2024; the
Bradley–Terry reward model as in InstructGPT (Ouyang et al. 2022), with the
centring term of Eisenstein et al. 2023, and DeepSpeed-Chat's token-wise variant.
Values and gradients equal TRL 1.16's (tests/test_training_oracle.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor


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


def bradley_terry(
    chosen: Tensor, rejected: Tensor, *, margin: Tensor | float = 0.0, centring: float = 0.0
) -> Tensor:
    """−log σ(r_w − r_l − margin) + centring · (r_w + r_l)² of each pair, (P,).

    Args:
        centring: weight of the term that keeps the scores around 0, which a comparison leaves open.
    """
    loss = -F.logsigmoid(chosen - rejected - margin)
    return loss + centring * (chosen + rejected).square() if centring else loss


def first_difference(chosen: Sequence[int], rejected: Sequence[int]) -> int:
    """Index of the first id in which two answers differ; DeepSpeed-Chat compares scores from there on."""
    for index, (chosen_id, rejected_id) in enumerate(zip(chosen, rejected, strict=False)):
        if chosen_id != rejected_id:
            return index
    return min(len(chosen), len(rejected))
