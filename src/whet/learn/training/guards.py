"""Against forgetting: what keeps a policy able to do what it could before it learned something new.

- `ewc`: λ/2 Σ F (θ − θ*)², Kirkpatrick et al. 2017; F is the diagonal Fisher information
  on the old trajectories, of labels *sampled* from the model, not of the recorded ones.
- `l2sp`: the same with F = 1, Li et al. 2018: cheap, and worse at both tasks.
- `replay`: old trajectories mixed into every epoch of the new ones.
- a divergence from the first weights is an option of the methods (`kl_coefficient`).

`whet.prove.verdict.guarded` is the other half: a suite whose drop takes a promotion back.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from ...errors import InputError, TrainingRefused
from ...types import Group
from .batch import Merged, merge, parts
from .learner import Learner, logprobs
from .network import Network


@dataclass(frozen=True, kw_only=True)
class GuardOptions:
    """Settings of a guard against forgetting."""

    ewc: float = 0.0
    """λ of elastic weight consolidation; 0 switches it off."""
    l2sp: float = 0.0
    """Weight of the distance from the first weights; 0 switches it off."""
    replay: float = 0.0
    """Old trajectories in each epoch, as a share of the new ones."""
    fisher_samples: int = 200
    """Old sequences that the Fisher information is estimated on."""
    seed: int = 0
    """Of the sampled labels and of what is replayed."""

    def __post_init__(self) -> None:
        if min(self.ewc, self.l2sp, self.replay) < 0 or self.fisher_samples < 1:
            raise InputError(f"ewc, l2sp and replay must be 0 or more, fisher_samples 1 or more; got {self}")


@dataclass(frozen=True)
class Guard:
    """Trajectories of old skills, and how they are held on to.

    Args:
        groups: trajectories of what the policy can do already; EWC and replay need them.
    """

    groups: Sequence[Group] = ()
    options: GuardOptions = field(default_factory=GuardOptions)

    def protect(self, learner: Learner) -> None:
        """Make every update of this learner pay for moving away from where it is now.

        Raises:
            TrainingRefused: EWC without old trajectories that have tokens.
        """
        options = self.options
        terms: list[Callable[[], Tensor]] = []
        # A copy: these tensors are the weights themselves, which change in place.
        anchor = {name: weight.detach().clone() for name, weight in learner.decoder.weights().items()}
        if options.l2sp:
            terms.append(quadratic(learner.decoder, anchor, None, options.l2sp))
        if options.ewc:
            information = fisher(learner.decoder, self._sequences()[: options.fisher_samples], options.seed)
            terms.append(quadratic(learner.decoder, anchor, information, options.ewc))
        if terms:
            learner.penalty = lambda: torch.stack([term() for term in terms]).sum()

    def mixed(self, new: Sequence[Merged]) -> list[Merged]:
        """The new sequences, and old ones for replay, numbered behind them."""
        share = self.options.replay
        if not share:
            return list(new)
        old = self._sequences()
        count = min(len(old), round(share * len({sequence.unit for sequence in new})))
        after = max((sequence.unit for sequence in new), default=-1) + 1
        drawn = random.Random(self.options.seed).sample(old, count)
        # Copies with units behind the new ones: units that are equal would be one trajectory to `fit`.
        return [*new, *(replace(sequence, unit=after + offset) for offset, sequence in enumerate(drawn))]

    def _sequences(self) -> list[Merged]:
        every = [t for group in self.groups for t in group.trajectories]
        sequences = [
            sequence for unit, trajectory in enumerate(every) for sequence in merge(trajectory, unit)[0]
        ]
        sequences = [sequence for sequence in sequences if sequence.targets]
        if not sequences:
            raise TrainingRefused(
                "EWC and replay hold on to what the policy did before, and there are no trajectories of it "
                "with tokens; give Guard(groups=...) some, or use l2sp"
            )
        # Shuffled, because `fisher_samples` takes the first: recorded tasks come in order.
        random.Random(self.options.seed).shuffle(sequences)
        return sequences


def fisher(network: Network, sequences: Sequence[Merged], seed: int) -> dict[str, Tensor]:
    """Name → diagonal Fisher information, mean over sequences, of labels sampled from the model."""
    generator = torch.Generator().manual_seed(seed)
    weights = network.weights()
    total = {name: torch.zeros_like(weight) for name, weight in weights.items()}
    for sequence in sequences:
        # One at a time: the square of a sum of gradients is not the sum of their squares.
        (part,) = parts([sequence])
        scores = logprobs(network, part)
        drawn = torch.multinomial(scores.detach().exp(), 1, generator=generator)
        gradients = torch.autograd.grad(
            scores.gather(1, drawn).sum(), list(weights.values()), allow_unused=True
        )
        for name, gradient in zip(weights, gradients, strict=True):
            if gradient is not None:
                total[name] += gradient.square() / len(sequences)
    return total


def quadratic(
    network: Network, anchor: Mapping[str, Tensor], weights: Mapping[str, Tensor] | None, strength: float
) -> Callable[[], Tensor]:
    """½ · strength · Σ w (θ − θ*)², to be added to a loss; w = 1 if None."""

    def term() -> Tensor:
        total = torch.zeros(())
        for name, weight in network.weights().items():
            square = (weight - anchor[name]).square()
            total = total + (square if weights is None else weights[name] * square).sum()
        return 0.5 * strength * total

    return term
