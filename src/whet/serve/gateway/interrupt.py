"""Ends calls whose agent has hung up, and waits that are too long, with one timer for all of them.

A timer and a task for each call cost as much as reading its request, and nearly every call of a fast upstream is over
before either has anything to do.  So the calls under way are looked through every `TICK` seconds, while there are any:
the agent of one that has lasted that long is watched, and a wait that is over its time is cut off at the next look.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType

from .failures import ClientGone

TICK = 0.02
"""Seconds between two looks: by which a wait may be longer than it was given."""


class Interruptible:
    """A call under way, which ends once its agent has hung up; a `with` block in the call's own task.

    Raises:
        ClientGone: at the end of the block: the agent did.
    """

    __slots__ = ("_deadline", "_disconnected", "_gone", "_interrupter", "_late", "_task", "_watcher")

    def __init__(self, interrupter: Interrupter, disconnected: Callable[[], Awaitable[object]]) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._disconnected = disconnected
        self._interrupter, self._task = interrupter, task
        self._watcher: asyncio.Task[None] | None = None
        self._deadline: float | None = None
        self._gone = self._late = False

    def __enter__(self) -> Interruptible:
        self._interrupter.add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._interrupter.discard(self)
        if self._watcher is not None:
            self._watcher.cancel()
        # Only our own cancellation becomes ClientGone; where the server has cancelled too, that goes on.
        if self._gone and kind is asyncio.CancelledError and self._task.uncancel() == 0:
            raise ClientGone from None

    def within(self, seconds: float) -> TimeLimit:
        """A `with` block that raises TimeoutError if it lasts longer; not to be nested."""
        return TimeLimit(self, seconds)

    def look(self, now: float) -> None:
        """Have the agent watched, and cut off a wait that is over its time; called by the timer."""
        if self._watcher is None:
            self._watcher = asyncio.create_task(self._watch())
        if self._deadline is not None and now >= self._deadline and not self._gone:
            self._deadline, self._late = None, True
            self._task.cancel()

    async def _watch(self) -> None:
        await self._disconnected()
        if not self._late:  # else it ends already
            self._gone = True
            self._task.cancel()


class TimeLimit:
    """The longest that a part of an Interruptible may wait; see `Interruptible.within`."""

    __slots__ = ("_call", "_seconds")

    def __init__(self, call: Interruptible, seconds: float) -> None:
        self._call, self._seconds = call, seconds

    def __enter__(self) -> None:
        self._call._deadline = self._call._interrupter.time() + self._seconds

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        call = self._call
        call._deadline = None
        if call._late:
            call._late = False
            if kind is asyncio.CancelledError and call._task.uncancel() == 0:
                raise TimeoutError from error


class Interrupter:
    """The calls under way in one loop, and the timer that looks at them."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.time = loop.time
        self._later = loop.call_later
        self._begun: set[Interruptible] = set()
        """Since the last look."""
        self._watched: set[Interruptible] = set()
        self._ticking = False

    def call(self, disconnected: Callable[[], Awaitable[object]]) -> Interruptible:
        """A call, for its `with` block.

        Args:
            disconnected: returns once the agent has gone (`Request.disconnected`).
        """
        return Interruptible(self, disconnected)

    def add(self, call: Interruptible) -> None:
        self._begun.add(call)
        if not self._ticking:
            self._ticking = True
            self._later(TICK, self._look)

    def discard(self, call: Interruptible) -> None:
        self._begun.discard(call)
        self._watched.discard(call)

    def _look(self) -> None:
        now = self.time()
        for call in self._watched:
            call.look(now)
        # Not looked at yet: one that began since the last look is younger than a tick.
        self._watched |= self._begun
        self._begun = set()
        self._ticking = bool(self._watched)
        if self._ticking:
            self._later(TICK, self._look)
