"""From the rewards of groups to sequences with an advantage on every token.

One advantage per trajectory, on all tokens that the policy chose in it, or one per
step (`assignment.py` has the choices).  What the policy cannot be held responsible
for (an infrastructure error, a missing reward) is masked out of its group's
statistics; a group whose rewards are all the same teaches nothing, is skipped, and
is counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from ...errors import InputError
from ...types import Group, Outcome, Trajectory
from .assignment import centred_credits, decompose, step_credits
from .batch import MergeCounts, Merged, is_logprob, merge
from .losses import advantages
from .options import Assignment, Baseline, Scale


@dataclass(frozen=True, slots=True)
class Credited:
    """Sequences for one optimizer step."""

    sequences: list[Merged]
    """Of groups with a signal, with advantages."""
    counts: MergeCounts
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
    groups: Sequence[Group],
    *,
    score: str | None,
    baseline: Baseline = "group",
    scale: Scale = "none",
    unknown: str | None = None,
    assignment: Assignment = "broadcast",
    gamma: float = 1.0,
    penalties: Mapping[str, float] | None = None,
) -> Credited:
    """Advantages by group, put on the merged sequences of its trajectories.

    Args:
        score: name of the Score to learn from; None for the sum of the step rewards.
        unknown: name of the Score that says whether the policy gave up, for the metrics.
        assignment: how the return is divided among the steps.
        gamma: discount of `to_go` and `decomposition`.
        penalties: trajectory id → what is taken off its reward (a KL, say); not in the metrics' reward.

    Raises:
        InputError: a reward is not finite, or a call's log-probabilities are missing.
    """
    sequences: list[Merged] = []
    counts = MergeCounts()
    flat = small = masked = unit = 0
    off = penalties or {}
    plan = _Plan(assignment, gamma, score is None, _spread(groups, score, assignment))
    for group in groups:
        rewards = [reward_of(trajectory, score) for trajectory in group.trajectories]
        masked += sum(reward is None for reward in rewards)
        rewards = [
            None if reward is None else reward - off.get(trajectory.id, 0.0)
            for reward, trajectory in zip(rewards, group.trajectories, strict=True)
        ]
        known_rewards = [reward for reward in rewards if reward is not None]
        # Judged trajectories and not all of them: one reward beside failures of the machine has no baseline.
        if len(known_rewards) < 2 and baseline != "none":
            small += 1
            continue
        gains = advantages(rewards, baseline=baseline, scale=scale)
        shares = _by_step(group, rewards, gains, plan, baseline)
        by_step = (share for own in shares if own for share in own)
        same = (
            # Rewards and not advantages: a mean of equal floats may be off by a bit, and they then are not 0.
            _flat(known_rewards)
            if assignment == "broadcast"
            else all(abs(share) < 1e-12 for share in by_step)
        )
        if same and baseline != "none":
            flat += 1
            continue
        for trajectory, own in zip(group.trajectories, shares, strict=True):
            if own is None:
                continue
            merged, more = merge(trajectory, unit)
            unit += 1
            counts += more
            for sequence in merged:
                require_logprobs(sequence, trajectory)
                sequence.advantages = [own[call] for call in sequence.calls]
            sequences.extend(merged)
    metrics = {
        "groups": float(len(groups)),
        "no_signal": (flat + small) / max(1, len(groups)),
        "groups_flat": float(flat),
        "groups_too_small": float(small),
        "trajectories": float(sum(len(group.trajectories) for group in groups)),
        "masked": float(masked),
        **tokens_of(counts),
        **summary(groups, score, unknown),
    }
    return Credited(sequences, counts, metrics)


def tokens_of(counts: MergeCounts) -> dict[str, float]:
    """Counts of merging, for the metrics."""
    return {
        "tokens": float(counts.tokens),
        "targets": float(counts.targets),
        "calls_merged": float(counts.merged),
        "calls_forked": float(counts.forked),
    }


def summary(groups: Sequence[Group], score: str | None, unknown: str | None) -> dict[str, float]:
    """Mean reward, success and length of all trajectories, learned from or not."""
    return _means([trajectory for group in groups for trajectory in group.trajectories], score, unknown)


def require_logprobs(sequence: Merged, trajectory: Trajectory) -> None:
    """Refuse calls whose log-probabilities were not recorded, or are none.

    Raises:
        InputError: there are some.
    """
    if any(map(math.isnan, sequence.logprobs)):
        raise InputError(
            f"trajectory {trajectory.id} has calls without log-probabilities; "
            "collect through a sampler or gateway that records them, or clone with SFT"
        )
    extremes = (min(sequence.logprobs), max(sequence.logprobs)) if sequence.logprobs else ()
    for wrong in (value for value in extremes if not is_logprob(value)):
        raise InputError(
            f"trajectory {trajectory.id} has {wrong:g} as the log of a probability; mend the capture, or clone with SFT"
        )


@dataclass(frozen=True, slots=True)
class _Plan:
    assignment: Assignment
    gamma: float
    from_steps: bool
    spread: dict[str, list[float]] | None


def _spread(
    groups: Sequence[Group], score: str | None, assignment: Assignment
) -> dict[str, list[float]] | None:
    """Trajectory id → its return divided among its steps, where that is how credit is given."""
    if assignment != "decomposition":
        return None
    totals = {t.id: reward_of(t, score) for group in groups for t in group.trajectories}
    return decompose(groups, {id: total for id, total in totals.items() if total is not None})


def _by_step(
    group: Group,
    rewards: Sequence[float | None],
    gains: Sequence[float | None],
    plan: _Plan,
    baseline: Baseline,
) -> list[list[float] | None]:
    """An advantage for each step; scaled as the whole trajectories' are."""
    if plan.assignment == "broadcast":
        pairs = zip(gains, group.trajectories, strict=True)
        return [None if gain is None else [gain] * len(t.steps) for gain, t in pairs]
    judged = [
        (t, reward) for t, reward in zip(group.trajectories, rewards, strict=True) if reward is not None
    ]
    shares = plan.spread or {}
    credits = [
        step_credits(
            trajectory,
            reward,
            plan.assignment,
            plan.gamma,
            given=plan.from_steps,
            shares=shares.get(trajectory.id),
        )
        for trajectory, reward in judged
    ]
    rewarded = [reward for _, reward in judged]
    factor = _factor(rewarded, [gain for gain in gains if gain is not None], baseline)
    if baseline != "none":
        alone = baseline == "leave_one_out"
        credits = centred_credits(
            [t for t, _ in judged], credits, plan.assignment, rewarded, leave_one_out=alone
        )
    remaining = iter(credits)
    return [None if reward is None else [share * factor for share in next(remaining)] for reward in rewards]


def _factor(rewards: Sequence[float], gains: Sequence[float], baseline: Baseline) -> float:
    """The factor by which scaling stretches advantages."""
    mean = fmean(rewards) if baseline != "none" else 0.0
    # Leaving one out is each place's own affair (`centred_credits`), as not all runs come to every place.
    stretch = len(rewards) / (len(rewards) - 1) if baseline == "leave_one_out" else 1.0
    pairs = [
        (r - mean, advantage) for r, advantage in zip(rewards, gains, strict=True) if abs(r - mean) > 1e-9
    ]
    return pairs[0][1] / pairs[0][0] / stretch if pairs else 1.0


def _flat(rewards: Sequence[float]) -> bool:
    return all(reward == rewards[0] for reward in rewards)


def _means(trajectories: Iterable[Trajectory], score: str | None, unknown: str | None) -> dict[str, float]:
    """Means over what there is; a mean of nothing is left out, it is not 0."""
    counted = list(trajectories)
    judged = [trajectory.outcome is Outcome.SUCCESS for trajectory in counted if trajectory.outcome.counts]
    samples = {
        "reward": [
            value for value in (reward_of(trajectory, score) for trajectory in counted) if value is not None
        ],
        "success": [float(success) for success in judged],
        "turns": [float(len(trajectory.steps)) for trajectory in counted],
    }
    if unknown is not None:
        samples["unknown"] = [value for value in (t.score(unknown) for t in counted) if value is not None]
    return {name: fmean(values) for name, values in samples.items() if values}


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
