"""A tree to walk down: each turn a branch is chosen, and one leaf is the right one.

Labels of steps and pairs made by search need an environment with prefixes to
continue from, steps that decide, and a truth to judge labels by: this one.
Wrong turns are final unless `repairable`, where one later `undo` takes the last wrong
turn back: there, a label of "some completion succeeds" calls a bad step good.

The observation is the goal and the path so far; nothing in it says whether a turn
was right.  `first_wrong` is that truth, for tests and tables alone.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from ..errors import EnvError, InputError
from ..record.env import StepResult
from ..types import Json, Task

UNDO = "undo"


def tree_tasks(
    count: int, *, depth: int = 5, branches: int = 3, repairable: bool = False, seed: int = 0
) -> list[Task]:
    """Tasks whose right path is drawn by `seed`; which goal wants which turn is the same in all of them.

    Raises:
        InputError: a tree without a choice in it.
    """
    if depth < 1 or branches < 2:
        raise InputError(f"a tree needs depth 1 and 2 branches at least; got {depth} and {branches}")
    rng = random.Random(seed)
    tasks = []
    for number in range(count):
        goal = [rng.randrange(branches) for _ in range(depth)]
        state = {"goal": goal, "branches": branches, "repairable": repairable}
        tasks.append(
            Task(id=f"tree-{seed}-{number}", instruction=" ".join(map(str, goal)), initial_state=state)
        )
    return tasks


def right_turns(task: Task) -> list[str]:
    """The path that succeeds: at each depth the branch after the goal's, so that copying fails."""
    branches = int(task.initial_state["branches"])
    return [str((int(turn) + 1) % branches) for turn in task.initial_state["goal"]]


def first_wrong(task: Task, actions: Sequence[Json]) -> int | None:
    """Number of the first step that left the right path for good; None if none did."""
    right, path = right_turns(task), list[tuple[int, str]]()
    for number, action in enumerate(actions):
        if action == UNDO and task.initial_state["repairable"] and path:
            path.pop()
        else:
            path.append((number, str(action)))
    for depth, (number, action) in enumerate(path):
        if depth >= len(right) or action != right[depth]:
            return number
    return None


class Tree:
    """One walk from the root; a reward of 1 at the right leaf, 0 on the way and at every other."""

    def __init__(self) -> None:
        self._right: list[str] | None = None
        self._path: list[str] = []
        self._done = True

    def reset(self, task: Task, seed: int) -> dict[str, Json]:
        """The goal and an empty path."""
        try:
            self._goal = [str(turn) for turn in task.initial_state["goal"]]
            self._branches = int(task.initial_state["branches"])
            self._undo = int(bool(task.initial_state["repairable"]))
            self._right = right_turns(task)
        except (KeyError, TypeError, ValueError) as error:
            raise EnvError(
                f"task {task.id} is not a walk down a tree: {error!r}; use tree_tasks()"
            ) from error
        self._path, self._done = [], False
        return self._observation()

    def step(self, action: Json) -> StepResult:
        """Take a branch by its number as text, or `undo` where the tree can be repaired, once.

        Anything else is a wrong turn and ends the walk.

        Raises:
            EnvError: stepped before reset or after the end.
        """
        if self._right is None or self._done:
            raise EnvError("the walk is over or was never started: make a fresh Tree and reset it")
        if action == UNDO and self._undo and self._path:
            self._path.pop()
            self._undo -= 1
            return StepResult(self._observation(), 0.0)
        valid = isinstance(action, str) and action.isdecimal() and int(action) < self._branches
        self._path.append(str(action))
        self._done = not valid or len(self._path) == len(self._right)
        won = self._done and self._path == self._right
        observation = None if self._done else self._observation()
        return StepResult(observation, float(won), self._done, False, {"success": won} if self._done else {})

    def snapshot(self) -> Any:
        """Everything that the walk is."""
        return deepcopy(self.__dict__)

    def restore(self, saved: Any) -> None:
        """Go back to where `snapshot` was taken."""
        # Copied here as well: a search restores one snapshot many times.
        self.__dict__.update(deepcopy(saved))

    def _observation(self) -> dict[str, Json]:
        return {"goal": list(self._goal), "path": list(self._path), "undo": bool(self._undo)}
