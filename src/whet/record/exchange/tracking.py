"""Metrics of training for the programs that people watch runs in: MLflow, and W&B's offline runs.

`of_folder` reads what `whet train` left, `of_store` what `Experiment.improve` did, `of_metrics` takes an
Improvement's metrics; `write_mlflow` and `write_wandb` write a run by the client of either.  A run keeps its id, so
writing it again, while it is under way too, brings the same run up to date.

It reads nothing back for its own use, and uploads nothing to W&B (`wandb sync` does).
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any, Literal

import msgspec

from ...errors import InputError, MissingExtra, NotFoundError
from ...escapes import read_json
from ...types import Json, digest
from ..store import Store

Status = Literal["running", "finished", "collapsed", "failed"]
MLFLOW_STATUS: Mapping[Status, str] = {
    "running": "RUNNING",
    "finished": "FINISHED",
    "collapsed": "FINISHED",  # an end that was reached, not a failure
    "failed": "FAILED",
}
LONGEST_PARAM = 6000
"""Characters that MLflow takes of a parameter's value."""
_RUN = "whet.run"
"""Tag by which a run is found again: MLflow gives out its own ids."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """Values at one step of one of a run's curves."""

    step: int
    time: float
    """Seconds since 1970."""
    values: Mapping[str, float]
    curve: str = ""
    """Unit of the steps: rounds if empty, else the name of the phase."""


@dataclass(frozen=True, kw_only=True)
class TrackedRun:
    """A training run, as trackers see one."""

    id: str
    """32 hexadecimal digits."""
    name: str
    params: Mapping[str, Json]
    points: Sequence[Point]
    started: float
    """Seconds since 1970."""
    ended: float | None = None
    status: Status = "finished"
    reason: str = ""


def of_folder(folder: Path) -> TrackedRun:
    """The run of an output folder of `whet train`, also one under way.

    Raises:
        NotFoundError: no such run is there.
        InputError: its files cannot be read.
    """
    record, metrics, curves = (folder / name for name in ("run.json", "metrics.jsonl", "curves.jsonl"))
    if not record.is_file():
        raise NotFoundError(f"{folder} holds no run of whet train (no run.json); give its --output folder")
    try:
        about = read_json(msgspec.json.Decoder(dict[str, Any]).decode, record.read_bytes())
        points = [
            Point(step=int(row["step"]), time=row["time"], values=_numbers(row["values"]), curve=row["curve"])
            for row in _rows(curves)
        ]
        for row in _rows(metrics):
            values = {name: value for name, value in row.items() if name not in ("round", "time")}
            points.append(
                Point(step=int(row["round"]), time=row.get("time", about["started"]), values=_numbers(values))
            )
        return TrackedRun(
            id=digest(about["id"], 32),
            name=f"{about['method']} {folder.resolve().name}",
            params={name: about[name] for name in ("method", "model", "seed", "trajectories")}
            | dict(about["settings"])
            | dict(about.get("settled") or {}),
            points=points,
            started=about["started"],
            ended=about["ended"],
            status=about["status"],
            reason=about["reason"],
        )
    except (msgspec.DecodeError, msgspec.ValidationError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{folder} is not a run of whet train: {error!r}") from error


def of_metrics(
    metrics: Sequence[Mapping[str, float]],
    *,
    name: str,
    id: str = "",
    params: Mapping[str, Json] | None = None,
    reason: str = "",
) -> TrackedRun:
    """A run from one mapping a round, such as `Improvement.metrics`.

    Rounds carry no time of day, so all of them are dated now; their step is their order.

    Args:
        id: of anything; the same one gives the same run.  The name if empty.
    """
    now = time.time()
    points = [
        Point(step=step, time=now, values=_numbers(dict(round_metrics)))
        for step, round_metrics in enumerate(metrics, start=1)
    ]
    return TrackedRun(
        id=digest(id or name, 32),
        name=name,
        params=params or {},
        points=points,
        started=now,
        ended=now,
        reason=reason,
    )


def of_store(store: Store) -> list[TrackedRun]:
    """Every `Experiment.improve` that is recorded there, up to its last checkpoint if it is under way."""
    runs = []
    for key, body in store.database.rows(
        "SELECT key, body FROM states WHERE key LIKE '%/improve/%' ORDER BY key"
    ):
        saved = msgspec.json.decode(body)
        if isinstance(saved, dict) and isinstance(saved.get("metrics"), list):
            experiment, _, optimizer = str(key).partition("/improve/")
            runs.append(
                of_metrics(
                    saved["metrics"],
                    name=str(key),
                    id=f"{Path(store.path).resolve()}#{key}",
                    params={"experiment": experiment, "optimizer": optimizer},
                    reason=str(saved.get("reason", "")),
                )
            )
    return runs


def write_mlflow(run: TrackedRun, target: str, *, experiment: str = "whet") -> str:
    """Write a run by MLflow's client, or bring it up to date if it is there.

    Parameters that MLflow has of a run stay as they are, since it never changes one; so do tags and notes given there.

    Args:
        target: a folder, as `mlflow ui --backend-store-uri` shows it, or a tracking URI: of a server, or of a database
            where the whole of mlflow is installed.

    Returns:
        The run's folder, its page on a server, or its id in a database.

    Raises:
        MissingExtra: mlflow is not installed.
        InputError: MLflow cannot write there.
    """
    # Read when mlflow is imported: it reports its use to its makers otherwise.
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    # It prints the address of each run on a server, into what --json prints too.
    os.environ["MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT"] = "true"
    try:
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param, RunTag
        from mlflow.exceptions import MlflowException
    except ImportError as error:
        raise MissingExtra("mlflow", "mlflow") from error
    local = "://" not in target
    if local:
        # MLflow 3 opens no folder without it; mlflow-skinny opens no database.
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
    try:
        client = MlflowClient(Path(target).resolve().as_uri() if local else target)
        existing = client.get_experiment_by_name(experiment)
        parent = existing.experiment_id if existing is not None else client.create_experiment(experiment)
        runs = client.search_runs([parent], f"tags.`{_RUN}` = '{run.id}'", max_results=1)
        tracked = runs[0] if runs else client.create_run(parent, round(run.started * 1000), run_name=run.name)
        id = tracked.info.run_id
        tags = {
            _RUN: run.id,
            "mlflow.source.type": "LOCAL",
            "whet.status": run.status,
            "whet.reason": run.reason,
        }
        client.log_batch(id, tags=[RunTag(name, text) for name, text in tags.items() if text])
        # Its parameters never change and its curves only grow: a second value would be refused, a second point kept.
        params = {_key(name): text[:LONGEST_PARAM] for name, text in _flat(run.params).items()}
        fresh = [Param(name, text) for name, text in params.items() if name not in tracked.data.params]
        for start in range(0, len(fresh), 100):  # MLflow takes so many at once
            client.log_batch(id, params=fresh[start : start + 100])
        logged = {
            (name, point.step, point.value)
            for name in tracked.data.metrics
            for point in client.get_metric_history(id, name)
        }
        points = [
            Metric(name, value, round(point.time * 1000), point.step)
            for point in run.points
            for name, value in _curves(point)
            if (name, point.step, value) not in logged
        ]
        for start in range(0, len(points), 1000):
            client.log_batch(id, metrics=points[start : start + 1000])
        if run.ended is None:
            client.update_run(id, MLFLOW_STATUS[run.status])
        else:
            client.set_terminated(id, MLFLOW_STATUS[run.status], round(run.ended * 1000))
    except MlflowException as error:
        raise InputError(f"MLflow cannot write to {target}: {error}") from error
    if local:
        return str(Path(target) / parent / id)
    return (
        f"{target}/#/experiments/{parent}/runs/{id}" if target.startswith("http") else f"{target}, run {id}"
    )


def _curves(point: Point) -> list[tuple[str, float]]:
    """Name and value of each of a point's curves, as MLflow is told them."""
    prefix = f"{point.curve}." if point.curve else ""
    return [(_key(f"{prefix}{name}"), value) for name, value in point.values.items()]


def write_wandb(run: TrackedRun, root: Path, *, project: str = "whet") -> Path:
    """Write a run as an offline run of W&B under `root/wandb`; `wandb sync` uploads it.

    W&B stamps rows with the time of writing; `seconds` says when a row was measured, from the start.

    Raises:
        MissingExtra: wandb is not installed.
    """
    try:
        import wandb  # type: ignore[import-not-found,unused-ignore]
    except ImportError as error:
        raise MissingExtra("wandb", "wandb") from error
    root.mkdir(parents=True, exist_ok=True)
    params = {_key(name): value for name, value in run.params.items()}
    wandb_run = wandb.init(
        mode="offline",
        dir=str(root),
        project=project,
        id=run.id,
        name=run.name,
        config=params,
        # The load and the packages of the process that exports are not those of the training.
        settings=wandb.Settings(silent=True, console="off", x_disable_stats=True, x_save_requirements=False),
    )
    folder = Path(wandb_run.dir).parent  # .../offline-run-<time>-<id>/files
    curves = dict.fromkeys(point.curve for point in run.points)
    for curve in curves:
        prefix = f"{_key(curve)}/" if curve else ""
        wandb_run.define_metric(f"{prefix}round" if not curve else f"{prefix}step", hidden=True)
        wandb_run.define_metric(f"{prefix}*", step_metric=f"{prefix}step" if curve else "round")
    for point in run.points:
        prefix, counter = (f"{_key(point.curve)}/", "step") if point.curve else ("", "round")
        values = {f"{prefix}{_key(name)}": value for name, value in point.values.items()}
        wandb_run.log({**values, f"{prefix}{counter}": point.step, "seconds": point.time - run.started})
    wandb_run.summary["status"] = run.status
    wandb_run.summary["reason"] = run.reason
    wandb_run.finish(exit_code=int(run.status == "failed"))
    return folder


def _rows(path: Path) -> list[dict[str, Any]]:
    """Whole lines only: the last one may be half written."""
    if not path.is_file():
        return []
    lines, _, _ = path.read_bytes().rpartition(b"\n")
    return read_json(
        msgspec.json.Decoder(list[dict[str, Any]]).decode, b"[" + b",".join(lines.splitlines()) + b"]"
    )


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers among the values; a missing one is left out and not 0."""
    return {
        name: float(value)
        for name, value in values.items()
        if isinstance(value, (int, float)) and isfinite(value)
    }


def _flat(params: Mapping[str, Json], prefix: str = "") -> dict[str, str]:
    """Parameters as text, nested ones by `outer.inner`."""
    texts: dict[str, str] = {}
    for name, value in params.items():
        if isinstance(value, Mapping):
            texts |= _flat(value, f"{prefix}{name}.")
        else:
            texts[f"{prefix}{name}"] = (
                value if isinstance(value, str) else msgspec.json.encode(value).decode()
            )
    return texts


def _key(name: str) -> str:
    """A metric's name as a file of its own: no folder, not hidden, and of letters that MLflow allows."""
    return re.sub(r"[^A-Za-z0-9_.\-]", "_", name).lstrip(".") or "_"
