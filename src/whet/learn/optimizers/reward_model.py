"""A reward model: scores that rank answers as people or outcomes did.

`objective="pairs"` is Bradley–Terry (InstructGPT, Ouyang et al. 2022): −log σ(r_w − r_l)
of the states at the last token, optionally centred around 0.  `objective="outcome"` is
an outcome reward model (Cobbe et al. 2021): cross-entropy of success.  It starts from
the policy's weights and a head of zeros, and puts a Version of kind `reward` into the
Bundle; `whet.learn.training.scorer.LearnedReward` makes that a Reward.  The policy is untouched.

It reads tokens alone: "the episode stopped early" is not among its inputs, though a
grader that ends episodes makes it a perfect one.  Which tasks are kept aside is by
their hash, so accuracy is never on a task that was trained on.  Reported too: the
correlation of score and length, the shortcut that reward models like best.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ...errors import TrainingRefused
from ...types import Bundle, Group, Trajectory, Version
from ..datasets.dynamics import asked_of, example_of_judged
from ..loop import Context
from ..training.batch import Merged, MicroBatch, marked, parts
from ..training.cloning import succeeded
from ..training.epochs import Offline, epochs, kept_aside
from ..training.learner import Learner
from ..training.local import LocalModels
from ..training.losses import bradley_terry
from ..training.network import target_states
from ..training.options import RewardModelOptions as RewardModelOptions
from ..training.pairs import Encode, PreferencePair, cut_pairs, side_sums, trajectory_pairs, with_preferences
from ..training.scorer import Scorer, agreement, new_scorer
from ..training.watching import Watched


class RewardModel(Offline[RewardModelOptions]):
    """A reward model as an Optimizer; what it improves is the Bundle's reward.

    Args:
        models: where weights live; the process's own if None.
        encode: turns the text of `context.preferences` into ids; not needed for ids.
    """

    name = "reward_model"

    def __init__(
        self,
        options: RewardModelOptions | None = None,
        *,
        models: LocalModels | None = None,
        encode: Encode | None = None,
    ) -> None:
        super().__init__(options or RewardModelOptions(), models=models)
        self._encode = encode

    async def _train(
        self, start: Version, bundle: Bundle, groups: Sequence[Group], context: Context
    ) -> tuple[Version, dict[str, float]]:
        options = self.options
        scorer = new_scorer(self.models.decoder(start))
        learner = Learner(scorer.network, options.optim, rates=options.rates, heads={"score": scorer.head})
        if options.objective == "pairs":
            figures = await self._from_pairs(learner, scorer, groups, context)
        else:
            figures = await self._from_outcomes(learner, scorer, groups, context)
        meta = self._meta(objective=options.objective)
        return scorer.save(options.reward, context.folder, start.id, meta, "end"), figures

    async def _from_pairs(
        self, learner: Learner, scorer: Scorer, groups: Sequence[Group], context: Context
    ) -> dict[str, float]:
        options = self.options
        cap = 2**31 if options.per_task is None else options.per_task
        compared = trajectory_pairs(
            groups, score=options.score, margin=options.margin, per_task=cap, seed=options.seed
        )
        pairs, left_out = with_preferences(compared, context.preferences, self._encode, len(groups))
        # After pairing: identical answers are known by all their targets, which `marked` replaces.
        pairs = [_at_ends(pair) for pair in pairs]
        train, held = kept_aside([pair.task for pair in pairs], options.validation_share)
        watched = Watched(
            {number: pairs[number].example for number in train}, train, context.log, f"{self.name}/"
        )

        def objective(part: MicroBatch, count: int) -> Tensor:
            values = scorer.head(target_states(scorer.network, part))
            numbers, chosen, rejected = side_sums(values, part)
            watched.judged(numbers, chosen - rejected)
            return bradley_terry(chosen, rejected, centring=options.centring).sum() / count

        def cut(numbers: Sequence[int]) -> list[MicroBatch]:
            return cut_pairs(pairs, numbers, options.part_tokens, len(pairs))

        figures = await epochs(
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
        figures["accuracy"] = _accuracy(scorer, cut(train))
        if held:
            figures["validation_accuracy"] = _accuracy(scorer, cut(held))
        return {**figures, **left_out, **_length(scorer, groups)}

    async def _from_outcomes(
        self, learner: Learner, scorer: Scorer, groups: Sequence[Group], context: Context
    ) -> dict[str, float]:
        options = self.options
        judged: list[tuple[Trajectory, bool]] = []
        for trajectory in (trajectory for group in groups for trajectory in group.trajectories):
            good = succeeded(trajectory, options.score, options.threshold)
            # A trajectory without tokens has no place to be read at, and [0] below would fail.
            if good is not None and scorer.ends(trajectory, 0):
                judged.append((trajectory, good))
        if len({good for _, good in judged}) < 2:
            raise TrainingRefused(
                f"{len(judged)} trajectories are judged, and all the same way or none at all; a reward model "
                "needs successes and failures"
            )
        places = [scorer.ends(trajectory, unit)[0] for unit, (trajectory, _) in enumerate(judged)]
        targets = torch.tensor([float(good) for _, good in judged])
        train, held = kept_aside([t.task.id for t, _ in judged], options.validation_share)
        examples = {
            number: example_of_judged(
                asked_of(judged[number][0]), judged[number][0].output, judged[number][1]
            )
            for number in train
        }
        watched = Watched(examples, train, context.log, f"{self.name}/")

        def objective(part: MicroBatch, count: int) -> Tensor:
            values = scorer.head(target_states(scorer.network, part))
            watched.judged(part.units, values * (2 * targets[part.units] - 1))
            loss = F.binary_cross_entropy_with_logits(values, targets[part.units], reduction="sum")
            return loss / count

        def cut(numbers: Sequence[int]) -> list[MicroBatch]:
            return parts([places[number] for number in numbers], options.part_tokens)

        figures = await epochs(
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
        scores = scorer.score([trajectory for trajectory, _ in judged], options.part_tokens)
        scores_N = torch.tensor([value if value is not None else 0.0 for value in scores])
        for name, numbers in (("auc", train), ("validation_auc", held)):
            value = _auc(scores_N[list(numbers)], targets[list(numbers)]) if numbers else None
            if value is not None:
                figures[name] = value
        return {**figures, "judged": float(len(judged)), **_length(scorer, groups)}


def _at_ends(pair: PreferencePair) -> PreferencePair:
    """The same answers, read at their last token."""
    sides = []
    for own in (pair.chosen, pair.rejected):
        newest: Merged = max(own, key=lambda sequence: sequence.calls[-1] if sequence.calls else -1)
        sides.append([marked(newest, [newest.targets[-1]])])
    return PreferencePair(sides[0], sides[1], pair.task, pair.margin, pair.example)


@torch.no_grad()
def _accuracy(scorer: Scorer, cut: Sequence[MicroBatch]) -> float:
    chosen, rejected = [], []
    for part in cut:
        _, winners, losers = side_sums(scorer.head(target_states(scorer.network, part)), part)
        chosen.append(winners)
        rejected.append(losers)
    return agreement(torch.cat(chosen), torch.cat(rejected))


def _auc(scores: Tensor, good: Tensor) -> float | None:
    """Chance that a success scores above a failure; None without both."""
    successes, failures = scores[good > 0.5], scores[good < 0.5]
    if not len(successes) or not len(failures):
        return None
    return agreement(successes.repeat_interleave(len(failures)), failures.repeat(len(successes)))


def _length(scorer: Scorer, groups: Sequence[Group]) -> dict[str, float]:
    """Correlation of score and length in tokens, left out where either does not vary."""
    every = [trajectory for group in groups for trajectory in group.trajectories]
    ends = [scorer.ends(trajectory, 0) for trajectory in every]
    lengths = [(t, len(end[0].ids)) for t, end in zip(every, ends, strict=True) if end]
    if len(lengths) < 3:
        return {}
    scores = [value or 0.0 for value in scorer.score([trajectory for trajectory, _ in lengths])]
    both = torch.tensor([scores, [float(length) for _, length in lengths]])
    if float(both.std(dim=1).min()) < 1e-6:
        return {}
    return {"length_correlation": float(torch.corrcoef(both)[0, 1])}
