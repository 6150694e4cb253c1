"""How many wrong programs `whet evolve` mends without a model.

    python benchmarks/repair                    # all of it, about 15 minutes
    python benchmarks/repair --functions 6 --controls 2 --cpu 5
    python benchmarks/repair --folder PROGRAMS  # a folder for each program, see below

1. *One-edit bugs.* Small pure functions are found in the standard library (`library.py`), a bug is put into each
   (`mutations.py`), and rows are made with the function as it was.  A mutant counts if a training row catches it.
2. *Classic algorithms* with a bug of one line (`classics.py`).
3. *Small programs of everyday kinds* with a bug as a person makes it (`fresh.py`).
4. *The negative control.* Some of the same, each answer that of another row: nothing may be promoted.

A program is mended if every row is answered right, those among them that the search never saw.  The functions
are halved by their names: figures come from `--part held`, and the search may be tuned on `--part tuned` alone.
Seconds are processor time of the search and of all its candidates.

A program's folder holds `prog.py`, `rows.jsonl` and `spec.json` with `target` and `entry`, as `whet evolve` has them.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import itertools
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from classics import CLASSICS, Classic
from fresh import FRESH
from library import functions
from mutations import mutants

from whet.errors import WhetError
from whet.learn.evolution.editing.singles import single_edits
from whet.learn.evolution.editing.source import parsed
from whet.learn.evolution.reports import EvolutionReport
from whet.learn.evolution.repositories import evolve_targets
from whet.learn.evolution.search.settings import RepositoryInput, Settings

SPLITS = ("train", "train", "gate", "validation", "train")


@dataclass(frozen=True)
class Case:
    """One wrong program, and the rows that it is judged by."""

    name: str
    kind: str
    text: str
    rows: list[dict[str, Any]]
    target: str
    right: str = ""
    """The text without the bug."""
    entry: str | None = None


@dataclass
class Outcome:
    """What `whet evolve` made of a case."""

    name: str
    kind: str
    repaired: bool = False
    promoted: bool = False
    caught: bool = True
    cpu: float = 0.0
    tried: int = 0
    refused: str = ""
    why: str = ""
    scores: list[float] = field(default_factory=list)
    """Of training, validation and gate rows, as far as there are any."""


def injected(options: argparse.Namespace) -> Iterator[list[Case]]:
    """For each function of the library its mutants."""
    for function in functions(options.part, options.functions, options.installed):
        rng = random.Random(f"{options.seed} {function.name}")
        yield [
            Case(
                f"{function.name}:{mutant.line} {mutant.kind}",
                mutant.kind,
                mutant.text,
                function.rows,
                f"prog:{function.target}",
                function.text,
            )
            for mutant in mutants(function.text, function.target, rng)
        ]


def algorithms(programs: Sequence[Classic]) -> list[list[Case]]:
    """A case for each program."""
    return [
        [Case(program.name, "algorithm", program.text, program.rows(), f"prog:{program.name}", program.right)]
        for program in programs
    ]


def written(folder: Path, names: Sequence[str] | None) -> Iterator[Case]:
    """The programs of a folder."""
    for path in sorted(path.parent for path in folder.glob("*/spec.json")):
        if not names or path.name in names:
            spec = json.loads((path / "spec.json").read_text())
            rows = [json.loads(line) for line in (path / "rows.jsonl").read_text().splitlines()]
            text = (path / "prog.py").read_text()
            yield Case(path.name, "program", text, rows, spec["target"], entry=spec["entry"])


def shuffled(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each with the answer of another row."""
    answers = [row["expected"] for row in rows]
    random.Random(len(rows)).shuffle(answers)
    return [{**row, "expected": answer} for row, answer in zip(rows, answers, strict=True)]


def mended(case: Case, options: argparse.Namespace, *, control: bool = False) -> Outcome:
    """Run `whet evolve` on a wrong program."""
    outcome = Outcome(case.name, case.kind)
    with tempfile.TemporaryDirectory(prefix="whet-repair-") as temporary:
        folder = Path(temporary)
        (folder / "repository").mkdir()
        (folder / "repository" / "prog.py").write_text(case.text)
        rows = [
            {**row, "group": f"g{index}", "split": SPLITS[index % 5]}
            for index, row in enumerate(shuffled(case.rows) if control else case.rows)
        ]
        (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        source = RepositoryInput(
            targets=(case.target,),
            repository=folder / "repository",
            entry=case.entry,
            data=folder / "rows.jsonl",
        )
        settings = Settings(
            cpu_seconds=options.cpu, offline=True, seed=options.seed, output=folder / "output", timeout=2.0
        )
        began = time.process_time()
        try:
            report: EvolutionReport = asyncio.run(evolve_targets(source, settings))
        except WhetError as error:
            outcome.refused = f"{type(error).__name__}: {error}"[:200]
            return outcome
        search = report.found
        outcome.cpu = round(search.cpu_seconds + time.process_time() - began, 2)
        parts = [
            part for rows_of in report.json()["scores"].values() for part in rows_of.values() if part["n"]
        ]
        outcome.scores = [round(part["after"], 3) for part in parts]
        outcome.caught = search.start.score < 1.0
        outcome.repaired = set(outcome.scores) == {1.0}
        outcome.promoted = report.verdict is not None and report.verdict.promote
        outcome.tried = search.tried
    return outcome


def reason(case: Case, outcome: Outcome) -> str:
    """Why a case was missed."""
    if outcome.refused:
        return outcome.refused
    if outcome.scores and outcome.scores[0] == 1.0:
        return "another edit answers every training row, and not all the others"
    if not case.right:
        return f"not found among {outcome.tried} edits"
    source, right = parsed(case.text), ast.dump(ast.parse(case.right))
    texts = [source.spliced(edit.changes) for edit in single_edits(source)]
    for text in texts:
        try:
            if ast.dump(ast.parse(text)) == right:
                return f"its edit is one of {len(texts)}, {outcome.tried} were tried"
        except SyntaxError:
            continue
    return f"none of {len(texts)} edits takes it back"


def counted(outcomes: Sequence[Outcome]) -> str:
    """One row of the table."""
    repaired = [outcome for outcome in outcomes if outcome.repaired]
    cpu = [outcome.cpu for outcome in repaired] or [0.0]
    return (
        f"{len(repaired):4} of {len(outcomes):3}  {len(repaired) / max(1, len(outcomes)):6.0%}"
        f"  {median(cpu):8.1f}  {max(cpu):8.1f}"
    )


def table(title: str, outcomes: Sequence[Outcome]) -> None:
    """Print what became of cases by kind, and the misses."""
    print(f"\n{title}\n{'':<14}{'mended':>11}{'':8}{'CPU s: median':>8}{'most':>8}")
    for kind in sorted({outcome.kind for outcome in outcomes}):
        print(f"{kind:<14}{counted([outcome for outcome in outcomes if outcome.kind == kind])}")
    print(f"{'all':<14}{counted(outcomes)}")
    for outcome in outcomes:
        if not outcome.repaired:
            print(f"  missed: {outcome.name} {outcome.scores}: {outcome.why}", flush=True)


def measured(cases: Sequence[Case], options: argparse.Namespace, most: int) -> list[tuple[Case, Outcome]]:
    """The first cases that a training row catches, each with its outcome."""
    pairs: list[tuple[Case, Outcome]] = []
    for case in cases:
        if len(pairs) == most:
            break
        outcome = mended(case, options)
        if outcome.caught:
            if not outcome.repaired:
                outcome.why = reason(case, outcome)
            pairs.append((case, outcome))
            print(f"{'mended' if outcome.repaired else 'MISSED':7} {outcome}", file=sys.stderr, flush=True)
    return pairs


def measurements(
    options: argparse.Namespace, pool: ProcessPoolExecutor
) -> dict[str, list[tuple[Case, Outcome]]]:
    """Title → cases and outcomes, several at a time."""
    if options.folder:
        units = {"Programs": [[case] for case in written(options.folder, options.names)]}
    else:
        where = "installed packages" if options.installed else "the standard library"
        units = {
            f"One-edit bugs in functions of {where} ({options.part})": list(injected(options)),
            "Classic algorithms with a bug of one line": algorithms(CLASSICS[: options.classics]),
            "Small programs of everyday kinds": algorithms(FRESH[: options.fresh]),
        }
    measure = partial(measured, options=options, most=options.mutants)
    outcomes = {title: pool.map(measure, cases) for title, cases in units.items()}
    return {title: list(itertools.chain.from_iterable(pairs)) for title, pairs in outcomes.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--part", choices=("held", "tuned"), default="held", help="of the library's functions"
    )
    parser.add_argument("--functions", type=int, default=40, help="of the library")
    parser.add_argument("--installed", action="store_true", help="functions of installed packages instead")
    parser.add_argument("--mutants", type=int, default=2, help="bugs of a function, of different kinds")
    parser.add_argument("--classics", type=int, default=len(CLASSICS), help="algorithms")
    parser.add_argument("--fresh", type=int, default=len(FRESH), help="small programs of everyday kinds")
    parser.add_argument("--controls", type=int, default=12, help="searches with the answers of other rows")
    parser.add_argument("--cpu", type=float, default=20.0, help="CPU seconds of one search")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="searches at a time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="wrong programs that somebody else wrote")
    parser.add_argument("--names", nargs="*", help="of that folder")
    parser.add_argument("--output", type=Path, help="JSON lines")
    options = parser.parse_args()
    with ProcessPoolExecutor(options.jobs) as pool:
        groups = measurements(options, pool)
        cases = [case for pairs in groups.values() for case, _ in pairs]
        chosen = cases[:: max(1, len(cases) // max(1, options.controls))][: options.controls]
        controls = list(pool.map(partial(mended, options=options, control=True), chosen))
    for title, pairs in groups.items():
        table(title, [outcome for _, outcome in pairs])
    print(
        f"\nAnswers of other rows: {sum(control.promoted for control in controls)} of {len(controls)} promoted"
    )
    if options.output is not None:
        lines = [vars(outcome) for pairs in groups.values() for _, outcome in pairs]
        options.output.write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    main()
