"""Cloning: supervised training on the trajectories that went well.

Also called behaviour cloning, rejection sampling or RFT, after where the
trajectories come from: another agent's work, or the policy's own.  Loss falls
on action tokens only.  Each call starts from the weights in the Bundle; for
STaR (Zelikman et al. 2022), which starts from the base model every round, pass
the base Bundle every round.  Differences: trajectories are deduplicated by their
tokens, and one task can be capped, because easy tasks otherwise dominate.

One `step` is the whole training: interrupted, it is run again from the same seed
to the same weights.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ..errors import InputError, TrainingRefused
from ..loop import Context, Update
from ..training.batch import Counts, Merged, Part, merge, minibatches, parts
from ..training.learner import Learner, cloning_loss, mean_loss
from ..training.local import LocalModels
from ..training.optim import OptimOptions
from ..types import Bundle, Group, Outcome, Trajectory, digest


@dataclass(frozen=True, kw_only=True)
class SFTOptions:
    """How to clone."""

    resource: str = "policy"
    """Name of the weights in the Bundle."""
    keep: Literal["good", "all"] = "good"
    """`good` keeps what passes the reward filter, `all` keeps everything that was judged."""
    score: str | None = None
    """Score that the filter looks at; None for the outcome."""
    threshold: float = 0.5
    """Lowest score that passes."""
    invert: bool = False
    """Keep what fails the filter instead: the negative control."""
    per_task: int | None = None
    """Trajectories of one task at most; None for all."""
    epochs: int = 4
    """Passes over the trajectories."""
    batch: int = 64
    """Trajectories in one update."""
    validation_share: float = 0.1
    """Share of the tasks whose trajectories are kept aside for early stopping."""
    patience: int = 2
    """Epochs without a lower validation loss before it stops; the best weights are kept."""
    part_tokens: int = 8192
    """Padded tokens computed at once; changes speed and memory only."""
    seed: int = 0
    """Of the order of the trajectories."""
    optim: OptimOptions = field(default_factory=lambda: OptimOptions(learning_rate=3e-3))
    """How weights are updated."""

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch < 1 or self.patience < 1 or not 0 <= self.validation_share < 1:
            raise InputError(
                f"epochs, batch and patience must be 1 or more, validation_share in [0, 1): {self}"
            )


class SFT:
    """Cloning as an Optimizer.

    Args:
        models: where weights live; the process's own if None.
    """

    name = "sft"
    group_size = 0
    on_policy = False
    ordered = False

    def __init__(self, options: SFTOptions | None = None, *, models: LocalModels | None = None) -> None:
        self.options = options or SFTOptions()
        self.models = models or LocalModels.shared()

    async def step(self, bundle: Bundle, groups: Sequence[Group], context: Context) -> Update:
        """Train to the end on these groups; `done` is always True.

        Raises:
            InputError: the Bundle has no weights under the resource's name.
            TrainingRefused: nothing passes the filter, or nothing that passes has tokens.
        """
        options = self.options
        if options.resource not in bundle:
            raise InputError(
                f"the bundle has no resource {options.resource!r}, only {sorted(bundle)}; "
                "put one there with whet.training.local.fresh(...)"
            )
        start = bundle[options.resource]
        chosen, figures = self._choose(groups)
        train, held = self._split(chosen)
        counts = sum((merged[1] for _, merged in train), Counts())
        sequences = [sequence for _, (found, _) in train for sequence in found]
        validation = parts([s for _, (found, _) in held for s in found], options.part_tokens)
        learner = Learner(
            self.models.decoder(start),
            options.optim,
            policy_version=int(start.meta.get("policy_version", 0)),
        )
        figures |= await self._train(learner, sequences, validation, context)
        figures |= {
            "trajectories": len(train),
            "validation_trajectories": len(held),
            "tokens": counts.tokens,
            "targets": counts.targets,
            "calls_merged": counts.merged,
            "calls_forked": counts.forked,
        }
        version = learner.checkpoint(
            options.resource, context.folder, start.id, {"method": self.name, "seed": options.seed}
        )
        return Update(bundle=bundle.put(version), metrics=figures, done=True, reason="trained to the end")

    def _passes(self, trajectory: Trajectory) -> bool | None:
        """Whether the filter keeps it; None if nothing has judged it."""
        options = self.options
        if options.score is not None:
            value = trajectory.score(options.score)
            good = None if value is None else value >= options.threshold
        else:
            good = trajectory.outcome is Outcome.SUCCESS if trajectory.outcome.counts else None
        if good is None:
            return None
        return True if options.keep == "all" else good != options.invert

    def _choose(self, groups: Iterable[Group]) -> tuple[list[tuple[str, _MergedCounts]], dict[str, float]]:
        chosen: list[tuple[str, _MergedCounts]] = []
        left = {"unjudged": 0, "filtered": 0, "without_tokens": 0, "repeated": 0, "over_cap": 0}
        seen: set[str] = set()
        per_task: dict[str, int] = {}
        for trajectory in (trajectory for group in groups for trajectory in group.trajectories):
            passes = self._passes(trajectory)
            if not passes:
                left["unjudged" if passes is None else "filtered"] += 1
                continue
            merged = merge(trajectory, len(chosen))
            if not merged[1].targets:
                left["without_tokens"] += 1
                continue
            task = trajectory.task.id
            content = digest([task, [[s.ids, s.targets] for s in merged[0]]])
            if content in seen:
                left["repeated"] += 1
            elif self.options.per_task is not None and per_task.get(task, 0) >= self.options.per_task:
                left["over_cap"] += 1
            else:
                seen.add(content)
                per_task[task] = per_task.get(task, 0) + 1
                chosen.append((task, merged))
        if not chosen:
            raise TrainingRefused(
                f"no trajectory to clone: {', '.join(f'{count} {name}' for name, count in left.items())}. "
                "Collect from an agent that succeeds, or look at the filter (keep, score, threshold)."
            )
        return chosen, {name: float(count) for name, count in left.items()}

    def _split(
        self, chosen: list[tuple[str, _MergedCounts]]
    ) -> tuple[list[tuple[str, _MergedCounts]], list[tuple[str, _MergedCounts]]]:
        """By the hash of the task, so that no task is on both sides and a resumed run splits alike."""
        share = self.options.validation_share
        aside = {task for task, _ in chosen if int(digest(["validation", task]), 16) < share * 16**16}
        held = [item for item in chosen if item[0] in aside]
        if len(held) == len(chosen):
            return chosen, []
        return [item for item in chosen if item[0] not in aside], held

    async def _train(
        self, learner: Learner, sequences: list[Merged], validation: list[Part], context: Context
    ) -> dict[str, float]:
        options = self.options
        units = len({sequence.unit for sequence in sequences})
        per_epoch = -(-units // options.batch)
        total = options.epochs * per_epoch
        best, best_weights, worse, losses = float("inf"), None, 0, [0.0]
        epoch = 0
        for epoch in range(1, options.epochs + 1):
            losses = []
            for batch in minibatches(sequences, options.batch, random.Random(f"{options.seed}/{epoch}")):
                cut = parts(batch, options.part_tokens)
                rate = options.optim.rate(learner.updates, total)
                losses.append(learner.update(cut, cloning_loss(cut), rate=rate).loss)
                context.progress("cloning", learner.updates, total, loss=losses[-1])
                await asyncio.sleep(0)  # a long computation in an event loop others live in too
            if not validation:
                continue
            loss = mean_loss(learner.decoder, validation)
            if loss < best:
                best, worse = loss, 0
                best_weights = {name: w.detach().clone() for name, w in learner.decoder.weights().items()}
            else:
                worse += 1
                if worse >= options.patience:
                    break
        if best_weights is not None:
            learner.decoder.copy_from(best_weights)
        figures = {
            "loss": sum(losses) / len(losses),
            "epochs": float(epoch),
            "updates": float(learner.updates),
        }
        return figures | ({"validation_loss": best} if validation else {})


_MergedCounts = tuple[list[Merged], Counts]
