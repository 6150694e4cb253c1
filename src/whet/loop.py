"""The loop: an Experiment collects, improves and gates; an Optimizer is anything that learns.

Every learner, from a knob search to multi-turn GRPO, has one signature,
`async step(bundle, groups, context) -> Update`.  The Experiment alone owns the
splits: what it hands to an optimizer never contains a gate task.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from .budget import Meter
from .types import Bundle, Group, Json, Preference, Task


class Progress(Protocol):
    """Told what is under way, how far it is and what it has cost; the default says nothing."""

    def __call__(self, what: str, done: int, total: int | None = None, **figures: float | str) -> None: ...


def quiet(what: str, done: int, total: int | None = None, **figures: float | str) -> None:
    """The Progress that says nothing."""


class Rollout(Protocol):
    """Runs policies built from a Bundle on tasks, within the budget, scored by the experiment's rewards."""

    async def __call__(
        self,
        bundle: Bundle,
        tasks: Sequence[Task],
        n: int = 1,
        *,
        seed: int = 0,
        prefix: Sequence[Json] | None = None,
    ) -> list[Group]:
        """One Group of `n` trajectories per task, in the order given.

        Raises:
            BudgetExceeded: the rollouts would overshoot; none was run.
            GateError: a gate task was asked for.
        """
        ...


@dataclass(kw_only=True)
class Context:
    """What an optimizer is given beside the groups."""

    rollout: Rollout
    train: Sequence[Task] = ()
    validation: Sequence[Task] = ()
    """For early stopping and choosing settings.  The gate's tasks are not here."""
    preferences: Sequence[Preference] = ()
    meter: Meter = field(default_factory=Meter)
    rng: random.Random = field(default_factory=lambda: random.Random(0))
    folder: Path = field(default_factory=lambda: Path("."))
    """For artifacts such as weights."""
    progress: Progress = quiet
    baseline: Mapping[str, float] | None = None
    """Recorded mean of each score of the bundle before any learning; None if nothing was recorded."""
    state: Json = None
    """What this optimizer's last Update carried; None on the first step."""


@dataclass(frozen=True, kw_only=True)
class Update:
    """What an optimizer made of its groups."""

    bundle: Bundle
    state: Json = None
    """Whatever makes resuming exact; large tensors go to a file in `context.folder`, named here."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    done: bool = False
    """True when more rounds would change nothing (early stop, or an offline learner)."""
    reason: str = ""


@runtime_checkable
class Optimizer(Protocol):
    """Everything that learns."""

    name: str
    group_size: int
    """Trajectories per task that `step` wants; 0 if it takes whatever there is."""
    on_policy: bool
    """True if the groups must come from the bundle that it is given."""
    ordered: bool
    """True if it needs the groups in the order in which they happened."""

    async def step(self, bundle: Bundle, groups: Sequence[Group], context: Context) -> Update:
        """One round of learning.

        Raises:
            TrainingRefused: nothing to learn from; says what is missing.
        """
        ...


OptimizerFactory = Callable[..., Any]
