"""Metrics that must not get worse while another gets better, and which way each of them is worse.

The gate (`gate.py`) gathers the evidence on them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, replace

from ..errors import GateError
from ..judge.base import Reward, name_of

_LOW = frozenset({"hallucination", "hallucinations", "error", "errors", "error_rate", "toxicity", "refusal"})
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

    def slack(self, baseline: float, candidate: float) -> float:
        """How far one pair stays within the margin; its mean must be shown to be at least 0.

        A relative margin r is the linear statement candidate − (1 ± r)·baseline, so no ratio of
        means needs an interval.
        """
        sign = 1.0 if self.rises else -1.0
        if self.relative:
            return sign * (candidate - baseline) + self.margin * baseline
        return sign * (candidate - baseline) + self.margin


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
