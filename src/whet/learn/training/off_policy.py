"""A check that tokens were sampled from the weights that are about to learn from them.

A policy gradient learns from its own tokens; those of other weights pull it to where it never was.  A wrong
folder after `--model`, a server that did not take up new weights and a temperature that differs all look
alike in the losses, and not in the log-probabilities: those that were recorded are compared with the
model's own before the first update.  Rounding (bfloat16 on a server, float32 here) moves them by a few
hundredths of a nat a token, one update of a small model by less than that, other weights by tenths.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...errors import TrainingRefused
from ...types import Group, Trajectory
from .batch import Merged, is_logprob, merge, parts
from .learner import Learner

TOLERANCE = 0.1
"""Mean |Δ log p| in nats a token up to which a difference is taken for rounding and a few updates."""
TRAJECTORIES = 256
"""Trajectories that are looked at."""


@dataclass(frozen=True, slots=True)
class Gap:
    """The distance of a recording from a model."""

    nats: float
    """Mean |Δ log p| a token."""
    effective: float
    """Effective sample size of the tokens' importance ratios, as a share of their number: 1 if all are 1."""
    apart: int
    """Trajectories further apart than TOLERANCE."""
    trajectories: int

    @property
    def same(self) -> bool:
        """True if the recording may be the model's own."""
        return self.nats <= TOLERANCE

    @property
    def metrics(self) -> dict[str, float]:
        """For the metrics of a round."""
        return {"gap": self.nats, "effective_share": self.effective}


def tags(trajectory: Trajectory) -> set[str]:
    """Policy versions that its calls were recorded under; empty text where a call does not say."""
    calls = [step.tokens for step in trajectory.steps if step.tokens is not None and step.tokens.output_ids]
    return {tokens.policy_version or "" for tokens in calls}


def sequences(groups: Sequence[Group]) -> list[Merged]:
    """Of the first trajectories whose log-probabilities were recorded."""
    compared: list[Merged] = []
    unit = 0
    for trajectory in (trajectory for group in groups for trajectory in group.trajectories):
        merged = [sequence for sequence in merge(trajectory, unit)[0] if sequence.targets]
        # Trajectories without log-probabilities cannot be compared; `credit` refuses them by name.
        if merged and all(map(is_logprob, (value for sequence in merged for value in sequence.logprobs))):
            compared += merged
            unit += 1
            if unit == TRAJECTORIES:
                break
    return compared


@torch.no_grad()
def gap(
    learner: Learner, compared: Sequence[Merged], *, temperature: float, part_tokens: int | None
) -> Gap | None:
    """The gap of these sequences; None of none."""
    rows = [
        (part.units, learner.chosen(part, temperature) - part.logprobs)
        for part in parts(compared, part_tokens)
    ]
    if not rows:
        return None
    units, differences = (torch.cat(column) for column in zip(*rows, strict=True))
    return of(units, differences)


def of(units: Tensor, differences: Tensor) -> Gap:
    """The gap of log-ratios (now − recorded), (N,), of decisions in the trajectories `units`, (N,)."""
    named, places = torch.unique(units, return_inverse=True)
    sums = torch.zeros(len(named)).index_add(0, places, differences.abs().float())
    counts = torch.zeros(len(named)).index_add(0, places, torch.ones(len(units)))
    # Relative to the largest, so that none overflows: the share does not depend on it.
    ratios = (differences.double() - differences.double().max()).exp()
    effective = float(ratios.sum().square() / (len(ratios) * ratios.square().sum()))
    return Gap(
        nats=float(differences.abs().double().mean()),
        effective=effective,
        apart=int((sums / counts > TOLERANCE).sum()),
        trajectories=len(named),
    )


def require_same(gap: Gap, groups: Sequence[Group], policy_version: int) -> None:
    """Refuse tokens of other weights.

    Raises:
        TrainingRefused: the gap is beyond TOLERANCE.
    """
    if gap.same:
        return
    every = [trajectory for group in groups for trajectory in group.trajectories]
    recorded = sorted(tag for tag in set().union(*map(tags, every)) if tag)
    under = f" under policy version {', '.join(recorded[:3])}" if recorded else ""
    raise TrainingRefused(
        f"these tokens were not sampled from these weights: in {gap.apart} of {gap.trajectories} trajectories "
        f"the recorded log-probabilities are apart from the model's own, by {gap.nats:.3g} nats a token on "
        f"average; {TOLERANCE:g} is taken for rounding. They were recorded{under}, and the model is at policy "
        f"version {policy_version}. Give the weights that sampled them as the model, or the temperature that they "
        "were sampled at; or sample again; or clone the good ones (SFT). With off_policy=True (--off-policy) they "
        "are learned from all the same, corrected by clipped importance ratios, as far as those reach."
    )
