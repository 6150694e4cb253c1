"""Turns of workers that share a commit: what requests bring while one is under way becomes one change of the queue.

A change costs as much for eight rollouts as for one: a hand-over to the writer's thread and one back, the queue's lock,
and a handful of futures.  So small turns are gathered here, in the server's loop, and handed over together.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from typing import NamedTuple

from ..record.store import Store
from ..record.store.group_commit import GATHERING, LONGEST_GATHERING
from ..record.store.rollouts import Claim, Finish
from ..record.store.turns import PreparedTurn, Turned
from .durable import Backlog, settled

LARGE = 16
"""Rollouts beyond which a turn is worth a hand-over of its own, which goes on while others are committed."""
MOST = 64
"""Turns of one commit."""


class _Waiting(NamedTuple):
    turn: PreparedTurn
    size: int
    answer: asyncio.Future[Turned]


class SharedTurns:
    """Gathers turns and gives them to the queue, one commit after the other, in the order in which they came.

    As many as shared the last commit are waited for: half of the time that it took, 2 ms at most
    (`CommitThread._gather` says why).

    Args:
        store: owned by this process, by the time that a turn comes.
        backlog: counts what is gathered among the bytes that wait for the disk.
        loop: of the requests.
    """

    def __init__(self, store: Store, backlog: Backlog, loop: asyncio.AbstractEventLoop) -> None:
        self._store, self._backlog, self._loop = store, backlog, loop
        self._waiting: deque[_Waiting] = deque()
        self._expected = 1
        self._takes = 0.0
        """Seconds of a commit, a moving average."""
        self._under_way = False
        self._timer: asyncio.TimerHandle | None = None
        self._alone: set[asyncio.Task[None]] = set()

    async def take(self, finished: Sequence[Finish], claim: Claim | None, size: int) -> Turned:
        """As `Queue.turn`, of undecoded tasks.

        Args:
            size: bytes of the reports.
        """
        turn = self._store.queue.prepared(finished, claim, undecoded=True)
        if len(finished) + (0 if claim is None else claim.n) > LARGE:
            return await self._by_itself(turn)
        waiting = _Waiting(turn, size, self._loop.create_future())
        self._waiting.append(waiting)
        self._backlog.gathered += size
        self._look()
        return await waiting.answer

    async def _by_itself(self, turn: PreparedTurn) -> Turned:
        return (await settled(self._store.queue.turns([turn])))[0]

    def _look(self) -> None:
        """Hand over what waits, or see to it that it is handed over soon."""
        if self._under_way or not self._waiting:
            return
        if len(self._waiting) >= self._expected:
            self._hand_over()
        elif self._timer is None:
            longest = min(LONGEST_GATHERING, GATHERING * self._takes)
            self._timer = self._loop.call_later(longest, self._hand_over)

    def _hand_over(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        group = [self._waiting.popleft() for _ in range(min(MOST, len(self._waiting)))]
        self._backlog.gathered -= sum([waiting.size for waiting in group])
        self._under_way, began = True, time.perf_counter()
        turned: Future[list[Turned]]
        try:
            turned = self._store.queue.turns([waiting.turn for waiting in group])
        except Exception as problem:
            turned = Future()
            turned.set_exception(problem)

        def wake(done: Future[list[Turned]]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._answer, group, began, done)

        turned.add_done_callback(wake)

    def _answer(self, group: Sequence[_Waiting], began: float, done: Future[list[Turned]]) -> None:
        self._takes += 0.2 * (time.perf_counter() - began - self._takes)
        self._expected, self._under_way = len(group), False
        problem = done.exception()
        if problem is None:
            for waiting, turned in zip(group, done.result(), strict=True):
                if not waiting.answer.done():  # its request may have been cancelled
                    waiting.answer.set_result(turned)
        elif len(group) > 1:
            # One of them may be at fault; the others shall not pay for it.
            for waiting in group:
                task = self._loop.create_task(self._again(waiting))
                self._alone.add(task)
                task.add_done_callback(self._alone.discard)
        elif not group[0].answer.done():
            group[0].answer.set_exception(problem)
        self._look()

    async def _again(self, waiting: _Waiting) -> None:
        try:
            turned = await self._by_itself(waiting.turn)
            if not waiting.answer.done():
                waiting.answer.set_result(turned)
        except Exception as problem:
            if not waiting.answer.done():
                waiting.answer.set_exception(problem)
