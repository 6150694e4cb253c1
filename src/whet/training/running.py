"""A training run from a command: recorded trajectories in, weights in a folder out.

The folder holds `run.json` (what it is and how it stands), `metrics.jsonl` (a row a round),
`curves.jsonl` (what was measured within a round), `state.json` (the last state that can be
resumed from, replaced whole), `bundle.json` and the weights.  A run that was killed goes
on with `resume` to the same bits.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from ..data.lineage import learned_from
from ..errors import InputError, TrainingRefused
from ..loop import Context, Optimizer, Progress, Rollout, Update, means, quiet
from ..types import Bundle, Group, Json, Outcome, Preference, Task, Trajectory, Version, digest, new_id
from . import templates
from .capture import Survey, require
from .dataset import grouped, vocabulary_size
from .huggingface import LoRAOptions, within_reach
from .local import adopted, fresh
from .model import ModelOptions

STATE, BUNDLE, METRICS = "state.json", "bundle.json", "metrics.jsonl"
RECORD, CURVES = "run.json", "curves.jsonl"
LARGEST_VOCABULARY = 2**20
"""Of a fresh model."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """What to train on what."""

    name: str
    trajectories: Sequence[Trajectory]
    output: Path
    model: str = "tiny"
    """Folder or name of a causal LM, or `tiny` for a fresh one of our own."""
    lora: LoRAOptions | None = None
    score: str | None = None
    rl: bool = True
    """Whether the method needs rewards and log-probabilities."""
    preferences: Sequence[Preference] = ()
    rollout: Rollout | None = None
    """What samples for a method that wants more than the trajectories; None refuses."""
    ids_only: bool = False
    """Whether the agent sends token ids, so that no text comes between one call and the next."""
    settings: Json = None
    """What the run must have in common with the one that it resumes."""
    seed: int = 0
    resource: str = "policy"
    progress: Progress = field(default=quiet)


@dataclass(frozen=True, slots=True)
class Trained:
    """How it ended."""

    bundle: Bundle
    metrics: Mapping[str, float]
    rounds: int
    reason: str
    survey: Survey | None


async def run(job: Job, make: Callable[[], Optimizer], *, resume: bool = False) -> Trained:
    """Train to the end.

    Args:
        make: makes the optimizer.
        resume: go on from the folder's last state.

    Raises:
        TrainingRefused: nothing can be learned from these trajectories, the model's own tokenizer would
            change what was sampled, or training came to nothing.
        InputError: the folder belongs to another run, or holds one and `resume` is False.
    """
    found = None
    if job.trajectories or not job.preferences:
        found = require(job.trajectories, score=job.score, rl=job.rl)
    if job.model != "tiny":
        within_reach(job.model)
        if not job.ids_only:
            templates.require(job.model, job.trajectories)
    key = digest([job.name, job.model, job.seed, job.settings, [t.id for t in job.trajectories]])
    state, bundle, rounds = _resumed(job, key) if resume else _begun(job)
    record = _recorded(job)
    try:
        update, bundle, rounds = await _trained(job, make(), key, state, bundle, rounds)
    except BaseException as error:
        _replace(job.output / RECORD, {**record, **_ended("failed", repr(error))})
        raise
    bundle = learned_from(grouped(job.trajectories), bundle, Bundle())
    _replace(job.output / BUNDLE, _versions(bundle))
    status = "collapsed" if "collapse: " in update.reason else "finished"
    _replace(job.output / RECORD, {**record, **_ended(status, update.reason)})
    return Trained(bundle, update.metrics, rounds, update.reason, found)


async def _trained(
    job: Job, optimizer: Optimizer, key: str, state: Json, bundle: Bundle, rounds: int
) -> tuple[Update, Bundle, int]:
    groups = grouped(job.trajectories)
    update: Update | None = None
    while update is None or not update.done:
        context = Context(
            rollout=job.rollout or _no_rollouts,
            train=[group.task for group in groups] if job.rollout else (),
            folder=job.output,
            baseline=_baseline(groups),
            preferences=job.preferences,
            progress=_Curve(job.output / CURVES, rounds + 1, job.progress),
            state=state,
        )
        update = await optimizer.step(bundle, groups, context)
        bundle, state, rounds = update.bundle, update.state, rounds + 1
        if rounds == 1 and update.metrics.get("updates") == 0 and job.rollout is None:
            raise TrainingRefused(  # and every later round, of the same trajectories, would be like it
                f"{len(job.trajectories)} trajectories of {len(groups)} tasks teach nothing: the runs of each task are "
                "all worth the same. Collect more runs of each, of harder or easier tasks, or give another reward"
            )
        _note(job.output / METRICS, {"round": rounds, "time": time.time(), **update.metrics})
        if update.done or not isinstance(state, dict) or state.get("resumable", True):
            saved = {"run": key, "state": state, "rounds": rounds, "bundle": _versions(bundle)}
            _replace(job.output / STATE, saved)
    return update, bundle, rounds


class _Curve:
    """A Progress that keeps what is measured within one round, and passes it on.

    A round that is one step is told of once, and its row in METRICS says more: so the first
    call is held back until there is a second.
    """

    def __init__(self, path: Path, round: int, progress: Progress) -> None:
        self._path, self._round, self._progress = path, round, progress
        self._first: dict[str, Json] | None = None
        self._calls = 0

    def __call__(self, what: str, done: int, total: int | None = None, **figures: float | str) -> None:
        row = {"round": self._round, "curve": what, "step": done, "time": time.time(), "values": figures}
        self._calls += 1
        if self._calls == 1:
            self._first = row
        else:
            if self._first is not None:
                _note(self._path, self._first)
                self._first = None
            _note(self._path, row)
        self._progress(what, done, total, **figures)


def _recorded(job: Job) -> dict[str, Json]:
    """What the run is, written before it begins; one that goes on keeps its id and its beginning."""
    path = job.output / RECORD
    record: dict[str, Json] = {
        "id": new_id(),
        "method": job.name,
        "model": job.model,
        "seed": job.seed,
        "settings": job.settings if isinstance(job.settings, dict) else {},
        "trajectories": len(job.trajectories),
        "started": time.time(),
    }
    if path.is_file():
        try:
            before = msgspec.json.decode(path.read_bytes())
            record |= {"id": before["id"], "started": before["started"]}
        except (msgspec.DecodeError, KeyError, TypeError) as error:
            raise InputError(f"{path} is no record of a training run: {error!r}") from error
    record |= {"ended": None, "status": "running", "reason": ""}
    _replace(path, record)
    return record


def _ended(status: str, reason: str) -> dict[str, Json]:
    return {"ended": time.time(), "status": status, "reason": reason}


def _begun(job: Job) -> tuple[Json, Bundle, int]:
    if (job.output / STATE).exists() or (job.output / BUNDLE).exists():
        raise InputError(f"{job.output} holds a run already; go on with --resume, or choose another folder")
    job.output.mkdir(parents=True, exist_ok=True)
    for name in (METRICS, CURVES, RECORD):
        (job.output / name).unlink(missing_ok=True)
    return None, Bundle([_start(job)]), 0


def _start(job: Job) -> Version:
    folder = job.output / "start"
    if job.model != "tiny":
        return adopted(job.resource, job.model, folder, lora=job.lora)
    size = vocabulary_size(job.trajectories)
    if not size:
        raise TrainingRefused("a tiny model needs trajectories with token ids to know its vocabulary by")
    if size > LARGEST_VOCABULARY:
        raise InputError(
            f"the trajectories have token ids up to {size - 1}, and a tiny model is for {LARGEST_VOCABULARY} at most; "
            "train the model that wrote them, with --model"
        )
    longest = max(
        (
            len(s.tokens.prompt_ids) + len(s.tokens.output_ids)
            for t in job.trajectories
            for s in t.steps
            if s.tokens
        ),
        default=1,
    )
    if (folder / "config.json").exists():
        return adopted(job.resource, folder, folder)
    options = ModelOptions(max_length=max(64, 2 * longest))
    return fresh(job.resource, folder, options=options, vocab_size=size, seed=job.seed)


def _resumed(job: Job, key: str) -> tuple[Json, Bundle, int]:
    path = job.output / STATE
    if not path.is_file():  # killed before its first checkpoint: from the beginning, to the same end
        job.output.mkdir(parents=True, exist_ok=True)
        for name in (METRICS, CURVES):
            _forget_after(job.output / name, 0)
        return None, Bundle([_start(job)]), 0
    try:
        saved = msgspec.json.decode(path.read_bytes())
        if saved["run"] != key:
            raise InputError(
                f"{path} was written by a run with other {_other(job)}; give the same, or choose another folder"
            )
        versions = msgspec.convert(saved["bundle"], list[Version])
        rounds = int(saved["rounds"])
        for name in (METRICS, CURVES):
            _forget_after(job.output / name, rounds)
        return saved["state"], Bundle(versions), rounds
    except (msgspec.DecodeError, msgspec.ValidationError, KeyError, TypeError) as error:
        raise InputError(f"{path} is no state of a training run: {error!r}") from error


def _other(job: Job) -> str:
    """What the run in the folder has that this one has not, in words."""
    try:
        before = msgspec.json.decode((job.output / RECORD).read_bytes())
        then = {"model": before["model"], "seed": before["seed"], **_flat(before["settings"])}
    except (OSError, msgspec.DecodeError, KeyError, TypeError):
        return "settings, model or trajectories"
    now = {"model": job.model, "seed": job.seed, **_flat(msgspec.to_builtins(job.settings))}
    names = [name for name in {**then, **now} if then.get(name) != now.get(name)]
    return ", ".join(f"{name} ({then.get(name)})" for name in names) or "trajectories"


def _flat(settings: Json, above: str = "") -> dict[str, Json]:
    """Settings by the names of their options; lists as JSON gives them back."""
    found: dict[str, Json] = {}
    for name, value in settings.items() if isinstance(settings, dict) else ():
        if isinstance(value, dict):
            found |= _flat(value, f"{above}{name}.")
        else:
            found[f"{above}{name}"] = list(value) if isinstance(value, tuple) else value
    return found


def _versions(bundle: Bundle) -> list[Any]:
    built: list[Any] = msgspec.to_builtins([bundle[name] for name in sorted(bundle)])
    return built


def _baseline(groups: Sequence[Group]) -> dict[str, float]:
    """What the recorded policy was worth: what training is measured against."""
    recorded = [one.outcome for group in groups for one in group.trajectories]
    known = [outcome is Outcome.SUCCESS for outcome in recorded if outcome.counts]
    return means(groups) | ({"success": sum(known) / len(known)} if known else {})


async def _no_rollouts(
    bundle: Bundle,
    tasks: Sequence[Task],
    n: int = 1,
    *,
    seed: int = 0,
    prefix: Sequence[Json] | None = None,
) -> list[Group]:
    raise TrainingRefused(
        "this method samples fresh trajectories, and a command that trains on recorded ones has no "
        "environment to sample in; use Experiment.improve"
    )


def _forget_after(path: Path, rounds: int) -> None:
    """Drop the rows of rounds that are run again, and one that was half written."""
    if path.is_file():
        rows = [row for row in path.read_bytes().splitlines(keepends=True) if row.endswith(b"\n")]
        path.write_bytes(b"".join(row for row in rows if msgspec.json.decode(row)["round"] <= rounds))


def _note(path: Path, row: Mapping[str, Json]) -> None:
    with open(path, "ab") as file:
        file.write(msgspec.json.encode(row) + b"\n")


def _replace(path: Path, value: Json) -> None:
    partial = path.with_name(f".{path.name}.{new_id()}")
    with open(partial, "wb") as file:
        file.write(msgspec.json.encode(value))
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)
