"""AWR: cloning in which each trajectory counts as much as it was better than expected.

Peng et al. 2019: weights exp(A / β), at most `max_weight`, on recorded trajectories,
whoever made them; no sampling, no importance ratio, and nothing is unlearned.
Differences: what was to be expected is the mean of the same task's trajectories (the
mean of all where a task has but one), not a value network's; credit may be each step's
own, and is then compared with the trajectories that came as far (`assignment.py`).
β → ∞ is cloning of everything, β → 0 of the best alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from ...errors import TrainingRefused
from ...types import Bundle, Group, Version
from ..datasets.dynamics import example_of_run
from ..loop import Context
from ..training.assignment import centred_credits, step_credits
from ..training.batch import MergeCounts, Merged, merge, parts
from ..training.cloning import fit, weighted_loss
from ..training.credit import reward_of, tokens_of
from ..training.epochs import Offline, kept_aside, learner_of
from ..training.local import LocalModels
from ..training.options import AWROptions as AWROptions


class AWR(Offline[AWROptions]):
    """Advantage-weighted regression as an Optimizer, offline.

    Args:
        models: where weights live; the process's own if None.
    """

    name = "awr"

    def __init__(self, options: AWROptions | None = None, *, models: LocalModels | None = None) -> None:
        super().__init__(options or AWROptions(), models=models)

    async def _train(
        self, start: Version, bundle: Bundle, groups: Sequence[Group], context: Context
    ) -> tuple[Version, dict[str, float]]:
        options = self.options
        sequences, tasks, figures = self._weighted(groups)
        train, held = kept_aside(tasks, options.validation_share)
        learner = learner_of(self.models, start, options)
        chosen, aside = set(train), set(held)
        validation = parts([s for s in sequences if s.unit in aside], options.part_tokens)
        figures |= await fit(
            learner,
            [s for s in sequences if s.unit in chosen],
            validation,
            options,
            context,
            loss_of=weighted_loss,
        )
        return self._checkpoint(learner, start, context), figures

    def _weighted(self, groups: Sequence[Group]) -> tuple[list[Merged], list[str], dict[str, float]]:
        """Sequences whose `advantages` are the weights of their tokens, and the task of each trajectory."""
        options = self.options
        judged = [
            [(t, reward) for t in group.trajectories if (reward := reward_of(t, options.score)) is not None]
            for group in groups
        ]
        rewards = [reward for group in judged for _, reward in group]
        if len(set(rewards)) < 2:
            rewarded = "no trajectory has a reward" if not rewards else f"all rewards are {rewards[0]:g}"
            raise TrainingRefused(
                f"{rewarded}, so AWR has nothing to weight: use SFT, or collect runs with different rewards"
            )
        mean = fmean(rewards)
        sequences: list[Merged] = []
        tasks: list[str] = []
        counts, weights = MergeCounts(), []
        for group in judged:
            own = [reward for _, reward in group]
            credits = [
                step_credits(t, r, options.assignment, options.gamma, given=options.score is None)
                for t, r in group
            ]
            if len(group) > 1:
                credits = centred_credits([t for t, _ in group], credits, options.assignment, own)
            else:
                credits = [[reward - mean] * len(t.steps) for t, reward in group]
            for (trajectory, _), advantages in zip(group, credits, strict=True):
                merged, more = merge(trajectory, len(tasks))
                counts += more
                tasks.append(trajectory.task.id)
                for sequence in merged:
                    sequence.example = example_of_run(trajectory)
                    sequence.advantages = [self._weight(advantages[call]) for call in sequence.calls]
                    weights += sequence.advantages
                sequences.extend(merged)
        if not weights:
            raise TrainingRefused(f"none of the {len(tasks)} trajectories has tokens of the policy's")
        capped = sum(weight >= options.max_weight for weight in weights) / len(weights)
        return sequences, tasks, {"mean_weight": fmean(weights), "capped": capped, **tokens_of(counts)}

    def _weight(self, advantage: float) -> float:
        # Bounded before exp, which raises OverflowError beyond 709.
        return min(self.options.max_weight, math.exp(min(50.0, advantage / self.options.beta)))
