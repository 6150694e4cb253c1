"""What a trajectory is worth to a learner that compares candidates: one number, or nothing.

Every method that ranks candidates by recorded outcomes reads them here, so that a missing score and
a failed machine are excluded, and counted, in one way.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..types import Outcome, Trajectory


def value_of(trajectory: Trajectory, score: str) -> float | None:
    """The named score of a trajectory, None if it has none: never 0 for missing.

    Args:
        score: name of a Score; `reward` is the sum of step rewards unless a Score has that name;
            `success` is 1 or 0 by the outcome unless a Score has that name.

    An infrastructure error is None whatever was scored: the candidate is not responsible for it.
    """
    if trajectory.outcome is Outcome.INFRASTRUCTURE_ERROR:
        return None
    if score in trajectory.scores:
        value = trajectory.scores[score].value
        return None if value is None or value != value else float(value)
    if score == "reward":
        return trajectory.reward
    if score == "success" and trajectory.outcome is not Outcome.UNKNOWN:
        return float(trajectory.outcome is Outcome.SUCCESS)
    return None


def mean_value(trajectories: Sequence[Trajectory], score: str) -> tuple[float | None, int]:
    """Mean of the values there are, and how many were missing."""
    values = [value for value in (value_of(each, score) for each in trajectories) if value is not None]
    missing = len(trajectories) - len(values)
    return (sum(values) / len(values) if values else None), missing
