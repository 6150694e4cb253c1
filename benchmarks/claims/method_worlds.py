"""The two worlds that the weight methods are compared in: what acts, what is asked, what is cloned.

Both are an Experiment with its splits: mailboxes, and rooms, that nothing is trained or chosen on are
its gate.  The clone is of the agent *as it came*, so that there is something left to learn, and every
method starts from it.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from rooms import KNOBS, RULE, VOCABULARY, Rooms

from whet import Store
from whet.judge import score
from whet.learn.experiment import Experiment
from whet.learn.loop import means
from whet.learn.training.branching import Recalling
from whet.learn.training.local import LocalModels, fresh, use_threads
from whet.learn.training.model import ModelOptions
from whet.record.env import rollout
from whet.record.policy import Policy
from whet.types import Bundle, Group, Outcome, Split, Step, Task, Tokens, Trajectory, Version
from whet.worlds.demo.agents import MailAgents
from whet.worlds.demo.job import JobOptions, MailJob, Sizes
from whet.worlds.demo.learning import Learning
from whet.worlds.demo.teachers import lessons
from whet.worlds.email import MailEnv
from whet.worlds.email.slots import TOKENS
from whet.worlds.text import TextWorld, spoken, text_tasks

MAIL = Sizes(
    users=400,
    rollouts=8_000,
    searched=400,
    generations=30,
    cloned=2_000,
    validation=400,
    proposal=60,
    gate=1_600,
)
FEWER: dict[str, int] = {"rollouts": 800, "generations": 4, "cloned": 800, "validation": 80, "gate": 200}
ROOMS = {"train": 2_000, "validation": 300, "gate": 800}
LEVEL, LIMIT, LESSONS = "goto_object", 8, 800


class Mail:
    """Questions about a synthetic company's mail, another company for each seed."""

    name = "mail"
    unknown = "unknown"

    def __init__(self, seed: int, folder: Path, store: Store, *, small: bool) -> None:
        use_threads(1)
        self.rollouts = 512 if small else 6_400
        """What each method may sample."""
        sizes = replace(MAIL, **FEWER) if small else MAIL
        self.job = MailJob(JobOptions(seed=seed, output=folder, sizes=sizes), store, name="methods")
        self.experiment: Experiment = self.job.checked
        self.models: LocalModels = self.job.models
        self.recalling = Recalling(self.models)
        self._searching = MailAgents(self.job.material.world, self.recalling)

    async def rule(self) -> Bundle:
        """The agent's own rule and question parser with their knobs tuned."""
        return await Learning(self.job).evolved("rule", self.experiment, "success", "the checker")

    async def taught(self, rule: Bundle) -> tuple[Bundle, list[Group]]:
        """Fresh weights, and the successful work of the agent as it came."""
        job = self.job
        tasks = job.material.users[: job.options.sizes.cloned]
        groups = await self.experiment.collect(job.base, tasks, seed=1)
        folder = _emptied(self.experiment.folder / "fresh")
        weights = fresh("policy", folder, vocab_size=len(TOKENS), seed=self.experiment.seed)
        start = rule.put(weights, Version(resource="arm", content="policy"))
        return start, lessons(groups, job.material.world, job.agents.agent, rule)

    def branch(self, bundle: Bundle, seed: int) -> tuple[Any, Policy]:
        """Env and policy of a rollout in a search."""
        return MailEnv(self.job.material.world), self._searching(bundle, seed)


class Text:
    """Rooms in which an object is to be walked to, told in sentences; other rooms for each seed."""

    name = "text"
    unknown = None
    _shape: ClassVar = ModelOptions(hidden=48, heads=4, kv_heads=2, ffn=112, max_length=512)

    def __init__(self, seed: int, folder: Path, store: Store, *, small: bool) -> None:
        use_threads(1)
        self.rollouts = 512 if small else 4_096
        self._lessons = 400 if small else LESSONS
        self.models = LocalModels()
        self.recalling = Recalling(self.models)
        self._searching = Rooms(self.recalling)
        tasks = [
            replace(task, split=Split(part))
            for number, (part, count) in enumerate(ROOMS.items())
            for task in text_tasks(count // 4 if small else count, level=LEVEL, seed=10 * seed + number)
        ]
        self.experiment = Experiment(
            env=lambda: TextWorld(LIMIT),
            policy=Rooms(self.models),
            tasks=tasks,
            rewards=(success, reward),
            seed=seed,
            store=store,
            name="methods",
            folder=folder / "methods",
            concurrency=256,
            record=0.02,
        )

    async def rule(self) -> Bundle:
        """The rule with the knobs that do best on the rooms to train in."""
        tasks = self.experiment.train[:150]
        best: tuple[float, Bundle] | None = None
        for values in itertools.product(*KNOBS.values()):
            bundle = Bundle([Version(resource="rule", content=dict(zip(KNOBS, values, strict=True)))])
            found = means(await self.experiment.collect(bundle, tasks))["success"]
            if best is None or found > best[0]:
                best = found, bundle
        assert best is not None
        return best[1]

    async def taught(self, rule: Bundle) -> tuple[Bundle, list[Group]]:
        """Fresh weights, and the successful walks of the rule as it came, with the tokens that say them."""
        weights = fresh(
            "policy",
            _emptied(self.experiment.folder / "fresh"),
            options=self._shape,
            vocab_size=len(VOCABULARY),
            seed=self.experiment.seed,
        )
        came = Bundle([Version(resource="rule", content=RULE)])
        groups = await self.experiment.collect(came, self.experiment.train[: self._lessons], seed=1)
        return Bundle([weights]), [Group(one.task, tuple(map(_said, one.trajectories))) for one in groups]

    def branch(self, bundle: Bundle, seed: int) -> tuple[Any, Policy]:
        """Env and policy of a rollout in a search."""
        return TextWorld(LIMIT), self._searching(bundle, seed)


World = Mail | Text
WORLDS: dict[str, Callable[..., World]] = {"mail": Mail, "text": Text}


@contextmanager
def opened(name: str, seed: int, folder: Path, *, small: bool) -> Iterator[World]:
    """A world with whatever has been done in it before."""
    place = folder / name / f"seed{seed}"
    place.mkdir(parents=True, exist_ok=True)
    with Store(place / "whet.db") as store:
        yield WORLDS[name](seed, place, store, small=small)


async def played(world: World, bundle: Bundle, task: Task, said: Sequence[Tokens], seed: int) -> Trajectory:
    """One scored rollout that begins by saying these again."""
    world.recalling.begin(seed, said)
    env, policy = world.branch(bundle, seed)
    found = await rollout(env, policy, task, seed=seed, versions=bundle.ids)
    return found.scored(*(score(one, found) for one in world.experiment.rewards))


def success(trajectory: Trajectory) -> float | None:
    """1 for a mission that was accomplished."""
    return float(trajectory.outcome is Outcome.SUCCESS) if trajectory.outcome.counts else None


def reward(trajectory: Trajectory) -> float | None:
    """What the world paid."""
    return trajectory.reward if trajectory.outcome.counts else None


def _said(walk: Trajectory) -> Trajectory:
    """A walk of the rule with each action as the tokens that a policy would have said."""
    words, context, steps = VOCABULARY, [VOCABULARY.bos], list[Step]()
    for number, step in enumerate(walk.steps):
        context += [*words.encode(spoken(step.observation, mission=not number)), words.act]
        ids = [*words.encode(step.action.split()), words.eos]
        steps.append(replace(step, tokens=Tokens(tuple(context), tuple(ids), (0.0,) * len(ids))))
        context += ids
    return replace(walk, steps=tuple(steps))


def _emptied(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    return folder
