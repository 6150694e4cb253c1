"""Waiting in the server's loop for a commit of the store: `await settled(future)`, and the Backlog that bounds it.

A group commit settles many futures at once, in the writer's thread.  `asyncio.wrap_future` wakes the
loop once for each of them; here one wake-up carries as many as have gathered.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from concurrent.futures import Future
from typing import TypeVar

from ..record.store import Store
from .http import Refused

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
    """Bounds the bytes that wait for the disk: a slow one makes clients retry, and memory does not grow.

    It asks the record's writer, which knows what waits, unpacked, whoever submitted it.

    Args:
        store: the record.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.gathered = 0
        """Bytes that were let in and are not yet handed to the writer."""

    def admit(self, size: int = 0) -> None:
        """Let a request in if not too much waits already.

        Asked before a body is read, and again, with nothing awaited in between, before its `size` bytes are
        submitted: many requests may have been let in while nothing waited yet.

        Raises:
            Refused: 503.
        """
        waiting = self._store.database.waiting + self.gathered
        # What is too large by itself is let in alone.
        if waiting and waiting + size > WAITING:
            raise Refused(
                503,
                "disk_busy",
                "the disk does not keep up; try again in a second",
                headers={"retry-after": "1"},
            )
