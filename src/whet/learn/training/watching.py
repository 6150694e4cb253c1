"""The training dynamics of examples that weights are fitted to, read off the passes that training makes anyway."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ...record.store import Log
from ..datasets.dynamics import note_epoch
from . import processes
from .batch import Merged, MicroBatch
from .learner import Loss
from .predictions import Predictions

_HALF = math.log(0.5)
_SURE = math.log(3)
"""Log odds of three quarters: of two judgements chance alone makes one the likelier."""


class Watched:
    """Enters into a log, an epoch at a time, what the weights thought of each example before they learned from it.

    It costs two sums over numbers that the loss has computed.

    Args:
        examples: number → digest of the example; those without one, such as a guard's, are passed over.
        numbers: of all that one epoch learns from.
        key: of the training among those of one `improve`.
    """

    def __init__(self, examples: Mapping[int, str], numbers: Sequence[int], log: Log, key: str) -> None:
        self._log, self._key, self._epoch = log, key, 0
        self._examples = {number: example for number, example in examples.items() if example}
        self._units = 1 + max((*numbers, *examples), default=0)
        self._judged = False
        self._left = len(set(numbers))
        self._all = self._left
        self._sums: Tensor | None = None

    @classmethod
    def cloning(cls, sequences: Sequence[Merged], log: Log, key: str) -> Watched:
        """Of sequences whose unit is the number of their example."""
        examples = {sequence.unit: sequence.example for sequence in sequences}
        return cls(examples, [sequence.unit for sequence in sequences], log, key)

    def judged(self, numbers: Tensor, odds: Tensor) -> None:
        """What a loss says of examples (P,) that have a judgement: its log odds (P,).

        What is computed without gradients, of examples that are kept aside, is passed over.
        """
        if self._examples and torch.is_grad_enabled():
            odds = odds.detach().float()
            self._judged = True
            self._add(numbers, F.logsigmoid(odds), odds <= _SURE)

    def reading(self, loss: Loss) -> Loss:
        """The loss, which is read as it is computed."""
        if not self._examples:
            return loss

        def read(predictions: Predictions, part: MicroBatch) -> Tensor:
            value = loss(predictions, part)
            chosen = predictions.chosen.detach().float()
            self._add(part.units, chosen, chosen < _HALF)
            return value

        return read

    def learned(self, units: int) -> None:
        """So many examples were learned from; after the last one of an epoch it is entered."""
        self._left -= units
        if self._left or self._sums is None:
            return
        sums = self._sums.cpu()
        # Each process has seen its own share of the examples.
        shared = {f"{row}/{unit}": float(sums[row, unit]) for row in range(3) for unit in self._examples}
        if processes.place().size > 1:
            processes.add_up_sums(shared)
        seen = [unit for unit in self._examples if shared[f"1/{unit}"]]
        note_epoch(
            self._log,
            f"{self._key}{self._epoch}",
            [self._examples[unit] for unit in seen],
            [math.exp(shared[f"0/{unit}"] / shared[f"1/{unit}"]) for unit in seen],
            [not shared[f"2/{unit}"] for unit in seen],
            judged=self._judged,
        )
        self._epoch, self._left, self._sums = self._epoch + 1, self._all, None

    def _add(self, units: Tensor, logs: Tensor, wrong: Tensor) -> None:
        """The example (N,) of each target or judgement, its log-probability (N,), and if it is wrong (N,)."""
        if self._sums is None:
            self._sums = torch.zeros(3, self._units, device=logs.device)
        # On the device: to ask for the numbers at every part would make it wait.
        self._sums.index_add_(1, units, torch.stack([logs, torch.ones_like(logs), wrong.float()]))
