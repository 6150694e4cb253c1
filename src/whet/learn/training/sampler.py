"""Sampling in this process, for policies that act one rollout at a time.

Each rollout holds a `RolloutSession`: its context so far and its own random stream.
`await session.generate(...)` puts a request in line; when every task that can run
has run, all waiting requests go through the serving engine (`serving/`) as one batch,
in the event loop's own thread.  What a session samples depends on its seed and its
context, not on who else is in the batch (up to the last bit of a float).

A session's keys and values stay in the cache from call to call, so that a turn reads what is new
alone (`serving/networks.py` says for which models, `cache_bytes` how much of it).
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Sequence

import torch

from ...errors import InputError, ModelError
from ...models.sampling import Sampled
from .cache import CACHE_BYTES, Slot
from .line import Line
from .model import Decoder
from .network import Network
from .serving.engine import Engine, EngineOptions
from .serving.networks import steps_of
from .serving.sampling import Generation, Sampling


class _Request:
    __slots__ = ("future", "generation", "session")

    def __init__(
        self, session: RolloutSession, generation: Generation, future: asyncio.Future[Sampled]
    ) -> None:
        self.session = session
        self.generation = generation
        self.future = future


class RolloutSession:
    """The model's side of one rollout; made by `Sampler.session`."""

    __slots__ = ("_busy", "_random", "_sampler", "_slot", "context")

    def __init__(self, sampler: Sampler, seed: int) -> None:
        self._sampler = sampler
        self._random = random.Random(seed)
        self._slot = Slot(held=True)
        self._busy = False
        self.context: list[int] = []
        """All ids so far, prompts and outputs."""

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
            ModelError: the computation failed; the context is as it was.
        """
        sampler, steps = self._sampler, self._sampler.engine.steps
        if self._busy:
            raise InputError("this session is generating already; one rollout makes one call at a time")
        room = steps.max_length - len(self.context) - len(prompt_ids)
        if room < 1 or max_new_tokens < 1:
            raise InputError(
                f"{len(prompt_ids)} new ids after {len(self.context)} and at least 1 output do not fit: "
                f"max_length is {steps.max_length}, max_new_tokens {max_new_tokens}"
            )
        if not prompt_ids and not self.context:
            raise InputError("the first call of a session needs a prompt; give at least <bos>")
        if prompt_ids and not (min(prompt_ids) >= 0 and max(prompt_ids) < steps.vocab_size):
            raise InputError(
                f"a prompt id lies outside 0…{steps.vocab_size - 1}; is it another vocabulary's?"
            )
        # The whole context: a model without a kept cache row reads it again at every call.
        generation = Generation(
            (*self.context, *prompt_ids),
            sampler.sampling(stop_id, min(max_new_tokens, room)),
            stream=self._random,
            slot=self._slot,
        )
        future: asyncio.Future[Sampled] = asyncio.get_running_loop().create_future()
        self._busy = True
        try:
            sampler.line.enqueue(_Request(self, generation, future))
            return await future
        finally:
            # Also where the caller was cancelled: `Line` then passes its request over.
            self._busy = False

    def close(self) -> None:
        """Give the cache row back; also happens when the session is garbage collected."""
        self._slot.free()


class Sampler:
    """Samples from one model for many concurrent rollouts.

    Args:
        network: the weights; after changing them in place, call `refresh`.
        greedy: take the likeliest token instead of sampling.
        temperature: divides the logits before sampling.
        policy_version: recorded with what is sampled.
        max_batch: requests in one batch at most, the rest goes into the next; None for 512 with a
            decoder of ours and 64 with a model of transformers.
        cache_bytes: memory up to which conversations between two calls stay in the cache; one that was given
            up is read again.

    Raises:
        InputError: a temperature that is not above 0.
    """

    def __init__(
        self,
        network: Network,
        *,
        greedy: bool = False,
        temperature: float = 1.0,
        policy_version: str | None = None,
        max_batch: int | None = None,
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        if not temperature > 0:
            raise InputError(
                f"temperature must be above 0, got {temperature}; for the likeliest token set greedy=True"
            )
        if max_batch is None:
            max_batch = 512 if isinstance(network, Decoder) else 64
        if max_batch < 1:
            raise InputError(f"max_batch must be at least 1, got {max_batch}")
        self.network = network
        self.policy_version = policy_version
        self.line: Line[_Request] = Line(self._generate, max_batch=max_batch)
        # The line bounds a batch; memory is not bounded beside it.
        options = EngineOptions(batch=max_batch, tokens=sys.maxsize, waiting=max_batch)
        self.engine = Engine(steps_of(network, cache_bytes), options)
        self._temperature = 0.0 if greedy else temperature
        self._samplings: dict[tuple[int | None, int], Sampling] = {}

    def session(self, seed: int) -> RolloutSession:
        """A fresh session that draws from `seed` alone."""
        return RolloutSession(self, seed)

    def refresh(self, policy_version: str | None = None) -> None:
        """Take up weights that were changed in place; open sessions read their context again."""
        self.engine.steps.refresh()
        self.policy_version = policy_version

    def sampling(self, stop_id: int | None, limit: int) -> Sampling:
        """The settings of a session's call; the few that rollouts use are made once."""
        sampling = self._samplings.get((stop_id, limit))
        if sampling is None:
            stop_ids = frozenset[int]() if stop_id is None else frozenset((stop_id,))
            sampling = Sampling(max_tokens=limit, temperature=self._temperature, stop_ids=stop_ids)
            self._samplings[stop_id, limit] = sampling
        return sampling

    @torch.inference_mode()  # once for a batch: entering it at every token costs 2 %
    def _generate(self, requests: list[_Request]) -> None:
        for request in requests:
            self.engine.submit(request.generation)
        try:
            while self.engine.busy:
                self.engine.step()
        except BaseException:  # an interrupt; the next batch is not to go on with this one
            self.engine.fail(ModelError("sampling was interrupted"))
            raise
        for request in requests:
            generation = request.generation
            if generation.error is not None:
                request.future.set_exception(generation.error)
                continue
            # Now and not once the session resumes: one that is cancelled meanwhile has this much in its cache row.
            request.session.context = generation.context
            request.future.set_result(
                Sampled(
                    tuple(generation.prompt),
                    tuple(generation.output),
                    tuple(generation.logprobs),
                    self.policy_version,
                )
            )
