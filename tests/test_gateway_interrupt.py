"""Calls under way end when their agent hangs up or a wait is over its time, and by nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from whet.serve.gateway.failures import ClientGone
from whet.serve.gateway.interrupt import Interrupter, Interruptible


def call(
    interrupter: Interrupter, hung_up: asyncio.Event, work: Callable[[Interruptible], Awaitable[str]]
) -> asyncio.Task[str]:
    """A call in a task of its own, whose agent hangs up by an event."""

    async def run() -> str:
        with interrupter.call(hung_up.wait) as under_way:
            return await work(under_way)

    return asyncio.create_task(run())


async def forever(_: Interruptible) -> str:
    await asyncio.sleep(60)
    return "slept"


def test_an_agent_that_hangs_up_ends_its_own_call_alone() -> None:
    async def main() -> None:
        interrupter, hung_up = Interrupter(), asyncio.Event()
        ended = call(interrupter, hung_up, forever)
        other = call(interrupter, asyncio.Event(), forever)
        await asyncio.sleep(0.1)
        hung_up.set()
        with pytest.raises(ClientGone):
            await asyncio.wait_for(ended, 60)
        assert not other.done()
        other.cancel()
        with pytest.raises(asyncio.CancelledError):
            await other

    asyncio.run(main())


def test_a_wait_over_its_time_is_cut_off_and_the_call_goes_on() -> None:
    async def work(under_way: Interruptible) -> str:
        with pytest.raises(TimeoutError), under_way.within(0.05):
            await asyncio.sleep(60)
        with under_way.within(60):
            await asyncio.sleep(0.1)  # longer than the first time limit, which is over
        return "went on"

    async def main() -> None:
        assert await asyncio.wait_for(call(Interrupter(), asyncio.Event(), work), 60) == "went on"

    asyncio.run(main())


def test_an_error_inside_a_time_limit_stays_what_it_is() -> None:
    async def work(under_way: Interruptible) -> str:
        with under_way.within(60):
            raise ConnectionResetError("by the upstream")

    async def main() -> None:
        with pytest.raises(ConnectionResetError):
            await call(Interrupter(), asyncio.Event(), work)

    asyncio.run(main())


def test_many_calls_share_one_timer_which_ends_with_them() -> None:
    async def main() -> None:
        loop, timers = asyncio.get_running_loop(), 0
        later = loop.call_later

        def counted(*given: Any) -> asyncio.TimerHandle:
            nonlocal timers
            timers += 1
            return later(*given)

        loop.call_later = counted  # type: ignore[method-assign, assignment]
        interrupter, done = Interrupter(), asyncio.Event()

        async def until_done(under_way: Interruptible) -> str:
            with under_way.within(60):
                await done.wait()
            return "done"

        calls = [call(interrupter, asyncio.Event(), until_done) for _ in range(500)]
        await asyncio.sleep(0)
        assert timers == 1
        await asyncio.sleep(0.1)
        done.set()
        assert set(await asyncio.gather(*calls)) == {"done"}
        await asyncio.sleep(0.1)
        ticks = timers
        assert ticks < 30
        await asyncio.sleep(0.1)
        assert timers == ticks + 1, "the sleep's own: the timer has ended"

    asyncio.run(main())
