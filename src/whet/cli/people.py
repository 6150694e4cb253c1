"""`whet feedback`, `whet erase` and `whet retain`: what a person said, and what is taken out of the record."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from .app import Record, app, content_of, counted, existing

if TYPE_CHECKING:
    from ..store import Erased


@app.command
def feedback(
    run: str | None = None,
    /,
    *,
    store: Record,
    value: float | None = None,
    comment: str = "",
    correction: str | None = None,
    correction_file: Path | None = None,
    kind: Literal["thumb", "rating", "correction", "demonstration", "preference", "comment"] | None = None,
    step: str | None = None,
    session: str | None = None,
    json: bool = False,
) -> int:
    """Record what a person said of a run: whet feedback RUN --store runs.db --correction "Paris, not Rome"

    Rows, tasks and rewards have it from then on. Works with the server running or not.

    Parameters
    ----------
    run
        Id of the run or trajectory, as whet show trajectories prints it; one that has not arrived yet is waited for.
    store
        The record.
    value
        A thumb, 1 or -1, or any number.
    comment
        In words.
    correction
        The answer that should have been given, as text.
    correction_file
        The same from a file: JSON if the name ends in .json, else text. In it a preference says
        {"chosen": ..., "rejected": ...}.
    kind
        By what is given, if left out: a thumb or rating, a correction, or a comment.
    step
        Id of the step of the run that is meant.
    session
        Id of the conversation that is meant, instead of a run.
    json
        Print the feedback as one JSON object.
    """
    from msgspec import UNSET

    from ..errors import InputError
    from ..store import Store
    from ..tracing.labels import check_feedback, feedback_kind
    from ..types import Feedback

    if correction is not None and correction_file is not None:
        raise InputError("give either --correction or --correction-file")
    meant = content_of(correction_file) if correction_file is not None else correction
    given = correction is not None or correction_file is not None
    if given and meant is None:
        kind = kind or "correction"  # the file says null, and nobody writes one to say nothing
    said = Feedback(
        run=run or "",
        value=value,
        comment=comment,
        correction=meant,
        kind=feedback_kind(kind, value, meant if given else UNSET),
        step=step,
        session=session,
    )
    check_feedback(said)
    existing(store)
    with Store(store) as opened:
        opened.add_feedback(said)
        known = run is None or bool(next(opened.trajectories(ids=[run], limit=1), None))
    if json:
        print(msgspec.json.encode(said).decode())
        return 0
    late = "" if known else "; no such run is recorded yet, and it is joined to it when it arrives"
    print(f"{store}: {said.kind} {said.id} of {run or session}{late}")
    return 0


@app.command
def erase(subject: str, /, *, store: Path, data: tuple[Path, ...] = (), json: bool = False) -> int:
    """Take out everything that came from a person, and say what remains.

    Works with the server running or not. Versions that were made from it are marked, not changed.
    Exits 0 when that is done, also where nothing was found.

    Parameters
    ----------
    subject
        Id of the person, as recorded with their runs.
    store
        The file.
    data
        A file of rows, tasks or trajectories (JSON Lines), or a folder with some, as whet_data is: what came
        from an erased run is taken out of it, by this erasure or one before; repeat it for several.
    json
        Print one JSON object.
    """
    from ..data.lineage import forget
    from ..errors import NotFoundError
    from ..store import Store

    existing(store)
    for path in data:  # before anything is taken out
        if not path.exists():
            raise NotFoundError(f"there is nothing at {path}: give a file of rows, or a folder with some")
    with Store(store) as opened:
        found = opened.erase(subject)
        files = forget(data, opened.erased()) if data else []
    if json:
        whole = {**msgspec.to_builtins(found), "files": msgspec.to_builtins(files)}
        print(msgspec.json.encode(whole).decode())
        return 0
    _say(found, f"{store} holds nothing that came from {subject!r}")
    for one in files:
        if one.rows:
            print(f"{one.path}: {counted(one.rows, 'row')} taken out, {one.left:,} left")
        if one.unnamed:
            print(
                f"remains: {one.path} has {counted(one.unnamed, 'row')} that do not say whose run they came from"
            )
    return 0


@app.command
def retain(*, store: Path, days: float, keep: str = "feedback,experiment,lineage", json: bool = False) -> int:
    """Take out what is older than a number of days.

    Parameters
    ----------
    store
        The file.
    days
        Age at which runs, their feedback and their spans go.
    keep
        What stays whatever its age, with commas: runs with feedback, of an experiment, or that a Version was
        made from (lineage).
    json
        Print one JSON object.
    """
    from ..store import Store

    existing(store)
    with Store(store) as opened:
        found = opened.retain(days=days, keep=[word for word in keep.split(",") if word])
    if json:
        print(msgspec.json.encode(found).decode())
        return 0
    _say(found, f"nothing that may go is older than {days:g} days")
    return 0


def _say(found: Erased, nothing: str) -> None:
    figures = {name: value for name, value in msgspec.to_builtins(found).items() if isinstance(value, int)}
    for name, value in figures.items():
        if value:
            print(f"{name:16} {value:>10,}")
    if not any(figures.values()):
        print(nothing)
    for version in found.versions:
        print(f"marked version {version}")
    for line in found.remains:
        print(f"remains: {line}")
