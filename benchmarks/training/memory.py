"""What one step takes in memory, each side in a process of its own."""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

SIZE = 16
"""TRL's micro-batch; ours is 4,096 tokens, which is about as much."""
SIDES = ("embedded", "transformers")
"""Ours, as `world.LEARNERS` has them."""


def _status(name: str) -> float:
    """A size of this process, in MB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) / 1024
    raise LookupError(name)


def inside(method: str, side: str) -> dict[str, float]:
    """Resident before the step, and at most during it."""
    import torch
    from world import OPTIONS, STEPS, VOCABULARY, learner_of, rollouts

    from whet.learn.training.model import build
    from whet.learn.training.sampler import Sampler

    torch.set_num_threads(1)
    groups = asyncio.run(rollouts(Sampler(build(OPTIONS, VOCABULARY, 0)), 0))
    with tempfile.TemporaryDirectory() as folder:
        if side != "trl":
            learner = learner_of(side, Path(folder) / "m")

            def step() -> Any:
                return STEPS[method](learner, groups)
        else:
            warnings.filterwarnings("ignore")
            from beside_trl import Trl

            other = Trl(build(OPTIONS, VOCABULARY, 0), groups, Path(folder), method)
            batches = other.batches(SIZE)

            def step() -> Any:
                return other.step(batches)

        before = _status("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
        step()
        return {"before_mb": round(before, 1), "peak_mb": round(_status("VmHWM"), 1)}


def memory(method: str) -> dict[str, Any]:
    """Both sides' figures, and the ratios of the peaks and of what the step itself adds."""
    found: dict[str, Any] = {}
    for side in (*SIDES, "trl"):
        done = subprocess.run(
            [sys.executable, __file__, method, side], stdout=subprocess.PIPE, check=True, text=True
        )
        found[side] = json.loads(done.stdout.splitlines()[-1])
    theirs = found["trl"]
    added = {name: side["peak_mb"] - side["before_mb"] for name, side in found.items()}
    found["peak_ratio"] = {side: round(found[side]["peak_mb"] / theirs["peak_mb"], 3) for side in SIDES}
    found["added_ratio"] = {side: round(added[side] / added["trl"], 3) for side in SIDES}
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("method")
    parser.add_argument("side", choices=(*SIDES, "trl"))
    given = parser.parse_args()
    print(json.dumps(inside(given.method, given.side)))
