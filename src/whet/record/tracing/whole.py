"""Traces that arrive whole: read in the request that brings them, so that spans and Trajectory are one commit.

Most runs are shorter than the five seconds or 512 spans that an exporter collects, and come in one request.  A trace
is whole if a root of it has ended and every parent is there.  Whether it is also new is for the assembler to say: this
module looks at the spans that it is given, and neither reads nor writes the record.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ...errors import InputError
from ...types import Json, Outcome, Span, Task, Trajectory
from ..store.batch import trajectory_row
from ..store.group_commit import Value
from .dialects import survey

_OF_EXPORTERS = frozenset({"span", "span+json"})


class WholeTrace(NamedTuple):
    """A trace of which nothing seems to be missing."""

    trace: bytes
    row: tuple[Value, ...] | None
    """Its Trajectory as `trajectory_row` gives it; None if it holds no step."""

    @property
    def size(self) -> int:
        """Bytes of the Trajectory."""
        body = None if self.row is None else self.row[-1]
        return len(body) if isinstance(body, bytes) else 0


def read_whole(spans: Sequence[Span]) -> list[WholeTrace]:
    """The traces among the spans of one request that are whole, each with its Trajectory."""
    traces = []
    for trace, group in by_trace(spans).items():
        if is_whole(group):
            trajectories = survey(group, rows=True).trajectories
            traces.append(WholeTrace(trace, storable_row(trajectories[0]) if trajectories else None))
    return traces


def by_trace(spans: Iterable[Span]) -> dict[bytes, list[Span]]:
    """Spans by their traces."""
    groups: dict[bytes, list[Span]] = {}
    for span in spans:
        group = groups.get(span[0])
        if group is None:
            groups[span[0]] = [span]
        else:
            group.append(span)
    return groups


def is_whole(spans: Sequence[Span]) -> bool:
    """True if a root and every parent of these spans of one trace are among them, and all have ended.

    A trace that names a run is never whole: other traces, and calls through the gateway, may be of that run.
    """
    ids = {span.id for span in spans}
    rooted = False
    for span in spans:
        if span.run is not None or not span.ended or span.encoding not in _OF_EXPORTERS:
            return False
        if not span.parent:
            rooted = True
        elif span.parent not in ids:
            return False
    # An id that comes twice is for the record to decide: it keeps the first.
    return rooted and len(ids) == len(spans)


def storable_row(trajectory: Trajectory) -> tuple[Value, ...]:
    """The columns of a trajectory, or of a placeholder where it cannot be written as JSON."""
    try:
        return trajectory_row(trajectory)
    except InputError as exception:
        return trajectory_row(_unstorable(trajectory, exception))


def _unstorable(trajectory: Trajectory, exception: InputError) -> Trajectory:
    """A placeholder for a run that cannot be written as JSON; its spans hold everything."""
    identity: dict[str, Json] = {
        key: trajectory.meta[key] for key in ("source", "run") if key in trajectory.meta
    }
    return Trajectory(
        task=Task(meta={"source": trajectory.meta.get("source", "otlp")}),
        id=trajectory.id,
        trace_ids=trajectory.trace_ids,
        outcome=Outcome.INVALID,
        started=trajectory.started,
        seconds=trajectory.seconds,
        meta={**identity, "unread": len(trajectory.steps) or 1, "notes": [str(exception)]},
    )
