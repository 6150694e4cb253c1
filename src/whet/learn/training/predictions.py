"""Predictions at the targets of a MicroBatch: log-probabilities and entropies, in pieces.

A row of logits is as long as the vocabulary, and training needs two numbers of it.  So the logits
of a few targets at a time are made, read and thrown away, and made again for the gradient: memory
grows with targets × width, not with targets × vocabulary (as in Liger's and Apple's fused
cross-entropy, here in plain torch, with the entropy too).  Networks that scale or cap their logits
give them whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .batch import MicroBatch
from .losses import exact_kl
from .memory import PIECE


@dataclass(slots=True)
class Output:
    """States, and the weights of the Linear that makes logits of them, or the logits themselves."""

    states: Tensor
    """(N, hidden)"""
    weight: Tensor | None = None
    """(vocabulary, hidden)"""
    bias: Tensor | None = None
    logits: Tensor | None = None
    """(N, vocabulary) where no weight makes them"""

    def logprobs(self, rows: slice, temperature: float) -> Tensor:
        """(n, vocabulary) in float32."""
        if self.weight is None:
            assert self.logits is not None
            logits = self.logits[rows]
        else:
            logits = F.linear(self.states[rows], self.weight, self.bias)
        return torch.log_softmax(
            logits.float() / temperature if temperature != 1.0 else logits.float(), dim=-1
        )

    @property
    def vocabulary(self) -> int:
        """Ids that can be predicted."""
        logits = self.weight if self.weight is not None else self.logits
        assert logits is not None
        return logits.shape[0] if self.weight is not None else logits.shape[1]


class Predictions:
    """Predictions at the N targets of a MicroBatch; differentiable in the network's weights.

    Args:
        temperature: divides the logits.
        piece: logits held at once.
    """

    def __init__(
        self, output: Output, part: MicroBatch, *, temperature: float = 1.0, piece: int = PIECE
    ) -> None:
        self.output = output
        self.temperature = temperature
        self.device = part.targets.device
        # Targets and losses are on the part's device, states on the network's; only rows of numbers cross.
        self._targets = part.targets.to(output.states.device)
        self._rows = max(1, piece // output.vocabulary)
        self._both: tuple[Tensor, Tensor] | None = None

    @property
    def chosen(self) -> Tensor:
        """(N,) log-probability of each target."""
        return self._numbers()[0]

    @property
    def entropy(self) -> Tensor:
        """(N,) of the distribution that each target was drawn from, in nats."""
        return self._numbers()[1]

    def logprobs(self) -> Tensor:
        """(N, vocabulary), all at once; for small vocabularies."""
        return self.output.logprobs(slice(None), self.temperature).to(self.device)

    @torch.no_grad()
    def divergence(self, reference: Predictions) -> Tensor:
        """(N,) exact KL from a reference's predictions to these, without a gradient."""
        divergences = [
            exact_kl(
                self.output.logprobs(rows, self.temperature),
                reference.output.logprobs(rows, reference.temperature),
            )
            for rows in _pieces(len(self._targets), self._rows)
        ]
        return torch.cat(divergences).to(self.device)

    def _numbers(self) -> tuple[Tensor, Tensor]:
        if self._both is None:
            output = self.output
            if output.weight is None:
                scores = output.logprobs(slice(None), self.temperature)
                chosen = scores.gather(1, self._targets.unsqueeze(1)).squeeze(1)
                both = chosen, -torch.linalg.vecdot(scores.exp(), scores)
            else:
                both = _Read.apply(  # type: ignore[no-untyped-call]
                    output.states, output.weight, output.bias, self._targets, self.temperature, self._rows
                )
            self._both = both[0].to(self.device), both[1].to(self.device)
        return self._both


def _pieces(count: int, rows: int) -> Iterator[slice]:
    return (slice(start, min(start + rows, count)) for start in range(0, count, rows))


class _Read(torch.autograd.Function):
    """States and an output layer → log-probability of each target and entropy, `rows` targets at a time."""

    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        temperature: float,
        rows: int,
    ) -> tuple[Tensor, Tensor]:
        output = Output(states, weight, bias)
        chosen, entropies = [], []
        whole_scores = None
        for some in _pieces(len(states), rows):
            scores = output.logprobs(some, temperature)
            chosen.append(scores.gather(1, targets[some].unsqueeze(1)).squeeze(1))
            # A logit of −∞ would be 0 · −∞ = NaN here: networks must give every id a finite logit.
            entropies.append(-torch.linalg.vecdot(scores.exp(), scores))
            # Kept only where one piece is all: kept pieces together would be the rows that this avoids.
            whole_scores = scores if len(states) <= rows else None
        entropy = torch.cat(entropies)
        ctx.save_for_backward(states, weight, bias, targets, entropy, whole_scores)
        ctx.temperature, ctx.rows = temperature, rows
        return torch.cat(chosen), entropy

    @staticmethod
    def backward(ctx: Any, of_chosen: Tensor, of_entropy: Tensor) -> Any:
        states, weight, bias, targets, entropy, whole_scores = ctx.saved_tensors
        output = Output(states, weight, bias)
        # `empty`, because every row is written by the piece that it is in.
        to_states = torch.empty_like(states) if ctx.needs_input_grad[0] else None
        # In float32: what a hundredth piece adds would be lost in bfloat16's eight bits.
        to_weight = torch.zeros_like(weight, dtype=torch.float32) if ctx.needs_input_grad[1] else None
        to_bias = torch.zeros_like(bias) if bias is not None and ctx.needs_input_grad[2] else None
        for some in _pieces(len(states), ctx.rows):
            scores = output.logprobs(some, ctx.temperature) if whole_scores is None else whole_scores
            # d chosen = 1[target] − p and d entropy = −p (log p + entropy), of the scaled logits
            by_chosen, by_entropy = of_chosen[some].unsqueeze(1), of_entropy[some].unsqueeze(1)
            gradient = scores + entropy[some].unsqueeze(1)
            # The factor p comes before 1[target] is added, which it must not touch.
            gradient.mul_(-by_entropy).sub_(by_chosen).mul_(scores.exp())
            gradient.scatter_add_(1, targets[some].unsqueeze(1), by_chosen)
            gradient = (gradient / ctx.temperature if ctx.temperature != 1.0 else gradient).to(states.dtype)
            if to_states is not None:
                torch.mm(gradient, weight, out=to_states[some])
            if to_weight is not None:
                if weight.dtype is torch.float32:
                    to_weight.addmm_(gradient.T, states[some])
                else:
                    to_weight += gradient.T @ states[some]
            if to_bias is not None:
                to_bias += gradient.sum(dim=0)
            # Or they would lie beside the next piece's while that is made.
            del scores, gradient
        return to_states, to_weight, to_bias, None, None, None
