"""Prompts in files and a table of examples: is one of them better than the prompt that stands, and which?

Nothing is searched here: people, GEPA or a coding agent wrote the prompts.  Each answers every row; of several the best
is chosen on some of the rows and judged on the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from ...errors import InputError
from ...judge import Reward, name_of
from ...judge.metrics import JudgeMetric, KnownJudge, kept_marks, metric_named, shown, suited
from ...models import RecordedModel
from ...models.budget import Meter
from ...record.store import Log, Store
from ...types import Bundle, Split, Task, Verdict, Version
from ..experiment import Experiment
from .editing.slots import INPUT, slot_sentences
from .gating import gate_of, power_of_best
from .in_one_call import Endpoints
from .prompts.prompted import PromptAgent
from .prompts.tabled import Intake, PromptSettings, TableInput, prompt_text, read_examples
from .search.cross_fitting import as_split


async def gate_prompts(
    baseline: Path,
    candidates: Sequence[Path],
    source: TableInput,
    settings: PromptSettings,
    endpoints: Endpoints,
    store: Store,
    *,
    rewards: Sequence[Reward] = (),
    metric: str | None = None,
    say: Callable[[str], None] = lambda sentence: None,
    **options: Any,
) -> Verdict:
    """Compare prompts with the one that stands, on the rows of a table.

    Args:
        source: rows that none of the prompts was written from.
        settings: metric, rubric, temperature, seed, alpha and regime.
        store: answers that it holds are not asked for again.
        rewards: judge, too. Where the settings name no metric, nothing is compared with the expected answer, and the
            first of these decides.
        metric: the score that decides in its place.
        say: told what will be compared, what it can prove and how many calls it takes, before anything is spent.
        options: `margin` and `guardrails` of `Experiment.gate`.

    Raises:
        InputError: no model, a file that cannot be read, two candidates with the same text, or rows that nothing can
            be compared by.
        GateError: there is nothing to compare.
    """
    if endpoints.model is None:
        raise InputError(
            f"prompts are tried on a model: give --model and --base-url, under which {baseline} answers"
        )
    texts = {str(path): prompt_text(path) for path in candidates}
    if len(set(texts.values())) < len(texts) or len(texts) < len(candidates):
        raise InputError(f"two of these prompts are the same: {', '.join(map(str, candidates))}")
    intake = read_examples(source, missing="unknown", divides=False)
    compares = settings.metric is not None or not rewards
    rows = as_split([task for task in intake.tasks if task.answer_known or not compares], Split.GATE)
    if not rows:
        raise InputError(f"{intake.table.path}: not one cell of {intake.columns.expected} says what is right")
    name, why = (settings.metric, "") if settings.metric else suited(rows)
    known = KnownJudge.of(store, settings.rubric) if compares and name == "judge" else KnownJudge()
    async with AsyncExitStack() as stack:
        model, _, judge = await endpoints.judged_by(known).open(stack, Meter())
        assert model is not None
        judges, told = list(rewards), list[str]()
        if compares:
            metric_of = metric_named(name, rows, model=judge or model, rubric=settings.rubric, known=known)
            told = [
                metric_of.sentence + (f" (chosen because {why}; --metric names another)" if why else ""),
                *(f"  {line}" for line in shown(metric_of, rows).lines),
            ]
            judges.insert(0, kept_marks(metric_of, store))
        count = len(rows) * (1 + len(texts))
        per_run = 2 if isinstance(judges[0], JudgeMetric) else 1
        for sentence in (
            *(f"{name}: {len(text):,} characters" for name, text in texts.items()),
            *slot_sentences(prompt_text(baseline), intake.columns.input),
            *intake.sentences,
            *told,
            *power_of_best(rows, len(texts), settings.regime),
            f"at most {per_run * count} calls of {model.name}: {len(rows)} rows under {1 + len(texts)} prompts",
        ):
            say(sentence)
        return await _judged(
            baseline,
            texts,
            intake,
            PromptAgent(
                baseline.name,
                prompt_text(baseline),
                RecordedModel(model, Log(store, f"answers/{baseline.name}")),
                temperature=settings.temperature,
                column=intake.columns.input[0] if len(intake.columns.input) == 1 else INPUT,
            ),
            rows,
            judges,
            settings,
            store,
            metric=metric or name_of(judges[0]),
            **options,
        )


async def _judged(
    baseline: Path,
    texts: dict[str, str],
    intake: Intake,
    agent: PromptAgent,
    rows: Sequence[Task],
    rewards: Sequence[Reward],
    settings: PromptSettings,
    store: Store,
    **options: Any,
) -> Verdict:
    def bundle(text: str) -> Bundle:
        return Bundle([Version(resource=agent.resource, content=text, kind="prompt")])

    experiment = Experiment(
        env=agent,
        tasks=rows,
        rewards=rewards,
        store=store,
        seed=settings.seed,
        name=f"gate/{agent.resource}",
        concurrency=8,
    )
    return await gate_of(
        experiment,
        {name: bundle(text) for name, text in texts.items()},
        against=bundle(agent.default),
        alpha=settings.alpha,
        regime=settings.regime,
        label=str(baseline),
        **options,
    )
