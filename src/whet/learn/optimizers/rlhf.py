"""RLHF in one run: clone, learn a reward, reinforce by it.

The three stages of InstructGPT (Ouyang et al. 2022) as DeepSpeed-Chat chains them: SFT
on demonstrations, a reward model from preferences, PPO on that reward with a penalty on
the divergence from the cloned policy.  A stage is any Optimizer; this one runs them in
their order and carries each one's state, so that an interrupted run goes on in the stage
where it was.  Differences: no EMA of the weights and no mixture with a pretraining loss
(replay is `learn/training/guards.py`); rewards are clipped by `clip_reward` where the third
stage's groups are scored.

The stages must share one `LocalModels`.  Which trajectories a stage learns from: the
groups it is given if it is offline; the reinforcing stage samples its own through the
context, so it needs `context.train`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ...errors import InputError, TrainingRefused
from ...types import Bundle, Group, Json, Score, Trajectory, Version
from ..loop import Context, Optimizer, Update

ScoreMany = Callable[[Sequence[Trajectory]], Sequence[Score]]
MakeReward = Callable[[Version], ScoreMany]
"""A learned reward's Version → what scores trajectories; `lambda version: LearnedReward(version).many`."""


@dataclass(frozen=True, kw_only=True)
class RLHFOptions:
    """Settings of the chain of stages."""

    reward: str = "reward_model"
    """Name of the learned reward in the Bundle."""
    score: str = "learned"
    """Name under which it scores; the reinforcing stage must learn from a score of that name."""
    clip_reward: float = 5.0
    """Learned rewards are cut to ± this."""
    tasks: int = 32
    """Tasks sampled in each round of the third stage."""

    def __post_init__(self) -> None:
        if self.clip_reward <= 0 or self.tasks < 1:
            raise InputError(f"clip_reward must be above 0 and tasks 1 or more; got {self}")


class RLHF:
    """Three optimizers, one after the other, as one; one `step` is one step of the stage that is on.

    Args:
        clone: first; None where the policy can follow instructions already.
        reward: second; puts a learned reward into the Bundle.
        reinforce: third; learns from `options.score`.
        make_reward: makes a Reward of what the second stage learned.
    """

    name = "rlhf"
    group_size = 0
    on_policy = False
    ordered = False

    def __init__(
        self,
        clone: Optimizer | None,
        reward: Optimizer,
        reinforce: Optimizer,
        *,
        make_reward: MakeReward,
        options: RLHFOptions | None = None,
    ) -> None:
        self.options = options or RLHFOptions()
        self.stages: list[Optimizer] = [stage for stage in (clone, reward, reinforce) if stage is not None]
        self._make_reward = make_reward
        self._reward: tuple[str, ScoreMany] | None = None

    async def step(self, bundle: Bundle, groups: Sequence[Group], context: Context) -> Update:
        """One step of the stage that is on.

        Raises:
            InputError: the state is another method's.
            TrainingRefused: as the stages; or the third has no tasks to sample.
        """
        stage, inner, rounds = self._where(context.state)
        optimizer = self.stages[stage]
        last = stage == len(self.stages) - 1
        batch: Sequence[Group] = groups
        if last:
            batch = await self._sampled(optimizer, bundle, context, rounds)
        update = await optimizer.step(bundle, batch, replace(context, state=inner))
        over = update.done
        at, carried, count = (stage + 1, None, 0) if over and not last else (stage, update.state, rounds + 1)
        resumable = over or not isinstance(update.state, dict) or update.state.get("resumable", True)
        return Update(
            bundle=update.bundle,
            state={"stage": at, "inner": carried, "rounds": count, "resumable": resumable},
            metrics={"stage": float(stage), **update.metrics},
            done=over and last,
            reason=f"{optimizer.name}: {update.reason}" if update.reason else "",
        )

    def _where(self, state: Json) -> tuple[int, Json, int]:
        if state is None:
            return 0, None, 0
        if not isinstance(state, dict) or not {"stage", "inner", "rounds"} <= set(state):
            raise InputError(f"this is no state of {self.name}: {state!r:.80}")
        stage = int(state["stage"])
        if not 0 <= stage < len(self.stages):
            raise InputError(f"stage {stage} of {len(self.stages)}: the state is of a run with other stages")
        return stage, state["inner"], int(state["rounds"])

    async def _sampled(
        self, optimizer: Optimizer, bundle: Bundle, context: Context, rounds: int
    ) -> list[Group]:
        """Fresh trajectories of the policy as it is, scored by the learned reward."""
        options = self.options
        if options.reward not in bundle:
            raise TrainingRefused(
                f"the bundle has no learned reward {options.reward!r}, only {sorted(bundle)}; does the second "
                "stage put it there under that name?"
            )
        if not context.train:
            raise TrainingRefused(
                "reinforcing samples fresh trajectories, and the context has no train tasks"
            )
        version = bundle[options.reward]
        # Made once for a Version: making it loads a network.
        if self._reward is None or self._reward[0] != version.id:
            self._reward = version.id, self._make_reward(version)
        todo = list(context.train)
        if len(todo) > options.tasks:
            todo = [todo[(rounds * options.tasks + offset) % len(todo)] for offset in range(options.tasks)]
        # By the round, which is in the state: a resumed run samples the tasks and seeds that it would have.
        groups = await context.rollout(bundle, todo, max(1, optimizer.group_size), seed=rounds)
        return [Group(group.task, self._scored(self._reward[1], group.trajectories)) for group in groups]

    def _scored(self, reward: ScoreMany, trajectories: Sequence[Trajectory]) -> list[Trajectory]:
        limit, clipped = self.options.clip_reward, []
        for trajectory, score in zip(trajectories, reward(trajectories), strict=True):
            value = None if score.value is None else max(-limit, min(limit, score.value))
            clipped.append(trajectory.scored(Score(self.options.score, value, score.reason, score.evaluator)))
        return clipped
