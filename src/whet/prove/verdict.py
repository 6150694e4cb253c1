"""Two files of outcomes → a Verdict: the gate for anyone with two runs of anything.

    {"task": "q17", "group": "mailbox-3", "success": true, "cost": 0.002}

One JSON object per line.  The task's id stands under `task`, `task_id` or `id`;
`group` is what tasks share (optional); the result is `success` (true, false or
0 to 1) or `score` (0 to 1), or an `outcome` such as "failure" or
"infrastructure_error"; `cost` is reported, and decides nothing.  Other keys are
the file's own business.  Nothing is run, and no file but the two is read.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import msgspec

from ..errors import InputError
from ..escapes import read_json
from ..stats import ClusterMean
from ..types import Json, Outcome, Sampling, Verdict
from .gate import compare
from .merging import merged
from .results import PairedResults, Side, TaskResult, pairs
from .selection import best_of

PathLike: TypeAlias = Path | str
_KINDS = {"new-group": "clustered by group", "exchangeable": "of exchangeable tasks"}
_IDS = ("task", "task_id", "id")


def load_outcomes(path: PathLike) -> list[TaskResult]:
    """Read and check one file of outcomes.

    Raises:
        InputError: the file cannot be read or is empty, or a line is not as above; says which line.
    """
    try:
        # Bytes: str.splitlines also splits at U+2028 and others, which a text in JSON may hold as they are.
        lines = Path(path).read_bytes().splitlines()
    except OSError as error:
        raise InputError(f"cannot read outcomes from {path}: {error.strerror or error}") from error
    results: list[TaskResult] = []
    lines_of: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            result = _row(line)
        except InputError as error:
            raise InputError(f"{path}, line {number}: {error}") from error
        if result.task in lines_of:
            raise InputError(
                f"{path}, line {number}: task {result.task!r} was already on line {lines_of[result.task]}; "
                "average repeated runs into one line"
            )
        lines_of[result.task] = number
        results.append(result)
    if not results:
        raise InputError(f"{path} holds no outcomes: one JSON object per line is expected")
    return results


def _row(line: bytes) -> TaskResult:
    try:
        row = read_json(msgspec.json.decode, line)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise InputError(f"not JSON: {error}") from error
    if not isinstance(row, dict):
        raise InputError(f"an outcome is a JSON object, not {type(row).__name__}")
    outcome = _outcome(row)
    scores: dict[str, float | None] = {}
    named = [name for name in ("success", "score") if name in row]
    if len(named) == 2:
        raise InputError("both success and score are given: keep the one that decides")
    if named:
        scores["success"] = _number(row[named[0]], named[0], top=1.0)
    elif outcome is Outcome.UNKNOWN:
        raise InputError("neither success, nor score, nor an outcome that says how it ended")
    if row.get("cost") is not None:
        scores["cost"] = _number(row["cost"], "cost")
    return TaskResult(task=_id(row), group=_text(row.get("group"), "group"), scores=scores, outcome=outcome)


def _id(row: dict[str, Json]) -> str:
    # Not by truth: 0 is an id.
    named = [name for name in _IDS if row.get(name) not in (None, "")]
    if not named:
        raise InputError(f"no task id: give one under {', '.join(_IDS)}")
    return _text(row[named[0]], named[0])


def _text(value: Json, name: str) -> str:
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise InputError(f"{name} {value!r} must be text or a whole number")
    return str(value)


def _number(value: Json, name: str, *, top: float = sys.float_info.max) -> float | None:
    # A whole number of JSON has no bounds: without `top` the largest float is one.
    if value is None:
        return None
    if not isinstance(value, bool | int | float) or not 0 <= value <= top:
        raise InputError(
            f"{name} {value!r} must be {'true, false or ' if top == 1 else ''}a number from 0 to {top:g}"
        )
    return float(value)


def _outcome(row: dict[str, Json]) -> Outcome:
    value = row.get("outcome")
    try:
        return Outcome.UNKNOWN if value is None else Outcome(value)
    except ValueError:
        allowed = ", ".join(outcome.value for outcome in Outcome)
        raise InputError(f"outcome {value!r} is none of {allowed}") from None


def verdict(
    a: PathLike,
    b: PathLike,
    *,
    margin: float = 0.0,
    suite: tuple[PathLike, PathLike] | None = None,
    suite_margin: float = 0.02,
    also: Sequence[PathLike] = (),
    earlier: Sequence[PathLike] = (),
    regime: Sampling = "new-group",
    watched: bool = False,
    unpaired: bool = False,
) -> Verdict:
    """Is what produced `b` better than what produced `a` (or, with a margin, not worse by more)?

    Args:
        suite: outcomes of both on other tasks, of what must not be forgotten (`guarded`).
        suite_margin: how far success may fall there.
        also: outcomes of further candidates: the best of all is chosen on some tasks and judged on the others.
        earlier: verdicts (`to_json`) on the same two, on other tasks.
        regime, watched, unpaired: as in `compare`; the suite is judged in the same regime.

    Raises:
        InputError: a file is not as described.
        GateError: the files do not pair up, or nothing is left to compare.
    """
    old, new = load_outcomes(a), load_outcomes(b)
    if also:
        if suite is not None or earlier or watched:
            raise InputError(
                "several candidates are judged by one look at their own outcomes, without a suite"
            )
        sides = {str(path): load_outcomes(path) for path in (b, *also)}
        if len(sides) <= len(also):
            raise InputError("a candidate is named twice")
        return best_of(old, sides, margin=margin, against=str(a), regime=regime, unpaired=unpaired).verdict
    result = compare(
        old, new, margin=margin, against=str(a), regime=regime, watched=watched, unpaired=unpaired
    )
    notes = _cost(pairs(old, new, unpaired=unpaired))
    if notes:
        result = replace(result, reasons=(*result.reasons, *notes))
    if earlier:
        result = merged([*map(_earlier, earlier), result])
    if suite is None:
        return result
    before, after = map(load_outcomes, suite)
    return guarded(result, before, after, margin=suite_margin)


def _earlier(path: PathLike) -> Verdict:
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=Verdict)
    except (OSError, msgspec.MsgspecError, UnicodeError) as error:
        raise InputError(f"{path} holds no verdict of whet verdict --json: {error}") from error


def guarded(verdict: Verdict, before: Side, after: Side, *, margin: float) -> Verdict:
    """The gate's verdict, withdrawn where success on a guard suite has dropped.

    Args:
        before: results of the baseline on the suite.
        after: results of the candidate on the same tasks.
        margin: how far success may fall; it must be *shown* to have fallen no further.
    """
    name = "guard suite"
    suite = compare(before, after, metric="success", margin=margin, against=name, regime=verdict.regime)
    held = {**verdict.guardrails, name: suite.promote}
    if suite.promote:
        return replace(verdict, guardrails=held)
    low, high = suite.interval
    reason = (
        f"{name}: success changed by {suite.effect:+.3f} [{low:+.3f}, {high:+.3f}] on {suite.n} tasks, "
        f"and must be shown to fall by no more than {margin:g}"
    )
    return replace(verdict, promote=False, guardrails=held, reasons=[*verdict.reasons, reason])


def _cost(both: Sequence[PairedResults]) -> list[str]:
    rows = [
        (new - old, pair.group)
        for pair in both
        if (old := pair.baseline.value("cost")) is not None
        and (new := pair.candidate.value("cost")) is not None
    ]
    if not rows:
        return []
    cost = ClusterMean()
    for value, group in rows:
        cost.add(value, group)
    low, high = cost.interval()
    mean = cost.mean
    between = f" [{low:+.4g}, {high:+.4g}]" if math.isfinite(low) else ""
    return [f"Cost {mean:+.4g}{between} per task over {len(rows)} pairs; it is not part of the decision."]


def render(verdict: Verdict) -> str:
    """The verdict for people, a few lines of plain text."""
    low, high = verdict.interval
    bar = f"not worse by more than {verdict.margin:g}" if verdict.margin else "better"
    lines = [
        f"{'PROMOTE' if verdict.promote else 'DO NOT PROMOTE'}: "
        f"{'shown' if verdict.promote else 'not shown'} to be {bar} than {verdict.against}",
        f"  effect    {verdict.effect:+.3f}  [{low:+.3f}, {high:+.3f}] 95 %, {_KINDS[verdict.regime]}",
        f"  e-value   {verdict.e_value:.3g}",
        f"  pairs     {verdict.n}" + (f", about {verdict.needed} needed" if verdict.needed else ""),
    ]
    lines += [
        f"  guardrail {name}: {'holds' if held else 'fails'}" for name, held in verdict.guardrails.items()
    ]
    return "\n".join([*lines, *(f"  - {reason}" for reason in verdict.reasons)])


def to_json(verdict: Verdict) -> bytes:
    """The verdict as one JSON object."""
    return msgspec.json.encode(verdict)
