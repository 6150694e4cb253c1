"""Negative controls: each learner with what it learns from made worthless must improve nothing.

The learner, its budget and its gate are those of the main job; only the information is gone, and
what is left has the same marginal: a score is replaced by another run's score, a thumb by a coin.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from page import points, publish, table
from world import learning

from whet.errors import TrainingRefused
from whet.learn.loop import Context, Optimizer, Update
from whet.learn.optimizers.grpo import GRPO, GRPOOptions
from whet.learn.optimizers.route import Route
from whet.learn.optimizers.sft import SFT, SFTOptions
from whet.learn.training.local import fresh
from whet.learn.training.optim import OptimOptions
from whet.prove.gate import compare
from whet.types import Budget, Bundle, Group, Json, Outcome, Score, Split, Task, Trajectory, Verdict, Version
from whet.worlds.demo.job import Sizes
from whet.worlds.demo.learning import Learning
from whet.worlds.demo.teachers import lessons
from whet.worlds.demo.users import Users
from whet.worlds.email.slots import TOKENS


class Shuffled:
    """An optimizer that is shown every run with some other run's scores.

    Runs that it is handed are permuted among themselves.  Runs that it asks for come one candidate at a
    time, and permuting those among themselves would leave each candidate its own mean: they draw from
    everything that was scored so far instead.
    """

    def __init__(self, inner: Optimizer, seed: int) -> None:
        self.inner, self.rng = inner, random.Random(f"shuffled/{seed}")
        self.name, self.group_size = inner.name, inner.group_size
        self.on_policy, self.ordered = inner.on_policy, inner.ordered
        self.seen: list[tuple[Mapping[str, Score], Outcome]] = []

    async def step(self, bundle: Bundle, groups: Sequence[Group], context: Context) -> Update:
        """One step of the inner optimizer, with worthless scores."""
        given = context.rollout

        async def drawn(
            bundle: Bundle,
            tasks: Sequence[Task],
            n: int = 1,
            *,
            seed: int = 0,
            prefix: Sequence[Json] | None = None,
        ) -> list[Group]:
            found = await given(bundle, tasks, n, seed=seed, prefix=prefix)
            self.seen += [(run.scores, run.outcome) for group in found for run in group.trajectories]
            return self._with(found, lambda count: self.rng.choices(self.seen, k=count))

        marks = [(run.scores, run.outcome) for group in groups for run in group.trajectories]
        permuted = self._with(groups, lambda count: self.rng.sample(marks, count))
        return await self.inner.step(bundle, permuted, replace(context, rollout=drawn))

    @staticmethod
    def _with(groups: Sequence[Group], draw: Any) -> list[Group]:
        marks = iter(draw(sum(len(group.trajectories) for group in groups)))

        def marked(run: Trajectory) -> Trajectory:
            scores, outcome = next(marks)
            return replace(run, scores=scores, outcome=outcome)

        return [Group(group.task, tuple(marked(run) for run in group.trajectories)) for group in groups]


@dataclass(frozen=True, kw_only=True)
class Control:
    """What came of one learner without information."""

    name: str
    against: str
    verdict: Verdict | None
    """None: the learner itself refused, or changed nothing."""
    note: str = ""


class Controls:
    """All controls on one synthetic company."""

    def __init__(self, learning: Learning) -> None:
        self.learning, self.job, self.sizes = learning, learning.job, learning.sizes
        self.seed = self.job.options.seed
        self.found: list[Control] = []

    async def run(self) -> list[Control]:
        """Every control, each against what its learner started from."""
        rule = await self.learning.evolved("rule", self.job.checked, "success", "the checker")
        # From a tuned rule: chance improves an agent that is bad on purpose.
        for resource in ("rule", "parser"):
            await self._judged(
                f"{resource}: scores shuffled", "the tuned rule", rule, await self._knobs(resource, rule)
            )
        head = await self._heads(rule)
        cloned = await self._cloning(rule, head)
        reinforced = await self._reinforced(cloned)
        await self._judged("GRPO: rewards shuffled", "cloned", cloned, reinforced)
        await self._judged("route: outcomes shuffled", "head", head, await self._routed(rule, head, cloned))
        return self.found

    async def _judged(self, name: str, against: str, start: Bundle, control: Bundle, note: str = "") -> None:
        if control == start:
            self.found.append(
                Control(name=name, against=against, verdict=None, note=note or "changed nothing")
            )
        else:
            old = await self.job.checked.evaluate(start, Split.GATE)
            new = await self.job.checked.evaluate(control, Split.GATE)
            verdict = compare(old, new, against=against)
            self.found.append(Control(name=name, against=against, verdict=verdict, note=note))
        print(f"seed {self.seed}: {name}: {self.found[-1].verdict or note}", file=sys.stderr, flush=True)

    async def _knobs(self, resource: str, rule: Bundle) -> Bundle:
        optimizer = Shuffled(self.learning.search((resource,), "success"), self.seed)
        improvement = await self.job.checked.improve(
            optimizer,
            bundle=rule,
            rounds=self.sizes.generations,
            budget=Budget(rollouts=self.sizes.rollouts),
            label=f"{resource}, scores shuffled",
        )
        return improvement.bundle

    async def _heads(self, rule: Bundle) -> Bundle:
        """Judges the head that learned from coins; returns the one that learned from thumbs."""
        groups = await self.learning.later(rule)
        coins = Users(seed=self.seed, coin=True)

        def flipped(run: Trajectory) -> Trajectory:
            thumb = coins.thumb(run)
            return replace(run, feedback=(thumb,) if thumb else ())

        tossed = [Group(group.task, tuple(map(flipped, group.trajectories))) for group in groups]
        control, note = rule, "changed nothing"
        try:
            control = _bundle(await self.learning.headed(rule, tossed))
        except TrainingRefused as refused:
            note = f"refused to learn: {refused}"
        await self._judged(
            "head: thumbs are coin flips", "the tuned rule", rule, control, note if control == rule else ""
        )
        self.job.store.put_state(f"{self.job.name}/improve/head/head", None)  # the next one starts anew
        try:
            return _bundle(await self.learning.headed(rule, groups))
        except TrainingRefused:
            return rule

    async def _cloning(self, rule: Bundle, head: Bundle) -> Bundle:
        """Judges cloning from failures; returns the clone of what succeeded."""
        job = self.job
        tasks = job.material.users[: self.sizes.cloned]
        groups = await job.checked.collect(head, tasks, seed=1)
        groups += await job.checked.collect(rule, tasks[: len(tasks) // 2], seed=2)
        taught = lessons(groups, job.material.world, job.agents.agent, rule)
        weights = fresh("policy", job.checked.folder / "fresh", vocab_size=len(TOKENS), seed=self.seed)
        start = rule.put(
            weights,
            Version(resource="arm", content="policy"),
            Version(resource="decoding", content={"temperature": 0.0}),
        )
        clones = {}
        for label, invert in (("cloned", False), ("cloned, filter inverted", True)):
            options = SFTOptions(
                score="success", invert=invert, seed=self.seed, optim=OptimOptions(learning_rate=3e-3)
            )
            improvement = await job.checked.improve(
                SFT(options, models=job.models), bundle=start, groups=taught, label=label
            )
            clones[label] = improvement.bundle
        inverted = clones["cloned, filter inverted"]
        await self._judged("cloning: filter inverted", "its teacher, the tuned rule", rule, inverted)
        await self._judged("cloning: filter inverted", "the same with its filter", clones["cloned"], inverted)
        return clones["cloned"]

    async def _reinforced(self, cloned: Bundle) -> Bundle:
        """GRPO on shuffled rewards; its last weights, because validation is information too."""
        await self.job.checked.record_baseline(cloned)
        options = GRPOOptions(score="reward", steps=self.sizes.grpo, unknown="unknown", seed=self.seed)
        improvement = await self.job.checked.improve(
            Shuffled(GRPO(options, models=self.job.models), self.seed),
            bundle=cloned.put(Version(resource="decoding", content={"temperature": 1.0})),
            rounds=options.steps,
            tasks=self.sizes.grpo_tasks,
            budget=Budget(rollouts=self.sizes.rollouts),
            label="rewards shuffled",
        )
        return improvement.bundle.put(cloned["decoding"])

    async def _routed(self, rule: Bundle, head: Bundle, cloned: Bundle) -> Bundle:
        arms = {"rule": rule, "head": head, "policy": cloned}
        tasks = self.job.material.users[-self.sizes.routed :]
        runs: dict[str, list[Trajectory]] = {task.id: [] for task in tasks}
        for arm, bundle in arms.items():
            for group in await self.job.checked.collect(bundle, tasks, seed=3):
                runs[group.task.id] += [replace(one, meta={"arm": arm}) for one in group.trajectories]
        whole = head.put(cloned["policy"], cloned["decoding"])
        route = Route(tuple(arms), lambda task: self.job.agents.features(task, whole))
        improvement = await self.job.checked.improve(
            Shuffled(route, self.seed),
            bundle=whole,
            groups=[Group(task, tuple(runs[task.id])) for task in tasks],
            label="outcomes shuffled",
        )
        return improvement.bundle


def _bundle(stage: Mapping[str, Any]) -> Bundle:
    return Bundle(list(stage["bundle"]))


def controls(folder: Path, *, seeds: Sequence[int], sizes: Sizes) -> None:
    """Every control on a synthetic company per seed."""
    rows = []
    refused = total = 0
    for seed in seeds:
        with learning(seed, folder / "controls" / f"seed{seed}", sizes) as one:
            for control in asyncio.run(Controls(one).run()):
                verdict = control.verdict
                total += 1
                refused += verdict is None or not verdict.promote
                rows.append(
                    [
                        control.name,
                        control.against,
                        str(seed),
                        control.note if verdict is None else points(verdict.effect, verdict.interval),
                        "–" if verdict is None else f"{verdict.e_value:.3g}",
                        "–" if verdict is None else str(verdict.n),
                        "yes" if verdict is None or not verdict.promote else "**no**",
                    ]
                )
    rows.sort(key=lambda row: row[:3])
    lines = [
        f"Each learner without its information, against what it started from: {refused} of {total} refused.",
        "",
        *table(("control", "against", "seed", "points", "e-value", "n", "refused"), rows),
    ]
    publish("Negative controls", lines)
