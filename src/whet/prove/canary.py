"""The canary's decision: what units of real traffic came to under two arms → advance, hold or take back.

A unit is a session or a person, drawn into the candidate's arm with a known chance that is kept with it.  Units and
not requests are evidence, for requests of one unit are alike.  A unit enters once: with the first word on it, for what
may do harm should be found soon, and again when its time to be judged is over (`CanaryPlan.settle`), for what is
promoted.  Both orders are fixed by the record, so that the same record gives the same decision whoever computes it.

Every number here may be looked at after each unit.  The gate's e-process bets on y = (v − m)·(A − p): the outcome v
less the mean m of the units before it, times the draw A less its chance p.  Its mean is p(1 − p) times the effect, by
the draw alone: whatever the traffic does from hour to hour, and however the share is ramped (the design-based
confidence sequences of Ham, Bojinov, Lindon and Tingley 2022).  Nothing here reads a record or serves anything.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise

from ..errors import GateError
from ..stats import BettingProcess, Interval
from ..types import Verdict
from .allocation import AllocationCheck, Interaction, draw
from .power import HARMS, units_to_take_back

RAMP = 0.1
"""Level at which the harm of the plan must be excluded for the first step up; a larger share asks for more."""
_NARROW = 2.0
"""Where the interval is narrowest for its length, in the units of its variance: at some hundred units."""
_PRIOR = 2.0
"""Units that stand for a mean of one half before the first."""
_SLOW = 0.9
"""An amount that is clearly above this quantile of those of what is live, before it, counts as too much."""
_AMOUNTS = 500
"""Newest amounts of which that quantile is taken."""
_FEWEST = 20
"""Amounts before which there is no such quantile."""
_CLEARLY = 1.1
"""Times the quantile."""
_UNNOTICED = {"seconds": 0.1}
"""More than that again: within a tenth of a second an answer seems instantaneous (Miller 1968)."""


class CanaryAction(StrEnum):
    """What to do with a canary now."""

    ADVANCE = "advance"
    HOLD = "hold"
    TAKE_BACK = "take back"


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryPlan:
    """How a canary is ramped and when it ends.

    Raises:
        GateError: a number makes no sense.
    """

    shares: Sequence[float] = (0.05, 0.1, 0.25, 0.5)
    """Shares of the units that the candidate gets, one step after the other."""
    margin: float = 0.0
    """0 asks for a proof that it is better; d > 0 for one that it is not worse by more than d."""
    harm: float = 0.15
    """The loss that must be found within `units`, and be excluded before the share rises."""
    alpha: float = 0.05
    """Chance of making a candidate live that has no effect."""
    harm_alpha: float = 0.01
    """Chance of taking back for harm a candidate that does none."""
    mismatch_alpha: float = 0.001
    """Chance of calling a right split wrong, or two experiments that do not interact dependent."""
    settle: float = 3_600.0
    """Seconds from a unit's first run for which words on it count towards making the candidate live."""
    least: int = 10
    """Judged units of the candidate before the share may rise."""
    most: int = 20_000
    """Judged units after which a canary that has proven nothing is taken back."""

    def __post_init__(self) -> None:
        rising = [0.0, *self.shares, 1.0]
        if not self.shares or any(low >= high for low, high in pairwise(rising)):
            raise GateError(f"the shares are {[*self.shares]}; they must rise and lie between 0 and 1")
        if not 0 <= self.margin < 1 or not 0 < self.harm < 1:
            raise GateError(f"margin {self.margin} must be in [0, 1) and harm {self.harm} in (0, 1)")
        levels = {"alpha": self.alpha, "harm_alpha": self.harm_alpha, "mismatch_alpha": self.mismatch_alpha}
        for name, level in levels.items():
            if not 0 < level < 1:
                raise GateError(f"{name} {level} must lie between 0 and 1")
        if self.settle < 0 or self.least < 0 or self.most < 1:
            raise GateError("settle and least cannot be negative, and most is at least 1")

    def units(self, share: float | None = None, *, rate: float | None = None) -> int | None:
        """Judged units within which a loss of `harm` is taken back, but for one try in 10,000.

        Args:
            share: that the candidate gets; the plan's first if None.
            rate: success of what is live; the worst one if None.

        Returns:
            None if more than a million would be needed.
        """
        return units_to_take_back(self.harm, share or self.shares[0], alpha=self.harm_alpha, rate=rate)

    def sentence(self, *, unit: str = "session", judged: float = 1.0, runs: float = 1.0) -> str:
        """What the plan promises, before it starts.

        Args:
            unit: the noun of a unit.
            judged: share of the units that anything is known of.
            runs: requests of a unit.
        """
        units = self.units()
        points = f"{100 * self.harm:.0f} points"
        if units is None or not judged:
            return f"A loss of {points} would not be found: give it a larger share, or have more runs judged."
        requests = math.ceil(units / judged * runs)
        mine = math.ceil(requests * self.shares[0])
        return (
            f"A loss of {points} is taken back within {units:,} judged {unit}s, about {requests:,} requests of which "
            f"{mine:,} are the candidate's ({judged:.0%} judged, {runs:.1f} requests a {unit})."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryUnit:
    """One session or person in an experiment."""

    id: str
    candidate: bool
    """The arm that it was served from its first run on."""
    share: float
    """The chance of that being the candidate's, when it was drawn."""
    value: float | None = None
    """The outcome in [0, 1], None where nothing is known."""
    broken: float = 0.0
    """Share of its runs that ended in an error, of the machine or of the agent."""
    amounts: Mapping[str, float] = field(default_factory=dict)
    """Seconds and dollars a run, where known."""
    others: Mapping[str, tuple[bool, float]] = field(default_factory=dict)
    """Other experiment → arm and chance of this unit there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryDecision:
    """What to do, and the evidence for it."""

    action: CanaryAction
    share: float
    """From now on: 1 is live, 0 is taken back."""
    reason: str
    n: int
    """Judged units."""
    candidate: int
    """Of them the candidate's."""
    effect: float
    interval: Interval
    """95 %, valid at every look."""
    e_value: float
    """For the candidate; 1/alpha makes it live."""
    harm: float
    """E-value against it; 1/harm_alpha takes it back."""
    mismatch: float
    """E-value of the split; 1/mismatch_alpha stops it."""
    next_look: int | None
    """Judged units at which the next step is to be expected, if things go on as they are."""


class CanaryEvidence:
    """The evidence on one canary, fed unit by unit.

    Per unit, in the order of the record: `exposed` when its first run begins, `ran` when that has ended, `spoke` with
    the first word on it, `settled` when its time is over.
    """

    def __init__(self, plan: CanaryPlan) -> None:
        self.plan = plan
        self.exposures, self.judged = AllocationCheck(), AllocationCheck()
        self.interactions: dict[str, Interaction] = {}
        self._gain, self._safe = BettingProcess(), BettingProcess()
        self._harms = {name: BettingProcess() for name in HARMS}
        self._early, self._settled, self._broken = _Mean(), _Mean(), _Mean(0.0)
        self._amounts: dict[str, _Quantile] = {}
        self._sum = self._squares = self._weight = 0.0

    @property
    def n(self) -> int:
        """Units that are judged and settled."""
        return self._gain.n

    def exposed(self, candidate: bool, share: float) -> None:
        """A unit has begun."""
        self.exposures.add(candidate, share)

    def spoke(self, unit: CanaryUnit) -> None:
        """The first that is known of a unit's outcome."""
        if unit.value is not None:
            bet = self._early.centred(unit.value) * draw(unit.candidate, unit.share)
            self._harms["success"].add(-bet)

    def ran(self, unit: CanaryUnit) -> None:
        """A unit's first run has ended: whether it broke, and what it took."""
        assigned = draw(unit.candidate, unit.share)
        self._harms["errors"].add(self._broken.centred(unit.broken) * assigned)
        for name, amount in unit.amounts.items():
            usual = self._amounts.setdefault(name, _Quantile())
            if name in self._harms and (most := usual.value) is not None:
                exceeds = amount > _CLEARLY * most + _UNNOTICED.get(name, 0.0)
                self._harms[name].add((exceeds - (1 - _SLOW)) * assigned)
            if not unit.candidate:
                usual.add(amount)

    def settled(self, unit: CanaryUnit) -> None:
        """A unit's time is over; without a value it is no evidence on success."""
        if unit.value is None:
            return
        self.judged.add(unit.candidate, unit.share)
        centred = self._settled.centred(unit.value)
        weight = unit.share * (1 - unit.share)
        bet = centred * draw(unit.candidate, unit.share)
        # Cut at 1, which an e-process for the candidate may lose by and never gain.
        self._gain.add(min(1.0, bet + self.plan.margin * weight))
        self._safe.add(min(1.0, bet + self.plan.harm * weight))
        self._sum += bet
        self._squares += bet * bet
        self._weight += weight
        for other, (in_other, other_share) in unit.others.items():
            interaction = self.interactions.setdefault(other, Interaction())
            interaction.add(centred, unit.candidate, unit.share, in_other, other_share)

    @property
    def effect(self) -> float:
        """Difference in the outcome of a unit, candidate minus live; 0 of nothing."""
        return self._sum / self._weight if self._weight else 0.0

    def interval(self, level: float = 0.95) -> Interval:
        """Of the effect, at every look at once: the mixture of Robbins (1970), with the variance as estimated."""
        if not self._weight:
            return -1.0, 1.0
        spread = self._squares + _NARROW
        half = math.sqrt(spread * math.log(spread / (_NARROW * (1 - level) ** 2))) / self._weight
        return max(-1.0, self.effect - half), min(1.0, self.effect + half)

    @property
    def e_value(self) -> float:
        """Evidence for more than the margin allows."""
        return self._gain.value

    @property
    def safe(self) -> float:
        """Evidence that the plan's harm is not done."""
        return self._safe.value

    @property
    def harm(self) -> float:
        """Evidence that something got worse: the mean over what is watched, which is an e-process again."""
        return sum(process.value for process in self._harms.values()) / len(self._harms)

    @property
    def worst(self) -> str:
        """What speaks most against the candidate."""
        return max(self._harms, key=lambda name: self._harms[name].value)


def decide(evidence: CanaryEvidence, share: float) -> CanaryDecision:
    """What to do with a canary at this share.

    It is taken back for a wrong split, for harm, for an interaction, or when its plan is used up without a proof; it
    is live once the proof is made; its share rises as harm is excluded.  Else it goes on.
    """
    plan = evidence.plan
    refusal = _refusal(evidence)
    if refusal is not None:
        return _decision(evidence, CanaryAction.TAKE_BACK, 0.0, refusal)
    above = 1 / plan.alpha
    goal = f"not worse by more than {plan.margin:g}" if plan.margin else "better"
    if evidence.e_value >= above:
        if evidence.judged.value >= 1 / plan.mismatch_alpha:
            why = f"it would be live, but the arms are judged at different rates: {evidence.judged.sentence}"
            return _decision(evidence, CanaryAction.HOLD, share, why)
        why = f"proven {goal}: e-value {evidence.e_value:.3g}, it takes {above:.3g}"
        return _decision(evidence, CanaryAction.ADVANCE, 1.0, why)
    if evidence.n >= plan.most:
        why = f"{evidence.n:,} judged units, all that it was to have, did not prove it {goal}"
        return _decision(evidence, CanaryAction.TAKE_BACK, 0.0, why)
    higher = next((step for step in plan.shares if step > share + 1e-9), None)
    enough = evidence.judged.candidate >= plan.least
    if higher is not None and enough and evidence.safe >= _bar(plan, higher):
        why = (
            f"a loss of {100 * plan.harm:.0f} points is excluded (e-value {evidence.safe:.3g}, "
            f"{higher:.0%} of the traffic takes {_bar(plan, higher):.3g})"
        )
        return _decision(evidence, CanaryAction.ADVANCE, higher, why)
    why = f"neither harm nor gain is proven by {evidence.n:,} judged units"
    return _decision(evidence, CanaryAction.HOLD, share, why)


def verdict_on(decision: CanaryDecision, plan: CanaryPlan, *, candidate: str, baseline: str) -> Verdict:
    """The Verdict of a canary that went live: proven on people, unit by unit.

    Args:
        candidate, baseline: ids of the Bundles.
    """
    return Verdict(
        promote=decision.share == 1.0,
        effect=decision.effect,
        interval=decision.interval,
        e_value=decision.e_value,
        n=decision.n,
        against="what was live",
        margin=plan.margin,
        metric="success",
        reasons=(f"canary: {decision.reason}",),
        candidate=candidate,
        baseline=baseline,
    )


def _bar(plan: CanaryPlan, share: float) -> float:
    """E-value that a step up to this share takes: what may be hurt is larger, so it must be surer."""
    return share / plan.shares[0] / RAMP


def _refusal(evidence: CanaryEvidence) -> str | None:
    plan = evidence.plan
    if evidence.exposures.value >= 1 / plan.mismatch_alpha:
        return f"sample-ratio mismatch: {evidence.exposures.sentence}, so what is measured is not comparable"
    if evidence.harm >= 1 / plan.harm_alpha:
        return (
            f"it does harm, by its {evidence.worst}: e-value {evidence.harm:.3g} over what is watched, "
            f"{1 / plan.harm_alpha:.3g} takes it back"
        )
    for other, interaction in evidence.interactions.items():
        if interaction.value >= 1 / plan.mismatch_alpha:
            return f"its effect hangs on {other}, which the same units are in: run one after the other"
    return None


def _decision(evidence: CanaryEvidence, action: CanaryAction, share: float, why: str) -> CanaryDecision:
    low, high = evidence.interval()
    return CanaryDecision(
        action=action,
        share=share,
        reason=f"{why}; effect {evidence.effect:+.3f} [{low:+.3f}, {high:+.3f}]",
        n=evidence.n,
        candidate=evidence.judged.candidate,
        effect=evidence.effect,
        interval=(low, high),
        e_value=evidence.e_value,
        harm=evidence.harm,
        mismatch=evidence.exposures.value,
        next_look=_next_look(evidence),
    )


def _next_look(evidence: CanaryEvidence) -> int | None:
    """Judged units at which one of the evidences would arrive, by its mean growth so far."""
    n, plan = evidence.n, evidence.plan
    if not n:
        return None
    goals = [
        (evidence.e_value, 1 / plan.alpha),
        (evidence.harm, 1 / plan.harm_alpha),
        (evidence.safe, 1 / RAMP),
    ]
    return min(_arrivals(n, goals), default=None)


def _arrivals(n: int, goals: Sequence[tuple[float, float]]) -> Iterator[int]:
    for value, goal in goals:
        if 1 < value < goal:
            yield math.ceil(n * math.log(goal) / math.log(value))


class _Mean:
    """The mean of what came before: a value less it is centred, and which arm comes next does not move it."""

    __slots__ = ("_count", "_total")

    def __init__(self, start: float = 0.5) -> None:
        self._total, self._count = start * _PRIOR, _PRIOR

    def centred(self, value: float) -> float:
        if not 0 <= value <= 1:
            raise GateError(f"the outcome {value} of a unit lies outside [0, 1]: rescale it")
        centred = value - self._total / self._count
        self._total += value
        self._count += 1
        return centred


class _Quantile:
    """The amount that nine in ten of the newest ones do not exceed."""

    __slots__ = ("_newest", "_sorted")

    def __init__(self) -> None:
        self._newest: deque[float] = deque()
        self._sorted: list[float] = []

    def add(self, amount: float) -> None:
        if len(self._sorted) == _AMOUNTS:
            del self._sorted[bisect_left(self._sorted, self._newest.popleft())]
        insort(self._sorted, amount)
        self._newest.append(amount)

    @property
    def value(self) -> float | None:
        """None as long as there is nothing to compare with."""
        count = len(self._sorted)
        return None if count < _FEWEST else self._sorted[math.ceil(_SLOW * count) - 1]
