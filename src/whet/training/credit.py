"""From the rewards of groups to sequences with an advantage on every token.

One advantage per trajectory, on all tokens that the policy chose in it.  What
the policy cannot be held responsible for (an infrastructure error, a missing
reward) is masked out of its group's statistics; a group whose rewards are all
the same teaches nothing, is skipped, and is counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from ..errors import InputError
from ..types import Group, Outcome, Trajectory
from .batch import Counts, Merged, merge
from .losses import Baseline, Scale, advantages


@dataclass(frozen=True, slots=True)
class Credited:
    """What a step learns from."""

    sequences: list[Merged]
    """Of groups with a signal, with advantages."""
    counts: Counts
    """Of these sequences."""
    metrics: dict[str, float]
    """Of all groups, those without a signal included."""


def reward_of(trajectory: Trajectory, score: str | None) -> float | None:
    """Its reward, or the value of this score; None where the trajectory does not count.

    Raises:
        InputError: it is NaN or infinite.
    """
    if trajectory.outcome is Outcome.INFRASTRUCTURE_ERROR:
        return None
    value = trajectory.reward if score is None else trajectory.score(score)
    if value is not None and not math.isfinite(value):
        raise InputError(
            f"trajectory {trajectory.id} of task {trajectory.task.id} has the reward {value} "
            f"({score or 'sum of its steps'}); a reward is a finite number, or None where there is none"
        )
    return value


def credit(
    groups: Sequence[Group], *, score: str | None, baseline: Baseline, scale: Scale, unknown: str | None
) -> Credited:
    """Advantages by group, put on the merged sequences of its trajectories.

    Args:
        score: name of the Score to learn from; None for the sum of the step rewards.
        unknown: name of the Score that says whether the policy gave up, for the metrics.

    Raises:
        InputError: a reward is not finite, or a call's log-probabilities are missing.
    """
    sequences: list[Merged] = []
    counts = Counts()
    flat = small = masked = unit = 0
    for group in groups:
        rewards = [reward_of(trajectory, score) for trajectory in group.trajectories]
        masked += sum(reward is None for reward in rewards)
        given = [reward for reward in rewards if reward is not None]
        if len(given) < 2 and baseline != "none":
            small += 1
            continue
        found = advantages(rewards, baseline=baseline, scale=scale)
        if _flat(given) and baseline != "none":
            flat += 1
            continue
        for trajectory, advantage in zip(group.trajectories, found, strict=True):
            if advantage is None:
                continue
            merged, more = merge(trajectory, unit)
            unit += 1
            counts += more
            for sequence in merged:
                if any(map(math.isnan, sequence.logprobs)):
                    raise InputError(
                        f"trajectory {trajectory.id} has calls without log-probabilities; "
                        "collect through a sampler or gateway that records them, or clone with SFT"
                    )
                sequence.advantages = [advantage] * len(sequence.targets)
            sequences.extend(merged)
    everything = [trajectory for group in groups for trajectory in group.trajectories]
    metrics = {
        "groups": float(len(groups)),
        "no_signal": (flat + small) / max(1, len(groups)),
        "groups_flat": float(flat),
        "groups_too_small": float(small),
        "trajectories": float(len(everything)),
        "masked": float(masked),
        "tokens": float(counts.tokens),
        "targets": float(counts.targets),
        "calls_merged": float(counts.merged),
        "calls_forked": float(counts.forked),
    }
    return Credited(sequences, counts, metrics | _means(everything, score, unknown))


def _flat(rewards: Sequence[float]) -> bool:
    return all(reward == rewards[0] for reward in rewards)


def _means(trajectories: Iterable[Trajectory], score: str | None, unknown: str | None) -> dict[str, float]:
    """Means over what there is; a mean of nothing is left out, it is not 0."""
    kept = list(trajectories)
    judged = [trajectory.outcome is Outcome.SUCCESS for trajectory in kept if trajectory.outcome.counts]
    found = {
        "reward": [
            value for value in (reward_of(trajectory, score) for trajectory in kept) if value is not None
        ],
        "success": [float(success) for success in judged],
        "turns": [float(len(trajectory.steps)) for trajectory in kept],
    }
    if unknown is not None:
        found["unknown"] = [value for value in (t.score(unknown) for t in kept) if value is not None]
    return {name: fmean(values) for name, values in found.items() if values}


def staleness(groups: Sequence[Group], policy_version: int) -> float | None:
    """Mean number of updates between sampling and now, over calls that say; None if none does."""
    ages = [
        policy_version - int(step.tokens.policy_version)
        for group in groups
        for trajectory in group.trajectories
        for step in trajectory.steps
        if step.tokens is not None
        and step.tokens.policy_version is not None
        and step.tokens.policy_version.isdecimal()
    ]
    return fmean(ages) if ages else None
