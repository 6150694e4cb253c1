"""`whet.improve`: a prompt, a function or an agent, by a table or by people's thumbs, in one call without `await`.

`whet improve FILE|MODULE:FUNCTION` is the same from the shell.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from ...errors import InputError
from ...judge.metrics import KnownJudge, suited
from ...models import OpenAIModel, Price
from ...models.base import Model
from ...models.budget import Meter
from ...models.prices import known_prices, price_for
from ...models.trial import trial_address
from ...prove.power import power_in_words
from ...record.rows import write_rows
from ...record.tables import RowTable, plain_value
from ...repository.prompt_files import WHOLE
from ...repository.scan import scan
from ...types import Json, Sampling
from ..datasets.division import standing
from ..loop import Progress, quiet
from .agents.agent import RepositoryAgent
from .function_proof import folds_wanted, function_folds
from .live import LiveLine
from .prompts.agent_table import plan_agent_table
from .prompts.improved import moved, of_hundred
from .prompts.tabled import (
    ImprovedPrompt,
    Intake,
    PromptPlan,
    PromptSettings,
    TableInput,
    improve_prompt,
    plan_prompt,
    read_examples,
)
from .prompts.thumbed import AgentPlan, ImprovedAgent, ThumbSettings, improve_agent, plan_agent
from .reports import EvolutionReport, flips
from .repositories import evolve_targets
from .search.cross_fitting import standing_in_folds
from .search.openevolve import Config
from .search.records import SearchProgress
from .search.settings import RepositoryInput, Settings

_Result = TypeVar("_Result")
Say = Callable[[str], None]
"""Called with a sentence for the person who waits."""
_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoints:
    """The models of one improvement, by name: of the prompt, of the proposer and of the judge."""

    model: Model | str | None = None
    proposer: Model | str | None = None
    judge: Model | str | None = None
    base_url: str | None = None
    api_key: str | None = None
    """OPENAI_API_KEY of the environment if None."""
    price: Price | None = None

    def judged_by(self, known: KnownJudge) -> Endpoints:
        """The same, where no judge is named with the model that the record's was measured with."""
        return replace(self, judge=known.model) if self.judge is None and known.model else self

    async def open(
        self, stack: AsyncExitStack, meter: Meter
    ) -> tuple[Model | None, Model | None, Model | None]:
        """Model, proposer and judge; a name that is not given is the model's.

        Raises:
            InputError: a name without an endpoint.
        """
        opened: dict[str, Model] = {}

        async def one(named: Model | str | None) -> Model | None:
            if named is None or not isinstance(named, str):
                return named
            if self.base_url is None:
                raise InputError(
                    f"--model {named} needs --base-url, its endpoint: an OpenAI-compatible address up to and "
                    "including /v1"
                )
            if named not in opened:
                opened[named] = await stack.enter_async_context(
                    OpenAIModel(
                        trial_address(self.base_url),
                        named,
                        api_key=self.api_key or os.environ.get("OPENAI_API_KEY"),
                        meter=meter,
                        prices={named: self.price} if self.price is not None else None,
                    )
                )
            return opened[named]

        model = await one(self.model)
        return model, await one(self.proposer) or model, await one(self.judge) or model


def is_prompt(target: str) -> bool:
    """True for the name of a file that is a prompt."""
    return Path(target).suffix.lower() in WHOLE


async def prompt_from_table(
    path: Path,
    source: TableInput,
    settings: PromptSettings,
    endpoints: Endpoints,
    *,
    say: Say = lambda sentence: None,
    progress: Progress = quiet,
    meter: Meter | None = None,
    dry_run: bool = False,
) -> ImprovedPrompt | PromptPlan:
    """Plan, say the plan, and do it.

    Args:
        meter: counts the calls, for who shows them.

    Returns:
        The plan alone where `dry_run`.

    Raises:
        InputError: no model, or something that cannot be read.
        TrainingRefused: the model cannot be asked.
    """
    if endpoints.model is None:
        raise InputError(
            f"a prompt is tried on a model: give --model and --base-url, under which {path} answers"
        )
    meter = meter or Meter()
    if settings.metric in ("judge", None):
        endpoints = endpoints.judged_by(KnownJudge.at(settings.store, settings.rubric))
    async with AsyncExitStack() as stack:
        model, proposer, judge = await endpoints.open(stack, meter)
        assert model is not None
        price = endpoints.price or price_for(model.name, known_prices())
        plan = plan_prompt(path, source, replace(settings, price=price), model, judge)
        for sentence in plan.sentences:
            say(sentence)
        if dry_run:
            return plan
        return await improve_prompt(plan, model, proposer=proposer, meter=meter, progress=progress)


def is_agent_file(target: str) -> bool:
    """True for the name of a Python file."""
    return target.endswith(".py") and ":" not in target


def agent_behind(target: str) -> str:
    """The file of `module:function`, where the function calls a model, as far as its text shows; else ""."""
    module, _, name = target.partition(":")
    if not name or is_prompt(target):
        return ""
    inside = module.replace(".", "/")
    places = (f"{inside}.py", f"src/{inside}.py", f"{inside}/__init__.py", f"src/{inside}/__init__.py")
    file = next((each for each in places if Path(each).is_file()), "")
    return file if file and (file, name) in scan(Path()).asking else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentInput:
    """An agent's file, and what its answers are judged by: the thumbs in the record, or a table."""

    path: Path
    settings: ThumbSettings
    source: TableInput | None = None
    """A table, whose right answers count and nobody's thumbs."""
    metric: str | None = None
    rubric: str = ""

    async def planned(self, endpoints: Endpoints, stack: AsyncExitStack, meter: Meter) -> AgentPlan:
        """What will be done; nothing is spent.

        Raises:
            InputError: as of `plan_agent` and `plan_agent_table`.
        """
        if self.source is None:
            return plan_agent(self.path, self.settings)
        judge = None
        if self.metric in ("judge", None):
            # The metric may be chosen by the look of the answers, so whoever would judge is there.
            known = KnownJudge.at(self.settings.store, self.rubric)
            asked = endpoints.judged_by(known) if endpoints.base_url else endpoints
            _, _, judge = await asked.open(stack, meter)
        return plan_agent_table(
            self.path, self.source, self.settings, metric=self.metric, rubric=self.rubric, judge=judge
        )


async def improve_planned(
    plan: AgentPlan,
    endpoints: Endpoints,
    stack: AsyncExitStack,
    *,
    meter: Meter,
    progress: Progress = quiet,
) -> ImprovedAgent:
    """Do what was planned.

    Raises:
        InputError: no model proposes.
        TrainingRefused: the plan is refused, the agent does not run, or a model cannot be asked.
    """
    if endpoints.model is None:
        raise InputError(
            "a model has to propose better prompts: give --model NAME and --base-url URL, an OpenAI-compatible "
            "address up to and including /v1"
        )
    if plan.rubric is not None:
        endpoints = replace(endpoints, judge=plan.rubric.model)
    _, proposer, judge = await endpoints.open(stack, meter)
    assert proposer is not None
    return await improve_agent(plan, proposer, judge=judge, meter=meter, progress=progress)


@dataclass(frozen=True, slots=True)
class FunctionPlan:
    """What will be done with a function, before anything is run."""

    target: str
    intake: Intake
    sentences: Sequence[str]
    folds: int = 0
    """Of the proof; 0 where rows are held back."""


def plan_function(
    target: str, source: TableInput, settings: Settings, asked: str = "", folds: int | None = None
) -> FunctionPlan:
    """Read function and table.

    Args:
        asked: name of the model that proposes; "" if none does.
        folds: of the proof; None for as many as the rows and the calls ask for.

    Raises:
        InputError, NotFoundError: no such function, or something that cannot be read.
    """
    agent = RepositoryAgent(Path(), (target,), None, False)
    callee = agent.called(target)
    intake = read_examples(source, missing="none", signature=callee.signature, seed=settings.seed or 42)
    known = [task for task in intake.tasks if task.answer_known]
    if not known:
        raise InputError(f"{intake.table.path}: no row has an expected answer, so nothing can be judged")
    kind, seed = suited(known)[1], settings.seed or 42
    if folds is None:
        folds = folds_wanted(known, calls=settings.calls if asked else None, seed=seed)
    elif folds:
        function_folds(known, folds, seed=seed)
    rows = standing(intake.tasks)
    proof = [rows.sentence, rows.power(settings.regime)]
    if folds:
        groups = len({task.group or task.id for task in known})
        proof = [
            standing_in_folds(known, folds, "tried with a text of the function"),
            power_in_words(len(known), groups, regime=settings.regime),
        ]
    who = (
        f"built-in edits and {asked} propose changes: at most {settings.calls} calls"
        if asked
        else "built-in edits propose changes; no model is asked, and nothing is paid (--model adds ideas)"
    )
    sentences = [
        f"{target} can change; it runs in the sandbox, a call for each row, and nothing in the repository is written",
        *intake.sentences,
        f"answers are compared for equality, type included ({kind})",
        *proof,
        who,
    ]
    return FunctionPlan(target, intake, sentences, folds)


async def function_from_table(
    target: str,
    source: TableInput,
    settings: Settings,
    endpoints: Endpoints,
    *,
    say: Say = lambda sentence: None,
    progress: SearchProgress | None = None,
    meter: Meter | None = None,
    dry_run: bool = False,
    folds: int | None = None,
) -> EvolutionReport | FunctionPlan:
    """Plan, say the plan, and let `whet evolve` do it.

    The rows as they were read are `rows.jsonl` in the output folder.

    Args:
        folds: as of `plan_function`.

    Raises:
        InputError, TrainingRefused, SandboxError: as of `evolve_targets`.
    """
    meter = meter or Meter()
    async with AsyncExitStack() as stack:
        _, proposer, _ = await endpoints.open(stack, meter)
        asked = proposer.name if proposer is not None else ""
        plan = plan_function(target, source, settings, asked, folds)
        for sentence in plan.sentences:
            say(sentence)
        if dry_run:
            return plan
        output = settings.output or Path("whet_output")
        output.mkdir(parents=True, exist_ok=True)
        rows = output / "rows.jsonl"
        write_rows(rows, plan.intake.tasks)
        models = [proposer] if proposer is not None else None
        repository = RepositoryInput(targets=(target,), data=rows)
        settings = replace(settings, folds=plan.folds)
        return await evolve_targets(repository, settings, models=models, progress=progress)


def function_sentences(report: EvolutionReport) -> list[str]:
    """The result of a function in words."""
    lines: list[str] = []
    for name, splits in report.json()["scores"].items():
        scored = {part: row for part, row in splits.items() if "before" in row and not report.folds}
        for part, what in (("train", "that were searched"), ("gate", "that nothing was chosen on")):
            if part in scored:
                row = scored[part]
                lines.append(f"on the {row['n']} rows {what}: {moved(row['before'], row['after'])}")
        if report.folds and not report.patch:
            row = splits["train"]
            lines.append(f"on all {row['n']} rows: {row['before']:.3f} → {row['after']:.3f}")
        if report.out_of_fold is not None and report.verdict is not None:
            lines.append(
                f"on {report.verdict.n} rows out of {report.folds} folds, each searched without it: "
                f"{moved(*report.out_of_fold)}; {of_hundred(*report.out_of_fold)}"
            )
        gained, lost = flips(report.rows[name])
        if report.patch:
            lines.append(f"of all rows {len(gained)} became right and {len(lost)} wrong")
        lines += [
            f"  wrong now: {old.task.instruction!r:.80}: {old.output!r:.60} → {new.output!r:.60}"
            for old, new in lost[:_SHOWN]
        ]
    lines += _unheard(report)
    if report.verdict is not None:
        lines += [f"  {reason}" for reason in report.verdict.reasons]
    else:
        lines.append(report.why)
        right = all((old.score("score") or 0.0) >= 1.0 for pairs in report.rows.values() for old, _ in pairs)
        if not report.models and not right and not report.patch:
            lines.append(
                "edits alone find nothing better; a model is the next step: --model NAME --base-url URL"
            )
    return lines


def _unheard(report: EvolutionReport) -> list[str]:
    """A sentence on each model of whose answers none could be used, so that what changed is the work of edits alone."""
    rows = {str(row["name"]): row for search in report.searches.values() for row in search.operators}
    return [
        f"{name}: {str(row['failure']).rstrip('.')}; none of its answers could be used, so edits alone proposed"
        for name, row in rows.items()
        if name.removeprefix("model ") in report.models and "failure" in row
    ]


def improve(
    target: str | Path,
    *,
    data: str | Path | Sequence[Mapping[str, Json]] | None = None,
    store: str | Path | None = None,
    input: str | Sequence[str] = (),
    expected: str | None = None,
    group: str | None = None,
    metric: str | None = None,
    rubric: str = "",
    model: Model | str | None = None,
    base_url: str | None = None,
    proposer: Model | str | None = None,
    judge: Model | str | None = None,
    calls: int = 200,
    agent_calls: int = 400,
    entry: str | None = None,
    prompt: str | None = None,
    release: bool = False,
    write: bool = False,
    output: str | Path = "whet_output",
    missing: Literal["none", "unknown"] | None = None,
    seed: int = 0,
    regime: Sampling = "new-group",
    say: Say | None = print,
) -> ImprovedPrompt | EvolutionReport | ImprovedAgent:
    """Make a prompt, a function or an agent better, and prove it on what nothing was chosen on.

    Runs in scripts and in notebooks, where an event loop is running already.

    >>> whet.improve("prompt.txt", data="examples.csv", model="small", base_url=url)  # doctest: +SKIP
    >>> whet.improve("my_agent.py", store="runs.db", model="small", base_url=url)  # doctest: +SKIP

    Args:
        target: a file that is a prompt (.txt, .md), a function as `module:function`, or an agent: its file (.py), or
            its function where that calls a model.
        data: a file of rows (CSV, TSV, JSON, JSON Lines, Parquet), or the rows. Without any an agent is improved by
            the thumbs in `store`.
        store: the record; of an agent's runs, or where answers are kept.
        input, expected, group: columns; guessed and said if omitted.
        metric: one of `whet.judge.metrics.METRICS`, of a prompt or an agent; chosen from the answers' look if None.
        rubric: what makes an answer good, for the metric `judge`.
        model: answers under a prompt and proposes; for a function and an agent it proposes. A name needs `base_url`.
        proposer: proposes in its place.
        judge: marks answers in its place.
        calls: most model calls, of a prompt or a function.
        agent_calls: most calls of an agent.
        entry, prompt: of an agent, as `whet improve --entry` and `--prompt` take them; found if None.
        release: put an agent's proven prompt live.
        write: put a proven prompt into its file; otherwise it is in the folder `output`.
        missing: an empty expected cell means that the right answer is None, or that nobody knows it.
        regime: how the rows came, which decides what they prove: `exchangeable` (more such rows), or `new-group` (rows
            of a group that was not seen). The plan says what either can prove, the Verdict what either says.
        say: called with each sentence of the plan; None says nothing, and shows no progress on standard error.

    Returns:
        An ImprovedPrompt or an ImprovedAgent (`proven`, `after`, `diff()`), or for a function the EvolutionReport.

    Raises:
        InputError: something is missing or cannot be read; says what.
        TrainingRefused: the model cannot be asked, or nothing can be judged, as where thumbs do not tell what people
            like.
    """
    inputs = (input,) if isinstance(input, str) else tuple(input)
    source = None
    if data is not None:
        table = Path(data) if isinstance(data, str | Path) else _table(data)
        source = TableInput(data=table, input=inputs, expected=expected, group=group, missing=missing)
    endpoints = Endpoints(model=model, proposer=proposer, judge=judge, base_url=base_url)
    tell, meter = say or (lambda sentence: None), Meter()
    record = None if store is None else Path(store)
    behind = "" if is_agent_file(str(target)) else agent_behind(str(target))
    if behind or is_agent_file(str(target)):
        if source is None and (record is None or not record.exists()):
            raise InputError(
                f"{target} is improved by the thumbs in its record, or by a table: give store=, a file that exists, "
                "or data="
            )
        thumbed = ThumbSettings(
            store=record or Path(output) / "runs.db",
            entry=entry or (str(target) if behind else None),
            prompt=prompt,
            calls=agent_calls,
            seed=seed,
            output=Path(output),
            regime=regime,
            release=release,
        )
        asked = AgentInput(
            path=Path(behind or target), settings=thumbed, source=source, metric=metric, rubric=rubric
        )
        return run_anywhere(lambda: _agent(asked, endpoints, tell, meter, quiet=say is None))
    if source is None:
        raise InputError(f"{target} is improved by examples: give data=, a table of them")
    if is_prompt(str(target)):
        settings = PromptSettings(
            metric=metric,
            rubric=rubric,
            calls=calls,
            seed=seed,
            output=Path(output),
            write=write,
            regime=regime,
            store=record,
        )
        with LiveLine(meter, calls=calls, quiet=say is None) as line:
            result = run_anywhere(
                lambda: prompt_from_table(
                    Path(target), source, settings, endpoints, say=tell, progress=line, meter=meter
                )
            )
        assert isinstance(result, ImprovedPrompt)
        return result
    if metric is not None or write:
        raise InputError("metric and write are for a prompt: a function's answers are compared for equality")
    search = replace(function_settings(calls, Path(output), seed, model is not None, record), regime=regime)
    with LiveLine(meter, calls=search.calls, proposals=search.config.iterations, quiet=say is None) as line:
        report = run_anywhere(
            lambda: function_from_table(
                str(target), source, search, endpoints, say=tell, progress=line.proposal, meter=meter
            )
        )
    assert isinstance(report, EvolutionReport)
    return report


async def _agent(
    asked: AgentInput, endpoints: Endpoints, say: Say, meter: Meter, *, quiet: bool
) -> ImprovedAgent:
    async with AsyncExitStack() as stack:
        plan = await asked.planned(endpoints, stack, meter)
        for sentence in plan.sentences:
            say(sentence)
        with LiveLine(meter, calls=plan.model_calls, quiet=quiet) as line:
            return await improve_planned(plan, endpoints, stack, meter=meter, progress=line)


def function_settings(calls: int, output: Path, seed: int, asks: bool, store: Path | None = None) -> Settings:
    """Settings of `whet evolve` for a function and a table: few proposals in flight, for each builds on the last."""
    return Settings(
        # As many as there are calls for, a model being asked every second time; a search that stands still ends before.
        config=Config(iterations=2 * calls, patience=60) if asks else Config(iterations=100),
        output=output,
        store=store,
        calls=calls if asks else None,
        seed=seed or None,
        target_score=1.0,
        in_flight=4 if asks else None,
    )


def _table(rows: Sequence[Mapping[str, Json]]) -> RowTable:
    if hasattr(rows, "to_dict"):  # a DataFrame
        rows = rows.to_dict("records")
    lines = [
        (number, {str(name): plain_value(value) for name, value in row.items()})
        for number, row in enumerate(rows, 1)
    ]
    if not lines:
        raise InputError("data holds no rows")
    return RowTable(
        Path("data"), lines, list(dict.fromkeys(name for _, row in lines for name in row)), unit="row"
    )


def run_anywhere(work: Callable[[], Coroutine[Any, Any, _Result]]) -> _Result:
    """Run a coroutine to its end, also where an event loop is running in this thread already, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work())
    context = contextvars.copy_context()
    begun: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any] | None]] = []

    async def held() -> _Result:
        begun.append((asyncio.get_running_loop(), asyncio.current_task()))
        return await work()

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(context.run, lambda: asyncio.run(held()))
        try:
            return future.result()
        except KeyboardInterrupt:
            # It reached this thread alone: the other would go on asking, and leaving the block waits for it.
            future.cancel()
            for loop, task in begun:
                with contextlib.suppress(RuntimeError):  # it has ended meanwhile
                    loop.call_soon_threadsafe(task.cancel)  # type: ignore[union-attr]
            raise
