"""GLAM: PPO over admissible actions, each scored by a language model's likelihood of saying it.

Carta et al. 2023 ("Grounding large language models in interactive environments with
online reinforcement learning"), as in Lamorel: softmax over the summed log-likelihoods
of the admissible actions, a value head on the state where the prompt ends, PPO on
steps, not on tokens.  Defaults are the paper's: γ .99, λ .99, entropy .01, value .5,
clip .2, 4 epochs.  Differences: the value head shares the policy's network; the optimizer
and the learning rate are ours; a step that was cut off is completed by its value.

How it is sampled from is `learn/training/choice.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...errors import InputError
from ...types import Group, Outcome, Step, Trajectory
from ..training import off_policy
from ..training.actor_critic import ActorCritic, ValueLoss
from ..training.assignment import step_rewards
from ..training.batch import MergeCounts, Merged, MicroBatch, by_unit, parts
from ..training.choice import Admissible, choice_logprobs, sequences_of
from ..training.credit import Credited, reward_of, summary
from ..training.learner import Learner
from ..training.local import LocalModels
from ..training.losses import clipped, gae, value_loss, whiten
from ..training.network import Network, target_outputs
from ..training.options import CandidateOptions as CandidateOptions
from ..training.policy_gradient import PolicyLoss
from ..training.rounds import RoundState, Validate


class Candidates(ActorCritic[CandidateOptions]):
    """GLAM as an Optimizer; one `step` is one round of trajectories.

    Args:
        admissible: an observation → its actions and their ids, as the policy that sampled had it.
        models: where weights live; the process's own if None.
        validate: asked at the start and at every checkpoint; the best one is what `done` returns.
    """

    name = "candidates"
    whole_units = True
    corrects = False

    def __init__(
        self,
        admissible: Admissible,
        options: CandidateOptions | None = None,
        *,
        models: LocalModels | None = None,
        validate: Validate | None = None,
    ) -> None:
        super().__init__(options or CandidateOptions(), models=models, validate=validate)
        self._admissible = admissible

    def _credit(self, groups: Sequence[Group]) -> Credited:
        options = self.options
        episodes: list[tuple[Trajectory, list[int], list[float]]] = []
        decisions: list[list[Merged]] = []
        chosen: list[tuple[int, float]] = []
        masked = 0
        for trajectory in (trajectory for group in groups for trajectory in group.trajectories):
            reward = reward_of(trajectory, options.score)
            if reward is None:
                masked += 1
                continue
            rewards = step_rewards(trajectory, reward, given=options.score is None)
            numbers, payments = [], []
            for step, paid in zip(trajectory.steps, rewards, strict=True):
                if step.tokens is not None:
                    numbers.append(len(decisions))
                    payments.append(paid)
                    sequences, index = self._decision(step, trajectory, len(decisions))
                    decisions.append(sequences)
                    # `ChoicePolicy` puts the choice's log-probability on the first token, 0 on the others.
                    chosen.append((index, step.tokens.logprobs[0]))
            episodes.append((trajectory, numbers, payments))
        everything = [sequence for own in decisions for sequence in own]
        figures = self._filled(episodes, decisions, chosen, everything) if everything else {}
        metrics = {
            "groups": float(len(groups)),
            "trajectories": float(sum(len(group.trajectories) for group in groups)),
            "masked": float(masked),
            "decisions": float(len(decisions)),
            "tokens": float(sum(len(merged.ids) for merged in everything)),
            **summary(groups, options.score, options.unknown),
            **figures,
        }
        return Credited(everything, MergeCounts(calls=len(decisions)), metrics)

    def _decision(self, step: Step, trajectory: Trajectory, number: int) -> tuple[list[Merged], int]:
        """The sequences of a step's admissible actions, and which of them was chosen."""
        assert step.tokens is not None
        actions = [tuple(ids) for _, ids in self._admissible(step.observation)]
        action = tuple(step.tokens.output_ids)
        # Computed anew from the observation: an `admissible` that has changed since would shift every choice.
        if action not in actions or not step.tokens.logprobs:
            raise InputError(
                f"trajectory {trajectory.id}: the action of step {step.id} is not among the {len(actions)} "
                "admissible ones, or has no log-probability; sample with whet.learn.training.choice.ChoicePolicy"
            )
        return sequences_of(step.tokens.prompt_ids, actions, number), actions.index(action)

    @torch.no_grad()
    def _filled(
        self,
        episodes: Sequence[tuple[Trajectory, list[int], list[float]]],
        decisions: Sequence[list[Merged]],
        chosen: Sequence[tuple[int, float]],
        everything: Sequence[Merged],
    ) -> dict[str, float]:
        """Put choice, old log-probability, advantage, value and return on every target of a decision."""
        options = self.options
        assert self._learner is not None
        values = torch.zeros(len(decisions))
        # The state where the prompt ends is the same for every action, so it is read once.
        firsts = [Merged(own[0].unit, own[0].ids, own[0].targets[:1], [0.0]) for own in decisions]
        for part in parts(firsts, options.part_tokens):
            values[part.units] = self._head(target_outputs(self._learner.decoder, part)[0])
        advantages, returns = torch.zeros(len(decisions)), torch.zeros(len(decisions))
        for trajectory, numbers, rewards in episodes:
            own = values[numbers].tolist()
            cut = trajectory.outcome in (Outcome.TRUNCATED, Outcome.TIMEOUT)
            # The last value known: where it was cut off there is no later prompt to take a value at.
            last = own[-1] if cut and own else 0.0
            gains, targets = gae(rewards, own, gamma=options.gamma, lam=options.lam, last_value=last)
            advantages[numbers], returns[numbers] = torch.tensor(gains), torch.tensor(targets)
        if options.whiten:
            advantages = whiten(advantages)
        for number, sequences in enumerate(decisions):
            index, logprob = chosen[number]
            fixed = {
                "chosen": float(index),
                "old": logprob,
                "advantage": float(advantages[number]),
                "value": float(values[number]),
                "return": float(returns[number]),
            }
            for sequence in sequences:
                count = len(sequence.targets)
                sequence.extra |= {name: [value] * count for name, value in fixed.items()}
        return {"value": float(values.mean())}

    @torch.no_grad()
    def _gap(self, learner: Learner, credited: Credited, groups: Sequence[Group]) -> off_policy.Gap | None:
        """Of choices: the log-probability of one is its action's among the admissible ones."""
        units, differences = [], []
        compared = [sequence for sequence in credited.sequences if sequence.unit < off_policy.TRAJECTORIES]
        for part in parts(compared, self.options.part_tokens, block=by_unit):
            named, choices = choice_logprobs(
                learner.chosen(part, self.options.temperature), part, normalised=self.options.normalised
            )
            first = part.extra["first"].bool()
            order = torch.argsort(part.units[first])
            chosen, before = (part.extra[name][first][order] for name in ("chosen", "old"))
            units.append(named)
            differences.append(choices.gather(1, chosen.long().unsqueeze(1)).squeeze(1) - before)
        return off_policy.of(torch.cat(units), torch.cat(differences)) if units else None

    def _loss(self, cut: Sequence[MicroBatch], run: RoundState, measures: bool) -> PolicyLoss:
        settings = self._with_value(super()._loss(cut, run, False))
        return ChoiceLoss(**settings, normalised=self.options.normalised)


@dataclass(kw_only=True)
class ChoiceLoss(ValueLoss):
    """PPO's loss of the choices in one optimizer step, with the value head's."""

    normalised: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self._units = torch.unique(self._units)  # a decision counts once, whatever its tokens

    def joint(self, network: Network, part: MicroBatch) -> Tensor:
        """The part's share of the loss."""
        states, logits = target_outputs(network, part)
        logprobs = torch.log_softmax(logits, dim=-1).gather(1, part.targets.unsqueeze(1)).squeeze(1)
        _, choices = choice_logprobs(logprobs, part, normalised=self.normalised)
        first = part.extra["first"].bool()
        # `choice_logprobs` gives decisions by ascending unit, targets stand in the part's own order.
        order = torch.argsort(part.units[first])
        fixed = {name: part.extra[name][first][order] for name in part.extra}
        now = choices.gather(1, fixed["chosen"].long().unsqueeze(1)).squeeze(1)
        losses, held_back = clipped(
            now, fixed["old"], fixed["advantage"], low=self.clip_low, high=self.clip_high
        )
        values = value_loss(
            self.head(states[first][order]), fixed["value"], fixed["return"], clip=self.value_clip
        )
        # exp(−∞) · −∞ is NaN; a finite stand-in for absent actions adds 0.
        finite = choices.clamp(min=-1e9)
        spread = -(finite.exp() * finite).sum(dim=-1)
        self._add("entropy", spread)
        self._add("clip_share", held_back.float())
        self._add("off_policy", (now - fixed["old"]).abs())
        self._add("value_loss", values)
        total: Tensor = losses + self.value_coefficient * values - self.entropy_bonus * spread
        return total.sum() / len(self._units)
