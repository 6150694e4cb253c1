"""What evolution finds: `scripts/claims evolution [PROBLEM ...]`, in parts as one likes.

Each problem of examples/evolve is searched in the sandbox without a model, with several seeds, and what
was found is judged on instances that the search never saw.  A run is bounded by CPU seconds of search and
candidates together, so a busy machine changes the time that it takes and little else.  What takes a
model has a scripted one (`reflection.py`); `killed.py` kills a search and starts it again.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from datetime import date
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

from killed import killed
from page import publish, rows_of, table
from prompts import demonstrations, rules
from reflection import bug, gepa, reflection

from whet.learn.evolution.agents.candidates import ProgramCodec
from whet.learn.evolution.editing.program import Program
from whet.learn.evolution.programs import Programs, evolve_program
from whet.learn.evolution.reports import EvolutionReport
from whet.learn.evolution.search.engine import SearchOptions
from whet.learn.evolution.search.pair import WARM, EvaluatedProgram, EvaluatorFile, JudgeOptions
from whet.learn.evolution.search.population import Best, IslandOptions, Islands, Population
from whet.learn.evolution.search.proposing import Proposing
from whet.learn.evolution.search.settings import Settings
from whet.learn.experiment import Experiment
from whet.sandbox import Limits, Local, Pool, Sandbox

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "evolve"
DATA = Path(os.environ.get("WHET_DATA") or Path(__file__).resolve().parents[3] / "shared" / "data")
UNSEEN = range(100, 105)
RETRY_BEST = 0.8626
"""Worth of a request on the unseen services under the best of 144 policies of a grid (fixed timeout,
number of calls, wait and its growth), chosen on two training services."""
ROUTER_BEST = 0.720
"""Share of unseen questions that BM25 (k1 1.2, b 0.75) answers on the same catalogue."""


def module(path: Path) -> ModuleType:
    """A file of ours as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def search(folder: Path, seed: int, options: argparse.Namespace) -> EvolutionReport:
    """One search of the program in a folder, without a model."""
    settings = Settings(
        cpu_seconds=options.cpu,
        timeout=10.0,
        seed=seed,
        offline=True,
        output=Path(tempfile.mkdtemp(prefix="whet-claim-")),
        unsafe_local=options.unsafe_local,
    )
    return asyncio.run(evolve_program(folder / "program.py", folder / "evaluator.py", settings))


def packing(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Online bin packing: excess over the lower bound in per cent on 5 x 5,000 unseen items."""
    judge = module(EXAMPLES / "bin_packing" / "evaluator.py")
    unseen = [(seed, 5000) for seed in UNSEEN]

    def excess(program: Path) -> float:
        return float(judge.excess(judge.preferences(judge.load(program)), unseen))

    start = excess(EXAMPLES / "bin_packing" / "program.py")
    return [
        {
            "problem": "packing",
            "seed": seed,
            "start": start,
            **_row(search(EXAMPLES / "bin_packing", seed, options), excess),
        }
        for seed in range(options.seeds)
    ]


def retry(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Retry policy: worth of a request on services that the search never saw."""
    judge = module(EXAMPLES / "retry_policy" / "evaluator.py")

    def worth(program: Path) -> float:
        return float(judge.worth(judge.load(program), UNSEEN))

    folder = EXAMPLES / "retry_policy"
    start = worth(folder / "program.py")
    rows = [_row(search(folder, seed, options), worth) | {"seed": seed} for seed in range(options.seeds)]
    return [
        {"problem": "retry", "start": start, "closed": (row["unseen"] - start) / (RETRY_BEST - start), **row}
        for row in rows
    ]


def router(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Keyword tool router: accuracy on questions about functions that the search never saw."""
    folder = Path(tempfile.mkdtemp(prefix="whet-router-"))
    for name in ("program.py", "evaluator.py"):
        shutil.copy(EXAMPLES / "tool_router" / name, folder / name)
    prepare = [sys.executable, str(EXAMPLES / "tool_router" / "prepare.py"), str(DATA / "bfcl")]
    subprocess.run([*prepare, str(folder / "catalogue.json")], check=True, stdout=subprocess.DEVNULL)
    other = Path(tempfile.mkdtemp(prefix="whet-router-unseen-")) / "unseen.json"
    subprocess.run([*prepare, str(other), "unseen"], check=True, stdout=subprocess.DEVNULL)
    judge = module(folder / "evaluator.py")
    catalogue = judge.Catalogue(json.loads(other.read_text(encoding="utf-8")))

    def accuracy(program: Path) -> float:
        return float(catalogue.accuracy(judge.load(program)))

    start = accuracy(folder / "program.py")
    rows = [_row(search(folder, seed, options), accuracy) | {"seed": seed} for seed in range(options.seeds)]
    return [
        {
            "problem": "router",
            "start": start,
            "closed": (row["unseen"] - start) / (ROUTER_BEST - start),
            **row,
        }
        for row in rows
    ]


def _row(report: EvolutionReport, unseen: Callable[[Path], float]) -> dict[str, Any]:
    found = report.found
    return {
        "unseen": unseen(report.best_path),
        "training": found.best.score,
        "proposals": found.iterations,
        "evaluations": found.evaluations,
        "duplicates": found.duplicates,
        "seconds": round(report.seconds, 1),
        "sandboxed": not report.trusted_only,
    }


LANDSCAPE = SearchOptions(iterations=1500, edits=("number", "unite"), target=1.0)
"""The two edits that the landscape is about: switching, and taking whole modules from another program."""


def modules(options: argparse.Namespace) -> list[dict[str, Any]]:
    """The deceptive landscape: islands with crossover, without it, and greedy; the same edits and budget."""

    def islands() -> Population:
        return Islands(
            IslandOptions(
                num_islands=3,
                feature_dimensions=("fullest", "switches_on"),
                feature_bins=13,
                migration_interval=40,
                exploration_ratio=0.8,
                exploitation_ratio=0.1,
            )
        )

    arms: dict[str, tuple[Callable[[], Population], tuple[str, ...]]] = {
        "islands": (islands, LANDSCAPE.edits),
        "no crossover": (islands, ("number",)),
        "greedy": (lambda: Best(1), LANDSCAPE.edits),
    }
    rows = []
    for name, (population, edits) in arms.items():
        for seed in range(4 * options.seeds):
            chosen = SearchOptions(iterations=LANDSCAPE.iterations, target=1.0, edits=edits, seed=seed)
            found = asyncio.run(_landscape(population(), chosen, options))
            rows.append(
                {
                    "problem": f"modules, {name}",
                    "seed": seed,
                    "unseen": found,
                    "optimum": math.isclose(found, 1.0),
                }
            )
    return rows


async def _landscape(population: Population, chosen: SearchOptions, options: argparse.Namespace) -> float:
    folder = EXAMPLES / "modules"
    limits = Limits(wall_seconds=10.0)
    sandbox = Local(limits=limits) if options.unsafe_local else Sandbox(limits=limits)
    evaluator = EvaluatorFile({"evaluator.py": (folder / "evaluator.py").read_text()}, "evaluator.py")
    async with Pool(sandbox, modules=WARM) as pool:
        start = Program({"program.py": (folder / "program.py").read_text()}, "program.py")
        pair = EvaluatedProgram(pool, evaluator, JudgeOptions(timeout=10.0), ProgramCodec(start))
        experiment = Experiment(env=pair, tasks=list(pair.tasks.values()), rewards=[pair.score])
        searched = Programs(pair, chosen, Proposing(offline=True), lambda: population)
        await experiment.improve(searched, rounds=1)
    assert searched.found is not None
    return searched.found.best.score


PROBLEMS: dict[str, Callable[[argparse.Namespace], list[dict[str, Any]]]] = {
    "packing": packing,
    "modules": modules,
    "retry": retry,
    "router": router,
    "demonstrations": demonstrations,
    "rules": rules,
    "reflection": reflection,
    "bug": bug,
    "gepa": gepa,
    "killed": killed,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of a measurement."""
    parser.add_argument(
        "problems", nargs="*", metavar="PROBLEM", help=f"of {', '.join(PROBLEMS)}; all if none"
    )
    parser.add_argument(
        "--seeds", type=int, default=5, help="of each problem; modules has four times as many"
    )
    parser.add_argument("--cpu", type=float, default=60.0, help="CPU seconds of one run without a model")
    parser.add_argument("--times", type=int, default=20, help="kills")
    parser.add_argument("--proposals", type=int, default=120, help="of the search that is killed")
    parser.add_argument("--unsafe-local", action="store_true", help="without the sandbox, to try it out")


def evolution(options: argparse.Namespace) -> None:
    """Measure the problems named and put the table into the page."""
    unknown = set(options.problems) - set(PROBLEMS)
    if unknown:
        raise SystemExit(f"{', '.join(sorted(unknown))}: there are {', '.join(PROBLEMS)}")
    folder = options.folder / "evolution"
    folder.mkdir(parents=True, exist_ok=True)
    for name in options.problems or PROBLEMS:
        rows = PROBLEMS[name](options)
        for row in rows:
            said = [f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()]
            print(", ".join(said), file=sys.stderr, flush=True)
        kept = {"date": date.today().isoformat(), "rows": rows}
        (folder / f"{name}.json").write_text(json.dumps(kept, indent=1), encoding="utf-8")
    _publish(folder)


def _publish(folder: Path) -> None:
    lines = []
    before = rows_of("Evolution")
    for (
        name
    ) in PROBLEMS:  # those measured before stay in the table, with their own date, in another checkout too
        path = folder / f"{name}.json"
        if not path.is_file():
            lines += [row for row in before if row[0].partition(",")[0] == name]
            continue
        kept = json.loads(path.read_text(encoding="utf-8"))
        for problem in dict.fromkeys(row["problem"] for row in kept["rows"]):
            mine = [row for row in kept["rows"] if row["problem"] == problem]
            lines.append([*_line(problem, mine), kept["date"]])
    heads = ("problem", "runs", "median", "worst", "start", "what else", "measured")
    publish("Evolution", [*table(heads, lines), _READING])


_READING = (
    "packing: excess over the lower bound in per cent, less is better; retry: worth of a request; router: share of "
    "questions; modules: score, and how many runs found the optimum; demonstrations, rules: share of messages sorted "
    "right by a stand-in for a model; each on instances that no search saw, without a model. With the ratings "
    "shuffled half of what is shown is right all the same, and the search keeps what helps: that control asks what "
    "the ratings add. reflection, bug, gepa: a scripted model. killed: 1 where the archive is the undisturbed one "
    "to the byte."
)


def _line(problem: str, rows: list[dict[str, Any]]) -> list[str]:
    values = [row["unseen"] for row in rows]
    worst = max(values) if problem == "packing" else min(values)
    start = f"{median(row['start'] for row in rows):.4g}" if "start" in rows[0] else "–"
    return [problem, str(len(rows)), f"{median(values):.4g}", f"{worst:.4g}", start, _more(rows)]


def _more(rows: list[dict[str, Any]]) -> str:
    first = rows[0]

    def middle(name: str) -> float:
        return float(median(row[name] for row in rows))

    if "control" in first:
        what = "ratings" if first["problem"] == "demonstrations" else "failures"
        ahead = sum(row["unseen"] > row["control"] for row in rows)
        return f"{middle('control'):.4g} with the {what} shuffled, better than that in {ahead} of {len(rows)}"
    if "closed" in first:
        return f"{middle('closed'):.0%} of the gap to the best known closed"
    if "optimum" in first:
        return f"optimum found by {sum(row['optimum'] for row in rows)} of {len(rows)}"
    if "blind" in first:
        times = min(row["times"] for row in rows)
        told, blind = middle("proposals"), middle("blind")
        return f"{told:.0f} proposals; {blind:.0f} with the feedback blanked (at least {times:.1f}x)"
    if "theirs" in first:
        return f"{middle('calls'):.0f} metric calls; GEPA 0.1.4: {middle('theirs'):.0f}"
    if "files" in first:
        return f"{first['files']} files changed, {first['proposals']} proposals"
    if "kills" in first:
        return (
            f"{first['kills']} kills, {first['asked_again']} recorded answers asked again, "
            f"{first['lost_on_their_way']} lost on their way"
        )
    return ""
