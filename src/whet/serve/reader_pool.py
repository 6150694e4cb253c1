"""Processes that read requests, spoken to from the loop itself.

`concurrent.futures` has two threads between the loop and its processes; each hands every request on twice, and waits
for the interpreter's lock as often.  Here a process is a socket of the loop's own: a frame out, a frame back, in turn.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import socket
import struct
from collections import deque
from collections.abc import Sequence
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import cast

from ..record.store.redaction.redact import Rule
from ..record.tracing.export import Export, ExportRead, decode_read, encode_export, read_exports
from ..record.tracing.otlp import DecodeLimits

AHEAD = 2
"""Requests that a process has at once: the one that it reads, and the next."""
_LENGTH = struct.Struct("!i")
_LONG = struct.Struct("!iQ")
"""How `multiprocessing` frames a message, of up to 2 GB and of more."""
_BUFFER = 1 << 20
"""Bytes that a socket may hold, if the system lets it: a whole request or its reading."""


class ReaderLost(Exception):
    """A process ended before it had answered."""


class _Link(asyncio.BufferedProtocol):
    """One process, from the loop's side.

    Args:
        pool: is told of each answer, and of the end.
        process: the one that it speaks to.
    """

    def __init__(self, pool: ReaderPool, process: SpawnProcess) -> None:
        self.process = process
        self.asked: deque[asyncio.Future[bytearray]] = deque()
        self._pool = pool
        self._transport: asyncio.WriteTransport | None = None
        self._frame, self._filled, self._head = bytearray(_LENGTH.size), 0, True

    def ask(self, body: bytes, answered: asyncio.Future[bytearray]) -> None:
        """Send a request; the future has the answer."""
        assert self._transport is not None
        self.asked.append(answered)
        head = _LENGTH.pack(len(body)) if len(body) <= 0x7FFF_FFFF else _LONG.pack(-1, len(body))
        self._transport.writelines((head, body))

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
        self._pool.lost = True
        for answered in self.asked:
            if not answered.done():
                answered.set_exception(ReaderLost())
        self.asked.clear()
        self._pool.go_on()


class ReaderPool:
    """Some processes that read; one that is lost loses the pool, whose requests are read by whoever asked.

    Made by `started`, and used in the loop that started it.

    Args:
        limits: of what is read.
    """

    def __init__(self, limits: DecodeLimits) -> None:
        self.lost = False
        self._limits = limits
        self._processes: dict[int, SpawnProcess] = {}
        self._links: list[_Link] = []
        self._waiting: deque[tuple[bytes, asyncio.Future[bytearray]]] = deque()

    @classmethod
    async def started(cls, count: int, rules: Sequence[Rule], limits: DecodeLimits) -> ReaderPool:
        """A pool of `count` processes that can read.

        Raises:
            ReaderLost: one of them ended at its start.
        """
        pool = cls(limits)
        # In a thread: to start a process takes as long as to read a hundred requests.
        for connection in await asyncio.to_thread(pool._spawn, count, rules):
            link = _Link(pool, list(pool._processes.values())[len(pool._links)])
            own = socket.socket(fileno=os.dup(connection.fileno()))
            connection.close()
            own.setblocking(False)
            await asyncio.get_running_loop().create_unix_connection(lambda link=link: link, sock=own)  # type: ignore[misc]
            pool._links.append(link)
        return pool

    def _spawn(self, count: int, rules: Sequence[Rule]) -> list[Connection]:
        # Not a fork: this process has threads, and a child would have their locks as they were.
        context = multiprocessing.get_context("spawn")
        connections: list[Connection] = []
        try:
            for _ in range(count):
                ours, theirs = context.Pipe()
                for end in (ours, theirs):
                    with socket.socket(fileno=os.dup(end.fileno())) as held:
                        held.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
                connections.append(ours)
                process = context.Process(
                    target=read_exports, args=(theirs, self._limits, rules, os.getpid()), daemon=True
                )
                process.start()
                theirs.close()
                self._processes[process.pid or 0] = process
            for connection in connections:
                connection.recv_bytes()  # it has begun
        except (EOFError, OSError) as exception:
            for connection in connections:
                connection.close()
            self._end()
            raise ReaderLost() from exception
        return connections

    @property
    def waiting(self) -> int:
        """Requests that no process has yet."""
        return len(self._waiting)

    async def read(self, export: Export) -> ExportRead:
        """A request that is not packed, read by one of the processes.

        Raises:
            InputError: it cannot be read.
            ReaderLost: it was not read, for its process has ended or met what nobody foresaw.
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
            if self.lost:
                _, answered = self._waiting.popleft()
                if not answered.done():
                    answered.set_exception(ReaderLost())
                continue
            link = min(self._links, key=lambda link: len(link.asked))
            if len(link.asked) >= AHEAD:
                return
            body, answered = self._waiting.popleft()
            if not answered.done():
                link.ask(body, answered)

    async def close(self) -> None:
        """End the processes."""
        self.lost = True
        self.go_on()
        for link in self._links:
            link.close()
        await asyncio.to_thread(self._end)

    def _end(self) -> None:
        for process in self._processes.values():
            process.join(1.0)  # its end of the socket is closed
            if process.is_alive():
                process.kill()
                process.join()
            process.close()
