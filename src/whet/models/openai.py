"""OpenAIModel: any endpoint that speaks the OpenAI chat API, with retries, budgets and token ids.

`endpoint.py` insists on an answer, `wire.py` reads what the endpoint says, `spending.py` reserves what
a call may cost before it is made.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from ..budget import Meter
from ..errors import BudgetExceeded, ModelError
from . import wire
from .base import Chunk, Completion, Messages, Request
from .endpoint import Endpoint, Retry
from .spending import Price, Reservation, estimate, price_of

if TYPE_CHECKING:
    from .transport import Opened

_PATH = "/chat/completions"
_Found = TypeVar("_Found")


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
        self.name = model
        self._endpoint = Endpoint(base_url, api_key, retry)
        self.base_url = self._endpoint.base_url
        self._meter = meter
        self._price = price_of(prices, model)
        self._tokens = tokens

    def __repr__(self) -> str:
        return f"OpenAIModel({self.base_url!r}, {self.name!r})"

    async def __aenter__(self) -> OpenAIModel:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        await self._endpoint.aclose()

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
            reader.read(await self._endpoint.transport.post(_PATH, body), whole=True)
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
            opened = await self._endpoint.transport.open(_PATH, body)
            try:
                return opened, reader, await _next_text(opened, reader)
            except BaseException:
                await self._endpoint.transport.close(opened)
                raise

        reservation = Reservation(self._meter, self._price, request, self.name)
        opened, reader, text = await self._insist(attempt, reservation)
        try:
            while text is not None:
                yield Chunk(text)
                text = await _next_text(opened, reader)
            completion = reader.completion(tokens=self._tokens, expected=estimate(request))
        except wire.Refusal as refusal:
            raise self._endpoint.error(self._asked, refusal) from refusal
        finally:
            await self._endpoint.transport.close(opened)
        yield Chunk(completion=reservation.settled(completion))

    @property
    def _asked(self) -> str:
        return f"Model {self.name!r}"

    async def _insist(self, attempt: Callable[[], Awaitable[_Found]], reservation: Reservation) -> _Found:
        """What `attempt` finds, retried; nothing stays reserved if nothing can have been bought."""
        billed = False

        async def once() -> _Found:
            nonlocal billed
            reservation.attempt()
            try:
                return await attempt()
            except wire.Refusal as refusal:
                billed = billed or refusal.billed
                raise
            except asyncio.CancelledError:
                billed = True  # we hung up on it: it may have answered, and bill for it
                raise

        left = self._meter.left("seconds") if self._meter else None
        try:
            return await self._endpoint.insist(self._asked, once, seconds=left)
        except (ModelError, BudgetExceeded):
            if not billed:
                reservation.release()
            raise


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
