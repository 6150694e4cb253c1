"""A process reward model: how good each step is, read where the step ends.

Lightman et al. 2023, with Math-Shepherd's labels (Wang et al. 2024) where no person
rated anything: from every prefix the policy goes on N times, and the *soft* share of
successes is the target of a cross-entropy on the state of the step's last token.
Labels may also be given (PRM800K, a critic's).  The result is a Version of kind
`reward` that is read at steps; `LearnedReward` takes the least or the product of them.
Differences from the papers: soft labels by default, because hard ones get worse with
more completions wherever a later step can repair an earlier one; no step separator,
because a step is a call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ...errors import TrainingRefused
from ...types import Bundle, Group, Version
from ..loop import Context
from ..training.batch import Merged, MicroBatch, parts
from ..training.epochs import Offline, epochs, kept_aside
from ..training.learner import Learner
from ..training.local import LocalModels
from ..training.network import target_states
from ..training.options import PRMOptions as PRMOptions
from ..training.process_labels import Labelled, hardened, monte_carlo
from ..training.scorer import Scorer, new_scorer


class PRM(Offline[PRMOptions]):
    """A process reward model as an Optimizer; what it improves is the Bundle's reward.

    Args:
        models: where weights live; the process's own if None.
        labelled: steps that are labelled already; completions are then rolled out for none.
    """

    name = "prm"

    def __init__(
        self,
        options: PRMOptions | None = None,
        *,
        models: LocalModels | None = None,
        labelled: Sequence[Labelled] = (),
    ) -> None:
        super().__init__(options or PRMOptions(), models=models)
        self.labelled = list(labelled)

    async def _train(
        self, start: Version, bundle: Bundle, groups: Sequence[Group], context: Context
    ) -> tuple[Version, dict[str, float]]:
        options = self.options
        labelled = self.labelled
        if not labelled:
            every = [t for group in groups for t in group.trajectories]
            judged = [t for t in every if t.outcome.counts]
            if every and not judged:
                raise TrainingRefused(
                    f"none of {len(every)} trajectories is a success or a failure, by which their steps would be "
                    "labelled. Record outcomes, or give labelled steps"
                )
            # By id: a record that comes back in another order labels the same trajectories.
            chosen = sorted(judged, key=lambda trajectory: trajectory.id)[: options.trajectories]
            labelled = await monte_carlo(
                chosen, bundle, context, completions=options.completions, seed=options.seed
            )
        if options.hard:
            labelled = hardened(labelled)
        scorer = new_scorer(self.models.decoder(start))
        learner = Learner(scorer.network, options.optim, rates=options.rates, heads={"score": scorer.head})
        figures = await self._fit(learner, scorer, labelled, context)
        meta = self._meta(hard=options.hard)
        return scorer.save(options.reward, context.folder, start.id, meta, "steps"), figures

    async def _fit(
        self, learner: Learner, scorer: Scorer, labelled: Sequence[Labelled], context: Context
    ) -> dict[str, float]:
        options = self.options
        places: list[list[Merged]] = []
        labels: list[float] = []
        tasks: list[str] = []
        for rated in labelled:
            marks = [_with_labels(mark, rated.labels) for mark in scorer.steps(rated.trajectory, len(places))]
            if any(mark.targets for mark in marks):
                places.append(marks)
                tasks.append(rated.trajectory.task.id)
                labels += [label for mark in marks for label in mark.extra["label"]]
        if len(set(labels)) < 2:
            raise TrainingRefused(
                f"{len(labels)} steps of {len(labelled)} trajectories are labelled, all alike or none at all; "
                "a process reward model needs steps that helped and steps that did not"
            )
        train, held = kept_aside(tasks, options.validation_share)

        def objective(part: MicroBatch, count: int) -> Tensor:
            values = scorer.head(target_states(scorer.network, part))
            loss = F.binary_cross_entropy_with_logits(values, part.extra["label"], reduction="sum")
            return loss / count

        def cut(numbers: Sequence[int]) -> list[MicroBatch]:
            return parts([mark for number in numbers for mark in places[number]], options.part_tokens)

        figures = await epochs(
            learner, train, cut, objective, options=options, context=context, name=self.name, held=held
        )
        spread = torch.tensor(labels)
        return {
            **figures,
            "labelled_steps": float(len(labels)),
            "labelled_trajectories": float(len(places)),
            "mean_label": float(spread.mean()),
        }


def _with_labels(mark: Merged, labels: Mapping[int, float]) -> Merged:
    """Only the places whose step has a label."""
    indices = [i for i, step in enumerate(mark.extra["step"]) if int(step) in labels]
    steps = [mark.extra["step"][i] for i in indices]
    return Merged(
        mark.unit,
        # Unlabelled places go, their ids stay: they are what later steps are read after.
        mark.ids,
        [mark.targets[i] for i in indices],
        [0.0] * len(indices),
        extra={"step": steps, "label": [labels[int(step)] for step in steps]},
    )
