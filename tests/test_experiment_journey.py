"""From recorded runs to a rollback, on an agent that has nothing to do with mail: a service desk.

Three families of learners improve it together: a search its prompt, a head its decision from thumbs, and cloning the
weights of its tiny reader. What the gate promotes is released and seen by a worker, the gateway and traced code in
another process; a rollback gives all of them the desk as it came.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("lightgbm")

import journey_desk
from journey_desk import clerk, desk, furnish, models, prompt, sampling, truth
from processes import until
from server_world import World, bearer, world
from test_server_worker import work

import whet
import whet.errors as whet_errors
from whet.learn.optimizers.evolve import EvolveOptions
from whet.learn.optimizers.sft import SFT
from whet.learn.training.options import SFTOptions
from whet.models.base import ModelRequest
from whet.models.fakes import ScriptedServer
from whet.record.store import Stage
from whet.record.tracing import using
from whet.serve import Role
from whet.serve.gateway import Upstream
from whet.ship.provenance import provenance_of
from whet.types import Rollout, Split

Seen = dict[str, tuple[list[str], dict[str, str]]]
"""Who answered → the answers, and the Version of each resource that the record has of them."""


def success(trajectory: whet.Trajectory) -> bool:
    return bool(trajectory.output == truth(trajectory.task.instruction))


def answered(trajectory: whet.Trajectory) -> bool:
    return trajectory.output is not None


async def used(store: whet.Store, *, coin: bool = False) -> list[whet.Task]:
    """A record: people ask, the agent answers as it came, they rate it, sometimes wrongly; and its tasks."""
    rng = random.Random(5)
    runs: list[whet.Trajectory] = []
    thumbs: list[whet.Feedback] = []
    env = whet.calls(desk, record="live")
    sampling.append(True)
    for number in range(300):
        for kind in ("claim", "article", "note"):
            task = whet.Task(instruction=f"{kind} {number * 7}", group=f"customer {number}")
            run = await whet.rollout(env(), env.policy(whet.Bundle(), number), task, seed=number)
            right = rng.random() < 0.5 if coin else success(run) != (rng.random() < 0.1)
            runs.append(run)
            thumbs.append(whet.Feedback(run=run.id, value=1.0 if right else -1.0))
    sampling.clear()
    store.put(*runs)
    store.add_feedback(*thumbs)
    return whet.tasks(store)


def propose(request: ModelRequest) -> str:
    """The search's model: claims are to go to a senior from thirty less on."""
    line = re.findall(r"Send claims from \d+ on to a senior\.", request.text)[-1]
    changed = re.sub(r"\d+", lambda number: str(int(number[0]) - 30), line)
    return f"<<<<<<< SEARCH\n{line}\n=======\n{changed}\n>>>>>>> REPLACE"


def learners() -> dict[str, whet.Optimizer]:
    return {
        "prompt": whet.Evolve(
            (prompt.name,),
            model=whet.ScriptedModel(propose),
            options=EvolveOptions(proposals=2, edits=False),
        ),
        "head": whet.Head(),
        "reader": SFT(SFTOptions(score="success", epochs=12), models=models),
    }


async def experiment_on(
    store: whet.Store, folder: Path, reward: Callable[[whet.Trajectory], bool], *, coin: bool = False
) -> tuple[whet.Experiment, whet.Bundle]:
    """What learns from the record of the store, and the desk as it came."""
    start = whet.Bundle([furnish(folder / "reader"), prompt.default_version])
    experiment = whet.Experiment(
        env=whet.calls(desk, record="live"),
        tasks=await used(store, coin=coin),
        rewards=[reward, answered],
        store=store,
        folder=folder,
        seed=0,
    )
    return experiment, start


class Everywhere:
    """The desk wherever it runs: a worker, traced code in a process of its own, and its model behind the gateway."""

    def __init__(self, here: World, process: subprocess.Popen[str], questions: list[str]) -> None:
        self.here, self.process, self.questions, self.asked = here, process, questions, 0

    def recorded(self, runs: list[str]) -> dict[str, str]:
        store = self.here.store
        until(lambda: all(list(store.trajectories(ids=[run])) for run in runs), f"not all of {runs} recorded")
        found = [next(iter(store.trajectories(ids=[run]))).versions for run in runs]
        return {name: id for versions in found for name, id in versions.items()}

    def worker(self) -> tuple[list[str], dict[str, str]]:
        ids = [f"{self.asked} {question}" for question in self.questions]
        tasks = [whet.Task(instruction=question) for question in self.questions]
        self.here.store.add_rollouts(
            *(Rollout(id=id, task=task) for id, task in zip(ids, tasks, strict=True))
        )
        assert work(self.here, desk, limit=len(ids)).succeeded == len(ids)
        return [str(self.here.store.trajectory(id).output) for id in ids], self.recorded(ids)

    def ask(self, question: str) -> tuple[str, str]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(question, file=self.process.stdin, flush=True)
        answer, run = json.loads(self.process.stdout.readline())
        return answer, run

    def another_process(self) -> tuple[list[str], dict[str, str]]:
        answers, runs = zip(*map(self.ask, self.questions), strict=True)
        return list(answers), self.recorded(list(runs))

    def gateway(self) -> tuple[list[str], dict[str, str]]:
        run = f"gateway {self.asked}"
        body = {"model": "scripted", "messages": [{"role": "user", "content": self.questions[0]}]}
        headers = {**bearer(Role.WRITE), "x-whet-run": run}
        response = self.here.http.post("/v1/chat/completions", json=body, headers=headers)
        assert response.status_code == 200, response.text
        return [response.json()["choices"][0]["message"]["content"]], self.recorded([run])

    def seen(self) -> Seen:
        self.asked += 1
        return {ask.__name__: ask() for ask in (self.worker, self.another_process, self.gateway)}

    def followed(self, answer: str) -> None:
        """Wait until the other process has looked again: it follows the record by itself."""
        until(lambda: self.ask(self.questions[0])[0] == answer, "the other process did not follow")


@pytest.fixture
def here(tmp_path: Path) -> Iterator[World]:
    def model(request: ModelRequest) -> str:
        first = request.messages[0]
        system = str(first["content"]) if first["role"] == "system" else ""
        return clerk(system, str(request.messages[-1]["content"]))

    with ScriptedServer(model) as upstream:
        upstreams = {"default": Upstream(url=upstream.base_url)}
        with world(tmp_path / "runs.db", grace=0.1, upstreams=upstreams) as found:
            yield found


@pytest.fixture
def process(here: World, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    furnish(tmp_path / "reader")
    command = [sys.executable, str(journey_desk.__file__), str(tmp_path / "reader")]
    environment = {**os.environ, "WHET_STORE": str(here.store.path)}
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        yield child
        assert child.stdin is not None
        child.stdin.close()


async def under(bundle: whet.Bundle, questions: list[str]) -> list[str]:
    """What the desk answers under a Bundle, of nobody's release."""
    with using(bundle):
        return [await desk(question) for question in questions]


def right(questions: list[str], answers: list[str]) -> list[bool]:
    return [answer == truth(question) for question, answer in zip(questions, answers, strict=True)]


def test_three_families_learn_together_are_seen_everywhere_and_rolled_back_from(
    here: World, process: subprocess.Popen[str], tmp_path: Path
) -> None:
    store = here.store
    experiment, start = asyncio.run(experiment_on(store, tmp_path, success))
    questions = ["claim 70", "article 7", *(f"note {digit}" for digit in range(journey_desk.DIGITS))]
    everywhere = Everywhere(here, process, questions)
    came = everywhere.seen()
    before = right(questions, came["worker"][0])
    assert not any(before[:2])
    assert came["another_process"] == came["worker"]
    assert came["gateway"] == (["junior"], {}), "nothing is live"

    async def learned() -> whet.Bundle:
        better = await experiment.compose(learners(), bundle=start)
        reasons = [one.reason for one in better.candidates]
        assert [one.entered for one in better.candidates] == [True, True, True], reasons
        assert "from 60 on" in better.bundle[prompt.name].content
        assert (better.bundle["pick"].kind, better.bundle["policy"].kind) == ("head", "weights")
        assert better.bundle["policy"].id != start["policy"].id
        verdict = await experiment.gate(better, guardrails=[whet.Guardrail("answered", 0.02)])
        assert verdict.promote, verdict.reasons
        assert verdict.guardrails == {"answered": True}
        assert (verdict.candidate, verdict.baseline) == (better.bundle.id, start.id)
        assert verdict.effect > 0.25
        gate = {run.task.group for run in store.trajectories(experiment="experiment/gate")}
        assert gate
        assert not gate & {task.group for task in (*experiment.train, *experiment.validation)}
        assert experiment.release(verdict) == better.bundle
        assert "from 60 on" in better.diff()
        return better.bundle

    bundle = asyncio.run(learned())
    answers = asyncio.run(under(bundle, questions))
    after = right(questions, answers)
    assert all(after[:2]), "the prompt and the head"
    assert sum(after[2:]) > sum(before[2:]), "the weights"
    everywhere.followed("senior")
    assert everywhere.seen() == {
        "worker": (answers, bundle.ids),
        "another_process": (answers, bundle.ids),
        "gateway": (["senior"], {prompt.name: bundle[prompt.name].id}),
    }
    for version in bundle.values():
        came_from = provenance_of(store, version.id)
        assert came_from.stage is Stage.LIVE
        assert (came_from.made["experiment"], came_from.made["seed"]) == ("experiment", 0), version.resource
        assert came_from.made["rewards"], "with their versions"
        told = "\n".join(came_from.lines())
        assert all(word in told for word in (" tasks, ", "hash", "learner", "cost", "promotes", "release")), (
            told
        )
    store.rollback()
    assert not store.live(), "as it came"
    everywhere.followed("junior")
    assert everywhere.seen() == came


def test_with_shuffled_rewards_and_thumbs_nothing_is_promoted(tmp_path: Path) -> None:
    def shuffled(trajectory: whet.Trajectory) -> bool:
        return random.Random(trajectory.id).random() < 0.5

    shuffled.__name__ = "success"

    async def journey(store: whet.Store) -> None:
        experiment, start = await experiment_on(store, tmp_path, shuffled, coin=True)
        better = await experiment.compose(learners(), bundle=start)
        verdict = await experiment.gate(better)
        assert not verdict.promote, verdict.reasons
        with pytest.raises(whet_errors.GateError, match="did not promote"):
            experiment.release(verdict)
        assert store.live() is None
        gate = {run.task.group for run in store.trajectories(experiment="experiment/gate")}
        learned = {task.group for task in (*experiment.train, *experiment.validation)}
        assert gate
        assert not gate & learned
        assert Split.GATE not in {task.split for task in experiment.train}

    with whet.Store(tmp_path / "runs.db") as store:
        asyncio.run(journey(store))
