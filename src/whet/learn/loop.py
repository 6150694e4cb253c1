"""Learners: the Optimizer protocol, its Context and its Update.

Every learner, from a knob search to multi-turn GRPO, has one signature,
`async step(bundle, groups, context) -> Update`.  An Experiment (`experiment.py`) calls it,
and never hands it a gate task.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

from ..models.budget import Meter
from ..record.store import Log
from ..types import Bundle, Group, Json, Outcome, Preference, Task, Trajectory


class Progress(Protocol):
    """Called with a subject, its progress and its cost; the default is silent."""

    def __call__(self, what: str, done: int, total: int | None = None, **figures: float | str) -> None: ...


def quiet(what: str, done: int, total: int | None = None, **figures: float | str) -> None:
    """The silent Progress."""


class RunRollouts(Protocol):
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
    """An optimizer's means beside the groups."""

    rollout: RunRollouts
    train: Sequence[Task] = ()
    validation: Sequence[Task] = ()
    """For early stopping and choosing settings.  The gate's tasks are not here."""
    preferences: Sequence[Preference] = ()
    """Those of the experiment, by default all that its store holds."""
    meter: Meter = field(default_factory=Meter)
    rng: random.Random = field(default_factory=lambda: random.Random(0))
    folder: Path = field(default_factory=lambda: Path("."))
    """For artifacts such as weights."""
    progress: Progress = quiet
    baseline: Mapping[str, float] | None = None
    """Recorded mean of each score of the bundle before any learning; None if nothing was recorded."""
    state: Json = None
    """The state of this optimizer's last Update; None on the first step."""
    last: bool = False
    """The last round, as far as is known: weights that are in memory alone must be written."""
    log: Log = field(default_factory=Log)
    """Of this `improve`: model answers and other paid work, durable as they come; a step that is resumed
    finds them there."""


@dataclass(frozen=True, kw_only=True)
class Update:
    """An optimizer's answer to its groups."""

    bundle: Bundle
    state: Json = None
    """All that exact resuming needs; large tensors go to a file in `context.folder`, named here.

    A mapping with `"resumable": False` is good in this process only: an interrupted `improve`
    resumes from the last round before it with another state."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    done: bool = False
    """True when more rounds would change nothing (early stop, or an offline learner)."""
    reason: str = ""


@runtime_checkable
class Optimizer(Protocol):
    """Everything that learns.

    It may have an `identity: str`, a digest of the settings that decide its results: where it differs from that
    of the checkpoint, an interrupted `improve` begins anew instead of going on with other settings.  With
    `needs_baseline = True` the baseline is measured on validation before its first round, if it was not;
    with `curriculum = True` a draw of some of the train tasks prefers those that can still teach;
    with `takes_groups = False` it learns from rollouts of its own, and recorded runs are neither read nor judged
    for it.
    """

    name: str
    group_size: int
    """Trajectories per task that `step` wants; 0 if it takes whatever there is on record."""
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


def means(groups: Sequence[Group]) -> dict[str, float]:
    """Mean of each score over the trajectories that count; a missing value is left out, never 0."""
    values: dict[str, list[float]] = {}
    for group in groups:
        for trajectory in group.trajectories:
            if trajectory.outcome is not Outcome.INFRASTRUCTURE_ERROR:
                for name, score in trajectory.scores.items():
                    if score.value is not None:
                        values.setdefault(name, []).append(score.value)
    return {name: sum(numbers) / len(numbers) for name, numbers in sorted(values.items())}


def value_of(trajectory: Trajectory, score: str) -> float | None:
    """The value of a trajectory to a learner that compares candidates; None if it has none, never 0 for missing.

    Args:
        score: name of a Score; `reward` is the sum of step rewards unless a Score has that name;
            `success` is 1 or 0 by the outcome unless a Score has that name.

    An infrastructure error is None whatever was scored: the candidate is not responsible for it. An answer that
    broke its judge (`Score.broke`) is worth 0, as at the gate: left out, breaking it would pay.
    """
    if trajectory.outcome is Outcome.INFRASTRUCTURE_ERROR:
        return None
    if score in trajectory.scores:
        if trajectory.scores[score].broke:
            return 0.0
        value = trajectory.scores[score].value
        # NaN is missing too: it compares unequal to itself, and would sort anywhere.
        return None if value is None or value != value else float(value)
    if score == "reward":
        return trajectory.reward
    if score == "success" and trajectory.outcome is not Outcome.UNKNOWN:
        return float(trajectory.outcome is Outcome.SUCCESS)
    return None


def mean_value(trajectories: Sequence[Trajectory], score: str) -> tuple[float | None, int]:
    """Mean of the values there are, and how many were missing."""
    values = [value for value in (value_of(run, score) for run in trajectories) if value is not None]
    missing = len(trajectories) - len(values)
    return (sum(values) / len(values) if values else None), missing
