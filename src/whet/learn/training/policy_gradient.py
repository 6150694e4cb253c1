"""The clipped policy-gradient loss of one optimizer step, and what it measures on the way.

Sum over chosen tokens of weight · (clipped objective + β · KL) − entropy bonus ·
mean entropy.  `losses.py` has the pieces; this adds them up over the parts of a
step and keeps the sums from which the metrics are made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from .batch import MicroBatch
from .losses import clipped, k1, k3, log_ratios, token_weights
from .network import Network, predict
from .options import Aggregation, Ratio
from .predictions import Predictions

EXACT_VOCABULARY = 32_768
"""Up to so many ids the divergence is exact; beyond, it is estimated by k3."""


@dataclass(kw_only=True)
class PolicyLoss:
    """A `Loss` for `Learner.update`, made anew for every optimizer step."""

    parts: Sequence[MicroBatch]
    """All parts of the step."""
    aggregation: Aggregation = "dapo"
    clip_low: float = 0.2
    clip_high: float = 0.28
    entropy_bonus: float = 0.0
    kl_coefficient: float = 0.0
    reference: Network | None = None
    """The network that the KL is to; None neither penalises nor measures it."""
    temperature: float = 1.0
    completion_length: int | None = None
    ratio: Ratio = "token"
    """The unit of the importance ratio; anything but `token` needs each trajectory in one part."""
    sums: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._units = torch.cat([part.units for part in self.parts])

    def __call__(self, predictions: Predictions, part: MicroBatch) -> Tensor:
        """The part's share of the loss, from the policy's predictions as it is now."""
        spread = predictions.entropy  # first: it comes with `chosen` in one pass
        chosen = predictions.chosen
        before = part.logprobs
        if self.ratio != "token":
            # Not detached: in the chosen − before of `clipped` chosen cancels, and what is left is the ratio
            # of the whole trajectory, with its gradient in every token.
            before = chosen - log_ratios(chosen, part.logprobs, part.units, self.ratio)
        losses, held_back = clipped(chosen, before, part.advantages, low=self.clip_low, high=self.clip_high)
        weights = token_weights(
            part.units, self.aggregation, all_units=self._units, completion_length=self.completion_length
        )
        if self.aggregation == "bnpo":
            # Parts are cut by memory: bnpo, alone of all, depends on how many there are.
            weights = weights / len(self.parts)
        if self.reference is not None:
            with torch.no_grad():
                there = predict(self.reference, part, self.temperature)
                reference = there.chosen
                small = predictions.output.vocabulary <= EXACT_VOCABULARY
                self._add("kl", predictions.divergence(there) if small else k3(chosen, reference))
            self._add("kl_k1", k1(chosen, reference))
            self._add("kl_k3", k3(chosen, reference))
            if self.kl_coefficient:
                # The estimate with a gradient; the exact divergence above is measured and never descended.
                losses = losses + self.kl_coefficient * k3(chosen, reference)
        self._add("entropy", spread)
        self._add("clip_share", held_back.float())
        self._add("off_policy", (chosen - part.logprobs).abs())
        loss = (losses * weights).sum()
        # Zero times a gradient would be computed all the same.
        return loss - self.entropy_bonus * spread.sum() / len(self._units) if self.entropy_bonus else loss

    def _add(self, name: str, values: Tensor) -> None:
        self.sums[name] = self.sums.get(name, 0.0) + float(values.detach().sum())

    @property
    def metrics(self) -> dict[str, float]:
        """Means per chosen token.

        entropy (nats), kl (nats; with its estimates kl_k1 and kl_k3), clip_share, off_policy (|Δ log p|).
        """
        return {name: value / len(self._units) for name, value in self.sums.items()}
