"""HTTP/1.1 to an upstream: what a gateway needs of a client and nothing more.

One protocol object is one connection: it sends a request in one write, and hands on the head of the
answer and then the pieces of its body as they arrive, without a task, a session or an object for each
layer in between: an eighth of the processor time of a general client.  It does not follow redirects,
keep cookies, retry or decompress.  Sources: RFC 9112 (messages), RFC 9110 (CONNECT).
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from base64 import b64encode
from collections import deque
from collections.abc import Mapping
from typing import cast
from urllib.parse import SplitResult, quote, unquote

HEAD = 64 * 1024
"""Bytes of a head, or of a line of a chunked body, at most."""
BUFFERED = 256 * 1024
"""Bytes of a body that wait to be read before the upstream is held up."""
IDLE = 4.0
"""Seconds that a connection is kept: less than the five after which common servers close one, for one
that is closed while a request is on its way fails the request."""


class Broken(ConnectionError):
    """The other side ended the connection too early, or does not speak HTTP/1.1."""


class Connection(asyncio.Protocol):
    """One connection, used for one request after another.

    Attributes:
        status: of the answer that is being read.
        headers: its headers, names in lower case; of a repeated one, all values with commas.
    """

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self._error: Exception | None = None
        self._closed = False
        self._kept: asyncio.TimerHandle | None = None
        self._bodiless = False
        self._begin()

    def _begin(self) -> None:
        self._buffer = b""
        self._chunks: deque[bytes] = deque()
        self._size = 0
        self._headed = self._complete = False
        self._left: int | None = None
        """Bytes of the body, or of its chunk, that are missing; None where its end is the connection's."""
        self._chunked = self._between = False
        self._reusable = True
        self._paused = False

    # -- what a caller does -------------------------------------------------------------------

    def send(
        self, method: str, target: str, host: str, headers: Mapping[str, str], body: bytes | None
    ) -> None:
        """Send a request.

        Raises:
            ValueError: a header cannot be sent.
        """
        lines = [f"{method} {target} HTTP/1.1\r\nhost: {host}"]
        for name, text in headers.items():
            if "\n" in text or "\r" in text or "\0" in text:
                raise ValueError(f"the header {name} has a line break")
            lines.append(f"{name}: {text}")
        if body is not None:
            lines.append(f"content-length: {len(body)}")
        assert self._transport is not None
        self._bodiless = method in ("HEAD", "CONNECT")
        self._transport.write("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + (body or b""))

    async def head(self, seconds: float) -> None:
        """Wait until `status` and `headers` are those of the answer.

        Raises:
            TimeoutError: not within `seconds`.
            Broken: there is none.
        """
        while not self._headed:
            await self._wait(seconds)

    async def read(self, seconds: float) -> bytes:
        """Some of the body, b"" at its end; raises as `head` does."""
        while not self._chunks:
            if self._complete:
                return b""
            await self._wait(seconds)
        found = b"".join(self._chunks)
        self._chunks.clear()
        self._size = 0
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        return found

    def rest(self) -> bool:
        """Make it ready for another request; False if it cannot carry one, and is closed."""
        again = self._complete and self._reusable and not self._buffer and not self._closed
        if again:
            self._begin()
        else:
            self.close()
        return again

    def keep(self) -> None:
        """Close it when it has been idle for too long."""
        self._kept = self._loop.call_later(IDLE, self.close)

    def take(self) -> bool:
        """Use it again; False if it was closed meanwhile."""
        if self._kept is not None:
            self._kept.cancel()
            self._kept = None
        return not self._closed

    def close(self) -> None:
        """Cut it: an answer that was not read to its end is not waited for."""
        self._closed = True
        if self._transport is not None:
            self._transport.abort()

    async def secure(self, context: ssl.SSLContext, host: str) -> None:
        """Go on inside TLS, after CONNECT."""
        assert self._transport is not None
        self._begin()
        self._transport = cast(
            "asyncio.Transport",
            await self._loop.start_tls(self._transport, self, context, server_hostname=host),
        )

    # -- what the loop calls ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._kept is not None:
            self.close()  # nobody asked: it must not be taken for the answer to what is asked next
            return
        try:
            if not self._headed:
                data = self._read_head(data)
            if data and self._headed:
                self._read_body(data)
        except (Broken, ValueError, IndexError) as exception:
            self._fail(exception if isinstance(exception, Broken) else Broken(f"no HTTP/1.1 ({exception})"))
        if self._size > BUFFERED and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed = True
        if self._headed and not self._complete and self._left is None and not self._chunked and exc is None:
            self._complete = True
        elif not self._complete and self._error is None:
            self._error = Broken(f"the connection ended ({exc or 'closed by the upstream'})")
        self._wake()

    # -- inside -------------------------------------------------------------------------------

    async def _wait(self, seconds: float) -> None:
        if self._error is not None:
            raise self._error
        waiter = self._waiter = self._loop.create_future()
        timer = self._loop.call_later(seconds, _expire, waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _fail(self, error: Exception) -> None:
        self._error = self._error or error
        self.close()

    def _read_head(self, data: bytes) -> bytes:
        """Read the head if all of it is here; what comes after it."""
        self._buffer += data
        while True:
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                if len(self._buffer) > HEAD:
                    raise Broken(f"a head of more than {HEAD} bytes")
                return b""
            lines = self._buffer[:end].decode("latin-1").split("\r\n")
            self._buffer = self._buffer[end + 4 :]
            version, _, rest = lines[0].partition(" ")
            if version not in ("HTTP/1.1", "HTTP/1.0") or not rest[:3].isdigit():
                raise Broken(f"it answered {lines[0][:60]!r}")
            self.status = int(rest[:3])
            if not 100 <= self.status < 200:
                break
        headers: dict[str, str] = {}
        for line in lines[1:]:
            name, colon, text = line.partition(":")
            if not colon or not name or name != name.strip():
                raise Broken(f"a header line {line[:60]!r}")
            name, text = name.lower(), text.strip()
            headers[name] = f"{headers[name]}, {text}" if name in headers else text
        self.headers = headers
        self._frame(version)
        self._headed = True
        data, self._buffer = self._buffer, b""
        return data

    def _frame(self, version: str) -> None:
        """Where the body ends (RFC 9112, 6.3)."""
        headers = self.headers
        coding, length = headers.get("transfer-encoding"), headers.get("content-length")
        said = headers.get("connection", "").lower()
        self._reusable = "close" not in said and (version == "HTTP/1.1" or "keep-alive" in said)
        if self._bodiless or self.status in (204, 304):
            self._complete = True
        elif coding is not None:
            if coding.strip().lower() != "chunked":
                raise Broken(f"the transfer-encoding {coding[:60]!r}")
            self._chunked, self._left = True, 0
            self._reusable = self._reusable and length is None
        elif length is not None:
            sizes = {each.strip() for each in length.split(",")}
            if len(sizes) != 1 or not (size := sizes.pop()).isascii() or not size.isdigit():
                raise Broken(f"the content-length {length[:60]!r}")
            self._left = int(size)
            self._complete = self._left == 0
        else:
            self._reusable = False

    def _read_body(self, data: bytes) -> None:
        if self._complete:
            self._reusable = False  # more than it said: whose answer would that be?
        elif self._chunked:
            self._read_chunks(data)
        elif self._left is None:
            self._put(data)
        else:
            if len(data) > self._left:
                self._reusable = False
                data = data[: self._left]
            self._left -= len(data)
            self._put(data)
            self._complete = self._left == 0

    def _put(self, data: bytes) -> None:
        if data:
            self._chunks.append(data)
            self._size += len(data)

    def _read_chunks(self, data: bytes) -> None:
        """Chunks as they come, cut anywhere; trailers are read over."""
        data, self._buffer = self._buffer + data, b""
        at = 0
        while True:
            if self._left:
                piece = data[at : at + self._left]
                self._put(piece)
                self._left -= len(piece)
                at += len(piece)
                if self._left:
                    return
                self._between = True
            end = data.find(b"\r\n", at)
            if end < 0:
                self._buffer = data[at:]
                if len(self._buffer) > HEAD:
                    raise Broken("a chunk without an end of its line")
                return
            line, at = data[at:end], end + 2
            if self._between:  # the line break after a chunk
                if line:
                    raise Broken("a chunk that is longer than it says")
                self._between = False
            elif self._left is None:  # trailers, until an empty line
                if not line:
                    self._complete = True
                    self._reusable = self._reusable and at == len(data)
                    return
            else:
                size = line.partition(b";")[0].strip()
                if not size or len(size) > 15 or size.strip(b"0123456789abcdefABCDEF"):
                    raise Broken(f"a chunk of size {line[:20]!r}")
                self._left = int(size, 16) or None

    @property
    def broken(self) -> bool:
        """Whether it can carry nothing more."""
        return self._closed


def _expire(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_exception(TimeoutError())


def authority(parts: SplitResult) -> tuple[str, int, str]:
    """Host, port and the Host header of a URL."""
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    shown = f"[{host}]" if ":" in host else host
    return host, port, shown if parts.port is None else f"{shown}:{parts.port}"


def target(parts: SplitResult, path: str) -> str:
    """The path as it is asked for, below that of a URL, with what cannot stand in a request line quoted."""
    return quote(parts.path + path, safe="%/:?[]@!$&'()*+,;=-._~")


async def connect(
    parts: SplitResult, proxy: SplitResult | None, context: ssl.SSLContext | None
) -> Connection:
    """A connection to the host of a URL, through a proxy if one is given.

    Args:
        context: for https.

    Raises:
        OSError: it cannot be reached, or its certificate does not hold.
    """
    loop = asyncio.get_running_loop()
    host, port, shown = authority(parts)
    if proxy is None:
        _, connection = await loop.create_connection(
            Connection, host, port, ssl=context, server_hostname=host if context is not None else None
        )
        return connection
    if proxy.scheme != "http":
        raise Broken(f"a proxy of kind {proxy.scheme!r} is not spoken to; give an http:// one")
    near, through, _ = authority(proxy)
    _, connection = await loop.create_connection(Connection, near, through)
    if context is None:
        return connection
    try:
        where = f"{shown}:{port}" if parts.port is None else shown
        connection.send("CONNECT", where, where, proxy_headers(proxy), None)
        await connection.head(30.0)
        if connection.status != 200:
            raise Broken(f"the proxy answered {connection.status}")
        await connection.secure(context, host)
    except BaseException:
        connection.close()
        raise
    return connection


def proxy_headers(proxy: SplitResult) -> dict[str, str]:
    """What a proxy is told, of its own URL's user and password."""
    if proxy.username is None:
        return {}
    said = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"proxy-authorization": f"Basic {b64encode(said.encode()).decode()}"}


class Pool:
    """Connections that are kept, by where they lead.  Used in one loop."""

    def __init__(self) -> None:
        self._idle: dict[str, list[Connection]] = {}
        self._context: ssl.SSLContext | None = None

    def idle(self, url: str) -> Connection | None:
        """One that is open, if there is one."""
        kept = self._idle.get(url, [])
        while kept:
            found = kept.pop()
            if found.take():
                return found
        return None

    def give_back(self, url: str, connection: Connection) -> None:
        """Keep one whose answer was read to its end."""
        if not connection.rest():
            return
        kept = self._idle.setdefault(url, [])
        kept[:] = [each for each in kept if not each.broken]
        kept.append(connection)
        connection.keep()

    async def context(self) -> ssl.SSLContext:
        """The certificates that this machine trusts: read once, in a thread, for it takes its time."""
        if self._context is None:
            self._context = await asyncio.to_thread(ssl.create_default_context)
        return self._context

    def close(self) -> None:
        for kept in self._idle.values():
            for each in kept:
                with contextlib.suppress(Exception):
                    each.take()
                    each.close()
        self._idle.clear()
