"""From trajectories to what a network is trained on: merged sequences, then padded parts.

A model call is (prompt_ids, output_ids).  While each prompt extends the call
before it exactly, the calls of a trajectory are one sequence, computed once;
where one does not (a rewritten history, another agent), a new sequence begins.
Loss falls on the tokens that the policy chose and on nothing else.  Text is
never tokenised again, so what is trained on is what was sampled.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from ..errors import InputError
from ..types import Tokens, Trajectory


@dataclass(slots=True)
class Merged:
    """One sequence of a trajectory."""

    unit: int
    """Which trajectory of the batch; its sequences share one advantage and one normalisation."""
    ids: list[int]
    targets: list[int] = field(default_factory=list)
    """Positions in `ids` that the policy chose, ascending; each is predicted from the one before it."""
    logprobs: list[float] = field(default_factory=list)
    """Of the targets, as sampled; NaN where the record has none."""
    advantages: list[float] = field(default_factory=list)
    """Of the targets; empty for supervised training."""
    calls: list[int] = field(default_factory=list)
    """Of the targets: which step of the trajectory wrote it."""
    extra: dict[str, list[float]] = field(default_factory=dict)
    """Of the targets: whatever else a method keeps for each, such as returns."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What merging has done."""

    calls: int = 0
    sequences: int = 0
    forked: int = 0
    """Calls whose prompt did not extend any earlier one of the same trajectory."""
    tokens: int = 0
    """To be computed, prompts included."""
    targets: int = 0
    unmerged_tokens: int = 0
    """What would have to be computed if every call were a sequence of its own."""

    @property
    def merged(self) -> int:
        """Calls that joined a sequence already begun."""
        return self.calls - self.sequences

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.calls + other.calls,
            self.sequences + other.sequences,
            self.forked + other.forked,
            self.tokens + other.tokens,
            self.targets + other.targets,
            self.unmerged_tokens + other.unmerged_tokens,
        )


def merge(trajectory: Trajectory, unit: int = 0) -> tuple[list[Merged], Counts]:
    """The sequences of one trajectory.  Steps without tokens (tools, other agents) are passed over.

    Raises:
        InputError: a call without a prompt, or whose mask or log-probabilities do not fit its output.
    """
    sequences: list[Merged] = []
    calls = forked = unmerged = 0
    for number, step in enumerate(trajectory.steps):
        tokens = step.tokens
        if tokens is None or not tokens.output_ids:
            continue
        _check(tokens, trajectory)
        calls += 1
        unmerged += len(tokens.prompt_ids) + len(tokens.output_ids)
        into = _extended(sequences, tokens.prompt_ids)
        if into is None:
            forked += bool(sequences)
            into = Merged(unit, list(tokens.prompt_ids))
            sequences.append(into)
        else:
            into.ids.extend(tokens.prompt_ids[len(into.ids) :])
        start = len(into.ids)
        into.ids.extend(tokens.output_ids)
        logprobs = tokens.logprobs or [float("nan")] * len(tokens.output_ids)
        for offset, logprob in enumerate(logprobs):
            if tokens.mask is None or tokens.mask[offset]:
                into.targets.append(start + offset)
                into.logprobs.append(logprob)
                into.calls.append(number)
    counts = Counts(
        calls,
        len(sequences),
        forked,
        sum(len(sequence.ids) for sequence in sequences),
        sum(len(sequence.targets) for sequence in sequences),
        unmerged,
    )
    return sequences, counts


def _check(tokens: Tokens, trajectory: Trajectory) -> None:
    if not tokens.prompt_ids:
        raise InputError(f"trajectory {trajectory.id}: a model call without a prompt; give at least <bos>")
    for name, given in (("mask", tokens.mask), ("logprobs", tokens.logprobs or None)):
        if given is not None and len(given) != len(tokens.output_ids):
            raise InputError(
                f"trajectory {trajectory.id}: {len(given)} entries in {name} "
                f"for {len(tokens.output_ids)} output ids"
            )


def _extended(sequences: list[Merged], prompt: Sequence[int]) -> Merged | None:
    """The sequence that this prompt goes on from, the latest first."""
    for sequence in reversed(sequences):
        length = len(sequence.ids)
        if len(prompt) >= length and list(prompt[:length]) == sequence.ids:
            return sequence
    return None


@dataclass(frozen=True, slots=True)
class Part:
    """Sequences of about one length, padded, with their N targets packed."""

    ids: Tensor
    """(B, L)"""
    wanted: Tensor
    """(B, Q) positions whose next token is a target, padded with the last of them."""
    packed: Tensor
    """(N,) which of the B · Q are no padding."""
    targets: Tensor
    """(N,) token ids"""
    logprobs: Tensor
    """(N,) as sampled"""
    advantages: Tensor
    """(N,)"""
    units: Tensor
    """(N,) trajectory of each target"""
    tokens: int
    """Without padding."""
    extra: Mapping[str, Tensor] = field(default_factory=dict)
    """(N,) each"""


def parts(
    sequences: Sequence[Merged], part_tokens: int = 4096, *, block: Callable[[Merged], int] | None = None
) -> list[Part]:
    """Cut into padded parts of at most this many tokens (one block at least), shortest first.

    Sequences without a target are left out: nothing is learned from them.

    Args:
        block: sequences for which it gives the same number stay in one part, as a loss needs that
            compares them (a pair) or sums over them (a trajectory); None lets each stand alone.
    """
    blocks: dict[int, list[Merged]] = {}
    for number, sequence in enumerate(one for one in sequences if one.targets):
        blocks.setdefault(number if block is None else block(sequence), []).append(sequence)
    order = sorted(blocks.values(), key=_longest)
    found: list[Part] = []
    open_: list[Merged] = []
    for one in order:
        if open_ and (len(open_) + len(one)) * _longest(one) > part_tokens:
            found.append(_part(open_))
            open_ = []
        open_.extend(one)
    return [*found, _part(open_)] if open_ else found


def by_unit(sequence: Merged) -> int:
    """The `block` that keeps the sequences of a trajectory in one part."""
    return sequence.unit


def _longest(sequences: Sequence[Merged]) -> int:
    return max(len(sequence.ids) for sequence in sequences)


def marked(sequence: Merged, positions: Sequence[int], **extra: list[float]) -> Merged:
    """A sequence whose targets are read *at* these positions instead of written there.

    A head that scores what has been said so far looks at the state of the token itself; a Part asks for
    the state that predicts a target, so the target is the token after it, or one that is appended (which
    causal attention keeps from touching anything before it).
    """
    return Merged(
        sequence.unit,
        [*sequence.ids, 0],
        [position + 1 for position in positions],
        [0.0] * len(positions),
        extra=extra,
    )


def _part(sequences: Sequence[Merged]) -> Part:
    length = max(len(sequence.ids) for sequence in sequences)
    most = max(len(sequence.targets) for sequence in sequences)
    ids = np.zeros((len(sequences), length), dtype=np.int64)
    wanted = np.empty((len(sequences), most), dtype=np.int64)
    for row, sequence in enumerate(sequences):
        ids[row, : len(sequence.ids)] = sequence.ids
        count = len(sequence.targets)
        wanted[row, :count] = sequence.targets
        wanted[row, count:] = sequence.targets[-1]
    counts = np.array([len(sequence.targets) for sequence in sequences])
    packed = np.flatnonzero(np.arange(most) < counts[:, None])
    logprobs = np.concatenate([sequence.logprobs for sequence in sequences])
    advantages = np.concatenate([s.advantages or [0.0] * len(s.targets) for s in sequences])
    units = np.repeat([sequence.unit for sequence in sequences], counts)
    names = sorted({name for sequence in sequences for name in sequence.extra})
    extra = {name: np.concatenate([s.extra[name] for s in sequences]) for name in names}
    return Part(
        ids=torch.from_numpy(ids),
        wanted=torch.from_numpy(wanted - 1),
        packed=torch.from_numpy(packed),
        targets=torch.from_numpy(np.take_along_axis(ids, wanted, axis=1).reshape(-1)[packed]),
        logprobs=torch.from_numpy(logprobs.astype(np.float32)),
        advantages=torch.from_numpy(advantages.astype(np.float32)),
        units=torch.from_numpy(units),
        tokens=sum(len(sequence.ids) for sequence in sequences),
        extra={name: torch.from_numpy(values.astype(np.float32)) for name, values in extra.items()},
    )


def minibatches(sequences: Sequence[Merged], size: int | None, rng: random.Random) -> Iterator[list[Merged]]:
    """Shuffled batches of `size` trajectories (all if None); a trajectory's sequences stay together."""
    by_unit: dict[int, list[Merged]] = {}
    for sequence in sequences:
        by_unit.setdefault(sequence.unit, []).append(sequence)
    units = list(by_unit)
    rng.shuffle(units)
    size = size or len(units)
    for start in range(0, len(units), size):
        yield [sequence for unit in units[start : start + size] for sequence in by_unit[unit]]
