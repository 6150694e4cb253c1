"""Denied calls are not made: in marked tools of every kind, in threads, in rollouts; the run says it was blocked."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import whet
from whet.errors import PermissionDenied
from whet.record.permissions.person import PermissionRequest
from whet.record.permissions.rules import PermissionRule, Permissions
from whet.record.policy import FunctionPolicy
from whet.record.tracing import Replay

READS = PermissionRule(decision="allow", tool="look", reason="looking is harmless")
ASKS = PermissionRule(decision="ask", tool="pay", reason="money")


def rules(*more: PermissionRule, **options: Any) -> Permissions:
    return Permissions(rules=[READS, *more], **options)


@pytest.fixture
def made() -> list[str]:
    """The calls that were really made."""
    return []


def tools(made: list[str]) -> dict[str, Any]:
    """A marked tool of each kind, none of which the rules allow."""

    @whet.step(kind="tool")
    def plain(what: str) -> str:
        made.append(what)
        return what

    @whet.step(kind="tool")
    async def awaited(what: str) -> str:
        made.append(what)
        return what

    @whet.step(kind="tool")
    def generated(what: str) -> Iterator[str]:
        made.append(what)
        yield what

    return {"plain": plain, "awaited": awaited, "generated": generated}


def call(tool: Any, what: str) -> Any:
    answer = tool(what)
    if inspect.iscoroutine(answer):
        return asyncio.run(answer)
    return answer if isinstance(answer, str) else list(answer)


@pytest.mark.parametrize("kind", ["plain", "awaited", "generated"])
def test_a_denied_tool_is_not_called(made: list[str], kind: str) -> None:
    tool = tools(made)[kind]
    assert call(tool, "before") in ("before", ["before"])

    with whet.permissions(rules()), pytest.raises(PermissionDenied, match="no rule matches it"):
        call(tool, "inside")

    assert made == ["before"]


@pytest.mark.parametrize("kind", ["plain", "awaited", "generated"])
def test_the_agent_is_told_where_the_rules_say_so(made: list[str], kind: str) -> None:
    with whet.permissions(rules(when_denied="tell")):
        answer = call(tools(made)[kind], "inside")

    assert "is denied" in (answer if isinstance(answer, str) else answer[0])
    assert made == []


def test_a_thread_that_no_context_reaches_is_held_too(made: list[str]) -> None:
    tool = tools(made)["plain"]

    with whet.permissions(rules()), ThreadPoolExecutor(1) as pool, pytest.raises(PermissionDenied):
        pool.submit(tool, "elsewhere").result()

    assert made == []


def test_a_person_is_asked_and_without_one_asking_is_denying(made: list[str]) -> None:
    asked: list[PermissionRequest] = []

    @whet.step(kind="tool")
    def pay(amount: int) -> str:
        made.append(str(amount))
        return "paid"

    def small(request: PermissionRequest) -> bool:
        asked.append(request)
        return bool(request.arguments["amount"] < 10)

    with whet.permissions(rules(ASKS), ask=small):
        assert pay(5) == "paid"
        with pytest.raises(PermissionDenied, match="nobody allowed it"):
            pay(50)
    with whet.permissions(rules(ASKS)), pytest.raises(PermissionDenied, match="nobody can be asked"):
        pay(5)

    assert made == ["5"]
    assert [request.shown for request in asked] == ['pay {"amount":5}', 'pay {"amount":50}']


def test_a_run_that_a_denied_call_ends_is_blocked_and_no_failed_machine(made: list[str]) -> None:
    store = whet.Store(":memory:")
    tool = tools(made)["plain"]

    @whet.trace(store)
    def agent(question: str) -> str:
        return str(tool(question))

    with whet.permissions(rules()), pytest.raises(PermissionDenied):
        agent("q")
    with whet.permissions(rules(when_denied="tell")):
        agent("q")
    from whet.record.tracing import flush

    flush()
    ended, told = store.trajectories()

    assert ended.outcome is whet.Outcome.BLOCKED
    assert ended.outcome.counts
    assert ended.error is not None
    assert ended.error.type == "PermissionDenied"
    assert told.outcome is whet.Outcome.UNKNOWN
    for run in (ended, told):
        assert run.steps[0].info["permission"]["decision"] == "deny"
    assert made == []


def test_a_replay_is_held_to_the_rules_as_production_would_be(made: list[str]) -> None:
    recorded = whet.Trajectory(
        task=whet.Task(instruction="q"),
        steps=[whet.Step(kind="tool", name="plain", observation={"what": "x"}, action="recorded")],
    )
    tool = tools(made)["plain"]
    with Replay(recorded):
        assert tool("x") == "recorded"

    with Replay(recorded), whet.permissions(rules()), pytest.raises(PermissionDenied):
        tool("x")


class Desk:
    """An environment that does what it is told, and remembers it."""

    done: list[Any]

    def reset(self, task: whet.Task, seed: int) -> str:
        self.done = []
        return task.instruction

    def step(self, action: Any) -> whet.StepResult:
        self.done.append(action)
        ended = len(self.done) == 2
        return whet.StepResult("done", 1.0, terminated=ended, info={"success": True} if ended else {})


def play(*actions: Any) -> tuple[Desk, whet.Trajectory]:
    desk, left = Desk(), list(actions)
    policy = FunctionPolicy(lambda _observation: left.pop(0))
    task = whet.Task(instruction="Do it.")
    return desk, asyncio.run(whet.rollout(desk, policy, task, seed=0))


LOOK, ERASE = {"name": "look", "arguments": {"path": "a"}}, {"name": "erase", "arguments": {"path": "a"}}


def test_a_denied_action_ends_an_episode_as_blocked() -> None:
    with whet.permissions(rules()):
        desk, episode = play(LOOK, ERASE, LOOK)

    assert desk.done == [LOOK]
    assert episode.outcome is whet.Outcome.BLOCKED
    assert episode.error is None
    assert episode.steps[-1].info["permission"]["decision"] == "deny"


def test_or_the_policy_sees_the_refusal_and_goes_on() -> None:
    with whet.permissions(rules(when_denied="tell")):
        desk, episode = play(LOOK, ERASE, LOOK)

    assert desk.done == [LOOK, LOOK]
    assert episode.outcome is whet.Outcome.SUCCESS
    assert "erase (write a) is denied" in episode.steps[2].observation


def test_actions_in_words_are_checked_where_the_rules_declare_them(tmp_path: Path) -> None:
    allow = PermissionRule(decision="allow", tool="action", command=["ls *", "cat *"], reason="reading")
    shell = rules(allow, tools={"action": {"action": "command"}}, root=str(tmp_path))
    with whet.permissions(shell):
        desk, episode = play("ls .", "cat ../secret")
    assert desk.done == ["ls ."]
    assert episode.outcome is whet.Outcome.BLOCKED

    with whet.permissions(rules()):
        desk, episode = play("an answer", "another")
    assert episode.outcome is whet.Outcome.SUCCESS


def test_blocked_runs_stay_in_group_statistics_as_the_policys_doing() -> None:
    with whet.permissions(rules()):
        _, blocked = play(ERASE)
    _, done = play(LOOK, LOOK)
    group = whet.Group(done.task, [blocked, done])

    from whet.learn.loop import value_of

    assert [value_of(run, "success") for run in group.trajectories] == [0.0, 1.0]
