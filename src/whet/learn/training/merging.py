"""From the calls of a trajectory to sequences: each prompt that goes on from the call before it joins that.

A model call is (prompt_ids, output_ids).  While each prompt extends the call before it exactly, the calls
of a trajectory are one sequence, computed once; where one does not (a rewritten history, another agent), a
new sequence begins.  Text is never tokenised again, so what is trained on is what was sampled.

It needs no torch, so that what cannot be learned from is refused before that is imported.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from ...errors import InputError
from ...types import Tokens, Trajectory

LARGEST_ID = 2**31 - 1


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
    example: str = ""
    """Digest of the example that it is of (`datasets.dynamics`), where its dynamics are recorded."""


@dataclass(frozen=True, slots=True)
class MergeCounts:
    """Counts of merging calls into sequences."""

    calls: int = 0
    sequences: int = 0
    forked: int = 0
    """Calls whose prompt did not extend any earlier one of the same trajectory."""
    tokens: int = 0
    """To be computed, prompts included."""
    targets: int = 0
    unmerged_tokens: int = 0
    """Tokens to compute if every call were a sequence of its own."""

    @property
    def merged(self) -> int:
        """Calls that joined a sequence already begun."""
        return self.calls - self.sequences

    def __add__(self, other: MergeCounts) -> MergeCounts:
        return MergeCounts(
            self.calls + other.calls,
            self.sequences + other.sequences,
            self.forked + other.forked,
            self.tokens + other.tokens,
            self.targets + other.targets,
            self.unmerged_tokens + other.unmerged_tokens,
        )


def merge(trajectory: Trajectory, unit: int = 0) -> tuple[list[Merged], MergeCounts]:
    """The sequences of one trajectory.  Steps without tokens (tools, other agents) are passed over.

    Raises:
        InputError: a call without a prompt, with an id that is none, or whose mask or log-probabilities do
            not fit its output.
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
        # NaN and not 0, which would say that the token was certain; `require_logprobs` looks for it.
        logprobs = tokens.logprobs or [float("nan")] * len(tokens.output_ids)
        for offset, logprob in enumerate(logprobs):
            if tokens.mask is None or tokens.mask[offset]:
                into.targets.append(start + offset)
                into.logprobs.append(logprob)
                into.calls.append(number)
    counts = MergeCounts(
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
    if not are_ids(tokens):
        raise InputError(f"trajectory {trajectory.id}: a token id lies outside 0…{LARGEST_ID}")
    for name, values in (("mask", tokens.mask), ("logprobs", tokens.logprobs or None)):
        if values is not None and len(values) != len(tokens.output_ids):
            raise InputError(
                f"trajectory {trajectory.id}: {len(values)} entries in {name} "
                f"for {len(tokens.output_ids)} output ids"
            )


def are_ids(tokens: Tokens) -> bool:
    """True if a call's prompt and output could be ids of some vocabulary."""
    return all(
        min(ids) >= 0 and max(ids) <= LARGEST_ID for ids in (tokens.prompt_ids, tokens.output_ids) if ids
    )


def is_logprob(value: float) -> bool:
    """True if it could be the log of a probability, rounding allowed for."""
    return -math.inf < value <= 1e-3


def _extended(sequences: list[Merged], prompt: Sequence[int]) -> Merged | None:
    """The sequence that this prompt goes on from, the latest first."""
    for sequence in reversed(sequences):
        length = len(sequence.ids)
        # The whole sequence, output included: a prompt that rewrites the last answer must fork.
        if len(prompt) >= length and list(prompt[:length]) == sequence.ids:
            return sequence
    return None
