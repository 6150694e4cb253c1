"""`whet evolve PROGRAM EVALUATOR`: files in, an Experiment on the pair of them, files out.

Writes into its folder: `best/` (the best program and its metrics), `evolution.patch` (for `git apply`),
`bundle.json` (for `whet release`), `history.json` (scores, lineage, the gain of each operator), `checkpoints/` (as
OpenEvolve reads them), and `runs.db`, the record, unless another is given.  Run again with the same program,
evaluator and options, it resumes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from ...errors import BudgetExceeded
from ...models.base import Model
from ...models.budget import Meter
from ...record.reviewing import put_findings
from ...record.store import Store
from ...record.store.bundles import BUNDLE_FILE, write_bundle
from ...repository.text import as_written, diff
from ...sandbox import Pool
from ...types import Bundle, Group, digest
from ..experiment import Experiment
from ..loop import Context, Update
from .agents.candidates import ProgramCodec
from .editing.minimise import minimised
from .editing.program import Program, regions, text_of
from .reports import EvolutionReport
from .search.alarms import alarms_of
from .search.engine import Search, SearchOptions, SearchOutcome
from .search.estimate import Estimate, Searching, estimated
from .search.judging import Judging
from .search.openevolve import read_checkpoint, write_checkpoint
from .search.pair import EvaluatedProgram, EvaluatorFile, PairJudge
from .search.population import Population, population_of
from .search.proposers import Proposes
from .search.proposing import Proposing
from .search.records import ProposalRecord, opened
from .search.settings import Settings, folder_in_git, lineage_of, modules_of

_TAKEN_BACK = 40
"""Programs with less changed that are judged after a search."""


@dataclass
class Programs(Searching):
    """Optimizer of the program of a EvaluatedProgram: one search.

    Args:
        subject: the program in a user's words.
        decides: settings of the population, of which the outcome depends, too.
        seeds: programs to begin with, too.
        progress: called with every committed record.
        notice: called with the reason for which a search begins anew.
    """

    pair: EvaluatedProgram
    options: SearchOptions
    proposing: Proposing
    population: Callable[[], Population]
    subject: str = "program"
    decides: Sequence[object] = ()
    seeds: Sequence[Program] = ()
    progress: Callable[[ProposalRecord], None] | None = None
    notice: Callable[[str], None] | None = None
    found: SearchOutcome | None = None
    members: Population | None = None
    repeated: tuple[float, float] | None = None
    evaluations: int = 0
    """Programs that reached the evaluator in this run, the judge's own among them."""

    name = "program"

    async def step(self, bundle: Bundle, groups: Sequence[Group], context: Context) -> Update:
        """Search.

        Raises:
            InputError: an evaluator or program that cannot be used.
            TrainingRefused: an evaluator that cannot tell better from worse.
        """
        pair, start = self.pair, self.pair.form.program(bundle)
        judge, self.members = PairJudge(pair, context.rollout), self.population()
        async with AsyncExitStack() as stack:
            proposers = await self.proposing.open(context, stack)
            made_of = self._made_of(start, proposers)
            search = Search(
                start,
                judge,
                self.members,
                options=self.options,
                proposers=proposers,
                records=opened(context.log, digest(made_of), self.subject, made_of, self.notice),
                meter=context.meter,
                progress=self.progress,
                seeds=self.seeds,
            )
            self.found = await search.run()
            await self._simplify(judge, self.found)
        self.repeated, self.evaluations = judge.repeated, judge.evaluations
        metrics = {"best": self.found.best.score, "proposals": float(self.found.iterations)}
        best = pair.form.bundle(self.found.best.program)
        return Update(bundle=best, state={"resumable": False}, metrics=metrics)

    async def _simplify(self, judge: PairJudge, found: SearchOutcome) -> None:
        """Take back what the best program's score does not need, where the evaluator repeats itself."""
        first, again = judge.repeated or (None, None)
        if first != again:
            return

        async def no_worse(shorter: Program) -> bool:
            score = (await judge.score(shorter)).score
            return score is not None and score >= found.best.score

        try:
            program, _ = await minimised(found.start.program, found.best.program, no_worse, _TAKEN_BACK)
        except BudgetExceeded:
            return
        found.best = replace(found.best, program=program)

    def start(self, context: Context) -> tuple[Judging, Program, int | None]:
        """See `Searching`."""
        return PairJudge(self.pair, context.rollout), self.pair.form.start, None

    def _made_of(self, start: Program, proposers: Sequence[Proposes]) -> dict[str, str]:
        """All that decides the outcome of a search; the number of workers does not."""
        # Neither does where one stops change what was found before.
        options = replace(
            self.options, iterations=None, workers=1, target=None, patience=None, cpu_seconds=None
        )
        decides = [options, self.pair.options, *self.decides, [seed.id for seed in self.seeds]]
        evaluator = self.pair.evaluator
        made_of = {
            "the program": start.id,
            "its evaluator": evaluator.main,
            "options": digest(msgspec.to_builtins(decides)),
            "who proposes": digest([proposer.identity for proposer in proposers]),
        }
        for name, text in evaluator.parts.items():
            label = name if name == evaluator.main else f"{name} beside the evaluator"
            made_of[label] = digest(text if isinstance(text, str) else text.hex())
        return made_of


async def evolve_program(
    path: Path,
    evaluator: Path,
    settings: Settings,
    *,
    checkpoint: Path | None = None,
    models: Sequence[Model] | None = None,
    progress: Callable[[ProposalRecord], None] | None = None,
    notice: Callable[[str], None] | None = None,
    meter: Meter | None = None,
) -> EvolutionReport:
    """Improve a program by its evaluator.

    Args:
        checkpoint: of OpenEvolve, with programs to begin with, too.
        models: asked instead of those of the config.
        notice: called with the reason for which a search begins anew beside an earlier one in the record.
        meter: counts what is spent, for who shows it.

    Raises:
        InputError: a file, option or config that cannot be used.
        TrainingRefused: an evaluator that cannot tell better from worse.
        SandboxError: the sandbox cannot be trusted here, with the fix.
    """
    started = time.monotonic()
    async with AsyncExitStack() as stack:
        experiment, optimizer, output = await _opened(path, evaluator, settings, models, stack)
        form, store = optimizer.pair.form, experiment.store
        optimizer.seeds = read_checkpoint(checkpoint, form.start.main) if checkpoint else []
        optimizer.progress, optimizer.notice = progress, notice
        improvement = await experiment.improve(optimizer, rounds=1, budget=settings.budget, within=meter)
        outcome, population = optimizer.found, optimizer.members
        assert outcome is not None
        assert population is not None
        assert store is not None
        with store.batch() as batch:
            # First: it says what it was made from, and a Version that is recorded stays as it is.
            batch.put_versions(*improvement.bundle.values())
            batch.put_versions(*lineage_of(outcome, form))
            for version in form.baseline.values():
                batch.declare(version)  # a name that this record knows can be released here
        findings = alarms_of(outcome, optimizer.pair.evaluator.parts)
        judged_by = {"the evaluator": digest(dict(optimizer.pair.evaluator.parts), 12)}
        put_findings(store, improvement.bundle.id, findings, rewards=judged_by)
        record = _record(settings, output).resolve()
        write_bundle(output / BUNDLE_FILE, improvement.bundle, baseline=Bundle(), store=record)
        best, patch = _write(path, output, outcome)
        islands = settings.config.islands.num_islands
        write_checkpoint(output, outcome.records, population.members(), islands, form.start.main)
    report = EvolutionReport(
        searches={path.name: outcome},
        bundle=improvement.bundle,
        output=output,
        patch=patch,
        seconds=time.monotonic() - started,
        trusted_only=optimizer.pair.trusted_only,
        models=optimizer.proposing.names,
        spent=optimizer.proposing.spent,
        best_path=best,
        repeated=optimizer.repeated,
        ignored=settings.config.ignored,
        alarms=findings,
    )
    report.write()
    return report


async def estimate_program(
    path: Path, evaluator: Path, settings: Settings, *, models: Sequence[Model] | None = None
) -> Estimate:
    """The cost of `evolve_program`; judges the start program, and asks no model."""
    async with AsyncExitStack() as stack:
        experiment, optimizer, _ = await _opened(path, evaluator, settings, models, stack)
        return await estimated(experiment, optimizer, settings.budget)


def _record(settings: Settings, output: Path) -> Path:
    return settings.store or output / "runs.db"


async def _opened(
    path: Path, judge: Path, settings: Settings, models: Sequence[Model] | None, stack: AsyncExitStack
) -> tuple[Experiment, Programs, Path]:
    """The experiment, its optimizer and the output folder; the stack closes the store and the processes."""
    output = settings.output or path.parent / "whet_output"
    record = _record(settings, output)
    text = text_of(path, "program")
    regions(text)
    start = Program({path.name: text}, path.name)
    # What an earlier run wrote beside it would be staged with it, and make this another search.
    evaluator = EvaluatorFile.read(judge, without=(output, record))
    output.mkdir(parents=True, exist_ok=True)
    code = path.suffix == ".py"
    options = settings.search(code=code, text=not code, length=len(text), asks=settings.asks(models))
    proposing = settings.proposing(models)
    config = settings.config
    judging = replace(
        config.judge, timeout=config.judge.timeout if settings.timeout is None else settings.timeout
    )
    source = evaluator.parts[evaluator.main]
    texts = [*([text] if code else []), source if isinstance(source, str) else source.decode()]
    beside = {name.split("/")[0].removesuffix(".py") for name in evaluator.parts}
    sandbox = settings.sandbox(judging.timeout, 2048)
    pool = Pool(sandbox, modules=modules_of(texts, beside), workers=options.workers)
    await stack.enter_async_context(pool)
    pair = EvaluatedProgram(pool, evaluator, judging, ProgramCodec(start))
    experiment = Experiment(
        env=pair,
        tasks=list(pair.tasks.values()),
        rewards=[pair.score],
        seed=options.seed,
        store=stack.enter_context(Store(record)),
        name=f"evolve/{path.name}",
        folder=output / "artifacts",
        record=0.0,
    )
    optimizer = Programs(
        pair,
        options,
        proposing,
        lambda: population_of(settings.population, code=code, islands=config.islands),
        subject=path.name,
        decides=[config.islands, settings.population],
    )
    return experiment, optimizer, output


def _write(path: Path, output: Path, outcome: SearchOutcome) -> tuple[Path, str]:
    """Write the best program and its metrics; its path, and the patch."""
    best = output / "best" / f"best_program{path.suffix}"
    best.parent.mkdir(exist_ok=True)
    # Not `text_of`, which drops the byte order mark and the line ends: the patch has to fit the file.
    original = path.read_bytes().decode()
    changed = as_written(original, outcome.best.program.text)
    best.write_bytes(changed.encode())
    info = {
        "id": outcome.best.program.id,
        "iteration": outcome.best.number,
        "metrics": dict(outcome.best.metrics),
        "score": outcome.best.score,
    }
    (output / "best" / "best_program_info.json").write_text(json.dumps(info, indent=2), encoding="utf-8")
    return best, diff(folder_in_git(path.resolve().parent) + path.name, original, changed)
