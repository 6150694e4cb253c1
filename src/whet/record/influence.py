"""How far one person reaches: caps on runs and thumbs, people who contradict the others, texts that give orders.

Whatever learns from recorded runs, or counts what people thought of them, takes them through `weighed`.  A person's
runs count up to a multiple of what people usually have, so that traffic buys no influence; whoever contradicts the
others on the very same answers, more often than chance would, is left out; a comment or correction that gives a model
orders is no evidence of what is right.  All of it is counted, and said.

A run that names neither a person nor a session is nobody's: it cannot be capped, and `Influence.nobodys` counts it.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from msgspec import UNSET

from ..types import Feedback, Trajectory, digest
from .rows import as_text
from .tracing.labels import corrected
from .tracing.signals import IMPLICIT

_COMPARED = 8
"""Answers that others rated too, from which on a person can be told to contradict them."""
_CHANCE = 0.001
"""Chance at which somebody who thumbs at random would be taken for one who contradicts."""
_ORDERS = re.compile(
    r"(?:ignore|disregard|forget|override)\s+(?:\w+\s+){0,3}(?:instruction|rule|prompt|guideline|polic)\w*"
    r"|(?:ignore|disregard|forget)\s+(?:everything|all|anything)\s+(?:above|before|previous)"
    r"|\byou\s+are\s+now\b|\bnew\s+(?:system\s+)?(?:instructions?|rules?)\s*:"
    r"|\bsystem\s+prompt\b|\bdeveloper\s+(?:mode|message)\b|\bjailbreak\w*"
    r"|<\|?\s*(?:im_start|im_end|system|assistant|endoftext)\b|\[/?(?:INST|SYS)\]|<</?SYS>>"
    r"|^\s*#{1,4}\s*(?:system|instructions?)\b|^\s*(?:system|assistant)\s*:"
    r"|\bthis\s+is\s+(?:an?\s+)?(?:admin|developer)\s+(?:order|instruction)\b"
    r"|<!--|!\[[^\]]*\]\(\s*https?:",
    re.IGNORECASE | re.MULTILINE,
)
_BLOB = re.compile(r"[A-Za-z0-9+/=_-]{160,}")


@dataclass(frozen=True, slots=True, kw_only=True)
class InfluenceLimits:
    """How far one person may reach."""

    times: float = 2.0
    """A person's runs count up to this multiple of the median over people; likewise their rated runs."""
    at_least: int = 10
    """Runs of a person that count however few the others have."""
    people: int = 1
    """People who have to have said something before anything is learned: what runs unattended wants several."""
    contradiction: bool = True
    """Leave out people who contradict the others."""
    orders: bool = True
    """Leave out comments and corrections that give a model orders."""


@dataclass(frozen=True, slots=True)
class Influence:
    """Runs that count, and what was left out."""

    runs: Sequence[Trajectory]
    people: int = 0
    """Those who rated, corrected or commented."""
    capped: Mapping[str, int] = field(default_factory=dict)
    """Person → runs of theirs beyond the cap."""
    contradicting: Mapping[str, int] = field(default_factory=dict)
    """Person → rated runs of one who contradicts the others."""
    orders: int = 0
    """Comments and corrections that give orders."""
    nobodys: int = 0
    """Rated runs that name nobody."""
    refused: str = ""
    """Why nothing may be learned, and what would help; "" where it may."""

    @property
    def sentence(self) -> str:
        """What was left out, in words; "" for nothing."""
        parts = []
        if self.capped:
            total = sum(self.capped.values())
            parts.append(
                f"{total:,} runs of {_people(len(self.capped))} beyond what one person may count for"
            )
        if self.contradicting:
            total = sum(self.contradicting.values())
            parts.append(
                f"what {_people(len(self.contradicting))} said of {total:,} runs, against all others on the same "
                "answers"
            )
        if self.orders:
            parts.append(f"{self.orders:,} comments or corrections that give a model orders")
        return f"left out: {'; '.join(parts)}" if parts else ""


def _people(number: int) -> str:
    return "one person" if number == 1 else f"{number:,} people"


def person_of(run: Trajectory) -> str:
    """Whose run it is: the subject, else the session; "" where neither is known."""
    return run.subject or run.session or ""


def weighed(runs: Iterable[Trajectory], limits: InfluenceLimits | None = None) -> Influence:
    """The runs that may be learned from, in their order, with the feedback that counts.

    Args:
        limits: those of something that a person looks at, if None.
    """
    limits = limits or InfluenceLimits()
    every = list(runs)
    orders = 0
    if limits.orders:
        every, orders = _without_orders(every)
    contradicting: dict[str, int] = {}
    if limits.contradiction:
        contradicting = _contradicting(every)
        every = [
            replace(run, feedback=[note for note in run.feedback if not _said(note)])
            if person_of(run) in contradicting
            else run
            for run in every
        ]
    kept, capped = _capped(every, limits)
    people = {person_of(run) for run in kept if any(map(_said, run.feedback))} - {""}
    nobodys = sum(not person_of(run) and any(map(_said, run.feedback)) for run in kept)
    refused = ""
    if limits.people > 1 and len(people) < limits.people:
        refused = (
            f"{_people(len(people)) if people else 'nobody'} who can be told from others said something, and "
            f"{limits.people} have to: record runs with a subject (whet.run(subject=...), or x-whet-subject)"
        )
    return Influence(kept, len(people), capped, contradicting, orders, nobodys, refused)


def _said(note: Feedback) -> bool:
    """True for what a person said, and did not only let show."""
    return not note.kind.startswith(IMPLICIT)


# -- orders to a model ------------------------------------------------------------------------------


def gives_orders(text: str) -> bool:
    """True for a text that speaks to a model, or hides something, instead of saying what was right or wrong."""
    plain = unicodedata.normalize("NFKC", text)
    hidden = any(unicodedata.category(char) in ("Cf", "Co", "Cs") and char != "\u200d" for char in text)
    return hidden or _ORDERS.search(plain) is not None or _BLOB.search(plain) is not None


def _without_orders(runs: Sequence[Trajectory]) -> tuple[list[Trajectory], int]:
    removed, cleaned = 0, []
    for run in runs:
        notes = []
        for note in run.feedback:
            comment = note.comment if not note.comment or not gives_orders(note.comment) else ""
            correction = corrected(note)
            orders = correction is not UNSET and gives_orders(as_text(correction))
            removed += (comment != note.comment) + orders
            if orders:
                continue
            notes.append(note if comment == note.comment else replace(note, comment=comment))
        cleaned.append(run if notes == list(run.feedback) else replace(run, feedback=notes))
    return cleaned, removed


# -- people who contradict the others --------------------------------------------------------------


def _contradicting(runs: Sequence[Trajectory]) -> dict[str, int]:
    """People whose thumbs are against those of the others on the same answers, more often than chance."""
    votes: dict[str, dict[str, int]] = defaultdict(dict)
    rated: Counter[str] = Counter()
    for run in runs:
        person = person_of(run)
        values = [note.value for note in run.feedback if note.step is None and note.value and _said(note)]
        if not person or not values:
            continue
        rated[person] += 1
        answer = digest([" ".join(run.task.instruction.casefold().split()), run.output_text])
        # One vote of a person on an answer, however often they gave it.
        votes[answer][person] = 1 if values[-1] > 0 else -1
    agreed: Counter[str] = Counter()
    compared: Counter[str] = Counter()
    for answer_votes in votes.values():
        total = sum(answer_votes.values())
        for person, vote in answer_votes.items():
            others = total - vote
            # Two at least who agree, or one contrary person would be taken for the measure of another.
            if abs(others) >= 2:
                compared[person] += 1
                agreed[person] += vote * others > 0
    return {
        person: rated[person]
        for person, number in sorted(compared.items())
        if number >= _COMPARED and _at_most(agreed[person], number) < _CHANCE
    }


def _at_most(successes: int, trials: int) -> float:
    """Chance of this few successes or fewer, each of which has chance one half."""
    return float(sum(math.comb(trials, number) for number in range(successes + 1)) / 2**trials)


# -- caps ------------------------------------------------------------------------------------------


def _capped(runs: Sequence[Trajectory], limits: InfluenceLimits) -> tuple[list[Trajectory], dict[str, int]]:
    """Runs up to each person's cap: first of those that somebody rated, then of all."""
    kept = list(runs)
    left_out: Counter[str] = Counter()
    for rated in (True, False):
        by_person: dict[str, list[Trajectory]] = defaultdict(list)
        for run in kept:
            if person_of(run) and (not rated or any(map(_said, run.feedback))):
                by_person[person_of(run)].append(run)
        if len(by_person) < 2:
            continue
        cap = max(limits.at_least, math.ceil(limits.times * median(map(len, by_person.values()))))
        beyond: set[str] = set()
        for person, own in by_person.items():
            # By hash: whoever sends the runs does not choose which of them count.
            ordered = sorted(own, key=lambda run: digest(["influence", run.id]))
            beyond |= {run.id for run in ordered[cap:]}
            left_out[person] += max(0, len(own) - cap)
        kept = [run for run in kept if run.id not in beyond]
    return kept, {person: number for person, number in sorted(left_out.items()) if number}
