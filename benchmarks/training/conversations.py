"""Rollouts of a small model of transformers over several turns.  Run: python benchmarks/training/conversations.py

    python benchmarks/training/conversations.py [--turns 8] [--tasks 8] [--repeat 3] [--against COMMIT] [--json]

A Qwen2 of whet's default size (random weights) plays every task GROUP times; each turn reads some 60 new ids after all
that came before and writes 6, as `world.py` has it.  Figures are medians of rollouts per CPU second of a process.
`--against` measures the source of a commit as well, in processes by turns.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from world import ACTION, GROUP, OBSERVATION, VOCABULARY

from whet.learn.training.huggingface import CausalLM
from whet.learn.training.model import ModelOptions, build, to_transformers
from whet.learn.training.sampler import Sampler

ROOT = Path(__file__).resolve().parents[2]


def observations(task: int, turns: int) -> list[list[int]]:
    """What the rollouts of a task read, turn by turn."""
    rng = random.Random(task)
    return [
        [rng.randrange(4, VOCABULARY) for _ in range(OBSERVATION + rng.randint(-15, 15))]
        for _ in range(turns)
    ]


async def play(sampler: Sampler, tasks: int, turns: int) -> list[tuple[int, ...]]:
    """All rollouts at once; what they wrote."""

    async def one(task: int, index: int) -> tuple[int, ...]:
        session = sampler.session(task * GROUP + index)
        for observation in observations(task, turns):
            await session.generate(observation, stop_id=None, max_new_tokens=ACTION)
        return tuple(session.context)

    return list(await asyncio.gather(*(one(task, index) for task in range(tasks) for index in range(GROUP))))


def measure(turns: int, tasks: int) -> float:
    """Rollouts per CPU second."""
    torch.set_num_threads(1)
    options = ModelOptions(max_length=2 * turns * (OBSERVATION + 15 + ACTION))
    sampler = Sampler(CausalLM(to_transformers(build(options, VOCABULARY, 0))))
    asyncio.run(play(sampler, 1, 1))  # warm
    before = time.process_time()
    asyncio.run(play(sampler, tasks, turns))
    return tasks * GROUP / (time.process_time() - before)


def main() -> None:
    """Measure this source and, in turns, that of a commit."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--tasks", type=int, default=8)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--against", help="a commit whose source is measured beside this one's")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.once:
        print(measure(given.turns, given.tasks))
        return
    with tempfile.TemporaryDirectory() as folder:
        sources = {"here": ROOT}
        if given.against:
            archive = subprocess.run(
                ["git", "archive", given.against, "src"], cwd=ROOT, check=True, capture_output=True
            ).stdout
            subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
            sources["before"] = Path(folder)
        rates: dict[str, list[float]] = {name: [] for name in sources}
        for _ in range(given.repeat):
            for name, source in sources.items():
                command = [sys.executable, __file__, "--once", "--turns", str(given.turns)]
                ended = subprocess.run(
                    [*command, "--tasks", str(given.tasks)],
                    check=True,
                    capture_output=True,
                    text=True,
                    env={**os.environ, "PYTHONPATH": str(source / "src")},
                )
                rates[name].append(float(ended.stdout))
    row = {f"{name}_rollouts_per_cpu_second": round(statistics.median(of), 2) for name, of in rates.items()}
    if "before" in rates:
        row["ratio"] = round(statistics.median(rates["here"]) / statistics.median(rates["before"]), 2)
    print(
        json.dumps(row) if given.json else "\n".join(f"{name:32} {value:>10}" for name, value in row.items())
    )


if __name__ == "__main__":
    main()
