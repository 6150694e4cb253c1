"""KTO: learning from thumbs, one answer at a time, with no pairs.

Ethayarajh et al. 2024.  A good answer is pushed above a reference point and a bad one
below it; the point is the policy's mean divergence on *mismatched* prompts and answers
of the batch.  Good and bad come from a score, a person's thumbs or the outcome.
Difference from the paper: a trajectory is the unit, several turns long; its mismatched
partner is its first prompt with another one's first answer.  Loss and gradients equal
TRL 1.16's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ...errors import TrainingRefused
from ...types import Bundle, Group, Trajectory, Version
from ..datasets.dynamics import asked_of, example_of_judged
from ..loop import Context
from ..training.batch import Merged, MicroBatch, by_unit, merge, parts
from ..training.cloning import succeeded
from ..training.epochs import Offline, epochs, kept_aside, learner_of
from ..training.learner import chosen_logprobs, unit_logprobs
from ..training.local import LocalModels
from ..training.losses import kto, kto_divergence, unit_sums
from ..training.network import Network
from ..training.options import KTOOptions as KTOOptions
from ..training.watching import Watched


class KTO(Offline[KTOOptions]):
    """KTO as an Optimizer.

    Args:
        models: where weights live; the process's own if None.
    """

    name = "kto"

    def __init__(self, options: KTOOptions | None = None, *, models: LocalModels | None = None) -> None:
        super().__init__(options or KTOOptions(), models=models)

    async def _train(
        self, start: Version, bundle: Bundle, groups: Sequence[Group], context: Context
    ) -> tuple[Version, dict[str, float]]:
        options = self.options
        judged = self._judged(groups)
        answers, figures = judged.answers, judged.figures
        learner = learner_of(self.models, start, options)
        # A network of its own: the learner changes its weights in place.
        reference = self.models.decoder(start)

        def sums_of(network: Network, texts: Sequence[list[Merged]]) -> Tensor:
            sequences = [sequence for number in range(len(texts)) for sequence in _of(texts, number)]
            return unit_logprobs(network, sequences, len(texts), options.part_tokens)

        there = sums_of(reference, answers)
        train, held = kept_aside(judged.tasks, options.validation_share)
        examples = {number: judged.examples[number] for number in train}
        watched = Watched(examples, train, context.log, f"{self.name}/")
        good = torch.tensor(judged.desirable)
        point = torch.zeros(())

        def cut(numbers: Sequence[int]) -> list[MicroBatch]:
            nonlocal point
            crossed = _crossed(answers, numbers, reference.max_length)
            # `epochs` cuts a batch before it asks for its loss, so this is the point of that batch.
            point = kto_divergence(sums_of(learner.decoder, crossed) - sums_of(reference, crossed))
            chosen = [sequence for number in numbers for sequence in _of(answers, number)]
            return parts(chosen, options.part_tokens, block=by_unit)

        def objective(part: MicroBatch, count: int) -> Tensor:
            numbers = torch.unique(part.units)
            sums = unit_sums(chosen_logprobs(learner.decoder, part), part.units, len(answers))[numbers]
            weights = (options.desirable_weight, options.undesirable_weight)
            ratio = sums - there[numbers]
            watched.judged(numbers, options.beta * (ratio - point) * (2 * good[numbers].float() - 1))
            return kto(ratio, good[numbers], point, beta=options.beta, weights=weights).sum() / count

        figures |= await epochs(
            learner,
            train,
            cut,
            objective,
            options=options,
            context=context,
            name=self.name,
            held=held,
            watched=watched,
        )
        change = sums_of(learner.decoder, answers) - there
        figures |= {
            "reference_point": float(point),
            "desirable_logprob_change": float(change[good].mean()),
            "undesirable_logprob_change": float(change[~good].mean()),
        }
        return self._checkpoint(learner, start, context), figures

    def _verdict(self, trajectory: Trajectory) -> bool | None:
        options = self.options
        if options.judged_by == "thumbs":
            # Neither None nor 0 judges; of several values, of whatever kind of Feedback, the last one counts.
            values = [thumb.value for thumb in trajectory.feedback if thumb.value]
            return values[-1] > 0 if values else None
        return succeeded(
            trajectory, options.score if options.judged_by == "score" else None, options.threshold
        )

    def _judged(self, groups: Sequence[Group]) -> _JudgedAnswers:
        found = _JudgedAnswers()
        for trajectory in (trajectory for group in groups for trajectory in group.trajectories):
            verdict = self._verdict(trajectory)
            sequences, counts = merge(trajectory, len(found.answers))
            if verdict is None or not counts.targets:
                found.unjudged += verdict is None
                found.silent += verdict is not None
                continue
            found.answers.append(sequences)
            found.desirable.append(verdict)
            found.tasks.append(trajectory.task.id)
            found.examples.append(example_of_judged(asked_of(trajectory), trajectory.output, verdict))
        count = len(found.answers)
        if len(set(found.desirable)) < 2:
            reason = "nothing is judged" if not count else f"all {count} are judged the same"
            raise TrainingRefused(
                f"{reason} by {self.options.judged_by} ({found.unjudged} unjudged, {found.silent} without tokens); KTO "
                "needs good and bad answers. Collect feedback, move the threshold, or clone the good ones with SFT."
            )
        return found


@dataclass
class _JudgedAnswers:
    """Answers with a verdict each, all lists in one order."""

    answers: list[list[Merged]] = field(default_factory=list)
    desirable: list[bool] = field(default_factory=list)
    tasks: list[str] = field(default_factory=list)
    """Id of each answer's task."""
    examples: list[str] = field(default_factory=list)
    """How training dynamics name each."""
    unjudged: int = 0
    silent: int = 0
    """Without tokens."""

    @property
    def figures(self) -> dict[str, float]:
        good = sum(self.desirable)
        return {
            "desirable": float(good),
            "undesirable": float(len(self.desirable) - good),
            "unjudged": float(self.unjudged),
            "without_tokens": float(self.silent),
        }


def _of(answers: Sequence[list[Merged]], number: int) -> list[Merged]:
    return [Merged(number, sequence.ids, sequence.targets, sequence.logprobs) for sequence in answers[number]]


def _crossed(answers: Sequence[list[Merged]], numbers: Sequence[int], room: int) -> list[list[Merged]]:
    """The first prompt of each with what the one before it in the batch wrote to its own, cut to fit."""
    crossed = []
    for position, number in enumerate(numbers):
        # The first one's partner is the last (index −1); a batch of one is its own, and not mismatched.
        own, donor = answers[number][0], answers[numbers[position - 1]][0]
        prompt, answer = own.ids[: own.targets[0]], donor.ids[donor.targets[0] :]
        answer = answer[: max(1, room - len(prompt))]
        targets = [target - donor.targets[0] + len(prompt) for target in donor.targets]
        targets = [target for target in targets if target < len(prompt) + len(answer)]
        crossed.append([Merged(0, [*prompt, *answer], targets, [0.0] * len(targets))])
    return crossed
