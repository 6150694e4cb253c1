"""RecordedModel: the same question is never paid for twice.

Answers are entered in a log, `Context.log` or another `whet.record.store.Log`, and are durable before they are
returned, so a run that is killed and started again replays what it has already bought.  It is not a semantic
cache: a request that differs in one character is another request.
"""

from __future__ import annotations

import asyncio
import heapq
import weakref
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Protocol

import msgspec

from ..errors import ModelError
from .base import Chunk, Completion, Messages, Model, ModelRequest


class Entries(Protocol):
    """Values by key, durable once the future of `put` is done: a `whet.record.store.Log` is one."""

    def get(self, key: str, default: Any = None) -> Any: ...
    def put(self, key: str, value: Any) -> Future[None]: ...


class _Memory:
    """Entries for the life of the object."""

    def __init__(self) -> None:
        self._held: dict[str, Any] = {}

    def get(self, key: str, default: Any = None) -> Any:
        return self._held.get(key, default)

    def put(self, key: str, value: Any) -> Future[None]:
        # The first value of a key stays, as in a Log of the store.
        self._held.setdefault(key, value)
        done: Future[None] = Future()
        done.set_result(None)
        return done


class RecordedModel:
    """A Model that answers from its record, and asks the model behind it only for what is not there.

    The key is the model's name, the canonical request and a sample number.  The sample
    number is the `sample` that the call gives, or else how often this object was asked the same
    before: so ten samples of one prompt are ten answers, and a resumed run gets the same ten.
    Give `sample` where identical requests run concurrently and who gets which answer matters.
    Failures are not recorded.

    Args:
        model: answers the rest; None replays only.
        log: where answers are entered; None forgets them with the object.
        name: the model name in the key, if not `model.name`; replaying without a model needs it.
    """

    def __init__(self, model: Model | None, log: Entries | None = None, *, name: str = "") -> None:
        self.model = model
        self.name = name or (model.name if model else "recorded")
        self.hits = 0
        self.misses = 0
        self._log = log if log is not None else _Memory()
        self._asked: Counter[str] = Counter()
        self._freed: dict[str, list[int]] = {}
        self._flights: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    async def complete(self, messages: Messages, *, sample: int | None = None, **settings: Any) -> Completion:
        """The recorded answer, or a new one that is recorded first.

        Raises:
            ModelError: the model failed, or nothing is recorded and there is no model.
            StoreError: the answer could not be written; it is lost to the record.
        """
        with self._numbered(messages, sample, settings) as key:
            # One lock per key: of two tasks that ask the same, the second waits and replays.
            async with self._flights.setdefault(key, asyncio.Lock()):
                completion = self._find(key)
                if completion is None:
                    self.misses += 1
                    completion = await self._behind(key).complete(messages, **settings)
                    await self._keep(key, completion)
                else:
                    self.hits += 1
        return completion

    async def stream(
        self, messages: Messages, *, sample: int | None = None, **settings: Any
    ) -> AsyncGenerator[Chunk, None]:
        """The recorded answer in one piece, or a new one as it comes, recorded when it is whole."""
        with self._numbered(messages, sample, settings) as key:
            completion = self._find(key)
            if completion is not None:
                self.hits += 1
                yield Chunk(completion.text)
                yield Chunk(completion=completion)
                return
            self.misses += 1
            async for chunk in self._behind(key).stream(messages, **settings):
                # Durable before it is given: an answer that the caller has seen is never paid for again.
                if chunk.completion is not None:
                    await self._keep(key, chunk.completion)
                yield chunk

    @contextmanager
    def _numbered(self, messages: Messages, sample: int | None, settings: dict[str, Any]) -> Iterator[str]:
        """The key of this call; a call that fails gives its sample number back to the next."""
        request = ModelRequest.of(messages, settings).key(self.name)
        number = sample
        if number is None:
            freed = self._freed.get(request)
            if freed:
                # The lowest first: a resumed run counts from 0 and replays what has the low numbers.
                number = heapq.heappop(freed)
            else:
                number = self._asked[request]
                self._asked[request] += 1
        key = f"{request}:{number}"
        try:
            yield key
        except BaseException:
            # Cancelled calls too: a number left unused is a hole, which a resumed run would pay for.  Of a stream
            # that its reader leaves at the last chunk the answer is recorded, and the number is used.
            if sample is None and self._find(key) is None:
                heapq.heappush(self._freed.setdefault(request, []), number)
            raise

    def _behind(self, key: str) -> Model:
        if self.model is None:
            raise ModelError(
                f"No recorded answer of {self.name!r} for request {key}, and no model to ask. "
                " Give RecordedModel a model, or replay the run that was recorded."
            )
        return self.model

    def _find(self, key: str) -> Completion | None:
        logged = self._log.get(f"answer/{key}")
        return None if logged is None else msgspec.convert(logged, Completion)

    async def _keep(self, key: str, completion: Completion) -> None:
        """Wait until an answer is durable; one whose caller gives up meanwhile is written all the same."""
        durable = self._log.put(f"answer/{key}", msgspec.to_builtins(completion))
        await asyncio.shield(asyncio.wrap_future(durable))
