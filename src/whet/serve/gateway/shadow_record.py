"""Answers of shadows as Trajectories of the record: each on the task of the run that it shadows, and paired with it."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Sequence
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
TOGETHER = 100
"""Runs that are looked for and recorded at once."""
AGAIN = 2.0
"""Seconds between two looks for a real run that is not there yet."""
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
    look_at: float = 0.0
    """Monotonic time before which the real run is not looked for again."""

    @property
    def real_id(self) -> str:
        """Id of the Trajectory that the real run has or will have."""
        return trajectory_id(self.trace, self.run)


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
        """Record some of the runs that are quiet; called now and then."""
        now = time.monotonic()
        with self._lock:
            quiet = [
                key
                for key in self._waiting
                if now - self._open[key].newest >= self.idle and now >= self._open[key].look_at
            ]
        self._record(quiet[:TOGETHER], now)

    def flush(self) -> None:
        """Record all that has come, as far as the real runs are there."""
        waiting = [*self._waiting]
        for start in range(0, len(waiting), TOGETHER):
            self._record(waiting[start : start + TOGETHER], math.inf)

    def _record(self, keys: Sequence[tuple[str, str]], now: float) -> None:
        with self._lock:
            shadows = {
                key: replace(open_, spans=[*open_.spans]) for key in keys if (open_ := self._open.get(key))
            }
        try:
            real = self._real(shadows.values()) if shadows else {}
            paired = [key for key, shadowed in shadows.items() if shadowed.real_id in real]
            with self._store.batch() as batch:
                for key in paired:
                    for shadow in _as_trajectories(shadows[key], real[shadows[key].real_id]):
                        batch.put(shadow, experiment=shadow_experiment(shadows[key].trial), replace=True)
        except WhetError:  # the record has a trouble that may pass: tried again until the patience is over
            paired = []
        with self._lock:
            for key, shadowed in shadows.items():
                if key in paired or now - shadowed.since >= PATIENCE:
                    self.counts["paired" if key in paired else "unpaired"] += 1
                    self._waiting.discard(key)
                elif key in self._open:
                    self._open[key].look_at = now + AGAIN

    def _real(self, shadows: Iterable[_Shadowed]) -> dict[str, Trajectory]:
        """The real runs that are in the record, by id: asked for all at once, as this is beside who is served."""
        runs = self._store.trajectories(ids=[shadowed.real_id for shadowed in shadows])
        return {run.id: run for run in runs if SHADOW not in run.meta}


def _as_trajectories(shadowed: _Shadowed, real: Trajectory) -> Iterator[Trajectory]:
    for read in survey(shadowed.spans).trajectories:
        yield replace(
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
