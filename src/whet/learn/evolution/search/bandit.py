"""Shares a budget among operators and models by the gain of each per unit of its cost.

Thompson sampling on the rate of success, divided by the mean cost.  It differs from the textbook in
two things: old successes fade, because an operator that found the first gains is rarely the one that
finds the last, and cost is counted (evaluations, and a price per model call), never timed, so that
the same seed makes the same choices on any machine.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from ....errors import InputError
from ....types import Json

_FADE = 0.995
"""Weight of a past proposal after one more; 1 would never forget."""
_FLOOR = 0.3
"""Probability with which an arm is drawn evenly: none starves."""


@dataclass(slots=True)
class Arm:
    """One operator or model, and its record."""

    name: str
    tried: int = 0
    evaluated: int = 0
    """Those of them that were worth an evaluation."""
    improved: int = 0
    """Those of them that beat their parent."""
    records: int = 0
    """Those of them that beat everything before."""
    gain: float = 0.0
    """Sum of what the records added to the best score."""
    cost: float = 0.0
    """Evaluations, and model calls at their price."""
    wins: float = 0.0
    losses: float = 0.0


class Bandit:
    """Chooses an arm per proposal.

    Args:
        names: of the arms.

    Raises:
        InputError: no arm, or one name twice.
    """

    def __init__(self, names: Sequence[str]) -> None:
        if not names or len(set(names)) < len(names):
            raise InputError(f"a bandit needs arms with different names; given {list(names)}")
        self.arms = {name: Arm(name) for name in names}

    def choose(self, rng: random.Random, allowed: Sequence[str] | None = None) -> str:
        """The name of an arm, drawn with the generator given; one of `allowed` if that is given."""
        # In the order of the arms, whatever that of `allowed`: draws go by position.
        names = [name for name in self.arms if allowed is None or name in allowed]
        even = rng.choice(names)  # also where it is not used, so that the draws after it are the same
        if rng.random() < _FLOOR:
            return even
        drawn = {}
        for name in names:
            arm = self.arms[name]
            # One success in ten is assumed of an arm that nothing is known of.
            rate = rng.betavariate(0.5 + arm.wins, 4.5 + arm.losses)
            drawn[name] = rate / ((1.0 + arm.cost) / (1.0 + arm.tried))
        return max(names, key=lambda name: drawn[name])

    def learn(
        self, name: str, *, cost: float, evaluated: bool, improved: bool, gain: float | None = None
    ) -> None:
        """Enter one proposal; `gain` is its addition to the best score, None without one."""
        # All of them: an arm that is not drawn goes back to what is assumed of an unknown one.
        for arm in self.arms.values():
            arm.wins *= _FADE
            arm.losses *= _FADE
        arm = self.arms[name]
        arm.tried += 1
        arm.evaluated += evaluated
        arm.cost += cost
        arm.improved += improved
        # Small steps beat a parent easily; only records make a search better.
        arm.wins += 1.0 if gain is not None else 0.3 * improved
        arm.losses += 0.0 if gain is not None else 1.0 - 0.3 * improved
        if gain is not None:
            arm.records += 1
            arm.gain += gain

    def table(self) -> list[dict[str, Json]]:
        """One row per arm: its proposals and its gain."""
        columns = ("name", "tried", "evaluated", "improved", "records", "gain")
        return [
            {column: getattr(arm, column) for column in columns} | {"cost": round(arm.cost, 3)}
            for arm in self.arms.values()
        ]
