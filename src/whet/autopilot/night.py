"""What one night may spend, what it has spent, and the switch that ends it; all of it in the record.

Every amount is written before it is spent, so a process that is killed in between has at most counted a call that was
never made.  The night's chance of any false promotion is spent like money: each gate takes its share of `alpha` before
it looks at anything, and by the union bound all of them together promote nothing that has no effect with more than
that, whatever depends on what.  Where the shares are used up nothing more is proven tonight.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import msgspec

from ..errors import BudgetExceeded, StoreBusyError
from ..models.budget import Meter
from ..record.store import Store
from ..types import Budget, Json, digest

_NIGHT, _STOP, _START = "autopilot/night", "autopilot/stop", "autopilot/start"
TRIAL = "autopilot/trial"
"""State of the trial that stands, or of the last one."""
_UNSEEN = 0.4
"""Share of the people whom no search of a night sees."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NightBudget:
    """The most that one night may spend; each is checked before the spend."""

    hours: float | None = 8.0
    """Hours from the beginning of the night, restarts included."""
    rollouts: int | None = 10000
    """Calls of the agent."""
    calls: int | None = 500
    """Calls of the model that proposes."""
    tokens: int | None = None
    """Tokens of the model that proposes."""
    dollars: float | None = None
    """Dollars of the model that proposes."""
    alpha: float = 0.05
    """Highest chance that anything without an effect is promoted in the whole night."""
    gates: int = 120
    """Most proofs of the night: each is judged at its part of alpha."""
    share: float = 0.2
    """Most of the live traffic that is on trial at once."""
    first_share: float = 0.05
    """Share at which a trial begins; it rises as harm to all that are served it is excluded."""


class NightMeter(Meter):
    """A Meter whose amounts are in the record before they are spent, and that allows nothing once the night ends."""

    def __init__(self, night: Night, budget: Budget) -> None:
        super().__init__(budget)
        self._night = night
        self.spent |= {kind: amount for kind, amount in night.recorded.items() if kind in self.spent}

    def reserve(self, **amounts: float) -> None:
        """See `Meter.reserve`.

        Raises:
            BudgetExceeded: also once the night was stopped or its hours are over.
        """
        if over := self._night.over():
            raise BudgetExceeded(over)
        super().reserve(**amounts)
        self._night.keep(self.spent)

    def settle(self, **corrections: float) -> None:
        """See `Meter.settle`."""
        super().settle(**corrections)
        self._night.keep(self.spent)

    def held(self, purpose: str) -> int:
        """Calls of the agent that a purpose holds."""
        return int(self._night.store.state(self._night.held_key(purpose)) or 0)

    def hold(self, purpose: str, rollouts: int) -> None:
        """Have a purpose hold so many calls of the agent in all: more are spent, fewer are given back.

        For calls that another process makes and notes.  One that takes over from a killed one holds what was called
        and what is left to call, and so pays for nothing twice.

        Raises:
            BudgetExceeded: it needs more, and that is not left.
        """
        more = rollouts - self.held(purpose)
        if more > 0 and (over := self._night.over()):
            raise BudgetExceeded(over)
        if more > 0:
            super().reserve(rollouts=more)
        else:
            super().settle(rollouts=more)
        self._night.keep(self.spent, {self._night.held_key(purpose): rollouts})


class Night:
    """One night: its budget, its spending, its people, its end.

    A night that has begun and has not ended goes on, with its own budget, whoever starts it.
    """

    def __init__(self, store: Store, budget: NightBudget, *, clock: Any = time.time) -> None:
        self.store, self._clock = store, clock
        kept = store.state(_NIGHT)
        if kept is None or kept["ended"]:
            number = 1 if kept is None else int(kept["number"]) + 1
            kept = {"number": number, "began": clock(), "ended": "", "budget": asdict(budget)}
            store.put_state(_NIGHT, kept)
        self._kept = kept
        self.number, self.began = int(kept["number"]), float(kept["began"])
        self.budget = msgspec.convert(kept["budget"], NightBudget)
        self.recorded: dict[str, float] = dict(store.state(f"{self.prefix}/spent") or {})
        limits = self.budget
        self.meter = NightMeter(
            self,
            Budget(
                rollouts=limits.rollouts, calls=limits.calls, tokens=limits.tokens, dollars=limits.dollars
            ),
        )

    @property
    def prefix(self) -> str:
        """Of the night's states."""
        return f"autopilot/{self.number:06d}"

    @property
    def now(self) -> float:
        """Unix time in seconds."""
        return float(self._clock())

    def held_key(self, purpose: str) -> str:
        """Of the state that says what a purpose holds of the budget."""
        return f"{self.prefix}/held/{purpose}"

    def keep(self, spent: dict[str, float], states: Mapping[str, Json] | None = None) -> None:
        """Write what is spent, and what belongs to it; returns once it is durable."""
        # Also what has gone back to nothing.
        self.recorded |= {kind: amount for kind, amount in spent.items() if amount or kind in self.recorded}
        with self.store.batch() as batch:
            batch.put_state(f"{self.prefix}/spent", dict(self.recorded))
            for key, value in (states or {}).items():
                batch.put_state(key, value)

    def over(self) -> str:
        """Why nothing more may be done, "" while something may."""
        stopped = self.store.state(_STOP)
        if stopped:
            return f"stopped: {stopped['reason']}"
        hours = self.budget.hours
        if hours is not None and self.now - self.began >= 3600 * hours:
            return f"the {hours:g} hours of the night are over"
        return ""

    def alpha(self, purpose: str) -> float:
        """Spend a gate's part of alpha; the same purpose spends it once, however often it is asked for.

        Raises:
            BudgetExceeded: none is left.
        """
        key = f"{self.prefix}/alpha"
        spent = dict(self.store.state(key) or {})
        part = self.budget.alpha / self.budget.gates
        if purpose not in spent:
            if len(spent) >= self.budget.gates:
                raise BudgetExceeded(
                    f"alpha: all {self.budget.gates} proofs of the night are made, which together may err with "
                    f"{self.budget.alpha:g}"
                )
            self.store.put_state(key, {**spent, purpose: part})
        return part

    @property
    def proofs_left(self) -> int:
        """Gates that may still look at something."""
        return self.budget.gates - len(self.store.state(f"{self.prefix}/alpha") or {})

    @property
    def alpha_spent(self) -> float:
        """Of alpha, by all gates so far."""
        return float(sum((self.store.state(f"{self.prefix}/alpha") or {}).values()))

    def unseen(self, person: str) -> bool:
        """True of the people whom no search of this night sees: they prove."""
        return unseen(person, self.number)

    def end(self, reason: str) -> None:
        """The night is over; the next one begins with its own budget."""
        self._kept = {**self._kept, "ended": reason}
        self.store.put_state(_NIGHT, self._kept)

    @property
    def spent_in_words(self) -> str:
        """What is spent, of what."""
        words = []
        for kind, name in (
            ("rollouts", "calls of the agent"),
            ("calls", "of the model that proposes"),
            ("tokens", "tokens"),
            ("dollars", "dollars"),
        ):
            limit, amount = getattr(self.budget, kind), self.recorded.get(kind, 0)
            if amount or limit is not None:
                words.append(f"{amount:g} {name}" + (f" (of {limit:g})" if limit is not None else ""))
        return f"{', '.join(words)}, alpha {self.alpha_spent:.4g} (of {self.budget.alpha:g})"


@dataclass(frozen=True, slots=True, kw_only=True)
class NightAccount:
    """A night as whoever looks on sees it."""

    number: int
    began: float
    """Unix time in seconds."""
    ended: str
    """Why; "" while it goes on."""
    budget: NightBudget
    spent: dict[str, float]
    """By kind, as in the budget."""
    alpha_spent: float


def account(store: Store) -> NightAccount | None:
    """The night that goes on, or the last one; None before the first."""
    kept = store.state(_NIGHT)
    if kept is None:
        return None
    prefix = f"autopilot/{int(kept['number']):06d}"
    return NightAccount(
        number=int(kept["number"]),
        began=float(kept["began"]),
        ended=str(kept["ended"]),
        budget=msgspec.convert(kept["budget"], NightBudget),
        spent=dict(store.state(f"{prefix}/spent") or {}),
        alpha_spent=float(sum((store.state(f"{prefix}/alpha") or {}).values())),
    )


def unseen(person: str, night: int) -> bool:
    """True of the people whom no search of a night sees.

    By the hash of the name, so that whoever comes in the middle of the night has a side from the beginning.
    """
    return int(digest(["unseen", night, person], 8), 16) / 16**8 < _UNSEEN


def steered(store: Store) -> str:
    """Id of the release that an autopilot has on trial and decides about itself; "" without one."""
    trial = store.state(TRIAL)
    return str(trial["release"]) if trial and not trial["ended"] else ""


def trial_of(store: Store, work: Mapping[str, Any]) -> str | None:
    """Id of the trial that stands and carries a repair; None where none does."""
    trial = store.state(TRIAL)
    carries = trial and not trial["ended"] and trial["number"] == work.get("trial")
    return str(trial["release"]) if trial and carries else None


def stop(store: Store, reason: str = "by hand") -> None:
    """Turn the kill switch: no autopilot of this record spends anything more, wherever it is."""
    store.put_state(_STOP, {"reason": reason, "at": time.time()})


def start(store: Store) -> None:
    """Turn the kill switch back; where a server's night is over, let it begin the next one."""
    with store.batch() as batch:
        batch.put_state(_STOP, None)
        batch.put_state(_START, {"at": time.time()})


def began_anew(store: Store, since: float) -> bool:
    """True if somebody has let it go on since a time."""
    told = store.state(_START)
    return told is not None and float(told["at"]) > since


def stopped(store: Store) -> str:
    """Why the kill switch is turned; "" if it is not."""
    switch = store.state(_STOP)
    return str(switch["reason"]) if switch else ""


@contextmanager
def alone(store: Store) -> Iterator[None]:
    """Hold the one place for an autopilot of this record; the system takes it back from a process that is killed.

    Raises:
        StoreBusyError: another process has it.
    """
    if store.path == ":memory:":
        yield
        return
    place = os.open(f"{store.path}.autopilot", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise StoreBusyError(
                f"another autopilot runs on {store.path}. Look at it: whet autopilot --store {store.path} --journal"
            ) from None
        yield
    finally:
        os.close(place)
