"""`whet.calls`: an agent function as an environment, of whatever kind, and the steps that it took."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

import whet
from whet.record.tracing import collecting


@whet.step(kind="tool", effect="read")
def look(word: str) -> str:
    with whet.step("inside", kind="function", observation=word) as now:
        now.action = word.upper()
    return word.upper()


def plain(question: str) -> list[str]:
    return [look(word) for word in question.split()]


async def awaited(question: str) -> list[str]:
    return plain(question)


def generated(question: str) -> Iterator[str]:
    for word in question.split():
        yield look(word)


async def generated_later(question: str) -> AsyncIterator[str]:
    for word in question.split():
        await asyncio.sleep(0)
        yield look(word)


def returned(question: str) -> Iterator[str]:
    """A plain function that returns a generator."""
    return generated(question)


AGENTS = [plain, awaited, generated, generated_later, returned]


def played(agent: Callable[..., Any], task: whet.Task, **options: Any) -> whet.Trajectory:
    env = whet.calls(agent, **options)
    return asyncio.run(whet.rollout(env(), env.policy(whet.Bundle(), 0), task, seed=0))


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("traced", [False, True])
def test_an_agent_of_any_kind_is_run_to_its_end_and_its_answer_is_what_it_gave(
    agent: Callable[..., Any], traced: bool
) -> None:
    run = played(whet.trace(agent) if traced else agent, whet.Task(instruction="a b"), record="live")
    assert (run.output, run.error) == (["A", "B"], None)
    assert [each.action for each in run.steps if each.kind == "tool"] == ["A", "B"]


@pytest.mark.parametrize("agent", AGENTS)
def test_a_replay_of_any_kind_is_run_to_its_end(agent: Callable[..., Any]) -> None:
    with collecting() as records:
        assert whet.trace(plain)("a b") == ["A", "B"]
    (recorded,) = records
    assert isinstance(recorded, whet.Trajectory)
    run = played(agent, recorded.task, record=[recorded])
    assert (run.output, run.error, run.outcome) == (["A", "B"], None, whet.Outcome.UNKNOWN)
    assert run.steps[0].info["replay"]["exact"] == 2


def test_every_step_has_an_id_of_its_own_and_the_right_parent() -> None:
    """Also where an agent has traced calls, which number their steps from 0, and the Env takes several actions."""

    class Twice:
        def reset(self, task: whet.Task, seed: int) -> str:
            self.left = 2
            return "a b"

        def step(self, action: whet.types.Json) -> whet.StepResult:
            self.left -= 1
            return whet.StepResult("c d", terminated=self.left == 0)

    class Traced:
        async def act(self, observation: str) -> whet.Action:
            with collecting() as records:
                first = whet.trace(plain)(observation)
                second = whet.trace(plain)(observation)
                look("loose")
            steps = [each if isinstance(each, whet.Step) else each.steps for each in records]
            inner = [step for each in steps for step in (each if isinstance(each, tuple) else (each,))]
            return whet.Action(first + second, steps=[*inner, whet.Step(kind="llm", id="of its own")])

    run = asyncio.run(whet.rollout(Twice(), Traced(), whet.Task(instruction="q"), seed=0))
    ids = [each.id for each in run.steps]
    assert len(set(ids)) == len(ids) == 24
    by_id = {each.id: each for each in run.steps}
    outer = ""
    for each in run.steps:
        if each.kind == "action":
            assert each.parent is None
            outer = each.id
        elif each.kind == "function":
            above = by_id[str(each.parent)]
            assert (above.kind, above.observation) == ("tool", {"word": each.observation})
            assert int(above.id) + 1 == int(each.id)
        else:
            assert each.parent == outer


def test_a_replayed_run_has_an_id_for_every_step() -> None:
    from whet.judge.replay import again

    def twice(question: str) -> list[str]:
        return whet.trace(plain)(question) + whet.trace(plain)(question)

    recorded = whet.Trajectory(task=whet.Task(instruction="a b"))
    run = asyncio.run(again(twice, recorded, divergence="live")).again
    assert [each.id for each in run.steps] == [str(place) for place in range(8)]
    assert [each.parent for each in run.steps if each.kind == "function"] == ["0", "2", "4", "6"]
