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
from .compiled import on_gpu
from .losses import exact_kl
from .memory import most_logits


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
        piece: logits held at once; as many as `most_logits` says if None.
    """

    def __init__(
        self, output: Output, part: MicroBatch, *, temperature: float = 1.0, piece: int | None = None
    ) -> None:
        self.output = output
        self.temperature = temperature
        self.device = part.targets.device
        # Targets and losses are on the part's device, states on the network's; only rows of numbers cross.
        self._targets = part.targets.to(output.states.device)
        held = piece or most_logits(on_cpu=output.states.device.type == "cpu")
        self._rows = max(1, held // output.vocabulary)
        self._chosen: Tensor | None = None
        self._entropy: Tensor | None = None

    @property
    def chosen(self) -> Tensor:
        """(N,) log-probability of each target."""
        if self._chosen is None:
            self._read(entropies=False)
        assert self._chosen is not None
        return self._chosen

    @property
    def entropy(self) -> Tensor:
        """(N,) of the distribution that each target was drawn from, in nats.

        Whoever needs `chosen` too asks for this first: it gives both in one pass.
        """
        if self._entropy is None:
            self._read(entropies=True)
        assert self._entropy is not None
        return self._entropy

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

    def _read(self, *, entropies: bool) -> None:
        output = self.output
        entropy: Tensor | None = None
        if output.weight is None:
            assert output.logits is not None
            chosen, _, entropy = _read(output.logits, self._targets, self.temperature, entropies)
        else:
            chosen, entropy = _Read.apply(  # type: ignore[no-untyped-call]
                output.states,
                output.weight,
                output.bias,
                self._targets,
                self.temperature,
                self._rows,
                entropies,
            )
        self._chosen = chosen.to(self.device)
        self._entropy = entropy.to(self.device) if entropy is not None else self._entropy


def _pieces(count: int, rows: int) -> Iterator[slice]:
    return (slice(start, min(start + rows, count)) for start in range(0, count, rows))


@on_gpu
def _read(
    logits: Tensor, targets: Tensor, temperature: float, entropies: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """(n, vocabulary) logits → (n,) log-probability of each target, what is taken off its logits, and entropy."""
    scaled = logits.float() / temperature if temperature != 1.0 else logits.float()
    scores = torch.log_softmax(scaled, dim=-1)
    columns = targets.unsqueeze(1)
    chosen = scores.gather(1, columns).squeeze(1)
    total = scaled.gather(1, columns).squeeze(1) - chosen
    # A logit of −∞ would be 0 · −∞ = NaN here: networks must give every id a finite logit.
    return chosen, total, -torch.linalg.vecdot(scores.exp(), scores) if entropies else None


@on_gpu
def _gradient(
    logits: Tensor,
    targets: Tensor,
    temperature: float,
    total: Tensor,
    entropy: Tensor | None,
    of_chosen: Tensor,
    of_entropy: Tensor | None,
) -> Tensor:
    """(n, vocabulary) gradient of the logits, in their dtype, from what `_read` gave and the gradients of it."""
    scaled = logits.float() / temperature if temperature != 1.0 else logits.float()
    scores = scaled - total.unsqueeze(1)
    by_chosen = of_chosen.unsqueeze(1)
    # d chosen = 1[target] − p and d entropy = −p (log p + entropy), of the scaled logits
    if of_entropy is None or entropy is None:
        gradient = scores.exp_().mul_(-by_chosen)
    else:
        factor = scores + entropy.unsqueeze(1)
        # The factor p comes before 1[target] is added, which it must not touch.
        gradient = factor.mul_(-of_entropy.unsqueeze(1)).sub_(by_chosen).mul_(scores.exp_())
    gradient.scatter_add_(1, targets.unsqueeze(1), by_chosen)
    return (gradient / temperature if temperature != 1.0 else gradient).to(logits.dtype)


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
        entropies: bool,
    ) -> tuple[Tensor, Tensor | None]:
        found: list[tuple[Tensor, Tensor, Tensor | None]] = []
        whole = None
        for some in _pieces(len(states), rows):
            logits = F.linear(states[some], weight, bias)
            found.append(_read(logits, targets[some], temperature, entropies))
            # Kept only where one piece is all: kept pieces together would be the rows that this avoids.
            whole = logits if len(states) <= rows else None
        chosen = torch.cat([one for one, _, _ in found])
        total = torch.cat([one for _, one, _ in found])
        entropy = torch.cat([one for _, _, one in found if one is not None]) if entropies else None
        ctx.save_for_backward(states, weight, bias, targets, total, entropy, whole)
        ctx.temperature, ctx.rows = temperature, rows
        # What nobody takes a gradient of comes back as None, and not as zeros to be multiplied with.
        ctx.set_materialize_grads(False)
        return chosen, entropy

    @staticmethod
    def backward(ctx: Any, of_chosen: Tensor | None, of_entropy: Tensor | None) -> Any:
        states, weight, bias, targets, total, entropy, whole = ctx.saved_tensors
        if of_chosen is None:
            of_chosen = torch.zeros_like(total)
        # `empty`, because every row is written by the piece that it is in.
        to_states = torch.empty_like(states) if ctx.needs_input_grad[0] else None
        # In float32: what a hundredth piece adds would be lost in bfloat16's eight bits.
        to_weight = torch.zeros_like(weight, dtype=torch.float32) if ctx.needs_input_grad[1] else None
        to_bias = torch.zeros_like(bias) if bias is not None and ctx.needs_input_grad[2] else None
        for some in _pieces(len(states), ctx.rows):
            gradient = _gradient(
                F.linear(states[some], weight, bias) if whole is None else whole,
                targets[some],
                ctx.temperature,
                total[some],
                None if entropy is None else entropy[some],
                of_chosen[some],
                None if of_entropy is None else of_entropy[some],
            )
            if to_states is not None:
                torch.mm(gradient, weight, out=to_states[some])
            if to_weight is not None:
                if weight.dtype is torch.float32:
                    to_weight.addmm_(gradient.T, states[some])
                else:
                    to_weight += gradient.T @ states[some]
            if to_bias is not None:
                to_bias += gradient.sum(dim=0)
            # Or it would lie beside the next piece's while that is made.
            del gradient
        return to_states, to_weight, to_bias, None, None, None, None
