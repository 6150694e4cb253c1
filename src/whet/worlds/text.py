"""BabyAI's GoTo missions in words: `pip install minigrid`.

As BabyAI-Text (Carta et al. 2023) does for BabyAI: the agent reads its mission and
its view, in sentences, and acts by naming one of six actions.  Built on minigrid's
environments; the sentences are ours.  Positions are relative to the agent: "You see a
red ball 2 steps forward and 1 step left".

Reward is minigrid's (1 − 0.9 · steps / limit) at the goal and 0 elsewhere.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import EnvError, InputError, MissingExtra
from ..record.env import StepResult
from ..types import Json, Task

ACTIONS = ("turn left", "turn right", "go forward", "pick up", "drop", "toggle")
LEVELS = {
    "goto_red_ball": "BabyAI-GoToRedBallNoDists-v0",
    "goto_red_ball_distractors": "BabyAI-GoToRedBall-v0",
    "goto_object": "BabyAI-GoToObj-v0",
    "goto_local": "BabyAI-GoToLocal-v0",
}
"""Name → minigrid's id."""
WORDS: tuple[str, ...] = (
    *("go", "to", "the", "a", "You", "see", "wall", "step", "steps", "and", "."),
    *("ball", "box", "key", "blue", "green", "grey", "purple", "red", "yellow"),
    *("forward", "left", "right", "turn", "pick", "up", "drop", "toggle"),
    *map(str, range(1, 9)),
)
"""Every word of these levels and actions: the vocabulary of a policy that reads nothing else."""


def text_tasks(
    count: int, *, level: str = "goto_red_ball", seed: int = 0, names: dict[str, str] | None = None
) -> list[Task]:
    """Missions of a level, each with a grid of its own.

    Args:
        names: word → the word in its place ("ball" → "sphere"), to see whether the agent
            learned words or the task.

    Raises:
        InputError: there is no such level.
    """
    if level not in LEVELS:
        raise InputError(f"there is no level {level!r}; choose one of {', '.join(LEVELS)}")
    rng = random.Random(f"{level}/{seed}")
    return [
        Task(
            id=f"{level}-{seed}-{number}",
            initial_state={"level": level, "grid": rng.randrange(2**31), "names": dict(names or {})},
        )
        for number in range(count)
    ]


def spoken(observation: Mapping[str, Json], *, mission: bool = True) -> list[str]:
    """An observation as words, each line closed by a full stop.

    Args:
        mission: begin with it; a policy with a memory has read it once.
    """
    lines = [observation["mission"]] if mission else []
    return [word for line in (*lines, *observation["seen"]) for word in (*line.split(), ".")]


class TextWorld:
    """One mission.

    Args:
        limit: steps before the episode is cut off; None for the level's own.

    Raises:
        MissingExtra: minigrid is not installed.
    """

    def __init__(self, limit: int | None = 32) -> None:
        try:
            import minigrid  # noqa: F401  (registers its levels; brings a graphics library)
        except ImportError as error:
            raise MissingExtra("minigrid", "worlds") from error
        self._limit = limit
        self._env: Any = None
        self._done = True

    def reset(self, task: Task, seed: int) -> dict[str, Json]:
        """The mission and the view.

        Raises:
            EnvError: the task is none of `text_tasks`.
        """
        import gymnasium

        state = task.initial_state
        if state.get("level") not in LEVELS or "grid" not in state:
            raise EnvError(f"task {task.id} is not a mission; make tasks with text_tasks()")
        # Unwrapped: gymnasium's own checks and time limit would come around the level's.
        more: dict[str, Any] = {} if self._limit is None else {"max_steps": self._limit}
        self._env = gymnasium.make(LEVELS[state["level"]], **more).unwrapped
        self._names: dict[str, str] = dict(state.get("names") or {})
        view, _ = self._env.reset(seed=int(state["grid"]))
        self._done = False
        return self._observation(view)

    def step(self, action: Json) -> StepResult:
        """Do one of ACTIONS; anything else is not understood and costs a step.

        Raises:
            EnvError: stepped before reset or after the end.
        """
        if self._done or self._env is None:
            raise EnvError("the mission is over or was never started: make a fresh TextWorld and reset it")
        number = ACTIONS.index(action) if action in ACTIONS else 6  # minigrid's `done` does nothing
        view, reward, terminated, truncated, _ = self._env.step(number)
        self._done = terminated or truncated
        info = {"success": float(reward) > 0} if self._done else {}
        observation = None if self._done else self._observation(view)
        return StepResult(observation, float(reward), bool(terminated), bool(truncated), info)

    def _observation(self, view: Any) -> dict[str, Json]:
        mission = self._renamed(str(self._env.mission))
        lines = [self._renamed(line) for line in described(view["image"])]
        return {"mission": mission, "seen": lines, "actions": list(ACTIONS)}

    def _renamed(self, text: str) -> str:
        return " ".join(self._names.get(word, word) for word in text.split())


def described(image: Any) -> list[str]:
    """Sentences for the objects in minigrid's egocentric view.

    Args:
        image: (7, 7, 3) of object, colour and state; the agent stands at (3, 6) and looks along −y.
    """
    from minigrid.core.constants import IDX_TO_COLOR, IDX_TO_OBJECT, STATE_TO_IDX

    wide, high = image.shape[0], image.shape[1]
    middle, near = wide // 2, high - 1
    doors = {number: name for name, number in STATE_TO_IDX.items()}
    things = []
    for x in range(wide):
        for y in range(high):
            kind = IDX_TO_OBJECT[int(image[x, y, 0])]
            if kind in ("unseen", "empty", "floor", "wall", "agent") or (x, y) == (middle, near):
                continue
            state = f"{doors[int(image[x, y, 2])]} " if kind == "door" else ""
            label = f"{state}{IDX_TO_COLOR[int(image[x, y, 1])]} {kind}"
            things.append((abs(x - middle) + near - y, f"You see a {label} {_where(x - middle, near - y)}"))
    ahead = _wall(image, [(middle, y) for y in range(near - 1, -1, -1)])
    lines = [line for _, line in sorted(things)]
    return lines + ([f"You see a wall {_steps(ahead)} forward"] if ahead else [])


def _wall(image: Any, cells: Sequence[tuple[int, int]]) -> int | None:
    """The distance in steps to the first wall of these cells."""
    from minigrid.core.constants import OBJECT_TO_IDX

    for distance, (x, y) in enumerate(cells, 1):
        if int(image[x, y, 0]) == OBJECT_TO_IDX["wall"]:
            return distance
    return None


def _where(right: int, forward: int) -> str:
    parts = [f"{_steps(forward)} forward"] if forward else []
    if right:
        parts.append(f"{_steps(abs(right))} {'right' if right > 0 else 'left'}")
    return " and ".join(parts)


def _steps(count: int) -> str:
    return f"{count} step{'s' if count > 1 else ''}"
