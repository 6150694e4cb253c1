"""RLOO: REINFORCE whose baseline is the mean of the *other* trajectories of the task.

Ahmadian et al. 2024 ("Back to Basics").  The whole trajectory is one action: one
importance ratio, the product over its tokens, and one advantage.  The estimator is
unbiased, where GRPO's group mean shrinks the gradient by (G − 1)/G.  The divergence
from the first weights is taken off the reward, not added to the loss.  Differences
from the paper: loss on action tokens of several turns; groups without a signal are
skipped; a clip, which does nothing on the first pass over fresh trajectories.
Loss and gradients equal TRL 1.16's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import InputError
from ..training.credit import Credited, credit
from ..training.local import LocalModels
from ..training.losses import Aggregation, Ratio, Scale
from ..training.rounds import RoundOptions, Rounds, Validate, divergences
from ..types import Group


@dataclass(frozen=True, kw_only=True)
class RLOOOptions(RoundOptions):
    """How to train from rewards, relative to the rest of the group."""

    ratio: Ratio = "trajectory"
    """What the importance ratio is taken of; `trajectory` is the paper's."""
    aggregation: Aggregation = "grpo"
    """How token losses are averaged; `grpo` is the mean over trajectories."""
    scale: Scale = "none"
    """`group` divides advantages by the group's deviation."""
    clip_high: float = 0.2
    """How far a probability ratio may rise above 1."""
    entropy_bonus: float = 0.0
    """Weight of the mean token entropy at first; falls to zero over the steps."""
    kl_coefficient: float = 0.0
    """Times log π − log π_ref of the trajectory, taken off its reward (TRL's default is 0.05)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.group_size < 2:
            raise InputError(
                f"group_size is {self.group_size}: leaving one out of a group of one leaves none; use 2 or more"
            )


class RLOO(Rounds[RLOOOptions]):
    """RLOO as an Optimizer; one `step` is one round of trajectories.

    Args:
        models: where weights live; the process's own if None.
        validate: asked at the start and at every checkpoint; the best one is what `done` returns.
    """

    name = "rloo"
    penalises_loss = False

    def __init__(
        self,
        options: RLOOOptions | None = None,
        *,
        models: LocalModels | None = None,
        validate: Validate | None = None,
    ) -> None:
        super().__init__(options or RLOOOptions(), models=models, validate=validate)

    def _credit(self, groups: Sequence[Group]) -> Credited:
        options = self.options
        penalties: dict[str, float] = {}
        if options.kl_coefficient and self._reference is not None:
            found = divergences(groups, self._reference, options.part_tokens, options.temperature)
            penalties = {id: options.kl_coefficient * one for id, one in found.items()}
        return credit(
            groups,
            score=options.score,
            baseline="leave_one_out",
            scale=options.scale,
            unknown=options.unknown,
            penalties=penalties,
        )
