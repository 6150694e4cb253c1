"""What a search would take, before anything is spent: a judgement of the start is timed, no model is asked to propose.

Bounds and guesses are told apart.  Evaluations and calls are at most what is said; how many are saved by
finding duplicates, and how long a model takes to answer, is a guess from other searches.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Protocol

from ..errors import InputError
from ..experiment import Experiment
from ..loop import Context, Update
from ..models.base import Request
from ..models.spending import estimate
from ..types import Budget, Bundle, Group, Json
from .engine import SearchOptions
from .judging import Judging
from .population import Draw, Judged
from .program import Program
from .proposers import Asking, Gradient, Proposer, Proposes
from .proposing import Proposing

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


class Searching(Protocol):
    """An Optimizer of which is known what it would take: `programs.Programs`, or `improving.Pieces`."""

    options: SearchOptions
    proposing: Proposing

    def start(self, context: Context) -> tuple[Judging, Program, int | None]:
        """A judge, what it begins with, and how often one evaluation calls an agent that runs outside.

        None where there is no such agent: then an evaluation is timed when the sandbox has been started, and else
        made once only.
        """
        ...


@dataclass
class DryRun:
    """Optimizer that spends nothing: it judges the start of another one and says what that would take."""

    optimizer: Searching
    budget: Budget
    estimate: Estimate | None = None

    name = "dry run"
    group_size = 0
    takes_groups = False
    on_policy = False
    ordered = False

    async def step(self, bundle: Bundle, groups: Sequence[Group], context: Context) -> Update:
        """The estimate.

        Raises:
            InputError: the start has no score.
        """
        async with AsyncExitStack() as stack:
            proposers = await self.optimizer.proposing.open(context, stack)
            self.estimate = await _estimated(self.optimizer, context, proposers, self.budget)
        return Update(bundle=bundle, state={"resumable": False})


async def estimated(experiment: Experiment, optimizer: Searching, budget: Budget) -> Estimate:
    """What `experiment.improve(optimizer)` would take; judges the start, and asks no model to propose.

    Raises:
        InputError: the start has no score.
    """
    dry = DryRun(optimizer, budget)
    await experiment.improve(dry, rounds=1, budget=budget)
    assert dry.estimate is not None
    return dry.estimate


async def _estimated(
    optimizer: Searching, context: Context, proposers: Sequence[Proposes], budget: Budget
) -> Estimate:
    judge, start, outside = optimizer.start(context)
    if outside is None:
        await judge.score(start)
    began = time.monotonic()
    judged = await judge.score(start)
    one = time.monotonic() - began
    if judged.score is None:
        raise InputError(f"the start has no score: {judged.failure or 'none was given'}")
    options = optimizer.options
    proposals = options.iterations if options.iterations is not None else _by_time(options, budget, one)
    arms = len(proposers) + len(options.edits)
    asked = [each for each in proposers if isinstance(each, Asking)]
    # What the two others show is about as long as what a Proposer shows.
    models = [each if isinstance(each, Proposer) else Proposer(each.model) for each in asked]
    twice = any(isinstance(each, Gradient) for each in asked)
    calls = proposals * (2 if twice else 1) if models else 0
    if budget.calls is not None:
        calls = min(calls, budget.calls)
    drawn = Draw(Judged(0, start, judged.score, artifacts=judged.artifacts), None)
    prompt, output = _tokens(models, drawn, calls)
    price = optimizer.proposing.price
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
