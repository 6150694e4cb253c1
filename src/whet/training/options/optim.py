"""How weights are updated, whatever is learned."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from ...errors import InputError

Schedule = Literal["constant", "linear", "cosine"]


@dataclass(frozen=True, kw_only=True)
class OptimOptions:
    """How weights are updated."""

    learning_rate: float = 1e-3
    """Of the first step, for Muon and AdamW alike."""
    schedule: Schedule = "linear"
    """How the learning rate falls over the planned steps."""
    final_share: float = 0.1
    """Share of the learning rate left at the end."""
    warmup: int = 0
    """Steps over which the learning rate rises from 0."""
    muon: bool = True
    """Muon for the hidden matrices; False for AdamW everywhere, as pretrained weights were made with."""
    momentum: float = 0.95
    """Muon's; Nesterov."""
    betas: tuple[float, float] = (0.9, 0.95)
    """AdamW's."""
    weight_decay: float = 0.0
    """Decoupled, on matrices only."""
    max_norm: float = 1.0
    """Gradients longer than this are scaled down to it."""

    def __post_init__(self) -> None:
        if not (
            0 < self.learning_rate <= 1e6
            and self.max_norm > 0
            and 0 <= self.final_share <= 1
            and self.warmup >= 0
        ):
            raise InputError(
                f"learning_rate (at most 1e6) and max_norm must be above 0, final_share in [0, 1]; got {self}"
            )
        if self.schedule not in ("constant", "linear", "cosine"):
            raise InputError(f"{self.schedule!r} is no schedule; choose constant, linear or cosine")

    def rate(self, step: int, steps: int) -> float:
        """Learning rate of step number `step` (from 0) of `steps`."""
        if step < self.warmup:
            return self.learning_rate * (step + 1) / self.warmup
        done = min(1.0, (step - self.warmup) / max(1, steps - self.warmup))
        if self.schedule == "constant":
            return self.learning_rate
        left = 1.0 - done if self.schedule == "linear" else 0.5 * (1.0 + math.cos(math.pi * done))
        return self.learning_rate * (self.final_share + (1.0 - self.final_share) * left)
