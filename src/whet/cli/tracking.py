"""`whet export mlflow` and `whet export wandb`: the metrics of training, for tools that show them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from . import exchange as exchange  # adds `export`, which these are commands of
from .app import Print, app, counted, existing, print_json

if TYPE_CHECKING:
    from ..data.tracking import TrackedRun


@app["export"].command(name="mlflow")
def mlflow(
    runs: Sequence[Path] = (),
    /,
    *,
    store: Path | None = None,
    output: Path,
    experiment: str = "whet",
    json: Print = False,
) -> int:
    """Write the metrics of training as MLflow's files; mlflow ui --backend-store-uri OUTPUT shows them.

    MLflow need not be installed. Exporting a run again updates it, also while it trains. MLflow 3 reads such files with
    MLFLOW_ALLOW_FILE_STORE=true in its environment, or moves them into its database once with mlflow migrate-filestore.

    Parameters
    ----------
    runs
        Output folders of whet train.
    store
        Export every run of Experiment.improve in this store.
    output
        MLflow's folder, such as mlruns; created if it does not exist.
    experiment
        Name of MLflow's experiment for the runs.
    """
    from ..data.tracking import write_mlflow

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
    from ..data.tracking import write_wandb

    return _report([(run, write_wandb(run, output, project=project)) for run in _tracked(runs, store)], json)


def _tracked(folders: Sequence[Path], store: Path | None) -> list[TrackedRun]:
    from ..data.tracking import of_folder, of_store
    from ..errors import InputError
    from ..store import Store

    if not folders and store is None:
        raise InputError("name the output folders of whet train, or a record with --store")
    runs = [of_folder(folder) for folder in folders]
    if store is not None:
        existing(store)
        with Store(store) as opened:
            runs += of_store(opened)
    return runs


def _report(written: Sequence[tuple[TrackedRun, Path]], json: bool) -> int:
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
