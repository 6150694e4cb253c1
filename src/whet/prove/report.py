"""What an agent's runs came to and what they cost: counts, rates with intervals, and dollars by a price table.

It describes a record and proves nothing: runs of two Versions are seldom of the same tasks, and `relative_errors`
says what was observed and not which Version is better.  That is for the gate.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist

from ..models.spending import Price
from ..record.costs import dollars_of
from ..stats import Interval, wilson
from ..types import LLM, TOOL, Outcome, Trajectory

THUMB = "thumb"
ERRORS, ERROR_LENGTH, KINDS = 3, 120, 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreMean:
    """A score over the runs that have it."""

    mean: float
    n: int
    missing: int
    """Runs that the evaluator looked at and gave no value."""
    version: str = ""
    """Of what judged."""
    broke: int = 0
    """Runs on which the evaluator broke (`Score.broke`): they are in the mean, as 0."""
    broken_by: str = ""
    """What it raised on the first of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Runs of an agent, added up.

    Tokens, calls and dollars are of all runs, failed ones included: what a success costs includes what was spent in
    vain.
    """

    runs: int
    outcomes: dict[str, int]
    successes: int
    judged: int
    """Runs that the agent is responsible for, and that something has judged."""
    interval: Interval
    """Wilson's 95 % interval of the success rate."""
    thumbs_up: int
    thumbs_down: int
    """People's thumbs, not runs."""
    scores: dict[str, ScoreMean]
    """By name, of the version of the evaluator that judged last."""
    earlier: dict[str, list[ScoreMean]]
    """Name → what other versions of its evaluator gave: no number to put beside the present one."""
    faults: dict[str, int]
    """Failed runs by whose failure it was."""
    errors: dict[str, int]
    """The most frequent errors that ended a run, and how many they ended; `ERRORS` of them at most."""
    blocked: int
    """Runs that a guardrail ended."""
    steps: float
    """A run, in the mean."""
    model_calls: int
    tool_calls: int
    prompt_tokens: int
    output_tokens: int
    seconds: tuple[float, float] | None
    """The median and the 95th percentile of a run; None where no run states its time."""
    dollars: float | None
    """None where a model has no price, or a call does not say how many tokens it took."""
    unpriced: tuple[str, ...] = ()
    """Models without a price that these runs called."""
    uncounted: int = 0
    """Model calls that were answered and do not say how many tokens they took: they are in no sum."""

    @property
    def rate(self) -> float | None:
        """Share of successes among the judged runs; None of none."""
        return self.successes / self.judged if self.judged else None

    @property
    def per_thousand(self) -> float | None:
        """Dollars of 1,000 runs; None where a model has no price, or there is no run."""
        return None if self.dollars is None or not self.runs else 1000 * self.dollars / self.runs

    def per_success(self, amount: float) -> float | None:
        """An amount of all runs, for each success; None without one."""
        return amount / self.successes if self.successes else None


@dataclass(slots=True)
class _Values:
    n: int = 0
    total: float = 0.0
    missing: int = 0
    broke: int = 0
    broken_by: str = ""

    def add(self, value: float | None) -> None:
        if value is None or not math.isfinite(value):
            self.missing += 1
        else:
            self.n, self.total = self.n + 1, self.total + value

    def mean(self, version: str) -> ScoreMean:
        mean = self.total / self.n if self.n else math.nan
        return ScoreMean(
            mean=mean,
            n=self.n,
            missing=self.missing,
            version=version,
            broke=self.broke,
            broken_by=self.broken_by,
        )


@dataclass(slots=True)
class _Adding:
    runs: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    thumbs: Counter[bool] = field(default_factory=Counter)
    values: dict[str, dict[str, _Values]] = field(default_factory=dict)
    """Name of a score → version of its evaluator → what it gave, the one that judged last at the end."""
    faults: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    steps: int = 0
    calls: Counter[str] = field(default_factory=Counter)
    prompt_tokens: int = 0
    output_tokens: int = 0
    seconds: list[float] = field(default_factory=list)
    dollars: float = 0.0
    unpriced: set[str] = field(default_factory=set)
    uncounted: int = 0

    def add(self, run: Trajectory, prices: Mapping[str, Price], score: str | None) -> None:
        self.runs += 1
        self.outcomes[_outcome(run, score).value] += 1
        for word in run.feedback:
            if word.kind == THUMB and word.value:
                self.thumbs[word.value > 0] += 1
        for name, scored in run.scores.items():
            # An answer that broke its evaluator is worth 0, as at the gate.
            versions = self.values.setdefault(name, {})
            values = versions.pop(scored.evaluator, None) or _Values()
            values.add(0.0 if scored.broke else scored.value)
            if scored.broke:
                values.broke += 1
                values.broken_by = values.broken_by or scored.reason
            versions[scored.evaluator] = values
        if run.error is not None:
            self.faults[run.error.fault.value] += 1
            said = " ".join(f"{run.error.type}: {run.error.message}".split())[:ERROR_LENGTH]
            # Errors that name an id or a time are all different, and would fill memory with a record's length.
            if said in self.errors or len(self.errors) < KINDS:
                self.errors[said] += 1
        self.steps += len(run.steps)
        self.calls.update(step.kind for step in run.steps)
        usage = run.usage
        self.prompt_tokens += usage.prompt_tokens
        self.output_tokens += usage.output_tokens
        if run.seconds is not None:
            self.seconds.append(run.seconds)
        # Where the run itself says what its calls took together, nothing is missing.
        if not any(step.usage is not None and step.kind != LLM for step in run.steps):
            self.uncounted += sum(
                step.kind == LLM and step.usage is None and step.error is None for step in run.steps
            )
        dollars, unpriced = dollars_of(run, prices)
        self.dollars += dollars
        self.unpriced |= unpriced

    def report(self) -> Report:
        judged = sum(count for outcome, count in self.outcomes.items() if Outcome(outcome).counts)
        successes = self.outcomes[Outcome.SUCCESS.value]
        scores: dict[str, ScoreMean] = {}
        earlier: dict[str, list[ScoreMean]] = {}
        for name, versions in sorted(self.values.items()):
            *before, scores[name] = [values.mean(version) for version, values in versions.items()]
            if before:
                earlier[name] = before
        return Report(
            runs=self.runs,
            outcomes=dict(self.outcomes.most_common()),
            successes=successes,
            judged=judged,
            interval=wilson(successes, judged),
            thumbs_up=self.thumbs[True],
            thumbs_down=self.thumbs[False],
            scores=scores,
            earlier=earlier,
            faults=dict(self.faults.most_common()),
            errors=dict(self.errors.most_common(ERRORS)),
            blocked=self.outcomes[Outcome.BLOCKED.value],
            steps=self.steps / self.runs if self.runs else 0.0,
            model_calls=self.calls[LLM],
            tool_calls=self.calls[TOOL],
            prompt_tokens=self.prompt_tokens,
            output_tokens=self.output_tokens,
            seconds=_percentiles(self.seconds),
            dollars=None if self.unpriced or self.uncounted else self.dollars,
            unpriced=tuple(sorted(self.unpriced)),
            uncounted=self.uncounted,
        )


def report(
    trajectories: Iterable[Trajectory],
    prices: Mapping[str, Price] | None = None,
    *,
    score: str | None = None,
) -> Report:
    """Add up runs, reading each once.

    Args:
        score: name of a Score in [0, 1]: runs from a half on are successes. Their outcomes say so if None.
        prices: model → its price; a dated name (`gpt-4o-2024-08-06`) has that of the name it begins with.
    """
    adding = _Adding()
    for run in trajectories:
        adding.add(run, prices or {}, score)
    return adding.report()


def _outcome(run: Trajectory, score: str | None) -> Outcome:
    if score is None or run.outcome is Outcome.INFRASTRUCTURE_ERROR:
        return run.outcome
    given = run.scores.get(score)
    if given is not None and given.broke:
        return Outcome.FAILURE
    if given is None or given.value is None or math.isnan(given.value):
        return Outcome.UNKNOWN
    return Outcome.SUCCESS if given.value >= 0.5 else Outcome.FAILURE


def relative_errors(ours: Report, theirs: Report) -> tuple[float, Interval] | None:
    """The change of the error rate against another's, as a share of it: -0.25 is a quarter fewer errors.

    The interval is the 95 % one of a ratio of two independent rates (Katz et al. 1978, "Obtaining confidence intervals
    for the risk ratio in cohort studies"), by its logarithm.

    Returns:
        None where either side was never judged, or made no error.
    """
    wrong, other = ours.judged - ours.successes, theirs.judged - theirs.successes
    if not wrong or not other:
        return None
    ratio = math.log(wrong / ours.judged) - math.log(other / theirs.judged)
    spread = math.sqrt(1 / wrong - 1 / ours.judged + 1 / other - 1 / theirs.judged)
    half = NormalDist().inv_cdf(0.975) * spread
    return math.expm1(ratio), (math.expm1(ratio - half), math.expm1(ratio + half))


def _percentiles(seconds: Sequence[float]) -> tuple[float, float] | None:
    if not seconds:
        return None
    ordered = sorted(seconds)
    # The nearest rank: a value that was observed, also of three runs.
    middle, late = (ordered[math.ceil(share * len(ordered)) - 1] for share in (0.5, 0.95))
    return middle, late
