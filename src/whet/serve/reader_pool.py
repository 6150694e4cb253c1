"""Processes that read requests, spoken to from the loop itself.

`concurrent.futures` has two threads between the loop and its processes; each hands every request on twice, and waits
for the interpreter's lock as often.  Here a process is a socket of the loop's own: a frame out, a frame back, in turn.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import subprocess
import sys
from collections import deque
from collections.abc import Coroutine, Sequence
from multiprocessing.connection import Pipe
from typing import cast

from ..record.store.redaction.redact import Rule
from ..record.tracing.export import Export, ExportRead, decode_read, encode_export, read_exports
from ..record.tracing.otlp import DecodeLimits

AHEAD = 2
"""Requests that a process has at once: the one that it reads, and the next."""
_READ = f"""import sys
descriptor, *sys.path = sys.argv[1:]
from {read_exports.__module__} import read_exports
read_exports(int(descriptor))"""
_LAST = 5.0
"""Seconds that a process has to end once its pipe is closed."""
_LENGTH = struct.Struct("!i")
_LONG = struct.Struct("!iQ")
"""How `multiprocessing` frames a message, of up to 2 GB and of more."""
_BUFFER = 1 << 20
"""Bytes that a socket may hold, if the system lets it: a whole request or its reading."""


class ReaderLost(Exception):
    """A process ended before it had answered."""


class ReaderProcess:
    """A process that reads, and this end of its pipe; it can read once the constructor returns.

    Not one of `multiprocessing`: the semaphores of its pools outlive a server that is killed, and a process that was
    being started then ends with a traceback.

    Raises:
        EOFError, OSError: it has ended already.
    """

    def __init__(self, rules: Sequence[Rule], limits: DecodeLimits) -> None:
        self.connection, theirs = Pipe()
        with theirs:  # held by that process alone from then on, so that its end can be noticed here
            for end in (self.connection, theirs):
                with socket.fromfd(end.fileno(), socket.AF_UNIX, socket.SOCK_STREAM) as held:
                    held.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
            self._process = subprocess.Popen(
                # -P: else a module in the current folder would take the place of Python's own.
                [sys.executable, "-P", "-c", _READ, str(theirs.fileno()), *sys.path],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                process_group=0,  # Ctrl-C is for the server, which ends this one
            )
        try:
            self.connection.send((rules, limits))
            self.pid: int = self.connection.recv()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the process."""
        self.connection.close()
        try:
            self._process.wait(_LAST)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class _Link(asyncio.BufferedProtocol):
    """One process, from the loop's side.

    Args:
        pool: is told of each answer, and of the end.
        process: the one that it speaks to.
    """

    def __init__(self, pool: ReaderPool, process: ReaderProcess) -> None:
        self.process = process
        self.asked: deque[asyncio.Future[bytearray]] = deque()
        self._pool = pool
        self.gone = False
        self._transport: asyncio.WriteTransport | None = None
        self._frame, self._filled, self._head = bytearray(_LENGTH.size), 0, True

    def ask(self, body: bytes, answered: asyncio.Future[bytearray]) -> None:
        """Send a request; the future has the answer."""
        assert self._transport is not None
        self.asked.append(answered)
        head = _LENGTH.pack(len(body)) if len(body) <= 0x7FFF_FFFF else _LONG.pack(-1, len(body))
        self._transport.writelines((head, body))

    def itself(self) -> _Link:
        """For a loop that wants to make one."""
        return self

    def close(self) -> None:
        """End the process once it has read what it has."""
        if self._transport is not None:
            self._transport.close()

    # -- asyncio's side -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)  # uvloop's says that it is no such thing

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._frame)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        if self._filled < len(self._frame):
            return
        frame, self._filled = self._frame, 0
        if self._head and len(frame) == _LENGTH.size:
            (length,) = _LENGTH.unpack(frame)
            # -1: eight more bytes have the length.
            self._head, self._frame = length < 0, bytearray(8 if length < 0 else length)
            return
        if self._head:
            self._head, self._frame = False, bytearray(int.from_bytes(frame, "big"))
            return
        self._head, self._frame = True, bytearray(_LENGTH.size)
        answered = self.asked.popleft()
        if not answered.done():  # the client may have gone
            answered.set_result(frame)
        self._pool.go_on()

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone = True
        self._pool.drop(self)
        for answered in self.asked:
            if not answered.done():
                answered.set_exception(ReaderLost())
        self.asked.clear()


class ReaderPool:
    """Processes that read; one that is killed is replaced alone, and what it was reading is for whoever asked.

    Used in one loop.

    Args:
        rules: of the redactor.
        limits: of what is read.
    """

    def __init__(self, rules: Sequence[Rule], limits: DecodeLimits) -> None:
        self._rules, self._limits = rules, limits
        self._links: list[_Link] = []
        self._waiting: deque[tuple[bytes, asyncio.Future[bytearray]]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False

    def start(self) -> None:
        """Have one more process, as soon as it can read."""
        self._task(self._start())

    def _task(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _start(self) -> None:
        try:
            # In a thread: to start a process takes as long as to read a hundred requests.
            process = await asyncio.to_thread(ReaderProcess, self._rules, self._limits)
        except (EOFError, OSError):
            return
        link = _Link(self, process)
        held = socket.fromfd(process.connection.fileno(), socket.AF_UNIX, socket.SOCK_STREAM)
        process.connection.close()  # the loop has its own descriptor, whose end is that of the process
        held.setblocking(False)
        await asyncio.get_running_loop().create_unix_connection(link.itself, sock=held)
        if not link.gone:
            self._links.append(link)
            self.go_on()

    def drop(self, link: _Link) -> None:
        """Do without a process that has ended, until another one can read."""
        if link in self._links:
            self._links.remove(link)
        self._task(asyncio.to_thread(link.process.close))
        if not self._closing:
            self.start()
        self.go_on()

    @property
    def pids(self) -> list[int]:
        """Of the processes that can read."""
        return [link.process.pid for link in self._links]

    @property
    def waiting(self) -> int:
        """Requests that no process has yet."""
        return len(self._waiting)

    async def read(self, export: Export) -> ExportRead:
        """A request that is not packed, read by one of the processes.

        Raises:
            InputError: it cannot be read.
            ReaderLost: it was not read, for there is no process, or it has ended or met what nobody foresaw.
        """
        answered: asyncio.Future[bytearray] = asyncio.get_running_loop().create_future()
        self._waiting.append((encode_export(export), answered))
        self.go_on()
        read = decode_read(await answered)
        if read is None:
            raise ReaderLost()
        return read

    def go_on(self) -> None:
        """Give waiting requests to processes that have room."""
        while self._waiting:
            link = min(self._links, key=_asked, default=None)
            if link is not None and len(link.asked) >= AHEAD:
                return
            body, answered = self._waiting.popleft()
            if answered.done():
                continue
            if link is None:
                answered.set_exception(ReaderLost())
            else:
                link.ask(body, answered)

    async def close(self) -> None:
        """End the processes."""
        self._closing = True
        while self._tasks or self._links:
            for link in self._links:
                link.close()
            # Of those that are being started, too; each link that is closed adds the end of its process.
            await asyncio.wait(self._tasks or {asyncio.create_task(asyncio.sleep(0.001))})


def _asked(link: _Link) -> int:
    return len(link.asked)
