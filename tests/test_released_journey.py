"""What an Experiment composed is released: a worker, the gateway and traced code run under it, and record that they do.

The desk has a threshold and a limit on its answers' length, of which the one is its program's and the other the
gateway's. Two learners improve them on its record, the gate judges the two together, and a rollback takes both back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import until
from server_world import World, bearer, world
from test_server_worker import work

import whet
from whet.learn.datasets.splits import split
from whet.learn.evolution.editing.targets import Domain
from whet.learn.optimizers.evolve import EvolveOptions
from whet.models.base import ModelRequest
from whet.models.fakes import ScriptedServer
from whet.record.tracing import flush
from whet.serve import Role
from whet.serve.gateway import Upstream
from whet.types import Rollout

LENGTH = 12
"""Words of a whole answer."""
CLAIM, NOTE = "claim 70", "note 4"
SEARCH = EvolveOptions(generations=6, children=12, tasks=40, probe=20, finish=3)
LIMITS = {
    "gateway.parameters": {
        ("max_tokens",): Domain("int", 1, 64),
        ("temperature",): Domain("float", 0.0, 1.0),
    }
}

threshold = whet.resource("threshold", default={"senior": 90})
parameters = whet.resource("gateway.parameters", default={"max_tokens": 8, "temperature": 0.7})


def answer(question: str, tokens: int | None) -> str:
    """What the desk's model answers, with so many tokens."""
    return " ".join([question.replace(" ", "-")] * LENGTH).rsplit(" ", max(0, LENGTH - (tokens or LENGTH)))[0]


def model(request: ModelRequest) -> str:
    return answer(str(request.messages[-1]["content"]), request.max_tokens)


def desk(question: str) -> str:
    """The agent: sends a claim on, or answers a note."""
    kind, number = question.split()
    if kind == "claim":
        return "senior" if int(number) % 100 >= threshold["senior"] else "junior"
    return answer(question, parameters["max_tokens"])


def success(trajectory: whet.Trajectory) -> bool:
    kind, number = trajectory.task.instruction.split()
    if kind == "claim":
        return bool(trajectory.output == ("senior" if int(number) % 100 >= 60 else "junior"))
    return bool(trajectory.output == answer(trajectory.task.instruction, None))


@pytest.fixture
def here(tmp_path: Path) -> Iterator[World]:
    with (
        ScriptedServer(model) as upstream,
        world(
            tmp_path / "runs.db", grace=0.1, upstreams={"default": Upstream(url=upstream.base_url)}
        ) as found,
    ):
        yield found


class Desk:
    """The desk wherever it runs; each of these gives its answers and the Versions that the record has of them."""

    def __init__(self, here: World) -> None:
        self.here, self.asked = here, 0
        self.traced = whet.trace(here.store)(desk)

    def recorded(self, run: str, *names: str) -> dict[str, str]:
        until(lambda: list(self.here.store.trajectories(ids=[run])), f"{run} was not recorded")
        (found,) = self.here.store.trajectories(ids=[run])
        return {name: id for name, id in found.versions.items() if name in names}

    def worker(self, run: str) -> tuple[list[str], dict[str, str]]:
        given = [Rollout(id=f"{run}-{each}", task=whet.Task(instruction=each)) for each in (CLAIM, NOTE)]
        self.here.store.add_rollouts(*given)
        assert work(self.here, desk, limit=2).succeeded == 2
        outputs = [str(self.here.store.trajectory(each.id).output) for each in given]
        versions: dict[str, str] = {}
        for each in given:
            versions |= self.recorded(each.id, "threshold", "gateway.parameters")
        return outputs, versions

    def in_process(self, run: str) -> tuple[list[str], dict[str, str]]:
        outputs, versions = [], dict[str, str]()
        for question in (CLAIM, NOTE):
            with whet.run() as handle:
                outputs.append(self.traced(question))
            assert flush()
            versions |= self.recorded(handle.id, "threshold", "gateway.parameters")
        return outputs, versions

    def gateway(self, run: str) -> tuple[list[str], dict[str, str]]:
        body = {"model": "scripted", "max_tokens": 8, "messages": [{"role": "user", "content": NOTE}]}
        token = bearer(Role.WRITE)["authorization"].split()[1]
        answered = self.here.http.post(f"/run/{run}/{token}/v1/chat/completions", json=body)
        assert answered.status_code == 200, answered.text
        outputs = [answered.json()["choices"][0]["message"]["content"]]
        return outputs, self.recorded(run, "gateway.parameters")

    def everywhere(self) -> dict[str, tuple[list[str], dict[str, str]]]:
        self.asked += 1
        return {
            ask.__name__: ask(f"{ask.__name__}-{self.asked}")
            for ask in (self.worker, self.in_process, self.gateway)
        }


async def composed(store: whet.Store, start: whet.Bundle) -> whet.Bundle:
    """From the desk's own record to what was promoted and released."""
    experiment = whet.Experiment(
        env=whet.calls(desk, record="live"),
        tasks=split(whet.tasks(store), by="id"),
        rewards=[success],
        store=store,
    )
    learners: dict[str, whet.Optimizer] = {
        "threshold": whet.Evolve(("threshold",), options=SEARCH),
        "parameters": whet.Evolve(("gateway.parameters",), options=SEARCH, domains=LIMITS),
    }
    better = await experiment.compose(learners, bundle=start)
    reasons = [each.reason for each in better.candidates]
    assert [each.entered for each in better.candidates] == [True, True], reasons
    verdict = await experiment.gate(better)
    assert verdict.promote, verdict.reasons
    assert experiment.release(verdict) == better.bundle
    return better.bundle


def test_what_was_composed_and_released_is_run_by_worker_gateway_and_traced_code_until_it_is_rolled_back(
    here: World,
) -> None:
    everyone, store = Desk(here), here.store
    for number in range(120):
        for kind in ("claim", "note"):
            everyone.traced(f"{kind} {number * 7}")
    assert flush()
    start = whet.Bundle([threshold.default_version, parameters.default_version])
    short, whole = answer(NOTE, 8), answer(NOTE, None)
    assert short != whole
    came = everyone.everywhere()
    assert came["worker"] == came["in_process"] == (["junior", short], start.ids)
    assert came["gateway"] == ([short], {}), "nothing was live, so it passed on the request as it was"

    better = asyncio.run(composed(store, start))
    assert store.live() == better
    assert everyone.everywhere() == {
        "worker": (["senior", whole], better.ids),
        "in_process": (["senior", whole], better.ids),
        "gateway": ([whole], {"gateway.parameters": better["gateway.parameters"].id}),
    }
    store.rollback()
    assert not store.live(), "the agent as it came"
    assert everyone.everywhere() == came
