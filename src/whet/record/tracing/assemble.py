"""From spans as they arrive to Trajectories in the record.

A Trajectory is written when its root has ended and nothing of it has arrived for `grace` seconds.  A
span that comes later makes a new revision under the same id; the record keeps the one before, and what
was judged of it stays.  Where a root never arrives (it belongs to a service that sends its spans
elsewhere) the run is written after `patience` seconds, with a note.

It keeps its place in the record, so that a process that was killed resumes there.  It judges
nothing, and forgets a run as soon as it is written.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from ...errors import InputError, StoreError
from ...types import Json, Outcome, Span, Step, Task, Trajectory
from ..store import Store
from ..store.codec import encode
from ..store.erasure import ERASURES
from .dialects import survey, trajectory_id
from .dialects.calls import ENCODING as CALL
from .record import STARTED
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
    """The reason why the last step could not be written, None if it could."""
    _after: int = -1
    _recorded: int = -1
    """`seq` of the last trajectory that was looked at."""
    _open: dict[str | bytes, _Open] = field(default_factory=dict)
    _empty: list[str] = field(default_factory=list)
    """Trajectories of which every step is in another one now."""
    _revisions: dict[str | bytes, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def step(self, now: float | None = None) -> int:
        """Write the runs that are complete at `now` (Unix seconds); how many were written.

        No more than `TOGETHER` runs are read and committed at once; the next step goes on.

        Raises:
            StoreError: they could not be written; the next step retries.
        """
        with self._lock:
            at = time.time() if now is None else now
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

        A record that cannot be written (a full disk) ends nothing: `failure` holds the reason until it can.
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
            self._write(ordered, closed, erasures)
        return len(ready)

    def _look(self, now: float) -> bool:
        """Note the arrivals since the last time; True if there were any."""
        if self._after < 0:
            cursor = self.store.state(CURSOR, 0)
            self._after = cursor if isinstance(cursor, int) and cursor >= 0 else 0
        before = self._after
        self._look_at_traced(now)
        while (room := min(1000, self.most - len(self._open))) > 0:
            page = self.store.spans.touched(self._after, limit=room)
            if not page:
                break
            for arrival in page:
                key = arrival.trace if arrival.run is None else arrival.run
                run = self._open.setdefault(key, _Open(arrival.seq, arrival.arrived, 0.0))
                run.arrived = max(run.arrived, arrival.arrived)
                # Each revision waits twice as long, so that a run of an hour has few of them.
                quiet = min(self.grace * 2 ** self._revisions.get(key, 0), self.patience)
                # min: arrivals are stamped by the wall clock, and lie ahead after it was set back.
                run.check = min(run.arrived, now) + quiet
                self._after = arrival.seq
        return self._after > before

    def _assembled(
        self, keys: Sequence[str | bytes], now: float
    ) -> Iterator[tuple[str | bytes, list[Trajectory]]]:
        """The trajectories of each run that is complete."""
        fresh: list[tuple[str | bytes, list[Trajectory]]] = []
        for key, spans, trajectory_ids in self._spans(keys):
            trajectories = self._assemble(key, spans, trajectory_ids, now)
            if trajectories is not None:
                fresh.append((key, trajectories))
        ids = [trajectory.id for _, trajectories in fresh for trajectory in trajectories]
        stored = {trajectory.id: trajectory for trajectory in self.store.trajectories(ids=ids)} if ids else {}
        for key, trajectories in fresh:
            merged = [_merged(trajectory, stored.get(trajectory.id)) for trajectory in trajectories]
            yield key, [trajectory for trajectory in merged if trajectory is not None]

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
        # A search in the bytes: to decode each body costs more than the rest of the step.
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
        self, key: str | bytes, spans: list[Span], trajectory_ids: set[str], now: float
    ) -> list[Trajectory] | None:
        """The trajectories of one run; None if it is not complete yet."""
        rooted = _rooted(spans)
        run = self._open[key]
        traced = any(span.encoding != CALL for span in spans)
        patience = self.patience if traced else min(self.patience, UNTRACED)
        if not rooted and now < run.arrived + patience:
            run.check = run.arrived + patience
            return None
        joined, unjoined = self._joined(key, spans)
        trajectories = [read for read in survey(unjoined).trajectories if read.id in trajectory_ids]
        if joined:  # what was written of the run before may have nothing of its own left
            self._empty += trajectory_ids - {written.id for written in (*trajectories, *joined)}
        if not rooted:
            trajectories = [_noted(trajectory, NO_ROOT) for trajectory in trajectories]
        return [*joined, *trajectories]

    def _joined(self, key: str | bytes, spans: list[Span]) -> tuple[list[Trajectory], list[Span]]:
        """The program's own traced calls with the gateway's record of their model calls, and the other spans."""
        if isinstance(key, bytes) or not any(span.encoding == CALL for span in spans):
            return [], spans
        return join(list(self.store.trajectories(ids=[key])), spans)

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
        for span in self.store.spans.traces(traces):
            held[span.trace].append(span)

    def _write(self, ready: list[Trajectory], closed: list[str | bytes], erasures: int) -> None:
        done = set(closed)
        waiting = [run.first for key, run in self._open.items() if key not in done]
        with self.store.batch() as batch:
            batch.as_of(erasures)
            for trajectory in ready:
                try:
                    batch.put(trajectory, replace=True)
                except InputError as exception:
                    batch.put(_unstorable(trajectory, exception), replace=True)
            batch.withdraw(*self._empty)
            # Up to the oldest run that waits: a restart reads on from there, and `_merged` drops repeats.
            batch.put_state(CURSOR, min([*(first - 1 for first in waiting), self._after]))
        self._empty.clear()
        for key in closed:  # only now: what could not be written stays open
            del self._open[key]
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


def _noted(trajectory: Trajectory, note: str) -> Trajectory:
    notes = trajectory.meta.get("notes")
    return replace(trajectory, meta={**trajectory.meta, "notes": [*(notes or ()), note]})


def _unstorable(trajectory: Trajectory, exception: InputError) -> Trajectory:
    """A placeholder for a run that cannot be written as JSON; its spans hold everything."""
    identity = {key: trajectory.meta[key] for key in ("source", "run") if key in trajectory.meta}
    return Trajectory(
        task=Task(meta={"source": trajectory.meta.get("source", "otlp")}),
        id=trajectory.id,
        trace_ids=trajectory.trace_ids,
        outcome=Outcome.INVALID,
        started=trajectory.started,
        seconds=trajectory.seconds,
        meta={**identity, "unread": len(trajectory.steps) or 1, "notes": [str(exception)]},
    )


# -- a program's own trajectories and the gateway's record of its model calls: one run -----------------


def join(recorded: Sequence[Trajectory], spans: Sequence[Span]) -> tuple[list[Trajectory], list[Span]]:
    """The traced calls of a run with the model calls made in them, and the other spans.

    Inside `whet run` a traced function knows its own steps and the gateway its model calls, token ids and all.  Both
    carry the run's id, and clocks of one machine tell in which call of the function a model call was made.  A rollout
    of a worker is one run with an id of its own: a model call that carries it is that rollout's, whatever the clocks
    say; one that carries the id of the queue's rollout is assigned to an attempt by time.  Where that is not certain,
    because two traced calls ran at once, the model call stays in the run's own trajectory: nothing is guessed.

    Args:
        recorded: trajectories of the run in the record; those that a decorator or a worker wrote are looked at.
        spans: all of the run.
    """
    own = [run for run in recorded if _owns(run) and run.seconds is not None]
    exported = {(span.trace, span.id) for span in spans if span.encoding != CALL}
    made_in: dict[str, list[Span]] = {}
    unjoined: list[Span] = []
    for span in spans:
        inside = [run for run in own if "worker" in run.meta and run.id == span.run]
        inside = inside or [run for run in own if _within(run, span)]
        if span.encoding == CALL and (span.trace, span.parent) not in exported and len(inside) == 1:
            made_in.setdefault(inside[0].id, []).append(span)
        else:
            unjoined.append(span)
    return [_with_calls(run, made_in[run.id]) for run in own if run.id in made_in], unjoined


def _owns(trajectory: Trajectory) -> bool:
    """True of what a decorator or a worker wrote."""
    return "function" in trajectory.meta or {"worker", "rollout"} <= trajectory.meta.keys()


def _within(trajectory: Trajectory, span: Span) -> bool:
    """True if a call began while a traced function ran; its end is measured after the agent has its answer."""
    return trajectory.started <= span.started / 1e9 <= trajectory.started + (trajectory.seconds or 0)


def _with_calls(trajectory: Trajectory, spans: Sequence[Span]) -> Trajectory:
    began = {span.id.hex(): span.started / 1e9 for span in spans}
    there = {id for step in trajectory.steps for id in (step.id, *step.info.get("span_ids", ()))}
    fresh = [span for span in spans if span.id.hex() not in there]
    steps, versions, meta = list(trajectory.steps), dict(trajectory.versions), dict(trajectory.meta)
    session, subject = trajectory.session, trajectory.subject
    # In a rollout the agent's answer is a step itself, which comes first: all that led to it is inside.
    answer = steps[0].id if "worker" in meta and steps and steps[0].kind == "action" else None
    for read in survey(fresh).trajectories:
        # A sub-agent's step, which the calls tell of, begins with its first call.
        starts = {step.id: began[step.info["span_ids"][0]] for step in read.steps if "span_ids" in step.info}
        for step in reversed(read.steps):
            if step.parent is not None and step.id in starts:
                starts[step.parent] = starts[step.id]
        for call in read.steps:
            at = starts[call.id]
            call = replace(call, info={**call.info, STARTED: at})
            index = _reported(steps, call)
            index = _innermost(steps, at, call.agent) if index is None else index
            if index is not None and _same(steps[index], call) and not _has_call(steps, index):
                steps[index] = _with_call(steps[index], call)
            else:
                around = None if index is None else steps[index]
                parent = call.parent or (answer if around is None else around.id)
                agent = call.agent or ("" if around is None else around.agent)
                steps.insert(_position(steps, at), replace(call, parent=parent, agent=agent))
        versions = {**read.versions, **versions}
        session, subject = session or read.session, subject or read.subject
        meta |= {key: read.meta[key] for key in ("redacted", "untrainable", "notes") if key in read.meta}
    return replace(
        trajectory, steps=tuple(steps), versions=versions, meta=meta, session=session, subject=subject
    )


def _reported(steps: Sequence[Step], call: Step) -> int | None:
    """The step in which a worker's agent reported this very call itself, by its token ids."""
    alike = (number for number, step in enumerate(steps) if step.tokens is not None and _same(step, call))
    return next((number for number in alike if not _has_call(steps, number)), None)


def _same(step: Step, call: Step) -> bool:
    """True if a step is the record of the call: a model call without token ids, or with those of the call."""
    if step.tokens is None or call.tokens is None:
        return step.kind == "llm"
    ours, theirs = step.tokens, call.tokens
    return [*ours.prompt_ids] == [*theirs.prompt_ids] and [*ours.output_ids] == [*theirs.output_ids]


def _began(step: Step) -> float | None:
    started = step.info.get(STARTED)
    return started if isinstance(started, float) else None


def _innermost(steps: Sequence[Step], at: float, agent: str) -> int | None:
    """The innermost step of the decorator that was open at a time: the last to begin of those.

    Args:
        agent: of the call; of several agents' steps that are open at once, its own is the one.
    """
    open_now = []
    for number, step in enumerate(steps):
        start = _began(step)
        if start is None or step.latency is None or "trace_id" in step.info:
            continue
        if start <= at <= start + step.latency:
            open_now.append(number)
    own = [number for number in open_now if agent and steps[number].agent == agent]
    return max(own or open_now, default=None)


def _has_call(steps: Sequence[Step], index: int) -> bool:
    """A step that has the record of a model call already, in itself or inside."""
    step = steps[index]
    return "span_ids" in step.info or any(inner.parent == step.id for inner in steps)


def _position(steps: Sequence[Step], at: float) -> int:
    """After every step that began before."""
    # A step without a time counts as begun: it stays where its recorder put it.
    later = (number for number, step in enumerate(steps) if (_began(step) or 0.0) > at)
    return next(later, len(steps))


def _with_call(step: Step, call: Step) -> Step:
    """A step of kind llm with the gateway's record of it; its name, reward and own notes stay."""
    info: dict[str, Json] = {**call.info, **step.info}
    return replace(
        step,
        observation=call.observation if call.observation is not None else step.observation,
        action=call.action if call.action is not None else step.action,
        tokens=call.tokens or step.tokens,
        # The step's own count goes first; of messages and tokens the gateway knows more, for it saw the wire.
        usage=step.usage or call.usage,
        error=step.error or call.error,
        agent=step.agent or call.agent,
        info=info,
    )
