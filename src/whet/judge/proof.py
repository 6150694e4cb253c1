"""An evaluator is guilty until proven: what it has to show before it may steer anything.

It runs in the sandbox on what is known to be good and on what was made worse of it (`variants`), and
is admitted if it ranks the good above every kind of worse, twice the same, in any order, without
giving the expected answer away, and in agreement with what people said, where they said anything.
A pass proves that these ways of fooling it fail, not that no other succeeds.  For programs judged by
`evaluate(path)` program and evaluator share a process, so even an admitted one may steer a search
only; a promotion wants a judge outside.

Method: mutation analysis of tests (DeMillo, Lipton and Sayward 1978), applied to a scoring function.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec
from msgspec import UNSET

from ..errors import InputError
from ..record.rows import expected_answer, good_answer, reference_answer
from ..sandbox import CallResult, Limits, Pool, Sandbox
from ..stats import Interval, auc
from ..types import Json, Task, canonical
from . import mutants, variants
from .evaluator import Evaluator
from .known import BUILT_IN
from .proof_programs import try_programs
from .trials import (
    RIGHT,
    UNRANKED,
    AuditCase,
    AuditEvidence,
    AuditScore,
    Check,
    leave_out_unlike,
    rank_families,
    rank_rows,
    same_twice,
    score_all,
    scores_of,
    scores_the_original,
)

MOST_ROWS = 24
"""Known answers that are used; more would say the same for more time."""

MOST_NEAR = 12
"""Of these, answers that are changed in one place."""

MOST_TYPED = 4
"""Of these, questions that are answered with a value of every type."""

MOST_AGAIN = 4
"""Answers that are judged once more, each in a fresh process."""

MOST_LOST = 3
"""Answers on which an evaluator may end or hang before no more are tried."""

INVARIANCES: Mapping[str, Callable[[str], str]] = {
    "whitespace": lambda text: f"  {text}\n",
    "case": str.swapcase,
}
"""Changes of an answer that a declared invariance says must not matter."""

_SMALLEST_AUC = 0.7
_TOGETHER = 64
"""Answers that are sent to an evaluator at once."""
_DRAWS = 400
"""Bootstrap samples."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """Agreement of scores with labels."""

    n: int
    auc: float
    auc_interval: Interval
    kappa: float
    kappa_interval: Interval


@dataclass(frozen=True, slots=True)
class Proof:
    """The proof of one evaluator, passed or failed."""

    evaluator: str
    version: str
    kind: str
    admitted: bool
    checks: tuple[Check, ...]
    original: float | None
    """Mean score of the known-good."""
    separation: float | None
    """Mean score of the known-good minus that of everything worse."""
    agreement: Agreement | None = None
    co_resident: bool = False
    notes: tuple[str, ...] = ()

    @property
    def reasons(self) -> list[str]:
        """Reasons for its refusal; empty for an admitted one."""
        return [f"{check.name}: {check.detail}" for check in self.checks if not check.passed]


async def prove(
    evaluator: Evaluator,
    *,
    program: str = "",
    rows: Sequence[Task] = (),
    invariant: Collection[str] = (),
    exploits: Sequence[Task] = (),
    sandbox: Sandbox | None = None,
    pool: Pool | None = None,
) -> Proof:
    """Put an evaluator through its proof.

    Args:
        program: text of a known-good program, for an evaluator of programs.
        rows: known answers, for an evaluator of answers; those with a label are compared with it.
        invariant: names of INVARIANCES that the evaluator claims.
        exploits: rows whose outputs people confirmed as exploits: each must score below every known-good answer.
        sandbox: where it runs; limits apply to each call.
        pool: an open one to run an evaluator of answers in, instead, for whoever proves several.

    Raises:
        InputError: no program or no good row to begin from, or an unknown invariance.
        SandboxError: untrusted code cannot be shut in here.
    """
    unknown = set(invariant) - set(INVARIANCES)
    if unknown:
        raise InputError(f"unknown invariance {sorted(unknown)}; known: {', '.join(INVARIANCES)}")
    if pool is not None and evaluator.kind == "answer":
        return await _of_answers(evaluator, rows, invariant, exploits, pool)
    box = sandbox or Sandbox(limits=Limits(wall_seconds=20.0, cpu_seconds=20.0))
    if evaluator.kind == "trajectory":
        # It speaks in our types, so it needs our package: the code, and nothing else of the host.
        box = replace(box, paths=(*box.paths, str(Path(__file__).resolve().parents[2])))
    async with Pool(box) as opened:
        if evaluator.kind == "program":
            evidence, notes = await try_programs(evaluator, program, opened)
            return _concluded(evaluator, evidence, notes=notes, co_resident=True)
        return await _of_answers(evaluator, rows, invariant, exploits, opened)


async def _of_answers(
    evaluator: Evaluator,
    rows: Sequence[Task],
    invariant: Collection[str],
    exploits: Sequence[Task],
    pool: Pool,
) -> Proof:
    name, known_rows = ("", rows) if rows else await _fitting(evaluator, pool)
    by_answer = {
        canonical((row.initial_state["input"], answer)): row
        for row in known_rows
        if (answer := good_answer(row)) is not UNSET
    }
    good = _unlike_first(list(by_answer.values()))[:MOST_ROWS]
    if not good:
        raise InputError(
            "there is no good answer to begin from; give rows with output and expected, or a good label"
        )
    cases = list(_answer_cases(evaluator, good, invariant))
    forward = await _judge_all(evaluator, cases, pool)
    evidence = AuditEvidence(list(zip(cases, forward, strict=True)))
    notes: tuple[str, ...] = () if rows else (f"judged on built-in {name}; give --target with your own",)
    if not scores_the_original(evidence):
        return _concluded(evaluator, evidence, notes=notes)
    notes += leave_out_unlike(evidence)
    score_all(evidence)
    if len({canonical(good_answer(row)) for row in good}) < 2:
        detail = "all known answers are the same, so a constant would do as well; give rows that differ"
        evidence.checks.append(Check("told apart", False, detail))
    rank_families(evidence)
    rank_rows(evidence)
    # Of the spoilt answers: in another order no more can be seen of those that are wrong in one place.
    once = (*mutants.NEAR, *UNRANKED, "another type", "expected", "small")
    spoilt = [(case, judged) for case, judged in zip(cases, forward, strict=True) if case.family not in once]
    cases, forward = [case for case, _ in spoilt], [judged for _, judged in spoilt]
    backward = await _judge_all(evaluator, cases[::-1], pool)
    same_twice(
        evidence, "order", forward, backward[::-1], "the same answer scored differently in another order"
    )
    # The first of each family; each is a process.
    first = {case.family: number for number, case in reversed(list(enumerate(cases)))}
    sample = sorted(first.values())[:MOST_AGAIN]
    # One by one, each in a fresh process: what an evaluator keeps between calls must decide nothing.
    again = [(await _judge_all(evaluator, [cases[number]], pool))[0] for number in sample]
    same_twice(
        evidence, "deterministic", [forward[n] for n in sample], again, "scored differently the second time"
    )
    for change in invariant:
        originals = evidence.originals
        changed = {case.row: judged for case, judged in evidence.of(f"invariant {change}")}
        rows_changed = sorted(changed)
        before, after = [originals[row] for row in rows_changed], [changed[row] for row in rows_changed]
        complaint = f"scored differently after a change of {change}"
        same_twice(evidence, f"invariant to {change}", before, after, complaint)
    _keeps_the_answer(evidence, good)
    await _exploited(evaluator, exploits, evidence, pool)
    agreement = await _agreement(evaluator, known_rows, evidence, pool)
    return _concluded(evaluator, evidence, agreement=agreement, notes=notes)


def _unlike_first(rows: Sequence[Task]) -> list[Task]:
    """One row of each answer before the others, so that a rare answer is among those that are tried."""
    answers: set[bytes] = set()
    first: list[Task] = []
    others: list[Task] = []
    for row in rows:
        answer = canonical(good_answer(row))
        (others if answer in answers else first).append(row)
        answers.add(answer)
    return [*first, *others]


async def _fitting(evaluator: Evaluator, pool: Pool) -> tuple[str, Sequence[Task]]:
    """The built-in answers that the evaluator tells best from mutated ones."""
    separations: dict[str, float] = {}
    for name, rows in BUILT_IN.items():
        cases = [
            case for case in _answer_cases(evaluator, rows, ()) if case.family in ("original", "mutated")
        ]
        scores: dict[str, list[float]] = {"original": [], "mutated": []}
        for case, judged in zip(cases, await _judge_all(evaluator, cases, pool), strict=True):
            # A case without a score counts as 0 here; the proof itself looks at why.
            scores[case.family].append(judged.score or 0.0)
        separations[name] = fmean(scores["original"]) - fmean(scores["mutated"])
    best = max(separations, key=lambda name: separations[name])
    return best, BUILT_IN[best]


def _answer_cases(
    evaluator: Evaluator, good: Sequence[Task], invariant: Collection[str]
) -> Iterator[AuditCase]:
    for number, row in enumerate(good):
        output = good_answer(row)
        others = [other_row for other_row in good if good_answer(other_row) != output]

        def case(family: str, value: Json, row: Task = row, number: int = number) -> AuditCase:
            arguments = evaluator.arguments(row.initial_state["input"], value, reference_answer(row))
            return AuditCase(family, number, arguments, value)

        yield case("original", output)
        for family, worse in variants.answers(row, others):
            if worse != output:
                yield case(family, worse)
        for name in invariant:
            if isinstance(output, str):
                yield case(f"invariant {name}", INVARIANCES[name](output))
        yield from _near_cases(evaluator, row, case, number)


def _near_cases(
    evaluator: Evaluator, row: Task, case: Callable[..., AuditCase], number: int
) -> Iterator[AuditCase]:
    """What was expected as an answer, the same with a fault in one place, and values of every type."""
    wanted = reference_answer(row)
    if number < MOST_NEAR:
        yield case("expected", wanted)
        yield from (case(family, wrong) for family, wrong in mutants.near(wanted) if wrong != wanted)
        small = mutants.SMALL[number % len(mutants.SMALL)]
        whole = mutants.as_number(wanted)
        if whole is not None and whole.is_integer() and "expected" in (*evaluator.roles, evaluator.kind):
            for family, value in (("small", small), ("off by one", small + 1), ("off by one", small - 1)):
                same_type = type(wanted)
                arguments = evaluator.arguments(
                    row.initial_state["input"], same_type(value), same_type(small)
                )
                yield AuditCase(family, number, arguments, same_type(value))
    if number < MOST_TYPED:
        for value in mutants.VALUES:
            if not mutants.alike(value, wanted) and not mutants.alike(value, good_answer(row)):
                # Two of them are no finite number to a reader of numbers, and may come to no score.
                yield case("another type", value)
        yield from (case("deformed", value) for value in mutants.deformed(wanted))


async def _judge_all(evaluator: Evaluator, cases: Sequence[AuditCase], pool: Pool) -> list[AuditScore]:
    """Judge in this order in one process, and go on in another one where an evaluation ended it."""
    verdicts: list[AuditScore] = []
    lost = 0
    while len(verdicts) < len(cases):
        if lost == MOST_LOST:
            untried = AuditScore(None, "", f"not tried: it ended or hung on {lost} answers before")
            return [*verdicts, *[untried] * (len(cases) - len(verdicts))]
        async with pool.open(evaluator.staged, "adapter:judge") as session:
            ended = False
            while len(verdicts) < len(cases) and not ended:
                # Together: one at a time most of a proof is waiting.
                together = cases[len(verdicts) : len(verdicts) + _TOGETHER]
                for result in await session.calls([[case.given] for case in together]):
                    verdicts.append(_verdict_of(result))
                    ended = result.killed_by is not None or result.exit_code is not None
                    lost += ended
                    if ended:
                        break  # what comes after it in this process was never asked
    return verdicts


def _verdict_of(result: CallResult) -> AuditScore:
    if result.failure is not None:
        return AuditScore(None, "", f"{result.failure.type}: {result.failure.message}"[:300])
    try:
        reply = msgspec.convert(result.value, dict[str, Any])
        score, feedback = reply["score"], str(reply["feedback"])
    except (msgspec.ValidationError, KeyError) as error:
        return AuditScore(None, "", f"it answered {result.value!r:.80}: {error}")
    return AuditScore(float(score) if isinstance(score, int | float) else None, feedback)


def _keeps_the_answer(evidence: AuditEvidence, good: Sequence[Task]) -> None:
    """Feedback on a wrong answer reaches the learner, so it must not hold the right answer."""
    leaked, looked = 0, 0
    for case, judged in evidence.tried:
        right = reference_answer(good[case.row])
        if (
            case.family in (*RIGHT, *UNRANKED, "stuffed")
            or case.family.startswith("invariant")
            or right is None
        ):
            continue
        text = right if isinstance(right, str) else str(right)
        shown = f"{case.output} {good[case.row].initial_state['input']}".lower()
        # Short answers occur in any sentence, and feedback may repeat the question and the wrong answer.
        if len(text) < 3 or text.lower() in shown:
            continue
        looked += 1
        # As a word: "another label" does not tell that "other" was wanted.
        leaked += re.search(rf"(?<!\w){re.escape(text.lower())}(?!\w)", judged.feedback.lower()) is not None
    if looked:
        detail = f"the feedback to {leaked} of {looked} wrong answers holds the expected one"
        evidence.checks.append(
            Check("leaking", leaked == 0, detail if leaked else f"{looked} wrong answers, none told")
        )


async def _exploited(
    evaluator: Evaluator, exploits: Sequence[Task], evidence: AuditEvidence, pool: Pool
) -> None:
    """Hold the evaluator to the exploits that were found once: none may come back."""
    if not exploits:
        return
    cases = []
    for row in exploits:
        output = row.meta["output"]
        arguments = evaluator.arguments(row.initial_state["input"], output, expected_answer(row))
        cases.append(AuditCase("exploit", 0, arguments, output))
    # Of the known-good the least: they are of other inputs.
    least = min((judged.score or 0.0 for judged in evidence.originals.values()), default=0.0)
    judged = await _judge_all(evaluator, cases, pool)
    paid = sum((verdict.score or 0.0) >= least - evidence.tolerance for verdict in judged)
    detail = f"{paid} of {len(cases)} confirmed exploits score as high as a known-good answer"
    evidence.checks.append(Check("exploits", not paid, detail if paid else f"{len(cases)} score low"))


async def _agreement(
    evaluator: Evaluator, rows: Sequence[Task], evidence: AuditEvidence, pool: Pool
) -> Agreement | None:
    labelled = [row for row in rows if "label" in row.meta and "output" in row.meta]
    if "expected" in evaluator.roles or evaluator.kind == "trajectory":
        # Where a liked answer is all that is known, comparing it with itself would agree with anybody.
        labelled = [row for row in labelled if expected_answer(row) is not UNSET]
    liked = [row.meta["label"] > 0 for row in labelled]
    if min(sum(liked), len(liked) - sum(liked)) < 2:
        return None
    cases = []
    for row in labelled:
        output = row.meta["output"]
        arguments = evaluator.arguments(row.initial_state["input"], output, expected_answer(row))
        cases.append(AuditCase("labelled", 0, arguments, output))
    judged = await _judge_all(evaluator, cases, pool)
    scored = [
        (verdict.score, good)
        for verdict, good in zip(judged, liked, strict=True)
        if verdict.score is not None
    ]
    lost = len(judged) - len(scored)
    if min(sum(good for _, good in scored), sum(not good for _, good in scored)) < 2:
        evidence.checks.append(
            Check("agreement", False, f"no score for {lost} of {len(judged)} labelled answers")
        )
        return None
    people = _measured(scored)
    passed = people.auc >= _SMALLEST_AUC and people.auc_interval[0] > 0.5 and not lost
    detail = (
        f"AUC {people.auc:.2f} [{people.auc_interval[0]:.2f}, {people.auc_interval[1]:.2f}], "
        f"kappa {people.kappa:.2f} [{people.kappa_interval[0]:.2f}, {people.kappa_interval[1]:.2f}], n={people.n}"
    )
    if not passed:
        detail += f"; needed is an AUC of {_SMALLEST_AUC} and an interval above 0.5"
    evidence.checks.append(Check("agreement", passed, detail))
    return people


def _concluded(
    evaluator: Evaluator,
    evidence: AuditEvidence,
    *,
    agreement: Agreement | None = None,
    notes: tuple[str, ...] = (),
    co_resident: bool = False,
) -> Proof:
    good = scores_of(evidence.originals.values())
    # Without those that are nearly right: to give these nearly as much is no fault.
    worse = scores_of(judged for case, judged in evidence.worse if case.family not in mutants.NEAR)
    return Proof(
        evaluator=evaluator.name,
        version=evaluator.version,
        kind=evaluator.kind,
        admitted=all(check.passed for check in evidence.checks),
        checks=tuple(evidence.checks),
        original=fmean(good) if good else None,
        separation=fmean(good) - fmean(worse) if good and worse else None,
        agreement=agreement,
        co_resident=co_resident,
        notes=notes,
    )


def _measured(scored: Sequence[tuple[float, bool]]) -> Agreement:
    """Area under the ROC curve and Cohen's kappa at the best threshold, with 95 % bootstrap intervals.

    Args:
        scored: (score, whether people called it good); both kinds occur.
    """
    threshold = max(sorted({score for score, _ in scored}), key=lambda at: _kappa(scored, at))
    # A fixed seed: the same evaluator and labels give the same verdict each time.
    rng = random.Random(0)
    aucs: list[float] = []
    kappas: list[float] = []
    while len(aucs) < _DRAWS:
        drawn = rng.choices(scored, k=len(scored))
        # A draw of one kind has no AUC. `_agreement` asks for two of each, so such draws are the fewer.
        if len({good for _, good in drawn}) == 2:
            aucs.append(_auc(drawn))
            kappas.append(_kappa(drawn, threshold))
    return Agreement(len(scored), _auc(scored), _middle(aucs), _kappa(scored, threshold), _middle(kappas))


def _middle(values: list[float]) -> Interval:
    values.sort()
    edge = len(values) // 40
    return values[edge], values[-1 - edge]


def _auc(scored: Sequence[tuple[float, bool]]) -> float:
    return auc([score for score, _ in scored], [is_good for _, is_good in scored])


def _kappa(scored: Sequence[tuple[float, bool]], threshold: float) -> float:
    n = len(scored)
    says = sum(score >= threshold for score, _ in scored) / n
    good = sum(is_good for _, is_good in scored) / n
    agreed = sum((score >= threshold) == is_good for score, is_good in scored) / n
    chance = says * good + (1 - says) * (1 - good)
    return 0.0 if chance == 1.0 else (agreed - chance) / (1 - chance)
