"""Which step of a trajectory gets the credit for what came of it.

`broadcast` gives every token the whole return: right where only the end is judged
and the group is the baseline.  The others give each step a credit of its own:

- `to_go`: the (discounted) rewards from that step on; a step is not blamed for what
  came before it.  A trajectory that has ended counts 0 in the baseline of later steps.
- `agent`: each agent of a multi-agent run answers for the rewards of its own steps, and for a judgement of the
  whole run as much as the others; it is compared with itself in the group's other runs.
- `decomposition`: a return that only the end brings is spread over the steps by ridge
  regression of the returns on what was done (Efroni et al. 2021, "Reinforcement learning
  with trajectory feedback", in its simplest, tabular form), then treated as `to_go`.
  It needs actions that recur; the shares of a trajectory add up to its return.

GAE needs a value head and is PPO's (`actor_critic.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ...types import Group, Step, Trajectory, canonical
from .losses import discounted
from .options import Assignment

RIDGE = 1.0
"""Sightings of an action that count for as much as the belief that it makes no difference."""


def step_rewards(trajectory: Trajectory, total: float, *, given: bool) -> list[float]:
    """A reward for each step that adds up to `total`.

    Args:
        given: the total is the sum of the step rewards; else it is a judgement of the whole, and
            stands on the last step.
    """
    if given:
        return [0.0 if step.reward is None else step.reward for step in trajectory.steps]
    return [0.0] * (len(trajectory.steps) - 1) + [total] if trajectory.steps else []


def step_credits(
    trajectory: Trajectory, rewards: Sequence[float], assignment: Assignment, gamma: float = 1.0
) -> list[float]:
    """The credit of each step, before a baseline is subtracted."""
    if assignment == "broadcast":
        return [sum(rewards)] * len(rewards)
    if assignment == "agent":
        own: dict[str, float] = {}
        for step, reward in zip(trajectory.steps, rewards, strict=True):
            own[step.agent] = own.get(step.agent, 0.0) + reward
        return [own[step.agent] for step in trajectory.steps]
    return discounted(rewards, gamma)


def centred_credits(
    trajectories: Sequence[Trajectory], credits: Sequence[Sequence[float]], assignment: Assignment
) -> list[list[float]]:
    """Each step's credit minus the mean of the group's at the same place.

    The same place is the same agent for `agent`, else the same step number, where a trajectory that has
    ended has 0 still to come.
    """
    if assignment == "agent":
        mean: dict[str, float] = {}
        by_agent: dict[str, dict[int, float]] = {}
        for index, (trajectory, own) in enumerate(zip(trajectories, credits, strict=True)):
            for step, credit in zip(trajectory.steps, own, strict=True):
                by_agent.setdefault(step.agent, {})[index] = credit
        mean = {agent: sum(by_run.values()) / len(by_run) for agent, by_run in by_agent.items()}
        return [
            [credit - mean[step.agent] for step, credit in zip(t.steps, own, strict=True)]
            for t, own in zip(trajectories, credits, strict=True)
        ]
    count = len(credits)
    # Divided by all, not by those that are still going: who has ended has 0 to come.
    longest = max((len(own) for own in credits), default=0)
    means = [
        sum(own[step_number] for own in credits if step_number < len(own)) / count
        for step_number in range(longest)
    ]
    return [[credit - means[step_number] for step_number, credit in enumerate(own)] for own in credits]


def decompose(groups: Sequence[Group], totals: Mapping[str, float]) -> dict[str, list[float]]:
    """Trajectory id → a reward for each step, from returns that only the end brings.

    Args:
        totals: trajectory id → return; trajectories that are not there are left out.
    """
    returned = [t for group in groups for t in group.trajectories if t.id in totals]
    # Sorted: a set of bytes has another order in every process, and sums would differ in their last bits.
    keys = {key: column for column, key in enumerate(sorted({_key(s) for t in returned for s in t.steps}))}
    if not keys:
        return {}
    counts = np.zeros((len(returned), len(keys)))
    for row, trajectory in enumerate(returned):
        for step in trajectory.steps:
            counts[row, keys[_key(step)]] += 1.0
    returns = np.array([totals[trajectory.id] for trajectory in returned])
    mean = returns.mean()
    gram = counts.T @ counts + RIDGE * np.eye(len(keys))
    # Centred: the ridge pulls towards no difference, and not towards a return of 0.
    worth = np.linalg.solve(gram, counts.T @ (returns - mean))
    divided: dict[str, list[float]] = {}
    for row, trajectory in enumerate(returned):
        shares = [float(worth[keys[_key(step)]]) for step in trajectory.steps]
        if shares:  # what the regression leaves unexplained is everyone's alike
            rest = (float(returns[row]) - sum(shares)) / len(shares)
            divided[trajectory.id] = [share + rest for share in shares]
    return divided


def _key(step: Step) -> bytes:
    """Equal for steps that do the same: agent, kind, name and action."""
    return canonical([step.agent, step.kind, step.name, step.action])
