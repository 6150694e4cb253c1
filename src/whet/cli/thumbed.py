"""`whet improve AGENT.py`: an agent's prompt, improved by what people said of its recorded answers, or by a table."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .root import existing, named_store, print_json
from .table import ImproveRun

if TYPE_CHECKING:
    from ..learn.evolution.prompts.tabled import TableInput
    from ..learn.evolution.prompts.thumbed import ImprovedAgent, ThumbSettings

TOPIC = "An agent's file, and people's thumbs or a table"


@dataclass(frozen=True, kw_only=True)
class ThumbOptions:
    """Options of an agent whose prompt is improved by the thumbs in its record, or by a table."""

    entry: str | None = None
    """The function that is called with what a person asks, as module:function. If omitted, it is found in the file."""
    prompt: str | None = None
    """What may change: a constant (NAME or module:NAME), a file (prompts/system.md), or a value in one
    (agent.yaml:system). If omitted, the one that the recorded calls used most."""
    agent_calls: int = 400
    """Most calls of the agent: to search and to prove together."""
    reflections: int = 32
    """Most calls of the model that proposes."""
    liked_from: float | None = None
    """Where people rate on a scale, such as 1 to 5: the least rating that is a thumb up; lower ones are thumbs down. If
    omitted, ratings count as no thumbs."""


@dataclass(frozen=True, kw_only=True)
class ThumbRun(ImproveRun):
    """Those of an agent's file."""

    output: Path
    release: bool
    source: TableInput | None = None
    """A table, whose right answers count and nobody's thumbs."""
    metric: str | None = None
    rubric: str = ""
    proposer_model: str | None = None
    judge_model: str | None = None
    price: tuple[float, float] | None = None


def improve_agent_file(run: ThumbRun, options: ThumbOptions) -> int:
    """Say the plan, do it, print the result; 0 if it is proven, 1 if not or if nothing could be.

    Raises:
        InputError: something is missing.
    """
    import asyncio

    return asyncio.run(_improved(run, options))


async def _improved(run: ThumbRun, options: ThumbOptions) -> int:
    from contextlib import AsyncExitStack

    from ..learn.evolution.in_one_call import AgentInput, Endpoints, improve_planned
    from ..learn.evolution.live import LiveLine
    from ..learn.evolution.prompts.thumbed import ThumbSettings
    from ..models import Price
    from ..models.budget import Meter

    store = run.output / "runs.db" if run.source is not None and run.store is None else None
    settings = ThumbSettings(
        store=store or existing(named_store(run.store)),
        entry=options.entry,
        prompt=options.prompt,
        calls=options.agent_calls,
        reflections=options.reflections,
        seed=run.seed,
        alpha=run.alpha,
        regime=run.regime,
        output=run.output,
        release=run.release,
        liked_from=options.liked_from,
    )
    asked = AgentInput(
        path=Path(run.target), settings=settings, source=run.source, metric=run.metric, rubric=run.rubric
    )
    endpoints = Endpoints(
        model=run.model,
        proposer=run.proposer_model,
        judge=run.judge_model,
        base_url=run.base_url,
        price=None if run.price is None else Price(prompt=run.price[0], output=run.price[1]),
    )
    meter = Meter()
    async with AsyncExitStack() as stack:
        plan = await asked.planned(endpoints, stack, meter)
        if not run.json:
            for sentence in plan.sentences:
                print(sentence)
        if plan.refused:
            if run.json:
                print_json({"promote": False, "refused": plan.refused, "plan": list(plan.sentences)})
            else:
                print(f"\nnothing was spent: {plan.refused}")
            return 1
        if run.dry_run:
            return 0
        sys.stdout.flush()
        with LiveLine(meter, calls=plan.model_calls, quiet=run.json) as line:
            result = await improve_planned(plan, endpoints, stack, meter=meter, progress=line)
    if run.json:
        print_json(result.json())
    else:
        _say(result, settings)
    return 0 if result.proven else 1


def _say(result: ImprovedAgent, settings: ThumbSettings) -> None:
    print()
    for sentence in result.sentences():
        print(sentence)
    if not result.patch:
        print("\nnothing better was found; the prompt stays as it is")
        return
    print(f"\n{result.patch}")
    if not result.proven:
        print(f"not proven, so nothing changes; to read: {result.written}")
    elif result.released:
        print(f"proven better, and live at the gateway of {settings.store}; whet rollback takes it back")
    else:
        print(f"proven better: git apply {result.written}")
