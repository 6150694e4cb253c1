"""Whether a repair that is live still does what its trial proved, by what people say of its own part of the traffic."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..stats import wilson

_ENOUGH = 12
"""Thumbs by which it is judged."""
_LEVEL = 0.998
"""Of an interval that alone shows a relapse: many repairs are looked at, and each many times."""


@dataclass(frozen=True, slots=True)
class LiveRepair:
    """A repair since it went live.

    Its issue may be several faults, of which it repaired one: that others go on failing does not speak against it.
    """

    before: float
    """Share of the thumbs of its part that were down without it, on its trial."""
    effect: float
    """By which its trial proved it to lower that."""
    liked: Sequence[bool]
    """The thumbs of its part since, the oldest first."""

    @property
    def lasts(self) -> str:
        """What shows that it still does what was proven, though its issue is open again; "" if nothing does."""
        share = self.liked.count(False) / max(1, len(self.liked))
        if len(self.liked) < _ENOUGH or share >= self._half_way or self._fell(0.95):
            return ""
        return f"{share:.0%} of {len(self.liked)} are disliked in its own part of the traffic, {self.before:.0%} before"

    @property
    def relapse(self) -> str:
        """What shows by itself that half of its effect is gone; "" if nothing does."""
        window = self._fell(_LEVEL)
        if not window:
            return ""
        return (
            f"{window.count(False) / len(window):.0%} of the newest {len(window)} are disliked in its own part of the "
            f"traffic, {self.before:.0%} before it"
        )

    def _fell(self, level: float) -> Sequence[bool]:
        """A window of the newest thumbs of which more are down than half of its effect allows; empty of none."""
        for window in self._windows():
            if wilson(window.count(False), len(window), level)[0] >= self._half_way:
                return window
        return ()

    @property
    def _half_way(self) -> float:
        # An effect that was proven early may be larger than what there was to gain; no share is held against nothing.
        return self.before - min(self.effect, self.before) / 2

    def _windows(self) -> Iterator[Sequence[bool]]:
        """All, the newer half, the newest quarter and so on: what comes back late is lost among the good ones."""
        window = self.liked
        while len(window) >= _ENOUGH:
            yield window
            window = window[len(window) // 2 :]
