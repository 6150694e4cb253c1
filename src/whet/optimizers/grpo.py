"""Multi-turn GRPO: trajectories of one task are each other's baseline.

Shao et al. 2024 (DeepSeekMath), with what was learned since.  Differences from
the paper: advantages are centred and not divided by the deviation (Dr. GRPO);
the clip is wider upward (DAPO); no KL penalty unless asked for, though the
divergence is measured; an entropy bonus that falls to zero; groups without a
signal are skipped; a sequence is a whole multi-turn trajectory, with loss on
what the policy chose alone.

The named variants are settings: `GRPOOptions.paper()` is the DeepSeekMath loss,
`dr_grpo()` Liu et al. 2025, `dapo()` Yu et al. 2025 without its resampling,
`gspo()` Zheng et al. 2025.  Their losses and gradients equal TRL's.

What a round is (refusals, collapse, checkpoints, resuming) is in `training/rounds.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import InputError
from ..training.assignment import Assignment
from ..training.credit import Credited, credit
from ..training.local import LocalModels
from ..training.losses import Baseline, Scale
from ..training.rounds import RoundOptions, Rounds, Validate
from ..types import Group


@dataclass(frozen=True, kw_only=True)
class GRPOOptions(RoundOptions):
    """How to train from rewards, relative to the group."""

    baseline: Baseline = "group"
    """`group` (GRPO), `leave_one_out` (RLOO) or `none` (REINFORCE)."""
    scale: Scale = "none"
    """`group` divides advantages by the group's deviation, as the paper does."""
    assignment: Assignment = "broadcast"
    """Which step gets the credit: `broadcast`, `to_go`, `agent` or `decomposition`."""
    gamma: float = 1.0
    """Discount of the rewards to come, where the credit is each step's own."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.group_size < 2 and self.baseline != "none":
            raise InputError(
                f"group_size is {self.group_size}: a group of one has no baseline; use 2 or more"
            )

    @classmethod
    def paper(cls, **changes: Any) -> GRPOOptions:
        """DeepSeekMath's: mean of each output's mean, deviation-scaled, symmetric clip, KL 0.04."""
        settings = {"aggregation": "grpo", "scale": "group", "clip_high": 0.2, "kl_coefficient": 0.04}
        return cls(**{**settings, "entropy_bonus": 0.0, **changes})

    @classmethod
    def dr_grpo(cls, completion_length: int, **changes: Any) -> GRPOOptions:
        """Dr. GRPO: no scaling by length or deviation."""
        settings = {"aggregation": "dr_grpo", "completion_length": completion_length, "clip_high": 0.2}
        return cls(**{**settings, "entropy_bonus": 0.0, **changes})

    @classmethod
    def dapo(cls, **changes: Any) -> GRPOOptions:
        """DAPO: token-level mean, clip-higher, deviation-scaled, no KL; groups without a signal are skipped."""
        return cls(**{"scale": "group", "entropy_bonus": 0.0, **changes})

    @classmethod
    def gspo(cls, **changes: Any) -> GRPOOptions:
        """GSPO: one ratio for each trajectory, its tokens' mean, and a clip to match."""
        settings = {"ratio": "sequence", "aggregation": "grpo", "scale": "group"}
        return cls(**{**settings, "clip_low": 3e-4, "clip_high": 4e-4, "entropy_bonus": 0.0, **changes})


class GRPO(Rounds[GRPOOptions]):
    """GRPO as an Optimizer; one `step` is one round of trajectories.

    Args:
        models: where weights live; the process's own if None.  Policies must sample from the same.
        validate: asked at the start and at every checkpoint; the best one is what `done` returns.
    """

    name = "grpo"

    def __init__(
        self,
        options: GRPOOptions | None = None,
        *,
        models: LocalModels | None = None,
        validate: Validate | None = None,
    ) -> None:
        super().__init__(options or GRPOOptions(), models=models, validate=validate)
        self.needs_groups = self.options.baseline != "none"

    def _credit(self, groups: Sequence[Group]) -> Credited:
        options = self.options
        return credit(
            groups,
            score=options.score,
            baseline=options.baseline,
            scale=options.scale,
            unknown=options.unknown,
            assignment=options.assignment,
            gamma=options.gamma,
        )
