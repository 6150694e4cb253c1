"""What was run, as the gate takes it: one side's result on each task, and the two of them paired."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from ..errors import GateError
from ..types import Group, Outcome, Trajectory

UNSAFE, OTHER_VERSIONS, CO_RESIDENT = (
    "without the sandbox",
    "under other Versions than they were served",
    "beside their judge",
)
TAINTS = {
    UNSAFE: ("unsafe score", "Run the candidate in the sandbox: again, without --unsafe-local."),
    OTHER_VERSIONS: ("other Versions", "Have the workers run what they are served, and run it again."),
    CO_RESIDENT: (
        "co-resident score",
        "Judge its answers from outside: by known answers, or by a reward of your own (whet gate --reward).",
    ),
}
"""How a run was made that promotes nothing → what that is called, and what would clear it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """One side's result on one task."""

    task: str
    group: str = ""
    """The mailbox, database or repository that the task shares with others. Empty: it stands alone."""
    scores: Mapping[str, float | None] = field(default_factory=dict)
    """Metric → value; None means should have been scored and was not."""
    broke: Collection[str] = ()
    """Metrics whose evaluator broke on this answer (`Score.broke`): of these it is worth the least there is."""
    outcome: Outcome = Outcome.UNKNOWN
    tainted: str = ""
    """How it ran, where it ran in a way that promotes nothing: one of `TAINTS`."""
    uncalibrated: Collection[str] = ()
    """Metrics that a judge gave whom no reliability card admits."""
    evaluators: Mapping[str, str] = field(default_factory=dict)
    """Metric → version of what gave it, where the score names one."""

    def value(self, metric: str) -> float | None:
        """The metric; where no score of that name exists, `success` is read off the outcome.

        An infrastructure error has no value, whatever was scored.
        """
        if self.outcome is Outcome.INFRASTRUCTURE_ERROR:
            return None
        # A `success` that is there and None stays None: the outcome must not speak for a judge that failed.
        if metric in self.scores or metric != "success" or self.outcome is Outcome.UNKNOWN:
            return self.scores.get(metric)
        return float(self.outcome is Outcome.SUCCESS)

    def at_worst(self, metric: str, missing: float) -> float:
        """The metric, or what it counts without one: `missing`, and 0 for an answer that broke its evaluator.

        Raises:
            GateError: it lies outside [0, 1].
        """
        value = self.value(metric)
        if value is None:
            return 0.0 if metric in self.broke else missing
        if not 0 <= value <= 1:
            raise GateError(
                f"{metric!r} of task {self.task!r} is {value}: the gate bets on metrics in [0, 1]; rescale it"
            )
        return value

    def worth(self, metric: str) -> float | None:
        """The metric to whoever looks for the better of two: 0 for an answer that broke its evaluator."""
        return 0.0 if metric in self.broke else self.value(metric)


@dataclass(frozen=True, slots=True)
class PairedResults:
    """Both sides' results on one task.

    Raises:
        GateError: the two are of different tasks or groups.
    """

    baseline: TaskResult
    candidate: TaskResult

    def __post_init__(self) -> None:
        old, new = self.baseline, self.candidate
        if old.task != new.task:
            raise GateError(f"not a pair: baseline ran task {old.task!r}, candidate {new.task!r}")
        if old.group != new.group:
            raise GateError(
                f"task {old.task!r} is in group {old.group!r} for the baseline "
                f"and {new.group!r} for the candidate"
            )

    @property
    def task(self) -> str:
        return self.baseline.task

    @property
    def group(self) -> str:
        return self.baseline.group

    def difference(self, metric: str) -> float:
        """Candidate minus baseline, each missing score at the worst for the candidate.

        It might have been anything, so the baseline's counts 1 and the candidate's 0; an answer that broke the
        evaluator is worth 0 on either side.

        Raises:
            GateError: a value outside [0, 1].
        """
        return self.candidate.at_worst(metric, 0.0) - self.baseline.at_worst(metric, 1.0)

    @property
    def broken(self) -> bool:
        """A machine failed on either side: the pair says nothing about the policies."""
        return Outcome.INFRASTRUCTURE_ERROR in (self.baseline.outcome, self.candidate.outcome)


Side: TypeAlias = Mapping[str, TaskResult] | Sequence[TaskResult] | Sequence[Group] | Sequence[Trajectory]
"""One side's results: `TaskResult`s, or the Groups or Trajectories that were run (one per task)."""


def pairs(baseline: Side, candidate: Side, *, unpaired: bool = False) -> list[PairedResults]:
    """Pair two sides by task, in the baseline's order.

    Args:
        unpaired: where only one side has a task, give the other a result without any score, which counts at the worst
            for the candidate; such pairs come last.

    Raises:
        GateError: a task is twice on one side, or on one side only; says how many.
    """
    old, new = by_task(baseline, "baseline"), by_task(candidate, "candidate")
    only_old, only_new = [task for task in old if task not in new], [task for task in new if task not in old]
    if not unpaired and (only_old or only_new):
        raise GateError(
            f"not paired: {len(only_old)} tasks only on the baseline's side, {len(only_new)} only on the "
            f"candidate's, {len(old) - len(only_old)} on both; first {(only_old + only_new)[0]!r}. "
            "Run both on the same tasks, or count what is missing at its worst (--unpaired)."
        )
    return [
        *(PairedResults(result, new[task]) for task, result in old.items() if task in new),
        *(PairedResults(old[task], _unscored(old[task])) for task in only_old),
        *(PairedResults(_unscored(new[task]), new[task]) for task in only_new),
    ]


def _unscored(other: TaskResult) -> TaskResult:
    return TaskResult(task=other.task, group=other.group)


def refuse_broken(side: Side, metric: str) -> None:
    """Refuse a metric whose evaluator breaks on every answer of a baseline, before a candidate is run.

    Raises:
        GateError: it does; says on how many.
    """
    results = list(by_task(side, "baseline").values())
    if results and all(metric in result.broke for result in results):
        raise GateError(
            f"the evaluator of {metric!r} breaks on each of the {len(results)} answers of the baseline, so it is "
            "broken itself, and everything would be worth 0: mend it (`whet audit` says what it raises)"
        )


def only_errors(side: Side, name: str) -> str:
    """A sentence that names the commonest error of a side each of whose runs ended in one; "" of any other side.

    Such a side says nothing about what it would have answered: mostly it was called in a way that it does not take.
    """
    groups = [group for group in side if isinstance(group, Group)]
    errors = [run.error for group in groups for run in group.trajectories]
    named = [error for error in errors if error is not None]
    if not named or len(named) < len(errors):
        return ""
    counts = Counter(f"{error.type}: {error.message:.200}" for error in named)
    error, count = counts.most_common(1)[0]
    return f"All {len(errors)} runs of {name} ended in an error, {count} of them in {error}"


def by_task(side: Side, name: str) -> dict[str, TaskResult]:
    """Task id → its result, in the order of the side.

    Args:
        name: of the side, for the error.

    Raises:
        GateError: a task is there twice.
    """
    by_task: dict[str, TaskResult] = {}
    twice = 0
    for runs in side.values() if isinstance(side, Mapping) else side:
        result = runs if isinstance(runs, TaskResult) else _result(runs)
        twice += result.task in by_task
        by_task[result.task] = result
    if twice:
        raise GateError(f"{twice} results on the {name}'s side repeat a task: give one per task, or Groups")
    return by_task


def _result(task_runs: Group | Trajectory) -> TaskResult:
    """Runs of one task as one TaskResult: means over the runs that no machine broke."""
    runs = task_runs.trajectories if isinstance(task_runs, Group) else (task_runs,)
    unbroken = [run for run in runs if run.outcome is not Outcome.INFRASTRUCTURE_ERROR]
    if not unbroken:
        return TaskResult(
            task=task_runs.task.id, group=task_runs.task.group, outcome=Outcome.INFRASTRUCTURE_ERROR
        )
    outcomes = [
        TaskResult(task=run.task.id, scores=_judged_scores(run), outcome=run.outcome) for run in unbroken
    ]
    broke = {
        name for run in unbroken for name, score in run.scores.items() if score.broke and not score.by_worker
    }
    uncalibrated = {name for run in unbroken for name, score in run.scores.items() if score.uncalibrated}
    names = {name for run in outcomes for name in run.scores} | {"success"}
    scores: dict[str, float | None] = {}
    for name in sorted(names):
        values = [value for run in outcomes if (value := run.value(name)) is not None]
        # A run without its score leaves the task without one: the rest might be the lucky ones.
        scores[name] = sum(values) / len(values) if values and len(values) == len(outcomes) else None
    evaluators = {
        name: score.evaluator for run in unbroken for name, score in run.scores.items() if score.evaluator
    }
    tainted = next((how for run in runs if (how := _tainted(run))), "")
    return TaskResult(
        task=task_runs.task.id,
        group=task_runs.task.group,
        scores=scores,
        broke=frozenset(broke),
        tainted=tainted,
        uncalibrated=frozenset(uncalibrated),
        evaluators=evaluators,
    )


def _judged_scores(run: Trajectory) -> dict[str, float | None]:
    """The scores of a run; None for what the worker that ran it says itself, its success included."""
    scores = {name: None if score.by_worker else score.value for name, score in run.scores.items()}
    if run.by_worker:
        scores.setdefault("success", None)
    return scores


def _tainted(run: Trajectory) -> str:
    if run.meta.get("trusted_only"):
        return UNSAFE
    mismatch = run.meta.get("mismatch")
    if isinstance(mismatch, Mapping) and mismatch.get("versions"):
        return OTHER_VERSIONS
    return CO_RESIDENT if run.meta.get("co_resident") else ""
