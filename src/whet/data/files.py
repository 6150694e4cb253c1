"""Trajectories in files: one JSON object a line, as the store keeps them.

A line in the published shape (`task_id`, `steps`) is read too; it has no token ids and
so cannot be trained on, which the capture check then says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from ..errors import InputError, NotFoundError, StoreError
from ..escapes import read_json, whole
from ..store.codec import decode, encode
from ..types import Task, Trajectory
from .formats import trajectory_from_json


def read(path: Path, tasks: Mapping[str, Task] | None = None) -> list[Trajectory]:
    """The trajectories of a file.

    Args:
        tasks: id → Task; the published shape has a task's id alone.

    Raises:
        NotFoundError: no such file.
        InputError: a line is not a trajectory; says which.
    """
    if not path.is_file():
        raise NotFoundError(f"there is no file {path}; give one with a trajectory as JSON on each line")
    trajectories = []
    with open(path, "rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                fields = read_json(msgspec.json.decode, line)
                if not isinstance(fields, dict):
                    raise InputError(f"a trajectory is a JSON object, not {type(fields).__name__}")
                # Only the published shape has a task's id alone; a stored trajectory holds its whole task.
                published = "task_id" in fields
                trajectories.append(
                    trajectory_from_json(fields, tasks) if published else decode(whole(line), Trajectory)
                )
            except (msgspec.DecodeError, InputError, StoreError, TypeError, ValueError) as error:
                why = str(error).partition(". It was not written")[0]
                raise InputError(f"{path}, line {number}: not a trajectory: {why}") from error
    return trajectories


def write(path: Path, trajectories: Iterable[Trajectory]) -> int:
    """Write trajectories, one a line; how many."""
    count = 0
    with open(path, "wb") as file:
        for trajectory in trajectories:
            file.write(encode(trajectory) + b"\n")
            count += 1
    return count
