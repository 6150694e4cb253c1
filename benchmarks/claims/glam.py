"""GLAM in BabyAI's GoTo red ball, told in words: `scripts/claims glam` (needs minigrid).

A policy from random weights chooses among the six actions by their likelihood (`whet.learn.training.choice`)
and learns by PPO on its choices (`whet.learn.optimizers.candidates`).  Judged on rooms it never saw, with the
level's own limit of steps, and in rooms whose ball goes by a name that it was never taught.  The control
learns from each other's rewards.

The settings are the paper's but for two, and the table has the paper's as well.  Rewards are not
discounted: a discount pays each step of an episode that ends soon more, whatever is paid at its end, and
here it is success that ends one, so that rewards which say nothing can teach.  And actions are scored by
the mean of their tokens: two of the six are one word long, the others two, and by the sum an untrained
policy says hardly anything but those two.
"""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from page import PAGE, publish, table

from whet.learn.loop import Context
from whet.learn.optimizers.candidates import CandidateOptions, Candidates
from whet.learn.training.alarms import AlarmOptions
from whet.learn.training.choice import ChoicePolicy, Chooser
from whet.learn.training.local import LocalModels, fresh
from whet.learn.training.model import ModelOptions
from whet.learn.training.optim import OptimOptions
from whet.learn.training.vocabulary import Vocabulary
from whet.record.env import rollout
from whet.types import Bundle, Group, Outcome, Task
from whet.worlds.text import ACTIONS, WORDS, TextWorld, spoken, text_tasks

TOKENS = Vocabulary([*WORDS, "sphere"])
SAID = [(action, TOKENS.encode(action.split())) for action in ACTIONS]
REMEMBERED = 3
"""Observations that the policy is shown."""
NETWORK = ModelOptions(hidden=48, layers=2, heads=4, kv_heads=2, ffn=96, max_length=160, init_std=0.08)
NEVER = AlarmOptions(success_drop=None, min_entropy=None, max_no_signal=None)


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much is played."""

    rounds: int = 40
    episodes: int = 24
    """In each round."""
    judged: int = 200
    """Rooms to judge by."""


def prompt(seen: Sequence[Any]) -> list[int]:
    """The mission and the last observations."""
    past = [word for one in seen[-REMEMBERED:-1] for word in spoken(one, mission=False)]
    return [TOKENS.bos, *TOKENS.encode([*past, *spoken(seen[-1])]), TOKENS.act]


def admissible(_: Any) -> list[tuple[str, list[int]]]:
    """All six actions, at any time."""
    return SAID


def exchanged(groups: Sequence[Group], seed: int) -> list[Group]:
    """The same episodes with each other's rewards and outcomes; a reward stands on the last step."""
    donors = [trajectory for group in groups for trajectory in group.trajectories]
    random.Random(seed).shuffle(donors)
    left = iter(donors)

    def given(trajectory: Any) -> Any:
        donor = next(left)
        steps = [replace(step, reward=0.0) for step in trajectory.steps]
        steps[-1] = replace(steps[-1], reward=donor.reward)
        return replace(trajectory, steps=steps, outcome=donor.outcome)

    return [Group(group.task, [given(one) for one in group.trajectories]) for group in groups]


@dataclass(kw_only=True)
class Player:
    """Plays with the policy of a bundle."""

    models: LocalModels
    normalised: bool

    def context(self, folder: Path, *, before: float, state: Any) -> Context:
        """What a step of the optimizer is given."""
        return Context(rollout=self.play, folder=folder, baseline={"success": before}, state=state)

    async def play(
        self,
        bundle: Bundle,
        tasks: Sequence[Task],
        n: int = 1,
        *,
        seed: int = 0,
        prefix: Sequence[Any] | None = None,
    ) -> list[Group]:
        """Episodes of every task, a group each."""
        assert prefix is None
        chooser = Chooser(self.models.decoder(bundle["policy"]), normalised=self.normalised)
        played = [
            rollout(
                TextWorld(limit=None),
                ChoicePolicy(chooser, admissible, prompt, (seed * 997 + place) * 997 + number),
                task,
                seed=number,
            )
            for place, task in enumerate(tasks)
            for number in range(n)
        ]
        done = await asyncio.gather(*played)
        return [Group(task, done[place * n : (place + 1) * n]) for place, task in enumerate(tasks)]


def success(groups: Sequence[Group]) -> float:
    """Share of episodes that reached the ball."""
    return fmean(one.outcome is Outcome.SUCCESS for group in groups for one in group.trajectories)


def by_chance(rooms: int) -> float:
    """Success of actions drawn evenly, in the rooms that judge."""
    chance, reached = random.Random(0), []
    for task in text_tasks(rooms, seed=7):
        world = TextWorld(limit=None)
        world.reset(task, 0)
        while not (seen := world.step(chance.choice(ACTIONS))).terminated and not seen.truncated:
            pass
        reached.append(seen.info["success"])
    return fmean(reached)


async def learned(
    seed: int, size: Size, *, control: bool = False, paper: bool = False
) -> tuple[float, float, float]:
    """Success before, after, and after with the ball under another name."""
    settings: dict[str, Any] = {} if paper else {"gamma": 1.0, "lam": 1.0, "normalised": True}
    with tempfile.TemporaryDirectory() as path:
        folder, player = Path(path), Player(models=LocalModels(), normalised=not paper)
        bundle = Bundle(
            [fresh("policy", folder / "start", options=NETWORK, vocab_size=len(TOKENS), seed=seed)]
        )
        options = CandidateOptions(
            steps=size.rounds,
            checkpoint_every=size.rounds,
            floor=0.0,
            alarms=NEVER,
            optim=OptimOptions(learning_rate=3e-3),
            **settings,
        )
        optimizer, state = Candidates(admissible, options, models=player.models), None
        judged = text_tasks(size.judged, seed=7)
        before = success(await player.play(bundle, judged, seed=1))
        for number in range(size.rounds):
            rooms = text_tasks(size.episodes, seed=1_000 * (seed + 1) + number)
            groups = await player.play(bundle, rooms, seed=number)
            print(f"seed {seed} round {number} {success(groups):.2f}", file=sys.stderr, flush=True)
            if control:
                groups = exchanged(groups, number)
            update = await optimizer.step(bundle, groups, player.context(folder, before=before, state=state))
            bundle, state = update.bundle, update.state
        renamed = text_tasks(size.judged, seed=8, names={"ball": "sphere"})
        after = [success(await player.play(bundle, rooms, seed=2)) for rooms in (judged, renamed)]
        return before, after[0], after[1]


def glam(*, seeds: int, size: Size | None = None, page: Path = PAGE) -> None:
    """Measure and publish."""
    torch.set_num_threads(1)
    size = size or Size()
    kinds: dict[str, dict[str, bool]] = {
        "trained": {},
        "control: each other's rewards": {"control": True},
        "the paper's settings": {"paper": True},
        "their control: each other's rewards": {"paper": True, "control": True},
    }
    rows = []
    for name, kind in kinds.items():
        for seed in range(seeds):
            clock = time.process_time()
            found = asyncio.run(learned(seed, size, **kind))
            rows.append([name, str(seed), *(f"{one:.3f}" for one in found)])
            rows[-1].append(f"{time.process_time() - clock:.0f}")
    heads = ["policy", "seed", "before", "after", "the ball under another name", "CPU s"]
    said = [
        f"Success over {size.judged} rooms never seen, after {size.rounds} rounds of {size.episodes} episodes "
        f"from random weights. Actions drawn evenly: {by_chance(size.judged):.3f}. Wanted: at least .9 where "
        "chance has at most .3, and .7 under the other name.",
        "",
        *table(heads, rows),
        "The paper's settings are a discount of .99 and the sum of the tokens' log-likelihoods. Under a discount "
        "each step of an episode that ends soon is paid more, whatever its end pays, and here it is success that "
        "ends one: rewards that say nothing can teach it, which is why the first rows have no discount.",
    ]
    publish("GLAM in the text world", said, page=page)
