"""Answers of shadows as Trajectories, one for each run that was shadowed; made in the mirror process.

It names the run that it is the shadow of, and has no session: nobody has seen these answers, so what a person says next
is no word on them.  Its task is taken from the real run where the two are paired (`prove.shadow`), for this process
knows nothing of the record.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from ...record.store.trials import SHADOW
from ...record.tracing.dialects import survey, trajectory_id
from ...types import Span, Trajectory, digest
from .mirror_wire import MirroredCall

OPEN = 1_000
"""Runs whose answers are kept for further calls of theirs."""


@dataclass(slots=True)
class _Shadowed:
    """The answers of one candidate to the calls of one run."""

    trial: str
    run: str | None
    trace: bytes
    subject: str | None
    spans: list[Span] = field(default_factory=list)
    newest: float = 0.0
    """Monotonic time of the newest answer."""


class ShadowRuns:
    """Gathers answers by run.

    Args:
        idle: seconds without a further call after which a run is told; another one has it told anew.
    """

    def __init__(self, idle: float) -> None:
        self._idle = idle
        self._open: OrderedDict[tuple[str, str], _Shadowed] = OrderedDict()
        self._fresh: set[tuple[str, str]] = set()

    def add(self, trial: str, mirrored: MirroredCall, span: Span) -> None:
        """Take one answer."""
        key = (trial, mirrored.run or mirrored.trace.hex())
        shadowed = self._open.setdefault(
            key, _Shadowed(trial, mirrored.run, mirrored.trace, mirrored.subject)
        )
        self._open.move_to_end(key)
        self._fresh.add(key)
        shadowed.newest = time.monotonic()
        shadowed.spans.append(span._replace(id=bytes.fromhex(digest((trial, mirrored.call), 16))))
        while len(self._open) > OPEN:
            oldest, _ = self._open.popitem(last=False)
            self._fresh.discard(oldest)

    def quiet(self, *, all_of_them: bool = False) -> Iterator[tuple[str, Trajectory]]:
        """Trial and shadow of each run that is quiet, once."""
        before = time.monotonic() - (0.0 if all_of_them else self._idle)
        for key in [key for key in self._fresh if self._open[key].newest <= before]:
            self._fresh.discard(key)
            shadowed = self._open[key]
            real = trajectory_id(shadowed.trace, shadowed.run)
            for read in survey(shadowed.spans).trajectories:
                yield (
                    shadowed.trial,
                    replace(
                        read,
                        id=digest((SHADOW, shadowed.trial, real), 24),
                        session=None,
                        subject=shadowed.subject,
                        trace_ids=(),
                        meta={"source": "gateway", SHADOW: {"of": real, "trial": shadowed.trial}},
                    ),
                )
