"""What an evaluator gave to right answers and to wrong ones made of them, and the checks on it.

`proof` tries and concludes; this says which scores would prove what.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from ..types import Json, canonical
from . import mutants

# Of all words at once some end as a right answer does: by the last number, say.
_NEEDED = {"mutated": 0.8, "stuffed": 0.8, **dict.fromkeys(mutants.NEAR, 0.8)}
_NEEDED_ELSE = 0.9
_NEEDED_ROW = 0.6
"""Share of what was made of one answer: an evaluator may not be blind to a rare one."""
RIGHT = ("original", "expected", "small")
"""Families of right answers: the known ones, what was expected as an answer, and small numbers."""
UNRANKED = ("deformed",)
"""Families that may be right or wrong, but have to have a score."""


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the table."""

    name: str
    passed: bool
    detail: str
    mean: float | None = None
    """Mean score of what was tried; None where there is none."""
    won: float | None = None
    """Share of it that the original was ranked above."""


@dataclass(frozen=True, slots=True)
class AuditScore:
    """The verdict on one case; no score where the evaluator failed or had none to give."""

    score: float | None
    feedback: str = ""
    failure: str = ""


@dataclass(frozen=True, slots=True)
class AuditCase:
    """One thing to judge: `row` says which of the known-good it was made of."""

    family: str
    row: int
    given: Json
    """The arguments, or the text of a program."""
    output: Json = None


@dataclass
class AuditEvidence:
    """All cases, each with the evaluator's verdict on it."""

    tried: list[tuple[AuditCase, AuditScore]]
    checks: list[Check] = field(default_factory=list)

    def of(self, family: str) -> Iterator[tuple[AuditCase, AuditScore]]:
        return ((case, judged) for case, judged in self.tried if case.family == family)

    @property
    def originals(self) -> dict[int, AuditScore]:
        return {case.row: judged for case, judged in self.of("original")}

    @property
    def worse(self) -> list[tuple[AuditCase, AuditScore]]:
        """All that is wrong."""
        return [
            (case, judged)
            for case, judged in self.tried
            if case.family not in (*RIGHT, *UNRANKED) and not case.family.startswith("invariant")
        ]

    def below(self) -> Callable[[AuditCase, AuditScore], bool]:
        """Tells if a wrong answer scores less than the right one that it was made of, by all that was tried so far."""
        right = {
            (case.family, case.row): judged.score or 0.0
            for case, judged in self.tried
            if case.family in RIGHT
        }
        tolerance = self.tolerance

        def is_below(case: AuditCase, judged: AuditScore) -> bool:
            near = "expected" if case.family in mutants.NEAR else "original"
            base = "small" if case.family == "off by one" else near
            # None counts as below: whether there has to be a score is another check.
            return judged.score is None or right.get((base, case.row), 0.0) > judged.score + tolerance

        return is_below

    @property
    def tolerance(self) -> float:
        """Scores that differ by less are the same: a thousandth of the range seen."""
        scores = scores_of(judged for _, judged in self.tried)
        return max(1e-9, 1e-3 * (max(scores) - min(scores))) if scores else 1e-9


def scores_of(judged: Iterable[AuditScore]) -> list[float]:
    return [verdict.score for verdict in judged if verdict.score is not None]


def scores_the_original(evidence: AuditEvidence) -> bool:
    missing = [judged for judged in evidence.originals.values() if judged.score is None]
    total = len(evidence.originals)
    mean = fmean(scores_of(evidence.originals.values()) or [0.0])
    why = next((judged.failure for judged in missing if judged.failure), "it said None")
    detail = f"no score for {len(missing)} of {total}: {why}" if missing else f"{total} scored"
    evidence.checks.append(Check("original", not missing, detail, None if missing else mean))
    return not missing


def rank_families(evidence: AuditEvidence) -> None:
    """One check for each family: how often the original is above what was made of it."""
    below = evidence.below()
    families = dict.fromkeys(case.family for case, _ in evidence.tried)
    for family in families:
        if family in (*RIGHT, *UNRANKED) or family.startswith("invariant"):
            continue
        tried = list(evidence.of(family))
        scores = scores_of(judged for _, judged in tried)
        missed = [case for case, judged in tried if not below(case, judged)]
        above = len(tried) - len(missed)
        won, needed_share = above / len(tried), _NEEDED.get(family, _NEEDED_ELSE)
        detail = f"the original is above {above} of {len(tried)}"
        if won < needed_share:
            detail += f", {needed_share:.0%} are needed"
            if not isinstance(missed[0].given, str):  # a program is too long to show
                detail += f"; not above {canonical(missed[0].output).decode():.60}"
        evidence.checks.append(
            Check(family, won >= needed_share, detail, fmean(scores) if scores else None, won)
        )


def same_twice(
    evidence: AuditEvidence,
    name: str,
    first: Sequence[AuditScore],
    second: Sequence[AuditScore],
    complaint: str,
) -> None:
    def differs(a: float | None, b: float | None) -> bool:
        return (a is None) != (b is None) or (
            a is not None and b is not None and abs(a - b) > evidence.tolerance
        )

    changed = [(a.score, b.score) for a, b in zip(first, second, strict=True) if differs(a.score, b.score)]
    detail = f"{len(first)} looked at twice"
    if changed:
        detail = (
            f"{complaint}: {len(changed)} of {len(first)}, for instance {changed[0][0]} and {changed[0][1]}"
        )
    evidence.checks.append(Check(name, not changed, detail))


def score_all(evidence: AuditEvidence) -> None:
    """One check: a finite score for every answer that an agent might give."""
    # A text that some read as a number that is none: what that comes to has to be low, if it is anything.
    tried = [(case, judged) for case, judged in evidence.tried if case.output not in ("nan", "inf")]
    missing = [(case, judged) for case, judged in tried if judged.score is None]
    detail = f"{len(tried)} answers, each with a score"
    if missing:
        case, judged = missing[0]
        detail = (
            f"no finite score for {len(missing)} of {len(tried)} answers, first {canonical(case.output).decode():.60} "
            f"({judged.failure or 'it said None'}): a wrong answer is worth 0"
        )
    evidence.checks.append(Check("finite", not missing, detail))


def rank_rows(evidence: AuditEvidence) -> None:
    """One check: no right answer is blind to what is made of it."""
    is_below = evidence.below()
    wins: dict[int, list[bool]] = {}
    for case, judged in evidence.worse:
        if case.family != "off by one":
            wins.setdefault(case.row, []).append(is_below(case, judged))
    shares = {row: sum(won) / len(won) for row, won in wins.items()}
    blind = [row for row, share in shares.items() if share < _NEEDED_ROW]
    detail = f"{len(shares)} right answers, each above most of what was made of it"
    if blind:
        first = next(case.output for case, _ in evidence.of("original") if case.row == blind[0])
        detail = (
            f"{len(blind)} of {len(shares)} right answers are not above what was made of them, first "
            f"{canonical(first).decode():.60}: above {shares[blind[0]]:.0%}, {_NEEDED_ROW:.0%} are needed"
        )
    evidence.checks.append(Check("each row", not blind, detail))


def leave_out_unlike(evidence: AuditEvidence) -> tuple[str, ...]:
    """Leave out answers with one fault where they prove nothing; a note on each kind.

    What is expected need be no answer itself (a pattern, a rubric), and words beside a number may mean nothing to an
    evaluator of numbers.
    """
    tolerance, originals = evidence.tolerance, evidence.originals
    unlike = {
        case.row
        for case, judged in evidence.of("expected")
        if judged.score is None or judged.score < (originals[case.row].score or 0.0) - tolerance
    }
    notes = []
    left_out = [
        case
        for case, _ in evidence.tried
        if case.family in (*mutants.NEAR, "expected") and case.row in unlike
    ]
    small = {
        case.row for case, judged in evidence.of("small") if judged.score is None or judged.score <= tolerance
    }
    left_out += [
        case for case, _ in evidence.tried if case.family in ("small", "off by one") and case.row in small
    ]
    if unlike:
        notes.append(
            f"what {len(unlike)} rows expect is no right answer to it, so no single fault was made in these"
        )
    digits = [
        (case, judged)
        for case, judged in evidence.tried
        if case.family.endswith(" digit") and case.row not in unlike
    ]
    rows = {case.row for case, _ in digits}
    worded = [
        (case, judged)
        for case, judged in evidence.tried
        if case.family.endswith(" letter") and case.row in rows
    ]
    below = evidence.below()
    told = sum(below(*tried) for tried in digits)
    if worded and not any(below(*tried) for tried in worded) and told >= 0.8 * len(digits):
        left_out += [
            case
            for case, _ in evidence.tried
            if case.row in rows
            and (
                case.family.endswith((" letter", " word"))
                or (case.family == "mutated" and _half(evidence, case))
            )
        ]
        notes.append("it compares numbers alone: words beside a number make no difference")
    gone = set(map(id, left_out))
    evidence.tried = [(case, judged) for case, judged in evidence.tried if id(case) not in gone]
    return tuple(notes)


def _half(evidence: AuditEvidence, case: AuditCase) -> bool:
    """True for the first half of a right answer, which holds the number where it comes first."""
    right = next(tried.output for tried, _ in evidence.of("original") if tried.row == case.row)
    return isinstance(right, str) and isinstance(case.output, str) and right.startswith(case.output)
