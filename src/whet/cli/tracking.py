"""`whet export mlflow` and `whet export wandb`: what training measured, to where people watch runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from . import exchange as exchange  # adds `export`, which these are commands of
from .app import app, counted, existing

if TYPE_CHECKING:
    from ..data.tracking import TrackedRun


@app["export"].command(name="mlflow")
def mlflow(
    runs: Sequence[Path] = (),
    /,
    *,
    store: Path | None = None,
    output: str,
    experiment: str = "whet",
    json: bool = False,
) -> int:
    """Write the metrics of training to MLflow: a folder of its own, or a tracking server. Needs the extra mlflow.

    Exporting a run again, while it trains too, brings it up to date. mlflow ui --backend-store-uri OUTPUT shows a
    folder; MLflow 3 reads it with MLFLOW_ALLOW_FILE_STORE=true in its environment, or moves it into its database once
    with mlflow migrate-filestore.

    Parameters
    ----------
    runs
        Output folders of whet train.
    store
        Export every Experiment.improve that is recorded here.
    output
        A folder such as mlruns, made if it does not exist; or a tracking URI, such as http://localhost:5000, or a
        database where the whole of mlflow is installed.
    experiment
        Name of the experiment that the runs belong to.
    json
        Print one JSON object.
    """
    from ..data.tracking import write_mlflow

    return _said(
        [(run, write_mlflow(run, output, experiment=experiment)) for run in _found(runs, store)], json
    )


@app["export"].command(name="wandb")
def wandb(
    runs: Sequence[Path] = (),
    /,
    *,
    store: Path | None = None,
    output: Path,
    project: str = "whet",
    json: bool = False,
) -> int:
    """Write the metrics of training as offline runs of W&B; wandb sync uploads them. Needs the extra wandb.

    Parameters
    ----------
    runs
        Output folders of whet train.
    store
        Export every Experiment.improve that is recorded here.
    output
        Folder in which W&B's folder wandb is, or is made.
    project
        W&B's project.
    json
        Print one JSON object.
    """
    from ..data.tracking import write_wandb

    return _said([(run, write_wandb(run, output, project=project)) for run in _found(runs, store)], json)


def _found(folders: Sequence[Path], store: Path | None) -> list[TrackedRun]:
    from ..data.tracking import of_folder, of_store
    from ..errors import InputError
    from ..store import Store

    if not folders and store is None:
        raise InputError("name the output folders of whet train, or a record with --store")
    tracked = [of_folder(folder) for folder in folders]
    if store is not None:
        existing(store)
        with Store(store) as opened:
            tracked += of_store(opened)
    return tracked


def _said(written: Sequence[tuple[TrackedRun, Path | str]], json: bool) -> int:
    if json:
        rows = [
            {"run": run.id, "name": run.name, "points": len(run.points), "folder": str(folder)}
            for run, folder in written
        ]
        print(msgspec.json.encode({"runs": rows}).decode())
    else:
        for run, folder in written:
            print(f"{folder}: {run.name}, {counted(len(run.points), 'point')}, {run.status}")
    return 0 if written else 1
