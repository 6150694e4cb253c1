"""An address that answers requests: its key, its connections, and the limits on retries.

Whatever speaks HTTP to a model (a chat API, a server of the policy under training) does it through an
`Endpoint`.  Retries follow the usual rule: exponential backoff with jitter, an endpoint's own
Retry-After first, and one deadline for the whole call.  It follows no redirect, reads no key from the
environment, and never shows the key.  It knows nothing of what is asked: `transport.py` holds the HTTP
client, `wire/` reads what a model API says.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, TypeVar
from urllib.parse import urlsplit

from ..errors import InputError, ModelError
from .base import AttemptRefused

if TYPE_CHECKING:
    from .transport import Transport

_EXCERPT = 300
"""Characters of an endpoint's own words that an error shows."""
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Limits on retries."""

    attempts: int = 6
    """Requests sent at most, the first included."""
    first_wait: float = 0.5
    """Upper bound in seconds of the first wait; each further one is twice as long."""
    longest_wait: float = 30.0
    """Seconds; no wait of ours is longer.  An endpoint's Retry-After is honoured in full."""
    attempt_seconds: float = 120.0
    """Seconds without a byte from the endpoint after which one attempt is given up."""
    total_seconds: float = 600.0
    """Seconds for the whole call, waits included; for a stream, until its first piece."""

    def wait(self, retry: int, jitter: float) -> float:
        """Seconds before retry number `retry`, counted from 1; `jitter` lies in [0, 1)."""
        # Half of the bound is certain: jitter from 0 would send some callers back to a busy endpoint at once.
        return min(self.longest_wait, self.first_wait * 2.0 ** (retry - 1)) * (0.5 + jitter / 2)


def check_address(url: str, key: str | None, names: tuple[str, str] = ("base_url", "api_key")) -> None:
    """Refuse what cannot be the address of a server, or its key.

    Args:
        names: of the two, as the user gave them.

    Raises:
        InputError: url is not a plain http(s) URL, or key cannot be one; it shows no key.
    """
    parts = urlsplit(url)
    if parts.username or parts.password:
        raise InputError(f"{names[0]} carries a user name or password; give the key as {names[1]} instead.")
    if parts.query or parts.fragment:
        raise InputError(f"{names[0]} ends in a ?query or #fragment, which may hold a key; leave it out.")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError(f"{names[0]} is {url!r}; it must look like http://host:port/v1.")
    if key is not None and not (key.isascii() and key.isprintable() and key.strip()):
        # Shown by no error: an HTTP library would quote it.
        raise InputError(f"{names[1]} is empty or has a line break or other character that no key has.")


class Endpoint:
    """The address of a server, its key and its connections.

    Args:
        base_url: put before every path; a slash at its end is dropped.
        api_key: sent as a bearer token; None sends none.
        retry: limits on retries.

    Raises:
        InputError: base_url is not a plain http(s) URL, or api_key cannot be one.
    """

    def __init__(self, base_url: str, api_key: str | None, retry: Retry | None) -> None:
        check_address(base_url, api_key)
        self.base_url = base_url.rstrip("/")
        self.retry = retry or Retry()
        self._key = api_key
        self._jitter = random.Random()
        self._made: Transport | None = None

    @property
    def transport(self) -> Transport:
        """The HTTP client, which the first use loads."""
        if self._made is None:
            from .transport import Transport  # by the first call, not by import whet

            self._made = Transport(self.base_url, self._key, seconds=self.retry.attempt_seconds)
        return self._made

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        if self._made is not None:
            await self._made.aclose()

    async def insist(
        self, subject: str, attempt: Callable[[], Awaitable[_Answer]], *, seconds: float | None = None
    ) -> _Answer:
        """The answer of `attempt`, retried where it raises a retryable AttemptRefused.

        Args:
            subject: of the request, as an error names it.
            seconds: left of a budget, where that may be less than `Retry.total_seconds`.

        Raises:
            ModelError: no answer; whatever else `attempt` raises.
        """
        total = self.retry.total_seconds
        seconds = total if seconds is None else min(seconds, total)
        tried, refusal = 0, None
        try:
            # Its own TimeoutError alone ends here: `transport.py` makes AttemptRefused of an attempt's.
            async with asyncio.timeout(seconds):
                deadline = time.monotonic() + seconds
                while True:
                    tried += 1
                    try:
                        return await attempt()
                    except AttemptRefused as error:
                        refusal = error  # the name of an except clause is deleted at its end
                    await self._pause(refusal, tried, deadline)
        except AttemptRefused as error:
            raise self.error(subject, error, tried) from error
        except TimeoutError:
            lateness = f"no answer within {seconds:g} s" + (f"; last: {refusal}" if refusal else "")
            limit = "Retry.total_seconds" if seconds == total else "Budget(seconds=...)"
            late = AttemptRefused(
                lateness, status=refusal.status if refusal else None, advice=f"Raise {limit}."
            )
            raise self.error(subject, late, tried) from refusal

    async def _pause(self, refusal: AttemptRefused, tried: int, deadline: float) -> None:
        """Wait before the next attempt, or raise the refusal if there should be none."""
        if not refusal.retryable or tried >= self.retry.attempts:
            raise refusal
        wait = refusal.retry_after
        if wait is None:
            wait = self.retry.wait(tried, self._jitter.random())
        # A wait that the clock would cut off is not begun: the refusal says more than "no answer within".
        if time.monotonic() + wait >= deadline:
            raise refusal
        await asyncio.sleep(wait)

    def error(self, subject: str, refusal: AttemptRefused, tried: int = 1) -> ModelError:
        """The refusal as an error that names the subject, the attempts, and the endpoint's own words."""
        wait = f", asked to wait {refusal.retry_after:g} s" if refusal.retry_after else ""
        message = f"{subject} at {self.base_url}: {refusal} (attempt {tried} of {self.retry.attempts}{wait})."
        if refusal.body:
            # Endpoints quote a wrong key back; cut after hiding it, or a part of it would be left.
            excerpt = self._hidden(refusal.body)
            message += f" It said: {excerpt[:_EXCERPT]}{'...' if len(excerpt) > _EXCERPT else ''}"
        if refusal.advice:
            message += f" {refusal.advice}"
        return ModelError(self._hidden(message), status=refusal.status, retryable=refusal.retryable)

    def _hidden(self, text: str) -> str:
        return text.replace(self._key, "[key]") if self._key else text


class AtEndpoint:
    """What speaks through an Endpoint: opened by `async with`, or closed by `aclose` at the end."""

    _endpoint: Endpoint

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        await self._endpoint.aclose()
