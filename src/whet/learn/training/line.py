"""Waiting in line: requests of many rollouts become one batch.

Each request is put in line by its own coroutine; when a pass of the event loop has
brought no new one, every task that can run has run, and all that wait are
worked on together.  What samples and what scores candidates both stand behind one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from ...errors import ModelError


class Waiting(Protocol):
    """A request in line."""

    @property
    def future(self) -> asyncio.Future[Any]:
        """Resolved by the work."""
        ...


R = TypeVar("R", bound=Waiting)


class Line(Generic[R]):
    """Collects requests of one event loop into batches.

    Args:
        work: resolves the futures of a batch; if it raises, all of them fail with ModelError, as the
            machine's failure and not the policy's.
        max_batch: requests in one batch at most; the rest goes into the next.
    """

    def __init__(
        self,
        work: Callable[[list[R]], None],
        *,
        max_batch: int = 512,
    ) -> None:
        self.max_batch = max_batch
        self._work = work
        self._waiting: list[R] = []
        self._seen = 0
        self._loop: asyncio.AbstractEventLoop | None = None

    def enqueue(self, request: R) -> None:
        """Put a request in line."""
        loop = request.future.get_loop()
        if self._loop is not loop:  # none is due here, though a loop that ended may have left some in line
            self._loop, self._waiting, self._seen = loop, [], 0
            loop.call_soon(self._settle)
        self._waiting.append(request)

    def _settle(self) -> None:
        """Flush once a pass of the event loop has brought no new request."""
        assert self._loop is not None
        # A full batch does not wait for another pass of the loop.
        if self._seen < len(self._waiting) < self.max_batch:
            self._seen = len(self._waiting)
            self._loop.call_soon(self._settle)
            return
        self._loop = None
        # whoever was cancelled meanwhile, alone or with its whole loop, is waiting no more
        requests = [request for request in self._waiting if not request.future.done()]
        self._waiting = []
        for start in range(0, len(requests), self.max_batch):
            part = requests[start : start + self.max_batch]
            try:
                self._work(part)
            except Exception as error:  # out of memory, say
                for request in part:
                    failure = ModelError(f"sampling failed: {error!r}")
                    failure.__cause__ = error
                    request.future.set_exception(failure)
