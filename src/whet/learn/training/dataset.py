"""Recorded trajectories as what is trained on: grouped by task, with the vocabulary that their ids need."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...types import Group, Trajectory


def grouped(trajectories: Sequence[Trajectory]) -> list[Group]:
    """Groups by task, in the order in which the tasks first come."""
    by_task: dict[str, list[Trajectory]] = {}
    for trajectory in trajectories:
        by_task.setdefault(trajectory.task.id, []).append(trajectory)
    return [Group(runs[0].task, runs) for runs in by_task.values()]


def vocabulary_size(trajectories: Iterable[Trajectory]) -> int:
    """One more than the largest token id in these trajectories; 0 if they have none."""
    return 1 + max(
        (
            number
            for trajectory in trajectories
            for step in trajectory.steps
            if step.tokens is not None
            for number in (*step.tokens.prompt_ids, *step.tokens.output_ids)
        ),
        default=-1,
    )
