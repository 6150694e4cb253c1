"""STaR: sample, keep what succeeded, and clone it *from the base model*, round after round.

Zelikman et al. 2022 (STaR); with `accumulate` the successes of all rounds are cloned
(RFT, Yuan et al. 2023; expert iteration).  Starting from the base every time keeps the
errors of one round from being built on by the next.  Differences: trajectories are
deduplicated by their tokens and capped by task, because easy tasks otherwise dominate;
there is no rationalisation (a retry with the answer as a hint), which needs a prompt
that can be taken back.

A false positive, right for the wrong reason, is cloned like any other success.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..errors import TrainingRefused
from ..loop import Context, Update
from ..training.cloning import (
    Chosen,
    FromBase,
    choose,
    clone,
    joined,
    learner_of,
    read_kept,
    resumed,
    starting,
    succeeded,
    write_kept,
)
from ..training.local import LocalModels
from ..training.options.records import STaROptions as STaROptions
from ..types import Bundle, Group, Json, Trajectory, Version


class STaR:
    """STaR as an Optimizer; one `step` is one round, training included.

    Args:
        models: where weights live; the process's own if None.
    """

    name = "star"
    on_policy = True
    ordered = False

    def __init__(self, options: STaROptions | None = None, *, models: LocalModels | None = None) -> None:
        self.options = options or STaROptions()
        self.models = models or LocalModels.shared()
        self.group_size = self.options.group_size

    async def step(self, bundle: Bundle, groups: Sequence[Group], context: Context) -> Update:
        """Clone the successes among these groups, from the base.

        Raises:
            InputError: the Bundle has no weights, or the state is another method's.
            TrainingRefused: nothing succeeded yet.
        """
        options = self.options
        version = starting(bundle, options.resource)
        run = resumed(context.state, FromBase(base=msgspec.to_builtins(version)), self.name)
        base = msgspec.convert(run.base, Version)
        chosen, figures = self._chosen(groups)
        if options.accumulate:
            chosen = joined(read_kept(context.folder, run.file), chosen)
        if not chosen:
            raise TrainingRefused(
                f"none of {sum(len(g.trajectories) for g in groups)} trajectories succeeded: there is nothing "
                "to clone. Sample more of each task, begin with easier tasks, or clone another agent first."
            )
        learner = learner_of(self.models, base, options.optim)
        figures |= await clone(learner, chosen, options, context)
        meta: dict[str, Json] = {"method": self.name, "seed": options.seed, "round": run.round}
        made = learner.checkpoint(options.resource, context.folder, version.id, meta)
        run.round += 1
        if options.accumulate:
            run.file = write_kept(context.folder, chosen)
        done = run.round >= options.steps
        return Update(
            bundle=bundle.put(made),
            state=msgspec.to_builtins(run),
            metrics=figures,
            done=done,
            reason=f"all {options.steps} rounds done" if done else "",
        )

    def _chosen(self, groups: Sequence[Group]) -> tuple[list[Chosen], dict[str, float]]:
        every = [
            succeeded(t, self.options.score, self.options.threshold) for g in groups for t in g.trajectories
        ]
        known = [good for good in every if good is not None]
        rate = {"success": sum(known) / len(known)} if known else {}
        try:
            chosen, left = choose(groups, self._passes, self.options.per_task)
        except TrainingRefused:
            chosen, left = [], {}
        return chosen, left | rate

    def _passes(self, trajectory: Trajectory) -> bool | None:
        good = succeeded(trajectory, self.options.score, self.options.threshold)
        return None if good is None else good or not self.options.filtered
