"""The gate: paired results of two Bundles on tasks that no optimizer saw → Verdict.

Each result is paired with its baseline on the same task.  A candidate is promoted
when the betting e-value of the paired differences reaches 1/alpha, their interval
in the declared regime (`regimes.py`) lies above the bar, and every guardrail holds.
`compare` looks once at everything; a `Comparison` is fed pair by pair, may be watched
all the time, and stops as soon as the case is made.  It never looks at a training
reward and runs nothing: the outcomes are the caller's.  The numbers behind the rules
are in `docs/decisions/020-the-gate.md`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from ..errors import GateError
from ..judge.base import Reward, name_of, withdrawn
from ..stats import BettingProcess, pairs_needed
from ..types import Sampling, Trajectory, Verdict
from .guardrails import MAX_EXCLUDED, Guardrail, pairs_in_words
from .power import after_passing, bar
from .regimes import SAMPLINGS, RegimeEvidence, both_regimes
from .results import TAINTS, PairedResults, Side, TaskResult, pairs

__all__ = ["Comparison", "PairedResults", "Side", "TaskResult", "compare", "pairs"]


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
    regime: Sampling = "new-group",
    watched: bool = False,
    unpaired: bool = False,
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
        regime: how the tasks came, which decides what they prove: `exchangeable`, or `new-group`. The Verdict has both.
        watched: this is one of several looks at a set of results that grows.
        unpaired: take tasks that only one side has, too, the missing result at the worst for the candidate.

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
        watched=watched,
        folds=folds,
        regime=regime,
        stops=False,
    )
    for pair in pairs(baseline, candidate, unpaired=unpaired):
        comparison.add(pair)
    return comparison.verdict()


def as_far_as_judges_reach(
    verdict: Verdict, rewards: Sequence[Reward], runs: Sequence[Trajectory]
) -> Verdict:
    """The Verdict, which promotes nothing by a judge that takes its scores of these runs back."""
    decide = {verdict.metric, *verdict.guardrails}
    for reward in rewards:
        why = withdrawn(reward, runs) if name_of(reward) in decide else ""
        if why:
            blocks = {**verdict.blocks, "judge outside its labels": f"{name_of(reward)} {why}"}
            reasons = (*verdict.reasons, f"{name_of(reward)} takes its scores back: {why}")
            verdict = replace(verdict, promote=False, sound=False, blocks=blocks, reasons=reasons)
    return verdict


class Comparison:
    """A comparison under way: pairs come one at a time, and the answer may be read after each.

    Feed the tasks in an order that has nothing to do with their results, best a shuffle by seed: then
    each pair is a fresh draw, which the e-process needs.  Pairs of one group are *not* independent
    draws, so where groups are shared the interval clustered by group must agree, at the stricter
    `regimes.WATCHED_LEVEL`, unless the tasks are declared exchangeable.  `add` returns True when the candidate is
    promoted: stop there.  Going on later with the rest is the same comparison: evidence does not depend on the order.

    Where each pair was judged out of fold, the candidate of one fold was chosen on the pairs of the others, and what
    is luck in one helped to choose the next. The sum over folds then varies more than independent pairs would, so
    the interval is wider by √((2K−1)/K) for K folds: a correlation of 1/K between folds, the correction of Nadeau
    and Bengio (2003) for tests that share training rows. It is an assumption, measured and not proven
    (docs/decisions/022-out-of-fold.md).

    Args:
        watched: False only if nobody acts on it before the last pair (`compare`).
        stops: False if all pairs are entered whatever the first ones prove.
        (others): as in `compare`.

    Raises:
        GateError: margin, alpha or regime make no sense.
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
        regime: Sampling = "new-group",
        stops: bool = True,
    ) -> None:
        if not 0 <= margin < 1:
            raise GateError(f"margin {margin} must be at least 0 and under 1: it is in units of {metric!r}")
        if not 0 < alpha < 1:
            raise GateError(f"alpha {alpha} must lie between 0 and 1")
        names = [guardrail.metric for guardrail in guardrails]
        if len(set(names)) != len(names):
            raise GateError(f"two guardrails on one metric: {sorted(names)}")
        self.metric, self.margin, self.alpha, self.against = metric, margin, alpha, against
        self.folds, self.regime = folds, regime
        self._watched, self._stops = watched, watched and stops
        self.promoted = False
        """Latched: what was proven at one moment stays proven."""
        self._trained = frozenset(trained_groups)
        self._seen: set[str] = set()
        self._process = BettingProcess(-margin)
        self._differences: list[float] = []
        self._regimes = {
            sampling: RegimeEvidence(sampling, guardrails, watched=watched, folds=folds)
            for sampling in dict.fromkeys((*SAMPLINGS, regime))
        }
        self._deciding = self._regimes[regime]
        self._broken = self._scored = 0
        self._unscored, self._broke = [0, 0], [0, 0]
        """Answers of the baseline and of the candidate without a score, and such that broke their evaluator."""
        self._tainted: Counter[str] = Counter()
        self._evaluators: set[str] = set()
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
            self._tainted[pair.candidate.tainted] += 1
        self._evaluators |= {side.evaluators.get(self.metric, "") for side in (pair.candidate, pair.baseline)}
        self._uncalibrated += self.metric in {*pair.candidate.uncalibrated, *pair.baseline.uncalibrated}
        if pair.broken:
            self._broken += 1
            return False
        # Never left out: a candidate that goes without a score where it is wrong would choose its sample.
        difference = pair.difference(self.metric)
        self._scored += all([self._counted(pair.baseline, 0), self._counted(pair.candidate, 1)])
        self._process.add(difference)
        for evidence in self._regimes.values():
            evidence.add(pair, difference)
        self._differences.append(difference)
        self.promoted = self._stops and self._proven(self._deciding)
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
        deciding = self._deciding
        proven = self.promoted or self._proven(deciding)
        needed = {sampling: self._needed(evidence) for sampling, evidence in self._regimes.items()}
        regimes = {
            sampling: evidence.regime(
                promote=proven if evidence is deciding else self._proven(evidence),
                needed_pairs=needed[sampling],
            )
            for sampling, evidence in self._regimes.items()
        }
        reasons = (*self._reasons(proven, needed[self.regime]), both_regimes(regimes, self.regime))
        return Verdict(
            promote=proven,
            effect=deciding.effect.mean,
            interval=deciding.interval(),
            e_value=self.e_value,
            n=self.n,
            against=self.against,
            margin=self.margin,
            needed=needed[self.regime],
            guardrails={name: rail.holds() for name, rail in deciding.rails.items()},
            reasons=reasons,
            sound=self._sound,
            metric=self.metric,
            evaluator=", ".join(sorted(self._evaluators - {""})),
            blocks=self._blocks(),
            after_passing=self._after_passing() if proven else None,
            regime=self.regime,
            regimes=regimes,
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

    def _counted(self, result: TaskResult, side: int) -> bool:
        """True if the baseline (0) or the candidate (1) has the metric; else why it has none is counted."""
        if result.value(self.metric) is not None:
            return True
        (self._broke if self.metric in result.broke else self._unscored)[side] += 1
        return False

    def _without(self, name: str, side: int) -> str:
        return f"{name} lacks {self._unscored[side]} and broke the evaluator {self._broke[side]} times"

    def _after_passing(self) -> float | None:
        """The deciding effect without the luck of having passed; None if watched, or if there is a margin."""
        if self.margin or self._watched:
            return None
        evidence, differences = self._deciding, self._differences
        error = evidence.error()
        squares = sum(difference * difference for difference in differences) / self.n
        least = max(bar(self.n, squares, alpha=self.alpha), evidence.effect.mean - evidence.low())
        return after_passing(evidence.effect.mean, error, least)

    @property
    def _sound(self) -> bool:
        return not self._tainted and not self._uncalibrated and self._broken <= MAX_EXCLUDED * len(self._seen)

    def _proven(self, evidence: RegimeEvidence) -> bool:
        # The cheap tests first: this runs after every pair.
        return (
            self.e_value >= 1 / self.alpha
            and self._scored > 0
            and self._sound
            # Both, where groups are shared: with 8 groups whose effects differ by 20 points betting on pairs
            # alone promoted 23 % of useless candidates (docs/decisions/020-the-gate.md).
            and evidence.holds(self.margin)
        )

    def _needed(self, evidence: RegimeEvidence) -> int | None:
        """Pairs at which both the e-value and the interval would pass, if effect and spread stay.

        The interval's part assumes that more pairs bring more groups in proportion.
        """
        by_betting = pairs_needed(self._differences, null=-self.margin, alpha=self.alpha)
        times = evidence.times(self.margin)
        return None if by_betting is None or times is None else max(by_betting, math.ceil(self.n * times))

    def _reasons(self, proven: bool, needed: int | None) -> Iterator[str]:
        deciding, bar = self._deciding, 0.0 - self.margin  # -self.margin would be written -0.000
        effect = deciding.effect
        goal = f"better than {self.against}"
        if self.margin:
            goal = f"not worse than {self.against} by more than {self.margin:g}"
        where = ""
        if deciding.grouped:
            where = f" in {effect.clusters} groups ({effect.mean:+.3f} for a group drawn anew)"
        enough = self.e_value >= 1 / self.alpha
        yield (
            f"{self.metric} {effect.plain:+.3f} over {pairs_in_words(self.n)}{where}; "
            f"e-value {self.e_value:.3g}, {'enough' if enough else 'not enough'} "
            f"(it takes {1 / self.alpha:.3g}) to call it {goal}."
        )
        if deciding.low() <= bar:
            wider = (
                f", widened for {self.folds} folds that learned from each other," if self.folds > 1 else ""
            )
            by = "of exchangeable tasks" if self.regime == "exchangeable" else "clustered by group"
            yield (
                f"The {deciding.level:.0%} interval {by}{wider} reaches down to {deciding.low():+.3f}, "
                f"not above {bar:+.3f}."
            )
        corrected = self._after_passing() if proven else None
        if corrected is not None and deciding.effect.mean - corrected >= 0.001:
            yield (
                f"What passes looks larger than it is: without the luck of having passed the effect is "
                f"{corrected:+.3f}, not {deciding.effect.mean:+.3f}."
            )
        if self.promoted:
            yield (
                "It was stopped as soon as it was proven, which luck hastens: on further tasks the effect is smaller."
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
        yield from self._blocks().values()
        for rail in self._deciding.rails.values():
            yield rail.sentence()

    def _blocks(self) -> dict[str, str]:
        """What forbids to promote whatever the numbers say, each with what would clear it."""
        blocks = {
            TAINTS[how][
                0
            ]: f"{count} of {len(self._seen)} answers were made {how}: such a score promotes nothing. "
            f"{TAINTS[how][1]}"
            for how, count in self._tainted.items()
        }
        if self._uncalibrated:
            blocks["unproven judge"] = (
                f"{self._uncalibrated} of {len(self._seen)} pairs were judged by {self.metric}, a judge that no "
                "reliability card admits: it may steer, and promotes nothing. Measure it on labelled answers and "
                "record its card: whet audit RUBRIC --model NAME --base-url URL --labels FILE --store STORE."
            )
        return blocks


def _counts(sides: Sequence[int]) -> str:
    return f"{sides[1]} of the candidate's answers and {sides[0]} of the baseline's"
