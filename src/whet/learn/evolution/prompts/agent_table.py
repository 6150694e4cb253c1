"""An agent's prompt, improved by a table of questions and right answers: the agent answers, a metric compares.

`plan_agent_table` reads the agent's file and the table and spends nothing; `improve_agent` (`thumbed.py`) does what it
planned, as it does where people's thumbs are the evidence.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ....errors import InputError
from ....judge.metrics import KnownJudge, metric_named, shown, suited
from ....models.base import Model
from ....prove.power import power_in_words
from ....record.store import Store
from ....types import Split
from ...datasets.division import standing
from ...datasets.thumbs import ThumbEvidence, ThumbRows
from ..agents.live_prompt import LivePrompts
from .tabled import TableInput, read_examples
from .thumbed import LEAST, PROOF, AgentPlan, ThumbSettings, cost_in_words, located


def plan_agent_table(
    path: Path,
    source: TableInput,
    settings: ThumbSettings,
    *,
    metric: str | None = None,
    rubric: str = "",
    judge: Model | None = None,
) -> AgentPlan:
    """Read agent and table, choose the metric, and divide the rows.

    Args:
        metric: one of whet.judge.metrics.METRICS; chosen from the look of the expected answers if None.
        rubric: what makes an answer good, for the metric `judge`; the record's proven one if omitted.
        judge: whom that metric asks.

    Raises:
        InputError: no entry, no prompt, an unclear column, too few rows or calls, or a metric that cannot tell.
    """
    settings.store.parent.mkdir(parents=True, exist_ok=True)
    with Store(settings.store) as store:
        runs = list(store.trajectories())
        released = LivePrompts.of(store)
    found = located(path, settings, runs, released)
    entry = found.agent.entry
    assert entry is not None
    intake = read_examples(
        source, missing="unknown", signature=found.agent.callees[entry].signature, seed=settings.seed
    )
    known = [task for task in intake.tasks if task.answer_known]
    if not known:
        raise InputError(
            f"{intake.table.path}: not one cell of {intake.columns.expected} says what is right; name another column "
            "with --expected, or give --missing none where an empty cell is the right answer"
        )
    name, why = (metric, "") if metric else suited(known)
    compares = metric_named(
        name,
        known,
        model=judge,
        rubric=rubric,
        known=KnownJudge.at(settings.store, rubric) if name == "judge" else None,
    )
    tried = shown(compares, known)
    # Nothing is chosen on validation rows here, so they prove as well.
    held = [task for task in known if task.split is not Split.TRAIN][: int(PROOF * settings.calls / 2)]
    tasks = [
        replace(task, initial_state={**task.initial_state, "function": entry}, split=split)
        for part, split in (
            ([task for task in known if task.split is Split.TRAIN], Split.TRAIN),
            (held, Split.GATE),
        )
        for task in part
    ]
    rows = ThumbRows(tasks, [], [], [])
    refused = ""
    stands = standing(tasks)
    if stands.gain is None:
        refused = stands.sentence
    elif settings.calls - 2 * rows.gate_inputs < LEAST:
        proves = 2 * rows.gate_inputs
        refused = f"--agent-calls {settings.calls}: {proves} of them prove, and {LEAST} are needed to search"
    sentences = [
        *found.sentences,
        *intake.sentences,
        compares.sentence + (f" (chosen because {why}; --metric names another)" if why else ""),
        *(f"  {line}" for line in tried.lines),
        stands.sentence,
    ]
    evidence = ThumbEvidence([], len(runs), unnamed=False)
    plan = AgentPlan(found, evidence, rows, None, settings, sentences, refused, metric=compares)
    if not refused:
        groups = len({task.group or task.id for task in rows.gate})
        power = power_in_words(len(rows.gate), groups, regime=settings.regime)
        sentences += [power, cost_in_words(plan, runs)]
        if settings.release:
            plan = replace(plan, refused=found.unreleasable)
    return plan
