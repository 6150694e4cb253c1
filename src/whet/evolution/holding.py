"""Processes that the rollouts of one candidate share, opened when one of them is first called."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from typing import Any

from ..env import Env, StepResult
from ..errors import EnvError, WhetError
from ..faults import fault_of
from ..sandbox import Result
from ..types import Bundle, Failure, Fault, Json, Task


class CallFailed(Exception):
    """A call of a candidate that came to nothing; `failure` says why, and whose fault it was."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(f"{failure.type}: {failure.message}")
        self.failure = failure


def refused(error: WhetError) -> CallFailed:
    """A candidate that cannot be put in place."""
    return CallFailed(Failure(fault_of(error), type(error).__name__, str(error)))


_episode: ContextVar[OneAnswer | None] = ContextVar("whet_one_answer", default=None)
"""The episode that is under way in this rollout: how a policy says what its call was like."""


class OneAnswer:
    """An Env of one step: the observation is the task's initial state, and whatever is answered ends it."""

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


class Live:
    """What is open of one candidate, by the name of what is called; one call at a time."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.holders = 0
        self.ended: dict[str, Result] = {}
        """The call that ended a process: its answer to all further calls, which would cost a timeout each."""
        self.expected: deque[tuple[str, Json]] = deque()
        """Name and input of the calls to come, in their order; those of one name in a row may be sent together."""
        self.ahead: dict[str, deque[tuple[Json, Result]]] = {}
        """Input and result of calls that were made before they were asked for."""
        self._open: dict[str, tuple[Any, AsyncExitStack]] = {}

    def opened(self, name: str) -> Any:
        """What is open under this name, None if nothing is."""
        held = self._open.get(name)
        return None if held is None else held[0]

    async def session(self, name: str, make: Callable[[], AbstractAsyncContextManager[Any]]) -> Any:
        """What is open under this name, opened by `make` where nothing is.

        One at a time: a candidate that waited for a second worker of a pool while it holds the first would wait for
        ever where there is but one.
        """
        if name not in self._open:
            await self.close()
            stack = AsyncExitStack()
            self._open[name] = await stack.enter_async_context(make()), stack
        return self._open[name][0]

    async def leave(self, name: str) -> None:
        """Close what is open under this name."""
        self.ahead.pop(name, None)
        _, stack = self._open.pop(name)
        await stack.aclose()

    async def close(self) -> None:
        """Close everything."""
        while self._open:
            await self.leave(next(iter(self._open)))

    async def settle(self, name: str, result: Result) -> None:
        """Note what a call did to its process: one that it ended is not asked again, one that was lost is replaced."""
        if result.killed_by is not None or result.exit_code is not None:
            self.ended[name] = result
        elif result.failure is not None and result.failure.fault is Fault.SANDBOX:
            await self.leave(name)


class Holding:
    """An Env factory that keeps what rollouts of one Bundle share for as long as somebody holds it."""

    def __init__(self) -> None:
        self._live: dict[str, Live] = {}
        self.cpu_seconds = 0.0
        """Of all calls so far."""

    def __call__(self) -> Env:
        """A fresh episode."""
        return OneAnswer()

    def live(self, bundle: Bundle) -> Live | None:
        """What is held for a Bundle, None if nobody holds anything."""
        return self._live.get(bundle.id)

    @asynccontextmanager
    async def held(self, bundle: Bundle) -> AsyncIterator[Live]:
        """The processes of a Bundle: shared by all that hold it, ended with the last of them."""
        live = self._live.setdefault(bundle.id, Live())
        live.holders += 1
        try:
            yield live
        finally:
            live.holders -= 1
            if not live.holders:
                del self._live[bundle.id]
                await live.close()


def tell(result: Result, **more: Json) -> None:
    """Note in the episode under way, and so in its Trajectory's `meta`, how the call went."""
    episode = _episode.get()
    if episode is None:
        return
    episode.meta |= {"cpu_seconds": result.cpu_seconds, **more}
    if result.killed_by is not None:
        episode.meta["killed_by"] = result.killed_by
    episode.meta |= {name: True for name in ("co_resident", "trusted_only") if getattr(result, name)}
