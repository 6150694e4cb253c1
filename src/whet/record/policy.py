"""Policies: a Policy maps an observation to an Action.

A Policy is made for one rollout by a PolicyFactory, from the Bundle under test
and the rollout's own seed, so its memory belongs to that rollout.
Factories cache heavy contents (weights) by Version id.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

from ..types import Bundle, Json, Step, Tokens, Usage


@dataclass(frozen=True, slots=True)
class Action:
    """A policy's decision, with the evidence that a learner needs."""

    value: Json
    tokens: Tokens | None = None
    usage: Usage | None = None
    steps: Sequence[Step] = ()
    """Steps inside this one, where the policy is a whole agent that was traced; `placed` numbers them."""


def placed(steps: Sequence[Step], before: Sequence[Step] = (), parent: str | None = None) -> list[Step]:
    """Steps of one or several traced calls as they stand in a trajectory, each with an id of its own.

    A traced call numbers its steps from 0, and so does the trajectory that they go into.  Here a step that has no other
    id than such a number has that of its place; one that was given another keeps it, unless it is taken.

    Args:
        before: the steps that the trajectory has before them.
        parent: id of the step around those that have none around them.
    """
    renamed: dict[str, str] = {}
    numbered: list[Step] = []
    for number, step in enumerate(steps, len(before)):
        own = step.id and not step.id.isdecimal()
        in_use = own and (step.id in renamed or any(earlier.id == step.id for earlier in before))
        id = step.id if own and not in_use else str(number)
        # Of two calls' steps with one number the later is meant: a step comes after the one around it.
        above = renamed.get(step.parent, step.parent) if step.parent else parent
        renamed[step.id] = id
        numbered.append(replace(step, id=id, parent=above))
    return numbered


@runtime_checkable
class Policy(Protocol):
    """Decides within one rollout."""

    async def act(self, observation: Json, /) -> Action:
        """The action for this observation.

        Raises:
            ModelError: the model behind it failed; the rollout becomes an infrastructure error.
        """
        ...


class PolicyFactory(Protocol):
    """Makes the Policy for one rollout."""

    def __call__(self, bundle: Bundle, seed: int, /) -> Policy:
        """A fresh Policy that acts under `bundle` and draws only from `seed`."""
        ...


class FunctionPolicy:
    """A plain function, sync or async, as a Policy.

    >>> policy = FunctionPolicy(lambda observation: "blue")
    """

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function

    async def act(self, observation: Json, /) -> Action:
        value = self._function(observation)
        # Not `inspect.isawaitable`, for its cost: see `env._resolved`.
        if hasattr(type(value), "__await__"):
            value = await value
        return value if isinstance(value, Action) else Action(value)
