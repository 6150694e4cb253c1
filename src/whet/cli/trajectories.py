"""`whet show trajectories`: what was captured, one JSON object a line."""

from __future__ import annotations

import sys
import time
from datetime import datetime

import msgspec

from ..types import Trajectory
from . import record  # noqa: F401 - `whet show`, which this is a part of
from .app import AtLeastOne, Record, app, counted, existing


@app["show"].command
def trajectories(
    *,
    store: Record,
    run: str | None = None,
    since: str | None = None,
    session: str | None = None,
    subject: str | None = None,
    limit: AtLeastOne | None = None,
    json: bool = False,
) -> int:
    """Print the trajectories of a store, in the order in which they were recorded.

    Parameters
    ----------
    store
        The file.
    run
        Only this run, trajectory or trace.
    since
        Only what began then or later: Unix seconds, a date, or a date with a time (ISO 8601).
    session
        Only those of this conversation.
    subject
        Only those of this person.
    limit
        At most this many.
    json
        Print one JSON object a line: what was asked, outcome, error, feedback and steps, with everything
        that was captured.
    """
    from ..errors import NotFoundError
    from ..store import Store
    from ..tracing.dialects import form
    from ..tracing.signals import hear

    existing(store)
    with Store(store) as opened:
        hear(opened)
        ids = None if run is None else [run]
        found = 0
        for each in opened.trajectories(
            ids=ids, since=_moment(since), session=session, subject=subject, limit=limit
        ):
            found += 1
            if json:
                sys.stdout.buffer.write(msgspec.json.encode(form(each)) + b"\n")
            else:
                print(_line(each))
        sys.stdout.flush()
    if run is not None and not found:
        raise NotFoundError(
            f"{store} holds no trajectory, run or trace {run!r}. Leave out --run to list all."
        )
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
            f"--since {text!r} is no time. Give Unix seconds, 2026-01-31 or 2026-01-31T12:00:00."
        ) from None


def _line(trajectory: Trajectory) -> str:
    begun = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(trajectory.started))
    asked = " ".join(trajectory.task.instruction.split()) or trajectory.task.id
    shown = asked if len(asked) <= 50 else asked[:47] + "..."
    steps = counted(len(trajectory.steps), "step")
    error = trajectory.error
    why = "" if error is None else f"  ({' '.join(f'{error.type}: {error.message}'.split())[:80]})"
    return f"{begun}  {trajectory.id:32}  {trajectory.outcome:20}  {steps:>9}  {shown}{why}"
