"""check_optimizer accepts a well-behaved optimizer and names what is wrong with every other."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from evolution_world import START, World, start_bundle, tasks

from whet.errors import BudgetExceeded, ContractError, TrainingRefused
from whet.learn.loop import Context, Update
from whet.learn.loop_checks import check_optimizer
from whet.types import Budget, Bundle, Group, Json, Task, Trajectory, Version


class Walker:
    """Raises one knob per round by a random amount, and measures it."""

    name = "walker"
    group_size: Any = 0
    on_policy = False
    ordered = False

    async def step(self, bundle: Bundle, groups: Sequence[Group], context: Context) -> Update:
        round_ = (context.state or {"round": 0, "seed": context.rng.getrandbits(20)}) | {}
        top = bundle["rule"].content["top"] + 1 + round_["seed"] % 3
        made = bundle.put(Version(resource="rule", content={**bundle["rule"].content, "top": top}))
        await context.rollout(made, context.train[:4], 1, seed=1)
        state = {**round_, "round": round_["round"] + 1}
        return Update(bundle=made, state=state, metrics={"top": float(top)}, done=state["round"] >= 3)


def context(budget: Budget) -> Context:
    return World(budget=budget).context(tasks(8, 1, "t"), tasks(4, 2, "v"), seed=5)


TASK = Task(id="g")


def check(make: Callable[[], Any], groups: Sequence[Group] | None = None) -> None:
    given = groups if groups is not None else [Group(TASK, [Trajectory(task=TASK, id="one", meta={"a": 1})])]
    asyncio.run(check_optimizer(make, start_bundle(), given, context, rounds=3))


def test_a_well_behaved_optimizer_passes() -> None:
    check(Walker)


def test_refusing_for_want_of_budget_is_allowed() -> None:
    class Refusing(Walker):
        async def step(self, bundle: Bundle, groups: Sequence[Group], context: Context) -> Update:
            try:
                return await super().step(bundle, groups, context)
            except BudgetExceeded as error:
                raise TrainingRefused("nothing to learn from") from error

    check(Refusing)


def test_wrong_attributes_are_named() -> None:
    class Negative(Walker):
        group_size = -1

    class Nameless(Walker):
        name = ""

    class NotBool(Walker):
        ordered: Any = 0

    for make, what in ((Negative, "group_size"), (Nameless, "name"), (NotBool, "ordered"), (object, "lacks")):
        with pytest.raises(ContractError, match=what):
            check(make)


def changed(**fields: Any) -> type[Walker]:
    class Changed(Walker):
        async def step(self, bundle: Bundle, groups: Sequence[Group], context: Context) -> Update:
            update = await super().step(bundle, groups, context)
            kept = {
                "bundle": update.bundle,
                "state": update.state,
                "metrics": update.metrics,
                "done": update.done,
            }
            return Update(**{**kept, **fields})

    return Changed


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"bundle": {"rule": 1}}, "not a Bundle"),
        ({"state": object()}, "not JSON"),
        ({"state": {"x": {1: float("inf")}}}, "survive"),
        ({"metrics": {"x": float("nan")}}, "metric 'x' is nan"),
        ({"metrics": {"x": None}}, "left out"),
        ({"metrics": {"x": True}}, "is True"),
        ({"metrics": [1]}, "not a mapping"),
        ({"done": 1}, "done must be a bool"),
    ],
)
def test_a_wrong_update_is_named(fields: dict[str, Json], what: str) -> None:
    with pytest.raises(ContractError, match=what):
        check(changed(**fields))


def test_returning_no_update_is_caught() -> None:
    class Silent(Walker):
        async def step(self, bundle: Bundle, groups: Sequence[Group], context: Context) -> Any:
            await super().step(bundle, groups, context)

    with pytest.raises(ContractError, match="NoneType, not an Update"):
        check(Silent)


def test_chance_from_elsewhere_is_caught() -> None:
    numbers = itertools.count()

    class Drifting(Walker):
        async def step(self, bundle: Bundle, groups: Sequence[Group], context: Context) -> Update:
            made = bundle.put(Version(resource="rule", content={**START, "top": next(numbers)}))
            return Update(bundle=made, done=True)

    with pytest.raises(ContractError, match="the same seed gave a different bundle"):
        check(Drifting)


def test_memory_outside_the_state_is_caught() -> None:
    class Remembering(Walker):
        def __init__(self) -> None:
            self.rounds = 0

        async def step(self, bundle: Bundle, groups: Sequence[Group], context: Context) -> Update:
            self.rounds += 1
            made = bundle.put(Version(resource="rule", content={**START, "top": self.rounds}))
            return Update(bundle=made, state={})

    with pytest.raises(ContractError, match="resumed from its state"):
        check(Remembering)


def test_changing_what_was_given_is_caught() -> None:
    class Groups(Walker):
        async def step(self, bundle: Bundle, groups: Sequence[Group], context: Context) -> Update:
            groups[0].trajectories[0].meta["a"] = 2  # type: ignore[index]
            return await super().step(bundle, groups, context)

    class Content(Walker):
        async def step(self, bundle: Bundle, groups: Sequence[Group], context: Context) -> Update:
            bundle["rule"].content["top"] = 9
            return Update(bundle=bundle)

    class Tasks(Walker):
        async def step(self, bundle: Bundle, groups: Sequence[Group], context: Context) -> Update:
            context.train.reverse()  # type: ignore[attr-defined]
            return await super().step(bundle, groups, context)

    for make, what in ((Groups, "groups that it was given"), (Content, "the bundle"), (Tasks, "the tasks")):
        with pytest.raises(ContractError, match=what):
            check(make)


def test_tasks_from_outside_are_caught_even_if_the_error_is_swallowed() -> None:
    class Peeking(Walker):
        async def step(self, bundle: Bundle, groups: Sequence[Group], context: Context) -> Update:
            await context.rollout(bundle, tasks(1, 3, "gate"), 1)
            return await super().step(bundle, groups, context)

    with pytest.raises(ContractError, match="not in its context: gate0"):
        check(Peeking)


def test_running_past_the_budget_is_caught() -> None:
    class Spending(Walker):
        async def step(self, bundle: Bundle, groups: Sequence[Group], context: Context) -> Update:
            context.meter.settle(rollouts=-1000.0)  # buys itself room
            return await super().step(bundle, groups, context)

    with pytest.raises(ContractError, match="4 rollouts ran on a budget of 0"):
        check(Spending)
