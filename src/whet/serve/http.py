"""The thin layer between a connection and a handler: Request, Response, HttpRoute, and the Router that finds one.

A handler is `async def handler(request) -> Response | None`; None means that it has sent its own
answer through `request.stream`.  Errors of `whet.errors` become `{"error": {"type", "message"}}`
with the status that fits them.  It does not authorise (`auth.py`), parse a schema language or
know what a Store is: that is why it costs a few microseconds a request.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import re
import string
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from email.utils import formatdate
from enum import IntEnum
from http import HTTPStatus
from typing import Annotated, Any, Protocol, TypeVar
from urllib.parse import parse_qs, quote, unquote

import msgspec

from ..errors import (
    ConflictError,
    GateError,
    InputError,
    MissingExtra,
    ModelError,
    NotFoundError,
    StaleLeaseError,
    StoreBusyError,
    StoreError,
    WhetError,
)
from ..escapes import TooManyValues, read_json
from ..record.store.codec import plain
from ..record.store.rollouts import LONGEST
from ..record.tracing.record import INSIDE
from .run_tokens import RunGrant

try:
    from aiohttp import web
except ImportError as exception:
    raise MissingExtra("aiohttp", "server") from exception

Body = TypeVar("Body")

BODY_LIMIT = 32 * 1024 * 1024
"""Bytes that a request may carry unless its route or the server's Limits say otherwise."""
SLOWEST = 30.0
"""Seconds that a body may take to arrive."""
PASSED, PASSING = 64 * 1024, 1.0
"""Bytes of an unread body that are read and dropped before the answer, and seconds for it."""
NESTING = 64
"""Levels of lists and objects that a JSON body may have."""
VALUES = 200_000
"""Values that a JSON body may have (`escapes.MOST_VALUES` says why)."""
PAGE = 1_000
"""Items of one answer at most."""
Page = Annotated[int, msgspec.Meta(ge=1, le=PAGE)]


class Role(IntEnum):
    """The rights of a token; each includes the ones before it."""

    READ = 1
    WRITE = 2
    ADMIN = 3


class Refused(WhetError, PermissionError):
    """A request that is turned away before a handler looks at its content.

    Args:
        status: the HTTP status of the answer: 401, 403, 405, 408, 411, 413, 415, 429, 503.
        kind: a stable word for programs, such as `unauthorized`.
        message: for people: the fault and the remedy.
        headers: further headers of the answer, such as `retry-after`.
    """

    def __init__(
        self, status: int, kind: str, message: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.kind, self.headers = status, kind, dict(headers or {})


@dataclass(slots=True)
class Response:
    """A whole answer.  `body` bytes are sent as they are; make JSON with `answer`."""

    status: int = 200
    body: bytes = b""
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


_encoder = msgspec.json.Encoder(enc_hook=plain)
_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


def answer(value: Any, status: int = 200, **headers: str) -> Response:
    """`value` as a JSON Response; header names have `_` for `-`."""
    return Response(
        status,
        _encoder.encode(value),
        headers={name.replace("_", "-"): text for name, text in headers.items()},
    )


_PATH = re.compile(
    r"(?<![\w.:/-])/([^\s/'\"`:,;()\[\]{}<>]+)/(?:[^\s/'\"`:,;()\[\]{}<>]+/)*([^\s/'\"`:,;()\[\]{}<>]*)"
)
_FOLDERS = frozenset(os.listdir("/")) if os.name == "posix" else frozenset[str]()
"""The first names of this host's paths; those of the server's routes are others."""


def without_paths(message: str) -> str:
    """A message with the last name of each path of this host in place of the path, for who is not on it."""
    if "/" not in message:
        return message
    return _PATH.sub(lambda path: path[2] or "a folder" if path[1] in _FOLDERS else path[0], message)


def refusal(status: int, kind: str, message: str, headers: Mapping[str, str] | None = None) -> Response:
    """The one shape of every error: `{"error": {"type", "message"}}`."""
    body = _encoder.encode({"error": {"type": kind, "message": without_paths(message)}})
    return Response(status, body, headers=headers or {})


# The first that fits decides: NotFoundError is an InputError, and three of the others are StoreErrors.
_STATUS: tuple[tuple[type[WhetError], int, str], ...] = (
    (NotFoundError, 404, "not_found"),
    (InputError, 400, "invalid_request"),
    (StoreBusyError, 409, "busy"),
    (StaleLeaseError, 409, "stale_lease"),
    (ConflictError, 409, "conflict"),
    (StoreError, 503, "store_unavailable"),
    (ModelError, 502, "model_error"),
    (GateError, 409, "not_proven"),
)


def refusal_of(error: WhetError) -> Response:
    """The Response that an error of `whet.errors` becomes."""
    if isinstance(error, Refused):
        return refusal(error.status, error.kind, str(error), error.headers)
    for family, status, kind in _STATUS:
        if isinstance(error, family):
            return refusal(status, kind, str(error))
    return refusal(500, "error", str(error))


class Stream:
    """An answer that is sent piece by piece, from `request.stream`.  What a client that has left would get is dropped.

    Args:
        incoming: what is answered; the head is out.
        chunked: the pieces are told apart by their lengths; else the connection's end is that of the answer.
    """

    def __init__(self, incoming: web.BaseRequest, *, chunked: bool) -> None:
        self._incoming = incoming
        self.open = True
        if chunked:
            incoming.writer.enable_chunking()

    async def write(self, chunk: bytes) -> None:
        """Send `chunk` at once."""
        with contextlib.suppress(ConnectionError):
            await self._incoming.writer.write(chunk)

    async def close(self) -> None:
        """End the answer.  Repeating it does nothing."""
        if self.open:
            self.open = False
            with contextlib.suppress(ConnectionError):
                await self._incoming.writer.write_eof()


_NAMES: dict[str, bytes] = {}
"""Names of headers in lower case: each request is asked for a dozen, and each answer has some."""


def _name(text: str) -> bytes:
    """A header's name in lower case."""
    name = _NAMES.get(text)
    if name is None:
        name = text.lower().encode("latin-1")
        if len(_NAMES) < 1_000:  # an upstream may make up names without end
            _NAMES[text] = name
    return name


class Request:
    """One request, read as it is asked for.

    Attributes:
        method: upper case.
        path: decoded, without the query.
        raw_path: as it was sent.
        params: the `{name}` parts of the route's path, decoded.
        role: of the request's token; None where the route is open and no token came.
        token: name of the token, never the token itself.
        credential: where that token stood: a header's name or `path`.  Not to be forwarded or recorded.
        grant: the run that the token is for; None if it is one of the whole server.
        query_string: as it was sent, without `?`.
        peer: address of the client.
        closing: set once the server drains; a handler that waits should give up then.
        started: an answer is under way, so that no other can be sent.
        keeps: another request may come on its connection.
    """

    __slots__ = (
        "_gone",
        "_headers",
        "_incoming",
        "_query",
        "_stream",
        "_whole",
        "body_limit",
        "closing",
        "credential",
        "grant",
        "keeps",
        "method",
        "nesting",
        "params",
        "path",
        "peer",
        "query_string",
        "raw_path",
        "role",
        "started",
        "token",
    )

    def __init__(
        self, incoming: web.BaseRequest, gone: Callable[[], Awaitable[Any]], closing: asyncio.Event
    ) -> None:
        self.method = incoming.method
        target = incoming.raw_path
        if target[:1] != "/":  # a proxy's form, with scheme and host
            target = incoming.rel_url.raw_path_qs
        if not target.isascii():  # octets as they are, of which some may be no text
            target = quote(target, safe=string.punctuation, errors="surrogateescape")
        self.raw_path, _, self.query_string = target.partition("?")
        self.path = unquote(self.raw_path)
        self.params: Mapping[str, str] = {}
        self.role: Role | None = None
        self.token: str | None = None
        self.credential: str | None = None
        self.grant: RunGrant | None = None
        self.peer = incoming.remote or ""
        self.closing = closing
        self.body_limit = BODY_LIMIT
        self.nesting = NESTING
        self.started = False
        self.keeps = incoming.keep_alive
        self._incoming, self._gone = incoming, gone
        self._whole = incoming.content.at_eof()
        self._stream: Stream | None = None
        self._headers: dict[bytes, bytes] | None = None
        self._query: dict[str, str] | None = None

    def own_run(self, stated: str | None) -> str | None:
        """The run that is meant: the one stated, else that of a run's token, else None.

        Raises:
            Refused: 403 for a run that the token is not for.
        """
        grant = self.grant
        if grant is None:
            return stated
        if stated is not None and not grant.reaches(stated):
            raise Refused(
                403,
                "foreign_run",
                f"this token is for the run {grant.run!r}, not {stated[:LONGEST]!r}. Name a run inside it, as "
                f"{grant.run + INSIDE + 'NAME'!r}, or send a token of the server.",
            )
        return grant.run if stated is None else stated

    def header(self, name: str, default: str | None = None) -> str | None:
        """The value of a header (any case), `default` if it was not sent."""
        headers = self._headers
        if headers is None:
            headers = self._headers = {name.lower(): value for name, value in self._incoming.raw_headers}
        value = headers.get(_NAMES.get(name) or _name(name))
        if value is None:
            return default
        try:
            return value.decode()
        except UnicodeDecodeError:  # the encoding of headers by HTTP/1.0
            return value.decode("latin-1")

    @property
    def headers(self) -> list[tuple[str, str]]:
        """Every header as it came, names in lower case."""
        return [
            (name.decode("latin-1").lower(), text.decode("latin-1"))
            for name, text in self._incoming.raw_headers
        ]

    @property
    def query(self) -> Mapping[str, str]:
        """Query parameters; of one that is repeated, the last."""
        if self._query is None:
            try:
                parameters = parse_qs(self.query_string, keep_blank_values=True, max_num_fields=64)
            except ValueError as exception:
                raise InputError(f"the query string cannot be read: {exception}") from exception
            self._query = {name: values[-1] for name, values in parameters.items()}
        return self._query

    def parameter(self, name: str, type: Any, default: Any = None) -> Any:
        """A query parameter as a value of `type`, `default` if it was not given.

        Raises:
            InputError: it is not such a value.
        """
        text = self.query.get(name)
        if text is None:
            return default
        try:
            return msgspec.convert(text, type, strict=False)
        except msgspec.ValidationError as exception:
            raise InputError(
                f"the query parameter {name}={text[:100]!r} cannot be used: {exception}"
            ) from exception

    async def body(self, limit: int | None = None) -> bytes:
        """The whole body.

        Raises:
            Refused: more than `limit` bytes (the route's limit if None): 413; the client went away: 408.
        """
        most = self.body_limit if limit is None else limit
        declared = self.header("content-length")
        length = int(declared) if declared is not None and declared.isdigit() else None
        if length is not None and length > most:
            raise _too_large(most, length)
        content = self._incoming.content
        if content.is_eof():  # all of it is here, as nearly always
            body = content.read_nowait()
            self._whole = True
            if len(body) > most:  # it did not say how long it is
                raise _too_large(most, len(body))
            return body
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(SLOWEST):
                if self._asks_first():
                    await self._incoming.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                while part := await content.readany():
                    parts.append(part)
                    size += len(part)
                    if size > most:
                        raise _too_large(most, size)
        except TimeoutError:
            raise Refused(408, "too_slow", f"the body did not arrive within {SLOWEST:g} seconds") from None
        except (ConnectionError, web.RequestPayloadError):
            raise Refused(
                408, "client_gone", "the client went away before its request was complete"
            ) from None
        self._whole = True
        return b"".join(parts)

    async def passed_over(self) -> bool:
        """True if nothing of the body is unread; a small rest is read here.

        HTTP/1.1 has no way around the rest of a body: the connection is closed once the answer is sent, and the
        client's next request on it would be lost.
        """
        if self._whole:
            return True
        if self._asks_first():  # it was not told to go on
            return False
        with contextlib.suppress(Refused, TimeoutError):
            async with asyncio.timeout(PASSING):
                await self.body(PASSED)
        return self._whole

    def _asks_first(self) -> bool:
        """True if the client waits to be told before it sends the body."""
        return (self.header("expect") or "").lower() == "100-continue"

    async def json(self, type: type[Body]) -> Body:
        """The body as JSON of a given type: a dataclass, Struct, TypedDict, or builtin.

        Raises:
            InputError: it is not JSON, is nested too deeply, or does not fit the type; the message says where.
            Refused: too large.
        """
        return self.parsed(await self.body(), type)

    def parsed(self, body: bytes, type: type[Body]) -> Body:
        """As `json`, of a body that has been read."""
        value: Body = parse(body, type, nesting=self.nesting)
        return value

    async def disconnected(self) -> None:
        """Return once the client has gone away."""
        await self._gone()

    async def send(self, response: Response) -> None:
        """Send a whole answer, once the body has been read or passed over."""
        self.started = True
        if not await self.passed_over():
            self.keeps = False  # so that the client sends no further request on it
        head = self._head(response, b"content-length: %d\r\n" % len(response.body))
        body = b"" if self.method == "HEAD" else response.body
        with contextlib.suppress(ConnectionError):  # it has left
            await self._incoming.writer.write(head + body)

    async def stream(
        self,
        status: int = 200,
        *,
        content_type: str = "text/event-stream",
        headers: Mapping[str, str] | None = None,
        first: bytes = b"",
    ) -> Stream:
        """Start an answer that is sent piece by piece; the handler then returns None.

        Args:
            first: its first piece, which goes out with the head: a second write to the kernel costs some 40 µs.
        """
        self.started = True
        chunked = self._incoming.version >= (1, 1)
        if not (chunked and await self.passed_over()):
            self.keeps = False
        head = self._head(
            Response(status, b"", content_type, headers or {}),
            b"transfer-encoding: chunked\r\n" if chunked else b"",
        )
        if first:
            head += b"%x\r\n%b\r\n" % (len(first), first) if chunked else first
        with contextlib.suppress(ConnectionError):
            await self._incoming.writer.write(head)
        self._stream = Stream(self._incoming, chunked=chunked)
        return self._stream

    def end(self) -> None:
        """Cut the connection if an answer was begun and not ended: it must not look whole."""
        transport = self._incoming.transport
        if self._stream is not None and self._stream.open and transport is not None:
            transport.close()

    def _head(self, response: Response, length: bytes) -> bytes:
        """The head of an answer, with `length` as its header for where the body ends."""
        lines = [
            _status_line(response.status),
            b"content-type: %b\r\n" % _printable(response.content_type.encode("latin-1")),
            length,
            b"server: whet\r\ndate: %b\r\n" % _date(),
        ]
        for name, text in response.headers.items():
            # An upstream's header comes back as it was: aiohttp decodes it so.
            value = _printable(text.encode("utf-8", "surrogateescape"))
            lines.append(b"%b: %b\r\n" % (_NAMES.get(name) or _name(name), value))
        if not self.keeps:
            lines.append(b"connection: close\r\n")
        elif self._incoming.version < (1, 1):
            lines.append(b"connection: keep-alive\r\n")
        lines.append(b"\r\n")
        return b"".join(lines)


@functools.lru_cache
def _status_line(status: int) -> bytes:
    reason = HTTPStatus(status).phrase if status in _STATUSES else ""
    return f"HTTP/1.1 {status} {reason}\r\n".encode("ascii")


_STATUSES = frozenset(HTTPStatus)
_dated = (0, b"")
"""The second of the last answer, and its date."""


def _date() -> bytes:
    """The time as a header has it, made once a second."""
    global _dated
    second = int(time.time())
    if second != _dated[0]:
        _dated = (second, formatdate(second, usegmt=True).encode("ascii"))
    return _dated[1]


def _printable(value: bytes) -> bytes:
    """A header's value without the ends of lines, by which another header could be slipped in."""
    return _CONTROL.sub(b" ", value)


_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")


def _too_large(limit: int, size: int) -> Refused:
    return Refused(
        413, "too_large", f"the body has {size:,} bytes or more; at most {limit:,} are taken. Send less."
    )


def parse(body: bytes, type: Any, *, nesting: int = NESTING) -> Any:
    """`body` as JSON of `type`.

    Raises:
        InputError: not JSON, nested deeper than `nesting`, or not of that type.
        Refused: more than `VALUES` values: 413.
    """
    decoder = _decoders.get(type)
    if decoder is None:
        decoder = _decoders[type] = msgspec.json.Decoder(type)
    try:
        value = read_json(decoder.decode, body, VALUES)
    except TooManyValues as exception:
        raise Refused(413, "too_many_values", f"the body cannot be used: {exception}") from exception
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exception:
        raise InputError(f"the body cannot be used: {exception}") from exception
    # After the decoder, for `deeper` is right about valid JSON only;
    # the count alone settles nearly every body.
    if body.count(b"[") + body.count(b"{") > nesting and deeper(body, nesting):
        raise InputError(f"the body is nested deeper than {nesting} levels")
    return value


_DROPPED = bytes(byte for byte in range(256) if byte not in b'"[]{}')


def deeper(body: bytes, limit: int) -> bool:
    """True if valid JSON is nested deeper than `limit`."""
    if b"\\" in body:
        # Escaped backslashes first: the quote after one of them ends the string.
        body = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Dropping what is neither quote nor bracket before the strings are cut out leaves little to cut.
    pieces = body.translate(None, _DROPPED).split(b'"')
    brackets = b"".join(pieces[::2]).replace(b"{", b"[").replace(b"}", b"]")
    for _ in range(limit):
        if not brackets:
            return False
        # A pass removes the innermost level with all its siblings: "[][]" is empty after one, "[[][]]" after two.
        brackets = brackets.replace(b"[]", b"")
    return bool(brackets)


Handler = Callable[[Request], Awaitable[Response | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRoute:
    """One method on one path, the role that it needs, and its entry in the OpenAPI document."""

    method: str
    path: str
    """Begins with `/`; `{name}` stands for one segment, which reaches the handler in `request.params`."""
    handler: Handler
    role: Role | None = Role.ADMIN
    """The least role that may call it; None opens it to everybody and has to be written out."""
    summary: str = ""
    request: Any = None
    """Type of the JSON body, None if there is none or it is not JSON."""
    response: Any = None
    """Type of the JSON answer, None if it is not JSON."""
    request_media: Sequence[str] = ("application/json",)
    """Media types of the body."""
    query: Mapping[str, Any] = field(default_factory=dict)
    """Query parameter → its type."""
    token_param: str | None = None
    """A `{name}` of the path that may carry the token, for clients that can set nothing but a URL."""
    of_run: bool = False
    """Open to the token of one run; its handler asks `request.own_run` which one the request may mean."""
    local_only: bool = False
    """Refused for a peer that is not on a loopback address."""
    body_limit: int | None = None
    """Bytes; the server's limit if None."""
    status: int = 200
    """Status of the usual answer."""


def reads(path: str, handler: Handler, summary: str, response: Any, **more: Any) -> HttpRoute:
    """A GET for the role read; `more` as in HttpRoute."""
    return HttpRoute(
        method="GET", path=path, handler=handler, role=Role.READ, summary=summary, response=response, **more
    )


def writes(path: str, handler: Handler, summary: str, request: Any, response: Any, **more: Any) -> HttpRoute:
    """A POST for the role write; `more` as in HttpRoute."""
    fields = {"role": Role.WRITE, "summary": summary, "request": request, "response": response, **more}
    return HttpRoute(method="POST", path=path, handler=handler, **fields)


class Router:
    """Finds the HttpRoute of a method and path: one dictionary look-up where the path has no `{name}`.

    Raises:
        ValueError: two routes for one method and pattern.
    """

    def __init__(self, routes: Sequence[HttpRoute]) -> None:
        self._exact: dict[str, dict[str, HttpRoute]] = {}
        self._patterns: dict[int, list[tuple[tuple[str, ...], dict[str, HttpRoute]]]] = {}
        keys: set[tuple[str, str]] = set()
        for route in routes:
            key = (
                route.method,
                "/".join("{}" if part[:1] == "{" else part for part in route.path.split("/")),
            )
            if key in keys:
                raise ValueError(f"two routes for {route.method} {route.path}")
            keys.add(key)
            if "{" not in route.path:
                self._exact.setdefault(route.path, {})[route.method] = route
                continue
            parts = tuple(route.path.split("/"))
            same_length = self._patterns.setdefault(len(parts), [])
            methods = next((methods for pattern, methods in same_length if pattern == parts), None)
            if methods is None:
                methods = {}
                same_length.append((parts, methods))
            methods[route.method] = route

    def find(self, method: str, path: str, raw: str | None = None) -> tuple[HttpRoute, Mapping[str, str]]:
        """The route and the values of its `{name}` parts.

        Args:
            raw: the path as it was sent; a `%2F` in it is part of an id, not of the path.

        Raises:
            NotFoundError: no route has this path.
            Refused: the path is known, the method is not: 405.
        """
        # Exact paths first: `/api/rollouts/finished` is not the rollout with that id.
        methods = self._exact.get(path)
        if methods is not None and method in methods:
            return methods[method], {}
        allowed = set(methods or ())
        parts = (path if raw is None else raw).split("/")
        for pattern, by_method in self._patterns.get(len(parts), ()):
            params = _matched(pattern, parts)
            if params is None:
                continue
            if method in by_method:
                return by_method[method], params
            allowed |= set(by_method)
        if allowed:
            allow = ", ".join(sorted(allowed))
            raise Refused(
                405, "method_not_allowed", f"{method} {path}: use {allow}", headers={"allow": allow}
            )
        raise NotFoundError(f"nothing is served at {path}; GET /openapi.json lists the routes")


def _matched(pattern: Sequence[str], parts: Sequence[str]) -> dict[str, str] | None:
    params: dict[str, str] = {}
    for name, part in zip(pattern, parts, strict=True):
        if name[:1] == "{":
            if not part:
                return None
            params[name[1:-1]] = unquote(part)
        elif name != part:
            return None
    return params


class ServerPart(Protocol):
    """A part of the server: some routes, and whatever must run while they are served."""

    @property
    def routes(self) -> Sequence[HttpRoute]:
        """Its routes; two parts may not share one."""
        ...

    def lifespan(self) -> AbstractAsyncContextManager[None]:
        """Entered in the server's loop before the first request, left after the last."""
        ...


class Passive:
    """The `lifespan` of a part that runs nothing beside its routes."""

    @contextlib.asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        yield
