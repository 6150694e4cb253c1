"""PPO with a value head: each token's advantage is what came of it against what was to be expected.

Schulman et al. 2017, with generalised advantages (2016).  A token is a decision; the
score comes at the end of a trajectory, or step by step where the environment gives it;
β · (log π − log π_ref) is taken off each token's reward (InstructGPT).  Defaults are
those of TRL's former PPO trainer.  Differences: the value head stands on the policy's
own states instead of on a model of its own; it begins at zero; advantages are whitened
over the round's tokens; a trajectory cut off by a limit is completed by the value of
where it was cut, one that ended is not.  No groups are needed, and none is skipped.

`PPOOptions.a2c()` is A2C (Mnih et al. 2016): one pass, no clipping, λ = 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from torch import nn

from ..errors import InputError
from ..training.actor_critic import ActorCriticLoss, Episode, Estimates, estimate
from ..training.assignment import step_rewards
from ..training.batch import Counts, Part, merge
from ..training.credit import Credited, require_logprobs, reward_of, summary, tokens_of
from ..training.learner import Learner, Updated
from ..training.local import LocalModels
from ..training.network import Head, Network, width
from ..training.policy_gradient import PolicyLoss
from ..training.rounds import RoundOptions, Rounds, Run, Validate
from ..types import Group


@dataclass(frozen=True, kw_only=True)
class PPOOptions(RoundOptions):
    """How to train from rewards against a value head."""

    group_size: int = 1
    """Trajectories per task; the baseline is the value head's, so one is enough."""
    gamma: float = 1.0
    """Discount from token to token."""
    lam: float = 0.95
    """λ of the generalised advantage: 1 trusts returns, 0 the value head."""
    clip_high: float = 0.2
    """How far a probability ratio may rise above 1."""
    value_clip: float | None = 0.2
    """How far a value may move from the old one in one round; None for no limit."""
    value_coefficient: float = 0.1
    """Weight of the value loss."""
    value_width: int | None = None
    """Units of a layer between states and value; None for a linear head."""
    value_trains_trunk: bool = True
    """Whether the value loss reaches the policy's own layers."""
    kl_coefficient: float = 0.0
    """Times log π − log π_ref, taken off the reward of each token (TRL's default is 0.05)."""
    whiten: bool = True
    """Advantages with mean 0 and deviation 1 over the round."""
    passes: int = 4
    """Times each round's trajectories are learned from."""
    entropy_bonus: float = 0.0
    """Weight of the mean token entropy at first; falls to zero over the steps."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (0 <= self.gamma <= 1 and 0 <= self.lam <= 1):
            raise InputError(f"gamma and lam lie in [0, 1]; got {self.gamma} and {self.lam}")

    @classmethod
    def a2c(cls, **changes: Any) -> PPOOptions:
        """A2C: one pass over fresh trajectories, so that nothing is clipped, and Monte-Carlo advantages."""
        settings = {"passes": 1, "lam": 1.0, "value_clip": None, "value_coefficient": 0.5}
        return cls(**{**settings, "entropy_bonus": 0.01, **changes})


class PPO(Rounds[PPOOptions]):
    """PPO as an Optimizer; one `step` is one round of trajectories.

    Args:
        models: where weights live; the process's own if None.
        validate: asked at the start and at every checkpoint; the best one is what `done` returns.
    """

    name = "ppo"
    needs_groups = False
    penalises_loss = False

    def __init__(
        self,
        options: PPOOptions | None = None,
        *,
        models: LocalModels | None = None,
        validate: Validate | None = None,
    ) -> None:
        super().__init__(options or PPOOptions(), models=models, validate=validate)

    def _heads(self, network: Network) -> Mapping[str, nn.Module]:
        return {"value": Head(width(network), self.options.value_width, seed=self.options.seed)}

    @property
    def _head(self) -> Head:
        assert self._learner is not None
        head = self._learner.heads["value"]
        assert isinstance(head, Head)
        return head

    def _credit(self, groups: Sequence[Group]) -> Credited:
        options = self.options
        assert self._learner is not None
        episodes: list[Episode] = []
        counts, masked = Counts(), 0
        for trajectory in (trajectory for group in groups for trajectory in group.trajectories):
            reward = reward_of(trajectory, options.score)
            if reward is None:
                masked += 1
                continue
            sequences, more = merge(trajectory, len(episodes))
            if not more.targets:
                continue
            for sequence in sequences:
                require_logprobs(sequence, trajectory)
            counts += more
            rewards = step_rewards(trajectory, reward, given=options.score is None)
            episodes.append(Episode(trajectory, sequences, rewards))
        metrics = {
            "groups": float(len(groups)),
            "trajectories": float(sum(len(group.trajectories) for group in groups)),
            "masked": float(masked),
            **tokens_of(counts),
            **summary(groups, options.score, options.unknown),
        }
        if episodes:
            estimates = Estimates(
                gamma=options.gamma,
                lam=options.lam,
                kl_coefficient=options.kl_coefficient,
                whitened=options.whiten,
                part_tokens=options.part_tokens,
                temperature=options.temperature,
            )
            reference = self._reference if options.kl_coefficient else None
            metrics |= estimate(episodes, self._learner.decoder, self._head, reference, estimates)
        return Credited([s for episode in episodes for s in episode.sequences], counts, metrics)

    def _loss(self, cut: Sequence[Part], run: Run, measures: bool) -> PolicyLoss:
        options = self.options
        base = super()._loss(cut, run, measures)
        return ActorCriticLoss(
            **{one.name: getattr(base, one.name) for one in fields(base)},
            head=self._head,
            value_coefficient=options.value_coefficient,
            value_clip=options.value_clip,
            trains_trunk=options.value_trains_trunk,
        )

    def _update(self, learner: Learner, cut: Sequence[Part], loss: PolicyLoss, rate: float) -> Updated:
        assert isinstance(loss, ActorCriticLoss)
        total, norm = learner.descend(cut, lambda part: loss.joint(learner.decoder, part), rate=rate)
        return Updated(total, norm, rate, sum(part.tokens for part in cut))
