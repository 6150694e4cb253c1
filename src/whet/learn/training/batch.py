"""From trajectories to what a network is trained on: merged sequences, then parts without padding.

`merging.py` makes one sequence of the calls of a trajectory that go on from each
other; here they are cut into parts.  Loss falls on the tokens that the policy chose
and on nothing else.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from .merging import MergeCounts as MergeCounts
from .merging import Merged as Merged
from .merging import are_ids as are_ids
from .merging import is_logprob as is_logprob
from .merging import merge as merge
from .packing import WORTH, Layout, common, lexicographic, plan

PART_TOKENS = 4_096
"""Tokens of a part where nobody says how many; methods ask what suits their model (`LocalModels.sized`)."""


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Sequences that are computed at once, with their N targets packed."""

    layout: Layout
    """The tokens to compute; `layout.index` finds each target's prediction."""
    targets: Tensor
    """(N,) token ids"""
    logprobs: Tensor
    """(N,) as sampled"""
    advantages: Tensor
    """(N,)"""
    units: Tensor
    """(N,) trajectory of each target"""
    tokens: int
    """Of its sequences; what they have in common is computed once, see `computed`."""
    extra: Mapping[str, Tensor] = field(default_factory=dict)
    """(N,) each"""

    @property
    def computed(self) -> int:
        """Tokens that the network sees."""
        return len(self.layout.ids)


def parts(
    sequences: Sequence[Merged],
    part_tokens: int | None = None,
    *,
    block: Callable[[Merged], int] | None = None,
    share: bool = True,
) -> list[MicroBatch]:
    """Cut into parts of at most this many tokens to compute (one block at least; PART_TOKENS if None).

    What begins alike comes together, so that its beginning is computed once; otherwise the shortest
    first.  Inside a part the targets stand in the order given.  Sequences without a target are left out:
    nothing is learned from them.

    Args:
        block: sequences for which it gives the same number stay in one part, as a loss needs that
            compares them (a pair) or sums over them (a trajectory); None lets each stand alone.
        share: False computes what sequences have in common once for each of them.
    """
    blocks: dict[int, list[Merged]] = {}
    for number, sequence in enumerate(sequence for sequence in sequences if sequence.targets):
        blocks.setdefault(number if block is None else block(sequence), []).append(sequence)
    every = list(blocks.values())
    complete: list[MicroBatch] = []
    open_: list[int] = []
    most = part_tokens or PART_TOKENS
    room = most
    for number, alone, beside in _in_order(every, share=share):
        if open_ and beside > room:
            complete.append(
                _part(
                    [sequence for block in sorted(open_) for sequence in every[block]],
                    share=share,
                )
            )
            open_, room = [], most
        room -= beside if open_ else alone
        open_.append(number)
    if open_:
        complete.append(
            _part([sequence for block in sorted(open_) for sequence in every[block]], share=share)
        )
    return complete


def by_unit(sequence: Merged) -> int:
    """The `block` that keeps the sequences of a trajectory in one part."""
    return sequence.unit


def _in_order(blocks: Sequence[list[Merged]], *, share: bool) -> Iterator[tuple[int, int, int]]:
    """Numbers of blocks in the order of computing, with their tokens alone and after the one before."""
    if not share:
        for number in sorted(range(len(blocks)), key=lambda number: _longest(blocks[number])):
            size = sum(len(sequence.ids) for sequence in blocks[number])
            yield number, size, size
        return
    ids = [[np.asarray(sequence.ids, dtype=np.int64) for sequence in block] for block in blocks]
    runs: list[list[tuple[int, int]]] = []
    order = lexicographic([block[0] for block in ids])
    for position, number in enumerate(order):
        before = ids[order[position - 1]][0] if position else ids[number][0][:0]
        same = common(before, ids[number][0])
        if same >= max(WORTH, min(len(before), len(ids[number][0])) // 16):
            runs[-1].append((number, same))
        else:
            runs.append([(number, 0)])
    for run in sorted(runs, key=lambda run: max(_longest(blocks[number]) for number, _ in run)):
        for number, same in run:
            own = ids[number]
            inside = [common(previous, following) for previous, following in pairwise(own)]
            alone = sum(map(len, own)) - sum(shared for shared in inside if shared >= WORTH)
            yield number, alone, alone - same


def _longest(sequences: Sequence[Merged]) -> int:
    return max(len(sequence.ids) for sequence in sequences)


def marked(sequence: Merged, positions: Sequence[int], **extra: list[float]) -> Merged:
    """A sequence whose targets are read *at* these positions instead of written there.

    A head that scores what has been said so far looks at the state of the token itself; a MicroBatch asks for
    the state that predicts a target, so the target is the token after it, or one that is appended (which
    causal attention keeps from touching anything before it).
    """
    return Merged(
        sequence.unit,
        [*sequence.ids, 0],  # any id: nothing attends to it
        [position + 1 for position in positions],
        [0.0] * len(positions),
        extra=extra,
    )


def _part(sequences: Sequence[Merged], *, share: bool) -> MicroBatch:
    counts = [len(sequence.targets) for sequence in sequences]
    predicted_from = [[target - 1 for target in sequence.targets] for sequence in sequences]
    targets = [sequence.ids[target] for sequence in sequences for target in sequence.targets]
    advantages = np.concatenate([s.advantages or [0.0] * len(s.targets) for s in sequences])
    logprobs = np.concatenate([sequence.logprobs for sequence in sequences])
    names = sorted({name for sequence in sequences for name in sequence.extra})
    extra = {name: np.concatenate([s.extra[name] for s in sequences]) for name in names}
    return MicroBatch(
        layout=plan([sequence.ids for sequence in sequences], predicted_from, share=share),
        targets=torch.tensor(targets),
        logprobs=torch.from_numpy(logprobs.astype(np.float32)),
        advantages=torch.from_numpy(advantages.astype(np.float32)),
        units=torch.from_numpy(np.repeat([sequence.unit for sequence in sequences], counts)),
        tokens=sum(len(sequence.ids) for sequence in sequences),
        # In float32, so the numbers of rows and steps that stand in `extra` are exact up to 2**24.
        extra={name: torch.from_numpy(values.astype(np.float32)) for name, values in extra.items()},
    )


def minibatches(sequences: Sequence[Merged], size: int | None, rng: random.Random) -> Iterator[list[Merged]]:
    """Shuffled batches of `size` trajectories (all if None); a trajectory's sequences stay together."""
    by_unit: dict[int, list[Merged]] = {}
    for sequence in sequences:
        by_unit.setdefault(sequence.unit, []).append(sequence)
    # In the order given, so that one seed shuffles equal batches to equal minibatches.
    units = list(by_unit)
    rng.shuffle(units)
    size = size or len(units)
    for start in range(0, len(units), size):
        yield [sequence for unit in units[start : start + size] for sequence in by_unit[unit]]
