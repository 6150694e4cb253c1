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

What a round is (refusals, collapse, checkpoints, resuming) is in `learn/training/rounds.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...types import Group
from ..training.credit import Credited, credit
from ..training.local import LocalModels
from ..training.options import GRPOOptions as GRPOOptions
from ..training.rounds import Rounds, Validate


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
