"""Who reads what exporters send: the loop, a thread of this process, or processes beside it.

Reading a span takes three times the CPU of everything else that is done for it, and Python lets one thread of a process
compute at a time.  Processes that read hold nothing: what they give back is decided upon and committed here, so one
that is killed costs a second reading, and whoever sent the spans has no answer before the commit.
"""

from __future__ import annotations

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
        self._pool = ReaderPool(redactor.rules, self._decode_limits)
        self._started = False

    @property
    def pids(self) -> list[int]:
        """Of the processes that can read."""
        return self._pool.pids

    async def read(self, export: Export) -> ExportRead:
        """A request, read.

        Raises:
            InputError: it cannot be read; nothing of it counts.
        """
        if len(export.body) <= _SMALL:
            return self._read(export)
        if not self._started:
            self._started = True
            for _ in range(self._processes):
                self._pool.start()
        if not self.pids:
            return await settled(self._thread.submit(self._read, export))
        # Unpacked here: secrets that this process alone knows must be looked for in the plain text.
        plain = unpacked(export, self._limits.body)
        if not self._redactor.knows_of(plain.body, json=export.json):
            with contextlib.suppress(ReaderLost):
                return await self._pool.read(plain)
        return await settled(self._thread.submit(self._read, plain))

    def _read(self, export: Export) -> ExportRead:
        return read_export(unpacked(export, self._limits.body), self._redactor, self._decode_limits)

    async def close(self) -> None:
        """End the processes and the threads."""
        self._started = True
        await self._pool.close()
        self._thread.shutdown(wait=False)
