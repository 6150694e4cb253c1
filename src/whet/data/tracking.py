"""Metrics of training for the programs that people watch runs in: MLflow's files and W&B's offline runs.

`of_folder` reads what `whet train` left, `of_store` what `Experiment.improve` did, `of_metrics` takes an
Improvement's metrics; `write_mlflow` and `write_wandb` write a run.  MLflow's layout is plain text, so
nothing has to be installed and no server is spoken to: one folder for each experiment and run, one file
for each metric, `milliseconds value step` a line.  A run keeps its id, so writing it again, while it is
under way too, brings the same run up to date.

It does not read MLflow or W&B, and uploads nothing (`wandb sync` does).
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

from ..errors import InputError, MissingExtra, NotFoundError
from ..store import Store
from ..types import Json, digest, new_id

Status = Literal["running", "finished", "collapsed", "failed"]
MLFLOW_STATUS: Mapping[Status, int] = {"running": 1, "finished": 3, "collapsed": 3, "failed": 4}
"""The numbers of mlflow.entities.RunStatus.  A collapse is an end that we came to, not a failure."""
LONGEST_PARAM = 6000
"""What MLflow takes of a parameter's value."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """Values at one step of one of a run's curves."""

    step: int
    time: float
    """Seconds since 1970."""
    values: Mapping[str, float]
    curve: str = ""
    """What steps are counted in: rounds if empty, else the name of what was under way."""


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
        about = msgspec.json.decode(record.read_bytes(), type=dict[str, Any])
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
            | dict(about["settings"]),
            points=points,
            started=about["started"],
            ended=about["ended"],
            status=about["status"],
            reason=about["reason"],
        )
    except (msgspec.DecodeError, msgspec.ValidationError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{folder} is no run of whet train: {error!r}") from error


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
        Point(step=step, time=now, values=_numbers(dict(one))) for step, one in enumerate(metrics, start=1)
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
    found = []
    for key, body in store.database.rows(
        "SELECT key, body FROM states WHERE key LIKE '%/improve/%' ORDER BY key"
    ):
        saved = msgspec.json.decode(body)
        if isinstance(saved, dict) and isinstance(saved.get("metrics"), list):
            experiment, _, optimizer = str(key).partition("/improve/")
            found.append(
                of_metrics(
                    saved["metrics"],
                    name=str(key),
                    id=f"{Path(store.path).resolve()}#{key}",
                    params={"experiment": experiment, "optimizer": optimizer},
                    reason=str(saved.get("reason", "")),
                )
            )
    return found


def write_mlflow(run: TrackedRun, root: Path, *, experiment: str = "whet") -> Path:
    """Write a run into a folder of MLflow's, as `mlflow ui --backend-store-uri root` shows it.

    Files that are there already are replaced; tags and notes given in MLflow stay.

    Returns:
        The run's folder, `root/<experiment id>/<run id>`.
    """
    parent = _experiment(root, experiment, run.started)
    folder = parent / run.id
    for part in ("metrics", "params", "tags", "artifacts"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    lines: dict[str, list[str]] = {}
    for point in run.points:
        for name, value in point.values.items():
            key = _key(f"{point.curve}.{name}" if point.curve else name)
            lines.setdefault(key, []).append(f"{round(point.time * 1000)} {value!r} {point.step}\n")
    for key, found in lines.items():
        _put(folder, f"metrics/{key}", "".join(found))
    for name, given in _flat(run.params).items():
        _put(folder, f"params/{_key(name)}", given[:LONGEST_PARAM])
    tags = {"mlflow.runName": run.name, "mlflow.source.type": "LOCAL", "whet.status": run.status}
    for name, text in (tags | ({"whet.reason": run.reason} if run.reason else {})).items():
        _put(folder, f"tags/{name}", text)
    about: dict[str, Json] = {
        "artifact_uri": (folder / "artifacts").resolve().as_uri(),
        "end_time": None if run.ended is None else round(run.ended * 1000),
        "entry_point_name": "",
        "experiment_id": parent.name,
        "lifecycle_stage": "active",
        "run_id": run.id,
        "run_name": run.name,
        "source_name": "",
        "source_type": 4,
        "source_version": "",
        "start_time": round(run.started * 1000),
        "status": MLFLOW_STATUS[run.status],
        "tags": [],
        "user_id": "whet",
    }
    _put(folder, "meta.yaml", _yaml(about))  # last: MLflow takes a folder for a run once this is there
    return folder


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
    begun = wandb.init(
        mode="offline",
        dir=str(root),
        project=project,
        id=run.id,
        name=run.name,
        config=params,
        settings=wandb.Settings(silent=True, console="off", x_disable_stats=True, x_save_requirements=False),
    )
    folder = Path(begun.dir).parent  # .../offline-run-<time>-<id>/files
    curves = dict.fromkeys(point.curve for point in run.points)
    for curve in curves:
        prefix = f"{_key(curve)}/" if curve else ""
        begun.define_metric(f"{prefix}round" if not curve else f"{prefix}step", hidden=True)
        begun.define_metric(f"{prefix}*", step_metric=f"{prefix}step" if curve else "round")
    for point in run.points:
        prefix, counter = (f"{_key(point.curve)}/", "step") if point.curve else ("", "round")
        values = {f"{prefix}{_key(name)}": value for name, value in point.values.items()}
        begun.log({**values, f"{prefix}{counter}": point.step, "seconds": point.time - run.started})
    begun.summary["status"] = run.status
    begun.summary["reason"] = run.reason
    begun.finish(exit_code=int(run.status == "failed"))
    return folder


def _experiment(root: Path, name: str, created: float) -> Path:
    """The folder of the experiment of this name, made if there is none."""
    root.mkdir(parents=True, exist_ok=True)
    quoted = (f"name: {name}", f"name: {msgspec.json.encode(name).decode()}", f"name: '{name}'")
    for one in sorted(root.glob("*/meta.yaml")):
        if any(line in quoted for line in one.read_text().splitlines()):
            return one.parent
    folder = root / str(int(digest(["experiment", name]), 16) % 10**18)
    now = round(created * 1000)
    about: dict[str, Json] = {
        "artifact_location": folder.resolve().as_uri(),
        "creation_time": now,
        "experiment_id": folder.name,
        "last_update_time": now,
        "lifecycle_stage": "active",
        "name": name,
    }
    folder.mkdir(exist_ok=True)
    _put(folder, "meta.yaml", _yaml(about))
    return folder


def _rows(path: Path) -> list[dict[str, Any]]:
    """Whole lines only: the last one may be half written."""
    if not path.is_file():
        return []
    whole, _, _ = path.read_bytes().rpartition(b"\n")
    return msgspec.json.decode(b"[" + b",".join(whole.splitlines()) + b"]", type=list[dict[str, Any]])


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers among the values; a missing one is left out and not 0."""
    return {
        name: float(value)
        for name, value in values.items()
        if isinstance(value, (int, float)) and isfinite(value)
    }


def _flat(params: Mapping[str, Json], prefix: str = "") -> dict[str, str]:
    """Parameters as text, nested ones by `outer.inner`."""
    found: dict[str, str] = {}
    for name, value in params.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = (
                value if isinstance(value, str) else msgspec.json.encode(value).decode()
            )
    return found


def _key(name: str) -> str:
    """A metric's name as a file of its own: no folder, not hidden, and what MLflow allows."""
    return re.sub(r"[^A-Za-z0-9_.\-]", "_", name).lstrip(".") or "_"


def _yaml(values: Mapping[str, Json]) -> str:
    """A flat mapping; JSON's scalars and empty list are YAML's."""
    return "".join(f"{name}: {msgspec.json.encode(value).decode()}\n" for name, value in values.items())


def _put(folder: Path, name: str, text: str) -> None:
    """Replace a file whole, as MLflow may be reading; the partial one lies where it does not look."""
    partial = folder / f".{new_id()}"
    partial.write_text(text)
    os.replace(partial, folder / name)
