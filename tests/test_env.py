"""Rollouts end in the outcome that says whose doing it was; check_env names each broken promise."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable
from typing import Any

import pytest

from whet.errors import BudgetExceeded, ContractError, EnvError, ModelError
from whet.models import ScriptedModel
from whet.models.budget import Meter
from whet.record.env import Env, StepResult, Transition, check_env, rollout
from whet.record.policy import Action, FunctionPolicy
from whet.types import Budget, Failure, Fault, Outcome, Step, Task, Tokens, Trajectory, Usage

TASK = Task(instruction="count to three")


class Counting:
    """Ends in success when `up` was said three times, in failure at `stop`."""

    def __init__(self) -> None:
        self.count: int | None = None
        self.seed = -1

    def reset(self, task: Task, seed: int) -> Any:
        self.count, self.seed = 0, seed
        return {"count": 0}

    def step(self, action: Any) -> Any:
        if self.count is None:
            raise EnvError("not running")
        if action == "stop":
            self.count = None
            return StepResult({"count": -1}, 0.0, True, False, {"success": False})
        self.count += 1
        seen = {"count": self.count}
        if self.count < 3:
            return StepResult(seen, 0.0)
        self.count = None
        return StepResult(seen, 1.0, True, False, {"success": True})


def policy(function: Callable[[Any], Any]) -> FunctionPolicy:
    return FunctionPolicy(function)


def play(env: Env, act: Callable[[Any], Any] = lambda _: "up", **given: Any) -> Trajectory:
    return asyncio.run(rollout(env, policy(act), TASK, **{"seed": 0, **given}))


def test_an_episode_is_recorded_step_by_step() -> None:
    played = play(Counting(), seed=7, versions={"prompt": "v1"}, id="mine")
    assert (played.outcome, played.error, played.seed, played.id) == (Outcome.SUCCESS, None, 7, "mine")
    assert played.versions == {"prompt": "v1"}
    assert [step.observation for step in played.steps] == [{"count": 0}, {"count": 1}, {"count": 2}]
    assert [step.done for step in played.steps] == [False, False, True]
    assert (played.reward, played.output) == (1.0, "up")
    assert played.seconds is not None
    assert all(step.latency is not None and step.latency >= 0 for step in played.steps)
    assert len({play(Counting()).id for _ in range(3)}) == 3


def test_the_env_gets_the_seed_of_the_rollout() -> None:
    env = Counting()
    play(env, seed=1234)
    assert env.seed == 1234


def test_async_envs_and_policies_are_awaited() -> None:
    class Later(Counting):
        async def reset(self, task: Task, seed: int) -> Any:
            await asyncio.sleep(0)
            return super().reset(task, seed)

        async def step(self, action: Any) -> Any:
            await asyncio.sleep(0)
            return super().step(action)

    async def act(observation: Any) -> str:
        await asyncio.sleep(0)
        return "up"

    assert play(Later(), act).outcome is Outcome.SUCCESS


def test_what_a_policy_tells_of_its_decision_is_kept() -> None:
    tokens, inner = Tokens((1,), (2,), (-0.5,)), Step(kind="llm", name="call", id="inner")
    played = play(Counting(), lambda _: Action("stop", tokens, Usage(calls=2), (inner,)))
    outer, nested = played.steps
    assert (outer.tokens, outer.usage) == (tokens, Usage(calls=2))
    assert (nested.name, nested.parent) == ("call", outer.id)


@pytest.mark.parametrize("where", ["reset", "step"])
def test_an_env_that_raises_is_an_infrastructure_error(where: str) -> None:
    class Broken(Counting):
        def reset(self, task: Task, seed: int) -> Any:
            if where == "reset":
                raise OSError("no disk")
            return super().reset(task, seed)

        def step(self, action: Any) -> Any:
            raise OSError("no disk")

    played = play(Broken())
    assert played.outcome is Outcome.INFRASTRUCTURE_ERROR
    assert not played.outcome.counts
    assert played.error == Failure(Fault.ENVIRONMENT, "OSError", "no disk")
    assert len(played.steps) == (0 if where == "reset" else 1)
    assert all(step.error == played.error for step in played.steps)


@pytest.mark.parametrize(
    "result", [None, ("obs", 1.0, True, {}), StepResult(1, info={"outcome": "splendid"}, terminated=True)]
)
def test_an_env_that_answers_nonsense_is_an_infrastructure_error(result: Any) -> None:
    class Odd(Counting):
        def step(self, action: Any) -> Any:
            return result

    played = play(Odd())
    assert played.outcome is Outcome.INFRASTRUCTURE_ERROR
    assert played.error is not None
    assert played.error.fault is Fault.ENVIRONMENT


def test_a_model_that_fails_is_an_infrastructure_error() -> None:
    model = ScriptedModel(["up", ModelError("overloaded", status=503)])

    async def act(observation: Any) -> str:
        return (await model.complete(str(observation))).text

    played = play(Counting(), act)
    assert played.outcome is Outcome.INFRASTRUCTURE_ERROR
    assert played.error == Failure(Fault.MODEL, "ModelError", "overloaded")
    assert len(played.steps) == 1


def test_a_budget_that_runs_out_is_not_the_policys_failure() -> None:
    model = ScriptedModel("up", meter=Meter(Budget(calls=1)))

    async def act(observation: Any) -> str:
        return (await model.complete(str(observation))).text

    played = play(Counting(), act)
    assert played.outcome is Outcome.INFRASTRUCTURE_ERROR
    assert played.error is not None
    assert played.error.type == BudgetExceeded.__name__


def test_an_agent_that_raises_has_failed() -> None:
    played = play(Counting(), lambda observation: observation["missing"])
    assert played.outcome is Outcome.FAILURE
    assert played.error == Failure(Fault.AGENT, "KeyError", "'missing'")


def test_a_policy_that_returns_no_action_has_failed() -> None:
    class Bare:
        async def act(self, observation: Any, /) -> Any:
            return "up"

    played = asyncio.run(rollout(Counting(), Bare(), TASK, seed=0))
    assert played.outcome is Outcome.FAILURE
    assert played.error is not None
    assert "returned str; it must return an Action" in played.error.message


def test_the_step_limit_truncates_and_is_never_passed() -> None:
    for steps in (0, 1, 2):
        played = play(Counting(), budget=Budget(steps=steps))
        assert played.outcome is Outcome.TRUNCATED
        assert len(played.steps) == steps
    assert play(Counting(), budget=Budget(steps=3)).outcome is Outcome.SUCCESS


def test_what_an_agent_does_within_an_action_is_no_step_of_the_env() -> None:
    class Agent:
        async def act(self, observation: Any, /) -> Action:
            return Action("up", steps=[Step(action=word) for word in ("look", "think", "say")])

    played = asyncio.run(rollout(Counting(), Agent(), TASK, seed=0, budget=Budget(steps=3)))
    assert played.outcome is Outcome.SUCCESS
    assert len(played.steps) == 3 * (1 + 3)
    cut = asyncio.run(rollout(Counting(), Agent(), TASK, seed=0, budget=Budget(steps=2)))
    assert (cut.outcome, len(cut.steps)) == (Outcome.TRUNCATED, 2 * (1 + 3))


def test_the_time_limit_stops_a_policy_that_computes_after_its_action() -> None:
    def slow(observation: Any) -> str:
        time.sleep(1.1)
        return "up"

    played = play(Counting(), slow, budget=Budget(seconds=1.0))
    assert played.outcome is Outcome.TIMEOUT
    assert len(played.steps) == 1


def test_the_time_limit_cuts_off_a_policy_that_waits() -> None:
    async def act(observation: Any) -> str:
        await asyncio.sleep(30)
        return "up"

    begun = time.monotonic()
    played = play(Counting(), act, budget=Budget(seconds=0.05))
    assert (played.outcome, played.error, len(played.steps)) == (Outcome.TIMEOUT, None, 0)
    assert time.monotonic() - begun < 5


def test_a_timeout_of_the_agents_own_is_its_failure() -> None:
    async def act(observation: Any) -> str:
        raise TimeoutError("my tool is slow")

    played = play(Counting(), act, budget=Budget(seconds=30))
    assert played.outcome is Outcome.FAILURE


def test_a_prefix_is_replayed_without_asking_the_policy() -> None:
    asked: list[Any] = []

    def act(observation: Any) -> str:
        asked.append(observation)
        return "stop"

    played = play(Counting(), act, prefix=["up", "up"])
    assert [step.action for step in played.steps] == ["up", "up", "stop"]
    assert asked == [{"count": 2}]
    assert played.outcome is Outcome.FAILURE


def test_a_prefix_counts_against_the_step_limit() -> None:
    played = play(Counting(), prefix=["up", "up", "up"], budget=Budget(steps=2))
    assert (played.outcome, len(played.steps)) == (Outcome.TRUNCATED, 2)


@pytest.mark.parametrize(
    ("result", "outcome"),
    [
        (StepResult(1, 1.0, True, False, {"success": True}), Outcome.SUCCESS),
        (StepResult(1, 1.0, True, False, {"success": False}), Outcome.FAILURE),
        (StepResult(1, 1.0, True, False, {"outcome": "blocked", "success": True}), Outcome.BLOCKED),
        (StepResult(1, 1.0, False, True), Outcome.TRUNCATED),
        (StepResult(1, 1.0, True, False), Outcome.UNKNOWN),
        ((1, 1.0, True, False, {"success": True}), Outcome.SUCCESS),
    ],
)
def test_the_outcome_is_what_the_env_says(result: Any, outcome: Outcome) -> None:
    class Once(Counting):
        def step(self, action: Any) -> Any:
            return result

    assert play(Once()).outcome is outcome


def test_rollouts_side_by_side_do_not_mix() -> None:
    async def run() -> list[Trajectory]:
        async def act(observation: Any) -> str:
            await asyncio.sleep(0.001)
            return "up"

        return await asyncio.gather(*(rollout(Counting(), policy(act), TASK, seed=n) for n in range(20)))

    played = asyncio.run(run())
    assert [trajectory.seed for trajectory in played] == list(range(20))
    assert all(len(trajectory.steps) == 3 for trajectory in played)


def test_usage_is_summed_and_what_is_inside_a_step_is_not_counted_twice() -> None:
    five = Usage(5, 5, 0.5, 1)
    steps = (
        Step(id="0", usage=five),
        Step(id="a", parent="0", usage=five),
        Step(id="b", parent="a", usage=five),
        Step(id="1"),
        Step(id="c", parent="1", usage=five),
        Step(id="x", parent="x", usage=five),
    )
    assert Trajectory(task=TASK, steps=steps).usage == Usage(15, 15, 1.5, 3)
    assert Trajectory(task=TASK).usage == Usage()


def test_a_transition_holds_the_five_of_the_classic_loop() -> None:
    transition = Transition("o", "a", 1.0, True, "n")
    assert (transition.obs, transition.action, transition.reward) == ("o", "a", 1.0)
    assert (transition.done, transition.next_obs) == (True, "n")


# -- check_env -------------------------------------------------------------------------------


class Branching(Counting):
    def snapshot(self) -> Any:
        return self.count

    def restore(self, saved: Any) -> None:
        self.count = saved


@pytest.mark.parametrize("make", [Counting, Branching])
def test_a_sound_env_passes(make: Any) -> None:
    asyncio.run(check_env(make, TASK, ["up", "up", "up"]))
    asyncio.run(check_env(make, TASK, ["up", "stop"], seed=5))


class SteppedEarly(Counting):
    def step(self, action: Any) -> Any:
        return super().step(action) if self.count is not None else StepResult({})


class WrongError(Counting):
    def step(self, action: Any) -> Any:
        if self.count is None:
            raise KeyError("count")
        return super().step(action)


class SteppedLate(Counting):
    begun = False

    def reset(self, task: Task, seed: int) -> Any:
        self.begun = True
        return super().reset(task, seed)

    def step(self, action: Any) -> Any:
        return super().step(action) if self.count is not None or not self.begun else StepResult({})


class FourValues(Counting):
    def step(self, action: Any) -> Any:
        found = super().step(action)
        return found.observation, found.reward, found.terminated, found.info


class Nothing(Counting):
    def step(self, action: Any) -> Any:
        super().step(action)


class NotANumber(Counting):
    def step(self, action: Any) -> Any:
        super().step(action)
        return StepResult({}, float("nan"))


class Endless(Counting):
    def step(self, action: Any) -> Any:
        super().step(action)
        return StepResult({})


class Hasty(Counting):
    def step(self, action: Any) -> Any:
        super().step(action)
        return StepResult({}, None, True)


class Varying(Counting):
    numbers = itertools.count()

    def reset(self, task: Task, seed: int) -> Any:
        super().reset(task, seed)
        return next(self.numbers)


class Raising(Counting):
    def reset(self, task: Task, seed: int) -> Any:
        raise OSError("no such mailbox")


class NotJson(Counting):
    def reset(self, task: Task, seed: int) -> Any:
        super().reset(task, seed)
        return {1, object()}


class Sharing(Counting):
    """Gives the same list again and again, and so rewrites the record of what was seen."""

    def reset(self, task: Task, seed: int) -> Any:
        super().reset(task, seed)
        self.seen: list[int] = []
        return self.seen

    def step(self, action: Any) -> Any:
        found = super().step(action)
        self.seen.append(1)
        return StepResult(self.seen, found.reward, found.terminated, found.truncated, found.info)


class Forgetful(Branching):
    def restore(self, saved: Any) -> None:
        self.count = 0 if self.count is None else self.count


class BadOutcome(Counting):
    def step(self, action: Any) -> Any:
        found = super().step(action)
        return StepResult(found.observation, found.reward, found.terminated, False, {"outcome": "splendid"})


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (SteppedEarly, "step before reset must raise EnvError"),
        (WrongError, "before reset must raise EnvError, not KeyError"),
        (SteppedLate, "step after the end must raise EnvError"),
        (FourValues, "step must return observation, reward, terminated, truncated, info"),
        (Nothing, "step must return observation"),
        (NotANumber, "reward of action 0 is NaN"),
        (Endless, "action 2 did not end the episode"),
        (Hasty, "action 0 ended the episode"),
        (Varying, "gave different results"),
        (Raising, "raised OSError: no such mailbox"),
        (NotJson, "cannot be written as JSON"),
        (Sharing, "changed after it was given"),
        (Forgetful, "did not bring the episode back"),
        (BadOutcome, "a rollout ended in ValueError"),
    ],
)
def test_each_broken_promise_is_named(make: Any, what: str) -> None:
    with pytest.raises(ContractError, match=what) as caught:
        asyncio.run(check_env(make, TASK, ["up", "up", "up"]))
    assert str(caught.value).startswith(f"{make.__name__}: ")
