"""The training dynamics of examples that weights are fitted to, read off the passes that training makes anyway."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ...record.store import Log
from ..datasets.dynamics import note_epoch
from . import processes
from .batch import Merged, MicroBatch
from .learner import Loss
from .predictions import Predictions

_HALF = math.log(0.5)


class Watched:
    """Enters into a log, an epoch at a time, what the weights thought of each example before they learned from it.

    It costs two sums over numbers that the loss has computed.

    Args:
        sequences: those without an example, such as a guard's, are passed over.
        key: of the training among those of one `improve`.
    """

    def __init__(self, sequences: Sequence[Merged], log: Log, key: str) -> None:
        self._log, self._key, self._epoch = log, key, 0
        self._examples = {sequence.unit: sequence.example for sequence in sequences if sequence.example}
        self._units = 1 + max((sequence.unit for sequence in sequences), default=0)
        self._left = len({sequence.unit for sequence in sequences})
        self._all = self._left
        self._sums: Tensor | None = None

    def reading(self, loss: Loss) -> Loss:
        """The loss, which is read as it is computed."""
        if not self._examples:
            return loss

        def read(predictions: Predictions, part: MicroBatch) -> Tensor:
            value = loss(predictions, part)
            self._take(predictions.chosen.detach().float(), part.units)
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
        )
        self._epoch, self._left, self._sums = self._epoch + 1, self._all, None

    def _take(self, chosen: Tensor, units: Tensor) -> None:
        """Log-probabilities of targets (N,) and the example of each (N,)."""
        if self._sums is None:
            self._sums = torch.zeros(3, self._units, device=chosen.device)
        # On the device: to ask for the numbers at every part would make it wait.
        values = torch.stack([chosen, torch.ones_like(chosen), (chosen < _HALF).float()])
        self._sums.index_add_(1, units, values)
