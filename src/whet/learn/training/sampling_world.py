"""Where a method samples as it learns: environment, tasks, policy and rewards, each with a default.

`whet train METHOD --env` and `METHOD().train(env=...)` are the two callers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ...errors import EnvError, InputError
from ...judge import Reward, name_of
from ...record.env import EnvFactory
from ...record.gym import AdaptedEnv, adapted, episodes, factory_of
from ...record.policy import PolicyFactory
from ...types import Group, Outcome, Split, Task, Trajectory
from .chat import ANSWER_TOKENS, ChatPolicy

EPISODES = 100
"""Seeds to learn from, where nothing says how many."""
VALIDATION_EPISODES = 64
"""Seeds that measure the baseline: of a policy at the floor of 5 %, all of fewer would often fail."""
GATE_EPISODES = 200
"""Seeds that prove the result; a gain of 10 points takes a median of 130 pairs."""
ROUND_TASKS = 16
"""Tasks of a round, where nothing says how many: with groups of 8, 128 rollouts."""


@dataclass(frozen=True, kw_only=True)
class SamplingWorld:
    """Where a method samples as it learns."""

    env: EnvFactory
    tasks: Sequence[Task]
    policy: PolicyFactory | None = None
    """None where the environment brings one."""
    rewards: Sequence[Reward] = ()
    groups: Sequence[Group] | None = None
    """Recorded groups to learn from beside it; None to sample them."""


@dataclass(frozen=True, kw_only=True)
class SamplingPlan:
    """What is known of a world to sample in; the rest has defaults."""

    env: Any
    """An environment, or what makes a fresh one per rollout."""
    tasks: Sequence[Task] | None = None
    """If None, episodes of different seeds, for an environment with Gymnasium's methods."""
    episodes: int | None = None
    """Seeds to learn from; those that measure the baseline and prove the result come beside them."""
    policy: PolicyFactory | None = None
    """If None, that of the environment, else a chat with the model."""
    rewards: Sequence[Reward] = field(default=())
    """Judge each rollout beside `success`."""
    system: str = ""
    answer_tokens: int = ANSWER_TOKENS
    gate: bool = True
    """Add the episodes that the gate judges by."""

    def world(self, model: str, *, resource: str, temperature: float, seed: int) -> SamplingWorld:
        """The world for a model.

        Raises:
            ContractError: the environment lacks a method.
            EnvError: it cannot be made.
            InputError: there are no tasks, or both tasks and episodes; or as `ChatPolicy`.
        """
        env = factory_of(self.env)
        # First: a missing method or task is said before anything is loaded.
        tasks = self._tasks(env, seed)
        policy = self.policy
        if policy is None and getattr(env, "policy", None) is None:
            if model in ("tiny", ""):
                raise InputError(
                    "there is no policy to sample with: give a model with a tokenizer and a chat template (--model "
                    "DIR), or a policy of your own (--policy module:function)"
                )
            policy = ChatPolicy(
                model,
                system=self.system,
                answer_tokens=self.answer_tokens,
                resource=resource,
                temperature=temperature,
            )
        rewards = list(self.rewards)
        if all(name_of(reward) != "success" for reward in rewards):
            rewards.append(success)
        return SamplingWorld(env=env, tasks=tasks, policy=policy, rewards=rewards)

    def _tasks(self, env: EnvFactory, seed: int) -> Sequence[Task]:
        if self.tasks is not None:
            if self.episodes is not None:
                raise InputError("give tasks or a number of episodes, not both")
            return self.tasks
        gymnasium = isinstance(adapted(_made(env)), AdaptedEnv)
        if self.episodes is None and not gymnasium:
            raise InputError(
                "--env needs tasks: give --tasks-file, with one JSON object per line, or --episodes N where the seed "
                "in a task's initial_state is all that the environment needs"
            )
        count = EPISODES if self.episodes is None else self.episodes
        sizes = {Split.TRAIN: count, Split.VALIDATION: VALIDATION_EPISODES}
        if self.gate:
            sizes[Split.GATE] = GATE_EPISODES
        return [task for split, n in sizes.items() for task in episodes(env, n, seed=seed, split=split)]


def _made(env: EnvFactory) -> Any:
    """One environment, before anything is spent on episodes of it."""
    try:
        return env()
    except Exception as error:
        name = getattr(env, "__name__", type(env).__name__)
        raise EnvError(
            f"the environment {name} cannot be made: {type(error).__name__}: {error}. It is called without arguments, "
            "for each episode anew"
        ) from error


def success(trajectory: Trajectory) -> float | None:
    """1 or 0 by its outcome, None where nothing has judged it; the score that a baseline is measured by."""
    return float(trajectory.outcome is Outcome.SUCCESS) if trajectory.outcome.counts else None
