"""whet.Evolve improves what @whet.evolve marks and what whet.resource declares, in the one loop."""

from __future__ import annotations

import asyncio
import importlib
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import whet
from whet.errors import BudgetExceeded, TrainingRefused
from whet.learn.optimizers.evolve import EvolveOptions
from whet.models.base import ModelRequest
from whet.types import Json, Task

DESK = '''
import whet

TONE = whet.resource("tone", default="You are a clerk.")
FACTOR = 2


@whet.evolve
def double(number):
    """Twice the number."""
    return number + FACTOR


@whet.evolve
def peculiar(values):
    return sorted(values)


def agent(question):
    return double(int(question))


async def later(question):
    return double(int(question))


def strange(question):
    return peculiar({int(question)})


def greet(question):
    return "good day" if "polite" in str(TONE) else "hm"
'''
MENDED = "<<<<<<< SEARCH\n    return number + FACTOR\n=======\n    return number * FACTOR\n>>>>>>> REPLACE"
MODEL_ONLY = EvolveOptions(proposals=3, edits=False)


handles: Any = importlib.import_module("whet.record.tracing.resources")


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    (tmp_path / "evolved_desk.py").write_text(DESK, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    known = dict(handles.declared)
    yield importlib.import_module("evolved_desk")
    sys.modules.pop("evolved_desk", None)
    handles.declared.clear()
    handles.declared.update(known)


def tasks(count: int = 60) -> list[Task]:
    return [Task(instruction=str(n), answer=2 * n, group=f"g{n % 20}") for n in range(3, count + 3)]


def exact(trajectory: whet.Trajectory) -> float:
    return float(trajectory.output == trajectory.task.answer)


def experiment(agent: Any, store: whet.Store | None = None, **more: Any) -> whet.Experiment:
    rewards = more.pop("rewards", [exact])
    return whet.Experiment(env=whet.calls(agent), tasks=tasks(), rewards=rewards, store=store, **more)


@pytest.mark.parametrize("name", ["agent", "later"])
def test_a_marked_function_becomes_a_version_that_is_proven_released_and_rolled_back(
    desk: ModuleType, name: str
) -> None:
    async def job() -> None:
        with whet.Store(":memory:") as store:
            trial = experiment(getattr(desk, name), store)
            evolve = whet.Evolve(("double",), "exact", model=whet.ScriptedModel([MENDED]), options=MODEL_ONLY)
            better = await trial.improve(evolve)
            version = better.bundle["double"]
            assert version.kind == "function"
            assert "return number * FACTOR" in version.content
            changed = [line for line in better.diff().splitlines()[2:] if line[0] in "+-"]
            assert changed == ["-    return number + FACTOR", "+    return number * FACTOR"]
            verdict = await trial.gate(better, metric="exact")
            assert verdict.promote
            assert verdict.effect == 1.0
            assert verdict.n >= 8
            # What decided is in the record, by the Version that it ran under.
            judged = [run for run in store.trajectories() if run.versions.get("double") == version.id]
            assert judged
            store.set_live(whet.Bundle())
            store.set_live(better.bundle)
            assert [each.id for each in store.versions("double")] == [version.id]
            assert not dict(store.rollback())

    asyncio.run(job())


def test_every_candidate_goes_through_the_budgeted_rollout(desk: ModuleType) -> None:
    async def job() -> None:
        calls: list[Json] = []
        evolve = whet.Evolve(("double",), "exact", model=whet.ScriptedModel([MENDED] * 9), options=MODEL_ONLY)
        trial = experiment(desk.agent, rewards=[exact, lambda run: calls.append(run.id)])
        better = await trial.improve(evolve, budget=whet.Budget(rollouts=400))
        assert better.rollouts == len(calls)
        assert "double" in better.bundle
        calls.clear()
        short = experiment(desk.agent, rewards=[exact, lambda run: calls.append(run.id)])
        with pytest.raises(BudgetExceeded):
            await short.improve(evolve, budget=whet.Budget(rollouts=20))
        assert len(calls) <= 20

    asyncio.run(job())


def test_a_candidate_runs_in_the_sandbox(desk: ModuleType, tmp_path: Path) -> None:
    spy = MENDED.replace(
        "    return number * FACTOR",
        f"    import os\n    return number * (2 if os.path.exists({str(tmp_path)!r}) else 3)",
    )

    async def job() -> None:
        evolve = whet.Evolve(("double",), "tripled", model=whet.ScriptedModel([spy]), options=MODEL_ONLY)

        def tripled(trajectory: whet.Trajectory) -> float:
            return float(trajectory.output == 3 * int(trajectory.task.instruction))

        better = await experiment(desk.agent, rewards=[tripled]).improve(evolve)
        assert better.metrics[0]["best"] == 1.0, "the folder of the agent was seen from inside"

    asyncio.run(job())


def test_what_cannot_cross_as_json_fails_with_the_reason(desk: ModuleType) -> None:
    answer = "<<<<<<< SEARCH\n    return sorted(values)\n=======\n    return sum(values) * 2\n>>>>>>> REPLACE"

    async def job() -> None:
        trial = experiment(desk.strange, rewards=[lambda run: 0.0 if run.error else 0.1])
        trial.rewards[0].__name__ = "ran"
        evolve = whet.Evolve(("peculiar",), "ran", model=whet.ScriptedModel([answer]), options=MODEL_ONLY)
        better = await trial.improve(evolve)
        assert "peculiar" not in better.bundle
        handle = desk.peculiar.resource
        version = whet.Version(resource="peculiar", kind="function", content=answer.split("=======\n")[1])
        text = f"def peculiar(values):\n    return sum(values) * 2  # {version.id}\n"
        bundle = whet.Bundle([whet.Version(resource="peculiar", kind="function", content=text)])
        (group,) = await trial.collect(bundle, [trial.train[0]])
        assert handle.kind == "function"
        error = group.trajectories[0].error
        assert error is not None
        assert "set" in error.message

    asyncio.run(job())


def test_a_declared_text_is_searched_with_what_went_wrong_in_sight(desk: ModuleType) -> None:
    seen: list[str] = []

    def answer(request: ModelRequest) -> str:
        seen.append(request.text)
        line = "You are a clerk."
        return f"<<<<<<< SEARCH\n{line}\n=======\nYou are a polite clerk.\n>>>>>>> REPLACE"

    async def job() -> None:
        asked = [Task(instruction=str(n), answer="good day", group=f"g{n}") for n in range(40)]
        trial = whet.Experiment(env=whet.calls(desk.greet), tasks=asked, rewards=[exact])
        evolve = whet.Evolve(("tone",), "exact", model=whet.ScriptedModel(answer), options=MODEL_ONLY)
        better = await trial.improve(evolve)
        assert better.bundle["tone"].content == "You are a polite clerk."
        assert better.bundle["tone"].kind == "prompt"
        assert "'good day'" in seen[0] or '"good day"' in seen[0]

    asyncio.run(job())


def test_with_answers_at_random_nothing_is_promoted(desk: ModuleType) -> None:
    def noise(trajectory: whet.Trajectory) -> float:
        return random.Random(trajectory.id).random()

    async def job() -> None:
        trial = experiment(desk.agent, rewards=[noise, exact])
        evolve = whet.Evolve(("double",), "noise", options=EvolveOptions(proposals=12))
        chance = await trial.improve(evolve)
        if chance.bundle.ids:
            assert not (await trial.gate(chance, metric="exact")).promote

    asyncio.run(job())


def test_without_anything_that_can_vary_it_says_so() -> None:
    async def job() -> None:
        with pytest.raises(TrainingRefused, match="nothing that can vary"):
            await experiment(lambda question: question).improve(whet.Evolve())

    known = dict(handles.declared)
    handles.declared.clear()
    try:
        asyncio.run(job())
    finally:
        handles.declared.update(known)
