"""The HTTP client under an Endpoint: one connection pool per event loop.

This is the only module of the core that loads the HTTP client, and it is itself loaded by
the first call.  It knows nothing of models; it raises AttemptRefused for all that may go wrong.
"""

from __future__ import annotations

import asyncio
import math
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

# Not httpx, whose API is the same: with 32 calls at once it took 3,871 µs of CPU each, httpx2 1,022 (010).
import httpx2

from .base import AttemptRefused
from .wire.sse import Splitter, data_of

RETRYABLE = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True)
class OpenResponse:
    """A response whose head is here and whose body is not."""

    events: AsyncIterator[bytes]
    """The payload of each server-sent event, comments left out."""
    response: httpx2.Response


class Transport:
    """Posts JSON to one endpoint."""

    def __init__(self, base_url: str, api_key: str | None, *, seconds: float) -> None:
        self._base_url = base_url
        self._headers = {"content-type": "application/json"}
        if api_key is not None:
            self._headers["authorization"] = f"Bearer {api_key}"
        # pool=None: hundreds of calls may wait for a connection, which is not the endpoint's lateness.
        self._timeout = httpx2.Timeout(seconds, connect=min(seconds, 10.0), pool=None)
        # Connections belong to the loop they were opened on, and users call asyncio.run more than once.
        self._clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, httpx2.AsyncClient]
        self._clients = weakref.WeakKeyDictionary()

    def _client(self) -> httpx2.AsyncClient:
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            url = httpx2.URL(self._base_url)
            here = url.host in _LOOPBACK
            client = self._clients[loop] = httpx2.AsyncClient(
                headers=self._headers,
                timeout=self._timeout,
                limits=httpx2.Limits(max_connections=None, max_keepalive_connections=100),
                # A proxy set for the internet must not see what is meant for this machine.
                trust_env=not here,
                # In clear, by no proxy and no redirect: to read all certificates would cost 20 ms for each client.
                verify=not (here and url.scheme == "http"),
            )
        return client

    async def aclose(self) -> None:
        """Close the pool of the running loop; the next post opens a new one."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()

    async def post(self, path: str, body: bytes) -> bytes:
        """The body of a 200 answer.

        Raises:
            AttemptRefused: anything else.
        """
        async with self._translated():
            response = await self._client().post(self._base_url + path, content=body)
        _check(response)
        return response.content

    async def open(self, path: str, body: bytes) -> OpenResponse:
        """A 200 answer whose events are read as they come; close it with `close`.

        Raises:
            AttemptRefused: anything else.
        """
        async with self._translated():
            client = self._client()
            request = client.build_request("POST", self._base_url + path, content=body)
            response = await client.send(request, stream=True)
            if response.status_code != 200:
                try:
                    # `_check` quotes the body, and the text of a streamed response that was not read raises.
                    await response.aread()
                finally:
                    await response.aclose()
        _check(response)
        return OpenResponse(self._events(response), response)

    async def close(self, opened: OpenResponse) -> None:
        """Drop an opened answer, read to its end or not."""
        await opened.response.aclose()

    async def _events(self, response: httpx2.Response) -> AsyncIterator[bytes]:
        splitter = Splitter()
        async with self._translated(billed=True):
            # Not aiter_lines, which also breaks a line at U+2028 and the like, inside a text.
            async for chunk in response.aiter_bytes():
                for data in filter(None, map(data_of, splitter.feed(chunk))):
                    yield data
        # Some servers end their last event without the blank line.
        for data in filter(None, map(data_of, splitter.end())):
            yield data

    @asynccontextmanager
    async def _translated(self, *, billed: bool = False) -> AsyncIterator[None]:
        try:
            yield
        except httpx2.ConnectError as error:
            raise AttemptRefused(
                f"cannot connect ({error})", advice="Is the server running at this address?"
            ) from error
        except httpx2.TimeoutException as error:
            # It may have answered after we hung up, and bill for it.
            raise AttemptRefused(f"no answer in time ({type(error).__name__})", billed=True) from error
        except (httpx2.TransportError, httpx2.DecodingError) as error:
            raise AttemptRefused(
                f"the connection broke ({type(error).__name__}: {error})",
                billed=billed or isinstance(error, httpx2.ReadError | httpx2.DecodingError),
            ) from error


def _check(response: httpx2.Response) -> None:
    if response.status_code == 200:
        return
    status = response.status_code
    raise AttemptRefused(
        f"HTTP {status}",
        status=status,
        retryable=status in RETRYABLE,
        retry_after=retry_after(response.headers.get("retry-after")),
        body=response.text,
        advice=_advice(status),
    )


def _advice(status: int) -> str:
    if status in (401, 403):
        return "Check the api_key (OPENAI_API_KEY), and that it may use this model."
    if status == 404:
        return "Check that base_url ends in /v1 and that the endpoint has a model of this name."
    if status == 429:
        return "Ask fewer at once, or give a Retry with more attempts or seconds."
    if status in RETRYABLE:
        return "The endpoint failed; try again later or look at its log."
    if 300 <= status < 400:
        return "Redirects are not followed; give the final address as base_url."
    return "The endpoint refused the request as it is; see its message."


def retry_after(header: str | None) -> float | None:
    """Seconds that a Retry-After header asks for, given as a number or as an HTTP date."""
    if header is None:
        return None
    try:
        seconds = float(header)
        # float() takes "nan" and "inf" for numbers; neither is a wait.
        return max(0.0, seconds) if math.isfinite(seconds) else None
    except ValueError:
        pass  # not a number, so a date
    try:
        when = parsedate_to_datetime(header)
    except ValueError:
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return max(0.0, (when - datetime.now(UTC)).total_seconds())
