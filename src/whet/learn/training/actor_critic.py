"""The shared parts of methods with a value head: options, the head, and advantages over every token that was chosen.

A trajectory is one episode of token decisions, in the order in which they were
made, whatever sequences they ended up in.  A step's reward comes at the last
token of its call; a step without tokens (a tool, another agent) rewards the call
before it.  `estimate` fills in advantages, returns and old values; `ActorCriticLoss`
adds the value loss to the policy's.  `ActorCritic` is `Rounds` with such a head; what
a decision is, a token or a choice, is said by the method.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ...types import Outcome, Trajectory
from .batch import Merged, MicroBatch, marked, parts
from .learner import Learner, chosen_logprobs
from .losses import gae, value_loss, whiten
from .network import Network, ScalarHead, predict, target_states
from .options import ActorCriticOptions as ActorCriticOptions
from .policy_gradient import PolicyLoss
from .rounds import Rounds


@dataclass(slots=True)
class Episode:
    """One trajectory with its sequences."""

    trajectory: Trajectory
    sequences: list[Merged]
    rewards: list[float]
    """Of its steps."""


@torch.no_grad()
def estimate(
    episodes: Sequence[Episode],
    network: Network,
    head: ScalarHead,
    reference: Network | None,
    options: ActorCriticOptions,
) -> dict[str, float]:
    """Put advantages, returns and values on the sequences of these episodes; what was measured.

    Args:
        reference: what the KL is to, which is taken off each token's reward `kl_coefficient` times; None
            takes none off.
    """
    everything = [sequence for episode in episodes for sequence in episode.sequences]
    places, total = _numbered(everything)
    values, divergence = torch.zeros(total), torch.zeros(total)
    for part in parts(everything, options.part_tokens):
        # By number: `parts` computes sequences in another order than they were given in.
        places_of = part.extra["row"].long()
        values[places_of] = head(target_states(network, part))
        if reference is not None and options.kl_coefficient:
            there = chosen_logprobs(reference, part, options.temperature)
            divergence[places_of] = part.logprobs - there
    last = _after(episodes, network, head, options.part_tokens)
    advantages, returns = torch.zeros(total), torch.zeros(total)
    for number, episode in enumerate(episodes):
        order = _in_order(episode, places)
        if not order:
            continue
        rewards = _token_rewards(episode, order)
        rows = [row for row, _ in order]
        penalised = [
            reward - options.kl_coefficient * float(divergence[row])
            for reward, row in zip(rewards, rows, strict=True)
        ]
        gains, targets = gae(
            penalised,
            values[rows].tolist(),
            gamma=options.gamma,
            lam=options.lam,
            last_value=last.get(number, 0.0),
        )
        advantages[rows], returns[rows] = torch.tensor(gains), torch.tensor(targets)
    explained = _explained(values, returns)
    if options.whiten:
        # After the returns, which the value head learns and which stay in the reward's unit.
        advantages = whiten(advantages)
    for sequence in everything:
        rows = [int(row) for row in sequence.extra["row"]]
        sequence.advantages = advantages[rows].tolist()
        sequence.extra = {"values": values[rows].tolist(), "returns": returns[rows].tolist()}
    measured = {"value": float(values.mean()), "value_explained": explained}
    return measured | ({"kl_reward": float(divergence.mean())} if reference is not None else {})


def _numbered(sequences: Sequence[Merged]) -> tuple[dict[int, int], int]:
    """Number all targets; sequence (by identity) → its first number."""
    places, total = {}, 0
    for sequence in sequences:
        places[id(sequence)] = total
        sequence.extra = {"row": [float(total + i) for i in range(len(sequence.targets))]}
        total += len(sequence.targets)
    return places, total


def _in_order(episode: Episode, places: dict[int, int]) -> list[tuple[int, int]]:
    """(row, step) of each chosen token, in the order in which they were chosen."""
    decisions = [
        (call, position, places[id(sequence)] + index)
        for sequence in episode.sequences
        for index, (call, position) in enumerate(zip(sequence.calls, sequence.targets, strict=True))
    ]
    # By call first: sequences that forked or interleave hold the calls of one episode out of turn.
    return [(row, call) for call, _, row in sorted(decisions)]


def _token_rewards(episode: Episode, order: Sequence[tuple[int, int]]) -> list[float]:
    """Each step's reward at the last token of its call, or of the call before it, or of the first."""
    ends = {call: index for index, (_, call) in enumerate(order)}
    calls = sorted(ends)
    rewards = [0.0] * len(order)
    for step, reward in enumerate(episode.rewards):
        before = [call for call in calls if call <= step]
        rewards[ends[before[-1] if before else calls[0]]] += reward
    return rewards


def _after(
    episodes: Sequence[Episode], network: Network, head: ScalarHead, part_tokens: int | None
) -> dict[int, float]:
    """Episode number → the value still expected where a limit cut it off; an episode that ended is not in it."""
    cut = []
    for number, episode in enumerate(episodes):
        # Only a limit leaves something to be expected; an episode that ended has 0, as `gae` takes it.
        if episode.trajectory.outcome in (Outcome.TRUNCATED, Outcome.TIMEOUT) and episode.sequences:
            newest = max(episode.sequences, key=lambda sequence: sequence.calls[-1] if sequence.calls else -1)
            cut.append(marked(newest, [len(newest.ids) - 1], episode=[float(number)]))
    expected: dict[int, float] = {}
    for part in parts(cut, part_tokens):
        values = head(target_states(network, part))
        expected |= {int(n): float(v) for n, v in zip(part.extra["episode"], values, strict=True)}
    return expected


def _explained(values: Tensor, returns: Tensor) -> float:
    """1 − Var(R − V) / Var(R); 0 where all returns are the same."""
    spread = float(returns.var(correction=0)) if len(returns) else 0.0
    return 1.0 - float((returns - values).var(correction=0)) / spread if spread > 1e-12 else 0.0


@dataclass(kw_only=True)
class ValueLoss(PolicyLoss, ABC):
    """A policy's loss and its value head's, of one optimizer step."""

    head: ScalarHead
    value_coefficient: float = 0.1
    value_clip: float | None = 0.2

    @abstractmethod
    def joint(self, network: Network, part: MicroBatch) -> Tensor:
        """The part's share of the loss, both from one pass through the network."""


@dataclass(kw_only=True)
class ActorCriticLoss(ValueLoss):
    """Where a token is a decision."""

    trains_trunk: bool = True

    def joint(self, network: Network, part: MicroBatch) -> Tensor:
        """The part's share of the loss, both from one pass through the network."""
        predictions = predict(network, part, self.temperature)
        states = predictions.output.states.float().to(predictions.device)
        values = self.head(states if self.trains_trunk else states.detach())
        losses = value_loss(values, part.extra["values"], part.extra["returns"], clip=self.value_clip)
        self._add("value_loss", losses)
        return self(predictions, part) + self.value_coefficient * losses.sum() / len(self._units)


Valued = TypeVar("Valued", bound=ActorCriticOptions)


class ActorCritic(Rounds[Valued]):
    """Rounds with a value head beside the policy."""

    needs_groups = False
    penalises_loss = False

    def _heads(self, network: Network) -> Mapping[str, nn.Module]:
        return {"value": ScalarHead(network.hidden, self.options.value_width, seed=self.options.seed)}

    @property
    def _head(self) -> ScalarHead:
        assert self._learner is not None
        head = self._learner.heads["value"]
        assert isinstance(head, ScalarHead)
        return head

    def _with_value(self, loss: PolicyLoss) -> dict[str, Any]:
        """The arguments of a ValueLoss: those of the policy's loss, and the options of the head's."""
        return {
            **{setting.name: getattr(loss, setting.name) for setting in fields(loss)},
            "head": self._head,
            "value_coefficient": self.options.value_coefficient,
            "value_clip": self.options.value_clip,
        }

    def _update(
        self, learner: Learner, cut: Sequence[MicroBatch], loss: PolicyLoss, rate: float
    ) -> tuple[float, float]:
        assert isinstance(loss, ValueLoss)
        # Not `update`: one pass through the network serves the policy's loss and the value's.
        return learner.descend(cut, lambda part: loss.joint(learner.decoder, part), rate=rate)
