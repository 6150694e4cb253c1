"""Who reads what exporters send: the loop, a thread of this process, or processes beside it.

Reading a span takes three times the CPU of everything else that is done for it, and Python lets one thread of a process
compute at a time.  Processes that read hold nothing: what they give back is decided upon and committed here, so one
that is killed costs a second reading, and whoever sent the spans has no answer before the commit.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from ..record.store.redaction.redact import Redactor
from ..record.tracing.export import (
    Export,
    ExportRead,
    begin_reading,
    read_export,
    read_here,
    reading_since,
    unpacked,
)
from ..record.tracing.otlp import DecodeLimits
from .auth import RequestLimits
from .durable import settled

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
        # Another thread: starting a process takes as long as reading a hundred requests.
        self._starter = ThreadPoolExecutor(1, thread_name_prefix="whet-readers")
        self._starting: Future[None] | None = None
        self._pool: ProcessPoolExecutor | None = None

    async def read(self, export: Export) -> ExportRead:
        """A request, read.

        Raises:
            InputError: it cannot be read; nothing of it counts.
        """
        if len(export.body) <= _SMALL:
            return self._read(export)
        pool = self._running()
        if pool is None:
            return await settled(self._thread.submit(self._read, export))
        # Unpacked here: secrets that this process alone knows must be looked for in the plain text.
        plain = unpacked(export, self._limits.body)
        if self._redactor.knows_of(plain.body, json=export.json):
            return await settled(self._thread.submit(self._read, plain))
        try:
            return await settled(pool.submit(read_here, plain, self._decode_limits))
        except (BrokenProcessPool, RuntimeError):  # one was killed, or another request has found that already
            if self._pool is pool:
                self._pool = self._starting = None
            return await settled(self._thread.submit(self._read, plain))

    def _read(self, export: Export) -> ExportRead:
        return read_export(unpacked(export, self._limits.body), self._redactor, self._decode_limits)

    def _running(self) -> ProcessPoolExecutor | None:
        """The processes, once they run; None while they start, or if there are to be none."""
        if self._processes and self._starting is None:
            self._starting = self._starter.submit(self._start)
        return self._pool

    def _start(self) -> None:
        pool = ProcessPoolExecutor(
            self._processes,
            # Not a fork: this process has threads, and a child would have their locks as they were.
            mp_context=multiprocessing.get_context("spawn"),
            initializer=begin_reading,
            initargs=(self._redactor.rules, os.getpid()),
        )
        with contextlib.suppress(BrokenProcessPool):
            for started in [pool.submit(reading_since) for _ in range(self._processes)]:
                started.result()
            self._pool = pool

    async def close(self) -> None:
        """End the processes and the threads."""
        self._processes = 0
        await asyncio.to_thread(self._starter.shutdown)
        pool, self._pool = self._pool, None
        if pool is not None:
            await asyncio.to_thread(pool.shutdown, cancel_futures=True)
        self._thread.shutdown(wait=False)
