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
        return [sys.executable, "-m", "whet", "demo", "--json", *options]
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


def kill(folder: Path, *, times: int, runs: int, seed: int, full: bool) -> None:
    """One uninterrupted run, then `runs` that are killed `times` times between them, resumed after each."""
    folder = folder / "kill"
    whole = _clean(folder / "whole")
    begun = time.perf_counter()
    expected = _finish(whole, seed=seed, full=full, resume=False)
    seconds = time.perf_counter() - begun
    rng = random.Random(f"kill/{seed}")
    rows, lost, late, alike = [], 0, 0, 0
    for number in range(runs):
        output = _clean(folder / f"killed{number}")
        count = len(range(number, times, runs))
        stage, before = "", set[str]()
        for turn in range(count):
            # The first comes at another part of its share of the time in each run, so that they do not fall
            # together; the others some such share after the run was resumed.
            share = (number + rng.random()) / runs if turn == 0 else 0.5 + rng.random()
            moment = seconds / count * share
            stage, before = _killed(output, moment, seed=seed, full=full, resume=bool(stage))
            missing = len(before - _recorded(output))
            lost += missing
            late += bool(before)
            rows.append([str(number), f"{moment:.1f}", stage or "none yet", str(len(before)), str(missing)])
            print(f"run {number} killed after {moment:.1f} s: lost {missing}", file=sys.stderr, flush=True)
        found = _finish(output, seed=seed, full=full, resume=bool(stage))
        missing = len(before - _recorded(output))
        lost += missing
        same = all(found[key] == expected[key] for key in ("seed", "stages", "verdict"))
        alike += same
        rows.append([str(number), "to its end", "all", str(len(_recorded(output))), str(missing)])
        print(f"run {number} ended: lost {missing}, same figures: {same}", file=sys.stderr, flush=True)
    size = "full" if full else "small"
    lines = [
        f"Synthetic mail, seed {seed}, the {size} job ({seconds:.0f} s uninterrupted), killed {times} times in "
        f"{runs} runs and resumed each time: {alike} of {runs} runs ended with the same stages and verdict as "
        f"the uninterrupted one, {lost} trajectories were lost; {late} of the kills came after some had been "
        "committed.",
        "",
        *table(
            ("run", "killed after, s", "last stage ended", "trajectories committed", "of them lost"), rows
        ),
    ]
    publish("Kill -9 and resume", lines)


def _killed(output: Path, moment: float, *, seed: int, full: bool, resume: bool) -> tuple[str, set[str]]:
    """Kill a run at a moment after its start.

    Returns:
        The last stage that had ended, "" if no job had begun; and the ids of what was recorded.
    """
    command = job_command(output, seed=seed, full=full, resume=resume)
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
