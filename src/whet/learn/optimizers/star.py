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

from ...errors import TrainingRefused
from ...types import Group, Trajectory
from ..training.cloning import Chosen, FromBase, choose, joined, succeeded
from ..training.local import LocalModels
from ..training.options import STaROptions as STaROptions


class STaR(FromBase[STaROptions]):
    """STaR as an Optimizer; one `step` is one round, training included.

    Args:
        models: where weights live; the process's own if None.
    """

    name = "star"

    def __init__(self, options: STaROptions | None = None, *, models: LocalModels | None = None) -> None:
        super().__init__(options or STaROptions(), models=models)
        self.accumulates = self.options.accumulate

    def _chosen(
        self, groups: Sequence[Group], before: Sequence[Chosen]
    ) -> tuple[list[Chosen], dict[str, float]]:
        options = self.options
        verdicts = [succeeded(t, options.score, options.threshold) for g in groups for t in g.trajectories]
        judged = [good for good in verdicts if good is not None]
        figures = {"success": sum(judged) / len(judged)} if judged else {}
        chosen: list[Chosen] = []
        try:
            chosen, left_out = choose(groups, self._passes, options.per_task)
            figures = left_out | figures
        except TrainingRefused:  # earlier rounds may have something to clone
            pass
        if self.accumulates:
            chosen = joined(before, chosen)
        if not chosen:
            raise TrainingRefused(
                f"none of {len(verdicts)} trajectories succeeded: there is nothing "
                "to clone. Sample more of each task, begin with easier tasks, or clone another agent first."
            )
        return chosen, figures

    def _passes(self, trajectory: Trajectory) -> bool | None:
        good = succeeded(trajectory, self.options.score, self.options.threshold)
        return None if good is None else good or not self.options.filtered
