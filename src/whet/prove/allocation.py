"""Is traffic split as it was drawn, and do two experiments disturb each other?  Both watched all the time.

A share of 10 % that fills with 8 % lost someone on the way, a crash that leaves no record or a cache in front, and who
is lost is seldom lost at random: an effect measured on what is left is none.  Likewise an effect that hangs on another
experiment is not the candidate's own.  Each test is an e-process, so it may be looked at after every unit, and its
false alarms over a whole experiment are bounded by the level that it is read at (Ville's inequality).
"""

from __future__ import annotations

import math

from ..stats import CEILING, BettingProcess

_TILTS = tuple((tilt, math.log(tilt)) for tilt in (0.2, 0.4, 0.6, 0.75, 0.87, 1.15, 1.33, 1.67, 2.5, 5.0))
"""Factors on the odds of the candidate's arm that are bet on, each with the same part of the wealth; and their logs."""


class AllocationCheck:
    """Evidence that units do not fall into the arms as they were assigned: a sequential test for sample-ratio mismatch.

    The likelihood ratio of a tilted share against the drawn one, mixed over tilts; as of Lindon and Malek (2022), with
    a grid in the place of their Dirichlet, for here each unit has a share of its own.
    """

    __slots__ = ("_logs", "candidate", "expected", "n")

    def __init__(self) -> None:
        self._logs = [0.0] * len(_TILTS)
        self.n = 0
        self.candidate = 0
        """Units that were in the candidate's arm."""
        self.expected = 0.0
        """Units that should have been."""

    def add(self, candidate: bool, share: float) -> None:
        """Enter a unit that was drawn into the candidate's arm with the chance `share`."""
        self.n += 1
        self.candidate += candidate
        self.expected += share
        if not 0 < share < 1:
            return
        self._logs = [
            log + (odds if candidate else 0.0) - math.log1p(share * (tilt - 1))
            for log, (tilt, odds) in zip(self._logs, _TILTS, strict=True)
        ]

    @property
    def value(self) -> float:
        """The e-value: 1/alpha calls it a mismatch."""
        top = max(self._logs)
        if top > math.log(CEILING):
            return CEILING
        return math.exp(top) * sum(math.exp(log - top) for log in self._logs) / len(self._logs)

    @property
    def sentence(self) -> str:
        """The counts, in words."""
        return f"{self.candidate:,} of {self.n:,} units were the candidate's, {self.expected:,.1f} were drawn"


class Interaction:
    """Evidence that the candidate's effect hangs on another experiment which the same unit is in.

    The product of both centred assignments times the centred outcome has the mean 0 unless the effects do not add up,
    whatever either effect is: both assignments are drawn, each for itself.  The bet is on either sign.
    """

    __slots__ = ("_down", "_up", "n")

    def __init__(self) -> None:
        self._up, self._down = BettingProcess(), BettingProcess()
        self.n = 0

    def add(self, centred: float, candidate: bool, share: float, other: bool, other_share: float) -> None:
        """Enter a unit of both: its outcome less the mean before it, and where it was drawn to in either."""
        product = centred * draw(candidate, share) * draw(other, other_share)
        # Scaled up: of four cells the product is at most 1/4 where shares are even, and bets on it would be tiny.
        least = max(share, 1 - share) * max(other_share, 1 - other_share)
        self.n += 1
        self._up.add(product / least)
        self._down.add(-product / least)

    @property
    def value(self) -> float:
        """The e-value."""
        return (self._up.value + self._down.value) / 2


def draw(candidate: bool, share: float) -> float:
    """The centred assignment: of mean 0, whatever the share, over its own draw."""
    return 1 - share if candidate else -share
