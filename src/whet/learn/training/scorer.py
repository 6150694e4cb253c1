"""Learned rewards: a number read from a language model's state where an answer or a step ends.

A `Scorer` is a network and a linear head.  Read at the end of a trajectory it is a
reward model (trained on pairs, or on outcomes: an ORM); read at the end of every step
it is a process reward model.  `LearnedReward` makes one a Reward, by its Version.

It sees what the policy saw and wrote and nothing else: no outcome, no reward, no
length, no count of turns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from ...errors import InputError, NotFoundError
from ...types import Json, Score, Trajectory, Version, digest, new_id
from . import model
from .batch import Merged, marked, merge, parts
from .local import LocalModels
from .network import Network, ScalarHead, saved, target_states

Reads = Literal["end", "steps"]
HEAD = "head.safetensors"


@dataclass(slots=True)
class Scorer:
    """A network whose states a head turns into scores."""

    network: Network
    head: ScalarHead

    def ends(self, trajectory: Trajectory, unit: int) -> list[Merged]:
        """The place where a whole trajectory is read: the last token of its newest call."""
        sequences, counts = merge(trajectory, unit)
        if not counts.targets:
            return []
        newest = max(sequences, key=lambda sequence: sequence.calls[-1] if sequence.calls else -1)
        return [marked(newest, [newest.targets[-1]])]

    def steps(self, trajectory: Trajectory, unit: int) -> list[Merged]:
        """The places where its steps are read: the last token of each call, numbered by `step`."""
        marks = []
        for sequence in merge(trajectory, unit)[0]:
            last = dict(zip(sequence.calls, sequence.targets, strict=True))
            if last:
                marks.append(marked(sequence, list(last.values()), step=[float(call) for call in last]))
        return marks

    @torch.no_grad()
    def score(self, trajectories: Sequence[Trajectory], part_tokens: int | None = None) -> list[float | None]:
        """A score for each whole trajectory; None where the policy wrote nothing."""
        places = [mark for unit, t in enumerate(trajectories) for mark in self.ends(t, unit)]
        scores: list[float | None] = [None] * len(trajectories)
        for part in parts(places, part_tokens):
            for unit, value in zip(part.units, self.head(target_states(self.network, part)), strict=True):
                scores[int(unit)] = float(value)
        return scores

    @torch.no_grad()
    def score_steps(self, trajectories: Sequence[Trajectory]) -> list[dict[int, float]]:
        """For each trajectory, step number → probability that the step is good."""
        places = [mark for unit, t in enumerate(trajectories) for mark in self.steps(t, unit)]
        scores: list[dict[int, float]] = [{} for _ in trajectories]
        for part in parts(places):
            values = torch.sigmoid(self.head(target_states(self.network, part)))
            for unit, step, value in zip(part.units, part.extra["step"], values, strict=True):
                scores[int(unit)][int(step)] = float(value)
        return scores

    def save(
        self, resource: str, folder: Path, parent: str | None, meta: Mapping[str, Json], reads: Reads
    ) -> Version:
        """Write network and head to a folder of their own and return the Version, of kind `reward`."""
        path = folder / f"reward-{new_id()}"
        inner = saved(self.network, resource, path, None, {})
        # After the network: `saved` wants a folder with nothing in it.
        model.save_tensors(self.head.state_dict(), path / HEAD)
        content = {
            "network": inner.content,
            "kind": inner.kind,
            "head": model.sha256(path / HEAD),
            "reads": reads,
        }
        same = digest([resource, inner.id, content["head"], reads])
        return Version(
            resource=resource, kind="reward", content=content, parent=parent, meta=dict(meta), id=same
        )


def load_scorer(version: Version, models: LocalModels | None = None) -> Scorer:
    """The scorer of a Version of kind `reward`.

    Raises:
        InputError: another kind of Version, or a file that was changed.
        NotFoundError: a file is gone.
    """
    if version.kind != "reward":
        raise InputError(f"{version.resource} {version.id} is of kind {version.kind}, not a learned reward")
    content = version.content
    inner = Version(resource=version.resource, kind=content["kind"], content=content["network"])
    network = (models or LocalModels.shared()).decoder(inner)
    path = Path(content["network"]["path"]) / HEAD
    if not path.is_file():
        raise NotFoundError(f"no {HEAD} beside the weights in {path.parent}")
    if model.sha256(path) != content["head"]:
        raise InputError(f"{path} was changed since it was saved")
    tensors = model.load_tensors(path)
    # The Version does not say the head's width: its tensors do.
    inside = tensors["inner.weight"].shape[0] if "inner.weight" in tensors else None
    head = ScalarHead(network.hidden, inside)
    head.load_state_dict(tensors)
    return Scorer(network, head)


class LearnedReward:
    """A learned reward as a Reward: call it with a Trajectory.

    Args:
        version: of kind `reward`.
        name: of the Score; the resource's name if None.
        squash: turn the score into a probability.
        steps: how a process reward model's steps become one number: their least, or their product.
    """

    def __init__(
        self,
        version: Version,
        *,
        name: str | None = None,
        models: LocalModels | None = None,
        squash: bool = False,
        steps: Literal["min", "product"] = "min",
    ) -> None:
        self._scorer = load_scorer(version, models)
        self._reads: Reads = version.content["reads"]
        self._squash = squash
        self._combine: Callable[[list[float]], float] = min if steps == "min" else math.prod
        self.version = version
        self.__name__ = name or version.resource

    def __call__(self, trajectory: Trajectory) -> Score:
        """Its score; None where the policy wrote no tokens that could be read."""
        return self.many([trajectory])[0]

    def many(self, trajectories: Sequence[Trajectory]) -> list[Score]:
        """The scores of several, computed together."""
        if self._reads == "steps":
            step_scores = [list(steps.values()) for steps in self._scorer.score_steps(trajectories)]
            values = [self._combine(steps) if steps else None for steps in step_scores]
        else:
            values = self._scorer.score(trajectories)
            # A score at the end alone: `score_steps` gives probabilities already.
            if self._squash:
                values = [None if value is None else 1.0 / (1.0 + math.exp(-value)) for value in values]
        return [
            Score(
                self.__name__,
                value,
                "" if value is not None else "the policy wrote no tokens",
                self.version.id,
            )
            for value in values
        ]


def new_scorer(network: Network) -> Scorer:
    """A scorer that gives everything 0."""
    return Scorer(network, ScalarHead(network.hidden))


def agreement(chosen: Tensor, rejected: Tensor) -> float:
    """Share of pairs that are ranked the right way round; ties count half."""
    return float(((chosen > rejected).float() + 0.5 * (chosen == rejected).float()).mean())
