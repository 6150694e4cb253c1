"""What of a run failed, by each measure that it can be told by.

People's word, a score or an outcome, errors, guardrails, circles, time and tokens are measures of their own: each has
its own rate, and knows nothing of runs that it cannot judge.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...judge.conduct import looped, moves
from ...judge.signs import SignBesideThumb, SignPrecision, sign_precisions
from ...record.tracing.signals import IMPLICIT
from ...record.tracing.tool_calls import tool_calls
from ...types import Feedback, Outcome, Trajectory
from .marks import error_of

PEOPLE, RETURNS, JUDGED, ERRORS, TOOL_ERRORS = "people", "returns", "judged", "error", "tool error"
BLOCKED, LOOPS, SECONDS, TOKENS = "blocked", "loop", "seconds", "tokens"
MEASURES = (PEOPLE, JUDGED, RETURNS, TOOL_ERRORS, ERRORS, BLOCKED, LOOPS, SECONDS, TOKENS)
"""In the order in which one slice that fails by several is told by one."""
SAID = {
    PEOPLE: "people say that the answers are bad",
    RETURNS: "people come back with the same, or leave without an answer",
    JUDGED: "runs fail",
    TOOL_ERRORS: "tools fail",
    ERRORS: "runs end in errors",
    BLOCKED: "guardrails stop runs",
    LOOPS: "runs go round in circles",
    SECONDS: "runs take over three times as long",
    TOKENS: "runs take over three times the tokens",
}
JUMP = 3.0
"""A run is slow, or dear, from this multiple of what runs with the same tools take."""


@dataclass(slots=True)
class Word:
    """What people showed of one run."""

    thumb: bool | None = None
    """True for bad; None where nobody said."""
    signs: tuple[tuple[str, bool], ...] = ()
    """Kind of an implicit sign, and True where it speaks against the answer."""


def word_of(feedback: Iterable[Feedback]) -> Word:
    """What people said of a run last, and the signs that they gave."""
    thumb: bool | None = None
    signs: list[tuple[str, bool]] = []
    for opinion in sorted(feedback, key=lambda note: note.at):
        if opinion.kind in ("correction", "demonstration"):
            thumb = True
        elif opinion.value is None:
            continue
        elif opinion.kind.startswith(IMPLICIT):
            signs.append((opinion.kind.removeprefix(IMPLICIT), opinion.value < 0))
        elif opinion.kind == "rating":
            thumb = opinion.value < 0.5
        elif opinion.kind == "thumb":
            thumb = opinion.value < 0
    return Word(thumb, tuple(signs))


def believed(words: Mapping[str, Word], person_of: Mapping[str, str]) -> list[SignPrecision]:
    """How far each kind of sign agrees with the thumbs of the same runs."""
    thumbs = [word.thumb for word in words.values() if word.thumb is not None]
    if not thumbs:
        return []
    down = sum(thumbs) / len(thumbs)
    pairs = [
        SignBesideThumb(kind, not against, not word.thumb, person_of[run])
        for run, word in words.items()
        if word.thumb is not None
        for kind, against in word.signs
    ]
    return list(sign_precisions(pairs, {True: 1 - down, False: down}).values())


def came_back(word: Word, doubted: Collection[str]) -> bool | None:
    """True where a person showed by a sign that the answer was bad, False where by another sign that it was not.

    How often people come back is compared between slices, so a sign need not be right: it need only tell something.

    Args:
        doubted: signs against an answer that thumbs on the same runs do not confirm.
    """
    if not word.signs:
        return None
    return any(against and kind not in doubted for kind, against in word.signs)


def hard_failures(run: Trajectory, score: str | None) -> dict[str, bool]:
    """Measure → whether the run failed by it, for those that need nothing but the run."""
    failures: dict[str, bool] = {
        BLOCKED: run.outcome is Outcome.BLOCKED,
        ERRORS: run.error is not None or run.outcome in (Outcome.INFRASTRUCTURE_ERROR, Outcome.TIMEOUT),
    }
    calls = tool_calls(run)
    if calls:
        failures[TOOL_ERRORS] = any(error_of(call) is not None for call in calls)
    sequence = moves(run)
    if len(sequence) > 2:
        failures[LOOPS] = looped(sequence)[0] > 0
    judged = _judged(run, score)
    if judged is not None:
        failures[JUDGED] = judged
    return failures


def _judged(run: Trajectory, score: str | None) -> bool | None:
    if run.outcome is Outcome.INFRASTRUCTURE_ERROR:
        return None
    if score is not None:
        value = run.scores.get(score)
        return (
            None if value is None or (value.value is None and not value.broke) else (value.value or 0.0) < 0.5
        )
    if run.outcome in (Outcome.UNKNOWN, Outcome.BLOCKED):
        return None
    return run.outcome is not Outcome.SUCCESS


def jumps(amounts: Sequence[float], alike: Sequence[int]) -> list[bool | None]:
    """Which runs take `JUMP` times as much as the cheaper half of those like them; None where too few are like them.

    Args:
        amounts: seconds or tokens (N); 0 where it is not known.
        alike: a number for each run (N), the same for runs with the same tools.
    """
    by_kind: dict[int, list[float]] = {}
    for amount, kind in zip(amounts, alike, strict=True):
        if amount > 0:
            by_kind.setdefault(kind, []).append(amount)
    # A quarter of the way up: where the jump came half-way through, the median is that of the slow ones.
    usual = {kind: sorted(own)[len(own) // 4] for kind, own in by_kind.items() if len(own) >= 20}
    return [
        amount > JUMP * usual[kind] if amount > 0 and kind in usual else None
        for amount, kind in zip(amounts, alike, strict=True)
    ]
