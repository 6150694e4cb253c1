"""The settings of a request, its answer so far, and the draw of a token.

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

from ....errors import InputError, ModelError
from ..cache import Slot

Finish = Literal["stop", "length"]


class Constraint(Protocol):
    """The tokens that may come next, where an answer must have a form."""

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
    """Settings of one answer."""

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

    @property
    def plain(self) -> bool:
        """True if it asks for nothing but tokens of the policy's own distribution."""
        return (
            self.top_p >= 1.0
            and not (self.top_k or self.min_tokens or self.top_logprobs)
            and self.forcing is None
        )

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
        prompt: at least one id, the whole context.
        stopped: asked after every token, in the engine's thread; True ends the answer (a stop string).
        told: called in the engine's thread after every step that changed this.
        stream: where its draws come from; None for a stream of the sampling's seed.
        slot: the cache's row of a conversation that goes on; None to have the network find one.
    """

    __slots__ = (
        "_forced",
        "_forced_more",
        "_thinking",
        "cancelled",
        "constraint",
        "context",
        "error",
        "finish",
        "logprobs",
        "mask",
        "output",
        "plain",
        "prompt",
        "random",
        "sampling",
        "slot",
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
        stream: random.Random | None = None,
        slot: Slot | None = None,
    ) -> None:
        self.prompt = prompt
        self.context = list(prompt)
        """Prompt and output."""
        self.slot = slot
        self.sampling = sampling
        self.plain = constraint is None and sampling.plain
        """True if any token may come at any time."""
        self.constraint = constraint
        self.stopped = stopped
        self.told = told
        self.random = stream or random.Random(sampling.seed)
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
        """True once it finished or failed."""
        return self.finish is not None or self.error is not None

    def forced(self) -> int | None:
        """The token that must come next, whatever the policy thinks."""
        forcing = self.sampling.forcing
        if not self._forced and forcing is not None and self._thinking:
            limit = forcing.max_tokens
            if limit is not None and len(self.output) >= limit:
                self._forced.append(forcing.end)
        return self._forced[0] if self._forced else None

    def instead(self, token: int) -> int | None:
        """The substitute for a drawn token: the first of `more` where thinking would end too soon."""
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

    def take(self, token: int, logprob: float, *, chosen: bool = True) -> None:
        """Add a token, and see whether it is the last."""
        # The queue is emptied by what was put in; a drawn token never stood in it.
        if not chosen and self._forced:
            self._forced.popleft()
        self.output.append(token)
        self.context.append(token)
        self.logprobs.append(logprob)
        self.mask.append(chosen)
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

    By the inverse of the cumulative distribution with each generation's own random stream: the same
    seed, weights and context give the same tokens, whoever else is in the batch.
    """
    temperatures = [generation.sampling.temperature for generation in generations]
    if any(temperature not in (0.0, 1.0) for temperature in temperatures):
        logits = logits / torch.tensor([[temperature or 1.0] for temperature in temperatures])
    logprobs_BV = torch.log_softmax(logits, dim=-1)
    restricted = [row for row, generation in enumerate(generations) if not generation.plain]
    # The likeliest token needs no distribution, which a large vocabulary makes expensive.
    weights_BV = logprobs_BV.double().exp_() if restricted or any(temperatures) else logprobs_BV
    forced: dict[int, int | None] = {}
    for row in restricted:
        _restrict(weights_BV[row], generations[row])
        forced[row] = generations[row].forced()
    # Before `cumsum_`, which writes over the weights.
    best_B1 = weights_BV.argmax(dim=-1, keepdim=True) if 0.0 in temperatures else None
    if any(temperatures):
        below_BV = weights_BV.cumsum_(dim=-1)
        # A token that is put in or the likeliest takes nothing from the stream.
        draws = [
            generation.random.random() if temperature and forced.get(row) is None else 0.0
            for row, (generation, temperature) in enumerate(zip(generations, temperatures, strict=True))
        ]
        # Times the row's sum: weights that a form or top-p left over are not normalised.
        level_B1 = torch.tensor(draws, dtype=torch.float64).unsqueeze(1) * below_BV[:, -1:]
        # right=True: a draw of exactly 0 must not fall on a first token that has no weight.
        tokens_B1 = torch.searchsorted(below_BV, level_B1, right=True).clamp_(max=logits.shape[1] - 1)
        if best_B1 is not None:
            greedy_B1 = torch.tensor([[temperature == 0.0] for temperature in temperatures])
            tokens_B1 = torch.where(greedy_B1, best_B1, tokens_B1)
    else:
        assert best_B1 is not None
        tokens_B1 = best_B1
    inserted = set[int]()
    for row in restricted:
        token = forced[row]
        if token is None:
            token = generations[row].instead(int(tokens_B1[row]))
        if token is not None:
            tokens_B1[row] = token
            inserted.add(row)
    # Of the policy's own distribution, not of what was left of it: a learner computes these again.
    tokens, logprobs = tokens_B1.squeeze(1).tolist(), logprobs_BV.gather(1, tokens_B1).squeeze(1).tolist()
    for row, generation in enumerate(generations):
        if generation.sampling.top_logprobs:
            likeliest = logprobs_BV[row].topk(min(generation.sampling.top_logprobs, logits.shape[1]))
            generation.top.append(
                list(zip(likeliest.indices.tolist(), likeliest.values.tolist(), strict=True))
            )
        generation.take(tokens[row], logprobs[row], chosen=row not in inserted)


def _restrict(weights: Tensor, generation: Generation) -> None:
    """Take away, in place, what may not or should not be drawn."""
    sampling = generation.sampling
    if generation.constraint is not None:
        allowed = weights * generation.constraint.allowed()
        # Where the policy gives all that is allowed no weight at all, each is as good as another.
        weights.copy_(allowed if float(allowed.sum()) > 0 else generation.constraint.allowed().double())
    if len(generation.output) < sampling.min_tokens and sampling.stop_ids:
        unended = weights.clone()
        unended[list(sampling.stop_ids)] = 0.0
        if float(unended.sum()) > 0:
            weights.copy_(unended)
    if sampling.top_k and sampling.top_k < len(weights):
        threshold = weights.topk(sampling.top_k).values[-1]
        weights[weights < threshold] = 0.0
    if sampling.top_p < 1.0:
        ordered, ids = weights.sort(descending=True)
        before = ordered.cumsum(0) - ordered
        weights[ids[before >= sampling.top_p * ordered.sum()]] = 0.0
