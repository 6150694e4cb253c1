"""Answers of shadows as Trajectories of the record: each on the task of the run that it shadows, and paired with it."""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict
from dataclasses import dataclass, field, replace

from ...errors import WhetError
from ...record.store import Store
from ...record.store.trials import SHADOW, shadow_experiment
from ...record.tracing.dialects import survey, trajectory_id
from ...types import Span, Trajectory, digest
from .mirror_wire import ShadowAnswer
from .record import ENCODING

IDLE = 3.0
"""Seconds without a further call after which what has come of a run is recorded."""
PATIENCE = 60.0
"""Seconds that the real run has to arrive in the record; then its shadow is nobody's pair, and is counted."""
OPEN = 1_000
"""Runs whose shadows are kept for further calls of theirs."""


@dataclass(slots=True)
class _Shadowed:
    """The answers of one candidate to the calls of one run."""

    trial: str
    run: str | None
    trace: bytes
    subject: str | None
    spans: list[Span] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    failed: int = 0
    since: float = 0.0
    """Monotonic time of the first answer that is not recorded."""
    newest: float = 0.0


class ShadowRecorder:
    """Gathers answers by run, and records them once a run is quiet.

    Args:
        store: the record.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.idle = IDLE
        self._lock = threading.Lock()
        self._open: OrderedDict[tuple[str, str], _Shadowed] = OrderedDict()
        self._waiting: set[tuple[str, str]] = set()
        self.counts: Counter[str] = Counter()
        """`answered`, `failed`, `paired`, `unpaired`."""

    def add(self, answer: ShadowAnswer) -> None:
        """Take one answer."""
        self.counts["failed" if answer.failed else "answered"] += 1
        key, now = (answer.trial, answer.run or answer.trace.hex()), time.monotonic()
        with self._lock:
            shadowed = self._open.setdefault(
                key, _Shadowed(answer.trial, answer.run, answer.trace, answer.subject)
            )
            self._open.move_to_end(key)
            if key not in self._waiting:
                shadowed.since = now
                self._waiting.add(key)
            shadowed.newest = now
            shadowed.failed += answer.failed
            shadowed.calls.append(answer.call)
            shadowed.spans.append(
                Span(
                    trace=answer.trace,
                    id=bytes.fromhex(digest((answer.trial, answer.call), 16)),
                    parent=b"",
                    started=answer.started,
                    ended=answer.ended,
                    name=answer.name,
                    body=answer.body,
                    encoding=ENCODING,
                    run=answer.run,
                )
            )
            while len(self._open) > OPEN:
                dropped, _ = self._open.popitem(last=False)
                if dropped in self._waiting:
                    self._waiting.discard(dropped)
                    self.counts["unpaired"] += 1

    def settle(self) -> None:
        """Record the runs that are quiet; called now and then."""
        now = time.monotonic()
        with self._lock:
            quiet = [key for key in self._waiting if now - self._open[key].newest >= self.idle]
        for key in quiet:
            self._record(key, given_up=now - self._open[key].since >= PATIENCE)

    def flush(self) -> None:
        """Record all that has come, as far as the real runs are there."""
        for key in [*self._waiting]:
            self._record(key, given_up=True)

    def _record(self, key: tuple[str, str], *, given_up: bool) -> None:
        with self._lock:
            shadowed = replace(self._open[key], spans=[*self._open[key].spans])
        try:
            real = self._real(shadowed)
            if real is not None:
                self._put(shadowed, real)
        except WhetError:  # the record has a trouble that may pass: tried again until the patience is over
            real = None
        if real is None and not given_up:
            return
        self.counts["paired" if real is not None else "unpaired"] += 1
        with self._lock:
            self._waiting.discard(key)

    def _real(self, shadowed: _Shadowed) -> Trajectory | None:
        id = trajectory_id(shadowed.trace, shadowed.run)
        ids = [id] if shadowed.run is None else [id, shadowed.run]
        for run in self._store.trajectories(ids=ids):
            if SHADOW not in run.meta:
                return run
        return None

    def _put(self, shadowed: _Shadowed, real: Trajectory) -> None:
        for read in survey(shadowed.spans).trajectories:
            shadow = replace(
                read,
                id=digest((SHADOW, shadowed.trial, real.id), 24),
                task=real.task,
                # No session: nobody has seen these answers, so what they say next is no word on them.
                session=None,
                subject=shadowed.subject,
                trace_ids=(),
                meta={
                    "source": "gateway",
                    SHADOW: {"of": real.id, "trial": shadowed.trial, "calls": len(shadowed.calls)},
                },
            )
            self._store.put(shadow, experiment=shadow_experiment(shadowed.trial), replace=True)
