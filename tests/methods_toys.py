"""A policy so small that a method learns in a second what it can learn: which answer a digit wants.

`Answer` is one or more turns; at each the observation is a digit and the right answer is another.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from whet.errors import EnvError
from whet.learn.loop import Context, Optimizer, Update
from whet.learn.training.local import LocalModels, fresh
from whet.learn.training.model import ModelOptions
from whet.learn.training.optim import OptimOptions
from whet.learn.training.sampler import RolloutSession
from whet.learn.training.vocabulary import Vocabulary
from whet.record.env import StepResult, rollout
from whet.record.policy import Action
from whet.types import Bundle, Group, Outcome, Score, Task, Trajectory

torch.set_num_threads(1)

DIGITS = [str(number) for number in range(4)]
WORDS = Vocabulary(DIGITS)
SMALL = ModelOptions(hidden=16, layers=1, heads=2, kv_heads=1, ffn=32, max_length=32)
FAST = OptimOptions(learning_rate=2e-2, schedule="constant")
RIGHT = {digit: DIGITS[(place + 1) % 4] for place, digit in enumerate(DIGITS)}

NEXT_DIGIT = """
import gymnasium
from gymnasium import spaces


class Next(gymnasium.Env):
    observation_space, action_space = spaces.Text(1), spaces.Discrete(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.digit = int(self.np_random.integers(4))
        return str(self.digit), {}

    def step(self, action):
        return "", float(action == (self.digit + 1) % 4), True, False, {}
"""
"""A module with the same game of one turn, as an environment of Gymnasium."""
CHANCE = f"""
import random
{NEXT_DIGIT}

CHANCE = random.Random(0)


class Chance(Next):
    # Any text is an action: where some are refused, even these rewards teach which.
    action_space = spaces.Text(9)

    def step(self, action):
        won = action == str((self.digit + 1) % 4)
        return "", float(CHANCE.random() < 0.25), True, False, {{"success": won}}
"""
"""The same with rewards by chance beside the success that is judged."""
ANSWERS = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from methods_toys import Answer, AnswerPolicy
from whet.learn.training.local import LocalModels


def env():
    return Answer()


def policy(bundle, seed):
    return AnswerPolicy(LocalModels.shared().sampler(bundle["policy"]).session(seed))
"""
"""A module with `Answer` and a policy of the weights under training."""


class Answer:
    """Digits in, answers out; `step` pays for each right one unless only the end is paid."""

    def __init__(self, *, only_end: bool = False) -> None:
        self._only_end = only_end
        self._turn: int | None = None

    def reset(self, task: Task, seed: int) -> str:
        self._digits: Sequence[str] = task.initial_state["digits"]
        self._turn, self._good = 0, 0
        return self._digits[0]

    def step(self, action: str) -> StepResult:
        if self._turn is None or self._turn >= len(self._digits):
            raise EnvError("stepped before reset or after the end")
        good = action == RIGHT[self._digits[self._turn]]
        self._good += good
        self._turn += 1
        done = self._turn == len(self._digits)
        won = self._good == len(self._digits)
        paid = float(won and done) if self._only_end else good / len(self._digits)
        seen = None if done else self._digits[self._turn]
        return StepResult(seen, paid, done, False, {"success": won} if done else {})


class AnswerPolicy:
    def __init__(self, session: RolloutSession) -> None:
        self._session = session

    async def act(self, observation: str) -> Action:
        ids = [*WORDS.encode([observation]), WORDS.act]
        prompt = ids if self._session.context else [WORDS.bos, *ids]
        sampled = await self._session.generate(prompt, stop_id=None, max_new_tokens=1)
        return Action(WORDS.tokens[sampled.output_ids[0]], sampled.tokens, sampled.usage)


def tasks(count: int, seed: int = 0, turns: int = 1) -> list[Task]:
    rng = random.Random(seed)
    return [
        Task(id=f"{seed}-{number}", initial_state={"digits": rng.choices(DIGITS, k=turns)})
        for number in range(count)
    ]


def beginning(folder: Path, seed: int = 0) -> Bundle:
    return Bundle([fresh("policy", folder / "start", options=SMALL, vocab_size=len(WORDS), seed=seed)])


async def collect(
    bundle: Bundle,
    todo: Sequence[Task],
    n: int,
    *,
    models: LocalModels,
    seed: int = 0,
    only_end: bool = False,
    temperature: float = 1.0,
    greedy: bool = False,
) -> list[Group]:
    sampler = models.sampler(bundle["policy"], temperature=temperature, greedy=greedy)
    runs = [
        rollout(
            Answer(only_end=only_end),
            AnswerPolicy(sampler.session(seed * 1_000_003 + number * n + i)),
            task,
            seed=i,
            versions=bundle.ids,
            id=f"{seed}-{task.id}-{i}",
        )
        for number, task in enumerate(todo)
        for i in range(n)
    ]
    done = await asyncio.gather(*runs)
    return [Group(task, done[k * n : (k + 1) * n]) for k, task in enumerate(todo)]


def success(groups: Sequence[Group]) -> float:
    every = [trajectory.outcome is Outcome.SUCCESS for group in groups for trajectory in group.trajectories]
    return sum(every) / len(every)


async def measured(bundle: Bundle, models: LocalModels, *, turns: int = 1, count: int = 200) -> float:
    return success(await collect(bundle, tasks(count, 99, turns), 1, seed=5, models=models))


async def nothing(*_: object, **__: object) -> list[Group]:
    return []


def context(folder: Path, *, state: object = None, **fields: Any) -> Context:
    fields = {"baseline": {"success": 0.3}, "rollout": nothing, **fields}
    return Context(folder=folder, state=state, **fields)


def scored(groups: Sequence[Group], score: Callable[[Trajectory], float | None], name: str) -> list[Group]:
    return [Group(g.task, [t.scored(Score(name, score(t))) for t in g.trajectories]) for g in groups]


def shuffled(groups: Sequence[Group], seed: int = 0) -> list[Group]:
    """The same trajectories with each other's rewards, step by step, and with each other's outcomes."""
    every = [trajectory for group in groups for trajectory in group.trajectories]
    donors = list(every)
    random.Random(seed).shuffle(donors)
    left = iter(donors)

    def swapped(trajectory: Trajectory) -> Trajectory:
        donor = next(left)
        steps = [
            replace(step, reward=other.reward)
            for step, other in zip(trajectory.steps, donor.steps, strict=True)
        ]
        return replace(trajectory, steps=steps, outcome=donor.outcome)

    return [Group(group.task, [swapped(t) for t in group.trajectories]) for group in groups]


async def rounds(
    optimizer: Optimizer,
    bundle: Bundle,
    folder: Path,
    models: LocalModels,
    *,
    count: int,
    todo: int = 32,
    n: int = 4,
    turns: int = 1,
    only_end: bool = False,
    seed: int = 0,
    relabel: Callable[[list[Group]], list[Group]] = lambda groups: groups,
) -> tuple[Update, list[Update]]:
    """Fresh trajectories and a step, `count` times; the last update and all of them."""
    state, updates = None, []
    for number in range(count):
        groups = await collect(
            bundle,
            tasks(todo, seed * 1000 + number, turns),
            n,
            seed=seed * 100 + number,
            models=models,
            only_end=only_end,
        )
        update = await optimizer.step(bundle, relabel(groups), context(folder, state=state))
        bundle, state = update.bundle, update.state
        updates.append(update)
        if update.done:
            break
    return updates[-1], updates
