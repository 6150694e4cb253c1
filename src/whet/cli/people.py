"""`whet feedback`, `whet erase` and `whet retain`: people's feedback, and deletion from the record."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from cyclopts import Parameter

from ..errors import InputError, NotFoundError
from .conversation import spoken
from .root import Print, Record, command, content_of, counted, existing, print_json, say_redacted

if TYPE_CHECKING:
    from ..record.store import Erased


THUMBS = {"up": 1.0, "+1": 1.0, "1": 1.0, "👍": 1.0, "down": -1.0, "-1": -1.0, "👎": -1.0, "undo": 0.0}
"""Words for a thumb. 0 is none of them: some count it as a thumb down, others as none."""


@command("feedback")
def feedback(
    run: str | None = None,
    /,
    *said: Annotated[str, Parameter(allow_leading_hyphen=True)],
    store: Record,
    value: float | None = None,
    comment: str = "",
    correction: Annotated[str | None, Parameter(name=("--correction", "--correct"))] = None,
    correction_file: Path | None = None,
    kind: Literal["thumb", "rating", "correction", "demonstration", "preference", "comment"] | None = None,
    step: str | None = None,
    session: str | None = None,
    json: Print = False,
) -> int:
    """Record a person's feedback on a run: a thumb, a correction, or a comment.

    For example: whet feedback RUN down --store runs.db --correct "Paris, not Rome". From then on, rows, tasks and
    rewards take it into account. Works whether or not the server is running.

    Parameters
    ----------
    run
        Id of the run or trajectory, as whet show trajectories prints it. Feedback on a run that is not recorded yet is
        kept until the run arrives.
    said
        up or down, as 1 and -1 are too; undo, which takes the thumbs before it back; or a comment in words, also behind
        a thumb.
    value
        A thumb, 1 or -1, or any other number as a rating. A rating of 0 needs --kind rating.
    comment
        A comment.
    correction
        The right answer, as text.
    correction_file
        The right answer as a file: JSON if the name ends in .json, else text. For a preference it holds
        {"chosen": ..., "rejected": ...}.
    kind
        Kind of feedback. If omitted, it follows from the other options: a thumb or rating, a correction, or a comment.
    step
        Id of a step of the run, if the feedback is about that step.
    session
        Id of a conversation, if the feedback is about that instead of a run.
    """
    from msgspec import UNSET

    from ..record.store import Store
    from ..record.tracing.labels import check_feedback, feedback_kind
    from ..types import Feedback

    if correction is not None and correction_file is not None:
        raise InputError("give either --correction or --correction-file")
    thumb, words = _thumb_and_words(said)
    if (thumb is not None and value is not None) or (words and comment):
        raise InputError(f"{' '.join(said)!r} is feedback already: leave out --value and --comment")
    if thumb is not None:
        value, kind = thumb, kind or "thumb"
    comment = comment or words
    answer = content_of(correction_file) if correction_file is not None else correction
    corrects = correction is not None or correction_file is not None
    if corrects and answer is None:
        kind = kind or "correction"  # the file says null, and nobody writes one to say nothing
    entry = Feedback(
        run=run or "",
        value=value,
        comment=comment,
        correction=answer,
        kind=feedback_kind(kind, value, answer if corrects else UNSET),
        step=step,
        session=session,
    )
    check_feedback(entry)
    with Store(existing(store)) as opened:
        with opened.batch() as batch:
            batch.add_feedback(entry)
        recorded = run is None or bool(next(opened.trajectories(ids=[run], limit=1), None))
    if json:
        print_json({**msgspec.to_builtins(entry), "recorded": recorded})
        return 0
    late = (
        ""
        if recorded
        else f"; no run {run} is recorded in {store} yet: the feedback is kept and joins it when it arrives. If the id "
        "is mistyped, whet show trajectories lists those that are there"
    )
    print(f"{store}: {spoken(entry)} on {run or session} ({entry.id}){late}")
    say_redacted(batch.redacted)
    return 0


def _thumb_and_words(said: Sequence[str]) -> tuple[float | None, str]:
    """A thumb, if that comes first, and the words behind it.

    Raises:
        InputError: a number that is no thumb: a comment `0` is what nobody means.
    """
    first = said[0].strip().casefold() if said else ""
    if first in THUMBS:
        return THUMBS[first], " ".join(said[1:]).strip()
    words = " ".join(said).strip()
    try:
        float(words)
    except ValueError:
        return None, words
    raise InputError(
        f"{words!r} is not a thumb: say up or down (or undo); a rating is --value {words} --kind rating"
    )


@command("erase")
def erase(subject: str, /, *, store: Path, data: tuple[Path, ...] = (), json: Print = False) -> int:
    """Delete everything that came from a person, and list what remains.

    Works whether or not the server is running. Versions that were made from it are marked, not changed. Exits 0 also
    if there was nothing to delete.

    Parameters
    ----------
    subject
        Id of the person, as recorded with their runs.
    store
        The record.
    data
        A file of rows, tasks or trajectories (JSON Lines), or a folder of such files, such as whet_data. Rows that came
        from a run that is or was erased are deleted from it. May be repeated.
    """
    from ..record.lineage import forget
    from ..record.store import Store

    existing(store)
    for path in data:  # before anything is deleted
        if not path.exists():
            raise NotFoundError(f"there is nothing at {path}: give a file of rows, or a folder of such files")
    with Store(store) as opened:
        erased = opened.erase(subject)
        files = forget(data, opened.erased()) if data else []
    if json:
        report = {**msgspec.to_builtins(erased), "files": msgspec.to_builtins(files)}
        print_json(report)
        return 0
    _say(erased, f"{store} holds nothing that came from {subject!r}")
    for file in files:
        if file.rows:
            print(f"{file.path}: {counted(file.rows, 'row')} deleted, {file.left:,} left")
        if file.unnamed:
            print(
                f"remains: {file.path} has {counted(file.unnamed, 'row')} that do not name the run they came from"
            )
    return 0


@command("retain")
def retain(
    *, store: Path, days: float, keep: str = "feedback,experiment,lineage", json: Print = False
) -> int:
    """Delete runs older than a number of days.

    Parameters
    ----------
    store
        The record.
    days
        Age from which runs, with their feedback and spans, are deleted.
    keep
        Runs to keep whatever their age, separated by commas: those with feedback, those of an experiment, and those
        that a Version was made from (lineage).
    """
    from ..record.store import Store

    with Store(existing(store)) as opened:
        erased = opened.retain(days=days, keep=[word for word in keep.split(",") if word])
    if json:
        print_json(erased)
        return 0
    _say(erased, f"nothing that may be deleted is older than {days:g} days")
    return 0


def _say(erased: Erased, nothing: str) -> None:
    figures = {name: value for name, value in msgspec.to_builtins(erased).items() if isinstance(value, int)}
    for name, value in figures.items():
        if value:
            print(f"{name:16} {value:>10,}")
    if not any(figures.values()):
        print(nothing)
    for version in erased.versions:
        print(f"marked version {version}")
    for line in erased.remains:
        print(f"remains: {line}")
