"""Ensemble: several models behind one, each answering its share of the calls.

Evolution asks a cheap model often and a strong one seldom; a router learns such shares,
this one is told them.
"""

from __future__ import annotations

import bisect
import itertools
import math
import random
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from ..errors import InputError
from ..types import Json
from .base import Chunk, Completion, Messages, Model, ModelRequest


class Ensemble:
    """Picks a model for each call with probability proportional to its weight.

    The pick depends on the seed, the request, and how often that request was made before,
    so calls that run concurrently are shared out the same way in every run.

    Args:
        members: (model, weight) pairs; weights need not sum to one.

    Raises:
        InputError: no member, a name twice, or weights that are negative, not finite or all zero.
    """

    def __init__(self, members: Sequence[tuple[Model, float]], *, seed: int = 0, name: str = "") -> None:
        weights = [weight for _, weight in members]
        if (
            not members
            or any(not math.isfinite(weight) or weight < 0 for weight in weights)
            or not any(weights)
        ):
            raise InputError(f"An ensemble needs models with weights >= 0, not all zero; given {weights}.")
        names = [model.name for model, _ in members]
        if len(set(names)) < len(names):
            raise InputError(f"Models of an ensemble need different names, to be counted; given {names}.")
        self.models = tuple(model for model, _ in members)
        self.name = name or "+".join(f"{model.name}*{weight:g}" for model, weight in members)
        self.calls: Counter[str] = Counter()
        """Model name → calls that were sent to it."""
        self._bounds = list(itertools.accumulate(weights))
        self._seed = seed
        self._seen: Counter[str] = Counter()

    @property
    def shares(self) -> dict[str, float]:
        """Model name → its share of the calls so far; empty before the first."""
        total = self.calls.total()
        return {model.name: self.calls[model.name] / total for model in self.models} if total else {}

    async def complete(self, messages: Messages, **settings: Any) -> Completion:
        """An answer of the model picked; its errors are passed on, not tried elsewhere."""
        return await self._pick(messages, settings).complete(messages, **settings)

    async def stream(self, messages: Messages, **settings: Json) -> AsyncGenerator[Chunk, None]:
        """The picked model's answer in pieces."""
        async for chunk in self._pick(messages, settings).stream(messages, **settings):
            yield chunk

    def _pick(self, messages: Messages, settings: dict[str, Any]) -> Model:
        key = ModelRequest.of(messages, settings).key()
        # Seeded by a text, which every process hashes alike; `hash()` of a text is salted for each process.
        draw = random.Random(f"{self._seed}:{key}:{self._seen[key]}").random() * self._bounds[-1]
        self._seen[key] += 1
        # Not bisect_left: a draw of 0.0 would pick a first member whose weight is 0.
        model = self.models[bisect.bisect_right(self._bounds, draw)]
        self.calls[model.name] += 1
        return model
