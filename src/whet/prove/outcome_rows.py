"""What a Verdict rests on, as rows that `whet verdict` reads again: one per task and side, in the order of the gate.

A row has the task's id, its group by hash (a group may be a person), the value that decided under `success`, those of
the guardrails under their names, what the run cost and took, and the id of the run.  It has no text of the run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..models.prices import known_prices
from ..models.spending import Price
from ..record.costs import dollars_of
from ..types import Group, Json, Outcome, Trajectory, Verdict, digest
from .guardrails import Guardrail
from .results import by_task

SLICES = ("slice", "kind", "category")
"""Keys of a Task's `meta` that say what kind of task it is."""
_OWN = frozenset({"task", "task_id", "id", "group", "success", "score", "outcome", "slice", "run"})
"""Keys of a row under which no guardrail can stand."""


def outcomes_of(
    verdict: Verdict,
    baseline: Sequence[Group],
    candidate: Sequence[Group],
    metric: str,
    guardrails: Sequence[Guardrail] = (),
) -> dict[str, Json]:
    """What a Verdict rests on: both sides' rows, and how to read them."""
    prices = known_prices()
    told = [rail for rail in guardrails if rail.metric not in _OWN]
    names = [rail.metric for rail in told]
    return {
        "verdict": verdict.id,
        "metric": metric,
        "margin": verdict.margin,
        "regime": verdict.regime,
        "guardrails": {
            way: [rail.text for rail in told if rail.rises is rises]
            for way, rises in (("not_lower", True), ("not_higher", False))
        },
        "baseline": rows_of(baseline, metric, prices, names),
        "candidate": rows_of(candidate, metric, prices, names),
    }


def rows_of(
    groups: Sequence[Group], metric: str, prices: Mapping[str, Price], guards: Sequence[str] = ()
) -> list[dict[str, Json]]:
    """The rows of one side of the gate.

    Args:
        guards: metrics that may not get worse.
    """
    results = by_task(groups, "one")
    rows: list[dict[str, Json]] = []
    for group in groups:
        result = results[group.task.id]
        row: dict[str, Json] = {"task": result.task}
        if result.group:
            row["group"] = digest(result.group, 12)
        if result.outcome is Outcome.INFRASTRUCTURE_ERROR:
            row["outcome"] = result.outcome.value
        else:
            row["success"] = result.worth(metric)
        row |= _spent(group.trajectories, prices)
        # After what was spent: a reward may be called cost, and then it is what was guarded.
        row |= {guard: value for guard in guards if (value := result.worth(guard)) is not None}
        kind = next((group.task.meta[name] for name in SLICES if group.task.meta.get(name)), None)
        if isinstance(kind, str | int):
            row["slice"] = str(kind)[:80]
        if group.trajectories:
            row["run"] = group.trajectories[0].id
        rows.append(row)
    return rows


def _spent(runs: Sequence[Trajectory], prices: Mapping[str, Price]) -> dict[str, Json]:
    """Mean dollars and seconds of a task's runs, where they are known."""
    spent: dict[str, Json] = {}
    priced = [dollars_of(run, prices) for run in runs]
    if priced and not any(unpriced for _, unpriced in priced) and any(dollars for dollars, _ in priced):
        spent["cost"] = sum(dollars for dollars, _ in priced) / len(priced)
    seconds = [run.seconds for run in runs if run.seconds is not None]
    if seconds:
        spent["seconds"] = sum(seconds) / len(seconds)
    return spent
