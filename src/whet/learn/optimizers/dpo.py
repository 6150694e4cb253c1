"""DPO: the better answer becomes likelier than the worse one, with no reward model between.

Rafailov et al. 2023; `loss="ipo"` is Azar et al. 2023, whose margin has a target and
stops there; `pairs="step"` is Step-DPO (Lai et al. 2024) and Agent Q's pairs (Putta et
al. 2024): two answers to the same prompt, loss on that step alone.  The reference is
the Bundle's own weights.  Differences from the papers: pairs come from captured
trajectories with their own token ids, several turns long; a task's share is capped;
both log-probabilities are reported, because that of the chosen answer falls too.
Losses and gradients equal TRL 1.16's.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ...types import Bundle, Group, Version
from ..loop import Context
from ..training.batch import MicroBatch
from ..training.epochs import Offline, epochs, kept_aside, learner_of
from ..training.learner import Learner, chosen_logprobs
from ..training.local import LocalModels
from ..training.losses import dpo, ipo
from ..training.options import DPOOptions as DPOOptions
from ..training.pairs import (
    Encode,
    PreferencePair,
    cut_pairs,
    reference_sums,
    side_sums,
    step_pairs,
    trajectory_pairs,
    with_preferences,
)
from ..training.watching import Watched


class DPO(Offline[DPOOptions]):
    """DPO as an Optimizer.

    Args:
        models: where weights live; the process's own if None.
        encode: turns the text of `context.preferences` into ids; not needed for ids.
    """

    name = "dpo"

    def __init__(
        self,
        options: DPOOptions | None = None,
        *,
        models: LocalModels | None = None,
        encode: Encode | None = None,
    ) -> None:
        super().__init__(options or DPOOptions(), models=models)
        self._encode = encode

    async def _train(
        self, start: Version, bundle: Bundle, groups: Sequence[Group], context: Context
    ) -> tuple[Version, dict[str, float]]:
        options = self.options
        pairs, figures = self._pairs(groups, context)
        learner = learner_of(self.models, start, options)
        # Before the first update, while the learner's weights are the reference's: no second network is held.
        there = reference_sums(learner.decoder, pairs, options.part_tokens)
        train, held = kept_aside([pair.task for pair in pairs], options.validation_share)
        watched = Watched(
            {number: pairs[number].example for number in train}, train, context.log, f"{self.name}/"
        )

        def objective(part: MicroBatch, count: int) -> Tensor:
            numbers, chosen, rejected = side_sums(chosen_logprobs(learner.decoder, part), part)
            ratios = chosen - there[0][numbers], rejected - there[1][numbers]
            watched.judged(numbers, options.beta * (ratios[0] - ratios[1]))
            if options.loss == "dpo":
                losses = dpo(*ratios, beta=options.beta, label_smoothing=options.label_smoothing)
            else:
                _, *lengths = side_sums(torch.ones(len(part.units)), part)
                losses = ipo(*ratios, (lengths[0], lengths[1]), beta=options.beta)
            return losses.sum() / count

        figures |= await epochs(
            learner,
            train,
            lambda numbers: cut_pairs(pairs, numbers, options.part_tokens, len(pairs)),
            objective,
            options=options,
            context=context,
            name=self.name,
            held=held,
            watched=watched,
        )
        figures |= self._judged(learner, pairs, there)
        return self._checkpoint(learner, start, context), figures

    def _pairs(
        self, groups: Sequence[Group], context: Context
    ) -> tuple[list[PreferencePair], dict[str, float]]:
        options = self.options
        cap = 2**31 if options.per_task is None else options.per_task
        if options.pairs == "step":
            compared = step_pairs(groups, score=options.score, margin=options.margin, per_task=cap)
        else:
            compared = trajectory_pairs(
                groups, score=options.score, margin=options.margin, per_task=cap, seed=options.seed
            )
        return with_preferences(compared, context.preferences, self._encode, len(groups))

    def _judged(
        self, learner: Learner, pairs: Sequence[PreferencePair], there: tuple[Tensor, Tensor]
    ) -> dict[str, float]:
        """Figures of the pairs after training."""
        now = reference_sums(learner.decoder, pairs, self.options.part_tokens)
        chosen, rejected = now[0] - there[0], now[1] - there[1]
        return {
            "accuracy": float((chosen > rejected).float().mean()),
            "margin": self.options.beta * float((chosen - rejected).mean()),
            "chosen_logprob_change": float(chosen.mean()),
            "rejected_logprob_change": float(rejected.mean()),
        }
