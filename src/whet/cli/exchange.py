"""`whet export` and `whet import`: trajectories and metrics to the files of other programs, and back."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from ..errors import InputError, MissingExtra
from .named import judged, known_score, refuse_two_rewards
from .products import FROM_PRODUCT, FromProduct, import_product
from .root import NewRecord, Print, Record, Reward, app, command, counted, existing, print_json, say_redacted

if TYPE_CHECKING:
    from ..record.exchange.exports import Exported
    from ..record.exchange.tracking import TrackedRun
    from ..types import Preference, Task, Trajectory

_AT_ONCE = 500
"""Trajectories that are read and recorded at once."""
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
    from ..record.store import Store
    from ..record.tracing.signals import hear

    existing(store)
    if output.exists():
        raise InputError(f"{output} exists; name a file that does not")
    refuse_two_rewards(score, reward_function)
    with Store(store) as opened:
        hear(opened)
        known_score(opened, score)
        runs: Iterable[Trajectory] = opened.trajectories()
        if reward_function is not None:
            runs, score, _ = judged(list(runs), reward_function)
        dataset = _made(format, runs, opened.preferences(), score=score, source=source)
    if dataset.rows:  # else the next attempt, with a reward perhaps, would find a file in its way
        output.parent.mkdir(parents=True, exist_ok=True)
        _write(dataset.rows, output)
    if json:
        file = str(output) if dataset.rows else None
        result = {"rows": len(dataset.rows), "left_out": dict(dataset.left_out), "file": file}
        print_json(result)
    else:
        print(
            f"{output}: {counted(len(dataset.rows), 'row')}{'' if dataset.rows else ', so no file was written'}"
        )
        for reason, count in dataset.left_out.most_common():
            print(f"left out: {count} x {reason}")
    return 0 if dataset.rows else 1


def _made(
    format: Format,
    runs: Iterable[Trajectory],
    preferences: Iterable[Preference],
    *,
    score: str | None,
    source: str,
) -> Exported:
    from ..record.exchange import exports
    from ..record.exchange.formats import trajectory_to_json
    from ..record.store.codec import encode

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

    What another product holds comes with its own command: whet import langfuse, langsmith, phoenix or mlflow; chats
    that your own program wrote down, with whet import chats.

    Parameters
    ----------
    files
        The files to read.
    """
    from ..record.exchange.formats import read_trajectories
    from ..record.store import Store

    if not files:
        raise InputError("name at least one file with a trajectory as JSON on each line")
    # All of them first, and none kept: a bad line records nothing.
    tasks = _tasks(store)
    count = sum(1 for file in files for _ in read_trajectories(file, tasks))
    if not count:
        named = ", ".join(map(str, files))
        raise InputError(f"{named}: no trajectory; give one as JSON on each line")
    redacted: Counter[str] = Counter()
    with Store(store) as opened:
        before = opened.count("trajectories")
        runs = (run for file in files for run in read_trajectories(file, tasks))
        while portion := list(islice(runs, _AT_ONCE)):
            with opened.batch() as batch:
                batch.put(*portion)
            redacted += batch.redacted
        new = opened.count("trajectories") - before
    if json:
        print_json({"read": count, "recorded": new, "redacted": redacted})
    else:
        stored = f", {count - new} already stored" if new < count else ""
        print(f"{store}: {counted(new, 'trajectory')} recorded{stored}", file=sys.stdout)
        say_redacted(redacted)
    return 0


@app["import"].command(name="langfuse")
def langfuse(sources: Sequence[str], /, *, store: NewRecord, options: FromProduct = FROM_PRODUCT) -> int:
    """Record what Langfuse holds: traces, scores, corrections and datasets.

    Files: what its UI, its API and its export to blob storage write (JSON, JSON Lines, CSV). An address:
    LANGFUSE_PUBLIC_KEY and LANGFUSE_SECRET_KEY in the environment.

    Parameters
    ----------
    sources
        Files, folders of files, or the address of the server, such as https://cloud.langfuse.com.
    """
    return import_product("langfuse", sources, store, options)


@app["import"].command(name="langsmith")
def langsmith(sources: Sequence[str], /, *, store: NewRecord, options: FromProduct = FROM_PRODUCT) -> int:
    """Record what LangSmith holds: runs, feedback, corrections and datasets.

    Files: runs and feedback as its SDK lists them, one a line, bulk exports (Parquet), and datasets (JSON Lines, CSV).
    An address: LANGSMITH_API_KEY in the environment.

    Parameters
    ----------
    sources
        Files, folders of files, or the address of the API, such as https://api.smith.langchain.com.
    """
    return import_product("langsmith", sources, store, options)


@app["import"].command(name="phoenix")
def phoenix(sources: Sequence[str], /, *, store: NewRecord, options: FromProduct = FROM_PRODUCT) -> int:
    """Record what Arize Phoenix holds: spans, annotations and datasets.

    Files: tables of its client (Parquet, JSON Lines, CSV), or the objects of its API. An address: PHOENIX_API_KEY in
    the environment, where the server wants one.

    Parameters
    ----------
    sources
        Files, folders of files, or the address of the server, such as http://localhost:6006.
    """
    return import_product("phoenix", sources, store, options)


@app["import"].command(name="mlflow")
def from_mlflow(sources: Sequence[str], /, *, store: NewRecord, options: FromProduct = FROM_PRODUCT) -> int:
    """Record what MLflow holds: traces, assessments and evaluation datasets.

    Files: its tracking database (mlflow.db), traces as Trace.to_json writes them, or the table of search_traces. An
    address: MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and _PASSWORD in the environment, where it wants any.

    Parameters
    ----------
    sources
        Files, folders of files, or the address of the server, such as http://localhost:5000.
    """
    return import_product("mlflow", sources, store, options)


@app["import"].command(name="chats")
def chats(files: Sequence[str], /, *, store: NewRecord, options: FromProduct = FROM_PRODUCT) -> int:
    """Record chats that your own program or another agent wrote down, each one run.

    Files: JSON Lines, one JSON array, CSV or Parquet, with a chat in each row, under messages (OpenAI, Anthropic,
    LangChain), conversations (ShareGPT, ToolBench), traj (tau-bench), history (a .traj file of SWE-agent), or as a
    question and its answer (question, input, prompt; answer, output, response, completion). Ratings, thumbs, rewards
    and comments beside it become opinions, expected the right answer; everything else is kept with the run.

    Parameters
    ----------
    files
        Files, or folders of files.
    """
    return import_product("chats", files, store, options)


def _tasks(store: Path) -> dict[str, Task]:
    """The tasks that a store knows, if there is one, by id."""
    from ..record.store import Store

    if not store.exists():
        return {}
    with Store(store) as opened:
        return {task.id: task for task in opened.tasks()}


@app["export"].command(name="mlflow")
def mlflow(
    runs: Sequence[Path] = (),
    /,
    *,
    store: Path | None = None,
    output: str,
    experiment: str = "whet",
    json: Print = False,
) -> int:
    """Write the metrics of training to MLflow: to a folder, or to a tracking server. Needs the extra mlflow.

    Exporting a run again updates it, also while it trains. mlflow ui --backend-store-uri OUTPUT shows a folder; MLflow
    3 reads it with MLFLOW_ALLOW_FILE_STORE=true in its environment, or moves it into its database once with mlflow
    migrate-filestore.

    Parameters
    ----------
    runs
        Output folders of whet train.
    store
        Export every run of Experiment.improve in this store.
    output
        A folder such as mlruns, created if it does not exist; or a tracking URI, such as http://localhost:5000, or a
        database if all of mlflow is installed.
    experiment
        Name of MLflow's experiment for the runs.
    """
    from ..record.exchange.tracking import write_mlflow

    return _report(
        [(run, write_mlflow(run, output, experiment=experiment)) for run in _tracked(runs, store)], json
    )


@app["export"].command(name="wandb")
def wandb(
    runs: Sequence[Path] = (),
    /,
    *,
    store: Path | None = None,
    output: Path,
    project: str = "whet",
    json: Print = False,
) -> int:
    """Write the metrics of training as offline runs of W&B, which wandb sync uploads.

    Needs the extra wandb.

    Parameters
    ----------
    runs
        Output folders of whet train.
    store
        Export every run of Experiment.improve in this store.
    output
        Folder that holds W&B's folder wandb, which is created if it does not exist.
    project
        Name of the W&B project.
    """
    from ..record.exchange.tracking import write_wandb

    return _report([(run, write_wandb(run, output, project=project)) for run in _tracked(runs, store)], json)


def _tracked(folders: Sequence[Path], store: Path | None) -> list[TrackedRun]:
    from ..record.exchange.tracking import of_folder, of_store
    from ..record.store import Store

    if not folders and store is None:
        raise InputError("name the output folders of whet train, or a record with --store")
    runs = [of_folder(folder) for folder in folders]
    if store is not None:
        with Store(existing(store)) as opened:
            runs += of_store(opened)
    return runs


def _report(written: Sequence[tuple[TrackedRun, Path | str]], json: bool) -> int:
    if json:
        rows = [
            {"run": run.id, "name": run.name, "points": len(run.points), "folder": str(folder)}
            for run, folder in written
        ]
        print_json({"runs": rows})
    else:
        for run, folder in written:
            print(f"{folder}: {run.name}, {counted(len(run.points), 'point')}, {run.status}")
    return 0 if written else 1
