"""Cloning: supervised training on the trajectories that went well.

Also called behaviour cloning, rejection sampling or RFT, after where the
trajectories come from: another agent's work, or the policy's own.  Loss falls
on action tokens only.  Each call starts from the weights in the Bundle; STaR,
which starts from the base model every round, is `learn/optimizers/star.py`.
Differences: trajectories are deduplicated by their tokens, and one task can be
capped, because easy tasks otherwise dominate.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...types import Bundle, Group, Trajectory, Version
from ..loop import Context
from ..training.cloning import choose, clone, succeeded
from ..training.epochs import Offline, learner_of
from ..training.guards import Guard
from ..training.local import LocalModels
from ..training.options import SFTOptions as SFTOptions


class SFT(Offline[SFTOptions]):
    """Cloning as an Optimizer.

    Args:
        models: where weights live; the process's own if None.
        guard: what the policy must not forget while it learns this.
    """

    name = "sft"

    def __init__(
        self,
        options: SFTOptions | None = None,
        *,
        models: LocalModels | None = None,
        guard: Guard | None = None,
    ) -> None:
        super().__init__(options or SFTOptions(), models=models)
        self.guard = guard

    async def _train(
        self, start: Version, bundle: Bundle, groups: Sequence[Group], context: Context
    ) -> tuple[Version, dict[str, float]]:
        options = self.options
        chosen, figures = choose(groups, self._passes, options.per_task)
        learner = learner_of(self.models, start, options)
        figures |= await clone(learner, chosen, options, context, guard=self.guard)
        return self._checkpoint(learner, start, context), figures

    def _passes(self, trajectory: Trajectory) -> bool | None:
        """True if the filter keeps it; None if nothing has judged it."""
        options = self.options
        good = succeeded(trajectory, options.score, options.threshold)
        if good is None:
            return None
        return True if options.keep == "all" else good != options.invert
