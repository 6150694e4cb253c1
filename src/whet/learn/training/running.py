"""A training run from a command: recorded trajectories or an environment in, weights in a folder out.

It is an Experiment whose store is `runs.db` in the output folder, and `Experiment.improve`: loop, checkpoints
and resuming are those of every learner.  Beside the store the folder holds views of it, for people and for
programs that watch runs: `run.json` (what the run is and how it stands), `metrics.jsonl` (a row a round),
`curves.jsonl` (what was measured within a round) and `bundle.json` (the Versions it ended with).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from ...atomic import write_whole
from ...errors import GateError, InputError, TrainingRefused
from ...escapes import read_json
from ...record.store import Store
from ...record.store.bundles import BUNDLE_FILE, write_bundle
from ...types import (
    Budget,
    Bundle,
    Group,
    Json,
    Outcome,
    Preference,
    Split,
    Task,
    Trajectory,
    Verdict,
    Version,
    digest,
    new_id,
)
from ..experiment import Experiment
from ..improvement import Improvement
from ..loop import Optimizer, Progress, means, quiet
from ..pipeline import PipelineOptions
from . import templates
from .capture import CaptureSurvey, require
from .chat import ChatPolicy, starting_weights
from .dataset import grouped, vocabulary_size
from .huggingface import LoRAOptions, within_reach
from .local import adopted, fresh
from .model import ModelOptions
from .sampling_world import SamplingWorld as SamplingWorld

STORE, METRICS = "runs.db", "metrics.jsonl"
RECORD, CURVES = "run.json", "curves.jsonl"
NAME = "train"
"""Of the Experiment in its store."""
BEGUN = f"{NAME}/begun"
"""Key of what a run has in common with the one that goes on from it."""
LARGEST_VOCABULARY = 2**20
"""Of a fresh model."""


@dataclass(frozen=True, kw_only=True)
class TrainingJob:
    """A method, its model and its data."""

    name: str
    trajectories: Sequence[Trajectory]
    output: Path
    model: str = "tiny"
    """Folder or name of a causal LM, an output folder of `whet train`, `tiny` for a fresh one of our own, or empty
    where the learner begins with `start` and need not be of weights."""
    start: Bundle = field(default_factory=Bundle)
    lora: LoRAOptions | None = None
    score: str | None = None
    rl: bool = True
    survey: CaptureSurvey | None = None
    """What can be learned from the trajectories, where `capture.require` was asked already."""
    """True if the method needs rewards and log-probabilities."""
    preferences: Sequence[Preference] = ()
    world: SamplingWorld | None = None
    """Where fresh rollouts are sampled; None where the trajectories are all there is."""
    tasks: int | None = None
    """Tasks of a round, for a method that learns from its own trajectories; all if None."""
    budget: Budget | None = None
    """Of fresh rollouts."""
    asynchronous: PipelineOptions | None = None
    """Run the rollouts beside training; where they are sampled must not be the weights that are being changed."""
    gate: bool = False
    """End with the gate, on the world's tasks that nothing learned from."""
    metric: str = "success"
    """Score by which the gate judges."""
    ids_only: bool = False
    """True if the agent sends token ids, so that no text comes between one call and the next."""
    settings: Json = None
    """Settings that must equal those of the run that it resumes."""
    seed: int = 0
    resource: str = "policy"
    progress: Progress = field(default=quiet)


@dataclass(frozen=True, slots=True)
class Trained:
    """The end of a run."""

    bundle: Bundle
    metrics: Mapping[str, float]
    rounds: int
    reason: str
    survey: CaptureSurvey | None
    verdict: Verdict | None = None
    """Of the gate; None if it was not asked, or could not judge."""
    ungated: str = ""
    """Why the gate could not judge."""


async def run(job: TrainingJob, make: Callable[[], Optimizer], *, resume: bool = False) -> Trained:
    """Train to the end.

    Args:
        make: makes the optimizer.
        resume: go on with the folder's run.

    Raises:
        TrainingRefused: nothing can be learned from these trajectories, the model's own tokenizer would
            change what was sampled, or training came to nothing.
        InputError: the folder belongs to another run, or holds one and `resume` is False.
    """
    surveyed = job.survey
    if surveyed is not None or (not job.trajectories and (job.preferences or job.world)):
        pass  # it learns from something else
    elif job.model or not job.trajectories:
        surveyed = require(job.trajectories, score=job.score, rl=job.rl)
    if job.model not in ("tiny", "") and not (Path(job.model) / BUNDLE_FILE).is_file():
        within_reach(job.model)
        if not job.ids_only:
            templates.require(job.model, job.trajectories)
    if not resume:
        _refuse_begun(job.output)
    job.output.mkdir(parents=True, exist_ok=True)
    with Store(job.output / STORE) as store:
        optimizer = make()
        # Before the view and the record: a folder of another run is refused with its rows as they were.
        parent = _parent(job, store, optimizer)
        view = _View(job, _rounds(store, optimizer))
        record = _recorded(job)
        try:
            experiment = _experiment(job, store, view)
            done = await _improved(job, experiment, optimizer, parent, view)
            verdict, ungated = await _gated(job, experiment, done) if job.gate else (None, "")
        except BaseException as error:
            # Ctrl-C and cancelling too: only a process that lives or was killed leaves `running`.
            _record(job.output / RECORD, {**record, **_ended("failed", repr(error))})
            raise
        store.put_versions(*parent.values(), *done.bundle.values())
    # Last, with its Versions in the store: by this file a folder is a run that ended, and a model to others.
    write_bundle(
        job.output / BUNDLE_FILE,
        done.bundle,
        baseline=parent,
        verdict=verdict,
        # The Verdict is in the run's own record, and a release asks for it there.
        store=STORE if verdict is not None else None,
    )
    # The words are those of `alarms.check`.
    status = "collapsed" if "collapse: " in done.reason else "finished"
    _record(
        job.output / RECORD,
        {**record, "settled": _settled(job, done, optimizer), **_ended(status, done.reason)},
    )
    metrics = done.metrics[-1] if done.metrics else {}
    return Trained(done.bundle, metrics, done.rounds, done.reason, surveyed, verdict, ungated)


def _experiment(job: TrainingJob, store: Store, view: Progress, *, greedy: bool = False) -> Experiment:
    """The run as an Experiment.

    Args:
        greedy: take a policy's likeliest answers, where it can.
    """
    world = job.world
    if world is None:
        tasks = trained_on([group.task for group in grouped(job.trajectories)])
        world = SamplingWorld(env=_nowhere, tasks=tasks, policy=_nobody)
    policy = world.policy
    if greedy and isinstance(policy, ChatPolicy):
        policy = policy.greedy()
    return Experiment(
        env=world.env,
        tasks=world.tasks,
        rewards=world.rewards,
        policy=policy,
        seed=job.seed,
        store=store,
        name=NAME,
        folder=job.output,
        preferences=job.preferences,
        progress=view,
    )


async def _improved(
    job: TrainingJob, experiment: Experiment, optimizer: Optimizer, parent: Bundle, view: _View
) -> Improvement:
    groups = grouped(job.trajectories) if job.world is None else job.world.groups
    if groups is not None:
        experiment.baseline = _baseline(groups)
    one_pass = groups is not None and optimizer.on_policy and job.tasks is None

    def watch(number: int, metrics: Mapping[str, float]) -> None:
        if one_pass and number == 1 and metrics.get("updates") == 0:
            raise TrainingRefused(
                f"{len(job.trajectories)} trajectories of {len(groups or ())} tasks teach nothing: the runs of each "
                "task are all worth the same. Collect more runs of each, of harder or easier tasks, or give another "
                "reward"
            )
        view.round(number, metrics)

    try:
        return await experiment.improve(
            optimizer,
            bundle=parent,
            tasks=job.tasks,
            groups=groups,
            budget=job.budget,
            asynchronous=None if groups is not None else job.asynchronous,
            watch=watch,
        )
    except TrainingRefused as error:
        # A policy that raises at every turn never succeeds, and the refusal would speak of its competence.
        if (failure := _most_failed_by(experiment)) is not None:
            raise TrainingRefused(f"{failure}. Therefore: {error}") from error
        raise


def _most_failed_by(experiment: Experiment) -> str | None:
    """The commonest error of the run's rollouts in words, if most of them ended in one."""
    assert experiment.store is not None
    runs = list(experiment.store.trajectories())
    errors = Counter(
        (run.error.fault.value, run.error.type, run.error.message) for run in runs if run.error is not None
    )
    if errors.total() * 2 <= len(runs):
        return None
    ((fault, kind, message), count), *_ = errors.most_common(1)
    return (
        f"{errors.total()} of {len(runs)} rollouts failed, {count} of them by the {fault}'s {kind}: "
        f"{message.rstrip('.')}"
    )


async def _gated(job: TrainingJob, experiment: Experiment, done: Improvement) -> tuple[Verdict | None, str]:
    """The gate's Verdict on what was learned against what it began with, or why there is none.

    Of a chat both sides are decoded alike, greedily or sampled: as the weights before training do better on
    validation. Else what training does to the temperature would pass for what it taught.
    """
    assert experiment.store is not None
    judge = experiment
    if job.world is not None and isinstance(job.world.policy, ChatPolicy):
        likeliest = _experiment(job, experiment.store, quiet, greedy=True)
        greedy = (await likeliest.record_baseline(done.parent)).get("success", 0.0)
        if greedy >= (experiment.baseline or {}).get("success", 0.0):
            judge = likeliest
    try:
        return await judge.gate(done, metric=job.metric), ""
    except GateError as error:
        # The weights are trained all the same; they are released with --unproven or gated on other tasks.
        return None, str(error)


def trained_on(tasks: Sequence[Task]) -> list[Task]:
    """Recorded tasks, all to learn from: what must not be learned from is not among them."""
    return [replace(task, split=Split.TRAIN) for task in tasks]


def _nowhere() -> Any:
    raise TrainingRefused(
        "this method samples fresh trajectories, and a command that trains on recorded ones has no "
        "environment to sample in; give one with --env, or use Experiment.improve"
    )


def _nobody(bundle: Bundle, seed: int) -> Any:
    _nowhere()


class _View:
    """The rows of a run: a Progress that keeps what is measured within a round, and passes it on.

    A round that is one step is told of once, and its row in METRICS says more: so the first
    call is held back until there is a second.

    Args:
        rounds: that the run has had; rows of later ones are of rounds that are run again.
    """

    def __init__(self, job: TrainingJob, rounds: int) -> None:
        self._output, self._progress, self._rounds = job.output, job.progress, rounds
        self._first: dict[str, Json] | None = None
        self._calls = 0
        for name in (METRICS, CURVES):
            _forget_after(job.output / name, rounds)

    def __call__(self, what: str, done: int, total: int | None = None, **figures: float | str) -> None:
        row = {"round": self._rounds + 1, "curve": what, "step": done, "time": time.time(), "values": figures}
        self._calls += 1
        if self._calls == 1:
            self._first = row
        else:
            if self._first is not None:
                _note(self._output / CURVES, self._first)
                self._first = None
            _note(self._output / CURVES, row)
        self._progress(what, done, total, **figures)

    def round(self, number: int, metrics: Mapping[str, float]) -> None:
        """A round has ended."""
        _note(self._output / METRICS, {"round": number, "time": time.time(), **metrics})
        self._rounds, self._calls, self._first = number, 0, None


# -- where a run begins -------------------------------------------------------------------------


def _key(optimizer: Optimizer) -> str:
    return f"{NAME}/improve/{optimizer.name}"


def _rounds(store: Store, optimizer: Optimizer) -> int:
    """Rounds up to the last checkpoint."""
    saved = store.state(_key(optimizer))
    return len(saved["metrics"]) if saved else 0


def checkpointed(output: Path) -> bool:
    """True if an output folder holds a run with a checkpoint to resume from."""
    # Looked for first: opening a store would make one.
    if not (output / STORE).is_file():
        return False
    with Store(output / STORE) as store:
        rows = store.database.rows("SELECT body FROM states WHERE key LIKE ?", [f"{NAME}/improve/%"])
        return any(msgspec.json.decode(body)["metrics"] for (body,) in rows)


def _refuse_begun(output: Path) -> None:
    if (output / BUNDLE_FILE).exists() or checkpointed(output):
        raise InputError(f"{output} holds a run already; go on with --resume, or choose another folder")
    # With SQLite's -wal and -shm: an old log beside a new file would be taken for its own.
    for path in (*output.glob(f"{STORE}*"), *(output / name for name in (METRICS, CURVES, RECORD))):
        path.unlink(missing_ok=True)


def _parent(job: TrainingJob, store: Store, optimizer: Optimizer) -> Bundle:
    """The Bundle that the run began with.

    Raises:
        InputError: what is in the store is another run.
    """
    about: dict[str, Json] = {
        "model": job.model,
        "seed": job.seed,
        **_flat(msgspec.to_builtins(job.settings)),
    }
    if not optimizer.on_policy:  # one that is goes on with what is new in the record
        about["trajectories"] = digest([trajectory.id for trajectory in job.trajectories])
    # Through JSON, as the saved one went, so that equal settings compare equal.
    about = {"method": job.name, **msgspec.json.decode(msgspec.json.encode(about))}
    saved = store.state(BEGUN)
    if saved is not None:
        then = saved["about"]
        differing = [name for name in {**then, **about} if then.get(name) != about.get(name)]
        if differing:
            shown = [name if name == "trajectories" else f"{name} ({then.get(name)})" for name in differing]
            raise InputError(
                f"{job.output} was written by a run with other {', '.join(shown)}; give the same, or choose another "
                "folder"
            )
        return Bundle(msgspec.convert(saved["bundle"], list[Version]))
    parent = _start(job)
    store.put_state(BEGUN, {"about": about, "bundle": _versions(parent)})
    return parent


def _start(job: TrainingJob) -> Bundle:
    if not job.model:
        return job.start
    folder = job.output / "start"
    if job.model != "tiny":
        return starting_weights(job.model, job.resource, folder, lora=job.lora)
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
        return Bundle([adopted(job.resource, folder, folder)])
    options = ModelOptions(max_length=max(64, 2 * longest))
    return Bundle([fresh(job.resource, folder, options=options, vocab_size=size, seed=job.seed)])


# -- views --------------------------------------------------------------------------------------


def _recorded(job: TrainingJob) -> dict[str, Json]:
    """The record of the run, written before it begins; a resumed run keeps its id and its start time."""
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
            before = read_json(msgspec.json.decode, path.read_bytes())
            record |= {"id": before["id"], "started": before["started"]}
        except (msgspec.DecodeError, KeyError, TypeError) as error:
            raise InputError(f"{path} is no record of a training run: {error!r}") from error
    record |= {"ended": None, "status": "running", "reason": ""}
    _record(path, record)
    return record


def _settled(job: TrainingJob, done: Improvement, optimizer: Optimizer) -> dict[str, Json]:
    """The options that were omitted, as they were settled by what was trained and where."""
    version = done.bundle.get(job.resource)
    about = version.meta if version is not None else {}
    optim, compute = about.get("optim"), about.get("compute")
    settled: dict[str, Json] = {}
    if isinstance(optim, dict):
        settled |= {f"optim.{name}": value for name, value in optim.items()}
    if isinstance(compute, dict):
        settled |= compute
    part_tokens = getattr(getattr(optimizer, "options", None), "part_tokens", None)
    return settled | ({} if part_tokens is None else {"part_tokens": part_tokens})


def _ended(status: str, reason: str) -> dict[str, Json]:
    return {"ended": time.time(), "status": status, "reason": reason}


def _flat(settings: Json, above: str = "") -> dict[str, Json]:
    """Settings by the names of their options; lists as JSON gives them back."""
    flat: dict[str, Json] = {}
    for name, value in settings.items() if isinstance(settings, dict) else ():
        if isinstance(value, dict):
            flat |= _flat(value, f"{above}{name}.")
        else:
            flat[f"{above}{name}"] = list(value) if isinstance(value, tuple) else value
    return flat


def _versions(bundle: Bundle) -> list[Any]:
    built: list[Any] = msgspec.to_builtins([bundle[name] for name in sorted(bundle)])
    return built


def _baseline(groups: Sequence[Group]) -> dict[str, float]:
    """The scores of the recorded policy, against which training is measured."""
    recorded = [trajectory.outcome for group in groups for trajectory in group.trajectories]
    scores = [outcome is Outcome.SUCCESS for outcome in recorded if outcome.counts]
    return means(groups) | ({"success": sum(scores) / len(scores)} if scores else {})


def _forget_after(path: Path, rounds: int) -> None:
    """Drop the rows of rounds that are run again, and one that was half written."""
    if path.is_file():
        rows = [row for row in path.read_bytes().splitlines(keepends=True) if row.endswith(b"\n")]
        path.write_bytes(b"".join(row for row in rows if msgspec.json.decode(row)["round"] <= rounds))


def _note(path: Path, row: Mapping[str, Json]) -> None:
    with open(path, "ab") as file:
        file.write(msgspec.json.encode(row) + b"\n")


def _record(path: Path, record: Mapping[str, Json]) -> None:
    write_whole(path, [msgspec.json.encode(record)])
