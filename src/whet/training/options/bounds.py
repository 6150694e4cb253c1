"""Bounds of numbers among the options; a number outside is refused when the options are made."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from ...errors import InputError


class Bound(NamedTuple):
    """A range in words, and whether a number lies in it; NaN lies in none."""

    said: str
    holds: Callable[[float], bool]

    def __call__(self, options: Any, *names: str) -> None:
        """Look at these options; one that is None is switched off.

        Raises:
            InputError: one lies outside.
        """
        for name in names:
            value = getattr(options, name)
            if value is not None and not self.holds(value):
                raise InputError(f"{name} must be {self.said}; got {value}")


one_or_more = Bound("1 or more", lambda value: value >= 1)
two_or_more = Bound("2 or more", lambda value: value >= 2)
not_negative = Bound("0 or more", lambda value: 0 <= value < math.inf)
positive = Bound("above 0", lambda value: 0 < value < math.inf)
share = Bound("from 0 to 1", lambda value: 0 <= value <= 1)
below_one = Bound("at least 0 and below 1", lambda value: 0 <= value < 1)
