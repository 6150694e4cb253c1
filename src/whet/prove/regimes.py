"""What the same pairs prove in either regime: tasks are exchangeable, or a group is drawn anew.

Which of the two holds is a matter of what is being asked, and no test can tell it from the results: *does it work
better on tasks such as these* (exchangeable: 1,700 tasks are 1,700 pieces of evidence), or *will it work better for the
next mailbox* (new-group: twelve mailboxes are twelve pieces, however many tasks are in each).  So the user declares it,
and both are printed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import get_args

from ..errors import GateError
from ..stats import ClusterMean, Interval, t_quantile
from ..types import Regime, Sampling
from .guardrails import Guardrail, RailEvidence, pairs_in_words
from .results import PairedResults

SAMPLINGS: tuple[Sampling, ...] = get_args(Sampling)
# 0.98 still let up to 6 % through, 0.99 between 1.2 and 3.7 % in 21 settings
# (docs/decisions/020-the-gate.md).
WATCHED_LEVEL = 0.99
"""Level of the clustered interval where groups are shared and every pair is looked at: at 0.95, looking
again and again promoted up to 9 % of useless candidates whose effect differs between groups."""


class RegimeEvidence:
    """The pairs so far as one regime sees them.

    Args:
        sampling: exchangeable takes each pair as a cluster of its own, here and in the guardrails.
        watched: somebody may act on it before the last pair.
        folds: as in `Comparison`.

    Raises:
        GateError: there is no such regime.
    """

    def __init__(
        self, sampling: Sampling, guardrails: Sequence[Guardrail], *, watched: bool, folds: int
    ) -> None:
        if sampling not in SAMPLINGS:
            raise GateError(f"regime {sampling!r} is none of {', '.join(SAMPLINGS)}")
        self.sampling = sampling
        self.effect = ClusterMean()
        self.rails = {guardrail.metric: RailEvidence(guardrail) for guardrail in guardrails}
        self._watched, self._folds = watched, folds

    def add(self, pair: PairedResults, difference: float) -> None:
        """Enter one pair and its difference in the metric that decides."""
        group = pair.group if self.sampling == "new-group" else ""
        self.effect.add(difference, group)
        for name, rail in self.rails.items():
            old, new = pair.baseline, pair.candidate
            rail.add(
                (old.value(name), new.value(name)),
                (name in old.broke, name in new.broke),
                task=pair.task,
                group=group,
            )

    @property
    def grouped(self) -> bool:
        """True if pairs share a cluster here."""
        return self.effect.clusters < self.effect.n

    @property
    def level(self) -> float:
        """Of the interval that decides."""
        return WATCHED_LEVEL if self._watched and self.grouped else 0.95

    def interval(self, level: float = 0.95) -> Interval:
        """The clustered interval, wider where the pairs are out of fold."""
        low, high = self.effect.interval(level=level, bounds=(-1.0, 1.0))
        mean, wider = self.effect.mean, math.sqrt((2 * self._folds - 1) / self._folds)
        return max(-1.0, mean - wider * (mean - low)), min(1.0, mean + wider * (high - mean))

    def error(self) -> float:
        """Standard error of the mean, by half the 95 % interval."""
        quantile = t_quantile(0.975, max(1, self.effect.clusters - 1))
        return (self.effect.mean - self.interval()[0]) / quantile

    def low(self) -> float:
        """Lower end of the interval that decides."""
        return self.interval(self.level)[0]

    def holds(self, margin: float) -> bool:
        """True if the interval that decides lies above the bar, and every guardrail holds."""
        return self.low() > -margin and all(rail.holds() for rail in self.rails.values())

    def times(self, margin: float) -> float | None:
        """How many times as many units would narrow the interval enough, if effect and spread stay; None for never.

        Its width falls with the square root of the units.
        """
        half, distance = self.effect.mean - self.low(), self.effect.mean + margin
        if self.effect.clusters < 2 or distance <= 0 or math.isinf(half):
            return None
        return (half / distance) ** 2

    def regime(self, *, promote: bool, needed_pairs: int | None) -> Regime:
        """What it says now."""
        effect = self.effect
        return Regime(
            promote=promote,
            effect=effect.mean,
            # Always the 95 % one; the one that decides is at `level`.
            interval=self.interval(),
            units=effect.clusters,
            needed=None if needed_pairs is None else math.ceil(needed_pairs * effect.clusters / effect.n),
        )


def both_regimes(regimes: Mapping[Sampling, Regime], decides: Sampling) -> str:
    """A sentence on what either regime says, the deciding one first; of tasks without groups, that they are one."""
    if len({regime.units for regime in regimes.values()}) == 1:
        return "No two tasks share a group, so both regimes are one: exchangeable, and new-group."
    parts = []
    for sampling in sorted(regimes, key=lambda name: name != decides):
        regime = regimes[sampling]
        low, high = regime.interval
        words = f"{regime.units} groups" if sampling == "new-group" else pairs_in_words(regime.units)
        more = regime.needed is not None and regime.needed > regime.units
        parts.append(
            f"{sampling}{' decides' * (sampling == decides)}: {'proven' if regime.promote else 'not proven'}, "
            f"{regime.effect:+.3f} [{low:+.3f}, {high:+.3f}] over {words}"
            + (f", about {regime.needed} needed" if more else "")
        )
    return f"Regimes: {'; '.join(parts)}."
