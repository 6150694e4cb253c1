"""Calls of a candidate that are sent together: what they answer is what one call after the other answers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from whet.learn.episodes import Episodes
from whet.learn.evolution.agents.agent import RepositoryAgent
from whet.learn.evolution.agents.candidates import ProgramCodec
from whet.learn.evolution.agents.outside import Compared, Comparer, Inside, Targets
from whet.sandbox import Limits, Pool
from whet.types import Task, Trajectory

SOURCE = """
import os
import whet

seen = []

@whet.evolve
def first(x):
    seen.append(x)
    {at_seven}
    return len(seen)

@whet.evolve
def second(x):
    return -x
"""


@pytest.mark.parametrize(
    "at_seven", ["pass", "assert x != 7, 'seven'", "x == 7 and os._exit(3)", "while x == 7: pass"]
)
def test_calls_sent_together_give_the_trajectories_of_calls_one_by_one(tmp_path: Path, at_seven: str) -> None:
    (tmp_path / "agent.py").write_text(SOURCE.replace("{at_seven}", at_seven))
    agent = RepositoryAgent(tmp_path, ["first", "second"])
    form = ProgramCodec.of(agent.pieces)
    tasks = [
        Task(id=f"{name}{x}/{most}", initial_state={"function": name, "input": [x]}, answer=x + 1)
        for name, most in (("first", 80), ("second", 3), ("first", 2))
        for x in range(most)
    ]

    async def run(together: bool) -> list[tuple[object, ...]]:
        async with Pool(Limits(wall_seconds=30.0, cpu_seconds=0.5)) as pool, Comparer(None, pool) as comparer:
            names = ("first", "second")
            targets = {
                name: agent.target(name, [p for p in agent.pieces if agent.reaches(name, p)])
                for name in names
            }
            env = Targets(targets, dict.fromkeys(names, Inside(pool)), form)
            if not together:
                env.expect = lambda bundle, tasks: None  # type: ignore[method-assign]
            episodes = Episodes(
                env=env,
                policy=env.policy,
                rewards=[Compared({"first": comparer, "second": comparer})],
                store=None,
                name="calls",
                seed=0,
                limits=None,
                concurrency=1,
            )
            bundle = form.bundle(form.start)
            ran = await episodes.run(bundle, tasks, 1, seed=0, phase="test")
        return [told(group.trajectories[0]) for group in ran]

    together, apart = asyncio.run(run(True)), asyncio.run(run(False))
    assert together == apart
    assert together[2] == (3, None, 1.0)


def told(trajectory: Trajectory) -> tuple[object, ...]:
    return trajectory.output, trajectory.error, trajectory.score("score")
