"""Tokens in, tokens out: the interface of a sampler, wherever it runs.

`learn.training.sampler` samples in this process, `models.vllm` from a server; a policy
written against `TokenSampler` moves between them by what it is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ..types import Tokens, Usage


@dataclass(frozen=True, slots=True)
class Sampled:
    """The tokens that one call read and wrote."""

    prompt_ids: tuple[int, ...]
    """The full context of the call, earlier turns included."""
    output_ids: tuple[int, ...]
    """The sampled tokens, the stop token included if it came."""
    logprobs: tuple[float, ...]
    """Under the distribution that was sampled from; at temperature 1 if greedy."""
    policy_version: str | None = None

    @property
    def tokens(self) -> Tokens:
        """As a Step records it."""
        return Tokens(self.prompt_ids, self.output_ids, self.logprobs, None, self.policy_version)

    @property
    def usage(self) -> Usage:
        """As a Step records it."""
        return Usage(prompt_tokens=len(self.prompt_ids), output_tokens=len(self.output_ids), calls=1)


class TokenSession(Protocol):
    """The model's side of one rollout."""

    @property
    def context(self) -> Sequence[int]:
        """All ids so far, prompts and outputs."""
        ...

    async def generate(
        self, prompt_ids: Sequence[int], *, stop_id: int | None, max_new_tokens: int = 32
    ) -> Sampled:
        """Read these ids after what came before, and write until `stop_id` or the limit.

        Raises:
            InputError: nothing to read, or a context that is too long.
            ModelError: the model failed; the context is as it was.
        """
        ...


class TokenSampler(Protocol):
    """Samples from one policy for many concurrent rollouts."""

    policy_version: str | None

    def session(self, seed: int) -> TokenSession:
        """A fresh session that draws from `seed` alone."""
        ...

    def refresh(self, policy_version: str | None = None) -> None:
        """Take up weights that were changed."""
        ...
