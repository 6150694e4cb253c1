"""Metrics that must not get worse while another gets better: which way each is worse, and the evidence on it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, replace

from ..errors import GateError, InputError
from ..judge.base import Reward, name_of
from ..stats import ClusterMean

MAX_EXCLUDED = 0.1
"""Share of pairs that may be left out for an infrastructure error; a side that breaks more often chose its sample."""

_LOW = frozenset({"hallucination", "hallucinations", "error", "errors", "error_rate", "toxicity", "refusal"})
_WAYS = {
    "cost": (
        " Only a call to the endpoint that OPENAI_BASE_URL or ANTHROPIC_BASE_URL names is seen: have the agent state "
        "others, inside "
        "whet.step(kind='llm') as step, by step.usage = whet.types.Usage(prompt_tokens=..., output_tokens=...) and "
        "step.info = {'model': ...}, of a model that has a price (WHET_PRICES adds one)."
    )
}
"""Metric → what to do where no run has it."""
_EITHER = frozenset({"cost", "dollars", "latency", "seconds", "tokens", "steps"})


@dataclass(frozen=True, slots=True)
class Guardrail:
    """A metric in which the candidate must not be worse by more than `margin`.

    It holds when the whole 95 % interval, clustered by group, lies within the margin: "not shown to
    be worse" is not enough, it must be shown not to be worse.

    Raises:
        GateError: the margin is not above 0 (nothing finite proves "not worse by anything").
    """

    metric: str
    margin: float
    _: KW_ONLY
    higher_is_better: bool | None = None
    """None: as the metric's reward says (`@reward(higher_is_better=False)`), else by its name: `hallucination` and the
    like should be low, and of `cost` and the like it must be said, for a reward of that name may be a penalty."""
    relative: bool = False
    """The margin is a share of the baseline's mean: 0.1 allows 10 % more cost."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.margin) and self.margin > 0):
            raise GateError(f"guardrail {self.metric!r}: margin {self.margin} must be a number above 0")

    @property
    def rises(self) -> bool:
        """True if higher is better.

        Raises:
            GateError: neither this nor the metric's name says so.
        """
        if self.higher_is_better is None and self.metric in _EITHER:
            raise GateError(
                f"guardrail {self.metric!r}: as an amount it should be low, as a reward high; "
                "give higher_is_better=False or True"
            )
        return self.metric not in _LOW if self.higher_is_better is None else self.higher_is_better

    @property
    def text(self) -> str:
        """As the command line writes it, NAME:MARGIN; the way is the option's, `--not-lower` or `--not-higher`."""
        margin = f"{100 * self.margin:.12g}%" if self.relative else repr(self.margin)
        return f"{self.metric}:{margin}"

    def slack(self, baseline: float, candidate: float) -> float:
        """How far one pair stays within the margin; its mean must be shown to be at least 0.

        A relative margin r is the linear statement candidate − (1 ± r)·baseline, so no ratio of
        means needs an interval.
        """
        sign = 1.0 if self.rises else -1.0
        if self.relative:
            return sign * (candidate - baseline) + self.margin * baseline
        return sign * (candidate - baseline) + self.margin


def read(not_lower: Iterable[str], not_higher: Iterable[str]) -> list[Guardrail]:
    """Guardrails as the command line writes them, NAME:MARGIN; a margin of 10% is a share of the baseline's mean.

    Raises:
        InputError: one is written otherwise.
    """
    guardrails = []
    for specs, rises in ((not_lower, True), (not_higher, False)):
        for spec in specs:
            metric, _, margin = spec.rpartition(":")
            relative = margin.endswith("%")
            try:
                amount = float(margin.removesuffix("%")) / (100 if relative else 1)
            except ValueError:
                raise InputError(f"{spec!r} is not NAME:MARGIN, such as answered:0.02 or cost:10%") from None
            if not metric:
                raise InputError(f"{spec!r} names no score: write NAME:MARGIN, such as answered:0.02")
            try:
                guardrails.append(Guardrail(metric, amount, higher_is_better=rises, relative=relative))
            except GateError as error:
                raise InputError(f"{spec!r}: {error}") from error
    return guardrails


def directed(guardrails: Sequence[Guardrail], rewards: Iterable[Reward]) -> list[Guardrail]:
    """Guardrails with the directions that these rewards give to their own scores.

    Raises:
        GateError: one has none.
    """
    directions = {name_of(reward): getattr(reward, "higher_is_better", None) for reward in rewards}
    rails = [
        replace(rail, higher_is_better=directions.get(rail.metric)) if rail.higher_is_better is None else rail
        for rail in guardrails
    ]
    return [replace(rail, higher_is_better=rail.rises) for rail in rails]


class RailEvidence:
    """The evidence on one guardrail."""

    def __init__(self, guardrail: Guardrail) -> None:
        self.guardrail = guardrail
        self._slack, self._raw = ClusterMean(), ClusterMean()
        self._rows: list[tuple[float, float, str]] = []
        self._missing: list[tuple[float | None, float | None, str, bool]] = []
        """The same of pairs with a value missing, and whether the baseline's answer broke its evaluator."""
        self._rates = True

    def add(
        self, values: tuple[float | None, float | None], broke: tuple[bool, bool], *, task: str, group: str
    ) -> None:
        """Enter one pair.

        Args:
            values: of the baseline and the candidate; None is missing.
            broke: whether the answer broke the metric's evaluator, of either.

        Raises:
            GateError: a value is not finite.
        """
        old, new = values
        if any(value is not None and not math.isfinite(value) for value in values):
            raise GateError(f"{self.guardrail.metric!r} of task {task!r} is not a finite number")
        self._rates = self._rates and all(value is None or 0 <= value <= 1 for value in values)
        if old is not None and new is not None:
            self._rows.append((old, new, group))
            self._slack.add(self.guardrail.slack(old, new), group)
            self._raw.add(new - old, group)
        # Missing on both sides is a metric that does not apply to this task, unless an answer broke its evaluator.
        elif old is not None or new is not None or any(broke):
            self._missing.append((old, new, group, broke[0]))

    def _low(self) -> float:
        # One pair's worth of difference is added for rates: where none was seen yet, the
        # plain interval has no width, and ten equal pairs would prove anything.
        return self._filled().interval(extra=1.0 if self._rates else 0.0)[0]

    def _filled(self) -> ClusterMean:
        """The slack of all pairs, with the worst for the candidate where a value is missing.

        The worst of a rate is known; of an amount it is the worst of all that was seen.
        """
        if not self._missing:
            return self._slack
        seen = [value for old, new, _ in self._rows for value in (old, new)]
        low, high = (0.0, 1.0) if self._rates else (min(seen), max(seen))
        worst, best = (low, high) if self.guardrail.rises else (high, low)
        filled = ClusterMean()
        for old, new, group in self._rows:
            filled.add(self.guardrail.slack(old, new), group)
        for before, after, group, broke in self._missing:
            old = before if before is not None else worst if broke else best
            filled.add(self.guardrail.slack(old, worst if after is None else after), group)
        return filled

    def holds(self) -> bool:
        missing = len(self._missing)
        few = missing <= MAX_EXCLUDED * (self._slack.n + missing)  # of an amount nobody knows the worst
        return self._slack.n > 0 and few and self._low() >= 0

    def sentence(self) -> str:
        rail = self.guardrail
        if not self._slack.n:
            return f"Guardrail {rail.metric} fails: no pair has it.{_WAYS.get(rail.metric, '')}"
        allowed = f"{rail.margin:.3g}" + (" of the baseline's mean" if rail.relative else "")
        text = (
            f"Guardrail {rail.metric} {'holds' if self.holds() else 'fails'}: {self._raw.mean:+.3g} over "
            f"{pairs_in_words(self._slack.n)}; worse by at most {allowed} is allowed and must be shown."
        )
        missing = len(self._missing)
        return text + (
            f" On one side only, and counted at its worst: {pairs_in_words(missing)}." if missing else ""
        )


def pairs_in_words(number: int) -> str:
    """The number with its noun."""
    return "1 pair" if number == 1 else f"{number} pairs"
