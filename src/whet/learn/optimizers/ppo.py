"""PPO with a value head: each token's advantage is what came of it against what was to be expected.

Schulman et al. 2017, with generalised advantages (2016).  A token is a decision; the
score comes at the end of a trajectory, or step by step where the environment gives it;
β · (log π − log π_ref) is taken off each token's reward (InstructGPT).  Defaults are
those of TRL's former PPO trainer.  Differences: the value head stands on the policy's
own states instead of on a model of its own; it begins at zero; advantages are whitened
over the round's tokens; a trajectory cut off by a limit is completed by the value of
where it was cut, one that ended is not.  No groups are needed, and none is skipped.

With `A2COptions` it is A2C (Mnih et al. 2016): one pass, no clipping, λ = 1.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...types import Group
from ..training.actor_critic import ActorCritic, ActorCriticLoss, Episode, estimate
from ..training.assignment import step_rewards
from ..training.batch import MergeCounts, MicroBatch, merge
from ..training.credit import Credited, require_logprobs, reward_of, summary, tokens_of
from ..training.local import LocalModels
from ..training.options import A2COptions as A2COptions
from ..training.options import PPOOptions as PPOOptions
from ..training.policy_gradient import PolicyLoss
from ..training.rounds import RoundState, Validate


class PPO(ActorCritic[PPOOptions]):
    """PPO as an Optimizer; one `step` is one round of trajectories.

    Args:
        models: where weights live; the process's own if None.
        validate: asked at the start and at every checkpoint; the best one is what `done` returns.
    """

    name = "ppo"

    def __init__(
        self,
        options: PPOOptions | None = None,
        *,
        models: LocalModels | None = None,
        validate: Validate | None = None,
    ) -> None:
        super().__init__(options or PPOOptions(), models=models, validate=validate)

    def _credit(self, groups: Sequence[Group]) -> Credited:
        options = self.options
        assert self._learner is not None
        episodes: list[Episode] = []
        counts, masked = MergeCounts(), 0
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
            reference = self._reference if options.kl_coefficient else None
            # Once a round, before its updates: advantages and old values are of the policy that sampled.
            metrics |= estimate(episodes, self._learner.decoder, self._head, reference, options)
        return Credited([s for episode in episodes for s in episode.sequences], counts, metrics)

    def _loss(self, cut: Sequence[MicroBatch], run: RoundState, measures: bool) -> PolicyLoss:
        settings = self._with_value(super()._loss(cut, run, measures))
        return ActorCriticLoss(**settings, trains_trunk=self.options.value_trains_trunk)
