"""`whet show trajectories`: the recorded runs, one per line."""

from __future__ import annotations

import sys
import time
from datetime import datetime

import msgspec

from ..types import Trajectory
from . import record  # noqa: F401 - `whet show`, which this is a part of
from .app import AtLeastOne, Print, Record, app, counted, existing


@app["show"].command
def trajectories(
    *,
    store: Record,
    run: str | None = None,
    since: str | None = None,
    session: str | None = None,
    subject: str | None = None,
    limit: AtLeastOne | None = None,
    json: Print = False,
) -> int:
    """List the recorded runs of a store, in the order of recording.

    Parameters
    ----------
    run
        Only this run, trajectory or trace.
    since
        Only runs that began then or later: Unix seconds, a date, or a date with a time (ISO 8601).
    session
        Only runs of this conversation.
    subject
        Only runs of this person.
    limit
        At most this many runs.
    json
        Print one JSON object per line: task, outcome, error, feedback and steps, with everything that was captured.
    """
    from ..errors import NotFoundError
    from ..store import Store
    from ..tracing.dialects import form
    from ..tracing.signals import hear

    existing(store)
    with Store(store) as opened:
        hear(opened)
        ids = None if run is None else [run]
        count = 0
        for trajectory in opened.trajectories(
            ids=ids, since=_moment(since), session=session, subject=subject, limit=limit
        ):
            count += 1
            if json:
                sys.stdout.buffer.write(msgspec.json.encode(form(trajectory)) + b"\n")
            else:
                print(_line(trajectory))
        sys.stdout.flush()
    if run is not None and not count:
        raise NotFoundError(f"{store} holds no trajectory, run or trace {run!r}. Omit --run to list all.")
    return 0


def _moment(text: str | None) -> float | None:
    from ..errors import InputError

    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise InputError(
            f"--since {text!r} is not a time. Give Unix seconds, 2026-01-31 or 2026-01-31T12:00:00."
        ) from None


def _line(trajectory: Trajectory) -> str:
    started = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(trajectory.started))
    task = " ".join(trajectory.task.instruction.split()) or trajectory.task.id
    shown = task if len(task) <= 50 else task[:47] + "..."
    steps = counted(len(trajectory.steps), "step")
    error = trajectory.error
    why = "" if error is None else f"  ({' '.join(f'{error.type}: {error.message}'.split())[:80]})"
    return f"{started}  {trajectory.id:32}  {trajectory.outcome:20}  {steps:>9}  {shown}{why}"
