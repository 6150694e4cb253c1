"""DAgger: the policy acts, an expert says what it should have done there, and both are cloned.

Ross et al. 2011.  Cloning an expert's own trajectories teaches nothing about the states
that only a mistake leads to; here the states are the policy's and the actions the
expert's, and the data of all rounds is kept.  Differences: the policy always acts
itself (the paper's β is 0 after the first round, which is cloning, `sft`); an expert may
decline (None) and is then asked nothing of that state; each correction is the tokens of
one call on the prompt that the policy saw.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...errors import TrainingRefused
from ...types import Group, Step, Task
from ..training.batch import MergeCounts, Merged
from ..training.cloning import Chosen, FromBase, joined
from ..training.local import LocalModels
from ..training.options import DAggerOptions as DAggerOptions

Expert = Callable[[Task, Step], Sequence[int] | None]
"""(task, what the policy saw and did) → the ids that should have been written there; None to decline."""


class DAgger(FromBase[DAggerOptions]):
    """DAgger as an Optimizer; one `step` is one round, training from the base included.

    Args:
        expert: says what should have been done.
        models: where weights live; the process's own if None.
    """

    name = "dagger"

    def __init__(
        self, expert: Expert, options: DAggerOptions | None = None, *, models: LocalModels | None = None
    ) -> None:
        super().__init__(options or DAggerOptions(), models=models)
        self._expert = expert

    def _chosen(
        self, groups: Sequence[Group], before: Sequence[Chosen]
    ) -> tuple[list[Chosen], dict[str, float]]:
        corrections, figures = self._corrections(groups)
        everything = joined(before, corrections)
        if not everything:
            raise TrainingRefused(
                f"the expert declined all {figures['states']:g} states; it must say what to do in some of them"
            )
        return everything, figures | {"corrections": float(len(everything))}

    def _corrections(self, groups: Sequence[Group]) -> tuple[list[Chosen], dict[str, float]]:
        corrections: list[Chosen] = []
        states = declined = agreed = 0
        for trajectory in (trajectory for group in groups for trajectory in group.trajectories):
            for step in trajectory.steps:
                if step.tokens is None or not step.tokens.prompt_ids:
                    continue
                states += 1
                answer_ids = self._expert(trajectory.task, step)
                if not answer_ids:
                    declined += 1
                    continue
                agreed += list(answer_ids) == list(step.tokens.output_ids)
                prompt = list(step.tokens.prompt_ids)
                targets = list(range(len(prompt), len(prompt) + len(answer_ids)))
                # Unit 0 for all: `joined` numbers them anew.
                sequence = Merged(0, [*prompt, *answer_ids], targets, [float("nan")] * len(targets))
                size = len(sequence.ids)
                corrections.append(
                    (trajectory.task.id, ([sequence], MergeCounts(1, 1, 0, size, len(targets), size)))
                )
        figures = {"states": float(states), "declined": float(declined)}
        return corrections, figures | (
            {"agreement": agreed / (states - declined)} if states > declined else {}
        )
