"""A check that a captured trajectory can be trained on, and the reasons if not.

An agent's run becomes training data only if its model calls were seen, with the
token ids they read and wrote, and something judged the run.  `check` says so per
trajectory, `survey` for many, and `require` refuses a set from which a method
could learn nothing, with the reasons.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from ...errors import InputError, TrainingRefused
from ...types import Outcome, Trajectory
from .merging import are_ids, is_logprob, merge

REASONS = {
    "no calls": "no model call was recorded; run the agent behind the gateway, or trace its model",
    "no token ids": "model calls without token ids; text is not tokenised again, so capture with --tokens",
    "bad ids": "token ids that no vocabulary has; the capture wrote something else in their place",
    "bad mask": "a mask or log-probabilities that do not fit the output ids",
    "nothing chosen": "the masks leave no token that the policy chose",
    "no log-probabilities": "the calls have no log-probabilities; good for cloning and pairs, not for RL",
    "bad log-probabilities": "log-probabilities above 0 or infinite; good for cloning and pairs, not for RL",
    "no reward": "nothing judged it: no step reward, no score of that name, no outcome; name a reward function",
    "machine failed": "an infrastructure error, which says nothing about the policy",
    "not finite": "a reward that is NaN or infinite",
}
"""Reason → what it means and what to do."""

BLOCKING = frozenset(
    {"no calls", "no token ids", "bad ids", "bad mask", "nothing chosen", "machine failed", "not finite"}
)
"""Reasons that stop every method."""


@dataclass(frozen=True, slots=True)
class Capture:
    """The findings on one captured trajectory."""

    id: str
    calls: int
    """Model calls with token ids."""
    unread: int
    """Model calls without."""
    sequences: int
    """Sequences that the calls merge into; one where each prompt extends the last exactly."""
    forked: int
    """Calls whose prompt does not extend an earlier one."""
    targets: int
    """Tokens that the policy chose."""
    reward: float | None
    reasons: tuple[str, ...] = ()
    """Keys of REASONS."""

    @property
    def continuous(self) -> bool:
        """True if all calls are one sequence."""
        return self.sequences == 1

    @property
    def clonable(self) -> bool:
        """True if supervised methods can use it."""
        return not BLOCKING & set(self.reasons)

    @property
    def trainable(self) -> bool:
        """True if reinforcement learning can use it."""
        return not self.reasons


@dataclass(frozen=True, slots=True)
class CaptureSurvey:
    """Counts over many trajectories."""

    trajectories: int
    trainable: int
    clonable: int
    continuous: int
    reasons: dict[str, int] = field(default_factory=dict)
    """Reason → trajectories."""

    def lines(self) -> list[str]:
        """For reading, one finding a line."""
        noun = "trajectory" if self.trajectories == 1 else "trajectories"
        summary = [
            f"{self.trajectories} {noun}: {self.trainable} can be trained on by RL, "
            f"{self.clonable} by cloning, {self.continuous} are one sequence"
        ]
        return [
            *summary,
            *(f"{count} × {reason}: {REASONS[reason]}" for reason, count in self.reasons.items()),
        ]


def check(trajectory: Trajectory, *, score: str | None = None) -> Capture:
    """Check what can be learned from one trajectory.

    Args:
        score: name of the Score that is the reward; None for step rewards, or else the outcome.
    """
    reasons: list[str] = []
    calls = [step for step in trajectory.steps if step.tokens is not None and step.tokens.output_ids]
    unread = sum(step.kind == "llm" and step.tokens is None for step in trajectory.steps)
    if unread:
        reasons.append("no token ids")
    elif not calls:
        reasons.append("no calls")
    sequences = forked = targets = 0
    try:
        merged, counts = merge(trajectory)
        sequences, forked, targets = counts.sequences, counts.forked, counts.targets
        if calls and not targets:
            reasons.append("nothing chosen")
        logprobs = [value for sequence in merged for value in sequence.logprobs]
        if any(map(math.isnan, logprobs)):
            reasons.append("no log-probabilities")
        elif not all(map(is_logprob, logprobs)):
            reasons.append("bad log-probabilities")
    # `merge` refuses at the first fault; here it is a finding among others.
    except InputError:
        ids_valid = all(are_ids(step.tokens) for step in calls if step.tokens is not None)
        reasons.append("bad mask" if ids_valid else "bad ids")
    reward = _reward(trajectory, score)
    if trajectory.outcome is Outcome.INFRASTRUCTURE_ERROR:
        reasons.append("machine failed")
    elif reward is None:
        reasons.append("no reward")
    elif not math.isfinite(reward):
        reasons.append("not finite")
    return Capture(trajectory.id, len(calls), unread, sequences, forked, targets, reward, tuple(reasons))


def _reward(trajectory: Trajectory, score: str | None) -> float | None:
    if score is not None:
        return trajectory.score(score)
    if trajectory.reward is not None:
        return trajectory.reward
    return float(trajectory.outcome is Outcome.SUCCESS) if trajectory.outcome.counts else None


def survey(trajectories: Iterable[Trajectory], *, score: str | None = None) -> CaptureSurvey:
    """Check what can be learned from many trajectories."""
    captures = [check(trajectory, score=score) for trajectory in trajectories]
    reasons = Counter(reason for capture in captures for reason in capture.reasons)
    return CaptureSurvey(
        len(captures),
        sum(capture.trainable for capture in captures),
        sum(capture.clonable for capture in captures),
        sum(capture.continuous for capture in captures),
        dict(sorted(reasons.items())),
    )


def require(
    trajectories: Sequence[Trajectory], *, score: str | None = None, rl: bool = True
) -> CaptureSurvey:
    """The survey, or a refusal where no trajectory can be used.

    Args:
        rl: whether rewards and log-probabilities are needed; False for supervised methods.

    Raises:
        TrainingRefused: the set is empty, or nothing in it can be used, with the reasons.
    """
    if not trajectories:
        raise TrainingRefused("there are no trajectories; collect some first (whet run, whet serve)")
    usable = survey(trajectories, score=score)
    if not rl:  # what only RL needs is no reason here
        usable = replace(usable, reasons={key: n for key, n in usable.reasons.items() if key in BLOCKING})
    if (usable.trainable if rl else usable.clonable) == 0:
        raise TrainingRefused(
            f"none of {len(trajectories)} trajectories can be trained on. " + "; ".join(usable.lines()[1:])
        )
    return usable
