"""`whet evolve`: make a program better by what its evaluator says."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from .app import app

if TYPE_CHECKING:
    from ..evolution.job import Report
    from ..evolution.journal import Record


@app.command
def evolve(
    program: Path,
    evaluator: Path,
    /,
    *,
    config: Path | None = None,
    iterations: int | None = None,
    seconds: float | None = None,
    offline: bool = False,
    models_only: bool = False,
    workers: int | None = None,
    timeout: float | None = None,
    seed: int | None = None,
    output: Path | None = None,
    target_score: float | None = None,
    population: Literal["auto", "islands", "best", "front"] = "auto",
    checkpoint: Path | None = None,
    unsafe_local: bool = False,
    json: bool = False,
) -> int:
    """Improve a program between its EVOLVE-BLOCK marks by what an evaluator says of it.

    The evaluator is a Python file with evaluate(path_of_the_program), which returns numbers to maximise
    (combined_score counts, if it is there). Without a model the edits tune and recombine what the program
    has; with one they have ideas. Candidates run in the sandbox. Run again, it goes on where it ended.

    Parameters
    ----------
    program
        The file to improve. Without marks all of it may change.
    evaluator
        A Python file with evaluate(path), or evaluate_stage1 to evaluate_stage3.
    config
        OpenEvolve's config.yaml: models, islands, thresholds. Needs the extra `evolve`.
    iterations
        Proposals; max_iterations of the config, or 100, unless --seconds is given.
    seconds
        Stop proposing after so much wall-clock time.
    offline
        Ask no model, whatever the config says.
    models_only
        Leave everything to the models: no edits of our own.
    workers
        Candidates judged at a time; the result does not depend on it.
    timeout
        Seconds per stage of one evaluation; 300 unless the config says otherwise.
    seed
        Of everything random; 42 unless the config says otherwise.
    output
        Folder for the best program, the patch, history and record; whet_output beside the program.
    target_score
        Stop once it is reached.
    population
        Who has children: islands, the best few, the front per instance; auto chooses by the program.
    checkpoint
        Begin with the programs of an OpenEvolve checkpoint, too.
    unsafe_local
        Run candidates without the sandbox. Only for code you trust; what it scores is never promoted.
    json
        Print the result as one JSON object.
    """
    from ..evolution.job import Job, run_job

    job = Job(
        program=program,
        evaluator=evaluator,
        config=config,
        iterations=iterations,
        seconds=seconds,
        offline=offline,
        edits=not models_only,
        workers=workers,
        timeout=timeout,
        seed=seed,
        output=output,
        target=target_score,
        population=population,
        checkpoint=checkpoint,
        unsafe_local=unsafe_local,
    )
    report = asyncio.run(run_job(job, progress=None if json else _progress))
    if json:
        print(msgspec.json.encode(report.json()).decode())
    else:
        _print(report)
    return 0


def _progress(record: Record) -> None:
    if record.number % 10 == 0 or record.timeout:
        said = f"{record.score:g}" if record.score is not None else record.failure or record.status
        print(f"proposal {record.number}: {record.operator}: {said}"[:110], file=sys.stderr, flush=True)


def _print(report: Report) -> None:
    found = report.found
    for name in report.ignored:
        print(f"config: {name} has no effect here")
    print(
        f"score {found.start.score:g} → {found.best.score:g} after {found.iterations} proposals and "
        f"{found.evaluations} evaluations in {report.seconds:.1f} s "
        f"({found.duplicates} duplicates skipped, {found.timeouts} timeouts; stopped by {found.stopped})"
    )
    print(f"\n{'operator':24} {'tried':>7} {'judged':>7} {'better':>7} {'records':>8} {'gain':>10}")
    for row in found.operators:
        print(
            f"{row['name']:24} {row['tried']:>7} {row['evaluated']:>7} {row['improved']:>7} "
            f"{row['records']:>8} {row['gain']:>10.4g}"
        )
    how = "asked " + ", ".join(report.models) if report.models else "no model was asked: tuned and recombined"
    print(f"\n{how}")
    print(f"best program: {report.best_path}\npatch: {report.output / 'evolution.patch'} (git apply)")
    print(
        "The evaluator ran beside the program: this score steers a search, it does not prove. Gate the result."
    )
