"""Prompts that get better offline: examples from rated runs and rules mined from failures, each with its control.

The agent is `examples/evolve/sorting_desk`: a stand-in for a language model that obeys the rules and copies
the examples of its prompt.  In the controls the information is taken away and all else is left: the same
thumbs dealt out to other runs, the same number of failures dealt out to other rows.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import random
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from whet.learn.datasets.recorded import recorded
from whet.learn.evolution.agents.agent import RepositoryAgent
from whet.learn.evolution.agents.candidates import ProgramCodec
from whet.learn.evolution.agents.outside import Compared, Comparer, Inside, Targets
from whet.learn.evolution.editing.program import Program
from whet.learn.evolution.search.demonstrations import Demonstrate, pool_of
from whet.learn.evolution.search.engine import Search, SearchOptions
from whet.learn.evolution.search.mining import Mined
from whet.learn.evolution.search.population import Draw, Front
from whet.learn.evolution.search.proposers import Move
from whet.learn.evolution.search.rows import RowJudge, mean
from whet.learn.experiment import Experiment
from whet.learn.loop import Context, Update
from whet.record.store import Store
from whet.sandbox import Limits, Local, Pool, Sandbox
from whet.types import Bundle, Group, Json, Split, Task, Trajectory

DESK = Path(__file__).resolve().parents[2] / "examples" / "evolve" / "sorting_desk"
PROPOSALS = 40


@dataclass(frozen=True)
class Shuffled:
    """A move that is told of failures in other rows than those that failed, as many."""

    move: Move

    @property
    def identity(self) -> Json:
        """Of the move."""
        return ["shuffled", self.move.identity]

    def __call__(self, draw: Draw, rng: random.Random) -> Program | None:
        """What the move makes of the wrong failures."""
        names = list(draw.parent.instances)
        dealt = random.Random(f"dealt:{draw.parent.number}").sample(names, len(names))
        scores = [draw.parent.instances[name] for name in names]
        return self.move(
            replace(draw, parent=replace(draw.parent, instances=dict(zip(dealt, scores, strict=True)))), rng
        )


@dataclass
class OneArm:
    """The optimizer that is one search with one arm."""

    env: Targets
    comparer: Comparer
    moves: Mapping[str, Move]
    seed: int

    name = "one arm"
    group_size = 0
    on_policy = False
    ordered = False

    async def step(self, bundle: Bundle, groups: Sequence[Group], context: Context) -> Update:
        """Search."""
        judge = RowJudge(
            context.rollout, context.train, self.env.form.bundle, "sort", self.env, self.comparer
        )
        chosen = SearchOptions(iterations=PROPOSALS, edits=(), seed=self.seed)
        search = Search(self.env.form.program(bundle), judge, Front(), options=chosen, moves=self.moves)
        return Update(bundle=self.env.form.bundle((await search.run()).best.program))


def _traffic() -> ModuleType:
    spec = importlib.util.spec_from_file_location("traffic", DESK / "traffic.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def demonstrations(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Examples from rated runs, and the same with the ratings shuffled."""
    return [asyncio.run(_compared("demonstrations", seed, options)) for seed in range(options.seeds)]


def rules(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Rules mined from failures, and the same with the failures shuffled."""
    return [asyncio.run(_compared("rules", seed, options)) for seed in range(options.seeds)]


async def _compared(problem: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    start, found = await _one(problem, seed, options, shuffled=False)
    _, control = await _one(problem, seed, options, shuffled=True)
    return {"problem": problem, "seed": seed, "start": start, "unseen": found, "control": control}


async def _one(
    problem: str, seed: int, options: argparse.Namespace, *, shuffled: bool
) -> tuple[float, float]:
    """Share of unseen rows right, before and after a search with this one arm."""
    traffic, folder = _traffic(), Path(tempfile.mkdtemp(prefix="whet-desk-"))
    shutil.copy(DESK / "desk.py", folder / "desk.py")
    agent = RepositoryAgent(folder, ("prompt",), "desk:sort")
    tasks = agent.rows(traffic.write_rows(folder / "rows.jsonl", seed, 240), seed=seed)["sort"]
    limits = Limits(wall_seconds=10.0)
    async with Pool(Local(limits=limits) if options.unsafe_local else Sandbox(limits=limits)) as pool:
        env = Targets({"sort": agent.target("sort")}, {"sort": Inside(pool)}, ProgramCodec.of(agent.pieces))
        comparer = Comparer(None, pool)
        experiment = Experiment(env=env, tasks=tasks, rewards=[Compared({"sort": comparer})])
        by_id = {task.id: task for task in tasks if task.split is Split.TRAIN and task.answer_known}
        if problem == "rules":
            move: Move = Mined(by_id)
            moves: Mapping[str, Move] = {"rule": Shuffled(move) if shuffled else move}
        else:
            shown = _runs(agent, traffic.record(folder / "runs.db", seed, shuffled=shuffled))
            moves = {"demonstrate": Demonstrate(pool_of(shown, tasks), by_id)}
        better = await experiment.improve(OneArm(env, comparer, moves, seed), rounds=1)
        return mean(await _unseen(experiment, Bundle())), mean(await _unseen(experiment, better.bundle))


async def _unseen(experiment: Experiment, bundle: Bundle) -> list[Trajectory]:
    parts = [await experiment.evaluate(bundle, part) for part in (Split.VALIDATION, Split.GATE)]
    return [run for groups in parts for group in groups for run in group.trajectories]


def _runs(agent: RepositoryAgent, path: Path) -> list[Task]:
    with Store(path) as store:
        return list(recorded(agent.callees["sort"].signature, "sort", store.trajectories()))
