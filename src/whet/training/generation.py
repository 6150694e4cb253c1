"""Batched sampling from transformers models, for policies that act one rollout at a time.

The same face as `sampler.Sampler`: a session per rollout, each with its own random
stream, all waiting requests in one padded batch with transformers' key-value cache.
Every call reads its whole context again; large models sample faster in vLLM.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..errors import InputError
from ..models.sampling import Sampled
from .huggingface import CausalLM
from .line import Line


class _Request:
    __slots__ = ("future", "limit", "logprobs", "output", "prompt", "session", "stop_id")

    def __init__(
        self, session: CausalSession, stop_id: int | None, limit: int, future: asyncio.Future[Sampled]
    ) -> None:
        self.session = session
        self.prompt = tuple(session.context)
        self.stop_id = stop_id
        self.limit = limit
        self.future = future
        self.output: list[int] = []
        self.logprobs: list[float] = []

    @property
    def open(self) -> bool:
        return len(self.output) < self.limit and (not self.output or self.output[-1] != self.stop_id)


class CausalSession:
    """The model's side of one rollout; made by `CausalSampler.session`."""

    def __init__(self, sampler: CausalSampler, seed: int) -> None:
        self._sampler = sampler
        self.random = random.Random(seed)
        self.context: list[int] = []
        """All ids so far, prompts and outputs."""

    async def generate(
        self, prompt_ids: Sequence[int], *, stop_id: int | None, max_new_tokens: int = 32
    ) -> Sampled:
        """Read these ids after what came before, and write until `stop_id` or the limit.

        Raises:
            InputError: nothing to read, or a context that is too long.
            ModelError: the computation failed.
        """
        sampler = self._sampler
        room = sampler.network.max_length - len(self.context) - len(prompt_ids)
        if not prompt_ids and not self.context:
            raise InputError("the first call of a session needs a prompt; give at least one id")
        if room < 1 or max_new_tokens < 1:
            raise InputError(
                f"{len(prompt_ids)} new ids after {len(self.context)} and at least 1 output do not fit: "
                f"the model takes {sampler.network.max_length}, max_new_tokens is {max_new_tokens}"
            )
        before = len(self.context)
        self.context.extend(prompt_ids)
        future: asyncio.Future[Sampled] = asyncio.get_running_loop().create_future()
        sampler.line.enqueue(_Request(self, stop_id, min(max_new_tokens, room), future))
        try:
            done = await future
        except BaseException:
            del self.context[before:]
            raise
        self.context.extend(done.output_ids)
        return done


class CausalSampler:
    """Samples from one transformers model for many concurrent rollouts.

    Args:
        greedy: take the likeliest token instead of sampling.
        temperature: divides the logits before sampling.
        policy_version: recorded with what is sampled.
    """

    def __init__(
        self,
        network: CausalLM,
        *,
        greedy: bool = False,
        temperature: float = 1.0,
        policy_version: str | None = None,
        max_batch: int = 64,
    ) -> None:
        if not temperature > 0:
            raise InputError(
                f"temperature must be above 0, got {temperature}; for the likeliest token set greedy=True"
            )
        self.network = network
        self.greedy = greedy
        self.temperature = temperature
        self.policy_version = policy_version
        self.line: Line[_Request] = Line(self._generate, max_batch=max_batch)

    def session(self, seed: int) -> CausalSession:
        """A fresh session that draws from `seed` alone."""
        return CausalSession(self, seed)

    def refresh(self, policy_version: str | None = None) -> None:
        """Take up weights that were changed in place; nothing is cached between calls."""
        self.policy_version = policy_version

    @torch.inference_mode()
    def _generate(self, requests: list[_Request]) -> None:
        most = max(len(request.prompt) for request in requests)
        device = self.network.device
        # Padded on the left, so that the last column is every row's newest token.
        ids = torch.zeros((len(requests), most), dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, request in enumerate(requests):
            ids[row, most - len(request.prompt) :] = torch.tensor(request.prompt)
            mask[row, most - len(request.prompt) :] = 1
        ids, mask = ids.to(device), mask.to(device)
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        cache: Any = None
        while any(request.open for request in requests):
            out = self.network.model(
                input_ids=ids,
                attention_mask=mask,
                position_ids=positions,
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            )
            cache = out.past_key_values
            ids = self._draw(out.logits[:, -1].float().cpu(), requests).to(device)
            mask = torch.cat((mask, mask.new_ones(len(requests), 1)), dim=1)
            positions = positions[:, -1:] + 1
        for request in requests:
            if not request.future.done():
                request.future.set_result(
                    Sampled(
                        request.prompt, tuple(request.output), tuple(request.logprobs), self.policy_version
                    )
                )

    def _draw(self, logits: Tensor, requests: Sequence[_Request]) -> Tensor:
        """(B, 1) next ids; rows that are finished draw nothing and read a padding that nobody sees."""
        logprobs = torch.log_softmax(logits if self.greedy else logits / self.temperature, dim=-1)
        below = logprobs.double().exp().cumsum(dim=-1)
        chosen = torch.zeros(len(requests), 1, dtype=torch.long)
        for row, request in enumerate(requests):
            if not request.open:
                continue
            if self.greedy:
                token = int(logprobs[row].argmax())
            else:
                level = request.session.random.random() * float(below[row, -1])
                token = int(torch.searchsorted(below[row], level, right=True).clamp(max=logits.shape[1] - 1))
            request.output.append(token)
            request.logprobs.append(float(logprobs[row, token]))
            chosen[row] = token
        return chosen
