"""Muon for the hidden matrices, AdamW for everything else, with state that saves exactly.

Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/) replaces a
matrix's momentum by the nearest orthogonal matrix, approximated by five
Newton–Schulz steps.  Its update is scaled by 0.2·√max(out, in), which gives it
the root mean square of an AdamW update (Liu et al. 2025, "Muon is scalable for
LLM training"), so that one learning rate serves both.  Differences from Jordan's
code: float32 rather than bfloat16, and matrices of one shape go through together.
The tied embedding, biases and norms are AdamW's.

Weights that compute in bfloat16 have masters in float32, and gradients in float32 where torch can keep them
(2.10 and later): an update of a thousandth is lost in bfloat16's eight bits (Micikevicius et al. 2018).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from ...errors import InputError
from . import sharding
from .memory import STEPPED_TOGETHER
from .options import OptimOptions as OptimOptions


def orthogonalise(matrices: Tensor) -> Tensor:
    """The orthogonal factor of each (…, out, in) matrix, roughly: singular values end up in about [0.7, 1.2].

    Quintic Newton–Schulz iteration with Jordan's coefficients.
    """
    a, b, c = 3.4445, -4.7750, 2.0315  # chosen for speed: they overshoot 1 and never settle
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if tall else matrices
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    result: Tensor = x.mT if tall else x
    return result


_NOT_HIDDEN = ("embed", "head", "lora_")


class MuonAdamW:
    """Updates parameters in place from the gradients on them.

    Args:
        options: settled (`OptimOptions.settled`).
        weights: name → parameter; matrices that are neither an embedding, a head nor a factor of a LoRA
            (whose product is the matrix) are Muon's.
    """

    def __init__(self, weights: Mapping[str, nn.Parameter], options: OptimOptions) -> None:
        self.options = options
        self.steps = 0
        self._muon: dict[tuple[int, ...], list[str]] = {}
        self._adam: list[str] = []
        self._weights = dict(weights)
        self._state: dict[str, Tensor] = {}
        for name, weight in self._weights.items():
            self._keep_master(name, weight)
            # Names are looked at too: an embedding and a head are matrices, and AdamW's.
            if weight.ndim == 2 and options.muon and not any(word in name for word in _NOT_HIDDEN):
                self._muon.setdefault(tuple(weight.shape), []).append(name)
                self._state[f"{name}/momentum"] = _zeros(weight)
            else:
                self._adam.append(name)
                self._state[f"{name}/first"] = _zeros(weight)
                self._state[f"{name}/second"] = _zeros(weight)

        self._groups = _groups(self._adam, self._weights)

    def _keep_master(self, name: str, weight: nn.Parameter) -> None:
        if weight.dtype is torch.float32:
            return
        self._state[f"{name}/master"] = sharding.own(weight.data).float()
        if hasattr(weight, "grad_dtype"):
            # Or the gradients of a step's many parts would be added up in eight bits.
            weight.grad_dtype = torch.float32

    def values(self) -> dict[str, Tensor]:
        """What is trained, by reference: this process's share of each weight, or its master."""
        return {
            name: self._state.get(f"{name}/master", sharding.own(weight.data))
            for name, weight in self._weights.items()
        }

    @torch.no_grad()
    def publish(self) -> None:
        """Round masters to the weights that compute."""
        mastered = {
            name: master
            for name in self._weights
            if (master := self._state.get(f"{name}/master")) is not None
        }
        if mastered:
            own = [sharding.own(self._weights[name].data) for name in mastered]
            torch._foreach_copy_(own, list(mastered.values()))

    def gradient_norm(self) -> float:
        """Euclidean length of the whole gradient."""
        return sharding.length({name: w.grad for name, w in self._weights.items() if w.grad is not None})

    @torch.no_grad()
    def step(self, rate: float, norm: float) -> None:
        """One update with this learning rate; `norm` is `gradient_norm()`.  Clears the gradients."""
        scale = min(1.0, self.options.max_norm / (norm + 1e-6))
        self.steps += 1
        decay = 1.0 - rate * self.options.weight_decay
        weights = self.values()
        there = [sharding.own(weight.grad) for weight in self._weights.values() if weight.grad is not None]
        if scale < 1.0 and there:
            # In place, as they are thrown away: a copy of all would be the step's peak of memory.
            torch._foreach_mul_(there, scale)
        gradients = {
            # No gradient is a gradient of zero, so momenta decay; torch's optimizers pass such a weight over.
            name: torch.zeros_like(weights[name])
            if weight.grad is None
            else sharding.own(weight.grad).to(weights[name].dtype)
            for name, weight in self._weights.items()
        }
        for shape, names in self._muon.items():
            momenta = [self._state[f"{name}/momentum"] for name in names]
            for momentum, name in zip(momenta, names, strict=True):
                momentum.lerp_(gradients[name], 1.0 - self.options.momentum)
            ahead = [
                sharding.gathered(gradients[name].lerp(momentum, self.options.momentum), self._weights[name])
                for name, momentum in zip(names, momenta, strict=True)
            ]
            # Whole matrices: the orthogonal factor of a share is not the share of the factor.
            updates = orthogonalise(torch.stack(ahead)).unbind(0)
            for name, update in zip(names, updates, strict=True):
                mine = sharding.share_of(update, self._weights[name])
                # `shape` is the whole matrix's, also where this process holds a share of it.
                weights[name].mul_(decay).add_(mine, alpha=-rate * 0.2 * max(shape) ** 0.5)
        first_beta, second_beta = self.options.betas
        for names in self._groups:
            group, slopes = [weights[name] for name in names], [gradients[name] for name in names]
            first = [self._state[f"{name}/first"] for name in names]
            second = [self._state[f"{name}/second"] for name in names]
            torch._foreach_lerp_(first, slopes, 1.0 - first_beta)
            torch._foreach_lerp_(second, torch._foreach_mul(slopes, slopes), 1.0 - second_beta)
            corrected = torch._foreach_div(second, 1.0 - second_beta**self.steps)
            torch._foreach_sqrt_(corrected)
            torch._foreach_add_(corrected, 1e-8)
            decayed = [weight for weight in group if weight.ndim == 2]  # norms and biases are not
            if decayed and decay < 1.0:
                torch._foreach_mul_(decayed, decay)
            torch._foreach_addcdiv_(group, first, corrected, value=-rate / (1.0 - first_beta**self.steps))
        self.publish()
        self.clear()

    def clear(self) -> None:
        """Forget the gradients without an update."""
        for weight in self._weights.values():
            weight.grad = None

    def state(self) -> dict[str, Tensor]:
        """Everything that the next update depends on, but for `steps`."""
        return {
            name: sharding.gathered(tensor, self._weights[name.rpartition("/")[0]])
            for name, tensor in self._state.items()
        }

    def restore(self, tensors: Mapping[str, Tensor], steps: int) -> None:
        """Go on from what `state` returned.

        Raises:
            InputError: it is another model's.
        """
        if set(tensors) != set(self._state):
            raise InputError(
                "this optimizer state belongs to another model; resume with the model it was saved with"
            )
        for name, tensor in self._state.items():
            weight = self._weights[name.rpartition("/")[0]]
            if weight.shape != tensors[name].shape:
                raise InputError(
                    f"optimizer state {name}: shape {tuple(tensors[name].shape)}, not {tuple(weight.shape)}"
                )
            tensor.copy_(sharding.share_of(tensors[name].to(tensor.device), weight))
        self.steps = steps


def _groups(names: Sequence[str], weights: Mapping[str, nn.Parameter]) -> list[list[str]]:
    """Names whose tensors go through a step together: on one device, of several at most STEPPED_TOGETHER elements."""
    groups: dict[torch.device, list[list[str]]] = {}
    sizes: dict[torch.device, int] = {}
    for name in names:
        device, count = weights[name].device, sharding.own(weights[name].data).numel()
        if device not in groups or sizes[device] + count > STEPPED_TOGETHER:
            groups.setdefault(device, []).append([])
            sizes[device] = 0
        groups[device][-1].append(name)
        sizes[device] += count
    return [group for some in groups.values() for group in some]


def _zeros(weight: nn.Parameter) -> Tensor:
    """Moments of a weight, or of this process's share of it."""
    return torch.zeros_like(sharding.own(weight.data), dtype=torch.float32)
