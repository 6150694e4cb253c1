"""The endpoints behind the gateway: kept connections, and what may go wrong on them.

An answer's head is here before its body; its chunks are passed on as they arrive.  Redirects are
not followed, for they would carry the key to another address, and cookies are not kept.
"""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, urlsplit

from ...errors import InputError
from ...types import Fault
from .failures import CallFailed
from .http import Connection, Pool, authority, connect, proxy_headers, target

APIS = ("chat", "responses", "messages")
LARGEST = 64 * 1024 * 1024
"""Bytes of one answer; more is an endless stream, or nothing that can be kept."""
_SPOKEN = {
    "api.openai.com": frozenset({"chat", "responses"}),
    "api.anthropic.com": frozenset({"messages"}),
}
_DROPPED = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "cookie",
        "expect",
        "forwarded",
        "host",
        "keep-alive",
        "origin",
        "proxy-authorization",
        "proxy-connection",
        "referer",
        "set-cookie",
        "te",
        "trailer",
        "traceparent",
        "tracestate",
        "baggage",
        "transfer-encoding",
        "upgrade",
        "x-forwarded-for",
        "x-forwarded-host",
        "x-forwarded-proto",
    }
)
"""Headers that belong to one connection or to the agent's own surroundings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """An endpoint that speaks one or more of the model APIs.

    Raises:
        InputError: the url is no plain http(s) address, or it speaks an API that nobody knows.
    """

    url: str
    """Up to and including `/v1`."""
    speaks: frozenset[str] = frozenset()
    """Of `chat`, `responses` and `messages`; by default what the host is known for, else chat.  A request
    in another dialect is translated to chat."""
    key: str | None = field(default=None, repr=False)
    """Sent in place of the agent's own; from the operator's environment, kept in memory only."""
    tokens: bool = False
    """Ask for token ids and log-probabilities of every chat (vLLM 0.10.2 or newer, or a policy server)."""
    usage: bool = True
    """Ask for the usage of streamed chats; some old servers refuse `stream_options`."""
    connect_seconds: float = 10.0
    first_seconds: float = 600.0
    """Until the head of the answer: a plain call has it when all of it was generated."""
    idle_seconds: float = 120.0
    """Between two pieces of an answer."""

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise InputError(f"the upstream is {self.url!r}; it must look like http://host:port/v1.")
        if parts.username or parts.password:
            raise InputError("the upstream's url carries a password; give the key in the environment.")
        if self.key is not None and not (self.key.isascii() and self.key.isprintable() and self.key.strip()):
            raise InputError("the upstream's key is empty or has a character that no key has.")
        object.__setattr__(self, "url", self.url.rstrip("/"))
        speaks = frozenset(self.speaks) or _SPOKEN.get(parts.hostname, frozenset({"chat"}))
        if not speaks <= set(APIS):
            raise InputError(f"an upstream speaks {sorted(speaks)}; it can be {', '.join(APIS)}.")
        object.__setattr__(self, "speaks", speaks)

    def proxy(self) -> str | None:
        """The proxy that this machine's environment names for it; never one for a loopback address."""
        parts = urlsplit(self.url)
        host = parts.hostname or ""
        if host in ("127.0.0.1", "localhost", "::1"):
            return None
        import urllib.request  # which brings the machinery of mail with it: not before the server has started

        if urllib.request.proxy_bypass(host):
            return None
        return urllib.request.getproxies().get(parts.scheme)


def choose(upstreams: Mapping[str, Upstream], api: str, name: str | None) -> tuple[str, bool]:
    """The upstream for a call, and whether it must be translated to chat.

    The one named; else the first that speaks the API; else the first that speaks chat.

    Raises:
        CallFailed: none can be asked.
    """
    if name is not None and {api, "chat"} & upstreams[name].speaks:
        return name, api not in upstreams[name].speaks
    if name is None:
        for spoken in (api, "chat"):
            for candidate, upstream in upstreams.items():
                if spoken in upstream.speaks:
                    return candidate, spoken != api
    known = {given: sorted(upstream.speaks) for given, upstream in upstreams.items()}
    raise CallFailed(
        Fault.ENVIRONMENT,
        "no_upstream",
        f"no upstream speaks the {api} API or chat{f' ({name} was assigned)' if name else ''}; there are {known}.",
        status=501,
    )


def forwarded(
    headers: Sequence[tuple[str, str]], upstream: Upstream, *, api: str, credential: str | None
) -> dict[str, str]:
    """The agent's headers as the upstream gets them: without those of ours, with the right key.

    Args:
        api: that the upstream is asked in: `messages` takes its key in a header of its own.
        credential: the header that held our own token, which stays here.
    """
    kept = {
        name: text
        for name, text in headers
        if name not in _DROPPED and not name.startswith("x-whet-") and name != credential
    }
    if upstream.key is not None:
        kept.pop("x-api-key", None)
        kept["authorization"] = f"Bearer {upstream.key}"
        if api == "messages":
            kept["x-api-key"] = kept.pop("authorization").removeprefix("Bearer ")
    elif api != "messages" and "x-api-key" in kept:
        kept.setdefault("authorization", f"Bearer {kept.pop('x-api-key')}")
        kept.pop("x-api-key", None)
    kept["content-type"] = "application/json"
    kept["accept-encoding"] = "identity"
    return kept


def returned(headers: Mapping[str, str]) -> dict[str, str]:
    """The upstream's headers, names in lower case, as the agent gets them."""
    return {name: text for name, text in headers.items() if name not in _NOT_RETURNED}


_NOT_RETURNED = _DROPPED | {"content-type", "server", "date", "alt-svc", "x-whet-policy-version"}
_ENCODINGS = {"gzip": 31, "x-gzip": 31, "deflate": 15}
"""Content encoding → zlib's `wbits`; asked not to, some servers compress nevertheless."""
_PIECE = 1 << 20


class Opened:
    """An answer whose head is here."""

    def __init__(self, connection: Connection, upstream: Upstream, pool: Pool) -> None:
        self.status = connection.status
        self.headers: Mapping[str, str] = connection.headers
        self._connection, self._upstream, self._pool = connection, upstream, pool

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "")

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives.

        Raises:
            CallFailed: it was cut, stalled or too long.
        """
        size = 0
        unpack = self._unpacker()
        while chunk := await self._read():
            for piece in (chunk,) if unpack is None else _unpacked(unpack, chunk):
                size += len(piece)
                if size > LARGEST:
                    what = f"the upstream's answer is larger than {LARGEST:,} bytes"
                    raise CallFailed(Fault.MODEL, "answer_too_large", what)
                yield piece
        if unpack is not None and not unpack.eof and size:
            raise CallFailed(Fault.MODEL, "upstream_cut", "the upstream's compressed answer was cut")

    async def _read(self) -> bytes:
        try:
            return await self._connection.read(self._upstream.idle_seconds)
        except TimeoutError:
            raise CallFailed(
                Fault.MODEL,
                "upstream_stalled",
                f"the upstream sent nothing for {self._upstream.idle_seconds:g} seconds",
                status=504,
            ) from None
        except OSError as exception:
            what = f"the upstream's answer was cut: {exception}"
            raise CallFailed(Fault.MODEL, "upstream_cut", what) from exception

    def _unpacker(self) -> Any:
        coding = self.headers.get("content-encoding", "identity").strip().lower()
        if coding in ("identity", ""):
            return None
        if coding not in _ENCODINGS:
            what = f"the upstream's answer is encoded as {coding[:40]!r}, which it was asked not to do"
            raise CallFailed(Fault.MODEL, "malformed_answer", what)
        return zlib.decompressobj(wbits=_ENCODINGS[coding])

    async def body(self) -> bytes:
        """The whole body; raises as `chunks` does."""
        return b"".join([chunk async for chunk in self.chunks()])

    def close(self, *, whole: bool) -> None:
        """Give the connection back; one whose answer was not read to its end is closed, which cancels it."""
        if whole:
            self._pool.give_back(self._upstream.url, self._connection)
        else:
            self._connection.close()


def _unpacked(unpack: Any, chunk: bytes) -> list[bytes]:
    found = []
    try:
        while chunk and not unpack.eof:
            found.append(unpack.decompress(chunk, _PIECE))
            chunk = unpack.unconsumed_tail
            if len(found) > LARGEST // _PIECE:
                break  # more than is taken: whoever counts them says so
    except zlib.error as exception:
        what = f"the upstream's answer says that it is compressed and is not ({exception})"
        raise CallFailed(Fault.MODEL, "malformed_answer", what) from exception
    return found


@dataclass(frozen=True, slots=True)
class _Route:
    """How an upstream is reached."""

    parts: SplitResult
    host: str
    proxy: SplitResult | None

    def target(self, path: str) -> str:
        found = target(self.parts, path)
        plain = self.proxy is not None and self.parts.scheme == "http"
        return f"http://{self.host}{found}" if plain else found


class Upstreams:
    """The HTTP client.  Made and closed in the server's loop."""

    def __init__(self) -> None:
        self._pool = Pool()
        self._routes: dict[str, _Route] = {}

    async def close(self) -> None:
        self._pool.close()
        await asyncio.sleep(0)  # in which the loop lets go of the sockets

    async def open(
        self, upstream: Upstream, method: str, path: str, *, headers: Mapping[str, str], body: bytes | None
    ) -> Opened:
        """Send a request and wait for the head of its answer.

        Raises:
            CallFailed: there is none.
        """
        route = self._routes.get(upstream.url) or self._route(upstream)
        deadline = time.monotonic() + upstream.first_seconds
        connection = self._pool.idle(upstream.url) or await self._connect(upstream, route)
        try:
            if route.proxy is not None and route.parts.scheme == "http":
                headers = {**headers, **proxy_headers(route.proxy)}
            connection.send(method, route.target(path), route.host, headers, body)
            await connection.head(max(0.0, deadline - time.monotonic()))
        except BaseException as exception:
            connection.close()
            where = f"the upstream {upstream.url}"
            if isinstance(exception, TimeoutError):
                what = f"{where} did not answer within {upstream.first_seconds:g} seconds"
                raise CallFailed(Fault.MODEL, "upstream_timeout", what, status=504) from None
            if isinstance(exception, OSError | ValueError):
                what = f"{where} gave no answer: {exception}"
                raise CallFailed(Fault.MODEL, "upstream_failed", what) from exception
            raise
        return Opened(connection, upstream, self._pool)

    def _route(self, upstream: Upstream) -> _Route:
        parts, proxy = urlsplit(upstream.url), upstream.proxy()
        if proxy is not None and "://" not in proxy:
            proxy = f"http://{proxy}"
        found = _Route(parts, authority(parts)[2], None if proxy is None else urlsplit(proxy))
        self._routes[upstream.url] = found
        return found

    async def _connect(self, upstream: Upstream, route: _Route) -> Connection:
        try:
            context = await self._pool.context() if route.parts.scheme == "https" else None
            async with asyncio.timeout(upstream.connect_seconds):
                return await connect(route.parts, route.proxy, context)
        except (OSError, ValueError) as exception:  # TimeoutError is one
            why = f"{type(exception).__name__}: {exception}".rstrip(": ")
            what = f"the upstream {upstream.url} cannot be reached ({why})"
            raise CallFailed(Fault.MODEL, "upstream_unreachable", what) from exception
