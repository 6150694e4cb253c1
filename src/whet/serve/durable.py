"""Waiting in the server's loop for a commit of the store: `await settled(future)`, and the Backlog that bounds it.

A group commit settles many futures at once, in the writer's thread.  `asyncio.wrap_future` wakes the
loop once for each of them; here one wake-up carries as many as have gathered.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from concurrent.futures import Future
from typing import Any, TypeVar

from .asgi import Refused

T = TypeVar("T")

WAITING = 48 * 1024 * 1024
"""Bytes that may wait for the disk before further ones are refused; less than the record's own limit
(`group_commit.WAITING`), beyond which submitting would block the loop."""


class _Bridge:
    """Waiters of one loop whose futures have settled, woken together."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        # Weak, for the bridge is the value of this loop's key in `_bridges`: it would keep its own key alive.
        self._loop = weakref.ref(loop)
        self._lock = threading.Lock()
        self._settled: list[asyncio.Future[None]] = []

    def settle(self, waiter: asyncio.Future[None]) -> None:
        """Have `waiter` woken; called from any thread."""
        with self._lock:
            self._settled.append(waiter)
            first = len(self._settled) == 1
        loop = self._loop()
        if first and loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        with self._lock:
            settled, self._settled = self._settled, []
        for waiter in settled:
            # A waiter whose request was cancelled is done already, and would raise InvalidStateError.
            if not waiter.done():
                waiter.set_result(None)


_bridges: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Bridge] = weakref.WeakKeyDictionary()


async def settled(future: Future[T]) -> T:
    """The result of a future of another thread.

    A caller that is cancelled stops waiting; the commit goes on.

    Raises:
        Exception: whatever the future holds.
    """
    if not future.done():
        loop = asyncio.get_running_loop()
        bridge = _bridges.get(loop)
        if bridge is None:
            bridge = _bridges[loop] = _Bridge(loop)
        waiter = loop.create_future()
        settle = bridge.settle
        future.add_done_callback(lambda _: settle(waiter))
        await waiter
    return future.result()


class Backlog:
    """Bounds the bytes that wait for the disk: a slow one makes clients retry, and memory does not grow."""

    def __init__(self) -> None:
        # Read and changed in the server's loop alone, so there is no lock.
        self._waiting = 0

    async def durable(self, future: Future[Any], size: int) -> Any:
        """Wait for the commit of `size` submitted bytes, and return the future's result."""
        self._waiting += size
        try:
            return await settled(future)
        finally:
            # A caller that is cancelled gives its bytes back too, though their commit goes on.
            self._waiting -= size

    def admit(self) -> None:
        """Let a request in if not too much waits already.

        Raises:
            Refused: 503.
        """
        if self._waiting > WAITING:
            raise Refused(
                503,
                "disk_busy",
                "the disk does not keep up; try again in a second",
                headers={"retry-after": "1"},
            )
