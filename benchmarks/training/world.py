"""The work that is timed: random trajectories of a small model, and what each method does with them."""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from whet.learn.training import huggingface
from whet.learn.training.batch import minibatches, parts
from whet.learn.training.credit import credit
from whet.learn.training.learner import Learner, chosen_logprobs, cloning_loss
from whet.learn.training.losses import dpo
from whet.learn.training.model import ModelOptions, build, to_transformers
from whet.learn.training.optim import OptimOptions
from whet.learn.training.pairs import PreferencePair, cut_pairs, reference_sums, side_sums, trajectory_pairs
from whet.learn.training.policy_gradient import PolicyLoss
from whet.learn.training.sampler import Sampler
from whet.types import Group, Outcome, Step, Task, Trajectory

TASKS, GROUP, OBSERVATION, ACTION, VOCABULARY = 32, 8, 60, 6, 150
OPTIONS = ModelOptions()


def observations(task: int) -> list[list[int]]:
    """2 to 6 turns of about 60 ids, the same for all rollouts of a task."""
    rng = random.Random(task)
    return [
        [rng.randrange(4, VOCABULARY) for _ in range(OBSERVATION + rng.randint(-15, 15))]
        for _ in range(rng.randint(2, 6))
    ]


async def rollouts(sampler: Sampler, seed: int, *, tasks: int = TASKS, at_once: int = 1_024) -> list[Group]:
    """Every task GROUP times, so many episodes at once, with exactly ACTION ids a turn."""
    room = asyncio.Semaphore(at_once)

    async def one(task: Task, number: int, index: int) -> Trajectory:
        async with room:
            return await played(task, number, index)

    async def played(task: Task, number: int, index: int) -> Trajectory:
        session = sampler.session(seed * 1_000_003 + number * GROUP + index)
        steps = []
        for observation in observations(number):
            sampled = await session.generate(observation, stop_id=None, max_new_tokens=ACTION)
            steps.append(Step(tokens=sampled.tokens))
        # a reward that no group can agree on, so that none is skipped
        steps[-1] = replace(steps[-1], reward=(index % 2) + 0.01 * index)
        return Trajectory(task=task, steps=steps, outcome=Outcome.FAILURE)

    made = [(Task(id=str(number)), number) for number in range(tasks)]
    done = await asyncio.gather(
        *[one(task, number, index) for task, number in made for index in range(GROUP)]
    )
    return [Group(task, done[i * GROUP : (i + 1) * GROUP]) for i, (task, _) in enumerate(made)]


def credited(groups: list[Group]) -> Any:
    """Sequences with GRPO's advantages."""
    return credit(groups, score=None, baseline="group", scale="none", unknown=None)


def grpo_step(learner: Learner, groups: list[Group]) -> PolicyLoss:
    """What GRPO does with one round of groups."""
    (batch,) = minibatches(credited(groups).sequences, None, random.Random(0))
    cut = parts(batch)
    loss = PolicyLoss(parts=cut, aggregation="dapo")
    learner.update(cut, loss, rate=1e-3)
    return loss


def sft_step(learner: Learner, groups: list[Group]) -> None:
    """One update of SFT on a round of trajectories."""
    cut = parts(credited(groups).sequences)
    learner.update(cut, cloning_loss(cut), rate=1e-3)


def pairs_of(groups: list[Group]) -> list[PreferencePair]:
    """Every trajectory of the better half of its group with one of the worse."""
    return trajectory_pairs(groups, score=None, margin=0.5, per_task=GROUP // 2, seed=0)[0]


def dpo_step(learner: Learner, groups: list[Group], beta: float = 0.1) -> None:
    """Pairs, their likelihood under the reference, and one update on all of them."""
    pairs = pairs_of(groups)
    there = reference_sums(learner.decoder, pairs, 4096)

    def objective(part: Any) -> torch.Tensor:
        numbers, chosen, rejected = side_sums(chosen_logprobs(learner.decoder, part), part)
        return dpo(chosen - there[0][numbers], rejected - there[1][numbers], beta=beta).sum() / len(pairs)

    learner.descend(cut_pairs(pairs, range(len(pairs)), 4096, len(pairs)), objective, rate=1e-3)


LEARNERS = ("embedded", "transformers", "transformers, Muon")
"""A decoder of whet's own; the same weights as a model of transformers, trained by what such a model is by default
(AdamW), and by Muon."""


def learner_of(path: str, folder: Path) -> Learner:
    """A learner of the same first weights by one of LEARNERS; the folder must not exist."""
    decoder = build(OPTIONS, VOCABULARY, 0)
    if path == "embedded":
        return Learner(decoder, OptimOptions())
    to_transformers(decoder).save_pretrained(folder)
    return Learner(huggingface.load(folder), OptimOptions(muon=True if "Muon" in path else None))


STEPS: dict[str, Callable[[Learner, list[Group]], Any]] = {
    "grpo": grpo_step,
    "sft": sft_step,
    "dpo": dpo_step,
}


def measured(work: Callable[[], Any], repeat: int) -> tuple[float, float]:
    """Median wall-clock and CPU seconds, after one run that does not count."""
    work()
    wall, cpu = [], []
    for _ in range(repeat):
        before = time.perf_counter(), time.process_time()
        work()
        wall.append(time.perf_counter() - before[0])
        cpu.append(time.process_time() - before[1])
    return statistics.median(wall), statistics.median(cpu)
