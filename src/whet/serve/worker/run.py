"""The worker: claims rollouts, runs many at once, reports them in batches.

One process, one event loop; agents that do not await run in threads.  Several processes are
several of these, told apart by their name.  Stopping finishes the rollouts under way; stopping
twice gives them back, to be claimed by another worker at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from ...errors import InputError, StoreError
from ...record.store.rollouts import MOST, Claim
from ...types import Failure, Fault, Lease, Mode, Outcome
from .agent import Attempt
from .client import BusyError, QueueClient
from .wire import FinishRequest, FinishResult, Held

POLL = 20.0
"""Seconds that one claim waits for work."""
RETRY, LONGEST = 0.5, 8.0
"""Seconds before a claim that failed is repeated, at first and at most; doubling."""
WITHDRAWN = 5.0
"""Seconds that a withdrawn claim may take to be answered."""
STOPPED = Failure(Fault.ENVIRONMENT, "Released", "the worker was stopped")
"""With it, a worker that is stopped gives a rollout back."""


@dataclass(slots=True)
class Tally:
    """Counts of a worker's rollouts."""

    succeeded: int = 0
    """Rollouts that ended with a result, good or bad, which was taken."""
    failed: int = 0
    """Of those, where the agent raised."""
    retried: int = 0
    """Infrastructure errors, handed back to the queue."""
    stale: int = 0
    """Results that were refused because the lease had gone to somebody else."""
    lost: int = 0
    """Results that could not be delivered: the server was away for longer than the lease."""


class Worker:
    """Runs an agent on what a server's queue gives out.

    Args:
        attempt: what `agent.attempt` made of the user's agent.
        client: the server.
        name: of this worker, unique among those of the server.
        concurrency: rollouts at once.
        lease: seconds that the server waits for a sign of life.
        modes: `train`, `val`, `test`; all if None.
        report: called with each line for the user.
    """

    def __init__(
        self,
        attempt: Attempt,
        client: QueueClient,
        *,
        name: str,
        concurrency: int = 8,
        lease: float = 60.0,
        modes: Sequence[Mode] | None = None,
        report: Callable[[str], None] = lambda line: None,
    ) -> None:
        if not 1 <= concurrency <= MOST:
            raise InputError(f"a worker runs 1 to {MOST} rollouts at once, not {concurrency}")
        self._attempt, self._client, self._name, self._report = attempt, client, name, report
        self._concurrency, self._lease, self._modes = (
            concurrency,
            lease,
            None if modes is None else list(modes),
        )
        self.tally = Tally()
        self._running: dict[int, tuple[Lease, asyncio.Task[None]]] = {}
        """Fence → rollout under way; fences are unique."""
        self._undelivered: dict[int, Held] = {}
        """Fence → rollout that is done and not yet acknowledged; its lease is kept alive too."""
        self._done: asyncio.Queue[FinishRequest] = asyncio.Queue()
        self._away: float | None = None
        """Since when the server could not be reached, by the loop's clock; None if it could the last time."""
        self._pause = RETRY
        self._patience = float("inf")
        self._asked = 0
        """Rollouts that a request under way asks for."""
        self._left: int | None = None
        """Rollouts that may still be begun."""
        self._freed = asyncio.Event()
        """Set when there may be room again."""
        self._ended = self._drained = False
        """No more is claimed; no more is begun."""

    async def run(
        self,
        stopping: asyncio.Event,
        released: asyncio.Event | None = None,
        *,
        limit: int | None = None,
        patience: float | None = None,
    ) -> Tally:
        """Work until `stopping` is set, or `limit` rollouts have been run.

        Args:
            released: set, it gives back the rollouts still under way.
            patience: seconds that the server may be unreachable before it gives up; None retries indefinitely.

        Raises:
            InputError: the server refuses this worker.
            StoreError: the server was away for longer than `patience`.
        """
        self._left, self._patience = limit, float("inf") if patience is None else patience
        loop = asyncio.get_running_loop()
        # asyncio's own has 32 threads at most: agents that block would wait for each other.
        loop.set_default_executor(ThreadPoolExecutor(self._concurrency + 4, "whet-agent"))

        def lost(held: Held) -> None:
            loop.call_soon_threadsafe(self._cancel, held)

        with self._client.heart(self._held, lost, self._lease):
            reporter = asyncio.create_task(self._deliver())
            try:
                await self._claims(stopping)
                await self._drain(released or asyncio.Event())
            finally:
                for _, task in self._running.values():
                    task.cancel()
                # Reports that are done are delivered before the reporter ends.
                await self._done.join()
                reporter.cancel()
        return self.tally

    def _held(self) -> list[Held]:
        # Called in the heart's thread: list() copies in one step of the
        # interpreter, where a loop over the dict could meet a change.
        running = [Held(lease.rollout.id, lease.fence) for lease, _ in list(self._running.values())]
        return running + list(self._undelivered.values())

    def _cancel(self, held: Held) -> None:
        # Taken out before it is cancelled: so `_one` tells a lost lease from a worker that stops.
        running = self._running.pop(held.fence, None)
        if running is not None:
            self._report(f"{held.id}: its lease went to another worker; stopped")
            self.tally.stale += 1
            running[1].cancel()
            self._freed.set()

    async def _claims(self, stopping: asyncio.Event) -> None:
        """Wait for work while there is room for it; `_deliver` claims more with each report."""
        stop = asyncio.create_task(stopping.wait())
        try:
            while not stopping.is_set() and self._left != 0:
                n = self._room()
                if n == 0:
                    self._freed.clear()
                    freed = asyncio.create_task(self._freed.wait())
                    await asyncio.wait([stop, freed], return_when=asyncio.FIRST_COMPLETED)
                    freed.cancel()
                    continue
                self._asked += n
                try:
                    claiming = asyncio.create_task(self._claim(n))
                    await asyncio.wait([stop, claiming], return_when=asyncio.FIRST_COMPLETED)
                    leases = await (claiming if claiming.done() else self._withdrawn(claiming))
                finally:
                    # Nothing is awaited from here to `_begin`, or `_room` would count these places as free.
                    self._asked -= n
                self._begin(leases)
        finally:
            stop.cancel()
            self._ended = True

    def _room(self) -> int:
        """Rollouts that may be claimed now, in addition to those that are being claimed."""
        free = self._concurrency - len(self._running) - self._asked
        return max(0, free if self._left is None else min(free, self._left - self._asked))

    def _begin(self, leases: Sequence[Lease]) -> None:
        for lease in leases:
            task = asyncio.create_task(self._one(lease))
            self._running[lease.fence] = (lease, task)
        self._left = None if self._left is None else self._left - len(leases)

    def _claim_for(self, n: int) -> Claim:
        return Claim(worker=self._name, n=n, lease=self._lease, modes=self._modes, wait=POLL)

    async def _claim(self, n: int) -> Sequence[Lease]:
        try:
            leases = await self._client.claim(self._claim_for(n))
        except StoreError as exception:
            now = asyncio.get_running_loop().time()
            if self._away is None:  # reported once, however long it lasts
                self._away, self._pause = now, RETRY
                self._report(f"{exception}; trying again")
            remaining = self._away + self._patience - now
            if remaining <= 0:
                raise StoreError(
                    f"{exception}; gave up after {self._patience:g} seconds. Is `whet serve` running there?"
                ) from exception
            asked = exception.wait if isinstance(exception, BusyError) else 0.0
            await asyncio.sleep(min(max(self._pause, asked), remaining))
            self._pause = min(2 * self._pause, LONGEST)
            return ()
        if self._away is not None:
            self._report("the server answers again")
        self._away = None
        return leases

    async def _withdrawn(self, claiming: asyncio.Task[Sequence[Lease]]) -> Sequence[Lease]:
        """Withdraw a waiting claim and wait for its answer: it may just have been given leases."""
        try:
            await self._client.withdraw(self._name)
            return await asyncio.wait_for(claiming, WITHDRAWN)
        except (StoreError, InputError, TimeoutError):
            claiming.cancel()
            return ()

    async def _one(self, lease: Lease) -> None:
        try:
            finish = await self._attempt(lease, await self._client.bundle(lease.rollout.resources))
        except asyncio.CancelledError:
            if lease.fence not in self._running:
                return  # its lease went to another worker
            finish = _failed(lease, STOPPED)
        except Exception as exception:  # a bug of ours must not take the other rollouts with it
            fault = Fault.STORE if isinstance(exception, StoreError | InputError) else Fault.ENVIRONMENT
            finish = _failed(lease, Failure(fault, type(exception).__name__, str(exception)))
        self._running.pop(lease.fence, None)
        self._hand_over(finish)

    def _hand_over(self, finish: FinishRequest) -> None:
        """Have a report delivered; its lease is kept until it is."""
        self._undelivered[finish.fence] = Held(finish.id, finish.fence)
        self._done.put_nowait(finish)

    async def _drain(self, released: asyncio.Event) -> None:
        release = asyncio.create_task(released.wait())
        try:
            while (self._running or self._asked) and not released.is_set():
                self._freed.clear()
                freed = asyncio.create_task(self._freed.wait())
                tasks = [task for _, task in self._running.values()]
                await asyncio.wait([release, freed, *tasks], return_when=asyncio.FIRST_COMPLETED)
                freed.cancel()
        finally:
            release.cancel()
            self._drained = True
        tasks = [task for _, task in self._running.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _deliver(self) -> None:
        """Send finishes, as many at once as have gathered while the last ones were on their way.

        Where nobody waits for work, the same request claims what there is room for.
        """
        while True:
            batch = [await self._done.get()]
            while not self._done.empty() and len(batch) < MOST:
                batch.append(self._done.get_nowait())
            n = 0 if self._ended or self._asked else self._room()
            self._asked += n
            try:
                leases = await self._send(batch, n)
                if self._drained:  # too late to run them
                    for lease in leases:
                        self._hand_over(_failed(lease, STOPPED))
                else:
                    self._begin(leases)
            finally:
                self._asked -= n
                self._freed.set()
                for finish in batch:
                    self._undelivered.pop(finish.fence, None)
                    self._done.task_done()

    async def _send(self, batch: list[FinishRequest], n: int = 0) -> Sequence[Lease]:
        """Report a batch, claiming up to `n` with it."""
        try:
            claim = self._claim_for(n) if n else None
            answer = await self._client.finish(batch, patience=self._lease, claim=claim)
        except StoreError as exception:
            self.tally.lost += len(batch)
            self._report(f"{len(batch)} results could not be delivered: {exception}")
            return ()
        except InputError as exception:
            await self._apart(batch, exception)
            return ()
        self._count(batch, answer.results)
        return answer.leases

    def _count(self, batch: Sequence[FinishRequest], results: Sequence[FinishResult]) -> None:
        for finish, result in zip(batch, results, strict=True):
            if result.stale:
                self.tally.stale += 1
                self._report(f"{finish.id}: refused, its lease went to another worker")
            elif not result.taken:
                self.tally.lost += 1
                self._report(f"{finish.id}: refused: {result.message}")
            elif finish.error is not None:
                self.tally.retried += 1
                self._report(f"{finish.id}: {finish.error.type}: {finish.error.message}")
            else:
                self.tally.succeeded += 1
                if finish.trajectory is not None and finish.trajectory.outcome is Outcome.FAILURE:
                    self.tally.failed += 1

    async def _apart(self, batch: list[FinishRequest], refusal: InputError) -> None:
        """Send the finishes of a refused batch one by one; the refused one is reported as a failure of the store."""
        if len(batch) > 1:
            for finish in batch:
                await self._send([finish])
        elif batch[0].trajectory is not None:
            failure = Failure(Fault.STORE, "InputError", f"its trajectory was refused: {refusal}")
            await self._send([FinishRequest(batch[0].id, batch[0].fence, None, failure)])
        else:
            self.tally.lost += 1
            self._report(f"{batch[0].id}: could not be reported: {refusal}")


def _failed(lease: Lease, failure: Failure) -> FinishRequest:
    return FinishRequest(lease.rollout.id, lease.fence, None, failure)
