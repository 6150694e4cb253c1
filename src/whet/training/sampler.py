"""Batched sampling for policies that act one rollout at a time.

Each rollout holds a `Session`: its context so far, its rows of the key-value
cache, and its own random stream.  `await session.generate(...)` puts a request
in line; when every task that can run has run, all waiting requests go through
the network as one batch.  What a session samples depends on its seed and its
context, not on who else is in the batch (up to the last bit of a float).

It does not batch across threads or processes, and it does not start one request
while another batch is under way; with hundreds of rollouts in one event loop,
neither would be faster.  The cache is in `cache.py`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import InputError
from ..models.sampling import Sampled
from .cache import Cache
from .forward import Fused, fuse
from .line import Line
from .model import Decoder


class _Request:
    __slots__ = ("future", "limit", "logprobs", "output", "prompt_length", "session", "stop_id")

    def __init__(
        self, session: Session, stop_id: int | None, limit: int, future: asyncio.Future[Sampled]
    ) -> None:
        self.session = session
        self.stop_id = -1 if stop_id is None else stop_id
        self.limit = limit
        self.future = future
        self.prompt_length = len(session.context)
        self.output: list[int] = []
        self.logprobs: list[float] = []


class Session:
    """The model's side of one rollout; made by `Sampler.session`."""

    __slots__ = ("_sampler", "busy", "cached", "context", "generation", "random", "row")

    def __init__(self, sampler: Sampler, seed: int) -> None:
        self._sampler = sampler
        self.generation = sampler.generation
        self.random = random.Random(seed)
        self.context: list[int] = []
        """All ids so far, prompts and outputs."""
        self.cached = 0
        """How many of them have their keys and values in the cache."""
        self.row = -1
        self.busy = False

    async def generate(
        self, prompt_ids: Sequence[int], *, stop_id: int | None, max_new_tokens: int = 32
    ) -> Sampled:
        """Read these ids after what came before, and write until `stop_id` or the limit.

        Args:
            prompt_ids: the new part of the context only.
            stop_id: ends the output and is part of it; None for none.
            max_new_tokens: less if the model's `max_length` is reached first.

        Raises:
            InputError: nothing to read, an id out of range, a context that is too long, or a second
                call while one is under way.
            ModelError: the computation failed.
        """
        sampler = self._sampler
        if self.busy:
            raise InputError("this session is generating already; one rollout makes one call at a time")
        room = sampler.max_length - len(self.context) - len(prompt_ids)
        if room < 1 or max_new_tokens < 1:
            raise InputError(
                f"{len(prompt_ids)} new ids after {len(self.context)} and at least 1 output do not fit: "
                f"max_length is {sampler.max_length}, max_new_tokens {max_new_tokens}"
            )
        if not prompt_ids and not self.context:
            raise InputError("the first call of a session needs a prompt; give at least <bos>")
        if prompt_ids and not (min(prompt_ids) >= 0 and max(prompt_ids) < sampler.vocab_size):
            raise InputError(
                f"a prompt id lies outside 0…{sampler.vocab_size - 1}; is it another vocabulary's?"
            )
        self.context.extend(prompt_ids)
        future: asyncio.Future[Sampled] = asyncio.get_running_loop().create_future()
        self.busy = True
        try:
            sampler.enqueue(_Request(self, stop_id, min(max_new_tokens, room), future))
            return await future
        finally:
            self.busy = False

    def close(self) -> None:
        """Give the cache row back; also happens when the session is garbage collected."""
        if self.row >= 0:
            self._sampler.cache.release(self.row)
            self.row, self.cached = -1, 0

    def __del__(self) -> None:
        self.close()


class Sampler:
    """Samples from one model for many concurrent rollouts.

    Args:
        decoder: the weights; after changing them in place, call `refresh`.
        greedy: take the likeliest token instead of sampling.
        temperature: divides the logits before sampling.
        policy_version: recorded with what is sampled.
        max_batch: requests in one batch at most; the rest goes into the next.

    Raises:
        InputError: a temperature that is not above 0.
    """

    def __init__(
        self,
        decoder: Decoder,
        *,
        greedy: bool = False,
        temperature: float = 1.0,
        policy_version: str | None = None,
        max_batch: int = 512,
    ) -> None:
        if not temperature > 0:
            raise InputError(
                f"temperature must be above 0, got {temperature}; for the likeliest token set greedy=True"
            )
        if max_batch < 1:
            raise InputError(f"max_batch must be at least 1, got {max_batch}")
        self.decoder = decoder
        self.greedy = greedy
        self.temperature = temperature
        self.policy_version = policy_version
        self.max_length = decoder.options.max_length
        self.vocab_size = decoder.vocab_size
        self.generation = 0
        """Counts `refresh` calls."""
        self.prompt_tokens = self.output_tokens = self.batches = 0
        self.cache = Cache(decoder.options)
        self._fused: Fused | None = None
        self._line: Line[_Request] = Line(self._generate, failed=self._undo, max_batch=max_batch)

    def session(self, seed: int) -> Session:
        """A fresh session that draws from `seed` alone."""
        return Session(self, seed)

    def refresh(self, policy_version: str | None = None) -> None:
        """Take up weights that were changed in place; open sessions read their context again."""
        self._fused = None
        self.generation += 1
        self.policy_version = policy_version

    def enqueue(self, request: _Request) -> None:
        """Put a request in line; called by sessions."""
        self._line.enqueue(request)

    def _undo(self, request: _Request) -> None:
        request.session.cached = 0
        del request.session.context[request.prompt_length :]

    @torch.inference_mode()
    def _generate(self, requests: list[_Request]) -> None:
        if self._fused is None:
            self._fused = fuse(self.decoder)
        for request in requests:
            session = request.session
            if session.row < 0:
                session.row, session.cached = self.cache.acquire(), 0
            if session.generation != self.generation:  # the weights moved on: what is cached is stale
                session.generation, session.cached = self.generation, 0
        # rows in order: neighbours in the cache are neighbours in the batch
        live = sorted(requests, key=lambda request: request.session.row)
        self.batches += 1
        while live:
            states = self._read([request.session for request in live])
            for request, token, logprob in zip(live, *self._draw(states, live), strict=True):
                request.output.append(token)
                request.logprobs.append(logprob)
                request.session.context.append(token)
            live = [
                request
                for request in live
                if request.output[-1] != request.stop_id and len(request.output) < request.limit
            ]
        for request in requests:
            self.output_tokens += len(request.output)
            context = request.session.context
            request.future.set_result(
                Sampled(
                    tuple(context[: request.prompt_length]),
                    tuple(request.output),
                    tuple(request.logprobs),
                    self.policy_version,
                )
            )

    def _read(self, sessions: list[Session]) -> Tensor:
        """Compute whatever of the contexts is not cached; the last hidden state of each, (B, hidden)."""
        assert self._fused is not None
        new = [session.context[session.cached :] for session in sessions]
        past = np.array([session.cached for session in sessions])
        rows = np.array([session.row for session in sessions])
        states = self.cache.forward(self._fused, rows, past, new)
        for session, ids in zip(sessions, new, strict=True):
            session.cached += len(ids)
            self.prompt_tokens += len(ids)
        return states

    def _draw(self, states: Tensor, requests: list[_Request]) -> tuple[list[int], list[float]]:
        """One token per request by the inverse of the cumulative distribution, and its log-probability."""
        assert self._fused is not None
        logits = F.linear(states, self._fused.head)
        if self.greedy:
            logprobs = torch.log_softmax(logits, dim=-1)
            chosen = logprobs.argmax(dim=-1, keepdim=True)
        else:
            logprobs = torch.log_softmax(logits / self.temperature, dim=-1)
            below = logprobs.double().exp_().cumsum_(dim=-1)
            draws = [request.session.random.random() for request in requests]
            level = torch.tensor(draws, dtype=torch.float64).unsqueeze(1) * below[:, -1:]
            chosen = torch.searchsorted(below, level, right=True).clamp_(max=self.vocab_size - 1)
        return chosen.squeeze(1).tolist(), logprobs.gather(1, chosen).squeeze(1).tolist()
