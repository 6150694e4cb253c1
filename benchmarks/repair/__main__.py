"""How many wrong programs `whet evolve` mends without a model: one-edit bugs, and a folder of programs.

    python -m venv /tmp/mutmut && /tmp/mutmut/bin/pip install mutmut==2.5.1
    python benchmarks/repair --mutmut /tmp/mutmut/bin/python           # every mutant of the programs beside this file
    python benchmarks/repair --folder PROGRAMS                         # a folder for each program, see below

The bugs are injected by mutmut and not by edits of ours turned round.  A mutant counts if a training row catches it; it
is mended if every row is answered right, those that the search never saw among them.  With `--control` each answer is
that of another row: then nothing may be promoted.

A program's folder holds `prog.py`, `rows.jsonl` and `spec.json` with `target` and `entry`, as `whet evolve` has them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from programs import SEEN, SUBJECTS, Subject

from whet.errors import WhetError
from whet.learn.evolution.reports import EvolutionReport
from whet.learn.evolution.repositories import evolve_targets
from whet.learn.evolution.settings import RepositoryInput, Settings

ROWS = 60
SPLITS = ("train", "train", "gate", "validation", "train")


@dataclass(frozen=True)
class Case:
    """One wrong program, and the rows that it is judged by."""

    name: str
    text: str
    rows: list[dict[str, Any]]
    target: str
    entry: str | None = None


def rows_of(subject: Subject) -> list[dict[str, Any]]:
    """Different inputs of a program, with its answers."""
    rng = random.Random(subject.name)
    namespace: dict[str, Any] = {}
    exec(subject.text, namespace)
    answers: dict[str, Any] = {}
    for _ in range(40 * ROWS):
        inputs = subject.draw(rng)
        key = json.dumps(inputs)
        if key not in answers:
            answers[key] = namespace[subject.name](**json.loads(key))
        if len(answers) == ROWS:
            break
    rows = [{"input": json.loads(key), "expected": answer} for key, answer in answers.items()]
    return [{**row, "group": f"g{index}", "split": SPLITS[index % 5]} for index, row in enumerate(rows)]


def injected(options: argparse.Namespace) -> Iterator[Case]:
    """The mutants of the programs, at most so many of each, drawn evenly."""
    for subject in SUBJECTS:
        if options.programs == "held" and subject.name in SEEN:
            continue
        if options.programs == "seen" and subject.name not in SEEN:
            continue
        command = [options.mutmut, str(Path(__file__).parent / "mutants.py")]
        made = subprocess.run(command, input=subject.text, capture_output=True, text=True, check=True)
        texts: list[str] = json.loads(made.stdout)
        count = min(options.most, len(texts))
        for index in range(count):
            text = texts[index * len(texts) // count]
            yield Case(f"{subject.name} {index}", text, rows_of(subject), f"prog:{subject.name}")


def written(options: argparse.Namespace) -> Iterator[Case]:
    """The programs of a folder."""
    for folder in sorted(path.parent for path in options.folder.glob("*/spec.json")):
        if options.names and folder.name not in options.names:
            continue
        spec = json.loads((folder / "spec.json").read_text())
        rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
        rows = [{**row, "group": f"g{index}", "split": SPLITS[index % 5]} for index, row in enumerate(rows)]
        yield Case(folder.name, (folder / "prog.py").read_text(), rows, spec["target"], spec["entry"])


def shuffled(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each with the answer of another row."""
    answers = [row["expected"] for row in rows]
    random.Random(len(rows)).shuffle(answers)
    return [{**row, "expected": answer} for row, answer in zip(rows, answers, strict=True)]


def mended(case: Case, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """What `whet evolve` makes of a wrong program."""
    folder = Path(tempfile.mkdtemp(prefix="whet-repair-"))
    (folder / "repository").mkdir()
    (folder / "repository" / "prog.py").write_text(case.text)
    rows = shuffled(case.rows) if options.control else case.rows
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = RepositoryInput(
        targets=(case.target,), repository=folder / "repository", entry=case.entry, data=folder / "rows.jsonl"
    )
    settings = Settings(
        cpu_seconds=options.cpu, offline=True, seed=seed, output=folder / "output", timeout=2.0
    )
    began = time.process_time()
    line: dict[str, Any] = {
        "name": case.name,
        "seed": seed,
        "repaired": False,
        "promoted": False,
        "cpu": options.cpu,
    }
    try:
        report: EvolutionReport = asyncio.run(evolve_targets(source, settings))
    except WhetError as error:
        return {**line, "refused": f"{type(error).__name__}: {error}"[:200]}
    search = report.found
    scores = [part for parts in report.json()["scores"].values() for name, part in parts.items() if part["n"]]
    return {
        **line,
        "caught": search.start.score < 1.0,
        "repaired": all(part["after"] == 1.0 for part in scores),
        "promoted": report.verdict is not None and report.verdict.promote,
        "cpu": round(search.cpu_seconds + time.process_time() - began, 2),
        "proposals": search.iterations,
        "tried": getattr(search, "tried", 0),
        "lines": sum(text[:1] in "+-" for text in report.patch.splitlines()) - 2 * bool(report.patch),
    }


def told(lines: list[dict[str, Any]]) -> str:
    """One row of the table."""
    caught = [line for line in lines if line.get("caught", True)]
    repaired = [line for line in caught if line["repaired"]]
    cpu = sorted(line["cpu"] for line in repaired) or [0.0]
    return (
        f"{len(repaired)} of {len(caught)} repaired ({len(repaired) / max(1, len(caught)):.0%}), CPU seconds "
        f"{median(cpu):.1f} median, {cpu[int(0.9 * (len(cpu) - 1))]:.1f} at 90 %, {cpu[-1]:.1f} at most; "
        f"{sum('refused' in line for line in caught)} refused, {sum(line['promoted'] for line in lines)} promoted"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mutmut", help="interpreter that has mutmut 2")
    parser.add_argument("--folder", type=Path, help="programs with bugs that somebody else wrote")
    parser.add_argument("--names", nargs="*", help="of that folder")
    parser.add_argument("--programs", choices=("all", "seen", "held"), default="held")
    parser.add_argument("--most", type=int, default=1000, help="mutants of a program")
    parser.add_argument("--cpu", type=float, default=20.0, help="CPU seconds of one search")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--control", action="store_true", help="answers of other rows")
    parser.add_argument("--output", type=Path, help="JSON lines")
    options = parser.parse_args()
    if not options.mutmut and not options.folder:
        parser.error("give --mutmut or --folder")
    cases = list(written(options) if options.folder else injected(options))
    lines = []
    for seed in range(options.seeds):
        mine = []
        for case in cases:
            mine.append(mended(case, seed, options))
            print(json.dumps(mine[-1]), file=sys.stderr, flush=True)
        print(f"seed {seed}: {told(mine)}", flush=True)
        lines += mine
    if options.output is not None:
        options.output.write_text("".join(json.dumps(line) + "\n" for line in lines))
    print(told(lines))


if __name__ == "__main__":
    main()
