"""Two files of per-task results → a Verdict: the gate for anyone with two runs of anything.

What may be in the files, and how it is read, stands in `formats/`; rows of one's own look so:

    {"task": "q17", "group": "mailbox-3", "success": true, "cost": 0.002}

Nothing is run, and no file but the two is read.  `answers.py` makes one of three words out of a Verdict: keep,
drop, or how many more pairs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import msgspec

from ..errors import GateError, InputError
from ..stats import ClusterMean
from ..types import Json, Verdict
from .formats.outcomes import Outcomes, ReadAs, of_rows, read_sides
from .gate import PairedResults, Side, TaskResult, compare, pairs
from .guardrails import pairs_in_words

PathLike: TypeAlias = Path | str
Results: TypeAlias = PathLike | Sequence[Mapping[str, Json]]
"""A file, or rows of one's own as they would stand in one."""


def verdict(
    a: Results,
    b: Results,
    *,
    margin: float = 0.0,
    suite: tuple[Results, Results] | None = None,
    suite_margin: float = 0.02,
    format: str = "",
    metric: str = "",
    group: str = "",
    id: str = "",
    range: tuple[float, float] | None = None,
    variants: tuple[str, str] | None = None,
) -> Verdict:
    """Is what produced `b` better than what produced `a` (or, with a margin, not worse by more)?

    Args:
        suite: results of both on other tasks, of what must not be forgotten (`guarded`).
        suite_margin: how far success may fall there.
        format: of the files, one of `formats.FORMATS`; told by their content if "".
        metric: the score that decides; needed where there are several.
        group: the field whose value tasks share; `group` if "" and there is such a one.
        id: the column of a table that names the task.
        range: the worst and the best score there can be, where they are not 0 and 1.
        variants: which prompt, model or run of each file, where one holds several side by side.

    Raises:
        InputError: a file cannot be read as results, most of it is broken, or a score lies outside its range.
        GateError: the files do not pair up, or nothing is left to compare.
    """
    if range is not None and not (all(map(math.isfinite, range)) and range[0] != range[1]):
        raise InputError(
            f"range {range[0]:g} {range[1]:g} must be two different numbers, the worst score and the best"
        )
    how = ReadAs(format=format, metric=metric, group=group, id=id, range=range)
    old, new = _sides(a, b, how, variants)
    result = compare_outcomes(old, new, margin=margin)
    notes: list[str] = []
    if suite is not None:
        before, after = _sides(*suite, how, None)
        both, _ = _both(before, after)
        result = guarded(
            result,
            [pair.baseline for pair in both],
            [pair.candidate for pair in both],
            margin=suite_margin,
            metric=before.metric,
        )
        notes += [*before.notes, *after.notes]
    return replace(result, reasons=(*result.reasons, *notes))


def _sides(
    a: Results, b: Results, how: ReadAs, variants: tuple[str, str] | None
) -> tuple[Outcomes, Outcomes]:
    if isinstance(a, Path | str) and isinstance(b, Path | str):
        old, new = read_sides([Path(a), Path(b)], how, variants)
        return old, new
    if isinstance(a, Path | str) or isinstance(b, Path | str):
        raise InputError("give two files, or the rows of both: one of each is not compared")
    return of_rows(a, "A"), of_rows(b, "B")


def compare_outcomes(old: Outcomes, new: Outcomes, *, margin: float = 0.0) -> Verdict:
    """The gate's verdict on two sides that were read.

    Raises:
        GateError: they do not pair up, or nothing is left to compare.
    """
    both, notes = _both(old, new)
    result = compare(
        [pair.baseline for pair in both],
        [pair.candidate for pair in both],
        metric=old.metric,
        margin=margin,
        against=old.path,
    )
    return replace(result, reasons=(*result.reasons, *_cost(both), *notes, *old.notes, *new.notes))


def _both(old: Outcomes, new: Outcomes) -> tuple[list[PairedResults], list[str]]:
    """The pairs; a task whose row on one side is broken or was skipped has no score there.

    It counts at the worst for the candidate, as any missing score does: a candidate whose rows break where it is
    wrong would choose its sample otherwise.
    """
    sides, notes = [], []
    for side, other, name in ((old, new, "A"), (new, old, "B")):
        tasks = {result.task for result in side.results}
        missing = [result for result in other.results if result.task not in tasks]
        # More than were lost: the files are of different tasks.
        if len(missing) > side.absent:
            missing = []
        elif missing:
            notes.append(
                f"{pairs_in_words(len(missing))} without a result in {name}, whose row there could not be read or was "
                "skipped: counted at the worst for the candidate."
            )
        unscored = [
            TaskResult(task=result.task, group=result.group, scores={side.metric: None}) for result in missing
        ]
        sides.append([*side.results, *unscored])
    try:
        return pairs(*sides), notes
    except GateError as error:
        losses = " ".join(note for side in (old, new) for note in side.notes if "could not be read" in note)
        raise GateError(f"{error} {losses}".strip()) from error


def guarded(
    verdict: Verdict, before: Side, after: Side, *, margin: float, metric: str = "success"
) -> Verdict:
    """The gate's verdict, withdrawn where success on a guard suite has dropped.

    Args:
        before: results of the baseline on the suite.
        after: results of the candidate on the same tasks.
        margin: how far success may fall; it must be *shown* to have fallen no further.
        metric: the score that says what success is.
    """
    name = "guard suite"
    suite = compare(before, after, metric=metric, margin=margin, against=name)
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
    bar = f"not worse by more than {verdict.margin:g}" if verdict.margin else "better"
    lines = [
        f"{'PROMOTE' if verdict.promote else 'DO NOT PROMOTE'}: "
        f"{'shown' if verdict.promote else 'not shown'} to be {bar} than {verdict.against}",
        *figures(verdict),
    ]
    return "\n".join(lines)


def figures(verdict: Verdict) -> list[str]:
    """The numbers behind it, its guardrails and its reasons, a line each."""
    low, high = verdict.interval
    lines = [
        f"  effect    {verdict.effect:+.3f}  [{low:+.3f}, {high:+.3f}] 95 %, clustered by group",
        f"  e-value   {verdict.e_value:.3g}",
        f"  pairs     {verdict.n}" + (f", about {verdict.needed} needed" if verdict.needed else ""),
    ]
    lines += [
        f"  guardrail {name}: {'holds' if held else 'fails'}" for name, held in verdict.guardrails.items()
    ]
    return [*lines, *(f"  - {reason}" for reason in verdict.reasons)]


def to_json(verdict: Verdict) -> bytes:
    """The verdict as one JSON object."""
    return msgspec.json.encode(verdict)
