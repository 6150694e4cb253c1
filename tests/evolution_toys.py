"""Small programs and evaluators that the tests of code evolution share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from whet.budget import Meter
from whet.evolution.engine import Found, Search, SearchOptions
from whet.evolution.journal import Journal
from whet.evolution.judging import WARM, Evaluator, Judge, JudgeOptions
from whet.evolution.population import IslandOptions, Islands, Population
from whet.evolution.program import Program
from whet.evolution.proposers import Proposes
from whet.sandbox import Limits, Local, Pool

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
    proposers: Sequence[Proposes] = (),
    journal: Journal | None = None,
    meter: Meter | None = None,
    population: Callable[[], Population] | None = None,
) -> Found:
    """Run a search on texts, without a sandbox: these programs are ours."""

    async def run() -> Found:
        chosen = options or SearchOptions(iterations=30)
        limits = Limits(wall_seconds=60.0, cpu_seconds=60.0)
        async with Pool(Local(limits=limits), modules=WARM, workers=chosen.workers) as pool:
            judge = Judge(
                pool,
                Evaluator({"evaluator.py": evaluator}, "evaluator.py"),
                judging or JudgeOptions(timeout=20),
            )
            made = population() if population else Islands(IslandOptions(num_islands=3))
            start = Program({"program.py": program}, "program.py")
            return await Search(
                start,
                judge,
                made,
                options=chosen,
                proposers=proposers,
                journal=journal,
                meter=meter or Meter(),
            ).run()

    return asyncio.run(run())


def trail(found: Found) -> list[object]:
    """All of a search that must not differ between two runs."""
    return [replace(record, artifacts={}) for record in found.records]


def write(folder: Path, program: str = LINE, evaluator: str = CURVE) -> tuple[Path, Path]:
    """The two files that the command line takes."""
    (folder / "program.py").write_text(program, encoding="utf-8")
    (folder / "evaluator.py").write_text(evaluator, encoding="utf-8")
    return folder / "program.py", folder / "evaluator.py"
