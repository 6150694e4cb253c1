"""Who reads what exporters send: the loop, a thread of this process, or processes beside it.

Reading a span takes three times the CPU of everything else that is done for it, and Python lets one thread of a process
compute at a time.  Processes that read hold nothing: what they give back is decided upon and committed here, so one
that is killed costs a second reading, and whoever sent the spans has no answer before the commit.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Pipe
from queue import Empty, SimpleQueue

from ..record.store.redaction.redact import Redactor
from ..record.tracing.export import Export, ExportRead, read_export, read_exports, unpacked
from ..record.tracing.otlp import DecodeLimits
from .auth import RequestLimits
from .durable import settled

_SMALL = 4 * 1024
"""Bytes up to which a request is read in the loop: to hand it on would cost more than the reading."""
_READ = f"""import sys
descriptor, *sys.path = sys.argv[1:]
from {read_exports.__module__} import read_exports
read_exports(int(descriptor))"""
_LAST = 5.0
"""Seconds that a process has to end once its pipe is closed."""


class ReaderProcess:
    """A process that reads, and this end of its pipe; it can read once the constructor returns.

    Not one of `multiprocessing`: the semaphores of its pools outlive a server that is killed, and a process that was
    being started then ends with a traceback.

    Raises:
        EOFError, OSError: it has ended already.
    """

    def __init__(self, redactor: Redactor) -> None:
        self._connection, theirs = Pipe()
        with theirs:  # held by that process alone from then on, so that its end can be noticed here
            self._process = subprocess.Popen(
                # -P: else a module in the current folder would take the place of Python's own.
                [sys.executable, "-P", "-c", _READ, str(theirs.fileno()), *sys.path],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                process_group=0,  # Ctrl-C is for the server, which ends this one
            )
        try:
            self._connection.send(redactor.rules)
            self.pid: int = self._connection.recv()
        except BaseException:
            self.close()
            raise

    def read(self, export: Export, limits: DecodeLimits) -> ExportRead:
        """A request, read there.

        Raises:
            InputError: it cannot be read.
            EOFError, OSError: the process has ended.
        """
        self._connection.send((export, limits))
        answer = self._connection.recv()
        if isinstance(answer, Exception):
            raise answer
        read: ExportRead = answer
        return read

    def close(self) -> None:
        """End the process."""
        self._connection.close()
        try:
            self._process.wait(_LAST)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


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
        self._started = False
        # A thread for each process, which waits for its answer.
        self._waiting = ThreadPoolExecutor(max(1, processes), thread_name_prefix="whet-reading")
        self._idle: SimpleQueue[ReaderProcess] = SimpleQueue()
        self.pids: set[int] = set()
        """Of the processes that can read."""

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
                self._starter.submit(self._start)
        if not self.pids:
            return await settled(self._thread.submit(self._read, export))
        # Unpacked here: secrets that this process alone knows must be looked for in the plain text.
        plain = unpacked(export, self._limits.body)
        if self._redactor.knows_of(plain.body, json=export.json):
            return await settled(self._thread.submit(self._read, plain))
        return await settled(self._waiting.submit(self._read_beside, plain))

    def _read(self, export: Export) -> ExportRead:
        return read_export(unpacked(export, self._limits.body), self._redactor, self._decode_limits)

    def _read_beside(self, export: Export) -> ExportRead:
        """A request, read by a process; by this one where that was killed."""
        try:
            process = self._idle.get_nowait()
        except Empty:  # one was killed, and the next is being started
            return self._read(export)
        try:
            read = process.read(export, self._decode_limits)
        except (EOFError, OSError):
            self._end(process)
            with contextlib.suppress(RuntimeError):  # the server stops
                self._starter.submit(self._start)
            return self._read(export)
        except BaseException:
            self._idle.put(process)
            raise
        self._idle.put(process)
        return read

    def _start(self) -> None:
        if self._processes:
            with contextlib.suppress(EOFError, OSError):
                process = ReaderProcess(self._redactor)
                self._idle.put(process)
                self.pids.add(process.pid)

    def _end(self, process: ReaderProcess) -> None:
        self.pids.discard(process.pid)
        process.close()

    async def close(self) -> None:
        """End the processes and the threads."""
        self._processes = 0
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        for threads in (self._starter, self._waiting):
            threads.shutdown(cancel_futures=True)
        with contextlib.suppress(Empty):
            while True:
                self._end(self._idle.get_nowait())
        self._thread.shutdown(wait=False)
