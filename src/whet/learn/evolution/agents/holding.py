"""Processes that the rollouts of one candidate share, opened when one of them is first called."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from typing import Any

from ....errors import EnvError
from ....record.env import Env, StepResult
from ....record.policy import Action, Policy
from ....sandbox import CallResult
from ....types import Bundle, Failure, Fault, Json, Task


class CandidateCallFailed(Exception):
    """A call of a candidate that failed; `failure` says why, and whose fault it was."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(f"{failure.type}: {failure.message}")
        self.failure = failure


_episode: ContextVar[OneAnswer | None] = ContextVar("whet_one_answer", default=None)
"""The episode of this rollout, in which a policy notes how its call went."""


class OneAnswer:
    """An Env of one step: the observation is the task's initial state, and any action ends the episode."""

    def __init__(self) -> None:
        self.meta: dict[str, Json] = {}
        self._open = False

    def reset(self, task: Task, seed: int) -> Json:
        self._open = True
        _episode.set(self)
        return dict(task.initial_state)

    def step(self, action: Json) -> StepResult:
        if not self._open:
            raise EnvError("nothing has been asked, or it has been answered: reset() a fresh Env")
        self._open = False
        return StepResult(None, None, True)


class OpenCandidate:
    """The open process of one candidate, by the name of what is called in it; one call at a time."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.holders = 0
        self.ended: dict[str, CallResult] = {}
        """The call that ended a process: its answer to all further calls, which would cost a timeout each."""
        self.expected: deque[tuple[str, Json]] = deque()
        """Name and input of the calls to come, in their order; those of one name in a row may be sent together."""
        self.ahead: deque[tuple[Json, CallResult]] = deque()
        """Input and result of calls to the open process that were made before they were asked for."""
        self._name = ""
        self._process: Any = None
        self._stack = AsyncExitStack()

    async def session(self, name: str, make: Callable[[], AbstractAsyncContextManager[Any]]) -> Any:
        """The process under this name, opened by `make` if it is not open."""
        if name != self._name:
            # One at a time: in a pool with a single worker a candidate that held its first process while it waited
            # for a second would wait forever.
            await self.close()
            self._process = await self._stack.enter_async_context(make())
            self._name = name
        return self._process

    async def close(self) -> None:
        """Close the process, if one is open."""
        self._name, self._process = "", None
        self.ahead.clear()
        # The stack can be entered again: closing it takes out what it held.
        await self._stack.aclose()

    async def settle(self, name: str, result: CallResult) -> None:
        """Note the effect of a call on its process: one that it ended is not asked again, a lost one is replaced."""
        if result.killed_by is not None or result.exit_code is not None:
            self.ended[name] = result
        elif result.failure is not None and result.failure.fault is Fault.SANDBOX:
            await self.close()


class _Candidate:
    """The Policy of one episode: the candidate of a Bundle; nothing outside of its process is drawn by chance."""

    def __init__(self, env: Holding, bundle: Bundle) -> None:
        self._env, self._bundle = env, bundle

    async def act(self, observation: Json, /) -> Action:
        # Where nobody else holds the candidate this call is the first and the last.
        async with self._env.held(self._bundle) as live, live.lock:
            return Action(await self._env.answer(live, self._bundle, observation))


class Holding:
    """An Env factory that keeps the process of a Bundle for its rollouts as long as somebody holds it."""

    def __init__(self) -> None:
        self.live: dict[str, OpenCandidate] = {}
        """Bundle id → its process, of those that are held."""
        self.cpu_seconds = 0.0
        """Of all calls so far."""

    def __call__(self) -> Env:
        """A fresh episode."""
        return OneAnswer()

    def policy(self, bundle: Bundle, seed: int, /) -> Policy:
        """The candidate of a Bundle."""
        return _Candidate(self, bundle)

    async def answer(self, live: OpenCandidate, bundle: Bundle, observation: Json) -> Json:
        """The candidate's answer.

        Raises:
            CandidateCallFailed: there is none.
        """
        raise NotImplementedError

    @asynccontextmanager
    async def held(self, bundle: Bundle) -> AsyncIterator[OpenCandidate]:
        """The processes of a Bundle: shared by all that hold it, ended with the last of them."""
        live = self.live.setdefault(bundle.id, OpenCandidate())
        live.holders += 1
        try:
            yield live
        finally:
            live.holders -= 1
            if not live.holders:
                # Before the await: who comes while it closes gets a process of its own.
                del self.live[bundle.id]
                await live.close()


def tell(result: CallResult, **more: Json) -> None:
    """Note in the episode under way, and so in its Trajectory's `meta`, how the call went."""
    episode = _episode.get()
    if episode is None:
        return
    episode.meta |= {"cpu_seconds": result.cpu_seconds, **more}
    if result.killed_by is not None:
        episode.meta["killed_by"] = result.killed_by
    episode.meta |= {name: True for name in ("co_resident", "trusted_only") if getattr(result, name)}
