"""From spans as they arrive to Trajectories in the record.

A trace that arrives whole becomes its Trajectory in the commit of its spans (`admit`).  Of any other run the Trajectory
is written when its root has ended and nothing of it has arrived for `grace` seconds; until then its spans are kept in
memory, as far as there is room (`arrivals.py`), and are read from the record otherwise.  A span that comes later makes
a new revision under the same id; the record keeps the one before, and what was judged of it stays.  Where a root never
arrives (it belongs to a service that sends its spans elsewhere) the run is written after `patience` seconds, with a
note.

It keeps its place in the record, so that a process that was killed resumes there.  It judges
nothing, and forgets a run as soon as it is written.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

import msgspec

from ...errors import InputError, StoreError
from ...types import Outcome, Span, Trajectory
from ..store import Store
from ..store.codec import encode
from ..store.erasure import ERASURES
from ..store.protobuf import LENGTH, fields
from .arrivals import ArrivalFeed
from .dialects import survey, trajectory_id
from .dialects.calls import ENCODING as CALL
from .join import join
from .progress import PROGRESS, AssemblyProgress
from .signals import hear
from .whole import WholeTrace, by_trace, storable_row

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
HEARD_TOGETHER = 20_000
"""Trajectories that are looked at then."""
LOGGED = 60.0
"""Seconds for which a service that sends log records is taken to send those of its next traces too."""
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
    traces: set[bytes] = field(default_factory=set)
    """Whose spans have arrived: also the trace that only stands for a run, which no Trajectory names."""


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
    """The reason why the last step could not be written, None if it could."""
    progress: AssemblyProgress = field(default_factory=AssemblyProgress)
    """As of the last step."""
    whole: int = 0
    """Trajectories that were written with their spans."""
    _feed: ArrivalFeed = field(default_factory=ArrivalFeed)
    _listening: bool = False
    _after: int = -1
    _recorded: int = -1
    """`seq` of the last trajectory that was looked at."""
    _at: float = 0.0
    """Unix time of the last step: a clock that was set back shows by it."""
    _open: dict[str | bytes, _Open] = field(default_factory=dict)
    _empty: list[str] = field(default_factory=list)
    """Trajectories of which every step is in another one now."""
    _revisions: dict[str | bytes, int] = field(default_factory=dict)
    _admitted: deque[bytes] = field(default_factory=deque)
    """Traces that were written with their spans since the last step."""
    _logging: dict[bytes, float] = field(default_factory=dict)
    """Resource → monotonic time of its last log record."""
    _admission: threading.Lock = field(default_factory=threading.Lock)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def held_bytes(self) -> int:
        """Bytes of spans of open runs that are kept in memory."""
        return self._feed.size

    def admit(self, spans: Sequence[Span], wholes: Sequence[WholeTrace] = ()) -> Future[None]:
        """Commit the spans of a request, each with its Trajectory where the trace is whole and new.

        Args:
            wholes: the traces among them that are whole, as `read_whole` gives them.

        Returns:
            Done once all of it is durable, or with the StoreError for which nothing of it was stored.

        Raises:
            StoreError: the store is closed.
        """
        groups = by_trace(spans) if wholes else {}
        self._note_logs(spans)
        # Counted before looking for what is known: the commit is refused if somebody is erased meanwhile.
        erasures = self._erasures() if wholes else 0
        with self._admission:  # of two requests that bring one trace, one finds that the other has it
            new = self._new(wholes, groups)
            traces = [whole.trace for whole in new]
            for trace in traces:
                self._feed.expect(trace, [span.id for span in groups[trace]])
        if not new:
            return self.store.spans.put(spans)
        try:
            rows = [whole.row for whole in new if whole.row is not None]
            future = self.store.spans.put(spans, trajectories=rows, erasures=erasures)
        except BaseException:
            self._feed.settled(traces)
            raise
        future.add_done_callback(lambda done: self._settle(traces, len(rows), done))
        return future

    def step(self, now: float | None = None) -> int:
        """Write the runs that are complete at `now` (Unix seconds); how many were written.

        No more than `TOGETHER` runs are read and committed at once; the next step goes on.

        Raises:
            StoreError: they could not be written; the next step retries.
        """
        with self._lock:
            at = time.time() if now is None else now
            self._follow(at)
            moved = self._look(at)
            while True:
                # Counted before reading; `batch.as_of` refuses the write if somebody was erased since.
                erasures = self._erasures()
                try:
                    return self._written(at, moved, erasures)
                except StoreError:
                    if self._erasures() == erasures:
                        raise
                    # Someone was erased while this was read: read again what is left of it.

    def flush(self, seconds: float = math.inf) -> int:
        """Write every run that has arrived, complete or not; for when nothing more will come.

        Args:
            seconds: after which no further step begins; the next start resumes.
        """
        deadline = time.monotonic() + seconds
        written, looked = self.step(math.inf), -1
        # Both: a full `_open` leaves arrivals unread, and an empty one may have more behind it.
        while (self._open or self._after > looked) and time.monotonic() < deadline:
            looked = self._after
            written += self.step(math.inf)
        return written

    def run(self, stop: threading.Event, *, every: float = 0.25) -> None:
        """Step every `every` seconds until `stop` is set, then write what has arrived, complete or not.

        While there is more to do than one step takes, the next follows at once.  A record that cannot be
        written (a full disk) ends nothing: `failure` holds the reason until it can.
        """
        stopping, heard = False, -math.inf
        with self._listen():
            while not stopping:
                stopping = stop.wait(every if self.failure or not self.progress.unassembled else 0.0)
                began = time.monotonic()
                try:
                    if stopping:
                        self.flush(STOPPING)
                    else:
                        self.step()
                        self.store.spans.note_older()
                    if stopping or began >= heard + HEARD:
                        hear(self.store, most=HEARD_TOGETHER)
                        heard = began
                    self.failure = None
                except StoreError as exception:
                    self.failure = str(exception)

    # -- whole traces -------------------------------------------------------------------------

    def _new(self, wholes: Sequence[WholeTrace], groups: dict[bytes, list[Span]]) -> list[WholeTrace]:
        """Those of which the record has nothing, and no more is to be expected."""
        new = [
            whole
            for whole in wholes
            if whole.trace not in self._open
            and not self._feed.expects(whole.trace)
            and not self._logs(groups[whole.trace][0])
        ]
        if not new:
            return []
        known = set(self.store.spans.sizes([whole.trace for whole in new]))
        listed = msgspec.json.encode([whole.trace.hex() for whole in new]).decode()
        # A trajectory of this id may have been imported; of an erased trace nothing may come back.
        rows = self.store.database.rows(
            "SELECT id FROM trajectories WHERE id IN (SELECT value FROM json_each(?1)) UNION ALL "
            "SELECT id FROM tombstones WHERE kind IN ('run', 'trace') AND id IN (SELECT value FROM json_each(?1))",
            [listed],
        )
        known.update(bytes.fromhex(id) for (id,) in rows)
        return [whole for whole in new if whole.trace not in known]

    def _settle(self, traces: Sequence[bytes], written: int, done: Future[None]) -> None:
        # In the writer's thread, after the feed has had the commit's spans.
        self._feed.settled(traces)
        if done.exception() is None:
            self.whole += written
            self._admitted.extend(traces)

    def _note_logs(self, spans: Sequence[Span]) -> None:
        """Note the services whose log records hold what their spans leave out: their traces wait for them."""
        if not spans or not spans[0].encoding.startswith("log"):
            return
        now = time.monotonic()
        if len(self._logging) > 1_000:
            self._logging = {key: at for key, at in self._logging.items() if at > now - LOGGED}
        self._logging.update((_resource(context), now) for context in {span.context for span in spans})

    def _logs(self, span: Span) -> bool:
        return bool(self._logging) and (
            self._logging.get(_resource(span.context), -math.inf) > time.monotonic() - LOGGED
        )

    # -- looking for arrivals -----------------------------------------------------------------

    @contextlib.contextmanager
    def _listen(self) -> Iterator[None]:
        """Have the writer tell what it inserts."""
        self._listening = True
        try:
            yield
        finally:
            self._listening = False
            owner = self.store.database.owner
            if owner is not None and owner.on_spans == self._feed.note:
                owner.on_spans = None

    def _attach(self) -> bool:
        """True if the writer tells us; whatever was inserted before it began is read from the record."""
        owner = self.store.database.owner if self._listening else None
        if owner is None:
            return False
        if owner.on_spans != self._feed.note:  # at the start, and after the file has changed hands
            self._feed.forget_all()
            owner.on_spans = self._feed.note
            self._feed.last = max(self._feed.last, self.store.spans.newest)
        return True

    def _follow(self, at: float) -> None:
        """Move the times of open runs with a clock that was set back: none of them waits for the whole jump."""
        if at < self._at:
            for run in self._open.values():
                run.arrived -= self._at - at
                run.check -= self._at - at
        self._at = at if math.isfinite(at) else self._at

    def _look(self, now: float) -> bool:
        """Note the arrivals since the last time; True if there were any."""
        if self._after < 0:
            cursor = self.store.state(CURSOR, 0)
            self._after = cursor if isinstance(cursor, int) and cursor >= 0 else 0
        before = self._after
        while self._admitted:
            self._revisions.setdefault(self._admitted.popleft(), 1)
        self._look_at_traced(now)
        if not self._attach():
            self._scan(now)
            return self._after > before
        while len(self._open) < self.most:
            batch = self._feed.next()
            missing = self._feed.last if batch is None else batch.first - 1
            if self._after < missing:
                if not self._scan(now, missing):
                    break
                continue
            if batch is None:
                break
            for number, span in zip(batch.numbers, batch.spans, strict=True):
                if number > self._after:
                    self._arrive(number, span[0], span[9], batch.at, now)
                    self._feed.hold(span)
            self._after = max(self._after, batch.last)
            self._feed.take()
        return self._after > before

    def _scan(self, now: float, missing: int | None = None) -> bool:
        """Read arrivals from the record; False if too many runs are open to go on.

        Args:
            missing: `seq` up to which all is known to be there, if more than that was found.
        """
        while (room := min(1000, self.most - len(self._open))) > 0:
            page = self.store.spans.touched(self._after, limit=room)
            for arrival in page:
                self._arrive(arrival.seq, arrival.trace, arrival.run, arrival.arrived, now)
                self._after = arrival.seq
            if missing is not None and (not page or self._after >= missing):
                self._after = max(self._after, missing)  # repeated spans take numbers too
                return True
            if not page:
                return True
        return False

    def _arrive(self, number: int, trace: bytes, run: str | None, arrived: float, now: float) -> None:
        key = trace if run is None else run
        # min: arrivals are stamped by the wall clock, and lie ahead after it was set back.
        arrived = min(arrived, now)
        waiting = self._open.get(key)
        if waiting is None:
            waiting = self._open[key] = _Open(number, arrived, 0.0)
        waiting.arrived = max(waiting.arrived, arrived)
        waiting.traces.add(trace)
        # Each revision waits twice as long, so that a run of an hour has few of them.
        quiet = min(self.grace * 2 ** self._revisions.get(key, 0), self.patience)
        waiting.check = waiting.arrived + quiet

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
        # A search in the bytes: to decode each body costs more than the rest of the step.  What the queue recorded is
        # known by its id, and its body is not read.
        rows = self.store.database.rows(
            "SELECT id, run, process_run FROM trajectories WHERE seq > ?1 AND seq <= ?2 AND run IS NOT NULL "
            "AND rtrim(id, '0123456789') <> run || '.' "
            "AND (instr(body, CAST('\"function\":' AS BLOB)) > 0 OR instr(body, CAST('\"worker\":' AS BLOB)) > 0) "
            "UNION ALL SELECT id, run, NULL FROM trajectories WHERE seq > ?1 AND seq <= ?2 AND run IS NOT NULL "
            "AND rtrim(id, '0123456789') = run || '.'",
            [self._recorded, last],
        )
        self._recorded = last
        runs = {run for row in rows for run in row if run is not None and run not in self._open}
        own = {trajectory_id(b"", run): run for run in runs}
        listed = msgspec.json.encode(list(own)).decode()
        written = "SELECT id FROM trajectories WHERE id IN (SELECT value FROM json_each(?))"
        for (id,) in self.store.database.rows(written, [listed]) if own else ():
            self._open[own[id]] = _Open(self._after + 1, now, now)

    # -- assembling ---------------------------------------------------------------------------

    def _erasures(self) -> int:
        ((count,),) = self.store.database.rows(ERASURES)
        return int(count)

    def _written(self, at: float, moved: bool, erasures: int) -> int:
        """Read the runs that are due and write the complete ones, if nobody is erased meanwhile; how many."""
        ready: dict[str, Trajectory] = {}
        closed: list[str | bytes] = []
        due = [key for key, run in self._open.items() if run.check <= at][:TOGETHER]
        for start in range(0, len(due), READ):
            for key, trajectories in self._assembled(due[start : start + READ], at):
                closed.append(key)
                ready.update((trajectory.id, trajectory) for trajectory in trajectories)
        if ready or closed or moved:
            ordered = sorted(ready.values(), key=lambda trajectory: (trajectory.started, trajectory.id))
            self._write(ordered, closed, at, erasures)
        else:
            self.progress = self._progress(at)
        return len(ready)

    def _progress(self, at: float, closed: frozenset[str | bytes] = frozenset()) -> AssemblyProgress:
        """How far it has come, once `closed` are written."""
        due = [run.check for key, run in self._open.items() if run.check <= at and key not in closed]
        batch = self._feed.next()
        if batch is not None:
            due.append(batch.at)
        waiting = len(self._open) - len(closed)
        return AssemblyProgress(self._after, waiting, len(due), min(due, default=None))

    def _assembled(
        self, keys: Sequence[str | bytes], now: float
    ) -> Iterator[tuple[str | bytes, list[Trajectory]]]:
        """The trajectories of each run that is complete."""
        fresh: list[tuple[str | bytes, list[Trajectory]]] = []
        runs = list(self._spans(keys))
        programs = self._programs(runs)
        for key, spans, trajectory_ids in runs:
            trajectories = self._assemble(key, spans, trajectory_ids, programs, now)
            if trajectories is not None:
                fresh.append((key, trajectories))
        ids = [trajectory.id for _, trajectories in fresh for trajectory in trajectories]
        stored = {trajectory.id: trajectory for trajectory in self.store.trajectories(ids=ids)} if ids else {}
        for key, trajectories in fresh:
            merged = [_merged(trajectory, stored.get(trajectory.id)) for trajectory in trajectories]
            yield key, [trajectory for trajectory in merged if trajectory is not None]

    def _assemble(
        self,
        key: str | bytes,
        spans: list[Span],
        trajectory_ids: set[str],
        programs: dict[str, list[Trajectory]],
        now: float,
    ) -> list[Trajectory] | None:
        """The trajectories of one run; None if it is not complete yet."""
        rooted = _rooted(spans)
        run = self._open[key]
        traced = any(span.encoding != CALL for span in spans)
        patience = self.patience if traced else min(self.patience, UNTRACED)
        if not rooted and now < run.arrived + patience:
            run.check = run.arrived + patience
            return None
        # The program's own traced calls with the gateway's record of their model calls, and the other spans.
        joined, unjoined = join(programs[key], spans) if key in programs else ([], spans)
        # Not where the gateway's calls are: what they tell of agents and tools is added to the steps.
        rows = not any(span.encoding == CALL for span in unjoined)
        surveyed = survey(unjoined, rows=rows).trajectories
        trajectories = [read for read in surveyed if read.id in trajectory_ids]
        if joined:  # what was written of the run before may have nothing of its own left
            self._empty += trajectory_ids - {written.id for written in (*trajectories, *joined)}
        if not rooted:
            trajectories = [_noted(trajectory, NO_ROOT) for trajectory in trajectories]
        return [*joined, *trajectories]

    def _programs(
        self, runs: Sequence[tuple[str | bytes, list[Span], set[str]]]
    ) -> dict[str, list[Trajectory]]:
        """The traced calls of each run that has gateway's calls; read together, for most runs have none."""
        called = [
            key
            for key, spans, _ in runs
            if isinstance(key, str) and any(span.encoding == CALL for span in spans)
        ]
        programs: dict[str, list[Trajectory]] = {key: [] for key in called}
        for trajectory in self.store.trajectories(ids=called) if called else ():
            # By whichever of them the record found it; nobody's note is trusted to be a text.
            names = [trajectory.id, trajectory.meta.get("run"), trajectory.meta.get("process_run")]
            for name in dict.fromkeys(name for name in names if isinstance(name, str)):
                if name in programs:
                    programs[name].append(trajectory)
        return programs

    def _spans(self, keys: Sequence[str | bytes]) -> Iterator[tuple[str | bytes, list[Span], set[str]]]:
        """Each key with all spans of the runs that it stands for, and the ids of their trajectories.

        A key is a trace or a run.  A span need not name its run where another of its trace does.  All are
        read together: the statements cost more than processing their rows.
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
            run_traces = set().union(*(traces.get(run, ()) for run in own))
            trajectory_ids = {trajectory_id(b"", run) for run in own}
            if isinstance(key, bytes):
                run_traces.add(key)
                trajectory_ids.add(trajectory_id(key, None))
            yield key, [span for trace in sorted(run_traces) for span in held[trace]], trajectory_ids

    def _read(self, traces: Sequence[bytes], held: dict[bytes, list[Span]]) -> None:
        # Each has a list even if nothing is left of it: a person may be erased between the two reads.
        held.update((trace, []) for trace in traces)
        if self._feed.last >= 0:
            held.update(self._feed.spans(self.store.spans.sizes(traces)))
        for span in self.store.spans.traces([trace for trace in traces if not held[trace]]):
            held[span.trace].append(span)

    def _write(self, ready: list[Trajectory], closed: list[str | bytes], at: float, erasures: int) -> None:
        done = frozenset(closed)
        progress = self._progress(at, done)
        waiting = [run.first for key, run in self._open.items() if key not in done]
        with self.store.batch() as batch:
            batch.as_of(erasures)
            for trajectory in ready:
                batch.put_row(storable_row(trajectory), replace=True)
                batch.add_feedback(*trajectory.feedback)
            batch.withdraw(*self._empty)
            # Up to the oldest run that waits: a restart reads on from there, and `_merged` drops repeats.
            batch.put_state(CURSOR, min([*(first - 1 for first in waiting), self._after]))
            batch.put_state(PROGRESS, msgspec.to_builtins(progress))
        self.progress = progress
        self._empty.clear()
        for key in closed:  # only now: what could not be written stays open
            self._feed.drop(self._open.pop(key).traces)
            self._revisions[key] = self._revisions.get(key, 0) + 1
        # Forgetting costs one early revision: the quiet time of that run begins anew.
        while len(self._revisions) > 10_000:
            del self._revisions[next(iter(self._revisions))]


def _merged(fresh: Trajectory, before: Trajectory | None) -> Trajectory | None:
    """The trajectory with the scores and outcome of its previous revision; None if nothing has changed."""
    if before is None:
        return fresh
    # What somebody judged of the run stays: a late span may not undo it.
    judged = before.outcome if before.outcome in (Outcome.SUCCESS, Outcome.FAILURE) else fresh.outcome
    revised = replace(fresh, scores=before.scores, outcome=judged)
    try:
        # Feedback is added by others, in its own table: it makes no revision.
        same = encode(replace(revised, feedback=before.feedback)) == encode(before)
    except InputError:
        same = False
    return None if same else revised


def _rooted(spans: Sequence[Span]) -> bool:
    """True if a root is there and has ended; a gateway's call without a parent is one."""
    return any(not span.parent and span.ended and not span.encoding.startswith("log") for span in spans)


def _resource(context: bytes) -> bytes:
    """The resource in a span's context: the program that sent it, whatever its scope."""
    if context[:1] == b"{":
        return context.partition(b',"scope":')[0]
    for number, kind, at, end in fields(context, 0, len(context)):
        if number == 1 and kind == LENGTH:
            return context[at:end]
    return b""


def _noted(trajectory: Trajectory, note: str) -> Trajectory:
    notes = trajectory.meta.get("notes")
    return replace(trajectory, meta={**trajectory.meta, "notes": [*(notes or ()), note]})
