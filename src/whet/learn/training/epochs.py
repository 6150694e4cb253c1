"""Offline training: shuffled epochs over a fixed set of examples, early stopping, the best weights kept.

Every offline method is an `Offline` optimizer and runs on the one loop, `passes`.  An example is
a number; the method says how a batch of them is trained on.
"""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Generic, TypeVar

import torch
from torch import Tensor

from ...errors import InputError
from ...types import Bundle, Group, Json, Version, digest
from ..loop import Context, Update
from .learner import Learner
from .local import LocalModels
from .one_call import Trainable
from .options import CloneOptions
from .watching import Watched

T = TypeVar("T")
Options = TypeVar("Options", bound=CloneOptions)


def starting(bundle: Bundle, resource: str) -> Version:
    """The weights of a Bundle.

    Raises:
        InputError: it has none of that name.
    """
    if resource not in bundle:
        raise InputError(
            f"the bundle has no resource {resource!r}, only {sorted(bundle)}; "
            "put one there with whet.learn.training.local.fresh(...)"
        )
    return bundle[resource]


def learner_of(models: LocalModels, version: Version, options: CloneOptions) -> Learner:
    """A learner that begins with these weights."""
    policy_version = int(version.meta.get("policy_version", 0))
    network = models.decoder(version, to_share=True)
    return models.learn(network, options.optim, rates=options.rates, policy_version=policy_version)


class Offline(Trainable, ABC, Generic[Options]):
    """An Optimizer that learns from given groups alone; one `step` is the whole training.

    Interrupted, it is run again from the same seed to the same weights.

    Args:
        models: where weights live; the process's own if None.
    """

    name: str
    group_size = 0
    on_policy = False
    ordered = False

    def __init__(self, options: Options, *, models: LocalModels | None = None) -> None:
        self.options: Options = options
        self.models = models or LocalModels.shared()

    async def step(self, bundle: Bundle, groups: Sequence[Group], context: Context) -> Update:
        """Train to the end on these groups; `done` is always True.

        Raises:
            InputError: the Bundle has no weights under the resource's name.
            TrainingRefused: there is nothing to learn from; says why.
        """
        start = starting(bundle, self.options.resource)
        self.options = self.models.sized(self.options, start)
        version, figures = await self._train(start, bundle, groups, context)
        return Update(bundle=bundle.put(version), metrics=figures, done=True, reason="trained to the end")

    @abstractmethod
    async def _train(
        self, start: Version, bundle: Bundle, groups: Sequence[Group], context: Context
    ) -> tuple[Version, dict[str, float]]:
        """The Version that training makes of `start`, and what was measured."""

    def _meta(self, **meta: Json) -> dict[str, Json]:
        return {"method": self.name, **meta, "seed": self.options.seed}

    def _checkpoint(self, learner: Learner, start: Version, context: Context) -> Version:
        return learner.checkpoint(self.options.resource, context.folder, start.id, self._meta())


def kept_aside(tasks: Sequence[str], share: float) -> tuple[list[int], list[int]]:
    """Numbers of the examples to train on and of those kept aside, by the hash of their task."""
    # By hash and not by a draw: a task stays on its side when others come, in every run and process.
    aside = {task for task in tasks if int(digest(["validation", task]), 16) < share * 16**16}
    train = [number for number, task in enumerate(tasks) if task not in aside]
    # A share that takes every task leaves none to train on: then nothing is kept aside.
    if not train:
        return list(range(len(tasks))), []
    return train, [number for number, task in enumerate(tasks) if task in aside]


async def epochs(
    learner: Learner,
    numbers: Sequence[int],
    cut: Callable[[Sequence[int]], Sequence[T]],
    objective: Callable[[T, int], Tensor],
    *,
    options: CloneOptions,
    context: Context,
    name: str,
    held: Sequence[int] = (),
    watched: Watched | None = None,
) -> dict[str, float]:
    """Minimise an objective over examples; what was measured.

    Args:
        numbers: the examples.
        cut: a batch of them as parts, each of which is computed at once.
        objective: (part, examples in the batch) → its share of the batch's mean loss.
        held: examples for early stopping; without any, all epochs are made.
        watched: is told by the objective what it says of each example; enters its epochs here.

    Raises:
        TrainingRefused: the objective is not finite, or memory ran out.
    """

    def update(batch: list[int], rate: float) -> float:
        loss = learner.descend(cut(batch), lambda part: objective(part, len(batch)), rate=rate)[0]
        if watched is not None:
            watched.learned(len(batch))
        return loss

    @torch.no_grad()
    def held_loss() -> float:
        return sum(float(objective(part, len(held))) for part in cut(held))

    return await passes(
        learner,
        numbers,
        update,
        options=options,
        context=context,
        name=name,
        validate=held_loss if held else None,
    )


async def passes(
    learner: Learner,
    numbers: Sequence[int],
    update: Callable[[list[int], float], float],
    *,
    options: CloneOptions,
    context: Context,
    name: str,
    validate: Callable[[], float] | None,
) -> dict[str, float]:
    """Epochs over these examples until the validation loss rises or the last one is done.

    Args:
        update: (batch, learning rate) → loss of one optimizer step.
        validate: the loss on what is kept aside; None makes all epochs.
    """
    per_epoch = -(-len(numbers) // options.batch)
    total = options.epochs * per_epoch
    best, best_weights, worse, losses, epoch = float("inf"), None, 0, [0.0], 0
    for epoch in range(1, options.epochs + 1):
        order = list(numbers)
        # A generator for each epoch: a run that goes on shuffles as one that was never cut off.
        random.Random(f"{options.seed}/{epoch}").shuffle(order)
        losses = []
        for start in range(0, len(order), options.batch):
            rate = learner.options.rate(learner.updates, total)
            losses.append(update(order[start : start + options.batch], rate))
            context.progress(name, learner.updates, total, loss=losses[-1])
            await asyncio.sleep(0)  # a long computation in an event loop others live in too
        if validate is None:
            continue
        loss = validate()
        if loss < best:
            best, worse, best_weights = loss, 0, learner.snapshot()
        else:
            worse += 1
            if worse >= options.patience:
                break
    if best_weights is not None:
        # Moments stay those of the last epoch; nothing is trained after this.
        learner.revert(best_weights)
    figures = {"loss": fmean(losses), "epochs": float(epoch), "updates": float(learner.updates)}
    return figures | ({"validation_loss": best} if validate else {})
