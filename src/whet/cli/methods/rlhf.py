"""RLHF from a command: clone, learn a reward, reinforce by it.

The three stages of DeepSpeed-Chat on recorded trajectories.  The first two learn from them; the third
answers their prompts afresh and is rewarded by what the second has learned.  A prompt that is answered in
one call needs no environment; trajectories of several calls do, and are refused: use `Experiment.improve`
with `whet.learn.optimizers.rlhf.RLHF`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...learn.optimizers.ppo import PPO
from ...learn.optimizers.reward_model import RewardModel
from ...learn.optimizers.rlhf import RLHF, RLHFOptions
from ...learn.optimizers.sft import SFT
from ...learn.training.local import LocalModels
from ...learn.training.options import StageOptions
from ...learn.training.prompts import Prompts
from ...learn.training.scorer import LearnedReward
from ...types import Group


def rlhf(options: StageOptions) -> RLHF:
    """The three stages as one optimizer."""
    models = LocalModels.shared()
    resource, seed = options.resource, options.seed
    reward = replace(options.reward, resource=resource, seed=seed)
    reinforce = replace(options.reinforce, resource=resource, seed=seed)
    clone = replace(options.clone, resource=resource, seed=seed)
    return RLHF(
        None if options.skip_clone else SFT(clone, models=models),
        RewardModel(reward, models=models),
        PPO(reinforce, models=models),
        make_reward=lambda version: LearnedReward(version, models=models).many,
        options=RLHFOptions(
            reward=reward.reward,
            score=reinforce.score or "learned",
            clip_reward=options.clip_reward,
            tasks=options.tasks,
        ),
    )


def environment(options: StageOptions, groups: Sequence[Group]) -> Prompts:
    """The recorded prompts, to be answered afresh."""
    return Prompts(
        groups,
        resource=options.resource,
        temperature=options.reinforce.temperature,
        stop_id=options.stop_id,
        max_new_tokens=options.max_new_tokens,
    )
