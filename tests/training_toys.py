"""A task that a tiny policy learns in seconds: echo two digits, then recall the first.

Three turns of one rollout, so that what was read and written in earlier turns matters.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path

from methods_toys import nothing

from whet.errors import EnvError
from whet.learn.loop import Context
from whet.learn.training.local import LocalModels, fresh
from whet.learn.training.model import ModelOptions
from whet.learn.training.sampler import RolloutSession
from whet.learn.training.vocabulary import Vocabulary
from whet.record.env import StepResult, rollout
from whet.record.policy import Action
from whet.types import Bundle, Group, Outcome, Step, Task, Tokens, Trajectory

DIGITS = [str(number) for number in range(6)]
VOCABULARY = Vocabulary([*DIGITS, "first"])
SMALL = ModelOptions(hidden=32, heads=2, kv_heads=1, ffn=64, max_length=64)


class Recall:
    """Observations `a`, `b`, `first`; right answers a, b, a; a third of the reward for each."""

    def __init__(self) -> None:
        self._turn: int | None = None

    def reset(self, task: Task, seed: int) -> str:
        self._digits = task.initial_state["digits"]
        self._turn, self._right = 0, 0
        return self._digits[0]

    def step(self, action: str) -> StepResult:
        if self._turn is None or self._turn > 2:
            raise EnvError("stepped before reset or after the end")
        right = action == (*self._digits, self._digits[0])[self._turn]
        self._right += right
        self._turn += 1
        if self._turn == 3:
            return StepResult(None, right / 3, True, False, {"success": self._right == 3})
        return StepResult((*self._digits, "first")[self._turn], right / 3)


def observation_ids(observation: str, *, first: bool) -> list[int]:
    ids = [*VOCABULARY.encode([observation]), VOCABULARY.act]
    return [VOCABULARY.bos, *ids] if first else ids


class RecallPolicy:
    def __init__(self, session: RolloutSession) -> None:
        self._session = session

    async def act(self, observation: str) -> Action:
        prompt = observation_ids(observation, first=not self._session.context)
        sampled = await self._session.generate(prompt, stop_id=VOCABULARY.eos, max_new_tokens=2)
        return Action(VOCABULARY.tokens[sampled.output_ids[0]], sampled.tokens, sampled.usage)


def tasks(count: int, seed: int = 0) -> list[Task]:
    rng = random.Random(seed)
    return [Task(id=f"{seed}-{i}", initial_state={"digits": rng.choices(DIGITS, k=2)}) for i in range(count)]


def demonstrations(count: int, *, wrong: float, seed: int = 0) -> list[Group]:
    """A teacher who answers each turn at random with probability `wrong`."""
    rng = random.Random(seed)
    groups = []
    for task in tasks(count, seed + 1000):
        env = Recall()
        observation = env.reset(task, 0)
        context: list[int] = []
        steps = []
        a, b = task.initial_state["digits"]
        for right in (a, b, a):
            answer = rng.choice(DIGITS) if rng.random() < wrong else right
            context = context + observation_ids(observation, first=not context)
            output = [*VOCABULARY.encode([answer]), VOCABULARY.eos]
            result = env.step(answer)
            tokens = Tokens(tuple(context), tuple(output), ())
            steps.append(Step(action=answer, reward=result.reward, done=result.terminated, tokens=tokens))
            context = context + output
            observation = result.observation
        outcome = Outcome.SUCCESS if result.info["success"] else Outcome.FAILURE
        groups.append(Group(task, [Trajectory(task=task, steps=steps, outcome=outcome)]))
    return groups


def beginning(folder: Path, seed: int = 0) -> Bundle:
    return Bundle([fresh("policy", folder / "start", options=SMALL, vocab_size=len(VOCABULARY), seed=seed)])


async def collect(
    bundle: Bundle, todo: Sequence[Task], n: int, *, seed: int, models: LocalModels, greedy: bool = False
) -> list[Group]:
    sampler = models.sampler(bundle["policy"], greedy=greedy)
    runs = [
        rollout(
            Recall(),
            RecallPolicy(sampler.session(seed * 1_000_003 + number * n + i)),
            task,
            seed=i,
            versions=bundle.ids,
        )
        for number, task in enumerate(todo)
        for i in range(n)
    ]
    done = await asyncio.gather(*runs)
    return [Group(task, done[k * n : (k + 1) * n]) for k, task in enumerate(todo)]


def context(folder: Path, *, baseline: dict[str, float] | None = None, state: object = None) -> Context:
    return Context(rollout=nothing, folder=folder, baseline=baseline, state=state)
