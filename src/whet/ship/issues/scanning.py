"""Reading the record into a table of runs, what marks them and what of them failed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ...judge.drift import Drift
from ...judge.signs import SignPrecision
from ...types import Trajectory
from .failing import (
    JUDGED,
    PEOPLE,
    RETURNS,
    SECONDS,
    TOKENS,
    Word,
    believed,
    came_back,
    hard_failures,
    jumps,
    word_of,
)
from .marks import SEQUENCE, TOOL_MARK, RunMark, marks_of
from .slices import FEWEST_RUNS, RunTable

_PRUNED_EVERY = 20_000
"""Runs after which marks of single runs are dropped: words of questions are without end."""


@dataclass(slots=True)
class IssueScan:
    """What one look at the record has read."""

    table: RunTable = field(default_factory=RunTable)
    signs: list[SignPrecision] = field(default_factory=list)
    thumbs: int = 0
    """Runs that people said something of."""
    drifts: Sequence[Drift] = ()
    """What drifted since the last release."""


def scan(runs: Iterable[Trajectory], *, score: str | None = None) -> IssueScan:
    """Read runs, each once; of each some hundred bytes are kept.

    Args:
        score: name of a Score in [0, 1] that says which runs failed: those below a half. Their outcomes say so if None.
    """
    result = IssueScan()
    table = result.table
    words: dict[str, Word] = {}
    person_of: dict[str, str] = {}
    seconds: list[float] = []
    tokens: list[float] = []
    shapes: dict[RunMark | None, int] = {}
    alike: list[int] = []
    asked_again: set[str] = set()
    """Sessions whose last run was followed by the same question."""
    repeats: set[str] = set()
    for run in runs:
        marks = marks_of(run)
        person = run.subject or run.session or run.task.group or run.id
        number = table.add(run.id, run.started, person, marks)
        word = word_of(run.feedback)
        if run.session is not None:
            # Whoever asks the same again was not content, and seldom is the second time: that is one failure, not two.
            if run.session in asked_again:
                repeats.add(run.id)
            (asked_again.add if ("rephrased", True) in word.signs else asked_again.discard)(run.session)
        for measure, failed in hard_failures(run, score).items():
            table.label(measure, number, failed)
        if word.thumb is not None or word.signs:
            words[run.id], person_of[run.id] = word, person
        usage = run.usage
        seconds.append(run.seconds or 0.0)
        tokens.append(float(usage.prompt_tokens + usage.output_tokens))
        shape = next((mark for mark in marks if mark.kind == SEQUENCE), None)
        shape = shape or next((mark for mark in marks if mark.kind == TOOL_MARK), None)
        alike.append(shapes.setdefault(shape, len(shapes)))
        if number and number % _PRUNED_EVERY == 0:
            table.prune(2)
    table.prune(FEWEST_RUNS)
    _label_people(result, {id: word for id, word in words.items() if id not in repeats}, person_of)
    for measure, amounts in ((SECONDS, seconds), (TOKENS, tokens)):
        for number, jumped in enumerate(jumps(amounts, alike)):
            table.label(measure, number, jumped)
    table.finish()
    # A record in which everything succeeded, or nothing did, has nothing to compare.
    for measure in list(table.labels):
        if 2 not in table.labels[measure] or (measure == JUDGED and 1 not in table.labels[measure]):
            del table.labels[measure]
    return result


def _label_people(result: IssueScan, words: dict[str, Word], person_of: dict[str, str]) -> None:
    result.signs = believed(words, person_of)
    result.thumbs = sum(word.thumb is not None for word in words.values())
    doubted = {sign.kind for sign in result.signs if not sign.speaks_for and not sign.counts}
    for number, id in enumerate(result.table.ids):
        if (word := words.get(id)) is not None:
            result.table.label(PEOPLE, number, word.thumb)
            result.table.label(RETURNS, number, came_back(word, doubted))
