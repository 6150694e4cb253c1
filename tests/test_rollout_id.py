"""A plain function in a rollout knows the id of its trajectory: `whet.run()` there is the rollout's."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from server_world import World, world
from test_server_worker import work

import whet
from whet.record.tracing import collecting
from whet.serve.worker import LitAgent
from whet.types import Rollout


def queued(here: World, *ids: str) -> None:
    here.store.add_rollouts(*(Rollout(id=id, task=whet.Task(instruction=id)) for id in ids))


def plain(question: str) -> str:
    with whet.run() as run:
        return run.id


async def awaiting(question: str) -> str:
    await asyncio.sleep(0)
    return plain(question)


class Old(LitAgent):
    """An agent of the old interface, which is given the id as well."""

    def training_rollout(self, task: Any, rollout_id: str, resources: Any) -> float:
        return float(plain("") == rollout_id)

    validation_rollout = training_rollout


@pytest.mark.parametrize("agent", [plain, awaiting])
def test_a_function_under_whet_work_knows_the_id_of_its_trajectory(agent: Any) -> None:
    with world() as here:
        queued(here, "a", "b", "c")
        assert work(here, agent, limit=3, concurrency=3).succeeded == 3
        done = [here.store.trajectory(id) for id in ("a", "b", "c")]
        assert [one.output for one in done] == [one.id for one in done] == ["a.1", "b.1", "c.1"]


def test_a_lit_agent_has_one_id_by_either_way() -> None:
    with world() as here:
        queued(here, "a")
        assert work(here, Old(), limit=1).succeeded == 1
        assert here.store.trajectory("a").reward == 1.0


def test_a_rollout_of_an_experiment_has_its_own_id_and_outside_it_a_run_has_a_fresh_one() -> None:
    task = whet.Task(instruction="x")
    env = whet.calls(plain)

    async def played(id: str) -> str:
        done = await whet.rollout(env(), env.policy(whet.Bundle(), 0), task, seed=0, id=id)
        return str(done.output)

    async def both() -> list[str]:
        return list(await asyncio.gather(played("one"), played("two")))

    assert asyncio.run(both()) == ["one", "two"]
    assert plain("") not in ("one", "two", plain(""))


def test_a_traced_call_in_a_rollout_does_not_take_the_id_of_its_trajectory() -> None:
    with whet.Store(":memory:") as store:
        traced = whet.trace(store)(lambda question: question)

        class Policy:
            async def act(self, observation: Any) -> whet.Action:
                with whet.run() as run:
                    return whet.Action([traced(observation), run.id])

        async def played() -> whet.Trajectory:
            with collecting() as records:
                done = await whet.rollout(
                    whet.calls(plain)(), Policy(), whet.Task(instruction="x"), seed=0, id="r"
                )
            (record,) = records
            assert isinstance(record, whet.Trajectory)
            assert (record.id != "r", record.meta["run"]) == (True, "r")
            return done

        assert asyncio.run(played()).output == ["x", "r"]
