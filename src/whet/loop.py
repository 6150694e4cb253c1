"""The loop: an Experiment collects, improves and gates; an Optimizer is anything that learns.

Every learner, from a knob search to multi-turn GRPO, has one signature,
`async step(bundle, groups, context) -> Update`.  The Experiment alone owns the
splits: what it hands to an optimizer never contains a gate task.
"""

from __future__ import annotations

import asyncio
import difflib
import random
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

import msgspec

from .budget import Meter
from .data.lineage import learned_from
from .data.splits import split
from .env import EnvFactory, rollout
from .errors import GateError, InputError
from .gate import compare
from .policy import PolicyFactory
from .reward import Reward, score
from .store import Store
from .store.codec import recordable
from .types import (
    Budget,
    Bundle,
    Group,
    Json,
    Outcome,
    Preference,
    Split,
    Task,
    Trajectory,
    Verdict,
    Version,
    digest,
)


class Progress(Protocol):
    """Told what is under way, how far it is and what it has cost; the default says nothing."""

    def __call__(self, what: str, done: int, total: int | None = None, **figures: float | str) -> None: ...


def quiet(what: str, done: int, total: int | None = None, **figures: float | str) -> None:
    """The Progress that says nothing."""


class Rollout(Protocol):
    """Runs policies built from a Bundle on tasks, within the budget, scored by the experiment's rewards."""

    async def __call__(
        self,
        bundle: Bundle,
        tasks: Sequence[Task],
        n: int = 1,
        *,
        seed: int = 0,
        prefix: Sequence[Json] | None = None,
    ) -> list[Group]:
        """One Group of `n` trajectories per task, in the order given.

        Raises:
            BudgetExceeded: the rollouts would overshoot; none was run.
            GateError: a gate task was asked for.
        """
        ...


@dataclass(kw_only=True)
class Context:
    """What an optimizer is given beside the groups."""

    rollout: Rollout
    train: Sequence[Task] = ()
    validation: Sequence[Task] = ()
    """For early stopping and choosing settings.  The gate's tasks are not here."""
    preferences: Sequence[Preference] = ()
    meter: Meter = field(default_factory=Meter)
    rng: random.Random = field(default_factory=lambda: random.Random(0))
    folder: Path = field(default_factory=lambda: Path("."))
    """For artifacts such as weights."""
    progress: Progress = quiet
    baseline: Mapping[str, float] | None = None
    """Recorded mean of each score of the bundle before any learning; None if nothing was recorded."""
    state: Json = None
    """What this optimizer's last Update carried; None on the first step."""


@dataclass(frozen=True, kw_only=True)
class Update:
    """What an optimizer made of its groups."""

    bundle: Bundle
    state: Json = None
    """Whatever makes resuming exact; large tensors go to a file in `context.folder`, named here.

    A mapping with `"resumable": False` is good in this process only: an interrupted `improve`
    goes on from the round before it that can be resumed."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    done: bool = False
    """True when more rounds would change nothing (early stop, or an offline learner)."""
    reason: str = ""


@runtime_checkable
class Optimizer(Protocol):
    """Everything that learns."""

    name: str
    group_size: int
    """Trajectories per task that `step` wants; 0 if it takes whatever there is."""
    on_policy: bool
    """True if the groups must come from the bundle that it is given."""
    ordered: bool
    """True if it needs the groups in the order in which they happened."""

    async def step(self, bundle: Bundle, groups: Sequence[Group], context: Context) -> Update:
        """One round of learning.

        Raises:
            TrainingRefused: nothing to learn from; says what is missing.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class Improvement:
    """What `Experiment.improve` came back with."""

    bundle: Bundle
    parent: Bundle
    optimizer: str
    metrics: Sequence[Mapping[str, float]] = ()
    """One mapping per round."""
    rounds: int = 0
    rollouts: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    reason: str = ""

    def diff(self) -> str:
        """Every changed resource as a unified diff of its readable content."""
        parts: list[str] = []
        for name, version in sorted(self.bundle.items()):
            before = self.parent.get(name)
            if before is None or before.id != version.id:
                old = _readable(before.content) if before else []
                parts += difflib.unified_diff(
                    old, _readable(version.content), f"a/{name}", f"b/{name}", lineterm=""
                )
        return "\n".join(parts)


def _readable(content: Json) -> list[str]:
    if isinstance(content, str):
        return content.splitlines()
    return msgspec.json.format(msgspec.json.encode(content), indent=2).decode().splitlines()


class Experiment:
    """One environment, one way of making policies, tasks, rewards and a seed.

    It alone owns the splits: optimizers get train and validation tasks and a `rollout`
    that refuses the gate's.  The same seed and the same recorded model answers give the
    same run; with a store, an interrupted `improve` goes on where it stopped.

    Args:
        env: makes a fresh Env per rollout; `whet.calls(agent)` is one, and brings its policy.
        tasks: all tasks; those without a split are split by the hash of their group.
        rewards: named functions Trajectory → Score, float, bool or None.
        policy: makes the Policy of one rollout; may be omitted where `env` brings one.
        seed: of everything random in the experiment.
        store: where trajectories, Versions and checkpoints go; None keeps nothing.
        name: key of the experiment in the store.
        limits: of one rollout (`steps`, `seconds`).
        concurrency: rollouts under way at once.
        folder: for artifacts such as weights.
        record: share of the rollouts made for learning, an optimizer's own and those on validation, that
            is stored, chosen by seed; the rest is counted. What `collect` and `gate` run is always stored.
    """

    def __init__(
        self,
        *,
        env: EnvFactory,
        tasks: Sequence[Task],
        rewards: Sequence[Reward],
        policy: PolicyFactory | None = None,
        seed: int = 0,
        store: Store | None = None,
        name: str = "experiment",
        limits: Budget | None = None,
        concurrency: int = 64,
        folder: Path | str | None = None,
        record: float = 1.0,
        progress: Progress = quiet,
    ) -> None:
        made = policy or getattr(env, "policy", None)
        if made is None:
            raise InputError(
                "this env brings no policy: give Experiment(policy=...), a function of (bundle, seed)"
            )
        self.env, self.rewards, self.seed, self.store, self.name = env, tuple(rewards), seed, store, name
        self.policy: PolicyFactory = made
        self.limits, self.concurrency, self.record, self.progress = limits, concurrency, record, progress
        self._folder = Path(folder) if folder else None
        self.baseline: dict[str, float] | None = None
        self.unrecorded = 0
        """Rollouts that were run and, by `record`, not stored."""
        divided = list(tasks) if all(task.split for task in tasks) else split(tasks, seed=seed)
        parts = {part: [task for task in divided if task.split is part] for part in Split}
        self.train: Sequence[Task] = parts[Split.TRAIN]
        self.validation: Sequence[Task] = parts[Split.VALIDATION]
        self._gate: Sequence[Task] = parts[Split.GATE]
        shared = {task.group for task in self._gate if task.group} & {
            task.group for task in (*self.train, *self.validation)
        }
        if shared:
            raise GateError(
                f"groups on both sides of the gate: {sorted(shared)[:5]}. Split by group, not by row."
            )
        self._evaluated: dict[tuple[str, str, int], list[Group]] = {}

    @property
    def folder(self) -> Path:
        """Where artifacts go; a temporary folder if none was given."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="whet-"))
        self._folder.mkdir(parents=True, exist_ok=True)
        return self._folder

    def _seed(self, *parts: Json) -> int:
        return int(digest((self.seed, *parts), 12), 16)

    async def _one(
        self, bundle: Bundle, task: Task, seed: int, phase: str, prefix: Sequence[Json] | None = None
    ) -> Trajectory:
        trajectory = await rollout(
            self.env(),
            self.policy(bundle, seed),
            task,
            seed=seed,
            budget=self.limits,
            versions=bundle.ids,
            id=digest((self.name, phase, bundle.id, task.id, seed), 24),
            prefix=prefix,
        )
        return trajectory.scored(*(score(reward, trajectory) for reward in self.rewards))

    async def _run(
        self,
        bundle: Bundle,
        tasks: Sequence[Task],
        n: int,
        *,
        seed: int,
        phase: str,
        prefix: Sequence[Json] | None = None,
        share: float = 1.0,
    ) -> list[Group]:
        done: list[Trajectory | None] = [None] * (len(tasks) * n)
        jobs = iter(range(len(done)))

        async def worker() -> None:
            for job in jobs:
                task = tasks[job // n]
                seed_of_rollout = self._seed(seed, task.id, job % n)
                done[job] = await self._one(bundle, task, seed_of_rollout, phase, prefix)

        await asyncio.gather(*(worker() for _ in range(min(self.concurrency, len(done)))))
        finished = [trajectory for trajectory in done if trajectory is not None]
        if self.store is not None:
            kept = [one for one in finished if share >= 1 or (one.seed or 0) % 1000 < share * 1000]
            self.unrecorded += len(finished) - len(kept)
            if kept:
                await asyncio.to_thread(self._keep, kept, f"{self.name}/{phase}")
        return [Group(task, tuple(finished[k * n : (k + 1) * n])) for k, task in enumerate(tasks)]

    def _keep(self, trajectories: Sequence[Trajectory], experiment: str) -> None:
        assert self.store is not None
        try:
            self.store.put(*trajectories, experiment=experiment)
        except InputError:  # an agent may answer what JSON cannot carry; the others are kept all the same
            self.store.put(*map(recordable, trajectories), experiment=experiment)

    async def collect(
        self, bundle: Bundle | None = None, tasks: Sequence[Task] | None = None, *, n: int = 1, seed: int = 0
    ) -> list[Group]:
        """Run the policy of `bundle` on the train tasks (or `tasks`) and record what it did.

        Raises:
            GateError: a gate task is among `tasks`; only `gate` runs those.
        """
        chosen = self.train if tasks is None else tasks
        self._refuse_gate(chosen)
        return await self._run(bundle or Bundle(), chosen, n, seed=seed, phase="collect")

    async def evaluate(self, bundle: Bundle, split: Split = Split.VALIDATION, *, n: int = 1) -> list[Group]:
        """Trajectories of `bundle` on one split, the same seeds for every bundle; run once and remembered."""
        key = (bundle.id, split.value, n)
        if key not in self._evaluated:
            tasks = {Split.TRAIN: self.train, Split.VALIDATION: self.validation, Split.GATE: self._gate}[
                split
            ]
            share = 1.0 if split is Split.GATE else self.record
            self._evaluated[key] = await self._run(bundle, tasks, n, seed=0, phase=split.value, share=share)
        return self._evaluated[key]

    async def record_baseline(self, bundle: Bundle | None = None) -> dict[str, float]:
        """Measure `bundle` on validation and remember the mean of each score; RL refuses to start without."""
        groups = await self.evaluate(bundle or Bundle())
        self.baseline = means(groups)
        return self.baseline

    def _refuse_gate(self, tasks: Sequence[Task]) -> None:
        hidden = {task.id for task in self._gate}
        groups = {task.group for task in self._gate if task.group}
        leaked = [task.id for task in tasks if task.id in hidden or task.group in groups]
        if leaked:
            raise GateError(f"{len(leaked)} of the tasks asked for belong to the gate, first {leaked[0]!r}")

    async def improve(
        self,
        optimizer: Optimizer,
        *,
        bundle: Bundle | None = None,
        rounds: int = 1,
        tasks: int | None = None,
        groups: Sequence[Group] | None = None,
        budget: Budget | None = None,
        label: str = "",
    ) -> Improvement:
        """Let one optimizer learn for up to `rounds` rounds; goes on from the store's checkpoint if there is one.

        Args:
            bundle: where to start; the empty Bundle (every resource at its default) if None.
            tasks: train tasks drawn per round for an optimizer that wants fresh groups; all if None.
            groups: recorded groups to learn from, instead of fresh ones.
            budget: of the optimizer's rollouts.
            label: distinguishes two runs of one optimizer in the same experiment.

        Raises:
            TrainingRefused: from the optimizer.
        """
        parent = bundle or Bundle()
        key = f"{self.name}/improve/{optimizer.name}{'/' + label if label else ''}"
        meter = Meter(budget)
        begun, cpu = time.perf_counter(), time.process_time()
        live, state, metrics, reason = parent, None, [], ""
        saved = self.store.state(key) if self.store is not None else None
        before = {"seconds": 0.0, "cpu_seconds": 0.0}
        finished = False
        if saved is not None:
            live = Bundle([msgspec.convert(version, Version) for version in saved["bundle"]])
            state, metrics, reason, finished = (
                saved["state"],
                list(saved["metrics"]),
                saved["reason"],
                saved["done"],
            )
            meter.settle(**saved["spent"])
            before = saved["before"]
        folder = self.folder / key.removeprefix(f"{self.name}/").replace("/", "-")
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(len(metrics), rounds):
            if finished:
                break
            context = self._context(number, key, meter, folder, state)
            fresh = (
                groups if groups is not None else await self._fresh(optimizer, live, tasks, context, number)
            )
            update = await optimizer.step(live, fresh, context)
            live, state, reason, finished = update.bundle, update.state, update.reason, update.done
            metrics.append({**update.metrics, "rollouts": meter.spent["rollouts"]})
            self.progress(label or optimizer.name, number + 1, rounds, **_shown(update.metrics))
            spent = (
                time.perf_counter() - begun + before["seconds"],
                time.process_time() - cpu + before["cpu_seconds"],
            )
            resumable = not isinstance(state, Mapping) or state.get("resumable", True)
            if self.store is not None and (resumable or finished):
                checkpoint = {
                    "bundle": list(live.values()),
                    "state": state,
                    "metrics": metrics,
                    "reason": reason,
                    "done": finished,
                    "spent": meter.spent,
                    "before": {"seconds": spent[0], "cpu_seconds": spent[1]},
                }
                self.store.put_state(key, msgspec.to_builtins(checkpoint))
        learned = (
            groups if groups is not None else [Group(task, ()) for task in (*self.train, *self.validation)]
        )
        return Improvement(
            bundle=learned_from(learned, live, parent),
            parent=parent,
            optimizer=optimizer.name,
            metrics=metrics,
            rounds=len(metrics),
            rollouts=int(meter.spent["rollouts"]),
            seconds=time.perf_counter() - begun + before["seconds"],
            cpu_seconds=time.process_time() - cpu + before["cpu_seconds"],
            reason=reason,
        )

    async def _fresh(
        self, optimizer: Optimizer, bundle: Bundle, count: int | None, context: Context, number: int
    ) -> list[Group]:
        if optimizer.group_size == 0:
            return []
        drawn = list(self.train)
        if count is not None and count < len(drawn):
            drawn = random.Random(self._seed("tasks", number)).sample(drawn, count)
        return await context.rollout(bundle, drawn, optimizer.group_size, seed=number)

    def _context(self, number: int, key: str, meter: Meter, folder: Path, state: Json) -> Context:
        # Chance must not hang on what the experiment is called: a second job in a store is the first one again.
        label = key.removeprefix(f"{self.name}/")

        async def allowed(
            bundle: Bundle,
            tasks: Sequence[Task],
            n: int = 1,
            *,
            seed: int = 0,
            prefix: Sequence[Json] | None = None,
        ) -> list[Group]:
            self._refuse_gate(tasks)
            meter.reserve(rollouts=len(tasks) * n)
            return await self._run(
                bundle, tasks, n, seed=self._seed(label, seed), phase=key, prefix=prefix, share=self.record
            )

        return Context(
            rollout=allowed,
            train=self.train,
            validation=self.validation,
            meter=meter,
            rng=random.Random(self._seed(label, number)),
            folder=folder,
            progress=self.progress,
            baseline=self.baseline,
            state=state,
        )

    async def gate(
        self,
        candidate: Bundle | Improvement,
        *,
        against: Bundle | None = None,
        metric: str = "success",
        margin: float = 0.0,
        label: str = "baseline",
    ) -> Verdict:
        """Compare a candidate with `against` on the gate's tasks, pair by pair.

        Both sides run once on the same tasks and seeds; asking again looks at the same trajectories.

        Args:
            metric: name of the Score that decides.
            margin: 0 asks for superiority; d > 0 for not being worse by more than d.
        """
        bundle = candidate.bundle if isinstance(candidate, Improvement) else candidate
        old = await self.evaluate(against or Bundle(), Split.GATE)
        new = await self.evaluate(bundle, Split.GATE)
        trained = {task.group for task in (*self.train, *self.validation) if task.group}
        return compare(old, new, metric=metric, margin=margin, against=label, trained_groups=trained)


def means(groups: Sequence[Group]) -> dict[str, float]:
    """Mean of each score over the trajectories that count; a missing value is left out, never 0."""
    values: dict[str, list[float]] = {}
    for group in groups:
        for trajectory in group.trajectories:
            if trajectory.outcome is not Outcome.INFRASTRUCTURE_ERROR:
                for name, one in trajectory.scores.items():
                    if one.value is not None:
                        values.setdefault(name, []).append(one.value)
    return {name: sum(found) / len(found) for name, found in sorted(values.items())}


def _shown(metrics: Mapping[str, float]) -> dict[str, float]:
    return dict(list(metrics.items())[:4])
