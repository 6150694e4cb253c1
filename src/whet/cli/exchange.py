"""`whet export` and `whet import`: trajectories to the files of other programs, and from files."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from .app import NewRecord, Print, Record, Reward, command, counted, existing, print_json
from .named import judged

if TYPE_CHECKING:
    from ..data.exports import Exported
    from ..types import Preference, Task, Trajectory

Format = Literal["whet", "published", "trl-sft", "trl-kto", "trl-dpo", "trl-prompts", "verl"]


@command("export")
def export(
    format: Format,
    /,
    *,
    store: Record,
    output: Path,
    score: str | None = None,
    reward_function: Reward = None,
    source: str = "whet",
    json: Print = False,
) -> int:
    """Write recorded runs as a dataset for another program, one JSON object per line.

    whet and published write whole trajectories, in whet's own and in the published format. The others are datasets for
    TRL (conversational) and verl: trl-sft takes the runs that went well, trl-kto all runs with their verdict, and
    trl-dpo pairs of runs of one task, one good and one bad. If no run fits, no file is written and the exit code is 1.

    Parameters
    ----------
    format
        Format of the dataset.
    output
        The file to write: .jsonl, or .parquet for verl (needs the extra parquet).
    score
        The score that decides: a run with 0.5 or more went well. If omitted, its outcome, else its thumbs.
    source
        For verl: the data_source by which verl finds its reward function.
    """
    from ..errors import InputError
    from ..store import Store
    from ..tracing.signals import hear

    existing(store)
    if output.exists():
        raise InputError(f"{output} exists; name a file that does not")
    if score is not None and reward_function is not None:
        raise InputError(
            "give --score for a recorded score, or --reward-function for a reward to compute now"
        )
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
        print_json(result)
    else:
        print(f"{output}: {counted(len(made.rows), 'row')}{'' if made.rows else ', so no file was written'}")
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
        raise InputError(
            f"these rows have no common columns, so {output.name} cannot be written: {error}"
        ) from error


@command("import")
def import_(files: Sequence[Path], /, *, store: NewRecord, json: Print = False) -> int:
    """Record the trajectories of files, one JSON object per line.

    Files may be in whet's own format or in the published one. A trajectory whose id is already stored is left as it
    is, so importing a file twice changes nothing. Secrets are removed before anything is stored, and a trajectory that
    held one is marked untrainable. A run in the published format takes question and answer from the stored task that
    it names (whet tasks add).

    Parameters
    ----------
    files
        The files to read.
    """
    from ..data.files import read
    from ..errors import InputError
    from ..store import Store
    from ..tracing.redact import Redactor

    if not files:
        raise InputError("name at least one file with a trajectory as JSON on each line")
    # All of them first: a bad line records nothing.
    redactor = Redactor()
    tasks = _tasks(store)
    found = [redactor.trajectory(run) for file in files for run in read(file, tasks)]
    if not found:
        named = ", ".join(map(str, files))
        raise InputError(f"{named}: no trajectory; give one as JSON on each line")
    with Store(store) as opened:
        before = opened.count("trajectories")
        opened.put(*found)
        new = opened.count("trajectories") - before
    if json:
        result = {"read": len(found), "recorded": new, "redacted": redactor.counts}
        print_json(result)
    else:
        known = f", {len(found) - new} already stored" if new < len(found) else ""
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
