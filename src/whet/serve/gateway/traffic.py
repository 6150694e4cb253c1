"""Pausing and draining: what a trainer does around a change of weights.

While paused, calls that arrive are held and those under way go on; drained means paused with none
under way.  All of it happens in the server's loop, so there is nothing to lock.
"""

from __future__ import annotations

import asyncio

from ...types import Fault
from .failures import UpstreamFailed

PATIENCE = 60.0
"""Seconds that a call is held before the agent is told to come again."""
HELD = 10_000
"""Calls that are held at most."""


class Traffic:
    """Counts the calls under way and holds those that come while paused.

    A call waits in `let_in`, and is then a `with` block until its answer has ended.
    """

    def __init__(self, *, patience: float = PATIENCE, held: int = HELD) -> None:
        self.patience, self.most = patience, held
        self.in_flight = 0
        self.held = 0
        self._open = asyncio.Event()
        self._open.set()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def paused(self) -> bool:
        return not self._open.is_set()

    def pause(self) -> None:
        """Hold what arrives from now on."""
        self._open.clear()

    def resume(self) -> None:
        """Let go of what is held."""
        self._open.set()

    async def drain(self, patience: float) -> int:
        """Pause, and wait until nothing is under way; returns what still is after `patience` seconds."""
        self.pause()
        try:
            async with asyncio.timeout(patience):
                await self._idle.wait()
        except TimeoutError:
            pass
        return self.in_flight

    async def let_in(self) -> None:
        """Wait while paused; enter the block at once afterwards, or `drain` could see an idle moment in between.

        Raises:
            UpstreamFailed: held for too long, or too many were held already.
        """
        if self.paused:
            await self._wait()

    def __enter__(self) -> Traffic:
        self.in_flight += 1
        self._idle.clear()
        return self

    def __exit__(self, *_: object) -> None:
        self.in_flight -= 1
        if not self.in_flight:
            self._idle.set()

    async def _wait(self) -> None:
        if self.held >= self.most:
            raise self._refusal(f"{self.held:,} calls wait already")
        self.held += 1
        try:
            async with asyncio.timeout(self.patience):
                while self.paused:  # it may be paused again before this one was let in
                    await self._open.wait()
        except TimeoutError:
            raise self._refusal(f"the call was held for {self.patience:g} seconds") from None
        finally:
            self.held -= 1

    def _refusal(self, why: str) -> UpstreamFailed:
        return UpstreamFailed(
            Fault.ENVIRONMENT,
            "paused",
            f"The gateway is paused and {why}. Try again, or resume it with POST /api/gateway/resume.",
            status=503,
            headers={"retry-after": "1"},
        )
