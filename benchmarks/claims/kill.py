"""kill -9 at random moments: nothing acknowledged is lost, and the job goes on to the same figures."""

from __future__ import annotations

import random
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
from page import publish, table

HERE = Path(__file__).resolve().parent


def job_command(output: Path, *, seed: int, full: bool, resume: bool) -> list[str]:
    """The demo as a process, with this seed and size."""
    options = ["--seed", str(seed), "--output", str(output), *(["--resume"] if resume else [])]
    if full:
        return [sys.executable, "-m", "whet.cli", "demo", "--json", *options]
    return [sys.executable, str(HERE), "small", *options]


def _finish(output: Path, *, seed: int, full: bool, resume: bool) -> Mapping[str, Any]:
    with (output / "log").open("ab") as log:
        done = subprocess.run(
            job_command(output, seed=seed, full=full, resume=resume),
            stdout=subprocess.PIPE,
            stderr=log,
            check=True,
        )
    found: Mapping[str, Any] = msgspec.json.decode(done.stdout)
    return found


def _recorded(output: Path) -> set[str]:
    """Ids of the trajectories that a reader sees as committed; empty if there is no store yet."""
    path = output / "whet.db"
    if not path.exists():
        return set()
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30)) as database:
        try:
            return {id for (id,) in database.execute("SELECT id FROM trajectories")}
        except sqlite3.OperationalError as error:
            if "no such table" in str(error):
                return set()
            raise


def kill(folder: Path, *, times: int, seed: int, full: bool) -> None:
    """One uninterrupted run, then `times` runs that are each killed once and resumed."""
    folder = folder / "kill"
    whole = _clean(folder / "whole")
    begun = time.perf_counter()
    expected = _finish(whole, seed=seed, full=full, resume=False)
    seconds = time.perf_counter() - begun
    rng = random.Random(f"kill/{seed}")
    rows, good, late = [], 0, 0
    for number in range(times):
        output = _clean(folder / f"killed{number}")
        # One moment in each of `times` equal parts of the run, so that they do not fall together.
        moment = seconds * (number + rng.random()) / times
        stage, before = _killed(output, moment, seed=seed, full=full)
        lost_at_once = len(before - _recorded(output))
        started = bool(stage)
        found = _finish(output, seed=seed, full=full, resume=started)
        lost = len(before - _recorded(output))
        same = all(found[key] == expected[key] for key in ("seed", "stages", "verdict"))
        good += same and not lost and not lost_at_once
        late += bool(before)
        rows.append(
            [
                f"{moment:.1f}",
                stage or "before there was a job",
                str(len(before)),
                str(lost),
                "yes" if same else "**no**",
            ]
        )
        print(f"killed at {moment:.1f} s: lost {lost}, same figures: {same}", file=sys.stderr, flush=True)
    size = "full" if full else "small"
    lines = [
        f"Synthetic mail, seed {seed}, the {size} job ({seconds:.0f} s uninterrupted), killed once in each run "
        f"and resumed: {good} of {times} with the same stages and verdict as the uninterrupted run and nothing lost; "
        f"{late} of the kills came after trajectories had been committed.",
        "",
        *table(
            ("killed at, s", "last stage ended", "trajectories committed", "of them lost", "same figures"),
            rows,
        ),
    ]
    publish("Kill -9 and resume", lines)


def _killed(output: Path, moment: float, *, seed: int, full: bool) -> tuple[str, set[str]]:
    """Kill a fresh run at a moment.

    Returns:
        The last stage that had ended, "" if no job had begun; and the ids of what was recorded.
    """
    command = job_command(output, seed=seed, full=full, resume=False)
    with (output / "log").open("ab") as log:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log)
        try:
            process.wait(timeout=moment)
        except subprocess.TimeoutExpired:
            before = _recorded(output)
        else:
            before = _recorded(output)  # it was faster than the uninterrupted one
        process.kill()
        process.wait()
    return _stage(output), before


def _stage(output: Path) -> str:
    path = output / "whet.db"
    if not path.exists():
        return ""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30)) as database:
        try:
            keys = [key for (key,) in database.execute("SELECT key FROM states ORDER BY at")]
        except sqlite3.OperationalError as error:
            if "no such table" in str(error):
                return ""
            raise
    stages = [key.partition("/stage/")[2] for key in keys if "/stage/" in key]
    return "" if "demo/last" not in keys else stages[-1] if stages else "none"


def _clean(output: Path) -> Path:
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    return output
