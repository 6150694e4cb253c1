"""An Env as a `gymnasium.Env`; apart from `gym.py`, which works without the package."""

from __future__ import annotations

import asyncio
import string
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import gymnasium
import msgspec

from ..errors import InputError
from ..types import Json, Task
from .spaces import as_json, as_member

LONGEST = 2**20
"""Characters of a text in the default spaces."""


class AnyText(gymnasium.spaces.Text):
    """Every text up to LONGEST characters; samples are short and printable."""

    def __init__(self) -> None:
        super().__init__(max_length=32, charset=string.ascii_letters + string.digits + " ")

    def contains(self, x: Any) -> bool:
        """True for text that is not too long, whatever its characters."""
        return isinstance(x, str) and len(x) <= LONGEST


class TaskEnv(gymnasium.Env[Any, Any]):
    """Episodes of an Env, each of a task drawn by the seed; made by `as_gymnasium`."""

    def __init__(
        self, make: Callable[[], Any], tasks: Sequence[Task], *, observation_space: Any, action_space: Any
    ) -> None:
        self._make, self._tasks = make, list(tasks)
        self._by_id = {task.id: task for task in self._tasks}
        self._as_text = observation_space is None
        self.observation_space = observation_space or AnyText()
        self.action_space = action_space or AnyText()
        self._env: Any = None
        self._last: Json = None
        self._thread: ThreadPoolExecutor | None = None
        self._runner: asyncio.Runner | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """The first observation of a task, and an info with the task's id.

        Raises:
            InputError: there is no task of the id in `options`.
        """
        super().reset(seed=seed)
        wanted = (options or {}).get("task")
        if wanted is not None and wanted not in self._by_id:
            raise InputError(f"there is no task {wanted!r} among these {len(self._tasks)}")
        # Drawn in any case, so that the stream of seeds does not depend on the options.
        drawn, of_env = (int(self.np_random.integers(limit)) for limit in (len(self._tasks), 2**31))
        task = self._tasks[drawn] if wanted is None else self._by_id[wanted]
        self._env = self._make()
        self._last = self._resolved(self._env.reset(task, of_env))
        return self._seen(self._last), {"task": task.id}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """The Env's step; after the last one the observation is empty where the Env gives none."""
        result = self._resolved(self._env.step(as_json(action)))
        observation, reward, terminated, truncated, info = result
        if observation is None and not self._as_text:
            observation = self._last  # a space of the user's own need not hold None
        self._last = observation
        return self._seen(observation), float(reward or 0.0), bool(terminated), bool(truncated), dict(info)

    def close(self) -> None:
        """End the thread that async Envs run in."""
        if self._thread is not None:
            if self._runner is not None:
                self._thread.submit(self._runner.close).result()
            self._thread.shutdown()
        self._thread = self._runner = None

    def _seen(self, observation: Json) -> Any:
        if not self._as_text:
            return as_member(self.observation_space, observation)
        if isinstance(observation, str):
            return observation
        return "" if observation is None else msgspec.json.encode(observation).decode()

    def _resolved(self, value: Any) -> Any:
        if not hasattr(type(value), "__await__"):
            return value
        # In a thread with a loop of its own: the caller's may be running, as in a notebook.
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1)
            self._runner = asyncio.Runner()

        async def awaited() -> Any:
            return await value

        assert self._runner is not None
        return self._thread.submit(self._runner.run, awaited()).result()
