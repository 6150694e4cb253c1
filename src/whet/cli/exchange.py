"""`whet export` and `whet import`: trajectories to the files of other programs, and from files."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from .app import Record, app, counted, existing
from .named import judged

if TYPE_CHECKING:
    from ..data.exports import Exported
    from ..types import Preference, Task, Trajectory

Format = Literal["whet", "published", "trl-sft", "trl-kto", "trl-dpo", "trl-prompts", "verl"]


@app.command(name="export")
def export(
    format: Format,
    /,
    *,
    store: Record,
    output: Path,
    score: str | None = None,
    reward_function: str | None = None,
    source: str = "whet",
    json: bool = False,
) -> int:
    """Write trajectories as a dataset that another program reads, one JSON object a line.

    whet and published give back whole trajectories, in our own and in the published form. The others are datasets
    of TRL (conversational) and verl; a run goes into trl-sft if it went well, into trl-kto with its verdict, and
    into trl-dpo beside another run of the same task that went the other way. Exits with 1 and writes no file
    if nothing was left.

    Parameters
    ----------
    format
        What to write.
    store
        The file to read.
    output
        The file to write: .jsonl, or .parquet for verl (needs the extra parquet).
    score
        The score that says whether a run went well, from 0.5; by default its outcome, else its thumbs.
    reward_function
        A reward to say so instead, as module:function; whet.reward:rated is the last value that people gave.
    source
        For verl: the data_source by which its reward function is found.
    json
        Print one JSON object instead of sentences.
    """
    from ..errors import InputError
    from ..store import Store
    from ..tracing.signals import hear

    existing(store)
    if output.exists():
        raise InputError(f"{output} exists; name a file that does not")
    if score is not None and reward_function is not None:
        raise InputError("give --score for one that was recorded, or --reward-function for one to give now")
    with Store(store) as opened:
        hear(opened)
        runs: Iterable[Trajectory] = opened.trajectories()
        if reward_function is not None:
            runs, score, _ = judged(list(runs), reward_function)
        made = _made(format, runs, opened.preferences(), score=score, source=source)
    if made.rows:  # else the next attempt, with a reward perhaps, would find a file in its way
        output.parent.mkdir(parents=True, exist_ok=True)
        _write(made.rows, output)
    if json:
        file = str(output) if made.rows else None
        result = {"rows": len(made.rows), "left_out": dict(made.left_out), "file": file}
        print(msgspec.json.encode(result).decode())
    else:
        print(f"{output}: {counted(len(made.rows), 'row')}{'' if made.rows else ', so it was not written'}")
        for reason, count in made.left_out.most_common():
            print(f"left out: {count} x {reason}")
    return 0 if made.rows else 1


def _made(
    format: Format,
    runs: Iterable[Trajectory],
    preferences: Iterable[Preference],
    *,
    score: str | None,
    source: str,
) -> Exported:
    from ..data import exports
    from ..data.formats import trajectory_to_json
    from ..store.codec import encode

    worth = exports.worth_of(score)
    match format:
        case "whet":
            return exports.Exported([encode(run) for run in runs])  # type: ignore[misc]
        case "published":
            return exports.Exported([trajectory_to_json(run) for run in runs])
        case "trl-sft":
            return exports.sft(runs, worth)
        case "trl-kto":
            return exports.kto(runs, worth)
        case "trl-dpo":
            return exports.dpo(runs, worth, preferences)
        case "trl-prompts":
            return exports.prompts(runs)
        case "verl":
            return exports.verl(runs, source=source)


def _write(rows: Sequence[Any], output: Path) -> None:
    if output.suffix == ".parquet":
        _parquet(rows, output)
        return
    lines = (row if isinstance(row, bytes) else msgspec.json.encode(row) for row in rows)
    output.write_bytes(b"".join(line + b"\n" for line in lines))


def _parquet(rows: Sequence[Any], output: Path) -> None:
    from ..errors import InputError, MissingExtra

    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtra("pyarrow", "parquet") from error
    try:
        table = pyarrow.Table.from_pylist(rows)
        pyarrow.parquet.write_table(table, output)
    except (pyarrow.ArrowException, TypeError) as error:
        output.unlink(missing_ok=True)
        raise InputError(f"these rows have no common columns, so {output.name} cannot be: {error}") from error


@app.command(name="import")
def import_(files: Sequence[Path], /, *, store: Record, json: bool = False) -> int:
    """Record the trajectories of files, one JSON object a line, in our own or in the published form.

    One whose id is stored already is left as it is, so importing a file twice changes nothing. Secrets are taken
    out before anything is stored, as with all that is recorded; what held one is marked untrainable. A run in the
    published form names its task; of one that the store knows (whet tasks add) it gets question and answer.

    Parameters
    ----------
    files
        What to read.
    store
        The record; made if it does not exist.
    json
        Print one JSON object.
    """
    from ..data.formats import read_trajectories
    from ..errors import InputError
    from ..store import Store
    from ..tracing.redact import Redactor

    if not files:
        raise InputError("name at least one file with a trajectory as JSON on each line")
    # All of them first: a bad line records nothing.
    redactor = Redactor()
    tasks = _tasks(store)
    found = [redactor.trajectory(run) for file in files for run in read_trajectories(file, tasks)]
    if not found:
        named = ", ".join(map(str, files))
        raise InputError(f"{named}: no trajectory; give one as JSON on each line")
    with Store(store) as opened:
        before = opened.count("trajectories")
        opened.put(*found)
        new = opened.count("trajectories") - before
    if json:
        result = {"read": len(found), "recorded": new, "redacted": redactor.counts}
        print(msgspec.json.encode(result).decode())
    else:
        known = f", {len(found) - new} known already" if new < len(found) else ""
        print(f"{store}: {counted(new, 'trajectory')} recorded{known}", file=sys.stdout)
        for rule, count in redactor.counts.items():
            print(f"redacted: {count} x {rule}")
    return 0


def _tasks(store: Path) -> dict[str, Task]:
    """The tasks that a store knows, if there is one, by id."""
    from ..store import Store

    if not store.exists():
        return {}
    with Store(store) as opened:
        return {task.id: task for task in opened.tasks()}
