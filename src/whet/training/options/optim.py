"""How weights are updated, whatever is learned."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from ...errors import InputError
from .bounds import Bound, below_one, not_negative, positive, share

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
        Bound("above 0 and at most 1e6", lambda value: 0 < value <= 1e6)(self, "learning_rate")
        positive(self, "max_norm")
        share(self, "final_share")
        not_negative(self, "warmup", "weight_decay")
        below_one(self, "momentum")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise InputError(f"betas must be at least 0 and below 1; got {self.betas}")
        if self.schedule not in ("constant", "linear", "cosine"):
            raise InputError(f"{self.schedule!r} is no schedule; choose constant, linear or cosine")

    def rate(self, step: int, steps: int) -> float:
        """Learning rate of step number `step` (from 0) of `steps`."""
        if step < self.warmup:
            return self.learning_rate * (step + 1) / self.warmup
        done = min(1.0, (step - self.warmup) / max(1, steps - self.warmup))
        if self.schedule == "constant":
            return self.learning_rate
        remaining = 1.0 - done if self.schedule == "linear" else 0.5 * (1.0 + math.cos(math.pi * done))
        return self.learning_rate * (self.final_share + (1.0 - self.final_share) * remaining)
