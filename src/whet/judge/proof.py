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
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from . import variants
from .evaluator import Evaluator
from .known import BUILT_IN

MOST_ROWS = 24
"""Known answers that are used; more would say the same for more time."""

MOST_FUNCTIONS = 12
"""Functions of a program, or values of one without functions, that are made wrong."""

INVARIANCES: Mapping[str, Callable[[str], str]] = {
    "whitespace": lambda text: f"  {text}\n",
    "case": str.swapcase,
}
"""Changes of an answer that a declared invariance says must not matter."""

_NEEDED = {"mutated": 0.8}
_NEEDED_ELSE = 0.9
_SMALLEST_AUC = 0.7
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


@dataclass(frozen=True, slots=True)
class _Judged:
    """The verdict on one case; no score where the evaluator failed or had none to give."""

    score: float | None
    feedback: str = ""
    failure: str = ""


@dataclass(frozen=True, slots=True)
class _Case:
    """One thing to judge: `row` says which of the known-good it was made of."""

    family: str
    row: int
    given: Json
    """The arguments, or the text of a program."""
    output: Json = None


@dataclass
class _Evidence:
    """All cases, each with the evaluator's verdict on it."""

    tried: list[tuple[_Case, _Judged]]
    checks: list[Check] = field(default_factory=list)

    def of(self, family: str) -> Iterator[tuple[_Case, _Judged]]:
        return ((case, judged) for case, judged in self.tried if case.family == family)

    @property
    def originals(self) -> dict[int, _Judged]:
        return {case.row: judged for case, judged in self.of("original")}

    @property
    def tolerance(self) -> float:
        """Scores that differ by less are the same: a thousandth of the range seen."""
        scores = _scores(judged for _, judged in self.tried)
        return max(1e-9, 1e-3 * (max(scores) - min(scores))) if scores else 1e-9


def _scores(judged: Iterable[_Judged]) -> list[float]:
    return [verdict.score for verdict in judged if verdict.score is not None]


async def prove(
    evaluator: Evaluator,
    *,
    program: str = "",
    rows: Sequence[Task] = (),
    invariant: Collection[str] = (),
    sandbox: Sandbox | None = None,
) -> Proof:
    """Put an evaluator through its proof.

    Args:
        program: text of a known-good program, for an evaluator of programs.
        rows: known answers, for an evaluator of answers; those with a label are compared with it.
        invariant: names of INVARIANCES that the evaluator claims.
        sandbox: where it runs; limits apply to each call.

    Raises:
        InputError: no program or no good row to begin from, or an unknown invariance.
        SandboxError: untrusted code cannot be shut in here.
    """
    unknown = set(invariant) - set(INVARIANCES)
    if unknown:
        raise InputError(f"unknown invariance {sorted(unknown)}; known: {', '.join(INVARIANCES)}")
    box = sandbox or Sandbox(limits=Limits(wall_seconds=20.0, cpu_seconds=20.0))
    if evaluator.kind == "trajectory":
        # It speaks in our types, so it needs our package: the code, and nothing else of the host.
        box = replace(box, paths=(*box.paths, str(Path(__file__).resolve().parents[2])))
    async with Pool(box) as pool:
        if evaluator.kind == "program":
            return await _of_programs(evaluator, program, pool)
        return await _of_answers(evaluator, rows, invariant, pool)


async def _of_answers(
    evaluator: Evaluator, rows: Sequence[Task], invariant: Collection[str], pool: Pool
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
    evidence = _Evidence(list(zip(cases, forward, strict=True)))
    notes: tuple[str, ...] = () if rows else (f"judged on built-in {name}; give --target with your own",)
    if not _scores_the_original(evidence):
        return _concluded(evaluator, evidence, notes=notes)
    if len({canonical(good_answer(row)) for row in good}) < 2:
        detail = "all known answers are the same, so a constant would do as well; give rows that differ"
        evidence.checks.append(Check("told apart", False, detail))
    _ranks(evidence)
    backward = await _judge_all(evaluator, cases[::-1], pool)
    _same(evidence, "order", forward, backward[::-1], "the same answer scored differently in another order")
    sample = [number for number, case in enumerate(cases) if case.row == 0]
    # One by one, each in a fresh process: what an evaluator keeps between calls must decide nothing.
    again = [(await _judge_all(evaluator, [cases[number]], pool))[0] for number in sample]
    _same(
        evidence, "deterministic", [forward[n] for n in sample], again, "scored differently the second time"
    )
    for change in invariant:
        originals = evidence.originals
        changed = {case.row: judged for case, judged in evidence.of(f"invariant {change}")}
        rows_changed = sorted(changed)
        before, after = [originals[row] for row in rows_changed], [changed[row] for row in rows_changed]
        complaint = f"scored differently after a change of {change}"
        _same(evidence, f"invariant to {change}", before, after, complaint)
    _keeps_the_answer(evidence, good)
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


def _answer_cases(evaluator: Evaluator, good: Sequence[Task], invariant: Collection[str]) -> Iterator[_Case]:
    for number, row in enumerate(good):
        output = good_answer(row)
        others = [other_row for other_row in good if good_answer(other_row) != output]

        def case(family: str, value: Json, row: Task = row, number: int = number) -> _Case:
            arguments = evaluator.arguments(row.initial_state["input"], value, reference_answer(row))
            return _Case(family, number, arguments, value)

        yield case("original", output)
        for family, worse in variants.answers(row, others):
            if worse != output:
                yield case(family, worse)
        for name in invariant:
            if isinstance(output, str):
                yield case(f"invariant {name}", INVARIANCES[name](output))


async def _judge_all(evaluator: Evaluator, cases: Sequence[_Case], pool: Pool) -> list[_Judged]:
    """Judge in this order in one process, and go on in another one where an evaluation ended it."""
    verdicts: list[_Judged] = []
    while len(verdicts) < len(cases):
        async with pool.open(evaluator.staged, "adapter:judge") as session:
            for case in cases[len(verdicts) :]:
                result = await session.call([case.given])
                verdicts.append(_verdict_of(result))
                if result.killed_by is not None or result.exit_code is not None:
                    break
    return verdicts


def _verdict_of(result: CallResult) -> _Judged:
    if result.failure is not None:
        return _Judged(None, "", f"{result.failure.type}: {result.failure.message}"[:300])
    try:
        reply = msgspec.convert(result.value, dict[str, Any])
        score, feedback = reply["score"], str(reply["feedback"])
    except (msgspec.ValidationError, KeyError) as error:
        return _Judged(None, "", f"it answered {result.value!r:.80}: {error}")
    return _Judged(float(score) if isinstance(score, int | float) else None, feedback)


async def _of_programs(evaluator: Evaluator, program: str, pool: Pool) -> Proof:
    if not program:
        raise InputError(f"{evaluator.name} judges programs: give the known-good one as --target PROGRAM.py")
    try:
        worse = list(variants.programs(program))
    except SyntaxError as error:
        raise InputError(f"the target is no Python program: {error}") from error
    same = variants.reformatted(program)
    texts = [("original", program), *((family, text) for family, text in worse if text != same)]
    cases = [_Case(family, 0, text) for family, text in texts]
    judged = [await _judge_program(evaluator, case, pool) for case in cases]
    evidence = _Evidence(list(zip(cases, judged, strict=True)))
    notes: tuple[str, ...] = (
        "program and evaluator share a process: its scores may steer a search, and promote nothing",
    )
    if not _scores_the_original(evidence):
        return _concluded(evaluator, evidence, notes=notes, co_resident=True)
    await _degrade(evaluator, program, evidence, pool)
    notes += await _leave_out_equals(evaluator, evidence, pool)
    _ranks(evidence)
    again = await _judge_program(evaluator, cases[0], pool)
    written = await _judge_program(evaluator, _Case("same", 0, same), pool)
    complaint = "the same program scored differently the second time"
    _same(evidence, "deterministic", judged[:1], [again], complaint)
    complaint = "the same program, formatted, scored differently"
    _same(evidence, "invariant to formatting", judged[:1], [written], complaint)
    return _concluded(evaluator, evidence, notes=notes, co_resident=True)


async def _degrade(evaluator: Evaluator, program: str, evidence: _Evidence, pool: Pool) -> None:
    """Add programs of which one part is wrong, for each part that the evaluator looks at."""
    good = evidence.originals[0].score or 0.0
    reached = []
    for name in variants.parts(program)[:MOST_FUNCTIONS]:
        failed = await _judge_program(evaluator, _Case("mutated", 0, variants.failing(program, name)), pool)
        if failed.score is None or failed.score < good - evidence.tolerance:
            reached.append(name)
    if not reached:
        evidence.checks.append(
            Check(
                "mutated", False, "no function of the program, nor a value of one without, makes a difference"
            )
        )
    # Whole answers are made wrong, not operators: for an evaluator that looks at one of two functions 4 of 5
    # single-operator mutants were equivalent, and good evaluators were refused.
    for name in reached:
        for text in variants.degraded(program, name):
            case = _Case("mutated", 0, text)
            evidence.tried.append((case, await _judge_program(evaluator, case, pool)))


async def _leave_out_equals(evaluator: Evaluator, evidence: _Evidence, pool: Pool) -> tuple[str, ...]:
    """Leave out constants that do what the original does, if the evaluator says what that is; a note on it.

    A constant need not be wrong: a rule that leaves everything to how ties are settled may be the rule that is
    known to be good.  It has to do the same, not to score the same, and some constant has to be left.
    """
    original = next(evidence.of("original"))
    least = (original[1].score or 0.0) - evidence.tolerance
    constants = list(evidence.of("constant"))
    tied = [case for case, judged in constants if judged.score is not None and judged.score >= least]
    does = await _behaviour(evaluator, original[0], pool) if tied else ""
    if does is None:
        return (
            "if a constant is as good a program as yours, let the evaluator say what a program does: "
            "behaviour(path), beside evaluate(path); those that do the same are left out",
        )
    equal = [case for case in tied if await _behaviour(evaluator, case, pool) == does]
    if not equal or len(equal) == len(constants):
        return ()
    evidence.tried = [(case, judged) for case, judged in evidence.tried if case not in equal]
    return (
        f"{len(equal)} constants are left out: by the evaluator's behaviour() they do what the original does",
    )


async def _behaviour(evaluator: Evaluator, case: _Case, pool: Pool) -> Json:
    """Behaviour of a program by the evaluator's own `behaviour(path)`; None where it has none."""
    files = {**evaluator.files, "program.py": str(case.given)}
    result = await pool.call(files, "inside.door:handle", ["behaviour", ["evaluator.py", "program.py"]])
    return result.value


async def _judge_program(evaluator: Evaluator, case: _Case, pool: Pool) -> _Judged:
    result = await pool.pair(case.given, evaluator.files, function=evaluator.function)
    if result.failure is not None:
        return _Judged(None, "", f"{result.failure.type}: {result.failure.message}"[:300])
    metrics: dict[str, Any] = result.value["metrics"]
    numbers = [number for number in metrics.values() if isinstance(number, int | float)]
    combined = metrics.get("combined_score", metrics.get("score"))
    if not isinstance(combined, int | float):
        # As OpenEvolve does: without a combined score, the mean of what there is.
        combined = fmean(numbers) if numbers else None
    return _Judged(combined, "\n".join(result.value["artifacts"].values()))


def _scores_the_original(evidence: _Evidence) -> bool:
    missing = [judged for judged in evidence.originals.values() if judged.score is None]
    total = len(evidence.originals)
    mean = fmean(_scores(evidence.originals.values()) or [0.0])
    why = next((judged.failure for judged in missing if judged.failure), "it said None")
    detail = f"no score for {len(missing)} of {total}: {why}" if missing else f"{total} scored"
    evidence.checks.append(Check("original", not missing, detail, None if missing else mean))
    return not missing


def _ranks(evidence: _Evidence) -> None:
    """One check for each family: how often the original is above what was made of it."""
    originals, tolerance = evidence.originals, evidence.tolerance
    families = dict.fromkeys(case.family for case, _ in evidence.tried)
    for family in families:
        if family == "original" or family.startswith("invariant"):
            continue
        tried = list(evidence.of(family))
        scores = _scores(judged for _, judged in tried)
        above = sum(
            # None counts as below: an evaluator may refuse to judge a wreck.
            judged.score is None or (originals[case.row].score or 0.0) > judged.score + tolerance
            for case, judged in tried
        )
        won, needed_share = above / len(tried), _NEEDED.get(family, _NEEDED_ELSE)
        detail = f"the original is above {above} of {len(tried)}"
        if won < needed_share:
            detail += f", {needed_share:.0%} are needed"
        evidence.checks.append(
            Check(family, won >= needed_share, detail, fmean(scores) if scores else None, won)
        )


def _same(
    evidence: _Evidence, name: str, first: Sequence[_Judged], second: Sequence[_Judged], complaint: str
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


def _keeps_the_answer(evidence: _Evidence, good: Sequence[Task]) -> None:
    """Feedback on a wrong answer reaches the learner, so it must not hold the right answer."""
    leaked, looked = 0, 0
    for case, judged in evidence.tried:
        right = reference_answer(good[case.row])
        if case.family in ("original", "stuffed") or case.family.startswith("invariant") or right is None:
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


async def _agreement(
    evaluator: Evaluator, rows: Sequence[Task], evidence: _Evidence, pool: Pool
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
        cases.append(_Case("labelled", 0, arguments, output))
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
    evidence: _Evidence,
    *,
    agreement: Agreement | None = None,
    notes: tuple[str, ...] = (),
    co_resident: bool = False,
) -> Proof:
    good = _scores(evidence.originals.values())
    worse = _scores(
        judged
        for case, judged in evidence.tried
        if case.family != "original" and not case.family.startswith("invariant")
    )
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
