"""The gate: paired results of two Bundles on tasks that no optimizer saw → Verdict.

Each result is paired with its baseline on the same task.  A candidate is promoted
when the betting e-value of the paired differences reaches 1/alpha, their interval,
clustered by group, lies above the bar, and every guardrail holds.  `compare` looks
once at everything; a `Comparison` is fed pair by pair, may be watched all the time,
and stops as soon as the case is made.  It never looks at a training reward and
runs nothing: the outcomes are the caller's.  The numbers behind the rules are in
`docs/decisions/020-the-gate.md`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from ..errors import GateError
from ..stats import BettingProcess, ClusterMean, pairs_needed
from ..types import Group, Outcome, Trajectory, Verdict
from .guardrails import MAX_EXCLUDED, Guardrail, RailEvidence, pairs_in_words

# 0.98 still let up to 6 % through, 0.99 between 1.2 and 3.7 % in 21 settings
# (docs/decisions/020-the-gate.md).
WATCHED_LEVEL = 0.99
"""Level of the clustered interval where groups are shared and every pair is looked at: at 0.95, looking
again and again promoted up to 9 % of useless candidates whose effect differs between groups."""


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
    """How it ran, where it ran in a way that promotes nothing: `without the sandbox` or `beside their judge`."""
    uncalibrated: Collection[str] = ()
    """Metrics that a judge gave whom no reliability card admits."""

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

    @property
    def broken(self) -> bool:
        """A machine failed on either side: the pair says nothing about the policies."""
        return Outcome.INFRASTRUCTURE_ERROR in (self.baseline.outcome, self.candidate.outcome)


Side: TypeAlias = Mapping[str, TaskResult] | Sequence[TaskResult] | Sequence[Group] | Sequence[Trajectory]
"""One side's results: `TaskResult`s, or the Groups or Trajectories that were run (one per task)."""


def compare(
    baseline: Side,
    candidate: Side,
    *,
    metric: str = "success",
    margin: float = 0.0,
    alpha: float = 0.05,
    guardrails: Sequence[Guardrail] = (),
    against: str = "baseline",
    trained_groups: Collection[str] = (),
    folds: int = 1,
) -> Verdict:
    """Judge two sets of results on the same tasks, looking once.

    Args:
        baseline, candidate: one result per task on each side; several trajectories in a Group are averaged.
        metric: decides; in [0, 1].
        margin: 0 asks for superiority; d > 0 for not being worse by more than d.
        alpha: chance of promoting a candidate that has no effect.
        guardrails: what must not get worse.
        against: what the baseline is called.
        trained_groups: groups, and ids of tasks, that anything was trained, tuned or chosen on.
        folds: candidates that the pairs are of, where each was chosen without the fold that it is judged on, and
            so on the others' folds (cross-fitting). The pairs then depend on each other: see `Comparison`.

    Raises:
        GateError: tasks leaked, are unpaired or occur twice; values outside [0, 1]; nothing to compare.
    """
    comparison = Comparison(
        metric=metric,
        margin=margin,
        alpha=alpha,
        guardrails=guardrails,
        against=against,
        trained_groups=trained_groups,
        watched=False,
        folds=folds,
    )
    for pair in pairs(baseline, candidate):
        comparison.add(pair)
    return comparison.verdict()


class Comparison:
    """A comparison under way: pairs come one at a time, and the answer may be read after each.

    Feed the tasks in an order that has nothing to do with their results, best a shuffle by seed: then
    each pair is a fresh draw, which the e-process needs.  Pairs of one group are *not* independent
    draws, so where groups are shared the interval clustered by group must agree, at the stricter
    WATCHED_LEVEL.  `add` returns True when the candidate is promoted: stop there.

    Where each pair was judged out of fold, the candidate of one fold was chosen on the pairs of the others, and what
    is luck in one helped to choose the next. The sum over folds then varies more than independent pairs would, so
    the interval is wider by √((2K−1)/K) for K folds: a correlation of 1/K between folds, the correction of Nadeau
    and Bengio (2003) for tests that share training rows. It is an assumption, measured and not proven
    (docs/decisions/022-out-of-fold.md).

    Args:
        watched: False only if nobody acts on it before the last pair (`compare`).
        (others): as in `compare`.

    Raises:
        GateError: margin or alpha make no sense.
    """

    def __init__(
        self,
        *,
        metric: str = "success",
        margin: float = 0.0,
        alpha: float = 0.05,
        guardrails: Sequence[Guardrail] = (),
        against: str = "baseline",
        trained_groups: Collection[str] = (),
        watched: bool = True,
        folds: int = 1,
    ) -> None:
        if not 0 <= margin < 1:
            raise GateError(f"margin {margin} must be at least 0 and under 1: it is in units of {metric!r}")
        if not 0 < alpha < 1:
            raise GateError(f"alpha {alpha} must lie between 0 and 1")
        names = [guardrail.metric for guardrail in guardrails]
        if len(set(names)) != len(names):
            raise GateError(f"two guardrails on one metric: {sorted(names)}")
        self.metric, self.margin, self.alpha, self.against = metric, margin, alpha, against
        self.guardrails, self.watched, self.folds = tuple(guardrails), watched, folds
        self.promoted = False
        """Latched: what was proven at one moment stays proven."""
        self._trained = frozenset(trained_groups)
        self._seen: set[str] = set()
        self._process = BettingProcess(-margin)
        self._effect = ClusterMean()
        self._differences: list[float] = []
        self._rails = {guardrail.metric: RailEvidence(guardrail) for guardrail in self.guardrails}
        self._broken = self._scored = 0
        self._unscored, self._broke = [0, 0], [0, 0]
        """Answers of the baseline and of the candidate without a score, and such that broke their evaluator."""
        self._tainted: list[str] = []
        self._uncalibrated = 0

    @property
    def n(self) -> int:
        """Pairs that counted."""
        return self._process.n

    @property
    def e_value(self) -> float:
        """Evidence so far; 1/alpha is what it takes."""
        return self._process.value

    def add(self, pair: PairedResults) -> bool:
        """Take one pair in; True once the candidate is promoted.

        Raises:
            GateError: the task leaked, came before, or its value lies outside [0, 1]; or the
                comparison was already decided, and this pair would be ignored.
        """
        if self.promoted:
            raise GateError(
                f"decided after {self.n} pairs: stop feeding a Comparison once `add` returned True"
            )
        self._refuse(pair)
        # Before what follows: the share that is left out is one of all pairs, broken ones included.
        self._seen.add(pair.task)
        if pair.candidate.tainted:
            self._tainted.append(pair.candidate.tainted)
        self._uncalibrated += self.metric in {*pair.candidate.uncalibrated, *pair.baseline.uncalibrated}
        if pair.broken:
            self._broken += 1
            return False
        for name, rail in self._rails.items():
            old, new = pair.baseline, pair.candidate
            rail.add(
                (old.value(name), new.value(name)),
                (name in old.broke, name in new.broke),
                task=pair.task,
                group=pair.group,
            )
        # Never left out: a candidate that goes without a score where it is wrong would choose its sample.
        difference = self._at_worst(pair.candidate, 1) - self._at_worst(pair.baseline, 0)
        self._scored += all(self._value(side) is not None for side in (pair.baseline, pair.candidate))
        self._process.add(difference)
        self._effect.add(difference, pair.group)
        self._differences.append(difference)
        self.promoted = self.watched and self._proven()
        return self.promoted

    def verdict(self) -> Verdict:
        """The decision on the pairs so far, with its evidence.

        Raises:
            GateError: no pair counted.
        """
        if not self._scored:
            raise GateError(
                f"nothing to compare: of {len(self._seen)} pairs, {self._broken} had an infrastructure error, and of "
                f"no other one both answers have a {self.metric!r} ({self._without('the baseline', 0)}; "
                f"{self._without('the candidate', 1)}). What a worker says of its own run does not count: judge it."
            )
        proven = self.promoted or self._proven()
        needed = self._needed()
        return Verdict(
            promote=proven,
            effect=self._effect.mean,
            # Always the 95 % one; the one that decides is at `_level`.
            interval=self._interval(0.95),
            e_value=self.e_value,
            n=self.n,
            against=self.against,
            margin=self.margin,
            needed=needed,
            guardrails={name: rail.holds() for name, rail in self._rails.items()},
            reasons=tuple(self._reasons(proven, needed)),
        )

    def _refuse(self, pair: PairedResults) -> None:
        if pair.task in self._seen:
            raise GateError(f"task {pair.task!r} came twice: one pair per task, average repeated runs first")
        # "" is the group of every task that stands alone: no leak.
        leaked = self._trained.intersection((pair.task, pair.group)) - {""}
        if leaked:
            raise GateError(
                f"task {pair.task!r} leaked: {min(leaked)!r} was trained on. Judge on groups that "
                "nothing was trained, tuned or chosen on."
            )

    def _at_worst(self, result: TaskResult, side: int) -> float:
        """The metric of the baseline (0) or the candidate (1), or what it counts without one.

        An answer that broke the evaluator is worth 0 on either side. A score that is only missing might have been
        anything, so it counts against the candidate: the baseline's as 1, the candidate's as 0.
        """
        value = self._value(result)
        if value is not None:
            return value
        if self.metric in result.broke:
            self._broke[side] += 1
            return 0.0
        self._unscored[side] += 1
        return 0.0 if side else 1.0

    def _without(self, name: str, side: int) -> str:
        return f"{name} lacks {self._unscored[side]} and broke the evaluator {self._broke[side]} times"

    def _value(self, result: TaskResult) -> float | None:
        value = result.value(self.metric)
        if value is not None and not 0 <= value <= 1:
            raise GateError(
                f"{self.metric!r} of task {result.task!r} is {value}: "
                "the gate bets on metrics in [0, 1]; rescale it"
            )
        return value

    @property
    def _grouped(self) -> bool:
        return self._effect.clusters < self._effect.n

    @property
    def _level(self) -> float:
        return WATCHED_LEVEL if self.watched and self._grouped else 0.95

    def _interval(self, level: float) -> tuple[float, float]:
        """The clustered interval, wider where the pairs are out of fold."""
        low, high = self._effect.interval(level=level, bounds=(-1.0, 1.0))
        mean, wider = self._effect.mean, math.sqrt((2 * self.folds - 1) / self.folds)
        return max(-1.0, mean - wider * (mean - low)), min(1.0, mean + wider * (high - mean))

    def _low(self) -> float:
        """Lower end of the interval that decides."""
        return self._interval(self._level)[0]

    def _proven(self) -> bool:
        # The cheap tests first: this runs after every pair.
        return (
            not self._tainted
            and not self._uncalibrated
            and self.e_value >= 1 / self.alpha
            # Both, where groups are shared: with 8 groups whose effects differ by 20 points betting on pairs
            # alone promoted 23 % of useless candidates (docs/decisions/020-the-gate.md).
            and self._low() > -self.margin
            and self._scored > 0
            and self._broken <= MAX_EXCLUDED * len(self._seen)
            and all(rail.holds() for rail in self._rails.values())
        )

    def _needed(self) -> int | None:
        """Pairs at which both the e-value and the clustered interval would pass, if effect and spread stay.

        The interval's part assumes that more pairs bring more groups in proportion, so that its
        width falls with the square root of the pairs.
        """
        by_betting = pairs_needed(self._differences, null=-self.margin, alpha=self.alpha)
        if by_betting is None or self._effect.clusters < 2:
            return None
        half = self._effect.mean - self._low()
        distance = self._effect.mean + self.margin
        if distance <= 0 or math.isinf(half):
            return None
        return max(by_betting, math.ceil(self.n * (half / distance) ** 2))

    def _reasons(self, proven: bool, needed: int | None) -> Iterable[str]:
        effect, bar = self._effect.plain, 0.0 - self.margin  # -self.margin would be written -0.000
        goal = f"better than {self.against}"
        if self.margin:
            goal = f"not worse than {self.against} by more than {self.margin:g}"
        where = ""
        if self._grouped:
            where = f" in {self._effect.clusters} groups ({self._effect.mean:+.3f} for a group drawn anew)"
        enough = self.e_value >= 1 / self.alpha
        yield (
            f"{self.metric} {effect:+.3f} over {pairs_in_words(self.n)}{where}; "
            f"e-value {self.e_value:.3g}, {'enough' if enough else 'not enough'} "
            f"(it takes {1 / self.alpha:.3g}) to call it {goal}."
        )
        if self._low() <= bar:
            wider = (
                f", widened for {self.folds} folds that learned from each other," if self.folds > 1 else ""
            )
            yield (
                f"The {self._level:.0%} interval clustered by group{wider} reaches down to {self._low():+.3f}, "
                f"not above {bar:+.3f}."
            )
        if not proven and needed is not None and needed > self.n:
            yield f"An effect of this size would need about {needed} pairs."
        if self._broken:
            yield f"{pairs_in_words(self._broken)} left out: an infrastructure error on one side."
        if any(self._broke):
            yield (
                f"{_counts(self._broke)} broke the evaluator of {self.metric}, which raised or gave no finite "
                "number: each counts 0."
            )
        if any(self._unscored):
            yield (
                f"{_counts(self._unscored)} without {self.metric}: counted at the worst for the candidate, whose own "
                "missing ones are 0 and the baseline's 1. Judge them again, or leave out tasks that nothing can judge."
            )
        if self._broken > MAX_EXCLUDED * len(self._seen):
            yield (
                f"{self._broken} of {len(self._seen)} pairs left out is more than {MAX_EXCLUDED:.0%}: "
                "too many to trust the rest. Run the missing ones again."
            )
        if self._tainted:
            yield (
                f"{len(self._tainted)} of {len(self._seen)} answers were made {self._tainted[0]}: such a score "
                "promotes nothing."
            )
        if self._uncalibrated:
            yield (
                f"{self._uncalibrated} of {len(self._seen)} pairs were judged by {self.metric}, a judge that no "
                "reliability card admits: it may steer, and promotes nothing. Measure it on labelled answers and "
                "record its card: whet audit RUBRIC --model NAME --base-url URL --labels FILE --store STORE."
            )
        for rail in self._rails.values():
            yield rail.sentence()


def _counts(sides: Sequence[int]) -> str:
    return f"{sides[1]} of the candidate's answers and {sides[0]} of the baseline's"


def pairs(baseline: Side, candidate: Side) -> list[PairedResults]:
    """Pair two sides by task, in the baseline's order.

    Raises:
        GateError: a task is twice on one side, or on one side only; says how many.
    """
    old, new = _by_task(baseline, "baseline"), _by_task(candidate, "candidate")
    only_old, only_new = [task for task in old if task not in new], [task for task in new if task not in old]
    if only_old or only_new:
        raise GateError(
            f"not paired: {len(only_old)} tasks only on the baseline's side, {len(only_new)} only on the "
            f"candidate's, {len(old) - len(only_old)} on both; first {(only_old + only_new)[0]!r}. "
            "Run both on the same tasks."
        )
    return [PairedResults(result, new[task]) for task, result in old.items()]


def refuse_broken(side: Side, metric: str) -> None:
    """Refuse a metric whose evaluator breaks on every answer of a baseline, before a candidate is run.

    Raises:
        GateError: it does; says on how many.
    """
    results = list(_by_task(side, "baseline").values())
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


def _by_task(side: Side, name: str) -> dict[str, TaskResult]:
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
    tainted = next((how for run in runs if (how := _tainted(run))), "")
    return TaskResult(
        task=task_runs.task.id,
        group=task_runs.task.group,
        scores=scores,
        broke=frozenset(broke),
        tainted=tainted,
        uncalibrated=frozenset(uncalibrated),
    )


def _judged_scores(run: Trajectory) -> dict[str, float | None]:
    """The scores of a run; None for what the worker that ran it says itself, its success included."""
    scores = {name: None if score.by_worker else score.value for name, score in run.scores.items()}
    if run.by_worker:
        scores.setdefault("success", None)
    return scores


def _tainted(run: Trajectory) -> str:
    if run.meta.get("trusted_only"):
        return "without the sandbox"
    mismatch = run.meta.get("mismatch")
    if isinstance(mismatch, Mapping) and mismatch.get("versions"):
        return "under other Versions than they were served"
    return "beside their judge" if run.meta.get("co_resident") else ""
