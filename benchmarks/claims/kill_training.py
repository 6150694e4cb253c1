"""kill -9 at random moments of `whet train`, then --resume: the weights are the same bits.

A moment is a row that the run notes (a round, or an update within one) and a part of the time to the
next, so that it lies between beginning and end however busy the machine is.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
from page import publish, table

from whet.learn.training.running import checkpointed

TESTS = Path(__file__).resolve().parents[2] / "tests"
OWN = ["--checkpoint-every", "3", "--round-tasks", "1"]
"""Of methods that learn from each recorded trajectory once: 24 rounds."""
METHODS = {
    "grpo": [*OWN, "--passes", "8"],
    "ppo": [*OWN, "--passes", "4"],
    "dpo": ["--epochs", "6"],
}
PATIENCE = 600.0
"""Seconds for a run to come to its moment."""


def _recorded(folder: Path) -> Path:
    """Trajectories of a random policy in the toy that the methods' tests use."""
    sys.path.insert(0, str(TESTS))
    import methods_toys as toys

    from whet.learn.training.local import LocalModels
    from whet.record.exchange import formats

    groups = asyncio.run(toys.collect(toys.beginning(folder), toys.tasks(24), 8, models=LocalModels()))
    formats.write_trajectories(folder / "data.jsonl", [t for group in groups for t in group.trajectories])
    return folder / "data.jsonl"


def _train(method: str, data: Path, output: Path, *, resume: bool) -> subprocess.Popen[bytes]:
    words = ["train", method, "--data", str(data), "--output", str(output), "--json", *METHODS[method]]
    words += [] if method == "dpo" else ["--model", str(data.parent / "start")]
    words += ["--resume"] if resume else []
    return subprocess.Popen(
        [sys.executable, "-m", "whet", *words],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=(output.parent / f"{output.name}.log").open("ab"),
    )


def _weights(output: Path) -> str:
    """SHA-256 of what the run ended with."""
    (version,) = msgspec.json.decode((output / "bundle.json").read_bytes())["bundle"]
    found: str = version["content"]["sha256"]
    return found


def _noted(output: Path) -> int:
    """Rows that a run has written of how it goes; -1 before it has begun."""
    if not (output / "run.json").exists():
        return -1
    paths = [output / name for name in ("metrics.jsonl", "curves.jsonl")]
    return sum(path.read_bytes().count(b"\n") for path in paths if path.exists())


def _killed(running: subprocess.Popen[bytes], output: Path, row: int, later: float) -> bool:
    """Kill a run some seconds after a row of its notes; whether it was still under way."""
    until = time.monotonic() + PATIENCE
    while _noted(output) < row and running.poll() is None:
        if time.monotonic() > until:
            running.kill()
            running.wait()
            raise SystemExit(f"{output} came to no row {row} in {PATIENCE:g} s")
        time.sleep(0.002)
    try:
        running.wait(timeout=later)
    except subprocess.TimeoutExpired:
        running.send_signal(signal.SIGKILL)
        running.wait()
        return True
    return False


def _whole(method: str, data: Path, output: Path) -> tuple[int, float, str]:
    """Rows noted by an uninterrupted run, seconds from one to the next, and its weights."""
    running = _train(method, data, output, resume=False)
    while _noted(output) < 0 and running.poll() is None:
        time.sleep(0.002)
    began = time.monotonic()
    if running.wait() != 0:
        raise SystemExit(f"{method} failed uninterrupted; see {output.parent / f'{output.name}.log'}")
    rows = _noted(output)
    return rows, (time.monotonic() - began) / rows, _weights(output)


def kill_training(folder: Path, *, times: int, seed: int) -> bool:
    """Each method to the end once, then `times` runs that are each killed once; whether all end alike."""
    folder = folder / "kill-training"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    data = _recorded(folder)
    rng = random.Random(seed)
    methods = list(METHODS)[: max(1, min(times, len(METHODS)))]
    whole = {method: _whole(method, data, folder / f"{method}-whole") for method in methods}
    lines, same, number = [], 0, 0
    while len(lines) < times:
        method = methods[len(lines) % len(methods)]
        rows, seconds, expected = whole[method]
        output, number = folder / f"{method}-{number}", number + 1
        running = _train(method, data, output, resume=False)
        if not _killed(running, output, rng.randrange(rows), rng.random() * seconds):
            continue  # it was quicker than the uninterrupted one, and had ended
        noted = f"{_noted(output)} of {rows}"
        resumed = checkpointed(output)
        failed = _train(method, data, output, resume=True).wait() != 0
        found = "failed" if failed else _weights(output)
        same += found == expected
        went_on = "a checkpoint" if resumed else "the beginning"
        lines.append([method, noted, went_on, found[:12], "yes" if found == expected else "**no**"])
        print(*lines[-1], file=sys.stderr, flush=True)
    columns = ["method", "killed after rows noted", "went on from", "weights", "same bits"]
    text = f"`whet train` of a tiny model, killed once in each run and resumed: {same} of {times} ended with "
    text += "the bits of the uninterrupted run."
    publish("Kill -9 in training", [text, "", *table(columns, lines)])
    return same == times
