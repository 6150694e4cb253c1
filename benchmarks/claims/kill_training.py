"""kill -9 at random moments of `whet train`, then --resume: the weights are the same bits."""

from __future__ import annotations

import asyncio
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
from page import publish, table

TESTS = Path(__file__).resolve().parents[2] / "tests"
METHODS = {
    "grpo": ["--steps", "40", "--checkpoint-every", "3", "--passes", "2"],
    "ppo": ["--steps", "25", "--checkpoint-every", "3"],
    "dpo": ["--epochs", "12"],
}


def _recorded(folder: Path) -> Path:
    """Trajectories of a random policy in the toy that the methods' tests use."""
    sys.path.insert(0, str(TESTS))
    import methods_toys as toys

    from whet.data import files
    from whet.training.local import LocalModels

    groups = asyncio.run(toys.collect(toys.beginning(folder), toys.tasks(24), 8, models=LocalModels()))
    files.write(folder / "data.jsonl", [t for group in groups for t in group.trajectories])
    return folder / "data.jsonl"


def _train(method: str, data: Path, output: Path, *, resume: bool) -> subprocess.Popen[bytes]:
    words = ["train", method, "--data", str(data), "--output", str(output), "--json", *METHODS[method]]
    words += ["--resume"] if resume else []
    return subprocess.Popen(
        [sys.executable, "-m", "whet.cli", *words],
        stdout=subprocess.DEVNULL,
        stderr=(output.parent / f"{output.name}.log").open("ab"),
    )


def _weights(output: Path) -> str:
    """SHA-256 of what the run ended with."""
    (version,) = msgspec.json.decode((output / "bundle.json").read_bytes())
    found: str = version["content"]["sha256"]
    return found


def _rounds(output: Path) -> int:
    path = output / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def _whole(method: str, data: Path, output: Path) -> tuple[float, str]:
    began = time.perf_counter()
    if _train(method, data, output, resume=False).wait() != 0:
        raise SystemExit(f"{method} failed uninterrupted; see {output.parent / f'{output.name}.log'}")
    return time.perf_counter() - began, _weights(output)


def kill_training(folder: Path, *, times: int, seed: int) -> bool:
    """Each method to the end once, then `times` runs that are each killed once; whether all end alike."""
    folder = folder / "kill-training"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    data = _recorded(folder)
    rng = random.Random(seed)
    methods = list(METHODS)[: max(1, min(times, len(METHODS)))]
    whole = {method: _whole(method, data, folder / f"{method}-whole") for method in methods}
    rows, same = [], 0
    for number in range(times):
        method = methods[number % len(methods)]
        seconds, expected = whole[method]
        output, moment = folder / f"{method}-{number}", rng.uniform(0.3, 1.0) * seconds
        running = _train(method, data, output, resume=False)
        try:
            running.wait(timeout=moment)
            what = "had ended"
        except subprocess.TimeoutExpired:
            running.send_signal(signal.SIGKILL)
            running.wait()
            what = f"{_rounds(output)} rounds noted"
        if _train(method, data, output, resume=True).wait() != 0 and what != "had ended":
            found = "failed"
        else:
            found = _weights(output)
        same += found == expected
        rows.append([method, f"{moment:.1f}", what, found[:12], "yes" if found == expected else "**no**"])
        print(*rows[-1], file=sys.stderr, flush=True)
    columns = ["method", "killed at, s", "then", "weights after resuming", "same bits"]
    text = f"`whet train` of a tiny model, killed once in each run and resumed: {same} of {times} ended with "
    text += "the bits of the uninterrupted run."
    publish("Kill -9 in training", [text, "", *table(columns, rows)])
    return same == times
