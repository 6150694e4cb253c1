"""From the record's threads into the server's loop: `await settled(future)`.

A group commit settles many futures at once, in the writer's thread.  `asyncio.wrap_future` wakes the
loop once for each of them; here one wake-up carries as many as have gathered.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class _Bridge:
    """What has settled and is not told yet, for one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
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
            loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        with self._lock:
            settled, self._settled = self._settled, []
        for waiter in settled:
            if not waiter.done():
                waiter.set_result(None)


_bridges: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Bridge] = weakref.WeakKeyDictionary()


async def settled(future: Future[T]) -> T:
    """The result of a future of another thread.

    A caller that is cancelled stops waiting; what the future stands for goes on.

    Raises:
        Exception: whatever the future holds.
    """
    if not future.done():
        loop = asyncio.get_running_loop()
        bridge = _bridges.get(loop)
        if bridge is None:
            bridge = _bridges[loop] = _Bridge(loop)
        waiter = loop.create_future()
        found = bridge  # the callback outlives this frame

        def tell(_: Future[Any]) -> None:
            found.settle(waiter)

        future.add_done_callback(tell)
        await waiter
    return future.result()
