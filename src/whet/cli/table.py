"""`whet improve` of one prompt or one function by a table of examples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cyclopts import Parameter

from ..errors import InputError
from .named import rubric_of
from .root import print_json

if TYPE_CHECKING:
    from ..learn.evolution.in_one_call import Endpoints
    from ..learn.evolution.prompts.tabled import ImprovedPrompt, TableInput
    from ..learn.evolution.reports import EvolutionReport
    from ..record.columns import ColumnNames
    from ..record.store import Store
    from ..types import Sampling, Task, Verdict

TOPIC = "One prompt or function, and a table"


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class NamedColumns:
    """Options that name the columns of a table."""

    input: tuple[str, ...] = ()
    """Column of the table that holds the input. May be repeated, except for an agent's tasks: the input is then all
    of them by name. If omitted, it is guessed from the names."""
    expected: str | None = None
    """Column that holds the right answer. If omitted, it is guessed."""
    group: str | None = None
    """Column that says which rows belong together: person, session, document. Such rows stay on one side of the
    proof."""

    def of(self, data: Path | None) -> ColumnNames:
        """The names, of the table in that file.

        Raises:
            InputError: columns are named, and no table is given.
        """
        from ..record.columns import ColumnNames

        names = ColumnNames(input=self.input, expected=self.expected, group=self.group)
        if names and data is None:
            raise InputError("--input, --expected and --group name columns of a table: give --data FILE")
        return names

    def tasks(self, data: Path | None) -> list[Task] | None:
        """The tasks of a file; None if there is none.

        Raises:
            InputError: as `of`, or the file holds something else.
        """
        from ..record.tasks import from_jsonl

        names = self.of(data)
        return None if data is None else from_jsonl(data, names)


AS_GUESSED = NamedColumns()


@dataclass(frozen=True, kw_only=True)
class TableColumns(NamedColumns):
    """Options that say what the columns of a table are."""

    missing: Literal["none", "unknown"] | None = None
    """Meaning of an empty cell of --expected: none, no answer is right (a function's None); or unknown. If omitted,
    none for a function and unknown for a prompt."""


@dataclass(frozen=True, kw_only=True)
class TableOptions(TableColumns):
    """Options of a prompt or a function that is improved by a table of examples."""

    metric: str | None = None
    """How a prompt's answers are compared: exact, normalised, numeric, contains, f1, json, label or judge. If omitted,
    chosen from the look of the expected answers and shown on three of them."""
    rubric: str = ""
    """What makes an answer good, for the metric judge: words, or a file of them (.md, .txt), which whet audit measures.
    If omitted, the rubric that whet label --rubric recorded in --store, where there is one."""
    calls: int = 200
    """Most model calls: to search, to propose, to judge and to prove together."""
    folds: int | None = None
    """Parts of the table, each tried with what was searched on the others, so that every row is behind the proof; 0
    holds a fifth of the rows back instead. If omitted, 3: for a prompt where --calls allow it, for a function where a
    fifth of the rows would prove little; else 0."""
    price: tuple[float, float] | None = None
    """Dollars per million prompt tokens, and per million output tokens. If omitted, the model's public price."""
    temperature: float | None = None
    """Of the prompt's calls. If omitted, the endpoint's own."""
    proposer_model: str | None = None
    """A model at the same endpoint that proposes changes. If omitted, --model."""
    judge_model: str | None = None
    """A model at the same endpoint that the metric judge asks. If omitted, --model."""
    output: Path = Path("whet_output")
    """Folder for the better prompt, the patch and the evidence."""
    write: bool = False
    """Put a prompt that is proven better into its file."""


@dataclass(frozen=True, kw_only=True)
class ImproveRun:
    """The options of `whet improve` that its roads share."""

    target: str
    store: Path | None
    model: str | None
    base_url: str | None
    alpha: float
    regime: Sampling
    seed: int
    dry_run: bool
    json: bool


@dataclass(frozen=True, kw_only=True)
class TableRun(ImproveRun):
    """Those of one prompt or function, and a table."""

    data: Path | None


def is_tabled(target: str, data: Path | None, rewards: tuple[str, ...]) -> bool:
    """True if `whet improve` of this target is ours: a prompt's file, or a function with rows and no reward."""
    from ..learn.evolution.in_one_call import is_prompt

    return is_prompt(target) or (data is not None and not rewards and ":" in target)


def table_input(data: Path, columns: TableColumns) -> TableInput:
    """A table, and which of its columns is what."""
    from ..learn.evolution.prompts.tabled import TableInput

    return TableInput(
        data=data,
        input=columns.input,
        expected=columns.expected,
        group=columns.group,
        missing=columns.missing,
    )


def improve_by_table(run: TableRun, options: TableOptions) -> int:
    """Say the plan, do it, print the result; 0 if it is proven, 1 if not.

    Raises:
        InputError: something is missing.
    """
    import asyncio

    from ..learn.evolution.in_one_call import Endpoints, is_prompt
    from ..models import Price

    if run.data is None:
        raise InputError(
            f"{run.target} is improved by examples: give --data FILE (CSV, JSON Lines, Parquet), with --input and "
            "--expected, its columns"
        )
    source = table_input(run.data, options)
    endpoints = Endpoints(
        model=run.model,
        proposer=options.proposer_model,
        judge=options.judge_model,
        base_url=run.base_url,
        price=None if options.price is None else Price(prompt=options.price[0], output=options.price[1]),
    )
    road = _prompt if is_prompt(run.target) else _function
    return asyncio.run(road(run, options, source, endpoints))


async def gate_by_table(
    prompts: Sequence[str], run: TableRun, columns: TableColumns, store: Store, **options: Any
) -> Verdict:
    """The Verdict on prompts in files: the first one stands, of the others the best is judged.

    Args:
        options: of `gate_prompts`; and `judge_model`, whom the metric `judge` asks.

    Raises:
        InputError: something is missing, or is no prompt's file.
    """
    from ..judge.metrics import METRICS
    from ..learn.evolution.in_one_call import Endpoints, is_prompt
    from ..learn.evolution.prompt_gate import gate_prompts
    from ..learn.evolution.prompts.tabled import PromptSettings

    others = [name for name in prompts if not is_prompt(name)]
    if others or len(prompts) < 2:
        what = f"{others[0]} is no prompt's file" if others else f"{prompts[0]} is compared with nothing"
        raise InputError(
            f"{what}: give the prompt that stands and those that may be better, whet gate OLD.txt NEW.txt --also "
            "NEWER.txt --data FILE"
        )
    if run.data is None:
        raise InputError("prompts are judged on rows that none of them was written from: give --data FILE")
    judge_model, rewards = options.pop("judge_model"), options.pop("rewards")
    metric = options.pop("metric")
    compares = metric if metric in METRICS else None
    if metric is not None and compares is None and not rewards:
        raise InputError(f"--metric {metric} is none of {', '.join(METRICS)}, and no --reward is given")
    settings = PromptSettings(
        metric=compares, seed=run.seed, alpha=run.alpha, regime=run.regime, store=run.store
    )
    return await gate_prompts(
        Path(prompts[0]),
        [Path(name) for name in prompts[1:]],
        table_input(run.data, columns),
        settings,
        Endpoints(model=run.model, judge=judge_model, base_url=run.base_url),
        store,
        rewards=rewards,
        metric=None if compares else metric,
        say=_silent if run.json else print,
        **options,
    )


async def _prompt(run: TableRun, options: TableOptions, source: TableInput, endpoints: Endpoints) -> int:
    from ..learn.evolution.in_one_call import prompt_from_table
    from ..learn.evolution.live import LiveLine
    from ..learn.evolution.prompts.tabled import ImprovedPrompt, PromptSettings
    from ..models.budget import Meter

    settings = PromptSettings(
        metric=options.metric,
        rubric=rubric_of(options.rubric),
        calls=options.calls,
        folds=options.folds,
        temperature=options.temperature,
        seed=run.seed,
        alpha=run.alpha,
        regime=run.regime,
        output=options.output,
        store=run.store,
        write=options.write,
    )
    meter = Meter()
    with LiveLine(meter, calls=options.calls, quiet=run.json) as line:
        result = await prompt_from_table(
            Path(run.target),
            source,
            settings,
            endpoints,
            say=_silent if run.json else print,
            progress=line,
            meter=meter,
            dry_run=run.dry_run,
        )
    if not isinstance(result, ImprovedPrompt):
        _plan(run, result.sentences)
        return 0
    if run.json:
        print_json({**result.json(), "plan": list(result.plan)})
    else:
        _print_prompt(result)
    return 0 if result.proven else 1


async def _function(run: TableRun, options: TableOptions, source: TableInput, endpoints: Endpoints) -> int:
    from ..learn.evolution.in_one_call import function_from_table, function_settings
    from ..learn.evolution.live import LiveLine
    from ..learn.evolution.reports import EvolutionReport
    from ..models.budget import Meter

    for name, given in (
        ("--metric", options.metric),
        ("--write", options.write),
        ("--rubric", options.rubric),
    ):
        if given:
            raise InputError(
                f"{name} is for a prompt, not for a function, whose answers are compared for equality"
            )
    asks = bool(run.model or options.proposer_model)
    settings = function_settings(options.calls, options.output, run.seed, asks, run.store)
    settings = replace(settings, regime=run.regime, alpha=run.alpha)
    meter = Meter()
    proposals = settings.config.iterations
    with LiveLine(meter, calls=settings.calls, proposals=proposals, quiet=run.json) as line:
        report = await function_from_table(
            run.target,
            source,
            settings,
            endpoints,
            say=_silent if run.json else print,
            progress=line.proposal,
            meter=meter,
            dry_run=run.dry_run,
            folds=options.folds,
        )
    if not isinstance(report, EvolutionReport):
        _plan(run, report.sentences)
        return 0
    if run.json:
        print_json(report.json())
    else:
        _print_function(report)
    return 0 if report.verdict is not None and report.verdict.releasable else 1


def _plan(run: TableRun, sentences: Sequence[str]) -> None:
    if run.json:
        print_json({"plan": list(sentences)})


def _silent(*_: object, **__: object) -> None:
    """Says nothing: `--json` prints one object."""


def _print_prompt(result: ImprovedPrompt) -> None:
    print()
    for sentence in result.sentences():
        print(sentence)
    if not result.patch:
        print(f"\nnothing better was found; {result.path} stays as it is")
        return
    print(f"\n{result.patch}")
    if not result.proven:
        print(f"not proven, so {result.path} stays as it is; to read: {result.written}")
    elif result.written == result.path:
        print(f"proven better, and written to {result.path}")
    else:
        print(f"proven better: {result.written}; --write puts it into {result.path}")


def _print_function(report: EvolutionReport) -> None:
    from ..learn.evolution.in_one_call import function_sentences

    print()
    for sentence in function_sentences(report):
        print(sentence)
    if report.patch:
        applied = "not proven, for reading only" if report.refused else "git apply"
        print(f"\n{report.patch}\npatch: {report.patch_path} ({applied})")
