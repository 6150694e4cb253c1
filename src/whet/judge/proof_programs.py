"""The trials of an evaluator of programs, `evaluate(path)`: a known-good program, and what is made worse of it."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from ..errors import InputError
from ..sandbox import Pool
from ..types import Json
from . import variants
from .evaluator import Evaluator
from .trials import (
    AuditCase,
    AuditEvidence,
    AuditScore,
    Check,
    rank_families,
    same_twice,
    scores_the_original,
)

MOST_FUNCTIONS = 12
"""Functions of a program, or values of one without functions, that are made wrong."""


async def try_programs(
    evaluator: Evaluator, program: str, pool: Pool
) -> tuple[AuditEvidence, tuple[str, ...]]:
    """Try an evaluator on a program and on worse ones; all of it with its checks, and notes.

    Raises:
        InputError: there is no program, or it is not Python.
    """
    if not program:
        raise InputError(f"{evaluator.name} judges programs: give the known-good one as --target PROGRAM.py")
    try:
        worse = list(variants.programs(program))
    except SyntaxError as error:
        raise InputError(f"the target is no Python program: {error}") from error
    same = variants.reformatted(program)
    texts = [("original", program), *((family, text) for family, text in worse if text != same)]
    cases = [AuditCase(family, 0, text) for family, text in texts]
    judged = [await _judge_program(evaluator, case, pool) for case in cases]
    evidence = AuditEvidence(list(zip(cases, judged, strict=True)))
    notes: tuple[str, ...] = (
        "program and evaluator share a process: its scores may steer a search, and promote nothing",
    )
    if not scores_the_original(evidence):
        return evidence, notes
    await _degrade(evaluator, program, evidence, pool)
    notes += await _leave_out_equals(evaluator, evidence, pool)
    rank_families(evidence)
    again = await _judge_program(evaluator, cases[0], pool)
    written = await _judge_program(evaluator, AuditCase("same", 0, same), pool)
    complaint = "the same program scored differently the second time"
    same_twice(evidence, "deterministic", judged[:1], [again], complaint)
    complaint = "the same program, formatted, scored differently"
    same_twice(evidence, "invariant to formatting", judged[:1], [written], complaint)
    return evidence, notes


async def _degrade(evaluator: Evaluator, program: str, evidence: AuditEvidence, pool: Pool) -> None:
    """Add programs of which one part is wrong, for each part that the evaluator looks at."""
    good = evidence.originals[0].score or 0.0
    reached = []
    for name in variants.parts(program)[:MOST_FUNCTIONS]:
        failed = await _judge_program(
            evaluator, AuditCase("mutated", 0, variants.failing(program, name)), pool
        )
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
            case = AuditCase("mutated", 0, text)
            evidence.tried.append((case, await _judge_program(evaluator, case, pool)))


async def _leave_out_equals(evaluator: Evaluator, evidence: AuditEvidence, pool: Pool) -> tuple[str, ...]:
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


async def _behaviour(evaluator: Evaluator, case: AuditCase, pool: Pool) -> Json:
    """Behaviour of a program by the evaluator's own `behaviour(path)`; None where it has none."""
    files = {**evaluator.files, "program.py": str(case.given)}
    result = await pool.call(files, "inside.door:handle", ["behaviour", ["evaluator.py", "program.py"]])
    return result.value


async def _judge_program(evaluator: Evaluator, case: AuditCase, pool: Pool) -> AuditScore:
    result = await pool.pair(case.given, evaluator.files, function=evaluator.function)
    if result.failure is not None:
        return AuditScore(None, "", f"{result.failure.type}: {result.failure.message}"[:300])
    metrics: dict[str, Any] = result.value["metrics"]
    numbers = [number for number in metrics.values() if isinstance(number, int | float)]
    combined = metrics.get("combined_score", metrics.get("score"))
    if not isinstance(combined, int | float):
        # As OpenEvolve does: without a combined score, the mean of what there is.
        combined = fmean(numbers) if numbers else None
    return AuditScore(combined, "\n".join(result.value["artifacts"].values()))
