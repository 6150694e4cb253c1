"""What a search would take, before anything is spent: a judgement of the start is timed, no model is asked to propose.

Bounds and guesses are told apart.  Evaluations and calls are at most what is said; how many are saved by
finding duplicates, and how long a model takes to answer, is a guess from other searches.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import InputError
from ..models.base import Request
from ..models.spending import Price, estimate
from ..types import Budget, Json
from .engine import SearchOptions
from .judging import Judging
from .population import Draw, Judged
from .program import Program
from .proposers import Proposer, Proposes
from .reflection import Gepa, Gradient

_FRESH = 0.5
"""Share of edits that behave like nothing before: 41 to 52 % in decision 042's searches."""
_PROGRESS = 200
"""Proposals assumed where only time limits the search."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a search would take."""

    start_score: float
    proposals: int
    evaluations: int
    """At most."""
    evaluations_likely: int
    calls: int
    """Of models, at most."""
    prompt_tokens: int
    output_tokens: int
    dollars: float | None
    """None where a model has no price."""
    seconds_of_one: float
    """Of one evaluation, measured."""
    seconds: float
    """Of evaluations on the workers; what models take to answer is not in it."""
    limits: str = ""
    agent_calls: int = 0
    """Of an agent that runs outside, at most; while searching."""

    def json(self) -> dict[str, Json]:
        """What `--dry-run --json` prints."""
        return {
            "dry_run": True,
            "start_score": self.start_score,
            "proposals": self.proposals,
            "evaluations_at_most": self.evaluations,
            "evaluations_likely": self.evaluations_likely,
            "model_calls_at_most": self.calls,
            "prompt_tokens": self.prompt_tokens,
            "output_tokens": self.output_tokens,
            "dollars": self.dollars,
            "seconds_per_evaluation": round(self.seconds_of_one, 4),
            "seconds": round(self.seconds, 1),
            "budget": self.limits,
            "agent_calls_at_most": self.agent_calls,
        }


async def estimated(
    judge: Judging,
    start: Program,
    options: SearchOptions,
    proposers: Sequence[Proposes],
    budget: Budget,
    *,
    price: Price | None = None,
    outside: int | None = None,
) -> Estimate:
    """Judge the start and reckon.

    Args:
        outside: calls of an agent that runs outside in one evaluation, which is made once only; None for
            everything else, which is timed when the sandbox has been started.

    Raises:
        InputError: the start has no score.
    """
    if outside is None:
        await judge.score(start)
    began = time.monotonic()
    judged = await judge.score(start)
    one = time.monotonic() - began
    if judged.score is None:
        raise InputError(f"the start has no score: {judged.failure or 'none was given'}")
    proposals = options.iterations if options.iterations is not None else _by_time(options, budget, one)
    arms = len(proposers) + len(options.edits)
    asked = [each for each in proposers if isinstance(each, Proposer | Gradient | Gepa)]
    # What the two others show is about as long as what a Proposer shows.
    models = [each if isinstance(each, Proposer) else Proposer(each.model) for each in asked]
    twice = any(isinstance(each, Gradient) for each in asked)
    calls = proposals * (2 if twice else 1) if models else 0
    if budget.calls is not None:
        calls = min(calls, budget.calls)
    drawn = Draw(Judged(0, start, judged.score, artifacts=judged.artifacts), None)
    prompt, output = _tokens(models, drawn, calls)
    dollars = price.of(prompt, output) if price is not None else 0.0 if not calls else None
    edited = proposals * len(options.edits) / max(1, arms)
    likely = round(edited * _FRESH + (proposals - edited))
    return Estimate(
        start_score=judged.score,
        proposals=proposals,
        evaluations=proposals + 1,
        evaluations_likely=likely + 1,
        calls=calls,
        prompt_tokens=prompt,
        output_tokens=output,
        dollars=dollars,
        seconds_of_one=one,
        seconds=(likely + 1) * one / options.workers,
        limits=", ".join(
            f"{name} {value:g}"
            for name in ("calls", "tokens", "dollars", "seconds")
            if (value := getattr(budget, name)) is not None
        ),
        agent_calls=(proposals + 1) * outside if outside is not None else 0,
    )


def _by_time(options: SearchOptions, budget: Budget, one: float) -> int:
    seconds = min(each for each in (budget.seconds, options.cpu_seconds, 1e9) if each is not None)
    return max(1, int(seconds * options.workers / max(one * _FRESH, 1e-3))) if seconds < 1e9 else _PROGRESS


def _tokens(proposers: Sequence[Proposer], drawn: Draw, calls: int) -> tuple[int, int]:
    """Tokens of prompt and output of so many calls, shared out evenly."""
    prompt = output = 0.0
    for each in proposers:
        said = estimate(Request.of(each.messages(drawn), dict(each.settings or {})))
        prompt += calls / len(proposers) * said.prompt_tokens
        output += calls / len(proposers) * said.output_tokens
    return round(prompt), round(output)
