"""What decides: a Policy maps an observation to an Action.

A Policy is made for one rollout by a PolicyFactory, from the Bundle under test
and the rollout's own seed, so whatever it remembers belongs to that rollout.
Factories cache what is heavy (weights) by Version id.  Search (`whet.search`)
wraps a Policy as Gymnasium wraps an Env.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from .types import Bundle, Json, Step, Tokens, Usage


@dataclass(frozen=True, slots=True)
class Action:
    """What a policy decided, with what a learner needs to know about how."""

    value: Json
    tokens: Tokens | None = None
    usage: Usage | None = None
    steps: Sequence[Step] = ()
    """Steps inside this one, where the policy is a whole agent that was traced."""


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
        if inspect.isawaitable(value):
            value = await value
        return value if isinstance(value, Action) else Action(value)
