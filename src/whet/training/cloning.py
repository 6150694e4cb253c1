"""Supervised training on action tokens: what cloning, STaR, DAgger and AWR have in common.

Trajectories are chosen (deduplicated by their tokens, capped by task, because easy
tasks otherwise dominate), a share of the tasks is kept aside for early stopping, and
the weights of the epoch with the lowest loss there are what remains.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from ..errors import InputError, TrainingRefused
from ..loop import Context
from ..types import Bundle, Group, Json, Outcome, Trajectory, Version, digest, new_id
from .batch import Counts, Merged, Part, merge, minibatches, parts
from .guards import Guard
from .learner import Learner, Loss, cloning_loss
from .local import LocalModels
from .optim import OptimOptions
from .options.records import CloneOptions as CloneOptions


@dataclass(kw_only=True)
class Kept:
    """How far a method is that learns again from what it kept of earlier rounds; saved as Update.state."""

    round: int = 0
    file: str = ""
    """What earlier rounds kept, in the context's folder (`write_kept`)."""


@dataclass(kw_only=True)
class FromBase(Kept):
    """The same of a method that begins every round with the same weights."""

    base: dict[str, Json]
    """The Version that they are."""


T = TypeVar("T")


def resumed(state: Json, begun: T, method: str) -> T:
    """What a method saved as Update.state; `begun` if it saved nothing yet.

    Raises:
        InputError: the state is another method's.
    """
    if state is None:
        return begun
    try:
        return msgspec.convert(state, type(begun))
    except msgspec.ValidationError as error:
        raise InputError(f"this is no state of {method}: {error}") from error


Chosen = tuple[str, tuple[list[Merged], Counts]]
"""A task's id, and one trajectory of it as sequences."""


def starting(bundle: Bundle, resource: str) -> Version:
    """The weights of a Bundle.

    Raises:
        InputError: it has none of that name.
    """
    if resource not in bundle:
        raise InputError(
            f"the bundle has no resource {resource!r}, only {sorted(bundle)}; "
            "put one there with whet.training.local.fresh(...)"
        )
    return bundle[resource]


def learner_of(models: LocalModels, version: Version, optim: OptimOptions) -> Learner:
    """A learner that begins with these weights."""
    made = int(version.meta.get("policy_version", 0))
    return models.learn(models.decoder(version), optim, policy_version=made)


def succeeded(trajectory: Trajectory, score: str | None = None, threshold: float = 0.5) -> bool | None:
    """Whether its outcome is success, or its score reaches the threshold; None if nothing has judged it."""
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
    left = {"unjudged": 0, "filtered": 0, "without_tokens": 0, "repeated": 0, "over_cap": 0}
    seen: set[str] = set()
    taken: dict[str, int] = {}
    for trajectory in (trajectory for group in groups for trajectory in group.trajectories):
        verdict = passes(trajectory)
        if not verdict:
            left["unjudged" if verdict is None else "filtered"] += 1
            continue
        merged = merge(trajectory, len(chosen))
        if not merged[1].targets:
            left["without_tokens"] += 1
            continue
        task = trajectory.task.id
        content = digest([task, [[s.ids, s.targets] for s in merged[0]]])
        if content in seen:
            left["repeated"] += 1
        elif per_task is not None and taken.get(task, 0) >= per_task:
            left["over_cap"] += 1
        else:
            seen.add(content)
            taken[task] = taken.get(task, 0) + 1
            chosen.append((task, merged))
    if not chosen:
        raise TrainingRefused(_refusal(left))
    return chosen, {name: float(count) for name, count in left.items()}


_LEFT = {
    "unjudged": ("without an outcome or score", "have them judged, by a reward or by feedback"),
    "filtered": (
        "refused by the filter",
        "collect from an agent that succeeds, or look at the filter (keep, score, threshold)",
    ),
    "without_tokens": ("without token ids", "record through whet's gateway or sample with whet's policies"),
}
"""Why nothing of a trajectory is cloned: in words, and what to do about it."""


def _refusal(left: Mapping[str, int]) -> str:
    """Why no trajectory is left; one that is repeated or over a cap is not a reason, for another was chosen."""
    reasons = {name: left[name] for name in _LEFT if left[name]}
    if not reasons:
        return (
            "no trajectory to clone: none is recorded for these tasks. Collect on them first (Experiment.collect), or "
            "give recorded groups"
        )
    counts = ", ".join(f"{count} {_LEFT[name][0]}" for name, count in reasons.items())
    return f"no trajectory to clone: {counts}. To do: {'; '.join(_LEFT[name][1] for name in reasons)}."


def divide(chosen: list[Chosen], share: float) -> tuple[list[Chosen], list[Chosen]]:
    """By the hash of the task, so that no task is on both sides and a resumed run splits alike."""
    aside = {task for task, _ in chosen if int(digest(["validation", task]), 16) < share * 16**16}
    held = [item for item in chosen if item[0] in aside]
    if len(held) == len(chosen):
        return chosen, []
    return [item for item in chosen if item[0] not in aside], held


def kept(chosen: Sequence[Chosen]) -> Json:
    """What was chosen as JSON, for a state that must outlive the process."""
    return [[task, [[s.ids, s.targets] for s in sequences]] for task, (sequences, _) in chosen]


def recalled(saved: Json) -> list[Chosen]:
    """What `kept` gave, as it was chosen.

    Raises:
        InputError: it is something else.
    """
    try:
        found: list[Chosen] = []
        for unit, (task, sequences) in enumerate(saved):
            made = [Merged(unit, list(ids), list(t), [float("nan")] * len(t)) for ids, t in sequences]
            tokens, targets = (sum(len(part) for part in parts) for parts in _columns(made))
            found.append((task, (made, Counts(len(made), len(made), 0, tokens, targets, tokens))))
    except (TypeError, ValueError) as error:
        raise InputError(f"this is no set of kept trajectories: {error}") from error
    return found


def _columns(sequences: Sequence[Merged]) -> tuple[list[list[int]], list[list[int]]]:
    return [sequence.ids for sequence in sequences], [sequence.targets for sequence in sequences]


def write_kept(folder: Path, chosen: Sequence[Chosen]) -> str:
    """Keep what was chosen in a file named after its content; the name."""
    folder.mkdir(parents=True, exist_ok=True)
    saved = kept(chosen)
    name = f"kept-{digest(saved)}.json"
    partial = folder / f".{name}.{new_id()}"
    partial.write_bytes(msgspec.json.encode(saved))
    os.replace(partial, folder / name)
    return name


def read_kept(folder: Path, name: str) -> list[Chosen]:
    """What `write_kept` wrote; nothing for no name.

    Raises:
        InputError: it is gone or was changed.
    """
    if not name:
        return []
    if name != Path(name).name or not (folder / name).is_file():
        raise InputError(f"what earlier rounds kept is not in {folder} as {name!r}; start again")
    saved = msgspec.json.decode((folder / name).read_bytes())
    if name != f"kept-{digest(saved)}.json":
        raise InputError(f"{folder / name} was changed since it was saved; start again")
    return recalled(saved)


def joined(before: Sequence[Chosen], now: Sequence[Chosen]) -> list[Chosen]:
    """Both, without repetitions, numbered anew."""
    found = list({digest(kept([one])): one for one in (*before, *now)}.values())
    for unit, (_, (sequences, _)) in enumerate(found):
        for sequence in sequences:
            sequence.unit = unit
    return found


async def clone(
    learner: Learner,
    chosen: list[Chosen],
    options: CloneOptions,
    context: Context,
    *,
    guard: Guard | None = None,
) -> dict[str, float]:
    """Train on these to the end; what was measured.

    Args:
        guard: what must not be forgotten meanwhile.

    Raises:
        TrainingRefused: a loss that is not finite, or memory ran out.
    """
    train, held = divide(chosen, options.validation_share)
    counts = sum((merged[1] for _, merged in train), Counts())
    sequences = [sequence for _, (found, _) in train for sequence in found]
    validation = parts([s for _, (found, _) in held for s in found], options.part_tokens)
    if guard is not None:
        guard.protect(learner)
        sequences = guard.mixed(sequences)
    figures = await fit(learner, sequences, validation, options, context)
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
    validation: list[Part],
    options: CloneOptions,
    context: Context,
    *,
    loss_of: Callable[[Sequence[Part]], Loss] = cloning_loss,
) -> dict[str, float]:
    """Epochs over these sequences, until the validation loss rises or the last one is done."""
    units = len({sequence.unit for sequence in sequences})
    per_epoch = -(-units // options.batch)
    total = options.epochs * per_epoch
    best, best_weights, worse, losses = float("inf"), None, 0, [0.0]
    epoch = 0
    for epoch in range(1, options.epochs + 1):
        losses = []
        for batch in minibatches(sequences, options.batch, random.Random(f"{options.seed}/{epoch}")):
            cut = parts(batch, options.part_tokens)
            rate = options.optim.rate(learner.updates, total)
            losses.append(learner.update(cut, loss_of(cut), rate=rate).loss)
            context.progress("cloning", learner.updates, total, loss=losses[-1])
            await asyncio.sleep(0)  # a long computation in an event loop others live in too
        if not validation:
            continue
        loss = learner.mean_loss(validation)
        if loss < best:
            best, worse = loss, 0
            best_weights = learner.snapshot()
        else:
            worse += 1
            if worse >= options.patience:
                break
    if best_weights is not None:
        learner.revert(best_weights)
    figures = {
        "loss": sum(losses) / len(losses),
        "epochs": float(epoch),
        "updates": float(learner.updates),
    }
    return figures | ({"validation_loss": best} if validation else {})


def weighted_loss(step_parts: Sequence[Part]) -> Loss:
    """Cross-entropy with each target's advantage as its weight, mean over the targets of these parts."""
    count = sum(len(part.targets) for part in step_parts)
    return lambda predictions, part: -(predictions.chosen * part.advantages).sum() / count
