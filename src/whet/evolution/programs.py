"""`whet evolve PROGRAM EVALUATOR`: files in, an Experiment on the pair of them, files out.

Writes into its folder: `best/` (the best program and what is known of it), `evolution.patch` (what
`git apply` takes), `bundle.json` (what `whet release` takes), `history.json` (scores, lineage, what each operator
earned), `checkpoints/` (as OpenEvolve reads them), and `runs.db`, the record, unless another is given.  Run again
with the same program, evaluator and options, it goes on where it ended.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from ..experiment import Experiment
from ..loop import Context, Update
from ..models.base import Model
from ..repository.text import as_written, diff
from ..sandbox import Pool
from ..store import Store
from ..store.bundles import BUNDLE_FILE, write_bundle
from ..types import Bundle, Group, digest
from .candidates import Form
from .engine import Found, Search, SearchOptions
from .estimate import Estimate, estimated
from .judging import Judging
from .openevolve import read_checkpoint, write_checkpoint
from .pair import Evaluator, Pair, PairJudge
from .population import Population, population_of
from .program import Program, regions, text_of
from .proposers import Proposes
from .proposing import Proposing
from .records import Record, opened
from .reports import Report
from .settings import Settings, folder_in_git, lineage_of, modules_of


@dataclass
class Programs:
    """Optimizer of the program of a Pair: one search.

    It is replayed from the log when the step is taken again, so it leaves no state.

    Args:
        subject: what is made better, in a user's words.
        seeds: programs to begin with, too.
        progress: told every committed record.
        notice: told why a search begins anew.
    """

    pair: Pair
    options: SearchOptions
    proposing: Proposing
    population: Callable[[], Population]
    subject: str = "program"
    decides: Sequence[object] = ()
    """What decides what is found beside program, evaluator, options and proposers."""
    seeds: Sequence[Program] = ()
    progress: Callable[[Record], None] | None = None
    notice: Callable[[str], None] | None = None
    found: Found | None = None
    members: Population | None = None
    repeated: tuple[float, float] | None = None
    evaluations: int = 0
    """Programs that reached the evaluator in this run, those of the judge itself among them."""

    name = "program"
    group_size = 0
    takes_groups = False
    on_policy = False
    ordered = False

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
        self.repeated, self.evaluations = judge.repeated, judge.evaluations
        metrics = {"best": self.found.best.score, "proposals": float(self.found.iterations)}
        best = pair.form.bundle(self.found.best.program)
        return Update(bundle=best, state={"resumable": False}, metrics=metrics)

    def start(self, context: Context) -> tuple[Judging, Program, int | None]:
        """As a dry run wants it (`estimate.Searching`)."""
        return PairJudge(self.pair, context.rollout), self.pair.form.start, None

    def _made_of(self, start: Program, proposers: Sequence[Proposes]) -> dict[str, str]:
        """What a search depends on: equal for all that finds the same, so the number of workers is not in it."""
        # Neither does where one stops change what was found before.
        options = replace(
            self.options, iterations=None, workers=1, target=None, patience=None, cpu_seconds=None
        )
        decides = [options, self.pair.options, *self.decides, [each.id for each in self.seeds]]
        evaluator = self.pair.evaluator
        found = {
            "the program": start.id,
            "its evaluator": evaluator.main,
            "options": digest(msgspec.to_builtins(decides)),
            "who proposes": digest([each.identity for each in proposers]),
        }
        for name, text in evaluator.parts.items():
            found[f"{name} beside the evaluator" if name != evaluator.main else name] = digest(
                text if isinstance(text, str) else text.hex()
            )
        return found


async def evolve_program(
    path: Path,
    evaluator: Path,
    settings: Settings,
    *,
    checkpoint: Path | None = None,
    models: Sequence[Model] | None = None,
    progress: Callable[[Record], None] | None = None,
    notice: Callable[[str], None] | None = None,
) -> Report:
    """Improve a program by its evaluator.

    Args:
        checkpoint: of OpenEvolve, whose programs are begun with, too.
        models: asked instead of those of the config.
        notice: told why a search begins anew where there is an earlier one in the record.

    Raises:
        InputError: a file, option or config that cannot be used.
        TrainingRefused: an evaluator that cannot tell better from worse.
        SandboxError: the sandbox cannot be trusted here, with the fix.
    """
    started = time.monotonic()
    async with AsyncExitStack() as stack:
        run = await _opened(path, evaluator, settings, models, stack)
        optimizer, output, form = run.optimizer, run.output, run.optimizer.pair.form
        optimizer.seeds = read_checkpoint(checkpoint, form.start.main) if checkpoint else []
        optimizer.progress, optimizer.notice = progress, notice
        improvement = await run.experiment.improve(optimizer, rounds=1, budget=settings.budget)
        found = optimizer.found
        assert found is not None
        assert optimizer.members is not None
        assert run.experiment.store is not None
        with run.experiment.store.batch() as batch:
            batch.put_versions(*lineage_of(found, form))
            for came in form.baseline.values():
                batch.declare(came)  # a name that this record knows: it can be released here
        write_bundle(output / BUNDLE_FILE, improvement.bundle, baseline=Bundle(), store=run.record)
        best, patch = _write(path, output, found)
        islands = settings.config.islands.num_islands
        write_checkpoint(output, found.records, optimizer.members.members(), islands, form.start.main)
    report = Report(
        searches={path.name: found},
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
    )
    report.write()
    return report


async def estimate_program(
    path: Path, evaluator: Path, settings: Settings, *, models: Sequence[Model] | None = None
) -> Estimate:
    """What it would take; judges the start program, and asks no model."""
    async with AsyncExitStack() as stack:
        run = await _opened(path, evaluator, settings, models, stack)
        return await estimated(run.experiment, run.optimizer, settings.budget)


@dataclass(frozen=True, slots=True)
class _Opened:
    """Everything that it needs, closed with its stack."""

    experiment: Experiment
    optimizer: Programs
    output: Path
    record: Path


async def _opened(
    path: Path, judge: Path, settings: Settings, models: Sequence[Model] | None, stack: AsyncExitStack
) -> _Opened:
    output = settings.output or path.parent / "whet_output"
    record = settings.store or output / "runs.db"
    text = text_of(path, "program")
    regions(text)
    start = Program({path.name: text}, path.name)
    evaluator = Evaluator.read(judge, without=(output, record))
    output.mkdir(parents=True, exist_ok=True)
    code = path.suffix == ".py"
    options = settings.search(code=code, text=not code, length=len(text))
    proposing = settings.proposing(models)
    config = settings.config
    judging = replace(
        config.judge, timeout=config.judge.timeout if settings.timeout is None else settings.timeout
    )
    given = evaluator.parts[evaluator.main]
    texts = [*([text] if code else []), given if isinstance(given, str) else given.decode()]
    beside = {name.split("/")[0].removesuffix(".py") for name in evaluator.parts}
    sandbox = settings.sandbox(judging.timeout, 2048)
    pool = Pool(sandbox, modules=modules_of(texts, beside), workers=options.workers)
    await stack.enter_async_context(pool)
    pair = Pair(pool, evaluator, judging, Form(start))
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
    return _Opened(experiment, optimizer, output, record.resolve())


def _write(path: Path, output: Path, found: Found) -> tuple[Path, str]:
    """Write the best program and what is known of it; where it lies, and the patch."""
    best = output / "best" / f"best_program{path.suffix}"
    best.parent.mkdir(exist_ok=True)
    written = path.read_bytes().decode()
    made = as_written(written, found.best.program.text)
    best.write_bytes(made.encode())
    info = {
        "id": found.best.program.id,
        "iteration": found.best.number,
        "metrics": dict(found.best.metrics),
        "score": found.best.score,
    }
    (output / "best" / "best_program_info.json").write_text(json.dumps(info, indent=2), encoding="utf-8")
    return best, diff(folder_in_git(path.resolve().parent) + path.name, written, made)
