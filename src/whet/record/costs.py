"""What the model calls of a run cost: as recorded with them, else by their tokens and a price table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..models.prices import price_for
from ..models.spending import Price
from ..types import LLM, Step, Trajectory, Usage


def dollars_of(run: Trajectory, prices: Mapping[str, Price]) -> tuple[float, set[str]]:
    """What the model calls of a run cost, and the models without a price.

    A call whose dollars were recorded keeps them.  Where no call is recorded, the run's own usage is taken by the
    model of the step that states it.  Dollars of another step, a paid tool's say, come on top, unless a call that is
    counted happened inside it.
    """
    steps = [step for step in run.steps if step.usage is not None]
    called = [step for step in steps if step.kind == LLM]
    dollars, unpriced = 0.0, set()
    for step in called or [step for step in steps if step.parent is None]:
        usage = step.usage
        assert usage is not None
        if usage.dollars or not (usage.prompt_tokens or usage.output_tokens):
            dollars += usage.dollars
            continue
        named = [name for name in (step.info.get("response_model"), step.info.get("model")) if name]
        price = next((found for name in named if (found := price_for(str(name), prices)) is not None), None)
        if price is None:
            unpriced.add(str(named[-1]) if named else "a model that is not named")
        else:
            dollars += price.of(usage.prompt_tokens, usage.output_tokens, _cached(step))
    return dollars + (_beside(run, called) if called else 0.0), unpriced


def _beside(run: Trajectory, called: Sequence[Step]) -> float:
    """Dollars of steps that are no model calls and have none inside, each once."""
    if all(step.kind == LLM or step.usage is None for step in run.steps):
        return 0.0
    by_id = {step.id: step for step in run.steps if step.id}
    around: set[str] = set()
    for step in called:
        above = step.parent
        # Spans come from outside, and their parents may go round in a circle.
        while above in by_id and above not in around:
            around.add(above)
            above = by_id[above].parent
    others = [
        step for step in run.steps if step.kind != LLM and step.usage is not None and step.id not in around
    ]
    return sum((step.usage for step in others if step.usage is not None), Usage()).dollars


def _cached(step: Step) -> int:
    """Prompt tokens that were read from a cache, where they are part of those that are counted."""
    counts = step.info.get("usage")
    cached = counts.get("cached_input") if isinstance(counts, Mapping) else None
    return cached if isinstance(cached, int) else 0
