"""Small programs and evaluators that the tests of code evolution share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from whet.learn.evolution.agents.candidates import ProgramCodec
from whet.learn.evolution.editing.program import Program
from whet.learn.evolution.search.engine import Search, SearchOptions, SearchOutcome
from whet.learn.evolution.search.pair import WARM, EvaluatedProgram, EvaluatorFile, JudgeOptions, PairJudge
from whet.learn.evolution.search.population import IslandOptions, Islands, Population
from whet.learn.evolution.search.proposers import Proposes
from whet.learn.evolution.search.records import Records
from whet.learn.experiment import Experiment
from whet.learn.loop import Context, Update
from whet.record.store import Store
from whet.sandbox import Limits, Local, Pool
from whet.types import Budget, Bundle, Group

LINE = """\
import math  # stays

# EVOLVE-BLOCK-START
def f(x):
    # what a person wrote
    return x * 2 + 1
# EVOLVE-BLOCK-END
"""
CURVE = """\
import importlib.util

def evaluate(path):
    spec = importlib.util.spec_from_file_location("program", path)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    wrong = sum(abs(program.f(x) - (x * x + 3 * x + 7)) for x in range(-5, 15))
    return {"combined_score": 1 / (1 + wrong), "wrong": wrong}
"""


def search(
    program: str = LINE,
    evaluator: str = CURVE,
    *,
    options: SearchOptions | None = None,
    judging: JudgeOptions | None = None,
    proposers: Sequence[Proposes] | Callable[[Context], Sequence[Proposes]] = (),
    store: Store | None = None,
    budget: Budget | None = None,
    population: Callable[[], Population] | None = None,
) -> SearchOutcome:
    """Run a search on texts, without a sandbox: these programs are ours."""

    async def run() -> SearchOutcome:
        chosen = options or SearchOptions(iterations=30)
        limits = Limits(wall_seconds=60.0, cpu_seconds=60.0)
        async with Pool(Local(limits=limits), modules=WARM, workers=chosen.workers) as pool:
            made = population() if population else Islands(IslandOptions(num_islands=3))
            start = Program({"program.py": program}, "program.py")
            given = EvaluatorFile({"evaluator.py": evaluator}, "evaluator.py")
            pair = EvaluatedProgram(pool, given, judging or JudgeOptions(timeout=20), ProgramCodec(start))
            return await searched(pair, made, chosen, proposers, store=store, budget=budget)

    return asyncio.run(run())


@dataclass
class Once:
    """The optimizer that is one search."""

    pair: EvaluatedProgram
    population: Population
    options: SearchOptions
    proposers: Sequence[Proposes] | Callable[[Context], Sequence[Proposes]]
    found: SearchOutcome | None = None
    judge: PairJudge | None = None

    name = "once"
    group_size = 0
    on_policy = False
    ordered = False

    async def step(self, bundle: Bundle, groups: Sequence[Group], context: Context) -> Update:
        self.judge = PairJudge(self.pair, context.rollout)
        made = self.proposers(context) if callable(self.proposers) else self.proposers
        self.found = await Search(
            self.pair.form.program(bundle),
            self.judge,
            self.population,
            options=self.options,
            proposers=made,
            records=Records(context.log, "x"),
            meter=context.meter,
        ).run()
        best = self.pair.form.bundle(self.found.best.program)
        return Update(bundle=best, state={"resumable": False})


async def searched(
    pair: EvaluatedProgram,
    population: Population,
    options: SearchOptions,
    proposers: Sequence[Proposes] | Callable[[Context], Sequence[Proposes]] = (),
    *,
    store: Store | None = None,
    budget: Budget | None = None,
) -> SearchOutcome:
    """One search, as an Experiment runs it."""
    once = Once(pair, population, options, proposers)
    experiment = Experiment(
        env=pair, tasks=list(pair.tasks.values()), rewards=[pair.score], store=store, record=0.0
    )
    await experiment.improve(once, rounds=1, budget=budget)
    assert once.found is not None
    return once.found


def trail(found: SearchOutcome) -> list[object]:
    """All of a search that must not differ between two runs."""
    return [replace(record, artifacts={}) for record in found.records]


def write(folder: Path, program: str = LINE, evaluator: str = CURVE) -> tuple[Path, Path]:
    """The two files that the command line takes."""
    (folder / "program.py").write_text(program, encoding="utf-8")
    (folder / "evaluator.py").write_text(evaluator, encoding="utf-8")
    return folder / "program.py", folder / "evaluator.py"
