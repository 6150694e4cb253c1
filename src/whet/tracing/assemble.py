"""From spans as they arrive to Trajectories in the record.

A Trajectory is written when its root has ended and nothing of it has arrived for `grace` seconds.  A
span that comes later makes a new revision under the same id; the record keeps the one before, and what
was judged of it stays.  Where a root never arrives (it belongs to a service that sends its spans
elsewhere) the run is written after `patience` seconds, and says so.

It keeps its place in the record, so that a process that was killed goes on where it was.  It judges
nothing, and forgets a run as soon as it is written.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from ..errors import InputError, StoreError
from ..store import Store
from ..store.codec import encode
from ..store.erasure import ERASURES
from ..types import Outcome, Span, Task, Trajectory
from .dialects import survey, trajectory_id
from .dialects.calls import ENCODING as CALL
from .join import join
from .signals import hear

CURSOR = "assembler"
"""The key in the record under which the place is kept."""
NO_ROOT = "the root of this run never arrived"
OPEN = 50_000
"""Runs that may be open at once, about 20 MB: what arrives beyond that waits in the record, not in memory."""
BEFORE = 10_000
"""Trajectories from before the start that are looked at again: they may have come while nothing was served."""
TOGETHER = 500
"""Runs in one step, which are one commit."""
READ = 32
"""Of them read at once."""
STOPPING = 5.0
"""Seconds that a server that stops spends on runs that wait: a backlog of hours must not hold it."""
HEARD = 5.0
"""Seconds between two looks at what users let show in their sessions."""
UNTRACED = 15.0
"""`patience` with a run of which the gateway alone knows: exporters send every five seconds, so the spans
that its calls name as their parents go elsewhere."""


@dataclass(slots=True)
class _Open:
    """A run of which spans have arrived since it was last written."""

    first: int
    """`seq` of the first arrival that is not written yet: where to go on after a crash."""
    arrived: float
    check: float
    """Unix time in seconds at which to look again."""


@dataclass(slots=True)
class Assembler:
    """Turns what arrives in `store` into Trajectories.

    One process at a time may assemble a store: the one that serves it.
    """

    store: Store
    grace: float = 2.0
    """Seconds without an arrival after which a run whose root has ended is complete."""
    patience: float = 60.0
    """Seconds without an arrival after which a run without its root is written nevertheless."""
    most: int = OPEN
    """Runs that may be open at once."""
    failure: str | None = None
    """Why the last step could not be written, None if it could."""
    _after: int = -1
    _recorded: int = -1
    """`seq` of the last trajectory that was looked at."""
    _open: dict[str | bytes, _Open] = field(default_factory=dict)
    _empty: list[str] = field(default_factory=list)
    """Trajectories of which every step is in another one now."""
    _revisions: dict[str | bytes, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def step(self, now: float | None = None) -> int:
        """Look what has arrived and write what is complete at `now` (Unix seconds); how many were written.

        No more than `TOGETHER` runs are read and committed at once; the next step goes on.

        Raises:
            StoreError: they could not be written; the next step tries again.
        """
        with self._lock:
            at = time.time() if now is None else now
            moved = self._look(at)
            while True:
                erasures = self._erasures()
                try:
                    return self._written(at, moved, erasures)
                except StoreError:
                    if self._erasures() == erasures:
                        raise
                    # Someone was erased while this was read: read again what is left of it.

    def flush(self, seconds: float = math.inf) -> int:
        """Write all that has arrived, complete or not; for when nothing more will come.

        Args:
            seconds: after which no further step is begun; what is left is gone on with at the next start.
        """
        deadline = time.monotonic() + seconds
        written, looked = self.step(math.inf), -1
        while (self._open or self._after > looked) and time.monotonic() < deadline:
            looked = self._after
            written += self.step(math.inf)
        return written

    def run(self, stop: threading.Event, *, every: float = 0.25) -> None:
        """Step every `every` seconds until `stop` is set, then write what has arrived, complete or not.

        A record that cannot be written (a full disk) ends nothing: `failure` says so until it can.
        """
        pause, stopping, heard = every, False, -math.inf
        while not stopping:
            stopping = stop.wait(pause)
            began = time.monotonic()
            try:
                if stopping:
                    self.flush(STOPPING)
                else:
                    self.step()
                    self.store.spans.note_older()
                if stopping or began >= heard + HEARD:
                    hear(self.store)
                    heard = began
                self.failure = None
            except StoreError as exception:
                self.failure = str(exception)
            pause = max(every, time.monotonic() - began)  # half of the time at most: ingest comes first

    # -- inside -------------------------------------------------------------------------------

    def _erasures(self) -> int:
        ((count,),) = self.store.database.rows(ERASURES)
        return int(count)

    def _written(self, at: float, moved: bool, erasures: int) -> int:
        """Read what is due and write what is complete, if nobody is erased meanwhile; how many were written."""
        ready: dict[str, Trajectory] = {}
        closed: list[str | bytes] = []
        due = [key for key, run in self._open.items() if run.check <= at][:TOGETHER]
        for start in range(0, len(due), READ):
            for key, found in self._assembled(due[start : start + READ], at):
                closed.append(key)
                ready.update((each.id, each) for each in found)
        if ready or closed or moved:
            ordered = sorted(ready.values(), key=lambda each: (each.started, each.id))
            self._write(ordered, closed, erasures)
        return len(ready)

    def _look(self, now: float) -> bool:
        """Note what has arrived since the last time; whether anything has."""
        if self._after < 0:
            kept = self.store.state(CURSOR, 0)
            self._after = kept if isinstance(kept, int) and kept >= 0 else 0
        before = self._after
        self._look_at_traced(now)
        while (room := min(1000, self.most - len(self._open))) > 0:
            page = self.store.spans.touched(self._after, limit=room)
            if not page:
                break
            for each in page:
                key = each.trace if each.run is None else each.run
                run = self._open.setdefault(key, _Open(each.seq, each.arrived, 0.0))
                run.arrived = max(run.arrived, each.arrived)
                # Each revision waits twice as long, so that a run of an hour has few of them.
                quiet = min(self.grace * 2 ** self._revisions.get(key, 0), self.patience)
                run.check = min(run.arrived, now) + quiet
                self._after = each.seq
        return self._after > before

    def _assembled(
        self, keys: Sequence[str | bytes], now: float
    ) -> Iterator[tuple[str | bytes, list[Trajectory]]]:
        """What each run has become; not those that are to be looked at later."""
        fresh: list[tuple[str | bytes, list[Trajectory]]] = []
        for key, spans, wanted in self._spans(keys):
            found = self._assemble(key, spans, wanted, now)
            if found is not None:
                fresh.append((key, found))
        ids = [each.id for _, found in fresh for each in found]
        stored = {each.id: each for each in self.store.trajectories(ids=ids)} if ids else {}
        for key, found in fresh:
            merged = [_merged(each, stored.get(each.id)) for each in found]
            yield key, [each for each in merged if each is not None]

    def _look_at_traced(self, now: float) -> None:
        """Open runs again of which a traced call, or a worker's rollout, was recorded after they were written.

        A traced function is recorded when it ends, its model calls as they happen: by then a run of some
        length has been written without it.
        """
        ((last,),) = self.store.database.rows("SELECT coalesce(max(seq), 0) FROM trajectories")
        if self._recorded < 0:
            self._recorded = max(0, last - BEFORE)
        if last == self._recorded:
            return
        rows = self.store.database.rows(
            "SELECT id, run, process_run FROM trajectories WHERE seq > ? AND seq <= ? AND run IS NOT NULL "
            "AND (instr(body, CAST('\"function\":' AS BLOB)) > 0 OR instr(body, CAST('\"worker\":' AS BLOB)) > 0)",
            [self._recorded, last],
        )
        self._recorded = last
        runs = {run for row in rows for run in row if run is not None and run not in self._open}
        own = {trajectory_id(b"", run): run for run in runs}
        listed = msgspec.json.encode(list(own)).decode()
        written = "SELECT id FROM trajectories WHERE id IN (SELECT value FROM json_each(?))"
        for (id,) in self.store.database.rows(written, [listed]) if own else ():
            self._open[own[id]] = _Open(self._after + 1, now, now)

    def _assemble(
        self, key: str | bytes, spans: list[Span], wanted: set[str], now: float
    ) -> list[Trajectory] | None:
        """What one run has become; None if it is to be looked at later."""
        whole = _rooted(spans)
        run = self._open[key]
        traced = any(span.encoding != CALL for span in spans)
        patience = self.patience if traced else min(self.patience, UNTRACED)
        if not whole and now < run.arrived + patience:
            run.check = run.arrived + patience
            return None
        joined, left = self._joined(key, spans)
        found = [each for each in survey(left).trajectories if each.id in wanted]
        if joined:  # what was written of the run before may have nothing of its own left
            self._empty += wanted - {each.id for each in found} - {each.id for each in joined}
        if not whole:
            found = [_noted(each, NO_ROOT) for each in found]
        return [*joined, *found]

    def _joined(self, key: str | bytes, spans: list[Span]) -> tuple[list[Trajectory], list[Span]]:
        """What the program's own traced calls become with the gateway's record, and the spans left over."""
        if isinstance(key, bytes) or not any(span.encoding == CALL for span in spans):
            return [], spans
        return join(list(self.store.trajectories(ids=[key])), spans)

    def _spans(self, keys: Sequence[str | bytes]) -> Iterator[tuple[str | bytes, list[Span], set[str]]]:
        """Each key with all spans of the runs that it stands for, and the ids of their trajectories.

        A key is a trace or a run.  A span need not name its run where another of its trace does.  All are
        read together: the statements would cost more than what is done with their rows.
        """
        held: dict[bytes, list[Span]] = {}
        self._read([key for key in keys if isinstance(key, bytes)], held)
        stated = {trace: {span.run for span in spans} - {None} for trace, spans in held.items()}
        runs = {key for key in keys if isinstance(key, str)}.union(*stated.values())
        traces: dict[str | None, set[bytes]] = {}
        for run, trace in self.store.spans.named(sorted(run for run in runs if run is not None)):
            traces.setdefault(run, set()).add(trace)
        self._read(sorted(set().union(*traces.values()) - set(held)), held)
        for key in keys:
            own = {key} if isinstance(key, str) else stated[key]
            found = set().union(*(traces.get(run, ()) for run in own))
            wanted = {trajectory_id(b"", run) for run in own}
            if isinstance(key, bytes):
                found.add(key)
                wanted.add(trajectory_id(key, None))
            yield key, [span for trace in sorted(found) for span in held[trace]], wanted

    def _read(self, traces: Sequence[bytes], held: dict[bytes, list[Span]]) -> None:
        held.update((trace, []) for trace in traces)
        for span in self.store.spans.traces(traces):
            held[span.trace].append(span)

    def _write(self, ready: list[Trajectory], closed: list[str | bytes], erasures: int) -> None:
        done = set(closed)
        waiting = [run.first for key, run in self._open.items() if key not in done]
        with self.store.batch() as batch:
            batch.as_of(erasures)
            for each in ready:
                try:
                    batch.put(each, replace=True)
                except InputError as exception:
                    batch.put(_unstorable(each, exception), replace=True)
            batch.withdraw(*self._empty)
            batch.put_state(CURSOR, min([*(first - 1 for first in waiting), self._after]))
        self._empty.clear()
        for key in closed:  # only now: what could not be written stays open
            del self._open[key]
            self._revisions[key] = self._revisions.get(key, 0) + 1
        while len(self._revisions) > 10_000:
            del self._revisions[next(iter(self._revisions))]


def _merged(fresh: Trajectory, before: Trajectory | None) -> Trajectory | None:
    """With what was judged of the revision before; None if nothing has changed."""
    if before is None:
        return fresh
    judged = before.outcome if before.outcome in (Outcome.SUCCESS, Outcome.FAILURE) else fresh.outcome
    whole = replace(fresh, scores=before.scores, outcome=judged)
    try:
        same = encode(replace(whole, feedback=before.feedback)) == encode(before)
    except InputError:
        same = False
    return None if same else whole


def _rooted(spans: Sequence[Span]) -> bool:
    """Whether a root is there and has ended; a gateway's call without a parent is one."""
    return any(not span.parent and span.ended and not span.encoding.startswith("log") for span in spans)


def _noted(trajectory: Trajectory, note: str) -> Trajectory:
    notes = trajectory.meta.get("notes")
    return replace(trajectory, meta={**trajectory.meta, "notes": [*(notes or ()), note]})


def _unstorable(trajectory: Trajectory, exception: InputError) -> Trajectory:
    """A run that cannot be written as JSON: that it was there, and that its spans have it all."""
    kept = {key: trajectory.meta[key] for key in ("source", "run") if key in trajectory.meta}
    return Trajectory(
        task=Task(meta={"source": trajectory.meta.get("source", "otlp")}),
        id=trajectory.id,
        trace_ids=trajectory.trace_ids,
        outcome=Outcome.INVALID,
        started=trajectory.started,
        seconds=trajectory.seconds,
        meta={**kept, "unread": len(trajectory.steps) or 1, "notes": [str(exception)]},
    )
