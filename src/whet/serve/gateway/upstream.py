"""The endpoints behind the gateway: one session, kept connections, and what may go wrong on them.

An answer's head is here before its body; its chunks are passed on as they arrive.  Redirects are
not followed, for they would carry the key to another address, and cookies are not kept.
"""

from __future__ import annotations

import urllib.request
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from ...errors import InputError, MissingExtra
from ...models.endpoint import check_address
from ...types import Fault
from .failures import UpstreamFailed
from .interrupt import Interruptible

try:
    import aiohttp
except ImportError as exception:
    raise MissingExtra("aiohttp", "server") from exception

KEY = "WHET_UPSTREAM_KEY"
"""Environment variable with the upstream's key, if the program has none of its own."""
APIS = ("chat", "responses", "messages")
TRANSLATED = ("chat", "messages")
"""APIs that a call in another can be translated to, in the order of preference."""
_ANTHROPIC_VERSION = "2023-06-01"
"""The only one there is; every request must name it."""
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
        InputError: the url is not a plain http(s) address, or it speaks an unknown API.
    """

    url: str
    """Up to and including `/v1`."""
    speaks: frozenset[str] = frozenset()
    """Of `chat`, `responses` and `messages`; by default what the host is known for, else chat.  A request
    in another dialect is translated to chat, or where that is not spoken to messages."""
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
        check_address(self.url, self.key, ("the upstream's url", KEY))
        object.__setattr__(self, "url", self.url.rstrip("/"))
        speaks = frozenset(self.speaks) or _SPOKEN.get(urlsplit(self.url).hostname or "", frozenset({"chat"}))
        if not speaks <= set(APIS):
            raise InputError(f"an upstream speaks {sorted(speaks)}; it can be {', '.join(APIS)}.")
        object.__setattr__(self, "speaks", speaks)

    def proxy(self) -> str | None:
        """The proxy that this machine's environment names for it; never one for a loopback address."""
        parts = urlsplit(self.url)
        host = parts.hostname or ""
        if host in ("127.0.0.1", "localhost", "::1") or urllib.request.proxy_bypass(host):
            return None
        return urllib.request.getproxies().get(parts.scheme)


def choose(upstreams: Mapping[str, Upstream], api: str, name: str | None) -> tuple[str, str]:
    """The upstream for a call, and the API that it is asked in.

    The one named; else the first that speaks the API; else the first that speaks chat, else Messages:
    the two that a call can be translated to.

    Raises:
        UpstreamFailed: none can be asked.
    """
    spoken_first = dict.fromkeys((api, *TRANSLATED))
    candidates = upstreams if name is None else {name: upstreams[name]}
    for spoken in spoken_first:
        for candidate, upstream in candidates.items():
            if spoken in upstream.speaks:
                return candidate, spoken
    apis = {label: sorted(upstream.speaks) for label, upstream in upstreams.items()}
    raise UpstreamFailed(
        Fault.ENVIRONMENT,
        "no_upstream",
        f"no upstream speaks the {api} API, chat or Messages"
        f"{f' ({name} was assigned)' if name else ''}; there are {apis}.",
        status=501,
    )


def forwarded(
    headers: Sequence[tuple[str, str]],
    upstream: Upstream,
    *,
    api: str,
    credential: str | None,
    translated: bool = False,
) -> dict[str, str]:
    """The agent's headers as the upstream gets them: without those of ours, with the right key.

    Args:
        api: that the upstream is asked in: `messages` takes its key in a header of its own.
        credential: the header that held our own token, which stays here.
        translated: the agent speaks another API than that, and sends its key as that one has it.
    """
    outgoing = {
        name: text
        for name, text in headers
        if name not in _DROPPED and not name.startswith("x-whet-") and name != credential
    }
    if upstream.key is not None:
        outgoing.pop("x-api-key", None)
        outgoing["authorization"] = f"Bearer {upstream.key}"
        if api == "messages":
            outgoing["x-api-key"] = outgoing.pop("authorization").removeprefix("Bearer ")
    elif api == "messages" and translated and "authorization" in outgoing:
        outgoing["x-api-key"] = outgoing.pop("authorization").removeprefix("Bearer ")
    elif api != "messages" and "x-api-key" in outgoing:
        outgoing.setdefault("authorization", f"Bearer {outgoing.pop('x-api-key')}")
        outgoing.pop("x-api-key", None)
    if api == "messages":
        outgoing.setdefault("anthropic-version", _ANTHROPIC_VERSION)
    outgoing["content-type"] = "application/json"
    outgoing["accept-encoding"] = "identity"
    return outgoing


def returned(headers: Mapping[str, str]) -> dict[str, str]:
    """The upstream's headers as the agent gets them."""
    dropped = {"content-type", "server", "date", "alt-svc", "x-whet-policy-version"}
    return {
        name.lower(): text
        for name, text in headers.items()
        if name.lower() not in _DROPPED and name.lower() not in dropped
    }


class UpstreamAnswer:
    """An answer whose head is here."""

    def __init__(
        self, response: aiohttp.ClientResponse, upstream: Upstream, under_way: Interruptible
    ) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        self._response, self._upstream, self._under_way = response, upstream, under_way
        self._ended = False

    async def __aenter__(self) -> UpstreamAnswer:
        return self

    async def __aexit__(self, *_: object) -> None:
        # A connection whose answer was not read to its end is closed, which cancels it at the upstream.
        if self._ended:
            self._response.release()
        else:
            self._response.close()

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "")

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives.

        Raises:
            UpstreamFailed: it was cut, stalled or too long.
        """
        size = 0
        stream = self._response.content
        while True:
            try:
                chunk = stream.read_nowait()
                if not chunk and not stream.at_eof():
                    with self._under_way.within(self._upstream.idle_seconds):
                        chunk = await stream.readany()
            except TimeoutError:  # caught first, for it is an OSError
                raise UpstreamFailed(
                    Fault.MODEL,
                    "upstream_stalled",
                    f"the upstream sent nothing for {self._upstream.idle_seconds:g} seconds",
                    status=504,
                ) from None
            except (aiohttp.ClientError, OSError) as exception:
                raise UpstreamFailed(
                    Fault.MODEL, "upstream_cut", f"the upstream's answer was cut ({type(exception).__name__})"
                ) from exception
            if not chunk:
                self._ended = True
                return
            size += len(chunk)
            if size > LARGEST:
                raise UpstreamFailed(
                    Fault.MODEL, "answer_too_large", f"the upstream's answer is larger than {LARGEST:,} bytes"
                )
            yield chunk

    async def body(self) -> bytes:
        """The whole body; raises as `chunks` does."""
        return b"".join([chunk async for chunk in self.chunks()])


class Upstreams:
    """The HTTP client.  Made and closed in the server's loop."""

    def __init__(self) -> None:
        self._session = aiohttp.ClientSession(
            # Below the five seconds after which common servers close an idle connection: one that is
            # closed while a request is on its way fails the request.
            # limit=0 is none: with aiohttp's 100 further calls would wait for those under way.
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=4.0),
            cookie_jar=aiohttp.DummyCookieJar(),
            # aiohttp's own total of 300 seconds would cut a long answer.
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=None, sock_read=None),
            skip_auto_headers=("User-Agent",),
        )
        self._proxies: dict[str, str | None] = {}
        self._timeouts: dict[str, aiohttp.ClientTimeout] = {}

    async def close(self) -> None:
        await self._session.close()

    async def open(
        self,
        upstream: Upstream,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str],
        body: bytes | None,
        under_way: Interruptible,
    ) -> UpstreamAnswer:
        """Send a request and wait for the head of its answer; leave the answer's `async with` when it is read.

        Args:
            under_way: the agent's call that it is sent for.

        Raises:
            UpstreamFailed: it does not come.
        """
        if upstream.url not in self._proxies:
            self._proxies[upstream.url] = upstream.proxy()
            self._timeouts[upstream.url] = aiohttp.ClientTimeout(
                total=None, sock_connect=upstream.connect_seconds
            )
        where = f"the upstream {upstream.url}"
        try:
            with under_way.within(upstream.first_seconds):
                response = await self._session.request(
                    method,
                    upstream.url + path,
                    data=body,
                    headers=headers,
                    allow_redirects=False,
                    proxy=self._proxies[upstream.url],
                    timeout=self._timeouts[upstream.url],
                )
        except (aiohttp.ConnectionTimeoutError, aiohttp.ClientConnectorError) as exception:
            # Caught first: a ConnectionTimeoutError is a TimeoutError, and both are OSErrors.
            problem = f"{where} cannot be reached ({type(exception).__name__})"
            raise UpstreamFailed(Fault.MODEL, "upstream_unreachable", problem) from exception
        except TimeoutError:
            problem = f"{where} did not answer within {upstream.first_seconds:g} seconds"
            raise UpstreamFailed(Fault.MODEL, "upstream_timeout", problem, status=504) from None
        except (aiohttp.ClientError, OSError, ValueError) as exception:
            problem = f"{where} gave no answer ({type(exception).__name__})"
            raise UpstreamFailed(Fault.MODEL, "upstream_failed", problem) from exception
        return UpstreamAnswer(response, upstream, under_way)
