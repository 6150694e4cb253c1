"""Rounds beside long-tailed rollouts: a barrier, or the pipeline.  Run: python benchmarks/training/makespan.py

    python benchmarks/training/makespan.py [--rounds 12] [--repeat 3] [--mean 0.05] [--json]

A tiny decoder learns by GRPO which of four answers a digit wants; `whet serve-policy` samples in a process of its own.
Each rollout waits, as a tool or a browser would, for a lognormal time (sigma 1.5: the longest of a round of 64 takes
some twelve times the mean).  Both ways have the same tasks, policies, options and 32 rollouts at once, and end after
the same number of rounds; `barrier` is `improve`, `beside` is `improve(asynchronous=PipelineOptions(max_staleness=2))`.
Seconds are of the wall clock, of the rounds alone (server, baseline and evaluation are outside), the ways by turns;
`success` is measured afterwards on tasks that nothing learned from; `shuffled` is `beside` with rewards by chance.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from whet import Experiment
from whet.learn.optimizers.grpo import GRPO, GRPOOptions
from whet.learn.pipeline import PipelineOptions
from whet.learn.training.alarms import AlarmOptions
from whet.learn.training.engines import EnginePlan, engine
from whet.learn.training.local import fresh
from whet.learn.training.model import ModelOptions
from whet.learn.training.optim import OptimOptions
from whet.learn.training.remote import RemoteModels
from whet.learn.training.vocabulary import Vocabulary
from whet.models.engine import EngineServer
from whet.record.env import StepResult
from whet.record.policy import Action
from whet.types import Bundle, Outcome, Split, Task, Trajectory

DIGITS = [str(number) for number in range(4)]
WORDS = Vocabulary(DIGITS)
MODEL = ModelOptions(hidden=16, layers=1, heads=2, kv_heads=1, ffn=32, max_length=32)
GROUP, TASKS, AT_ONCE, SIGMA = 8, 8, 32, 1.5


class Waiting:
    """One digit, one answer, and a wait in between whose mean is MEAN seconds."""

    MEAN = 0.05

    def reset(self, task: Task, seed: int) -> str:
        self._digit, self._chance = str(task.initial_state), random.Random(seed)
        return self._digit

    async def step(self, action: str) -> StepResult:
        await asyncio.sleep(self.MEAN * self._chance.lognormvariate(-SIGMA * SIGMA / 2, SIGMA))
        won = action == DIGITS[(int(self._digit) + 1) % len(DIGITS)]
        return StepResult(None, float(won), True, info={"success": won})


class Asked:
    """The policy of one rollout."""

    def __init__(self, session: Any) -> None:
        self._session = session

    async def act(self, observation: str) -> Action:
        prompt = [WORDS.bos, *WORDS.encode([observation]), WORDS.act]
        sampled = await self._session.generate(prompt, stop_id=None, max_new_tokens=1)
        return Action(WORDS.tokens[sampled.output_ids[0]], sampled.tokens, sampled.usage)


def success(trajectory: Trajectory) -> bool:
    """Its outcome."""
    return trajectory.outcome is Outcome.SUCCESS


def chance(trajectory: Trajectory) -> float:
    """A reward that says nothing."""
    return random.Random(trajectory.id).random()


async def run(
    server: EngineServer, folder: Path, start: Bundle, way: str, seed: int, rounds: int
) -> dict[str, float]:
    """One run: its seconds, and what it has learned."""
    models = RemoteModels(server, folder)
    rng = random.Random(seed)
    splits = [Split.TRAIN] * 64 + [Split.VALIDATION] * 32
    tasks = [
        Task(id=f"{seed}-{number}", initial_state=rng.choice(DIGITS), split=split)
        for number, split in enumerate(splits)
    ]
    experiment = Experiment(
        env=Waiting,
        policy=lambda bundle, seed: Asked(models.sampler(bundle["policy"]).session(seed)),
        tasks=tasks,
        rewards=[success, chance],
        seed=seed,
        folder=folder / "run",
        concurrency=AT_ONCE,
    )
    experiment.baseline = {"success": 0.25}
    options = GRPOOptions(
        steps=rounds,
        group_size=GROUP,
        checkpoint_every=rounds,
        kl_every=rounds,
        score="chance" if way == "shuffled" else None,
        optim=OptimOptions(learning_rate=1e-2, schedule="constant"),
        alarms=AlarmOptions(max_no_signal=None),
        seed=seed,
    )

    async def publish(bundle: Bundle) -> None:
        await models.publish(bundle["policy"])

    await publish(start)
    beside = PipelineOptions(workers=AT_ONCE, groups=TASKS, max_staleness=2, seed=seed, publish=publish)
    before = time.perf_counter()
    ended = await experiment.improve(
        GRPO(options, models=models),
        bundle=start,
        rounds=rounds,
        tasks=TASKS,
        asynchronous=None if way == "barrier" else beside,
    )
    seconds = time.perf_counter() - before
    Waiting.MEAN, mean = 0.0, Waiting.MEAN
    groups = await experiment.evaluate(ended.bundle, n=8)
    Waiting.MEAN = mean
    runs = [trajectory for group in groups for trajectory in group.trajectories]
    stale = statistics.fmean(row.get("staleness", 0.0) for row in ended.metrics)
    await server.aclose()
    return {"seconds": seconds, "success": sum(map(success, runs)) / len(runs), "staleness": stale}


def main() -> None:
    """Measure, in turns."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--repeat", type=int, default=3, help="seeds")
    parser.add_argument("--mean", type=float, default=0.05, help="seconds that a rollout waits, in the mean")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    Waiting.MEAN = given.mean
    ways = ("barrier", "beside", "shuffled")
    rows: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        start = Bundle([fresh("policy", folder / "start", options=MODEL, vocab_size=len(WORDS), seed=0)])
        with engine(EnginePlan(where="policy", model=str(folder / "start")), folder) as server:
            for seed in range(given.repeat):
                for way in ways:
                    place = folder / f"{way}-{seed}"
                    rows[way].append(asyncio.run(run(server, place, start, way, seed, given.rounds)))
    report: dict[str, Any] = {
        way: {name: round(statistics.median(row[name] for row in of), 3) for name in of[0]}
        for way, of in rows.items()
    }
    report["ratio"] = round(report["beside"]["seconds"] / report["barrier"]["seconds"], 3)
    report["success_by_seed"] = {way: [round(row["success"], 2) for row in of] for way, of in rows.items()}
    print(json.dumps(report) if given.json else json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
