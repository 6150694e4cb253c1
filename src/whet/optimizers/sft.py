"""Cloning: supervised training on the trajectories that went well.

Also called behaviour cloning, rejection sampling or RFT, after where the
trajectories come from: another agent's work, or the policy's own.  Loss falls
on action tokens only.  Each call starts from the weights in the Bundle; STaR,
which starts from the base model every round, is `optimizers/star.py`.
Differences: trajectories are deduplicated by their tokens, and one task can be
capped, because easy tasks otherwise dominate.

One `step` is the whole training: interrupted, it is run again from the same seed
to the same weights.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..loop import Context, Update
from ..training.cloning import choose, clone, learner_of, starting, succeeded
from ..training.guards import Guard
from ..training.local import LocalModels
from ..training.options.records import SFTOptions as SFTOptions
from ..types import Bundle, Group, Trajectory


class SFT:
    """Cloning as an Optimizer.

    Args:
        models: where weights live; the process's own if None.
        guard: what the policy must not forget while it learns this.
    """

    name = "sft"
    group_size = 0
    on_policy = False
    ordered = False

    def __init__(
        self,
        options: SFTOptions | None = None,
        *,
        models: LocalModels | None = None,
        guard: Guard | None = None,
    ) -> None:
        self.options = options or SFTOptions()
        self.models = models or LocalModels.shared()
        self.guard = guard

    async def step(self, bundle: Bundle, groups: Sequence[Group], context: Context) -> Update:
        """Train to the end on these groups; `done` is always True.

        Raises:
            InputError: the Bundle has no weights under the resource's name.
            TrainingRefused: nothing passes the filter, or nothing that passes has tokens.
        """
        options = self.options
        start = starting(bundle, options.resource)
        chosen, figures = choose(groups, self._passes, options.per_task)
        learner = learner_of(self.models, start, options.optim)
        figures |= await clone(learner, chosen, options, context, guard=self.guard)
        version = learner.checkpoint(
            options.resource, context.folder, start.id, {"method": self.name, "seed": options.seed}
        )
        return Update(bundle=bundle.put(version), metrics=figures, done=True, reason="trained to the end")

    def _passes(self, trajectory: Trajectory) -> bool | None:
        """Whether the filter keeps it; None if nothing has judged it."""
        options = self.options
        good = succeeded(trajectory, options.score, options.threshold)
        if good is None:
            return None
        return True if options.keep == "all" else good != options.invert
