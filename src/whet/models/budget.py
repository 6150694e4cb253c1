"""Spending limits, checked before the spend.

A Meter holds a Budget and what has been spent.  `reserve` is called before a
model call, a rollout or a step; it raises BudgetExceeded and spends nothing
when the limit would be passed.  `settle` corrects an estimate afterwards.
Meters nest: a child's spend counts against its parent too.
"""

from __future__ import annotations

import threading
import time
from dataclasses import fields

from ..errors import BudgetExceeded
from ..types import Budget

# Seconds are the clock's and are never spent; steps are the limit of one rollout (`record/env.py`).
_KINDS = tuple(field.name for field in fields(Budget) if field.name not in ("seconds", "steps"))


class Meter:
    """Counts spending against a Budget; safe to use from several threads."""

    def __init__(self, budget: Budget | None = None, *, parent: Meter | None = None) -> None:
        self.budget = budget or Budget()
        self.spent: dict[str, float] = dict.fromkeys(_KINDS, 0)
        self._parent = parent
        self._started = time.monotonic()
        self._lock = threading.Lock()

    @property
    def seconds(self) -> float:
        """Wall-clock seconds since the meter was made."""
        return time.monotonic() - self._started

    def left(self, kind: str) -> float | None:
        """The rest of the budget of `kind`, None if unlimited."""
        limit = getattr(self.budget, kind)
        spent = self.seconds if kind == "seconds" else self.spent[kind]
        own = None if limit is None else max(0.0, limit - spent)
        above = self._parent.left(kind) if self._parent else None
        limits = [value for value in (own, above) if value is not None]
        return min(limits) if limits else None

    def reserve(self, **amounts: float) -> None:
        """Spend, or raise BudgetExceeded and spend nothing.

        Args:
            amounts: kind (`rollouts`, `calls`, `tokens`, `dollars`) → how much.
        """
        with self._lock:
            if self.budget.seconds is not None and self.seconds >= self.budget.seconds:
                raise BudgetExceeded(f"wall-clock budget of {self.budget.seconds:g} s is used up")
            # All kinds are looked at before any is spent: a refusal of the second may not cost the first.
            for kind, amount in amounts.items():
                limit = getattr(self.budget, kind)
                if limit is not None and self.spent[kind] + amount > limit:
                    raise BudgetExceeded(
                        f"{kind}: {self.spent[kind]:g} of {limit:g} spent, {amount:g} more asked for. "
                        f"Raise Budget({kind}=...) to go on."
                    )
            if self._parent:
                self._parent.reserve(
                    **amounts
                )  # before the own spend: where the parent refuses nothing is spent
            for kind, amount in amounts.items():
                self.spent[kind] += amount

    def settle(self, **corrections: float) -> None:
        """Correct an earlier reservation by these differences, which may be negative."""
        # Nothing is refused here: the money is spent, so a budget may be passed by the error of an estimate.
        with self._lock:
            for kind, amount in corrections.items():
                self.spent[kind] += amount
        if self._parent:
            self._parent.settle(**corrections)
