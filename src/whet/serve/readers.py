"""Who reads what exporters send: the loop, a thread of this process, or processes beside it.

Reading a span takes three times the CPU of everything else that is done for it, and Python lets one thread of a process
compute at a time.  Processes that read hold nothing: what they give back is decided upon and committed here, so one
that is killed costs a second reading, and whoever sent the spans has no answer before the commit.
"""

from __future__ import annotations

import asyncio
import contextlib
from concurrent.futures import ThreadPoolExecutor

from ..record.store.redaction.redact import Redactor
from ..record.tracing.export import Export, ExportRead, read_export, unpacked
from ..record.tracing.otlp import DecodeLimits
from .auth import RequestLimits
from .durable import settled
from .reader_pool import ReaderLost, ReaderPool

_SMALL = 4 * 1024
"""Bytes up to which a request is read in the loop: to hand it on would cost more than the reading."""


class Readers:
    """Reads exporters' requests.

    Args:
        redactor: takes secrets out of spans before anything else looks at them.
        limits: of requests.
        processes: that read beside this one; they are started by the first request that is worth it.  0 for none.
    """

    def __init__(self, redactor: Redactor, limits: RequestLimits, processes: int = 0) -> None:
        self._redactor, self._limits, self._processes = redactor, limits, processes
        self._decode_limits = DecodeLimits(spans=limits.spans)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="whet-ingest")
        self._starting: asyncio.Task[None] | None = None
        self._pool: ReaderPool | None = None

    async def read(self, export: Export) -> ExportRead:
        """A request, read.

        Raises:
            InputError: it cannot be read; nothing of it counts.
        """
        if len(export.body) <= _SMALL:
            return self._read(export)
        pool = await self._running()
        if pool is None:
            return await settled(self._thread.submit(self._read, export))
        # Unpacked here: secrets that this process alone knows must be looked for in the plain text.
        plain = unpacked(export, self._limits.body)
        if not self._redactor.knows_of(plain.body, json=export.json):
            with contextlib.suppress(ReaderLost):
                return await pool.read(plain)
        return await settled(self._thread.submit(self._read, plain))

    def _read(self, export: Export) -> ExportRead:
        return read_export(unpacked(export, self._limits.body), self._redactor, self._decode_limits)

    async def _running(self) -> ReaderPool | None:
        """The processes, once they run; None while they start, or if there are to be none."""
        if self._pool is not None and self._pool.lost:
            pool, self._pool, self._starting = self._pool, None, None
            await pool.close()
        if self._processes and self._starting is None:
            self._starting = asyncio.create_task(self._start())
        return self._pool

    async def _start(self) -> None:
        with contextlib.suppress(ReaderLost):
            self._pool = await ReaderPool.started(self._processes, self._redactor.rules, self._decode_limits)

    async def close(self) -> None:
        """End the processes and the threads."""
        self._processes = 0
        if self._starting is not None:
            await self._starting
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()
        self._thread.shutdown(wait=False)
