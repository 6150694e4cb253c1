"""Supervised training on action tokens: what cloning, STaR, DAgger and AWR have in common.

Trajectories are chosen (deduplicated by their tokens, capped by task, because easy
tasks otherwise dominate), a share of the tasks is kept aside for early stopping, and
the weights of the epoch with the lowest loss there are what remains.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from ...atomic import write_whole
from ...errors import InputError, TrainingRefused
from ...escapes import read_json
from ...types import Bundle, Group, Json, Outcome, Trajectory, Version, digest
from ..datasets.dynamics import example_of_run
from ..loop import Context, Update
from .batch import MergeCounts, Merged, MicroBatch, merge, parts
from .epochs import kept_aside, learner_of, passes, starting
from .guards import Guard
from .learner import Learner, Loss, cloning_loss
from .local import LocalModels
from .options import CloneOptions as CloneOptions
from .options import DAggerOptions, STaROptions
from .watching import Watched


@dataclass(kw_only=True)
class Kept:
    """State of a method that learns again from trajectories of earlier rounds; saved as Update.state."""

    round: int = 0
    file: str = ""
    """File of the trajectories of earlier rounds, in the context's folder (`write_kept`)."""


@dataclass(kw_only=True)
class KeptFromBase(Kept):
    """The same of a method that begins every round with the same weights."""

    base: dict[str, Json]
    """The Version that they are."""


T = TypeVar("T")


def resumed(state: Json, fresh: T, method: str) -> T:
    """The state that a method saved as Update.state; `fresh` if there is none.

    Raises:
        InputError: the state is another method's.
    """
    if state is None:
        return fresh
    try:
        return msgspec.convert(state, type(fresh))
    except msgspec.ValidationError as error:
        raise InputError(f"this is no state of {method}: {error}") from error


Chosen = tuple[str, tuple[list[Merged], MergeCounts]]
"""A task's id, and one trajectory of it as sequences."""


def succeeded(trajectory: Trajectory, score: str | None = None, threshold: float = 0.5) -> bool | None:
    """True if its outcome is success, or its score reaches the threshold; None if nothing has judged it."""
    if score is not None:
        value = trajectory.score(score)
        return None if value is None else value >= threshold
    return trajectory.outcome is Outcome.SUCCESS if trajectory.outcome.counts else None


def choose(
    groups: Iterable[Group], passes: Callable[[Trajectory], bool | None], per_task: int | None = None
) -> tuple[list[Chosen], dict[str, float]]:
    """The trajectories to train on, and how many were left out for what.

    Args:
        passes: None if nothing has judged a trajectory, False if it is filtered out.

    Raises:
        TrainingRefused: none is left.
    """
    chosen: list[Chosen] = []
    left_out = {"unjudged": 0, "filtered": 0, "without_tokens": 0, "repeated": 0, "over_cap": 0}
    digests: set[str] = set()
    chosen_of: dict[str, int] = {}
    for trajectory in (trajectory for group in groups for trajectory in group.trajectories):
        verdict = passes(trajectory)
        if not verdict:
            left_out["unjudged" if verdict is None else "filtered"] += 1
            continue
        merged = merge(trajectory, len(chosen))
        if not merged[1].targets:
            left_out["without_tokens"] += 1
            continue
        task = trajectory.task.id
        content = digest([task, [[s.ids, s.targets] for s in merged[0]]])
        if content in digests:
            left_out["repeated"] += 1
        elif per_task is not None and chosen_of.get(task, 0) >= per_task:
            left_out["over_cap"] += 1
        else:
            digests.add(content)
            for sequence in merged[0]:
                sequence.example = example_of_run(trajectory)
            chosen_of[task] = chosen_of.get(task, 0) + 1
            chosen.append((task, merged))
    if not chosen:
        raise TrainingRefused(_refusal(left_out))
    return chosen, {name: float(count) for name, count in left_out.items()}


_LEFT = {
    "unjudged": ("without an outcome or score", "have them judged, by a reward or by feedback"),
    "filtered": (
        "refused by the filter",
        "collect from an agent that succeeds, or look at the filter (keep, score, threshold)",
    ),
    "without_tokens": ("without token ids", "record through whet's gateway or sample with whet's policies"),
}
"""Reasons for which nothing of a trajectory is cloned: in words, and what to do about each."""


def _refusal(left_out: Mapping[str, int]) -> str:
    """The reasons why none is left; one that is repeated or over a cap is none, for another was chosen."""
    reasons = {name: left_out[name] for name in _LEFT if left_out[name]}
    if not reasons:
        return (
            "no trajectory to clone: none is recorded for these tasks. Collect on them first (Experiment.collect), or "
            "give recorded groups"
        )
    counts = ", ".join(f"{count} {_LEFT[name][0]}" for name, count in reasons.items())
    return f"no trajectory to clone: {counts}. To do: {'; '.join(_LEFT[name][1] for name in reasons)}."


def _as_json(chosen: Sequence[Chosen]) -> Json:
    """Chosen trajectories as JSON, for a state that must outlive the process."""
    return [[task, [[s.ids, s.targets] for s in sequences]] for task, (sequences, _) in chosen]


def _from_json(saved: Json) -> list[Chosen]:
    """Read what `_as_json` gave.

    Raises:
        InputError: it is something else.
    """
    try:
        chosen: list[Chosen] = []
        for unit, (task, sequences) in enumerate(saved):
            # Log-probabilities are not kept, as cloning reads none: NaN has an RL method refuse them.
            merged = [Merged(unit, list(ids), list(t), [float("nan")] * len(t)) for ids, t in sequences]
            tokens, targets = (sum(len(part) for part in parts) for parts in _columns(merged))
            chosen.append(
                (
                    task,
                    (merged, MergeCounts(len(merged), len(merged), 0, tokens, targets, tokens)),
                )
            )
    except (TypeError, ValueError) as error:
        raise InputError(f"this is no set of kept trajectories: {error}") from error
    return chosen


def _columns(sequences: Sequence[Merged]) -> tuple[list[list[int]], list[list[int]]]:
    return [sequence.ids for sequence in sequences], [sequence.targets for sequence in sequences]


def write_kept(folder: Path, chosen: Sequence[Chosen]) -> str:
    """Keep what was chosen in a file named after its content; the name."""
    folder.mkdir(parents=True, exist_ok=True)
    saved = _as_json(chosen)
    name = f"kept-{digest(saved)}.json"
    write_whole(folder / name, [msgspec.json.encode(saved)])
    return name


def read_kept(folder: Path, name: str) -> list[Chosen]:
    """Read what `write_kept` wrote; nothing for an empty name.

    Raises:
        InputError: it is gone or was changed.
    """
    if not name:
        return []
    # The name comes from a saved state: it must not lead out of the folder.
    if name != Path(name).name or not (folder / name).is_file():
        raise InputError(f"what earlier rounds kept is not in {folder} as {name!r}; start again")
    saved = read_json(msgspec.json.decode, (folder / name).read_bytes())
    if name != f"kept-{digest(saved)}.json":
        raise InputError(f"{folder / name} was changed since it was saved; start again")
    return _from_json(saved)


def joined(before: Sequence[Chosen], now: Sequence[Chosen]) -> list[Chosen]:
    """Both, without repetitions, numbered anew."""
    distinct = list({digest(_as_json([trajectory])): trajectory for trajectory in (*before, *now)}.values())
    for unit, (_, (sequences, _)) in enumerate(distinct):
        for sequence in sequences:
            sequence.unit = unit
    return distinct


async def clone(
    learner: Learner,
    chosen: list[Chosen],
    options: CloneOptions,
    context: Context,
    *,
    guard: Guard | None = None,
    key: str = "",
) -> dict[str, float]:
    """Train on these to the end; what was measured.

    Args:
        key: of this training among those of one `improve`, under which its dynamics are recorded.
        guard: what must not be forgotten meanwhile.

    Raises:
        TrainingRefused: a loss that is not finite, or memory ran out.
    """
    train, held = (
        [chosen[number] for number in numbers]
        for numbers in kept_aside([task for task, _ in chosen], options.validation_share)
    )
    counts = sum((merged[1] for _, merged in train), MergeCounts())
    sequences = [sequence for _, (own, _) in train for sequence in own]
    validation = parts([sequence for _, (own, _) in held for sequence in own], options.part_tokens)
    if guard is not None:
        guard.protect(learner)
        sequences = guard.mixed(sequences)
    figures = await fit(learner, sequences, validation, options, context, key=key)
    return figures | {
        "trajectories": len(train),
        "validation_trajectories": len(held),
        "tokens": counts.tokens,
        "targets": counts.targets,
        "calls_merged": counts.merged,
        "calls_forked": counts.forked,
    }


async def fit(
    learner: Learner,
    sequences: list[Merged],
    validation: list[MicroBatch],
    options: CloneOptions,
    context: Context,
    *,
    loss_of: Callable[[Sequence[MicroBatch]], Loss] = cloning_loss,
    key: str = "",
) -> dict[str, float]:
    """Epochs over these sequences, until the validation loss rises or the last one is done."""
    by_unit: dict[int, list[Merged]] = {}
    for sequence in sequences:
        by_unit.setdefault(sequence.unit, []).append(sequence)

    def update(batch: list[int], rate: float) -> float:
        step_parts = parts([sequence for unit in batch for sequence in by_unit[unit]], options.part_tokens)
        loss = learner.update(step_parts, watched.reading(loss_of(step_parts)), rate=rate)[0]
        watched.learned(len(batch))
        return loss

    watched = Watched.cloning(sequences, context.log, key)
    return await passes(
        learner,
        list(by_unit),
        update,
        options=options,
        context=context,
        name="cloning",
        validate=(lambda: learner.mean_loss(validation)) if validation else None,
    )


def weighted_loss(step_parts: Sequence[MicroBatch]) -> Loss:
    """Cross-entropy with each target's advantage as its weight, mean over the targets of these parts."""
    count = sum(len(part.targets) for part in step_parts)
    return lambda predictions, part: -(predictions.chosen * part.advantages).sum() / count


Recloning = TypeVar("Recloning", STaROptions, DAggerOptions)


class FromBase(ABC, Generic[Recloning]):
    """An Optimizer whose every `step`, one round, clones from the weights that the first round began with.

    Args:
        models: where weights live; the process's own if None.
    """

    name: str
    on_policy = True
    ordered = False
    accumulates = True
    """The trajectories of all rounds are cloned, not those of the last alone."""

    def __init__(self, options: Recloning, *, models: LocalModels | None = None) -> None:
        self.options: Recloning = options
        self.models = models or LocalModels.shared()
        self.group_size = options.group_size

    async def step(self, bundle: Bundle, groups: Sequence[Group], context: Context) -> Update:
        """Clone, from the base, what these groups and the rounds before have to teach.

        Raises:
            InputError: the Bundle has no weights, or the state is another method's.
            TrainingRefused: there is nothing to clone yet.
        """
        version = starting(bundle, self.options.resource)
        options = self.options = self.models.sized(self.options, version)
        run = resumed(context.state, KeptFromBase(base=msgspec.to_builtins(version)), self.name)
        chosen, figures = self._chosen(groups, read_kept(context.folder, run.file))
        # From the base and not from `version`, which names the parent alone: errors of a round do not add up.
        learner = learner_of(self.models, msgspec.convert(run.base, Version), options)
        figures |= await clone(learner, chosen, options, context, key=f"{run.round}/")
        meta: dict[str, Json] = {"method": self.name, "seed": options.seed, "round": run.round}
        checkpoint = learner.checkpoint(options.resource, context.folder, version.id, meta)
        run.round += 1
        if self.accumulates:
            # Another file each round: the state before, from which a killed run goes on, still names its own.
            run.file = write_kept(context.folder, chosen)
        done = run.round >= options.steps
        return Update(
            bundle=bundle.put(checkpoint),
            state=msgspec.to_builtins(run),
            metrics=figures,
            done=done,
            reason=f"all {options.steps} rounds done" if done else "",
        )

    @abstractmethod
    def _chosen(
        self, groups: Sequence[Group], before: Sequence[Chosen]
    ) -> tuple[list[Chosen], dict[str, float]]:
        """The trajectories to clone, given those of earlier rounds, and what was counted.

        Raises:
            TrainingRefused: there are none.
        """
