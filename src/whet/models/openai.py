"""OpenAIModel: any endpoint that speaks the OpenAI chat API, with retries, budgets and token ids.

Retries follow the usual rule: exponential backoff with jitter, an endpoint's own Retry-After
first.  It follows no redirect, reads no key from the environment, and never shows the key.
`wire.py` reads what the endpoint says; `transport.py` holds the HTTP client.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from ..budget import Meter
from ..errors import BudgetExceeded, InputError, ModelError
from . import wire
from .base import Chunk, Completion, Messages, Request
from .spending import Price, Reservation, estimate, price_of

if TYPE_CHECKING:
    from .transport import Opened, Transport

_PATH = "/chat/completions"
_EXCERPT = 300
"""Characters of an endpoint's own words that an error shows."""
_Found = TypeVar("_Found")


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """How long to insist."""

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
        return min(self.longest_wait, self.first_wait * 2.0 ** (retry - 1)) * (0.5 + jitter / 2)


class OpenAIModel:
    """A model behind an OpenAI-compatible endpoint.

    Use it as `async with OpenAIModel(...) as model:`, or call `aclose` at the end.

    Args:
        base_url: up to and including `/v1`, as the OpenAI SDK takes it.
        model: the name the endpoint knows it by.
        api_key: sent as a bearer token; None sends none.
        retry: how long to insist.
        meter: budget that every call is reserved on before it is made.
        prices: model name → Price; needed where the meter limits dollars.
        tokens: ask for token ids and log-probabilities (vLLM's `return_token_ids`) and fail
            where the endpoint does not give them, since such an answer cannot be trained on.

    Raises:
        InputError: base_url is not a plain http(s) URL, or api_key cannot be one.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        api_key: str | None = None,
        retry: Retry | None = None,
        meter: Meter | None = None,
        prices: Mapping[str, Price] | None = None,
        tokens: bool = False,
    ) -> None:
        parts = urlsplit(base_url)
        if parts.username or parts.password:
            raise InputError("base_url carries a user name or password; give the key as api_key instead.")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InputError(f"base_url is {base_url!r}; it must look like http://host:port/v1.")
        if parts.query or parts.fragment:
            raise InputError("base_url ends in a ?query or #fragment, which may hold a key; leave it out.")
        if api_key is not None and not (api_key.isascii() and api_key.isprintable() and api_key.strip()):
            # Shown by no error: an HTTP library would quote it.
            raise InputError("api_key is empty or has a line break or other character that no key has.")
        self.name = model
        self.base_url = base_url.rstrip("/")
        self._key = api_key
        self._retry = retry or Retry()
        self._meter = meter
        self._price = price_of(prices, model)
        self._tokens = tokens
        self._jitter = random.Random()
        self._made: Transport | None = None

    def __repr__(self) -> str:
        return f"OpenAIModel({self.base_url!r}, {self.name!r})"

    async def __aenter__(self) -> OpenAIModel:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        if self._made is not None:
            await self._made.aclose()

    async def complete(self, messages: Messages, **settings: Any) -> Completion:
        """One answer; see `Model.complete`.

        Raises:
            ModelError: no usable answer, after retries; `status` is the last HTTP status, None
                where the endpoint was not reached.
            BudgetExceeded: the call, or its next attempt, would overshoot the meter; not sent.
            InputError: dollars are limited and the model has no price.
        """
        request = Request.of(messages, settings)
        body = wire.encode(request, self.name, stream=False, tokens=self._tokens)

        async def attempt() -> Completion:
            reader = wire.Reader()
            reader.read(await self._transport.post(_PATH, body), whole=True)
            return reader.completion(tokens=self._tokens, expected=estimate(request))

        reservation = Reservation(self._meter, self._price, request, self.name)
        return reservation.settled(await self._insist(attempt, reservation))

    async def stream(self, messages: Messages, **settings: Any) -> AsyncGenerator[Chunk, None]:
        """The answer in pieces; raises as `complete` does.

        A failure before the first piece is retried, a later one is not: the caller may have
        shown what came.  Tokens stay reserved at their estimate if the stream is left early.
        """
        request = Request.of(messages, settings)
        body = wire.encode(request, self.name, stream=True, tokens=self._tokens)

        async def attempt() -> tuple[Opened, wire.Reader, str | None]:
            reader = wire.Reader()
            opened = await self._transport.open(_PATH, body)
            try:
                return opened, reader, await _next_text(opened, reader)
            except BaseException:
                await self._transport.close(opened)
                raise

        reservation = Reservation(self._meter, self._price, request, self.name)
        opened, reader, text = await self._insist(attempt, reservation)
        try:
            while text is not None:
                yield Chunk(text)
                text = await _next_text(opened, reader)
            completion = reader.completion(tokens=self._tokens, expected=estimate(request))
        except wire.Refusal as refusal:
            raise self._error(refusal, 1) from refusal
        finally:
            await self._transport.close(opened)
        yield Chunk(completion=reservation.settled(completion))

    @property
    def _transport(self) -> Transport:
        if self._made is None:
            from .transport import Transport  # the HTTP client: loaded by the first call, not by import whet

            self._made = Transport(self.base_url, self._key, seconds=self._retry.attempt_seconds)
        return self._made

    async def _insist(self, attempt: Callable[[], Awaitable[_Found]], reservation: Reservation) -> _Found:
        """What `attempt` finds, retried; nothing stays reserved if nothing can have been bought."""
        left = self._meter.left("seconds") if self._meter else None
        seconds = self._retry.total_seconds if left is None else min(left, self._retry.total_seconds)
        tried, billed = 0, False
        refusal: wire.Refusal | None = None
        try:
            async with asyncio.timeout(seconds):
                deadline = time.monotonic() + seconds
                while True:
                    reservation.attempt()
                    tried += 1
                    try:
                        return await attempt()
                    except wire.Refusal as error:
                        refusal, billed = error, billed or error.billed
                    await self._pause(refusal, tried, deadline)
        except wire.Refusal as error:
            if not billed:
                reservation.release()
            raise self._error(error, tried) from error
        except BudgetExceeded:
            if not billed:
                reservation.release()
            raise
        except TimeoutError:
            what = f"no answer within {seconds:g} s" + (f"; last: {refusal}" if refusal else "")
            limit = "Retry.total_seconds" if seconds == self._retry.total_seconds else "Budget(seconds=...)"
            late = wire.Refusal(what, status=refusal.status if refusal else None, advice=f"Raise {limit}.")
            raise self._error(late, tried) from refusal

    async def _pause(self, refusal: wire.Refusal, tried: int, deadline: float) -> None:
        """Wait before the next attempt, or raise the refusal if there should be none."""
        if not refusal.retryable or tried >= self._retry.attempts:
            raise refusal
        wait = refusal.retry_after
        if wait is None:
            wait = self._retry.wait(tried, self._jitter.random())
        if time.monotonic() + wait >= deadline:
            raise refusal
        await asyncio.sleep(wait)

    def _error(self, refusal: wire.Refusal, tried: int) -> ModelError:
        asked = f", asked to wait {refusal.retry_after:g} s" if refusal.retry_after else ""
        message = (
            f"Model {self.name!r} at {self.base_url}: {refusal} "
            f"(attempt {tried} of {self._retry.attempts}{asked})."
        )
        if refusal.body:
            # Endpoints quote a wrong key back; cut after hiding it, or a part of it would be left.
            said = self._hidden(refusal.body)
            message += f" It said: {said[:_EXCERPT]}{'...' if len(said) > _EXCERPT else ''}"
        if refusal.advice:
            message += f" {refusal.advice}"
        return ModelError(self._hidden(message), status=refusal.status, retryable=refusal.retryable)

    def _hidden(self, text: str) -> str:
        return text.replace(self._key, "[key]") if self._key else text


async def _next_text(opened: Opened, reader: wire.Reader) -> str | None:
    """The next piece of text, "" for an event that has none, None at the end.

    Raises:
        Refusal: the stream broke, or stopped before the answer was finished.
    """
    async for line in opened.lines:
        if not line.startswith("data:"):
            continue
        data = line[5:].strip()
        if data == "[DONE]":
            return None
        text = reader.read(data)
        if text:
            return text
    if reader.finish is None:
        raise wire.Refusal("the stream was cut before the answer was finished", billed=True)
    return None
