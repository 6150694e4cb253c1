"""Which step of a trajectory gets the credit for what came of it.

`broadcast` gives every token the whole return: right where only the end is judged
and the group is the baseline.  The others give each step a credit of its own:

- `to_go`: the (discounted) rewards from that step on; a step is not blamed for what
  came before it, and is compared with the runs that came as far.
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
from statistics import fmean

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
    trajectory: Trajectory,
    total: float,
    assignment: Assignment,
    gamma: float = 1.0,
    *,
    given: bool,
    shares: Sequence[float] | None = None,
) -> list[float]:
    """The credit of each step, before a baseline is subtracted.

    Args:
        total: the run's reward.
        given: as in `step_rewards`.
        shares: the total divided among the steps, where `decompose` did so.
    """
    if assignment == "broadcast" or (assignment == "agent" and not given):
        return [total] * len(trajectory.steps)  # a judgement of the whole is of the team
    rewards = step_rewards(trajectory, total, given=given) if shares is None else shares
    if assignment == "agent":
        own: dict[str, float] = {}
        for step, reward in zip(trajectory.steps, rewards, strict=True):
            own[step.agent] = own.get(step.agent, 0.0) + reward
        return [own[step.agent] for step in trajectory.steps]
    return discounted(rewards, gamma)


def centred_credits(
    trajectories: Sequence[Trajectory],
    credits: Sequence[Sequence[float]],
    assignment: Assignment,
    totals: Sequence[float],
    *,
    leave_one_out: bool = False,
) -> list[list[float]]:
    """Each step's credit minus what the group's runs that came to the same place had there on average.

    The same place is the same agent for `agent`, the run as a whole for `broadcast`, else the same step number.
    A run that ended before does not count: it was never in that state, and 0 in its stead would reward whoever
    merely goes on.  A step that no other run came to has the advantage of its whole run.

    Args:
        totals: the reward of each run.
        leave_one_out: the average is of the others alone.
    """
    by_place: dict[str | int, dict[int, float]] = {}
    for run, (trajectory, own) in enumerate(zip(trajectories, credits, strict=True)):
        for place, credit in zip(_places(trajectory, assignment), own, strict=True):
            by_place.setdefault(place, {})[run] = credit
    whole = _deviations(dict(enumerate(totals)), leave_one_out)
    deviations = {
        place: whole
        if assignment == "broadcast" or len(of_runs) == 1
        else _deviations(of_runs, leave_one_out)
        for place, of_runs in by_place.items()
    }
    return [
        [deviations[place][run] for place in _places(trajectory, assignment)]
        for run, trajectory in enumerate(trajectories)
    ]


def _places(trajectory: Trajectory, assignment: Assignment) -> list[str | int]:
    """What each step is compared at."""
    if assignment == "broadcast":
        return [0] * len(trajectory.steps)
    if assignment == "agent":
        return [step.agent for step in trajectory.steps]
    return list(range(len(trajectory.steps)))


def _deviations(of_runs: Mapping[int, float], leave_one_out: bool) -> dict[int, float]:
    """Run → its value minus the mean, of all or of the others."""
    count, mean = len(of_runs), fmean(of_runs.values())
    stretch = count / (count - 1) if leave_one_out and count > 1 else 1.0
    return {run: (value - mean) * stretch for run, value in of_runs.items()}


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
