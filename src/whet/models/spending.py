"""The cost of a model call: reserved on a Meter before it is made, settled with the real usage after.

The estimate before the call is a third of the prompt's UTF-8 bytes (English is near four
bytes a token) plus `max_tokens`, so that calls in flight together cannot overshoot a budget
together.  It is an estimate: a budget may be passed by at most the error of the calls in flight.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..errors import InputError
from ..types import Usage, canonical
from .base import Completion, ModelRequest
from .budget import Meter

UNSAID_OUTPUT = 1024
"""Output tokens reserved for a call that gives no `max_tokens`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Dollars per million tokens."""

    prompt: float
    output: float
    cached: float | None = None
    """Of prompt tokens that the endpoint had read before; as any others if None."""

    def of(self, prompt_tokens: int, output_tokens: int, cached: int = 0) -> float:
        """Dollars for that many tokens.

        Args:
            cached: how many of the prompt tokens were read from a cache.
        """
        cheaper = 0.0 if self.cached is None else min(cached, prompt_tokens) * (self.prompt - self.cached)
        return (prompt_tokens * self.prompt + output_tokens * self.output - cheaper) / 1e6


def estimate(request: ModelRequest) -> Usage:
    """Tokens that a call will probably cost at most."""
    size = len(canonical([dict(message) for message in request.messages]))
    if request.tools:
        size += len(canonical([dict(tool) for tool in request.tools]))
    output_tokens = UNSAID_OUTPUT if request.max_tokens is None else request.max_tokens
    return Usage(prompt_tokens=size // 3 + 1, output_tokens=output_tokens, calls=1)


class Reservation:
    """The tokens and dollars that one call has set aside on a Meter, until `settled` or `release`."""

    def __init__(self, meter: Meter | None, price: Price | None, request: ModelRequest, model: str) -> None:
        """Set tokens and dollars aside; calls are taken one per attempt, by `attempt`.

        Raises:
            BudgetExceeded: the call would overshoot; nothing was set aside.
            InputError: dollars are limited and the model has no price.
        """
        self._meter, self._price = meter, price
        self._tokens, self._dollars = 0, 0.0
        if meter is None:
            return
        if price is None and meter.left("dollars") is not None:
            raise InputError(
                f"Budget limits dollars, but model {model!r} has no price. "
                f"Give prices={{{model!r}: Price(prompt=..., output=...)}} (dollars per million tokens), or name a "
                "file of prices in WHET_PRICES."
            )
        expected = estimate(request)
        tokens = expected.prompt_tokens + expected.output_tokens
        dollars = price.of(expected.prompt_tokens, expected.output_tokens) if price else 0.0
        # Both in one call: where either is refused neither is set aside.
        meter.reserve(tokens=tokens, dollars=dollars)
        self._tokens, self._dollars = tokens, dollars

    def attempt(self) -> None:
        """Count one request that is about to be sent: a retry is a call too.

        Raises:
            BudgetExceeded: no call, or no time, is left.
        """
        if self._meter is not None:
            self._meter.reserve(calls=1)

    def settled(self, completion: Completion) -> Completion:
        """Replace the estimate with the real usage; returns the Completion with its dollars filled in."""
        usage = completion.usage
        if self._price is not None:
            usage = replace(usage, dollars=self._price.of(usage.prompt_tokens, usage.output_tokens))
        if self._meter is not None:
            tokens = usage.prompt_tokens + usage.output_tokens
            self._meter.settle(tokens=tokens - self._tokens, dollars=usage.dollars - self._dollars)
            self._tokens, self._dollars = tokens, usage.dollars
        return replace(completion, usage=usage)

    def release(self) -> None:
        """Give back what was set aside: the endpoint refused, so nothing was bought."""
        if self._meter is not None:
            self._meter.settle(tokens=-self._tokens, dollars=-self._dollars)
            self._tokens, self._dollars = 0, 0.0
