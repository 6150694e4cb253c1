"""REINFORCE: each action is made likelier by what came after it.

Williams 1992, with the return to go and a discount; the baseline is the mean over
the round (`mean`), the group's mean (`group`), or nothing.  On fresh trajectories the
importance ratio is 1 and the clip does nothing; on recorded ones it is the correction.
Differences: advantages may be divided by the round's deviation, and trajectories that
the machine failed stay out of every mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from ...types import Group
from ..training.credit import Credited, credit
from ..training.local import LocalModels
from ..training.options import REINFORCEOptions as REINFORCEOptions
from ..training.rounds import Rounds, Validate


class REINFORCE(Rounds[REINFORCEOptions]):
    """REINFORCE as an Optimizer; one `step` is one round of trajectories.

    Args:
        models: where weights live; the process's own if None.
        validate: asked at the start and at every checkpoint; the best one is what `done` returns.
    """

    name = "reinforce"

    def __init__(
        self,
        options: REINFORCEOptions | None = None,
        *,
        models: LocalModels | None = None,
        validate: Validate | None = None,
    ) -> None:
        super().__init__(options or REINFORCEOptions(), models=models, validate=validate)
        self.needs_groups = self.options.baseline == "group"
        self.group_size = self.options.group_size

    def _credit(self, groups: Sequence[Group]) -> Credited:
        options = self.options
        credited = credit(
            groups,
            score=options.score,
            baseline="group" if options.baseline == "group" else "none",
            unknown=options.unknown,
            assignment=options.assignment,
            gamma=options.gamma,
        )
        every = [share for sequence in credited.sequences for share in sequence.advantages]
        if not every:
            return credited
        mean = fmean(every) if options.baseline == "mean" else 0.0
        # About what is taken off: without the round's mean it is a root mean square and no deviation.
        spread = fmean([(share - mean) ** 2 for share in every]) ** 0.5
        if spread < 1e-12 and options.baseline == "mean":  # everyone got the same: nothing to learn
            return replace(credited, sequences=[], metrics={**credited.metrics, "no_signal": 1.0})
        factor = 1.0 / (spread + 1e-8) if options.whiten else 1.0
        for sequence in credited.sequences:
            sequence.advantages = [(share - mean) * factor for share in sequence.advantages]
        return credited
