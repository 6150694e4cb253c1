"""Cloning, and what each weight method makes of the clone: same weights, same rollout budget, two worlds.

A *cell* is one method in one world on one seed; what it came to is a JSON file, so that the whole can be
run in pieces and in any order, and is put together from the files that are there.  Decoding is chosen on
validation for the clone as for every method; what is compared is success on the gate's tasks, pair by
pair.  The control of each kind of method is the same run with every trajectory given another one's
rewards and outcome, and keeps its last weights, because a choice by validation is information too.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
from controls import Shuffled
from method_report import describe
from method_worlds import World, opened, played
from page import publish

from whet.learn.loop import Optimizer, means
from whet.learn.optimizers.dpo import DPO, DPOOptions
from whet.learn.optimizers.grpo import GRPO, GRPOOptions
from whet.learn.optimizers.ppo import PPO, PPOOptions
from whet.learn.optimizers.rloo import RLOO, RLOOOptions
from whet.learn.optimizers.sft import SFT, SFTOptions
from whet.learn.optimizers.star import STaR, STaROptions
from whet.learn.training.alarms import AlarmOptions
from whet.learn.training.branching import Play, TreeOptions, searched
from whet.learn.training.optim import OptimOptions
from whet.learn.training.rounds import Validate
from whet.types import Budget, Bundle, Outcome, Score, Split, Task, Tokens, Trajectory, Version
from whet.worlds.demo.learning import TEMPERATURES

QUARTERS = 4
"""Points of a curve after the first: shares of the rollout budget."""
TASKS = 32
"""Tasks in a round of reinforcement learning, each with 8 attempts."""
SEARCH = TreeOptions(rollouts=16, score="reward")


@dataclass(kw_only=True)
class Cell:
    """What one method came to."""

    method: str
    bundle: list[Version]
    curve: list[float] = field(default_factory=list)
    """Greedy success on validation at each quarter of the budget, the beginning included."""
    decoding: dict[str, float] = field(default_factory=dict)
    """Temperature → success on validation."""
    chosen: str = ""
    """The best of them."""
    gate: dict[str, tuple[str, float]] = field(default_factory=dict)
    """Task → its group and success."""
    rollouts: int = 0
    cpu_seconds: float = 0.0
    note: str = ""

    @property
    def success(self) -> float:
        """On the gate's tasks."""
        return sum(value for _, value in self.gate.values()) / len(self.gate)


def _greedy(bundle: Bundle, temperature: float = 0.0) -> Bundle:
    return bundle.put(Version(resource="decoding", content={"temperature": temperature}))


async def _validated(world: World, bundle: Bundle) -> float:
    return means(await world.experiment.evaluate(_greedy(bundle)))["success"]


async def _judged(world: World, cell: Cell, bundle: Bundle) -> Cell:
    """The cell with the decoding that does best on validation, on the gate's tasks."""
    for temperature in TEMPERATURES:
        groups = await world.experiment.evaluate(_greedy(bundle, temperature))
        cell.decoding[str(temperature)] = means(groups)["success"]
    cell.chosen = max(cell.decoding, key=lambda one: cell.decoding[one])
    best = _greedy(bundle, float(cell.chosen))
    cell.bundle = list(best.values())
    await _gated(world, cell, best)
    return cell


async def _gated(world: World, cell: Cell, bundle: Bundle) -> None:
    for group in await world.experiment.evaluate(bundle, Split.GATE):
        cell.gate[group.task.id] = group.task.group, group.trajectories[0].score("success") or 0.0


async def ruled(world: World, _: Bundle) -> Cell:
    """The tuned rule, beside which every method must be seen."""
    rule = await world.rule()
    cell = Cell(method="tuned rule", bundle=list(rule.values()))
    await _gated(world, cell, rule)
    return cell


async def cloned(world: World, rule: Bundle) -> Cell:
    """What every method starts from."""
    start, taught = await world.taught(rule)
    options = SFTOptions(
        score="success",
        epochs=8,
        batch=16,
        seed=world.experiment.seed,
        optim=OptimOptions(learning_rate=3e-3),
    )
    found = await world.experiment.improve(
        SFT(options, models=world.models), bundle=start, groups=taught, label="cloned"
    )
    cell = Cell(method="cloned", bundle=[], curve=[await _validated(world, found.bundle)])
    return await _judged(world, cell, found.bundle)


def _rounds(world: World, validate: Validate | None) -> dict[str, Optimizer]:
    """The on-policy methods, each with the same rounds; without validation, a control.

    A control goes on to the end: a round's mean success is the true one, whoever's it is said to be, and
    an alarm that goes by it would take back what was worst.

    All make four updates of a round, as PPO does: one apiece leaves the others a quarter of its learning.
    RLOO's ratio is a token's here and not the trajectory's, of which a third are clipped after one update.
    """
    steps = world.rollouts // (TASKS * 8)
    given: dict[str, Any] = {
        "score": "reward",
        "steps": steps,
        "group_size": 8,
        "passes": 4,
        "checkpoint_every": max(1, steps // QUARTERS),
        "unknown": world.unknown,
        "alarms": AlarmOptions() if validate else AlarmOptions(unknown_rise=None, success_drop=None),
        "seed": world.experiment.seed,
    }
    handed: dict[str, Any] = {"models": world.models, "validate": validate}
    return {
        "GRPO": GRPO(GRPOOptions(**given), **handed),
        "PPO": PPO(PPOOptions(**given), **handed),
        "RLOO": RLOO(RLOOOptions(ratio="token", **given), **handed),
    }


async def reinforced(name: str, control: bool, world: World, clone: Bundle) -> Cell:
    """One of the on-policy methods."""
    curve: list[float] = []

    async def validate(bundle: Bundle) -> float:
        curve.append(await _validated(world, bundle))
        return curve[-1]

    optimizer = _rounds(world, None if control else validate)[name]
    label = f"{name}{', shuffled' if control else ''}"
    await world.experiment.record_baseline(clone)
    found = await world.experiment.improve(
        Shuffled(optimizer, world.experiment.seed) if control else optimizer,
        bundle=_greedy(clone, 1.0),
        rounds=world.rollouts // (TASKS * 8),
        tasks=TASKS,
        budget=Budget(rollouts=world.rollouts),
        label=label,
    )
    cell = Cell(method=label, bundle=[], rollouts=found.rollouts, note=found.reason)
    cell.curve = curve or [await _validated(world, clone), await _validated(world, found.bundle)]
    return await _judged(world, cell, found.bundle)


def _best(made: Sequence[Bundle], curve: Sequence[float]) -> Bundle:
    """The best validated one, as `Rounds` returns it; the clone is among them."""
    return max(zip(curve, made, strict=True), key=lambda one: one[0])[1]


def _play(world: World, bundle: Bundle, blind: random.Random | None) -> Play:
    """Plays the rollouts of a tree; a blind one grows on some earlier rollout's scores in place of its own.

    To exchange them when the tree is grown is too late: where it grew says what was good.
    """
    seen: list[tuple[Mapping[str, Score], Outcome]] = []

    async def play(task: Task, said: Sequence[Tokens], seed: int, /) -> Trajectory:
        found = await played(world, bundle, task, said, seed)
        if blind is None:
            return found
        seen.append((found.scores, found.outcome))
        scores, outcome = blind.choice(seen)
        return replace(found, scores=scores, outcome=outcome)

    return play


async def preferred(control: bool, world: World, clone: Bundle) -> Cell:
    """DPO on pairs of steps from a tree search, four times: search, learn, search with what was learned."""
    experiment, bundle = world.experiment, _greedy(clone, 1.0)
    rng = random.Random(f"blind/{experiment.seed}") if control else None
    cell = Cell(method=f"DPO{', shuffled' if control else ''}", bundle=[])
    cell.curve.append(await _validated(world, clone))
    made = [clone]
    count = world.rollouts // QUARTERS // SEARCH.rollouts
    for number in range(QUARTERS):
        tasks = experiment.train[number * count : (number + 1) * count]
        groups = await asyncio.gather(
            *(
                searched(task, _play(world, bundle, rng), SEARCH, seed=1_000_000 * number + 100 * place)
                for place, task in enumerate(tasks)
            )
        )
        options = DPOOptions(
            pairs="step",
            score="reward",
            margin=0.1,
            beta=0.3,
            epochs=2,
            seed=number,
            optim=OptimOptions(learning_rate=3e-4),
        )
        optimizer = DPO(options, models=world.models)
        found = await experiment.improve(
            Shuffled(optimizer, experiment.seed) if control else optimizer,
            bundle=bundle,
            groups=groups,
            label=f"{cell.method} {number}",
        )
        bundle = found.bundle
        cell.rollouts += len(tasks) * SEARCH.rollouts
        cell.curve.append(await _validated(world, bundle))
        made.append(bundle)
    return await _judged(world, cell, made[-1] if control else _best(made, cell.curve))


async def taught_by_itself(control: bool, world: World, clone: Bundle) -> Cell:
    """STaR: four rounds, each clones what succeeded, from the clone."""
    experiment, bundle = world.experiment, _greedy(clone, 1.0)
    cell = Cell(method=f"STaR{', shuffled' if control else ''}", bundle=[])
    cell.curve.append(await _validated(world, clone))
    options = STaROptions(
        steps=QUARTERS, score="success", seed=experiment.seed, optim=OptimOptions(learning_rate=1e-3)
    )
    optimizer, made = STaR(options, models=world.models), [clone]
    for number in range(QUARTERS):
        found = await experiment.improve(
            Shuffled(optimizer, experiment.seed) if control else optimizer,
            bundle=bundle,
            rounds=number + 1,
            tasks=world.rollouts // QUARTERS // options.group_size,
            label=cell.method,
        )
        cell.curve.append(await _validated(world, found.bundle))
        made.append(found.bundle)
    cell.rollouts = found.rollouts
    return await _judged(world, cell, made[-1] if control else _best(made, cell.curve))


Make = Callable[[World, Bundle], Coroutine[Any, Any, Cell]]
METHODS: dict[str, Make] = {
    "rule": ruled,
    "cloned": cloned,
    **{
        name.lower(): lambda world, clone, name=name: reinforced(name, False, world, clone)  # type: ignore[misc]
        for name in ("GRPO", "PPO", "RLOO")
    },
    "dpo": lambda world, clone: preferred(False, world, clone),
    "star": lambda world, clone: taught_by_itself(False, world, clone),
    "grpo-control": lambda world, clone: reinforced("GRPO", True, world, clone),
    "dpo-control": lambda world, clone: preferred(True, world, clone),
    "star-control": lambda world, clone: taught_by_itself(True, world, clone),
}
"""Cell → how it is made; the first two come before the others."""


def _read(path: Path) -> Cell | None:
    return msgspec.json.decode(path.read_bytes(), type=Cell) if path.exists() else None


def methods(
    folder: Path, *, worlds: Sequence[str], seeds: Sequence[int], only: Sequence[str], small: bool = False
) -> None:
    """Make the cells that are not there yet, then the section from all that are.

    Args:
        small: a minute each, to see that everything runs; the section is printed and not published.
    """
    place = folder / ("methods-small" if small else "methods")
    for seed in seeds:
        for name in worlds:
            _world(place, name, seed, only, small)
    found: dict[str, dict[int, dict[str, Cell]]] = {}
    for path in sorted(place.glob("*/seed*/*.json")):
        cell = _read(path)
        assert cell is not None
        seed = int(path.parent.name.removeprefix("seed"))
        found.setdefault(path.parent.parent.name, {}).setdefault(seed, {})[path.stem] = cell
    if small:
        print("\n".join(describe(found)))
    else:
        publish("Weight methods", describe(found))


def _world(place: Path, name: str, seed: int, only: Sequence[str], small: bool) -> None:
    wanted = [method for method in METHODS if method in ("rule", "cloned", *only) or not only]
    files = {method: place / name / f"seed{seed}" / f"{method}.json" for method in wanted}
    if all(file.exists() for file in files.values()):
        return
    with opened(name, seed, place, small=small) as world:
        for method, file in files.items():
            if file.exists():
                continue
            before = {"rule": "rule", "cloned": "rule"}.get(method, "cloned")
            made = _read(files[before])
            clock = time.process_time()
            cell = asyncio.run(METHODS[method](world, Bundle(made.bundle if made else ())))
            cell.cpu_seconds = time.process_time() - clock
            partial = file.with_suffix(".part")
            partial.write_bytes(msgspec.json.format(msgspec.json.encode(cell)))
            partial.rename(file)
            curve = " ".join(f"{100 * value:.1f}" for value in cell.curve)
            print(
                f"{name} seed {seed}: {cell.method} {100 * cell.success:.1f} % at {cell.chosen or '-'} "
                f"({curve}) {cell.rollouts} rollouts {cell.cpu_seconds:.0f} CPU s {cell.note}",
                file=sys.stderr,
                flush=True,
            )
