"""The cost of a search before anything is spent: a judgement of the start is timed, no model is asked to propose.

Bounds and guesses are told apart.  The numbers of evaluations and calls are upper bounds; how many are saved by
finding duplicates, and how long a model takes to answer, is a guess from other searches.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass

from ....errors import InputError
from ....models.base import ModelRequest
from ....models.spending import estimate
from ....types import Budget, Bundle, Group, Json
from ...experiment import Experiment
from ...loop import Context, Update
from ..editing.program import Program
from .engine import SearchOptions
from .judging import Judging
from .population import Draw, Judged
from .proposers import Asking, Gradient, Proposer, Proposes
from .proposing import Proposing

_FRESH = 0.5
"""Share of edits that behave like nothing before: 41 to 52 % in decision 042's searches."""
_PROGRESS = 200
"""Proposals assumed where only time limits the search."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """The cost of a search; `agent_calls` are of an agent that runs outside, while searching."""

    start_score: float
    proposals: int
    evaluations_at_most: int
    evaluations_likely: int
    model_calls_at_most: int
    prompt_tokens: int
    output_tokens: int
    dollars: float | None
    """None where a model has no price."""
    seconds_per_evaluation: float
    """Measured."""
    seconds: float
    """Of evaluations on the workers; without the models' own time."""
    budget: str
    agent_calls_at_most: int

    def json(self) -> dict[str, Json]:
        """The answer to `--dry-run --json`."""
        return {"dry_run": True, **asdict(self)}


class Searching:
    """An Optimizer whose one step is a search, or several: `programs.Programs`, or `improving.Pieces`.

    A step that is taken again is replayed from the log, so it leaves no state.
    """

    options: SearchOptions
    proposing: Proposing

    group_size = 0
    takes_groups = False
    on_policy = False
    ordered = False

    def start(self, context: Context) -> tuple[Judging, Program, int | None]:
        """A judge, its start, and how often one evaluation calls an agent that runs outside.

        None without such an agent: then an evaluation is timed when the sandbox has been started, and else
        made once only.
        """
        raise NotImplementedError


class DryRun(Searching):
    """Optimizer that spends nothing: it judges the start of another one and estimates its cost."""

    name = "dry run"

    def __init__(self, optimizer: Searching, budget: Budget) -> None:
        self.optimizer, self.budget = optimizer, budget

    async def step(self, bundle: Bundle, groups: Sequence[Group], context: Context) -> Update:
        """Estimate.

        Raises:
            InputError: the start has no score.
        """
        async with AsyncExitStack() as stack:
            proposers = await self.optimizer.proposing.open(context, stack)
            self.estimate = await _estimated(self.optimizer, context, proposers, self.budget)
        return Update(bundle=bundle, state={"resumable": False})


async def estimated(experiment: Experiment, optimizer: Searching, budget: Budget) -> Estimate:
    """The cost of `experiment.improve(optimizer)`; judges the start, and asks no model to propose.

    Raises:
        InputError: the start has no score.
    """
    dry = DryRun(optimizer, budget)
    await experiment.improve(dry, rounds=1, budget=budget)
    return dry.estimate


async def _estimated(
    optimizer: Searching, context: Context, proposers: Sequence[Proposes], budget: Budget
) -> Estimate:
    judge, start, outside = optimizer.start(context)
    if outside is None:
        await judge.score(start)  # the first one starts the sandbox: the second is timed
    began = time.monotonic()
    judged = await judge.score(start)
    seconds = time.monotonic() - began
    if judged.score is None:
        # A start that fails on every row is worth 0, and is searched; any other is refused here.
        judged = await judge.prepare(start)
    if judged.score is None:
        raise InputError(f"the start has no score: {judged.failure or 'none was given'}")
    options = optimizer.options
    proposals = options.iterations if options.iterations is not None else _by_time(options, budget, seconds)
    asking = [proposer for proposer in proposers if isinstance(proposer, Asking)]
    calls = proposals * (2 if any(isinstance(arm, Gradient) for arm in asking) else 1) if asking else 0
    if budget.calls is not None:
        calls = min(calls, budget.calls)
    draw = Draw(Judged(0, start, judged.score, artifacts=judged.artifacts), None)
    prompt, output = _tokens(asking, draw, calls)
    price = optimizer.proposing.price
    # By turns (`sweep.whose_turn`).
    edited = proposals * (0.0 if not options.edits else 0.5 if proposers else 1.0)
    likely = round(edited * _FRESH + (proposals - edited)) + 1
    limits = {name: getattr(budget, name) for name in ("calls", "tokens", "dollars", "seconds")}
    return Estimate(
        start_score=judged.score,
        proposals=proposals,
        evaluations_at_most=proposals + 1,
        evaluations_likely=likely,
        model_calls_at_most=calls,
        prompt_tokens=prompt,
        output_tokens=output,
        dollars=price.of(prompt, output) if price is not None else 0.0 if not calls else None,
        seconds_per_evaluation=round(seconds, 4),
        seconds=round(likely * seconds / options.workers, 1),
        budget=", ".join(f"{name} {limit:g}" for name, limit in limits.items() if limit is not None),
        agent_calls_at_most=(proposals + 1) * outside if outside is not None else 0,
    )


def _by_time(options: SearchOptions, budget: Budget, evaluation: float) -> int:
    limits = [limit for limit in (budget.seconds, options.cpu_seconds) if limit is not None]
    return (
        max(1, int(min(limits) * options.workers / max(evaluation * _FRESH, 1e-3))) if limits else _PROGRESS
    )


def _tokens(asking: Sequence[Asking], draw: Draw, calls: int) -> tuple[int, int]:
    """Tokens of prompt and output of so many calls, shared out evenly."""
    prompt = output = 0.0
    for arm in asking:
        # The requests of the two others are about as long as a Proposer's.
        proposer = arm if isinstance(arm, Proposer) else Proposer(arm.model)
        guess = estimate(ModelRequest.of(proposer.messages(draw), dict(proposer.settings or {})))
        prompt += calls / len(asking) * guess.prompt_tokens
        output += calls / len(asking) * guess.output_tokens
    return round(prompt), round(output)
