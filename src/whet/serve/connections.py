"""The connections of a server: aiohttp's parser and protocol, on a socket that is bound already.

aiohttp finds where a request begins and ends, keeps connections and bounds what waits on each; a Request reads from it
and writes its answer to it.  All of it is in the loop of the handlers: a server with threads of its own handed each
request over and each answer back, and a system wakes a thread for each.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable, Iterator
from typing import cast

from aiohttp import web

from .http import PASSING, Request

BACKLOG = 1024
"""Connections that wait to be accepted."""
HEAD = 64 * 1024
"""Bytes that the first line of a request may have, and each header."""
HEADERS = 128
IDLE = 300.0
"""Seconds after which a connection is closed on which no request has come, or not all of a head."""
BUFFER = 256 * 1024
"""Bytes of a body that are taken from a connection before somebody reads them; twice that at most."""

DESCRIPTORS = 65_536
"""Open files and connections that a server asks its system for."""
SHARE = 3
"""Of them each connection may take: a call through the gateway has another to the model."""

_logger = logging.getLogger(__name__)
_logger.addHandler(logging.NullHandler())  # broken requests are refused, and are no news of the server's
_logger.propagate = False


@contextlib.contextmanager
def descriptors() -> Iterator[None]:
    """As many open files as the system allows this process, up to `DESCRIPTORS`; most begin with 1,024."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(DESCRIPTORS, hard)
    # macOS allows less than it says.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, allowed), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def most_connections() -> int:
    """Connections for which this process has descriptors."""
    try:
        import resource
    except ImportError:
        return DESCRIPTORS // SHARE
    return min(DESCRIPTORS, resource.getrlimit(resource.RLIMIT_NOFILE)[0]) // SHARE


class _Answered:
    """What aiohttp is told of an answer, which a Request has written by itself."""

    def __init__(self, request: Request) -> None:
        self.keep_alive = request.started and request.keeps

    async def prepare(self, incoming: web.BaseRequest) -> None:
        """The head is out."""

    async def write_eof(self) -> None:
        """So is the body."""


class Connections(web.Server):
    """Has each request that comes answered.

    Where there are more connections than the process has descriptors for, the one on which nothing has been under way
    for longest is closed: clients that only hold connections keep nobody out.

    Args:
        serve: answers a Request; it may return without an answer, which ends the connection.
        closing: set once the server drains.
    """

    def __init__(self, serve: Callable[[Request], Awaitable[None]], closing: asyncio.Event) -> None:
        super().__init__(
            self._handle,
            access_log=None,
            logger=_logger,
            auto_decompress=False,  # a route knows what it takes, and how much of it
            keepalive_timeout=IDLE,
            lingering_time=PASSING,
            max_line_size=HEAD,
            max_field_size=HEAD,
            max_headers=HEADERS,
            read_bufsize=BUFFER,
        )
        self._serve, self._closing = serve, closing
        self._listening: asyncio.Server | None = None
        self._lost: dict[web.RequestHandler, asyncio.Event] = {}
        self._most = most_connections()
        self._quiet: dict[web.RequestHandler, asyncio.Transport] = {}
        """Connections on which nothing is under way, the longest first."""

    async def listen(self, bound: socket.socket) -> None:
        """Accept connections on a socket that listens."""
        self._listening = await asyncio.get_running_loop().create_server(self, sock=bound, backlog=BACKLOG)

    def drain(self) -> None:
        """Accept no further connections, and end those on which nothing is under way."""
        if self._listening is not None:
            self._listening.close()
        self.pre_shutdown()

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        self._quiet[handler] = transport
        if len(self._connections) > self._most:
            self._quiet.pop(next(iter(self._quiet))).abort()  # itself, where all others are at work

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        self._quiet.pop(handler, None)
        if (lost := self._lost.pop(handler, None)) is not None:
            lost.set()

    async def _handle(self, incoming: web.BaseRequest) -> web.StreamResponse:
        protocol = incoming.protocol

        async def gone() -> None:
            if protocol.transport is not None:
                await self._lost.setdefault(protocol, asyncio.Event()).wait()

        request = Request(incoming, gone, self._closing)
        transport = self._quiet.pop(protocol, None)
        try:
            await self._serve(request)
        finally:
            request.end()
            if transport is not None and protocol.transport is not None:
                self._quiet[protocol] = transport
        return cast("web.StreamResponse", _Answered(request))
