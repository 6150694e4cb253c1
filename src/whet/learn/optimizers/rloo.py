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

from ...types import Group
from ..training.credit import Credited, credit
from ..training.local import LocalModels
from ..training.options import RLOOOptions as RLOOOptions
from ..training.rounds import Rounds, Validate, divergences


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
            # Under the log-probabilities as sampled, so the penalty is a number and has no gradient.
            divergence = divergences(groups, self._reference, options.part_tokens, options.temperature)
            penalties = {id: options.kl_coefficient * nats for id, nats in divergence.items()}
        return credit(
            groups,
            score=options.score,
            baseline="leave_one_out",
            scale=options.scale,
            unknown=options.unknown,
            penalties=penalties,
        )
