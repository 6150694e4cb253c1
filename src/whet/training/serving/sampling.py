"""What one request asks of the policy, what it has been given so far, and how a token is drawn.

Log-probabilities are those of the policy at the request's temperature (at 1 where it is
greedy), before top-p, top-k or a schema took tokens away: what a learner recomputes from the
same weights, so that the ratio of a fresh sample is 1.  A token that was put in rather than
chosen (budget forcing) is marked in `mask`, and nothing is learned from it.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from ...errors import InputError, ModelError

Finish = Literal["stop", "length"]


class Constraint(Protocol):
    """What may come next, where an answer must have a form."""

    def allowed(self) -> Tensor:
        """(vocabulary,) bool: the tokens that keep to the form."""
        ...

    def accept(self, token: int) -> bool:
        """Take note of a token; True once the form is complete and nothing may follow.

        Raises:
            ModelError: it does not keep to the form.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Forcing:
    """Budget forcing (Muennighoff et al. 2025, s1): thinking is made longer or cut short.

    Different from the paper, both bounds are counted in tokens of the answer, and an end of the answer
    while it still thinks counts as an end of thinking.
    """

    end: int
    """The token that ends thinking, `</think>` for instance."""
    more: Sequence[int]
    """Put in where thinking would end too soon; "Wait" in the paper."""
    min_tokens: int = 0
    """Thinking that ends before is made to go on."""
    max_tokens: int | None = None
    """Thinking that reaches it is ended."""
    times: int = 2
    """How often it is made to go on, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How one answer is to be generated."""

    max_tokens: int = 256
    min_tokens: int = 0
    """No stop token is drawn before."""
    temperature: float = 1.0
    """0 takes the likeliest token."""
    top_p: float = 1.0
    top_k: int = 0
    """0 for all."""
    seed: int = 0
    stop_ids: frozenset[int] = frozenset()
    """Each ends the answer and is part of it."""
    top_logprobs: int = 0
    """Likeliest tokens to report beside each chosen one."""
    forcing: Forcing | None = None

    def __post_init__(self) -> None:
        wrong = {
            ("max_tokens", "must be 1 or more"): self.max_tokens < 1,
            ("min_tokens", "must be 0 or more"): self.min_tokens < 0,
            ("temperature", "must be between 0 and 100"): not 0 <= self.temperature <= 100,
            ("top_p", "must be above 0 and at most 1"): not 0 < self.top_p <= 1,
            ("top_k", "must be 0 or more"): self.top_k < 0,
            ("top_logprobs", "must be between 0 and 20"): not 0 <= self.top_logprobs <= 20,
        }
        for (name, bound), broken in wrong.items():
            if broken:
                raise InputError(f"{name} {bound}; got {getattr(self, name)}")


class Generation:
    """One answer under way.

    Args:
        prompt: at least one id.
        stopped: asked after every token, in the engine's thread; True ends the answer (a stop string).
        told: called in the engine's thread after every step that changed this.
    """

    __slots__ = (
        "_forced",
        "_forced_more",
        "_thinking",
        "cancelled",
        "constraint",
        "error",
        "finish",
        "logprobs",
        "mask",
        "output",
        "prompt",
        "random",
        "sampling",
        "stopped",
        "told",
        "top",
    )

    def __init__(
        self,
        prompt: Sequence[int],
        sampling: Sampling,
        *,
        constraint: Constraint | None = None,
        stopped: Callable[[int], bool] | None = None,
        told: Callable[[], None] | None = None,
    ) -> None:
        self.prompt = list(prompt)
        self.sampling = sampling
        self.constraint = constraint
        self.stopped = stopped
        self.told = told
        self.random = random.Random(sampling.seed)
        self.output: list[int] = []
        self.logprobs: list[float] = []
        self.mask: list[bool] = []
        """Which of the output the policy chose."""
        self.top: list[list[tuple[int, float]]] = []
        self.finish: Finish | None = None
        self.error: Exception | None = None
        self.cancelled = False
        """Set by whoever asked and no longer wants it."""
        self._forced: deque[int] = deque()
        self._thinking = sampling.forcing is not None
        self._forced_more = 0

    @property
    def done(self) -> bool:
        """Whether nothing more will come."""
        return self.finish is not None or self.error is not None

    @property
    def length(self) -> int:
        """Tokens of prompt and output."""
        return len(self.prompt) + len(self.output)

    def forced(self) -> int | None:
        """The token that must come next, whatever the policy thinks."""
        forcing = self.sampling.forcing
        if not self._forced and forcing is not None and self._thinking:
            limit = forcing.max_tokens
            if limit is not None and len(self.output) >= limit:
                self._forced.append(forcing.end)
        return self._forced[0] if self._forced else None

    def instead(self, token: int) -> int | None:
        """What stands in for a drawn token: the first of `more` where thinking would end too soon."""
        forcing = self.sampling.forcing
        if forcing is None or not self._thinking or not forcing.more:
            return None
        ends = token == forcing.end or token in self.sampling.stop_ids
        early = len(self.output) < forcing.min_tokens and self._forced_more < forcing.times
        if not (ends and early):
            return None
        self._forced_more += 1
        self._forced.extend(forcing.more)
        return self._forced[0]

    def take(self, token: int, logprob: float, top: list[tuple[int, float]], *, chosen: bool) -> None:
        """Add a token, and see whether it is the last."""
        if not chosen and self._forced:
            self._forced.popleft()
        self.output.append(token)
        self.logprobs.append(logprob)
        self.mask.append(chosen)
        if self.sampling.top_logprobs:
            self.top.append(top)
        forcing = self.sampling.forcing
        if forcing is not None and token == forcing.end:
            self._thinking = False
        try:
            complete = self.constraint.accept(token) if self.constraint is not None else False
        except ModelError as error:  # this answer's trouble and no other's
            self.error = error
            return
        stopped = self.stopped(token) if self.stopped is not None else False
        if token in self.sampling.stop_ids or complete or stopped:
            self.finish = "stop"
        elif len(self.output) >= self.sampling.max_tokens:
            self.finish = "length"


def draw(logits: Tensor, generations: Sequence[Generation]) -> None:
    """Give each generation its next token from (B, vocabulary) logits.

    By the inverse of the cumulative distribution with each generation's own random stream, exactly as
    `sampler.Sampler` draws: the same seed, weights and context give the same tokens here and there.
    """
    settings = [generation.sampling for generation in generations]
    if any(one.temperature not in (0.0, 1.0) for one in settings):
        logits = logits / torch.tensor([[one.temperature or 1.0] for one in settings])
    logprobs = torch.log_softmax(logits, dim=-1)
    weights = logprobs.double().exp_()
    for row, generation in enumerate(generations):
        _restrict(weights[row], generation)
    below = weights.cumsum(dim=-1)
    best = weights.argmax(dim=-1).tolist()
    for row, generation in enumerate(generations):
        forced = generation.forced()
        if forced is not None:
            token: int = forced
        elif generation.sampling.temperature == 0:
            token = best[row]
        else:
            level = generation.random.random() * float(below[row, -1])
            place = torch.searchsorted(below[row], level, right=True)
            token = int(place.clamp(max=logits.shape[1] - 1))
        put_in = forced
        if forced is None:
            put_in = generation.instead(token)
            token = token if put_in is None else put_in
        count = generation.sampling.top_logprobs
        top: list[tuple[int, float]] = []
        if count:
            likeliest = logprobs[row].topk(min(count, logits.shape[1]))
            top = list(zip(likeliest.indices.tolist(), likeliest.values.tolist(), strict=True))
        generation.take(token, float(logprobs[row, token]), top, chosen=put_in is None)


def _restrict(weights: Tensor, generation: Generation) -> None:
    """Take away, in place, what may not or should not be drawn."""
    sampling = generation.sampling
    if generation.constraint is not None:
        kept = weights * generation.constraint.allowed()
        # Where the policy gives all that is allowed no weight at all, each is as good as another.
        weights.copy_(kept if float(kept.sum()) > 0 else generation.constraint.allowed().double())
    if len(generation.output) < sampling.min_tokens and sampling.stop_ids:
        held = weights.clone()
        held[list(sampling.stop_ids)] = 0.0
        if float(held.sum()) > 0:
            weights.copy_(held)
    if sampling.top_k and sampling.top_k < len(weights):
        least = weights.topk(sampling.top_k).values[-1]
        weights[weights < least] = 0.0
    if sampling.top_p < 1.0:
        ordered, places = weights.sort(descending=True)
        before = ordered.cumsum(0) - ordered
        weights[places[before >= sampling.top_p * ordered.sum()]] = 0.0
