"""The Bundle that a run is served: assigned at its first call, and never changed.

A rollout of the queue gets the Bundle that it runs under, another new run what is live, or what a canary that it is
drawn into has in its place; a swap changes what is live and nothing that has begun.  A run that is not remembered here
(the server was started again, or very many came since) is looked up in the record by the caller, so that it goes on
with the Versions that it began with.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ...errors import InputError
from ...record.store.trials import Trials
from ...types import Bundle, Json
from .serving import ServedBundle, served

REMEMBERED = 10_000
"""Runs whose assignment is kept in memory, at about 150 bytes each: those that were called last."""
NAMED = 100_000
"""Runs that were assigned Versions by name and have not begun: the record knows nothing of them."""


class Reassigned(InputError):
    """A run that has begun cannot be given another Bundle: half of it would be another agent's."""


@dataclass(frozen=True, slots=True)
class LiveAssignment:
    """The Bundle of new runs."""

    bundle: Bundle
    served: ServedBundle
    trials: Trials


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a run was served before, as the record has it."""

    bundle: Bundle
    trials: Mapping[str, Json]


class Assignments:
    """Sticky assignment of runs to Bundles.

    Args:
        upstreams: names that a Bundle's route may use.
        trials: the canaries that new runs are drawn into.
    """

    def __init__(
        self,
        upstreams: Mapping[str, object],
        *,
        bundle: Bundle | None = None,
        trials: Trials | None = None,
        remembered: int = REMEMBERED,
    ) -> None:
        self._upstreams = upstreams
        self._remembered = remembered
        self._lock = threading.Lock()
        self._runs: OrderedDict[str, ServedBundle] = OrderedDict()
        self._named: OrderedDict[str, ServedBundle] = OrderedDict()
        self._compiled: OrderedDict[str, ServedBundle] = OrderedDict()
        self._live = LiveAssignment(Bundle(), ServedBundle(), Trials())
        self.swaps = 0
        if bundle is not None:
            self.swap(bundle, trials)

    @property
    def live(self) -> LiveAssignment:
        """The Bundle of new runs."""
        return self._live

    def swap(self, bundle: Bundle, trials: Trials | None = None) -> bool:
        """Make `bundle` and the canaries beside it what new runs get; False if the Bundle already was.

        Raises:
            InputError: it says something that the gateway cannot serve; what was live stays.
        """
        trials = trials or Trials()
        if bundle == self._live.bundle and self.swaps:
            self._live = replace(self._live, trials=trials)
            return False
        # One object, replaced at once: no run is drawn into canaries beside what they were not made for.
        self._live = LiveAssignment(bundle, self._served(bundle), trials)
        self.swaps += 1
        return True

    def known(self, key: str) -> ServedBundle | None:
        """The run's assignment, None if it is not remembered."""
        with self._lock:
            assigned = self._runs.get(key)
            if assigned is not None:
                self._runs.move_to_end(key)
            elif (assigned := self._named.pop(key, None)) is not None:
                self._remember(key, assigned)
            return assigned

    def of(
        self,
        key: str,
        recorded: Recorded | None = None,
        *,
        session: str | None = None,
        subject: str | None = None,
    ) -> ServedBundle:
        """The run's assignment, made now if it has none.

        Args:
            recorded: what it was served before or what its rollout runs under.
            session, subject: that a canary may be drawn by.
        """
        assigned = self.known(key)
        if assigned is not None:
            return assigned
        if recorded is not None:
            return self._keep(key, self._arm(self._served(recorded.bundle), recorded.trials))
        live = self._live
        choice = live.trials.choose(key, session, subject)
        chosen = live.served if choice.bundle is None else self._served(choice.bundle)
        return self._keep(key, self._arm(chosen, choice.trials))

    @staticmethod
    def _arm(served: ServedBundle, trials: Mapping[str, Json]) -> ServedBundle:
        return replace(served, trials=trials) if trials else served

    def assign(self, key: str, bundle: Bundle) -> ServedBundle:
        """Serve `bundle` to this run.

        Raises:
            InputError: it says something that the gateway cannot serve.
            Reassigned: the run was assigned another one before.
        """
        requested = self._served(bundle)
        with self._lock:
            assigned = self._runs.get(key) or self._named.setdefault(key, requested)
            if len(self._named) > NAMED:
                self._named.popitem(last=False)
        if assigned.versions != requested.versions:
            raise Reassigned(
                f"run {key!r} is served {dict(assigned.versions)} already. Start another run for {bundle!r}."
            )
        return assigned

    def _keep(self, key: str, candidate: ServedBundle) -> ServedBundle:
        with self._lock:
            # Two first calls of one run may both come this far, with another release live in between.
            assigned = self._runs.get(key) or self._named.pop(key, candidate)
            self._remember(key, assigned)
            return assigned

    def _remember(self, key: str, assigned: ServedBundle) -> None:
        """Keep the assignment of a run that is called now; under the lock."""
        self._runs[key] = assigned
        self._runs.move_to_end(key)
        while len(self._runs) > self._remembered:
            self._runs.popitem(last=False)

    def _served(self, bundle: Bundle) -> ServedBundle:
        # A Bundle's id is the hash of its content, so what was compiled for it does not go out of date.
        compiled = self._compiled.get(bundle.id)
        if compiled is None:
            compiled = self._compiled[bundle.id] = served(bundle, self._upstreams)
            while len(self._compiled) > 1_000:
                self._compiled.popitem(last=False)
        return compiled
