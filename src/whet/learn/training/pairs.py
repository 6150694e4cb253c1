"""Pairs of a better and a worse answer, from trajectories, from a tree of them, or imported.

- `trajectory_pairs`: two trajectories of one task whose rewards differ.
- `step_pairs`: two answers to the *same* prompt, judged by what came of the trajectories
  that went through them; the prompts of a group's trajectories form a tree, whether a
  search made it or sampling did (Agent Q, Putta et al. 2024; Step-DPO, Lai et al. 2024).
- `imported`: preferences of people or judges.

Identical answers teach nothing and are counted; so are ties.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

import torch
from torch import Tensor

from ...errors import InputError, TrainingRefused
from ...types import Group, Json, Preference, Tokens, Trajectory
from ..datasets.dynamics import asked_of, example_of_pair
from .batch import Merged, MicroBatch, merge, parts
from .credit import reward_of
from .learner import chosen_logprobs
from .losses import unit_sums
from .network import Network

Encode = Callable[[Json], Sequence[int]]
"""A prompt or an answer → token ids."""


@dataclass(frozen=True, slots=True)
class PreferencePair:
    """A better and a worse answer as sequences."""

    chosen: list[Merged]
    rejected: list[Merged]
    task: str
    margin: float = 0.0
    """Difference of the rewards, where that is known."""
    example: str = ""
    """Digest of the example that it is (`datasets.dynamics`), where its dynamics are recorded."""


def trajectory_pairs(
    groups: Sequence[Group],
    *,
    score: str | None = None,
    margin: float = 0.0,
    per_task: int = 8,
    seed: int = 0,
) -> tuple[list[PreferencePair], dict[str, float]]:
    """Pairs of whole trajectories of one task, and what was left out.

    Args:
        score: what is compared; None for the sum of the step rewards.
        margin: the reward must differ by more than this.
        per_task: pairs of one task at most, drawn by `seed`.
    """
    pairs: list[PreferencePair] = []
    left_out = {"ties": 0, "identical": 0, "over_cap": 0, "masked": 0}
    for group in groups:
        judged = [(trajectory, reward_of(trajectory, score)) for trajectory in group.trajectories]
        left_out["masked"] += sum(reward is None for _, reward in judged)
        answers = [(merge(t)[0], reward, t) for t, reward in judged if reward is not None and _wrote(t)]
        of_task = []
        for (left_answer, first, left), (right_answer, second, right) in itertools.combinations(answers, 2):
            if abs(first - second) <= margin:
                left_out["ties"] += 1
            elif _same(left_answer, right_answer):
                left_out["identical"] += 1
            else:
                better = first > second
                of_task.append(
                    PreferencePair(
                        left_answer if better else right_answer,
                        right_answer if better else left_answer,
                        group.task.id,
                        abs(first - second),
                        _example(left, right) if better else _example(right, left),
                    )
                )
        # A stream for each task: which pairs are drawn of one does not depend on the others.
        random.Random(f"{seed}/{group.task.id}").shuffle(of_task)
        left_out["over_cap"] += max(0, len(of_task) - per_task)
        pairs.extend(of_task[:per_task])
    return pairs, {name: float(count) for name, count in left_out.items()}


def step_pairs(
    groups: Sequence[Group], *, score: str | None = None, margin: float = 0.0, per_task: int = 8
) -> tuple[list[PreferencePair], dict[str, float]]:
    """Pairs of answers to one prompt, the best against each that is worse, and what was left out.

    An answer's worth is the mean reward of the trajectories that gave it there; loss falls on the
    answer's tokens alone.  Of a task's pairs, those that differ most come first.
    """
    pairs: list[PreferencePair] = []
    left_out = {"ties": 0, "over_cap": 0, "masked": 0, "nodes": 0}
    for group in groups:
        nodes: dict[tuple[int, ...], dict[tuple[int, ...], list[float]]] = {}
        call_of: dict[tuple[tuple[int, ...], tuple[int, ...]], Tokens] = {}
        for trajectory in group.trajectories:
            reward = reward_of(trajectory, score)
            if reward is None:
                left_out["masked"] += 1
                continue
            for tokens in (step.tokens for step in trajectory.steps):
                if tokens is not None and tokens.output_ids:
                    prompt, output = tuple(tokens.prompt_ids), tuple(tokens.output_ids)
                    nodes.setdefault(prompt, {}).setdefault(output, []).append(reward)
                    call_of[prompt, output] = tokens
        of_task = []
        for prompt, answers in nodes.items():
            if len(answers) < 2:
                continue
            left_out["nodes"] += 1
            # Equal worth is ordered by ids: the best answer does not depend on the record's order.
            worth = sorted((fmean(rewards), output) for output, rewards in answers.items())
            high, best = worth[-1]
            for low, worse in worth[:-1]:
                if high - low <= margin:
                    left_out["ties"] += 1
                    continue
                sides = _one_call(call_of[prompt, best]), _one_call(call_of[prompt, worse])
                of_task.append(PreferencePair([sides[0]], [sides[1]], group.task.id, high - low))
        of_task.sort(key=lambda pair: -pair.margin)
        left_out["over_cap"] += max(0, len(of_task) - per_task)
        pairs.extend(of_task[:per_task])
    return pairs, {name: float(count) for name, count in left_out.items()}


def imported(
    preferences: Sequence[Preference], encode: Encode | None = None
) -> tuple[list[PreferencePair], dict[str, float]]:
    """Preferences as pairs; the prompt is context, the whole answer is learned from.

    Args:
        encode: prompt or answer → ids; not needed where they are lists of ids already.

    Raises:
        InputError: text without an `encode`.
    """
    pairs: list[PreferencePair] = []
    left_out = {"ties": 0, "identical": 0}
    for number, preference in enumerate(preferences):
        prompt, chosen, rejected = (
            _ids(value, encode) for value in (preference.prompt, preference.chosen, preference.rejected)
        )
        if preference.tie:
            left_out["ties"] += 1
        elif chosen == rejected:
            left_out["identical"] += 1
        else:
            sides = [_one_call(Tokens(prompt, answer, ())) for answer in (chosen, rejected)]
            example = preference.example or example_of_pair(
                preference.prompt, preference.chosen, preference.rejected
            )
            pairs.append(PreferencePair([sides[0]], [sides[1]], f"{prompt}/{number}", example=example))
    return pairs, {name: float(count) for name, count in left_out.items()}


def _example(better: Trajectory, worse: Trajectory) -> str:
    return example_of_pair(asked_of(better), better.output, worse.output)


def of_ids(preference: Preference) -> bool:
    """True if its prompt and answers are token ids, which no tokenizer has to read."""
    sides = (preference.prompt, preference.chosen, preference.rejected)
    return all(isinstance(side, list | tuple) and all(isinstance(id, int) for id in side) for side in sides)


def _ids(value: Json, encode: Encode | None) -> list[int]:
    if isinstance(value, list | tuple) and all(isinstance(id, int) for id in value):
        return list(value)
    if encode is None:
        raise InputError(
            f"a preference holds {value!r:.60}, which is no list of token ids; "
            "give encode=, which turns a prompt or an answer into ids"
        )
    return list(encode(value))


def _one_call(tokens: Tokens) -> Merged:
    start = len(tokens.prompt_ids)
    chosen = [i for i in range(len(tokens.output_ids)) if tokens.mask is None or tokens.mask[i]]
    return Merged(
        0, [*tokens.prompt_ids, *tokens.output_ids], [start + i for i in chosen], [float("nan")] * len(chosen)
    )


def _wrote(trajectory: Trajectory) -> bool:
    return any(step.tokens is not None and step.tokens.output_ids for step in trajectory.steps)


def _same(first: Sequence[Merged], second: Sequence[Merged]) -> bool:
    return [(s.ids, s.targets) for s in first] == [(s.ids, s.targets) for s in second]


def with_preferences(
    compared: tuple[list[PreferencePair], dict[str, float]],
    preferences: Sequence[Preference],
    encode: Encode | None,
    groups: int,
) -> tuple[list[PreferencePair], dict[str, float]]:
    """Pairs of trajectories and of people's preferences; how many there are, and what was left out.

    Args:
        compared: what `trajectory_pairs` or `step_pairs` gave.
        groups: how many groups that was made of.

    Raises:
        InputError: as `imported`.
        TrainingRefused: there is nothing to compare.
    """
    of_people, skipped = imported(preferences, encode)
    pairs, left_out = [*compared[0], *of_people], compared[1]
    for name, count in skipped.items():
        left_out[name] = left_out.get(name, 0.0) + count
    if not pairs:
        why = ", ".join(f"{count:g} {name}" for name, count in left_out.items() if count) or "no trajectories"
        raise TrainingRefused(
            f"no pair of a better and a worse answer in {groups} groups ({why}). Collect several "
            "trajectories of each task, with rewards that differ, or give preferences."
        )
    return pairs, {**dict(sorted(left_out.items())), "pairs": float(len(pairs))}


def cut_pairs(
    pairs: Sequence[PreferencePair],
    numbers: Sequence[int],
    part_tokens: int | None,
    length: int | None = None,
) -> list[MicroBatch]:
    """Parts that keep both sides of a pair together; units are 2i for chosen and 2i + 1 for rejected.

    Args:
        numbers: which pairs; `i` counts within them unless `length` is given, the number of all
            pairs, in which case `i` is the pair's own number.
    """
    sequences = []
    for position, number in enumerate(numbers):
        unit = 2 * (position if length is None else number)
        for side, own in enumerate((pairs[number].chosen, pairs[number].rejected)):
            sequences += [_as_unit(sequence, unit + side) for sequence in own]
    return parts(sequences, part_tokens, block=lambda sequence: sequence.unit // 2)


def _as_unit(sequence: Merged, unit: int) -> Merged:
    # A copy: one answer stands in several pairs, each of which numbers it anew.
    return Merged(unit, sequence.ids, sequence.targets, sequence.logprobs, extra=sequence.extra)


def side_sums(values: Tensor, part: MicroBatch) -> tuple[Tensor, Tensor, Tensor]:
    """(P,) pair numbers in a part and (P,) sums of its (N,) values, chosen and rejected."""
    numbers = torch.unique(part.units // 2)
    sums = unit_sums(values, part.units, int(part.units.max()) + 2)
    return numbers, sums[2 * numbers], sums[2 * numbers + 1]


@torch.no_grad()
def reference_sums(
    network: Network, pairs: Sequence[PreferencePair], part_tokens: int | None
) -> tuple[Tensor, Tensor]:
    """(pairs,) log-probability of each chosen and each rejected answer under a network."""
    chosen, rejected = torch.zeros(len(pairs)), torch.zeros(len(pairs))
    every = range(len(pairs))
    for part in cut_pairs(pairs, every, part_tokens, len(pairs)):
        numbers, winners, losers = side_sums(chosen_logprobs(network, part), part)
        chosen[numbers], rejected[numbers] = winners, losers
    return chosen, rejected
