"""Epochs over a fixed set of examples: shuffled batches, early stopping, the best weights kept.

What offline methods share once their examples are made.  An example is a number; the
method says how a batch of them is cut into parts and what is minimised on each.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import TypeVar

import torch
from torch import Tensor

from ..loop import Context
from ..types import digest
from .cloning import CloneOptions
from .learner import Learner

T = TypeVar("T")


def kept_aside(tasks: Sequence[str], share: float) -> tuple[list[int], list[int]]:
    """Numbers of the examples to train on and of those kept aside, by the hash of their task."""
    aside = {task for task in tasks if int(digest(["validation", task]), 16) < share * 16**16}
    train = [number for number, task in enumerate(tasks) if task not in aside]
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
) -> dict[str, float]:
    """Minimise an objective over examples; what was measured.

    Args:
        numbers: the examples.
        cut: a batch of them as parts, each of which is computed at once.
        objective: (part, examples in the batch) → its share of the batch's mean loss.
        held: examples for early stopping; without any, all epochs are made.

    Raises:
        TrainingRefused: the objective is not finite, or memory ran out.
    """
    per_epoch = -(-len(numbers) // options.batch)
    total = options.epochs * per_epoch
    best, best_weights, worse, losses, epoch = float("inf"), None, 0, [0.0], 0
    for epoch in range(1, options.epochs + 1):
        order = list(numbers)
        random.Random(f"{options.seed}/{epoch}").shuffle(order)
        losses = []
        for start in range(0, len(order), options.batch):
            batch = order[start : start + options.batch]
            rate = options.optim.rate(learner.updates, total)
            loss, _ = learner.descend(cut(batch), _sized(objective, len(batch)), rate=rate)
            losses.append(loss)
            context.progress(name, learner.updates, total, loss=loss)
            await asyncio.sleep(0)  # a long computation in an event loop others live in too
        if not held:
            continue
        with torch.no_grad():
            value = sum(float(objective(part, len(held))) for part in cut(held))
        if value < best:
            best, worse, best_weights = value, 0, learner.snapshot()
        else:
            worse += 1
            if worse >= options.patience:
                break
    if best_weights is not None:
        learner.revert(best_weights)
    figures = {"loss": fmean(losses), "epochs": float(epoch), "updates": float(learner.updates)}
    return figures | ({"validation_loss": best} if held else {})


def _sized(objective: Callable[[T, int], Tensor], count: int) -> Callable[[T], Tensor]:
    return lambda part: objective(part, count)
