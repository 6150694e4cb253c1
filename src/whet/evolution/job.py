"""One run of `whet evolve`: files in, a search, files out.

Writes into its folder: `best/` (the best program and what is known of it), `evolution.patch` (what
`git apply` takes), `history.json` (scores, lineage, what each operator earned), `checkpoints/` (as
OpenEvolve reads them), and `evolution.db` with `answers.db` (the record, and the model answers that
were paid for).  Run again with the same program, evaluator and options, it goes on where it ended.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import shlex
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from importlib.machinery import PathFinder
from pathlib import Path

import msgspec

from ..budget import Meter
from ..errors import InputError
from ..models import Ensemble, OpenAIModel, Price, Recorded
from ..models.base import Model
from ..sandbox import Limits, Local, Pool, Sandbox
from ..store import Store
from ..types import Budget, Json, digest
from .blocks import BLOCKS
from .commands import Agent, Command
from .edits import EDITS
from .engine import Found, Search, SearchOptions
from .estimate import Estimate, estimated
from .journal import Record
from .journal import opened as opened_journal
from .judging import WARM, Evaluator, Judge
from .openevolve import Config, ModelConfig, read_checkpoint, write_checkpoint
from .population import Best, Front, Islands, Population
from .program import Program, regions, text_of
from .proposers import SYSTEM, Proposer, Proposes
from .reflection import Gepa, Gradient
from .targets import as_written, diff


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What `whet evolve` is asked to do."""

    program: Path
    evaluator: Path
    config: Config | None = None
    iterations: int | None = None
    budget: Budget = field(default_factory=Budget)
    """Of the search and its models: calls, tokens, dollars, and wall-clock seconds."""
    price: Price | None = None
    """Of the models, where dollars are limited or estimated."""
    cpu_seconds: float | None = None
    """CPU time of candidates and search together after which nothing more is proposed."""
    offline: bool = False
    """Ask no model, whatever is configured."""
    edits: bool = True
    """Edit without a model, too; otherwise everything is left to the models."""
    workers: int | None = None
    timeout: float | None = None
    seed: int | None = None
    output: Path | None = None
    target: float | None = None
    population: str = "auto"
    """`islands`, `best` (mu + lambda), `front` (per instance), or `auto`: the front for a program without
    Python, else islands."""
    ask: str = "changes"
    """How models are asked: for `changes` as the config says, by `apo`, or by `gepa` (`reflection.py`)."""
    command: str = ""
    """An external command that proposes, too (`commands.py`); split as a shell would, run without one."""
    command_seconds: float = 600.0
    """After which it is ended."""
    checkpoint: Path | None = None
    unsafe_local: bool = False
    """Run without the sandbox; for code that one trusts."""


@dataclass(frozen=True, slots=True)
class Report:
    """What came of a Job."""

    found: Found
    output: Path
    best_path: Path
    patch: str
    seconds: float
    ignored: Sequence[str]
    """Options of the config that change nothing here."""
    trusted_only: bool
    models: Sequence[str]
    spent: Mapping[str, Json]
    """See `spent_of`."""
    repeated: tuple[float, float] | None = None
    """What the evaluator gave the start program at first, and when it was asked again."""

    def json(self) -> dict[str, Json]:
        """What `--json` prints."""
        found = self.found
        return {
            "best_score": found.best.score,
            "start_score": found.start.score,
            "start_repeated": self.repeated,
            "metrics": dict(found.best.metrics),
            "iterations": found.iterations,
            "evaluations": found.evaluations,
            "scored": sum(record.status == "scored" for record in found.records if record.number > 0),
            "timeouts": found.timeouts,
            "duplicates_skipped": found.duplicates,
            "seconds": round(self.seconds, 3),
            "cpu_seconds": round(found.cpu_seconds, 3),
            "best_program": str(self.best_path),
            "patch": str(self.output / "evolution.patch"),
            "stopped": found.stopped,
            "resumed": found.replayed,
            "models": list(self.models),
            "ignored_options": list(self.ignored),
            "spent": dict(self.spent),
            "co_resident": True,
            "trusted_only": self.trusted_only,
            "operators": found.operators,
        }


async def run_job(
    job: Job,
    *,
    models: Sequence[Model] | None = None,
    progress: Callable[[Record], None] | None = None,
    notice: Callable[[str], None] | None = None,
) -> Report:
    """Run a Job.

    Args:
        models: asked instead of those of the config.
        notice: told why a search begins anew where there is an earlier one in the folder.

    Raises:
        InputError: a file, option or config that cannot be used.
        TrainingRefused: an evaluator that cannot tell better from worse.
        SandboxError: the sandbox cannot be trusted here, with the fix.
    """
    started = time.monotonic()
    async with AsyncExitStack() as stack:
        opened = await _open(job, models, stack)
        config, output, start, judge = opened.config, opened.output, opened.start, opened.judge
        options, proposers = opened.options, opened.proposers
        store = stack.enter_context(Store(output / "evolution.db"))
        seeds = read_checkpoint(job.checkpoint, start.main) if job.checkpoint else []
        population = _population(job, config, start)
        decides = [options, judge.options, config.islands, job.population, seeds]
        made_of = _made_of(start, judge.evaluator, decides, proposers)
        search = Search(
            start,
            judge,
            population,
            options=options,
            proposers=proposers,
            journal=opened_journal(store, digest(made_of), job.program.name, made_of, notice),
            meter=opened.meter,
            progress=progress,
            seeds=seeds,
        )
        found = await search.run()
    best_path, patch = _write(job, output, found, population, config)
    return Report(
        found,
        output,
        best_path,
        patch,
        time.monotonic() - started,
        config.ignored,
        judge.trusted_only,
        names_of(proposers),
        spent_of(opened.meter, job.price),
        judge.repeated,
    )


async def estimate_job(job: Job, *, models: Sequence[Model] | None = None) -> Estimate:
    """What a Job would take; judges the start program once, and asks no model."""
    async with AsyncExitStack() as stack:
        opened = await _open(job, models, stack)
        return await estimated(
            opened.judge, opened.start, opened.options, opened.proposers, job.budget, price=job.price
        )


@dataclass(frozen=True, slots=True)
class _Opened:
    """Everything that a Job needs, closed with its stack."""

    config: Config
    output: Path
    start: Program
    judge: Judge
    options: SearchOptions
    proposers: Sequence[Proposes]
    meter: Meter


async def _open(job: Job, models: Sequence[Model] | None, stack: AsyncExitStack) -> _Opened:
    config = job.config or Config(iterations=100)
    output = job.output or job.program.parent / "whet_output"
    start, evaluator = _read(job.program), Evaluator.read(job.evaluator, without=output)
    output.mkdir(parents=True, exist_ok=True)
    options = _options(job, config, start)
    judging = replace(config.judge, timeout=config.judge.timeout if job.timeout is None else job.timeout)
    meter = Meter(job.budget)
    proposers: list[Proposes] = []
    if not job.offline:
        proposers += await proposers_of(
            config, models, output, stack, meter=meter, price=job.price, ask=job.ask
        )
    if job.command:
        proposers.append(command_of(job.command, job.command_seconds, output, stack))
    if not proposers and not options.edits:
        raise InputError(
            "edits are off and no model is configured; give llm.models in --config, or leave --models-only out"
        )
    pool = await stack.enter_async_context(_pool(job, judging.timeout, config, start, evaluator, options))
    return _Opened(config, output, start, Judge(pool, evaluator, judging), options, proposers, meter)


def _read(path: Path) -> Program:
    text = text_of(path, "program")
    regions(text)
    return Program({path.name: text}, path.name)


def _options(job: Job, config: Config, start: Program) -> SearchOptions:
    timed = job.budget.seconds is not None or job.cpu_seconds is not None
    iterations = job.iterations if job.iterations is not None or timed else config.iterations
    if iterations is not None and iterations < 1:
        raise InputError(f"--iterations {iterations}: it must be at least 1")
    workers = config.workers if job.workers is None else job.workers
    return SearchOptions(
        iterations=iterations,
        seed=config.seed if job.seed is None else job.seed,
        workers=workers,
        in_flight=max(8, workers),
        edits=tuple(EDITS if start.main.endswith(".py") else BLOCKS) if job.edits else (),
        target=job.target,
        patience=config.patience,
        cpu_seconds=job.cpu_seconds,
        max_length=max(config.max_length, 2 * len(start.text)),
    )


def _population(job: Job, config: Config, start: Program) -> Population:
    kind = job.population
    if kind == "auto":
        kind = "islands" if start.main.endswith(".py") else "front"
    made: dict[str, Callable[[], Population]] = {
        "islands": lambda: Islands(config.islands),
        "best": Best,
        "front": Front,
    }
    if kind not in made:
        raise InputError(f"population {kind!r}: it must be auto, {', '.join(made)}")
    return made[kind]()


async def proposers_of(
    config: Config,
    models: Sequence[Model] | None,
    output: Path,
    stack: AsyncExitStack,
    *,
    meter: Meter,
    price: Price | None = None,
    ask: str = "changes",
) -> list[Proposes]:
    """One proposer per model, or one for all where the config weights them; every answer is kept.

    Args:
        models: instead of those of the config.
        meter: what their calls are reserved on.
        ask: `changes`, `apo` or `gepa`.

    Raises:
        InputError: another way of asking, or dollars are limited and there is no price.
        MissingExtra: gepa is not installed.
    """
    if ask not in ("changes", "apo", "gepa"):
        raise InputError(f"--ask {ask!r}: models can be asked for changes, by apo or by gepa")
    pairs: list[tuple[Model, ModelConfig]] = []
    if models is not None:
        pairs = [(model, ModelConfig(name=model.name)) for model in models]
    else:
        if config.models and price is None and meter.left("dollars") is not None:
            raise InputError(
                "--dollars limits what models cost, and no price is known: give --price with the dollars per million "
                "tokens of prompt and of output"
            )
        for each in config.models:
            key = each.api_key or os.environ.get("OPENAI_API_KEY")
            prices = {each.name: price} if price is not None else None
            made = OpenAIModel(
                each.api_base, each.name, api_key=key, retry=each.retry, meter=meter, prices=prices
            )
            pairs.append((await stack.enter_async_context(made), each))
    weights = {each.weight for _, each in pairs}
    if len(weights) > 1:
        ensemble = Ensemble([(model, each.weight) for model, each in pairs], seed=config.seed)
        pairs = [(ensemble, pairs[0][1])]
    kept = [(stack.enter_context(Recorded(model, output / "answers.db")), each) for model, each in pairs]
    if ask != "changes":
        made_by = Gradient if ask == "apo" else Gepa
        return [made_by(model, feedback=config.feedback, settings=each.settings) for model, each in kept]
    return [
        Proposer(
            model,
            system=config.system or SYSTEM,
            diff=config.diff,
            feedback=config.feedback,
            feedback_characters=config.feedback_characters,
            settings=each.settings,
        )
        for model, each in kept
    ]


def names_of(proposers: Sequence[Proposes]) -> list[str]:
    """What a report calls them: a model by its own name."""
    return [each.model.name if isinstance(each, Proposer) else each.name for each in proposers]


def spent_of(meter: Meter, price: Price | None) -> dict[str, Json]:
    """What the models of a config took in this run: calls, tokens, and dollars, None where no price is known."""
    calls, tokens, dollars = (meter.spent[name] for name in ("calls", "tokens", "dollars"))
    known = price is not None or not calls
    return {"calls": int(calls), "tokens": int(tokens), "dollars": round(dollars, 6) if known else None}


def command_of(command: str, seconds: float, output: Path, stack: AsyncExitStack) -> Command:
    """A command as a proposer whose answers are kept.

    It runs in a folder of its own, so words that name a file from here are made absolute.

    Raises:
        InputError: no command, no such program, or quotes that are not closed.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise InputError(f"--command {command!r}: {error}") from error
    # Not resolved: the link of a virtual environment to its interpreter is what makes it one.
    words = [str(Path(word).absolute()) if Path(word).is_file() else word for word in words]
    if words and shutil.which(words[0]) is None:
        raise InputError(f"--command {command!r}: there is no program {words[0]} that can be run")
    return Command(stack.enter_context(Recorded(Agent(words, seconds=seconds), output / "answers.db")))


def _pool(
    job: Job, timeout: float, config: Config, start: Program, evaluator: Evaluator, options: SearchOptions
) -> Pool:
    limits = Limits(
        memory=(config.memory_mb or 2048) << 20,
        cpu_seconds=max(1.0, timeout),
        wall_seconds=timeout,
        processes=64,
    )
    texts = [start.text] if start.main.endswith(".py") else []
    given = evaluator.parts[evaluator.main]
    texts.append(given if isinstance(given, str) else given.decode())
    beside = {name.split("/")[0].removesuffix(".py") for name in evaluator.parts}
    modules = modules_of(texts, beside)
    sandbox = Local(limits=limits) if job.unsafe_local else Sandbox(limits=limits)
    return Pool(sandbox, modules=modules, workers=options.workers)


def modules_of(texts: Iterable[str], beside: Collection[str] = ()) -> tuple[str, ...]:
    """What Python texts import and is installed: loaded once, not per evaluation.

    Args:
        beside: modules that are staged with them.
    """
    named: list[str] = []
    for text in texts:
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                named += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                # `from scipy import optimize`: a module, or a name in one.
                named += [f"{node.module}.{alias.name}" for alias in node.names]
    left_out = {*beside, "openevolve", "__future__", "whet"}
    found = [_installed(name) for name in named if name.partition(".")[0] not in left_out]
    return tuple(dict.fromkeys([*WARM, *filter(None, found)]))


def _installed(name: str) -> str:
    """As much of a dotted name as is a module; "" for nothing.  Nothing of it is imported to see."""
    root, *parts = name.split(".")
    try:
        spec = importlib.util.find_spec(root)
    except (ImportError, ValueError):
        spec = None
    found = ""
    while spec is not None:
        found = spec.name
        inside = spec.submodule_search_locations
        spec = PathFinder.find_spec(f"{found}.{parts.pop(0)}", inside) if inside and parts else None
    return found


def _made_of(
    start: Program, evaluator: Evaluator, decides: Sequence[object], proposers: Sequence[Proposes]
) -> dict[str, str]:
    """What a search depends on: equal for all that finds the same, so the number of workers is not in it."""
    plain = []
    for each in decides:
        if isinstance(each, SearchOptions):
            # Neither does where one stops change what was found before.
            each = replace(each, iterations=None, workers=1, target=None, patience=None, cpu_seconds=None)
        elif isinstance(each, list):
            each = [program.id for program in each]
        plain.append(msgspec.to_builtins(each))
    found = {
        "the program": start.id,
        "its evaluator": evaluator.main,
        "options": digest(plain),
        "who proposes": digest([each.identity for each in proposers]),
    }
    for name, text in evaluator.parts.items():
        found[f"{name} beside the evaluator" if name != evaluator.main else name] = digest(
            text if isinstance(text, str) else text.hex()
        )
    return found


def _write(job: Job, output: Path, found: Found, population: Population, config: Config) -> tuple[Path, str]:
    suffix = job.program.suffix
    best = output / "best" / f"best_program{suffix}"
    best.parent.mkdir(exist_ok=True)
    written = job.program.read_bytes().decode()
    made = as_written(written, found.best.program.text)
    best.write_bytes(made.encode())
    patch = diff(folder_in_git(job.program.resolve().parent) + job.program.name, written, made)
    (output / "evolution.patch").write_bytes(patch.encode())
    lineage = [
        {
            "proposal": record.number,
            "operator": record.operator,
            "score": record.score,
            "donor": record.donor,
            "program": record.id,
        }
        for record in found.lineage()
    ]
    history = {
        "history": [{"proposal": number, "best_score": score} for number, score in found.history],
        "lineage": lineage,
        "operators": found.operators,
        "stopped": found.stopped,
    }
    (output / "history.json").write_text(json.dumps(history, indent=2), encoding="utf-8")
    info = {
        "id": found.best.program.id,
        "iteration": found.best.number,
        "metrics": dict(found.best.metrics),
        "score": found.best.score,
    }
    (output / "best" / "best_program_info.json").write_text(json.dumps(info, indent=2), encoding="utf-8")
    write_checkpoint(
        output, found.records, population.members(), config.islands.num_islands, found.best.program.main
    )
    return best, patch


def folder_in_git(folder: Path) -> str:
    """A folder as its git repository names it, with a slash at the end; "" at its root and outside of one."""
    for above in (folder, *folder.parents):
        if (above / ".git").exists():
            inside = folder.relative_to(above).as_posix()
            return "" if inside == "." else f"{inside}/"
    return ""
