"""The scores of one run of the main job, and the figures of many."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ...stats import cluster_interval
from ...types import Group, Trajectory
from ..email import Rubric, training_reward

TIERS = ("exact", "vague", "hard")
WEIGHTS = {"exact": 1, "vague": 1, "hard": 2}
"""The mix: questions of each tier in this proportion."""


def rubric_of(trajectory: Trajectory) -> Rubric | None:
    """The checker's record of an episode; None if it broke before it ended."""
    for step in reversed(trajectory.steps):
        if "rubric" in step.info:
            return Rubric(**step.info["rubric"])
    return None


def success(trajectory: Trajectory) -> float | None:
    """1 for a correct answer or a right "I don't know", else 0; by the checker."""
    rubric = rubric_of(trajectory)
    return None if rubric is None else float(rubric.success)


def reward(trajectory: Trajectory) -> float | None:
    """The training reward by the checker."""
    rubric = rubric_of(trajectory)
    return None if rubric is None else training_reward(rubric)


def answered(trajectory: Trajectory) -> float | None:
    """1 if the agent committed itself on a question that has an answer; the alarm against saying "unknown"."""
    rubric = rubric_of(trajectory)
    if rubric is None or not rubric.answerable:
        return None
    return float(not rubric.returned_unknown)


def hallucination(trajectory: Trajectory) -> float | None:
    """1 for a wrong answer given with confidence."""
    rubric = rubric_of(trajectory)
    return None if rubric is None else float(rubric.hallucination)


def turns(trajectory: Trajectory) -> float | None:
    """Tool calls and the answer."""
    rubric = rubric_of(trajectory)
    return None if rubric is None else float(rubric.turns)


def unknown(trajectory: Trajectory) -> float | None:
    """1 for "I don't know" on a question that has an answer; the alarm's signal."""
    attempted = answered(trajectory)
    return None if attempted is None else 1.0 - attempted


REWARDS = (success, reward, answered, unknown, hallucination, turns)


def figures(groups: Sequence[Group]) -> dict[str, dict[str, Any]]:
    """Success, hallucination, share of "unknown", turns, n and interval, for the mix and each tier.

    The tasks are drawn in the proportion of WEIGHTS, so the mix is their plain mean.
    Intervals are 95 %, clustered by mailbox.
    """
    runs = [run for group in groups for run in group.trajectories]
    tiers: dict[str, list[Trajectory]] = {"mix": runs}
    for tier in TIERS:
        tiers[tier] = [run for run in runs if run.task.meta["tier"] == tier]
    return {tier: _figures(chosen) for tier, chosen in tiers.items()}


def _figures(runs: Sequence[Trajectory]) -> dict[str, Any]:
    rubrics = [(run, rubric) for run in runs if (rubric := rubric_of(run)) is not None]
    successes = [success(run) or 0.0 for run, _ in rubrics]
    return {
        "success": mean(successes),
        "hallucination": mean(float(rubric.hallucination) for _, rubric in rubrics),
        "idk_answerable": mean(float(rubric.returned_unknown) for _, rubric in rubrics if rubric.answerable),
        "idk_unanswerable": mean(
            float(rubric.returned_unknown) for _, rubric in rubrics if not rubric.answerable
        ),
        "turns": mean(float(rubric.turns) for _, rubric in rubrics),
        "n": len(rubrics),
        "interval": list(
            cluster_interval(successes, [run.task.group for run, _ in rubrics], bounds=(0.0, 1.0))
        ),
    }


def mean(values: Iterable[float]) -> float | None:
    """Mean, None of nothing."""
    listed = list(values)
    return sum(listed) / len(listed) if listed else None
