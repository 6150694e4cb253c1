"""When a slice failed: all the time, from some day on, or in a burst that is over."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

BLOCKS = 56
"""Equal parts of the time that was looked at: a quarter of a day in a fortnight."""
_CROWDED = 0.4
"""Share of the parts that as many runs would meet by chance, up to which they are a burst."""
_QUIET_BLOCKS = 2
"""A burst is over once so many whole parts have passed since."""
_LATE = 0.1
"""Share of a slice's runs that must have gone well before its first failure for it to have begun."""


@dataclass(frozen=True, slots=True)
class Timing:
    """How runs lie in time."""

    traffic_burst: bool
    """The slice's own runs came in a burst: nobody asked for it before or after."""
    failure_burst: bool
    """Its failures did."""
    over: bool
    """They have ended, by the newest run looked at."""
    began: float | None
    """Unix time in seconds of the first failure, where the slice went well before; None where it never did."""


class TrafficClock:
    """The time that was looked at, in parts, and how much traffic each has."""

    def __init__(self, started: Sequence[float]) -> None:
        ordered = sorted(started)
        self.first, self.last = (ordered[0], ordered[-1]) if ordered else (0.0, 0.0)
        width = (self.last - self.first) / BLOCKS
        self._edges = [self.first + width * number for number in range(1, BLOCKS)]
        self._width = width
        counts = [0] * BLOCKS
        for moment in started:
            counts[self._block(moment)] += 1
        self._weights = [count / len(started) for count in counts] if started else []

    def _block(self, moment: float) -> int:
        return bisect_right(self._edges, moment)

    def burst(self, moments: Sequence[float]) -> bool:
        """True if these lie in far fewer parts of the time than so many would by chance."""
        if len(moments) < 8 or self._width <= 0:
            return False
        met = len({self._block(moment) for moment in moments})
        by_chance = sum(1 - (1 - weight) ** len(moments) for weight in self._weights)
        return met <= _CROWDED * by_chance

    def timing(self, runs: Sequence[float], failures: Sequence[float]) -> Timing:
        """How a slice's runs and its failures lie in time.

        Args:
            runs, failures: Unix times in seconds.
        """
        if not failures or self._width <= 0:
            return Timing(False, False, False, None)
        first = min(failures)
        before = sum(moment < first for moment in runs)
        return Timing(
            traffic_burst=self.burst(runs),
            failure_burst=self.burst(failures),
            over=self.last - max(failures) > _QUIET_BLOCKS * self._width,
            began=first if before >= max(4, _LATE * len(runs)) else None,
        )
