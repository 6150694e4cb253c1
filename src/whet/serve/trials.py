"""The watcher of what is on trial: every few seconds canaries are ramped, made live or taken back by evidence.

It decides nothing itself: `prove.watch` reads the evidence and `prove.canary` decides, `ship.canaries` writes what
follows to the release log, which everything that serves reads.  Now and then it looks for drift since the last release,
and says on standard error what changed; `GET /api/trials` has both.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec

from ..autopilot.night import steered
from ..errors import ConflictError, WhetError
from ..judge.drift import Drift, drift, windows
from ..prove.watch import TrialLook, looks
from ..record.store import Store
from ..ship.canaries import BY_EVIDENCE, carry_out
from .http import HttpRoute, Request, Response, answer, reads

EVERY = 5.0
"""Seconds between two looks at the canaries."""
DRIFT_EVERY = 300.0
"""Seconds between two looks for drift: it reads whole runs."""


class TrialStatus(msgspec.Struct):
    """One canary."""

    trial: str
    candidate: str
    """Id of its Bundle."""
    share: float
    unit: str
    units: int
    judged: int
    effect: float
    interval: tuple[float, float]
    e_value: float
    harm: float
    mismatched: int
    next_look: int | None
    action: str
    sentence: str


class TrialStatuses(msgspec.Struct):
    """What is on trial, and what has drifted since the last release."""

    canaries: list[TrialStatus]
    drift: list[str]


class TrialWatcher:
    """Looks, and carries out what is decided.

    Args:
        store: the record; only the process that owns it acts.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._told: set[str] = set()
        self.drifted: list[Drift] = []
        self.trouble: str | None = None
        """The reason that the last look or what followed from it failed."""

    def step(self, now: float | None = None) -> list[TrialLook]:
        """Look at every canary once and do what follows; the looks, as they were before."""
        standing = looks(self._store, now=now)
        self.trouble = None
        own = steered(self._store)
        for trial in standing:
            if not trial.moves:
                continue
            # Several repairs at once: an autopilot makes each live by its own part of the traffic.
            if own and own == trial.release.trial and trial.decision.share > 0:
                continue
            decision = trial.decision
            try:
                carry_out(
                    self._store,
                    trial.release,
                    decision.share,
                    reason=f"{BY_EVIDENCE}{decision.action.value}, as {decision.reason}",
                    verdict=trial.verdict,
                )
            except ConflictError as error:  # the next look is at what stands now
                self._tell(str(error))
            except WhetError as error:  # told, and tried again: the next canary is looked at all the same
                self._tell(f"canary {trial.release.trial} stays where it is: {error}")
        return standing

    def look_for_drift(self) -> list[Drift]:
        """What has drifted since the last release; each feature is said once on standard error."""
        reference, current = windows(self._store)
        self.drifted = [feature for feature in drift(reference, current) if feature.drifted]
        for feature in self.drifted:
            if feature.feature not in self._told:
                self._told.add(feature.feature)
                print(f"whet: {feature.sentence}", file=sys.stderr)
        return self.drifted

    def run(self, stop: threading.Event, *, every: float = EVERY) -> None:
        """Step until `stop` is set."""
        drift_at = time.monotonic() + DRIFT_EVERY
        while not stop.wait(every):
            if self._store.database.owner is None:
                continue
            try:
                self.step()
                if time.monotonic() >= drift_at:
                    self.look_for_drift()
                    drift_at = time.monotonic() + DRIFT_EVERY
            except WhetError as error:
                self._tell(str(error))

    def _tell(self, trouble: str) -> None:
        if trouble != self.trouble:
            print(f"whet: {trouble}", file=sys.stderr)
        self.trouble = trouble


class TrialsPart:
    """The watcher as a part of the server.

    Args:
        store: the record.
        every: seconds between two looks.
    """

    def __init__(self, store: Store, *, every: float = EVERY) -> None:
        self._store, self._every = store, every
        self.watcher = TrialWatcher(store)
        self.routes: Sequence[HttpRoute] = (
            reads(
                "/api/trials",
                self._status,
                "What is on trial: shares, evidence and the next look; and what has drifted",
                TrialStatuses,
            ),
        )

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Watch while the server runs."""
        stop = threading.Event()
        thread = threading.Thread(
            target=self.watcher.run,
            args=(stop,),
            kwargs={"every": self._every},
            name="whet-trials",
            daemon=True,
        )
        thread.start()
        try:
            yield
        finally:
            stop.set()
            await asyncio.to_thread(thread.join)

    async def _status(self, request: Request) -> Response:
        standing = await asyncio.to_thread(looks, self._store)
        drifted = [feature.sentence for feature in self.watcher.drifted]
        return answer(TrialStatuses([status(trial) for trial in standing], drifted))


def status(trial: TrialLook) -> TrialStatus:
    """A look as it is told to others."""
    release, decision = trial.release, trial.decision
    return TrialStatus(
        trial=release.trial,
        candidate=release.candidate,
        share=release.share,
        unit=release.unit,
        units=trial.units,
        judged=decision.n,
        effect=decision.effect,
        interval=decision.interval,
        e_value=decision.e_value,
        harm=decision.harm,
        mismatched=trial.mismatched,
        next_look=decision.next_look,
        action=decision.action.value,
        sentence=trial.sentence,
    )
