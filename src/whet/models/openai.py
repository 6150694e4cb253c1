"""OpenAIModel: any endpoint that speaks the OpenAI chat API, with retries, budgets and token ids.

`endpoint.py` insists on an answer, `wire/chat.py` reads it, `spending.py` reserves what a call may cost before
it is made.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from ..errors import BudgetExceeded, ModelError
from .base import AttemptRefused, Chunk, Completion, Messages, ModelRequest, text_of
from .budget import Meter
from .endpoint import AtEndpoint, Endpoint, Retry
from .prices import known_prices, price_for
from .spending import Price, Reservation, estimate
from .wire import chat
from .wire.neutral import MISSHAPEN, decode

if TYPE_CHECKING:
    from .transport import OpenResponse

_Answer = TypeVar("_Answer")


class OpenAIModel(AtEndpoint):
    """A model behind an OpenAI-compatible endpoint.

    Use it as `async with OpenAIModel(...) as model:`, or call `aclose` at the end.

    Args:
        base_url: up to and including `/v1`, as the OpenAI SDK takes it.
        model: the name the endpoint knows it by.
        api_key: sent as a bearer token; None sends none.
        retry: limits on retries.
        meter: budget that every call is reserved on before it is made.
        prices: model name → Price; what `models.prices` knows if None. A model without one costs an unknown amount,
            and is refused where the meter limits dollars.
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
        self._price = price_for(model, known_prices() if prices is None else prices)
        self._tokens = tokens

    def __repr__(self) -> str:
        return f"OpenAIModel({self.base_url!r}, {self.name!r})"

    async def complete(self, messages: Messages, **settings: Any) -> Completion:
        """One answer; see `Model.complete`.

        Raises:
            ModelError: no usable answer, after retries; `status` is the last HTTP status, None
                where the endpoint was not reached.
            BudgetExceeded: the call, or its next attempt, would overshoot the meter; not sent.
            InputError: dollars are limited and the model has no price.
        """
        request = ModelRequest.of(messages, settings)
        body = self._body(request, stream=False)

        async def attempt() -> Completion:
            reader = _Reader()
            reader.read(await self._endpoint.transport.post(chat.path, body))
            return reader.completion(request, tokens=self._tokens)

        reservation = Reservation(self._meter, self._price, request, self.name)
        return reservation.settled(await self._insist(attempt, reservation))

    async def stream(self, messages: Messages, **settings: Any) -> AsyncGenerator[Chunk, None]:
        """The answer in pieces; raises as `complete` does.

        A failure before the first piece is retried, a later one is not: the caller may have
        shown what came.  Tokens stay reserved at their estimate if the stream is left early.
        """
        request = ModelRequest.of(messages, settings)
        body = self._body(request, stream=True)

        async def attempt() -> tuple[OpenResponse, _Reader, str | None]:
            # One for each attempt: a retried stream has nothing of the failed one in it.
            reader = _Reader()
            opened = await self._endpoint.transport.open(chat.path, body)
            try:
                return opened, reader, await reader.next_text(opened)
            except BaseException:
                # BaseException: a caller cancelled before the first piece would leave the connection open.
                await self._endpoint.transport.close(opened)
                raise

        reservation = Reservation(self._meter, self._price, request, self.name)
        opened, reader, text = await self._insist(attempt, reservation)
        try:
            while text is not None:
                yield Chunk(text)
                text = await reader.next_text(opened)
            completion = reader.completion(request, tokens=self._tokens, streamed=True)
        except AttemptRefused as refusal:
            raise self._endpoint.error(self._subject, refusal) from refusal
        finally:
            await self._endpoint.transport.close(opened)
        # Behind the finally: the connection is given back even if the caller leaves at the last Chunk.
        yield Chunk(completion=reservation.settled(completion))

    def _body(self, request: ModelRequest, *, stream: bool) -> bytes:
        body: dict[str, Any] = {"model": self.name, "messages": request.messages, **request.settings}
        if stream:
            body["stream"] = True
        return msgspec.json.encode(chat.asking(body, tokens=self._tokens, usage=True))

    @property
    def _subject(self) -> str:
        return f"Model {self.name!r}"

    async def _insist(self, attempt: Callable[[], Awaitable[_Answer]], reservation: Reservation) -> _Answer:
        """The answer of `attempt`, retried; nothing stays reserved if nothing can have been bought."""
        billed = False

        async def once() -> _Answer:
            nonlocal billed
            reservation.attempt()
            try:
                return await attempt()
            except AttemptRefused as refusal:
                billed = billed or refusal.billed
                raise
            except asyncio.CancelledError:
                billed = True  # we hung up on it: it may have answered, and bill for it
                raise

        budget = self._meter.left("seconds") if self._meter else None
        try:
            return await self._endpoint.insist(self._subject, once, seconds=budget)
        except (ModelError, BudgetExceeded):
            # Any attempt counts: one that timed out may be billed, though the last was refused for nothing.
            if not billed:
                reservation.release()
            raise


class _Reader:
    """Reads one answer; an unusable one is an AttemptRefused."""

    def __init__(self) -> None:
        self._reader = chat.ChatStreamReader()
        self._data = b""
        self._event: Any = None

    def read(self, data: bytes) -> str:
        """Take in one event, or a whole answer, and return the text that it adds.

        Raises:
            AttemptRefused: not JSON, not the shape of a chat completion, or an error object.
        """
        self._data = data
        try:
            event = self._event = decode(data)
            self._reader.read(event)
            choice = chat.first_choice(event)
            text = text_of(choice.get("message") or choice.get("delta") or {})
        except (msgspec.DecodeError, *MISSHAPEN) as error:
            raise _malformed(data, f"the answer is not a chat completion ({error})") from error
        if self._reader.failure is not None:
            raise _malformed(data, "the endpoint answered with an error object")
        return text

    async def next_text(self, opened: OpenResponse) -> str | None:
        """The next piece of text, None at the end.

        Raises:
            AttemptRefused: the stream broke, or stopped before the answer was finished.
        """
        async for data in opened.events:
            if data == b"[DONE]":
                return None
            text = self.read(data)
            if text:
                return text
        # An endpoint need not send [DONE]: a stream is whole if every choice has said why it stopped.
        if not self._reader.finished:
            raise AttemptRefused("the stream was cut before the answer was finished", billed=True)
        return None

    def completion(self, request: ModelRequest, *, tokens: bool, streamed: bool = False) -> Completion:
        """The answer.

        Args:
            tokens: token ids and log-probabilities were asked for.
            streamed: it came as events.

        Raises:
            AttemptRefused: it has no message; or tokens were asked for and it cannot be trained on.
        """
        answer, expected = self._reader.response(), estimate(request)
        if answer is None or not (streamed or chat.first_choice(self._event).get("message")):
            raise _malformed(self._data, "the answer has no message")
        try:
            completion = chat.completion(answer, expected=expected, raw=None if streamed else self._event)
        except MISSHAPEN as error:
            raise _malformed(self._data, f"the answer is not a chat completion ({error!r})") from error
        if tokens and completion.tokens is None:
            choice = answer["choices"][0]
            logprobs = (choice.get("logprobs") or {}).get("content") or ()
            raise AttemptRefused(
                f"tokens=True, but the answer has {len(choice.get('token_ids') or ())} token_ids, "
                f"{len(logprobs)} logprobs and {'its' if 'prompt_token_ids' in answer else 'no'} "
                "prompt_token_ids",
                retryable=False,
                billed=True,
                advice="Such an answer cannot be trained on. Serve the model with vLLM 0.10.2 or newer.",
            )
        return completion


def _malformed(data: bytes, problem: str) -> AttemptRefused:
    body = data.decode(errors="replace")
    return AttemptRefused(
        problem, status=200, billed=True, body=body, advice="Check that base_url is a chat API."
    )
