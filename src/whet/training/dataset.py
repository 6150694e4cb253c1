"""Trajectories in files: one JSON object a line, as the store keeps them.

A line in the published shape (`task_id`, `steps`) is read too; it has no token ids and
so cannot be trained on, which the capture check then says.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from ..data.formats import trajectory_from_json
from ..errors import InputError, NotFoundError, StoreError
from ..store.codec import decode, encode
from ..types import Group, Trajectory


def read(path: Path) -> list[Trajectory]:
    """The trajectories of a file.

    Raises:
        NotFoundError: no such file.
        InputError: a line is no trajectory; says which.
    """
    if not path.is_file():
        raise NotFoundError(f"there is no file {path}; give one with a trajectory as JSON on each line")
    found = []
    with open(path, "rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                given = msgspec.json.decode(line)
                published = isinstance(given, dict) and "task_id" in given
                found.append(trajectory_from_json(given) if published else decode(line, Trajectory))
            except (msgspec.DecodeError, InputError, StoreError, TypeError, ValueError) as error:
                why = str(error).partition(". It was not written")[0]
                raise InputError(f"{path}, line {number}: not a trajectory: {why}") from error
    return found


def write(path: Path, trajectories: Iterable[Trajectory]) -> int:
    """Write trajectories, one a line; how many."""
    count = 0
    with open(path, "wb") as file:
        for trajectory in trajectories:
            file.write(encode(trajectory) + b"\n")
            count += 1
    return count


def grouped(trajectories: Sequence[Trajectory]) -> list[Group]:
    """Groups by task, in the order in which the tasks first come."""
    by_task: dict[str, list[Trajectory]] = {}
    for trajectory in trajectories:
        by_task.setdefault(trajectory.task.id, []).append(trajectory)
    return [Group(found[0].task, found) for found in by_task.values()]


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
