"""Plain answers from a server on this machine: as much of HTTP/1.1 as a model server there speaks.

A sampler, a gateway or a scripted model on loopback answers thousands of times in a run, and a whole HTTP
client costs more than such a call.  There is no TLS here, no proxy, no redirect, no cookie and no stream:
all that is `transport.py`'s, which asks here only where none of it can be.  Framing is RFC 9112's.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import urlsplit

from .wire import Refusal

_CONNECT_SECONDS = 10.0
_IDLE_SECONDS = 5.0
"""After which a connection is not used again: servers close theirs, and one may be about to."""
_MOST_IDLE = 100
_PART = 1 << 16
_ReadT = TypeVar("_ReadT")


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole response."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes


class Broken(Exception):
    """What came was no HTTP, or ended too early."""


@dataclass(slots=True)
class _Connection:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    used: float = 0.0

    def fresh(self) -> bool:
        """Whether it can be used again."""
        open_ = not (self.reader.at_eof() or self.writer.transport.is_closing())
        return open_ and time.monotonic() - self.used < _IDLE_SECONDS


class Loopback:
    """Posts to one server on this machine, over connections that it keeps.

    Args:
        base_url: `http://` and a loopback address.
        headers: of every request.
        seconds: without a byte, after which an answer is given up.
    """

    def __init__(self, base_url: str, headers: Mapping[str, str], *, seconds: float) -> None:
        parts = urlsplit(base_url)
        self._host, self._port, self._path = parts.hostname or "", parts.port or 80, parts.path
        self._seconds = seconds
        lines = {"host": parts.netloc, "accept": "application/json", **headers}
        self._head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        # Connections belong to the loop they were opened on, and users call asyncio.run more than once.
        self._idle: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, list[_Connection]]
        self._idle = weakref.WeakKeyDictionary()

    async def post(self, path: str, body: bytes) -> Answer:
        """The answer to one request.

        Raises:
            Refusal: there was none.
        """
        idle = self._idle.setdefault(asyncio.get_running_loop(), [])
        connection = await self._connected(idle)
        head = f"POST {self._path}{path} HTTP/1.1\r\n{self._head}content-length: {len(body)}\r\n\r\n"
        try:
            connection.writer.write(head.encode("latin-1") + body)
            await self._timely(connection.writer.drain())
            answer, reusable = await self._answer(connection.reader)
        except TimeoutError as error:
            connection.writer.transport.abort()
            # It may have answered after we hung up, and bill for it.
            raise Refusal("no answer in time (ReadTimeout)", billed=True) from error
        except (OSError, EOFError, Broken, asyncio.LimitOverrunError, ValueError) as error:
            connection.writer.transport.abort()
            silent = isinstance(error, asyncio.IncompleteReadError) and not error.partial
            said = "no answer before its end" if silent else f"{type(error).__name__}: {error}"
            raise Refusal(f"the connection broke ({said})", billed=not silent) from error
        except BaseException:
            connection.writer.transport.abort()  # cancelled: what is still to come is nobody's answer
            raise
        if reusable and len(idle) < _MOST_IDLE:
            connection.used = time.monotonic()
            idle.append(connection)
        else:
            connection.writer.close()
        return answer

    async def aclose(self) -> None:
        """Close the connections of the running loop."""
        for connection in self._idle.pop(asyncio.get_running_loop(), []):
            connection.writer.close()
            try:
                await connection.writer.wait_closed()
            except OSError:
                continue  # the server was quicker

    async def _connected(self, idle: list[_Connection]) -> _Connection:
        while idle:
            connection = idle.pop()
            if connection.fresh():
                return connection
            connection.writer.close()
        try:
            async with asyncio.timeout(min(self._seconds, _CONNECT_SECONDS)):
                return _Connection(*await asyncio.open_connection(self._host, self._port))
        except OSError as error:  # a TimeoutError is one
            raise Refusal(
                f"cannot connect ({error or type(error).__name__})",
                advice="Is the server running at this address?",
            ) from error

    async def _timely(self, read: Awaitable[_ReadT]) -> _ReadT:
        async with asyncio.timeout(self._seconds):
            return await read

    async def _answer(self, reader: asyncio.StreamReader) -> tuple[Answer, bool]:
        """An answer, and whether the connection can be used for another one."""
        status = 100
        while 100 <= status < 200:  # what a server says before its answer
            version, status, headers = _parsed(await self._timely(reader.readuntil(b"\r\n\r\n")))
        keeps = headers.get("connection", "").lower()
        reusable = "close" not in keeps and (version != "HTTP/1.0" or "keep-alive" in keeps)
        encoding = headers.get("content-encoding", "identity").lower()
        if encoding != "identity":
            raise Broken(f"the body is encoded as {encoding}, which was not asked for")
        if status in (204, 304):
            body = b""
        elif "transfer-encoding" in headers:
            body = await self._chunks(reader)
        elif "content-length" in headers:
            body = await self._exactly(reader, _size(headers["content-length"], 10))
        else:
            body, reusable = await self._rest(reader), False
        return Answer(status, headers, body), reusable

    async def _exactly(self, reader: asyncio.StreamReader, count: int) -> bytes:
        parts = []
        while count:
            part = await self._timely(reader.read(min(count, _PART)))
            if not part:
                raise Broken(f"it ended {count} bytes too early")
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    async def _chunks(self, reader: asyncio.StreamReader) -> bytes:
        parts = []
        while True:
            line = await self._timely(reader.readuntil(b"\r\n"))
            count = _size(line.partition(b";")[0].strip().decode("latin-1"), 16)
            if not count:
                break
            parts.append(await self._exactly(reader, count))
            if await self._timely(reader.readexactly(2)) != b"\r\n":
                raise Broken("a chunk is longer than it said")
        while await self._timely(reader.readuntil(b"\r\n")) != b"\r\n":
            pass  # trailers
        return b"".join(parts)

    async def _rest(self, reader: asyncio.StreamReader) -> bytes:
        parts = []
        while part := await self._timely(reader.read(_PART)):
            parts.append(part)
        return b"".join(parts)


def _parsed(head: bytes) -> tuple[str, int, dict[str, str]]:
    first, *lines = head.decode("latin-1").split("\r\n")
    version, _, rest = first.partition(" ")
    if not version.startswith("HTTP/1.") or not rest[:3].isdecimal():
        raise Broken(f"it began with {first[:80]!r}")
    headers: dict[str, str] = {}
    for line in lines:
        if line:
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
    return version, int(rest[:3]), headers


def _size(text: str, base: int) -> int:
    size = int(text, base)
    if size < 0:
        raise Broken(f"a length of {text}")
    return size
