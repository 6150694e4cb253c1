"""`check_optimizer`: what tests, ours and yours, hold an Optimizer to.

It runs the optimizer on a small problem of the caller's and looks from outside: at what the
optimizer returned, what it changed and what it asked the rollout for.  It does not say whether
anything was learned; that takes a planted optimum and a negative control.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence

import msgspec

from ..errors import BudgetExceeded, ContractError, TrainingRefused
from ..types import Budget, Bundle, Group, Json, Task
from .loop import Context, Optimizer, RunRollouts, Update

ContextFactory = Callable[[Budget], Context]
"""A fresh Context, always with the same seed, whose rollout and meter keep to the Budget given."""

UNLIMITED = Budget()


async def check_optimizer(
    make: Callable[[], Optimizer],
    bundle: Bundle,
    groups: Sequence[Group],
    context: ContextFactory,
    *,
    rounds: int = 2,
    budgets: Sequence[int] = (0, 1, 7, 40),
) -> None:
    """Hold an optimizer to its contract on one small problem.

    Args:
        make: makes a fresh optimizer with the same settings.
        groups: what `step` is given in every round.
        context: makes a fresh context for a budget.
        rounds: how many steps the straight and the resumed run take, at most.
        budgets: numbers of rollouts that the step must keep to; it may return, or raise
            BudgetExceeded or TrainingRefused.

    Raises:
        ContractError: attributes or Update have wrong types; the same seed gave different results;
            the bundle, groups or tasks were changed; a run that is resumed from `state` (as JSON, in a
            fresh optimizer) differs from a straight one; a task outside the context was asked for; or
            more rollouts ran than the budget allows.
    """
    _check_attributes(make())
    before = _frozen(bundle, groups)
    straight = await _straight(make, bundle, groups, context, rounds)
    name = make().name
    if _frozen(bundle, groups) != before:
        raise ContractError(f"{name}: step changed the bundle or the groups that it was given")
    again = await _straight(make, bundle, groups, context, rounds)
    _compare(name, straight, again, "the same seed gave a different")
    resumed = await _resumed(make, bundle, groups, context, rounds)
    _compare(name, straight, resumed, "resumed from its state it gave a different")
    for rollouts in budgets:
        watched = _Watched(context(Budget(rollouts=rollouts)), groups)
        with contextlib.suppress(BudgetExceeded, TrainingRefused):
            _check_update(name, await make().step(bundle, groups, watched.context))
        watched.check(name)
        if watched.count > rollouts:
            raise ContractError(f"{name}: {watched.count} rollouts ran on a budget of {rollouts}")


class _Watched:
    """A context whose rollout notes what it was asked for."""

    def __init__(self, context: Context, groups: Sequence[Group]) -> None:
        self.context = context
        self.count = 0
        self.strange: set[str] = set()
        self._allowed = {task.id for task in (*context.train, *context.validation)}
        self._allowed |= {group.task.id for group in groups}
        self._tasks = _encoded([list(context.train), list(context.validation)])
        self._inner: RunRollouts = context.rollout
        context.rollout = self._rollout

    async def _rollout(
        self,
        bundle: Bundle,
        tasks: Sequence[Task],
        n: int = 1,
        *,
        seed: int = 0,
        prefix: Sequence[Json] | None = None,
    ) -> list[Group]:
        self.strange |= {task.id for task in tasks} - self._allowed
        groups = await self._inner(bundle, tasks, n, seed=seed, prefix=prefix)
        self.count += sum(len(group.trajectories) for group in groups)
        return groups

    def check(self, name: str) -> None:
        if self.strange:
            raise ContractError(
                f"{name}: asked for tasks that are not in its context: {', '.join(sorted(self.strange))}"
            )
        if _encoded([list(self.context.train), list(self.context.validation)]) != self._tasks:
            raise ContractError(f"{name}: step changed the tasks of its context")


async def _straight(
    make: Callable[[], Optimizer],
    bundle: Bundle,
    groups: Sequence[Group],
    context: ContextFactory,
    rounds: int,
) -> list[Update]:
    optimizer, watched, updates = make(), _Watched(context(UNLIMITED), groups), []
    for _ in range(rounds):
        update = await optimizer.step(bundle, groups, watched.context)
        _check_update(optimizer.name, update)
        updates.append(update)
        if update.done:
            break
        bundle, watched.context.state = update.bundle, update.state
    watched.check(optimizer.name)
    return updates


async def _resumed(
    make: Callable[[], Optimizer],
    bundle: Bundle,
    groups: Sequence[Group],
    context: ContextFactory,
    rounds: int,
) -> list[Update]:
    """As `_straight`, but every round in a fresh optimizer and context: only `state` and the folder carry."""
    updates: list[Update] = []
    folder = None
    for _ in range(rounds):
        fresh = context(UNLIMITED)
        folder = fresh.folder = folder or fresh.folder
        if updates:
            fresh.state = msgspec.json.decode(msgspec.json.encode(updates[-1].state))
        updates.append(await make().step(bundle, groups, fresh))
        if updates[-1].done:
            break
        bundle = updates[-1].bundle
    return updates


def _check_attributes(optimizer: Optimizer) -> None:
    kind = type(optimizer).__name__
    # A Protocol at run time looks for the names alone; what stands under them is checked below.
    if not isinstance(optimizer, Optimizer):
        raise ContractError(f"{kind} lacks one of name, group_size, on_policy, ordered, step")
    if not isinstance(optimizer.name, str) or not optimizer.name:
        raise ContractError(f"{kind}.name must be a text, not {optimizer.name!r}")
    size = optimizer.group_size
    if isinstance(size, bool) or not isinstance(size, int) or size < 0:
        raise ContractError(f"{kind}.group_size must be a whole number from 0, not {size!r}")
    for attribute in ("on_policy", "ordered"):
        if not isinstance(getattr(optimizer, attribute), bool):
            raise ContractError(f"{kind}.{attribute} must be True or False")


def _check_update(name: str, update: object) -> None:
    if not isinstance(update, Update):
        raise ContractError(f"{name}: step returned a {type(update).__name__}, not an Update")
    if not isinstance(update.bundle, Bundle):
        raise ContractError(f"{name}: Update.bundle is a {type(update.bundle).__name__}, not a Bundle")
    try:
        state = msgspec.json.encode(update.state)
    except (TypeError, ValueError) as error:
        raise ContractError(f"{name}: Update.state is not JSON: {error}") from error
    if msgspec.json.decode(state) != update.state:
        raise ContractError(
            f"{name}: Update.state does not survive JSON: tuples become lists, keys text, infinity null"
        )
    if not isinstance(update.metrics, Mapping):
        raise ContractError(f"{name}: Update.metrics is a {type(update.metrics).__name__}, not a mapping")
    for key, value in update.metrics.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
            raise ContractError(f"{name}: metric {key!r} is {value!r}; a metric is a number, or left out")
    if not isinstance(update.done, bool) or not isinstance(update.reason, str):
        raise ContractError(f"{name}: Update.done must be a bool and Update.reason a text")


def _compare(name: str, expected: Sequence[Update], actual: Sequence[Update], difference: str) -> None:
    if len(expected) != len(actual):
        raise ContractError(f"{name}: {difference} number of rounds: {len(actual)}, not {len(expected)}")
    for number, (first, second) in enumerate(zip(expected, actual, strict=True), 1):
        if first.bundle.id != second.bundle.id:
            raise ContractError(
                f"{name}: {difference} bundle in round {number}: {second.bundle}, not {first.bundle}"
            )
        if _encoded(first.state) != _encoded(second.state):
            raise ContractError(f"{name}: {difference} state in round {number}")
        for key in first.metrics.keys() | second.metrics.keys():
            if key.endswith("seconds"):  # the one figure that may differ
                continue
            if first.metrics.get(key) != second.metrics.get(key):
                raise ContractError(
                    f"{name}: {difference} metric {key!r} in round {number}: "
                    f"{second.metrics.get(key)!r}, not {first.metrics.get(key)!r}"
                )


def _frozen(bundle: Bundle, groups: Sequence[Group]) -> bytes:
    return _encoded([[bundle[name] for name in sorted(bundle)], list(groups)])


def _encoded(value: Json) -> bytes:
    return msgspec.json.encode(value, order="sorted")
