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
from ..types import Json, Sampling, Verdict, digest
from .formats.outcomes import Outcomes, ReadAs, of_rows, read_sides
from .gate import compare
from .guardrails import Guardrail, pairs_in_words
from .merging import merged
from .results import PairedResults, Side, TaskResult, pairs
from .selection import best_of

PathLike: TypeAlias = Path | str
_DIGITS = 10
"""Of a task's digest: two of ten thousand tasks have the same one with a chance of 1 in 20,000."""
_KINDS = {"new-group": "clustered by group", "exchangeable": "of exchangeable tasks"}
Results: TypeAlias = PathLike | Sequence[Mapping[str, Json]]
"""A file, or rows of one's own as they would stand in one."""


def verdict(
    a: Results,
    b: Results,
    *,
    margin: float = 0.0,
    suite: tuple[Results, Results] | None = None,
    suite_margin: float = 0.02,
    also: Sequence[Results] = (),
    earlier: Sequence[PathLike] = (),
    guardrails: Sequence[Guardrail] = (),
    regime: Sampling = "new-group",
    watched: bool = False,
    unpaired: bool = False,
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
        also: results of further candidates: the best of all is chosen on some tasks and judged on the others.
        earlier: verdicts (`to_json`) on the same two, on other tasks.
        guardrails: scores or columns that must be shown not to get worse: cost, seconds, whether it answered.
        regime, watched, unpaired: as in `compare`; the suite is judged in the same regime.
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
    if also and (suite is not None or earlier or watched or variants):
        raise InputError(
            "several candidates are judged by one look at their own files, without a suite and without variants"
        )
    guards = [guardrail.metric for guardrail in guardrails]
    how = ReadAs(format=format, metric=metric, group=group, id=id, range=range, guards=guards)
    old, new, *others = _sides([a, b, *also], how, variants)
    if others:
        return _best([old, new, *others], guardrails, margin=margin, regime=regime, unpaired=unpaired)
    result = compare_outcomes(
        old, new, margin=margin, guardrails=guardrails, regime=regime, watched=watched, unpaired=unpaired
    )
    if earlier:
        if guardrails:
            raise InputError("guardrails are judged on the pairs at hand: give them without earlier verdicts")
        merged_with = merged(_apart([(str(path), _earlier(path)) for path in earlier], result))
        lost = [note for note in result.reasons if note in (*old.notes, *new.notes)]
        unsaid = [
            f"{path} does not say which tasks it judged: that they are others is your word."
            for path in earlier
            if not _earlier(path).tasks
        ]
        result = replace(merged_with, reasons=(*merged_with.reasons, *unsaid, *lost))
    if suite is None:
        return result
    before, after = _sides(suite, replace(how, guards=()), None)
    try:
        both, _ = _both(before, after, unpaired=False)
    except GateError as error:
        raise GateError(f"the suite: {error}") from error
    guard = guarded(
        result,
        [pair.baseline for pair in both],
        [pair.candidate for pair in both],
        margin=suite_margin,
        metric=before.metric,
    )
    return replace(guard, reasons=(*guard.reasons, *before.notes, *after.notes))


def _earlier(path: PathLike) -> Verdict:
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=Verdict)
    except (OSError, msgspec.MsgspecError, UnicodeError) as error:
        raise InputError(f"{path} holds no verdict of whet verdict --json: {error}") from error


def _apart(before: Sequence[tuple[str, Verdict]], now: Verdict) -> list[Verdict]:
    """The Verdicts, of which no two judged the same task: else evidence would count twice.

    Raises:
        InputError: two of them did.
    """
    named = [*before, ("these files", now)]
    for number, (name, one) in enumerate(named):
        for other, two in named[:number]:
            if both := set(one.tasks) & set(two.tasks):
                raise InputError(
                    f"{len(both)} of {len(set(one.tasks))} tasks of {name} are behind {other} too, and no task counts "
                    "twice: give the new tasks alone, or all results at once without --earlier (--watched where you "
                    "look again as they grow)"
                )
    return [verdict for _, verdict in named]


def _sides(sources: Sequence[Results], how: ReadAs, variants: tuple[str, str] | None) -> list[Outcomes]:
    files = [Path(source) for source in sources if isinstance(source, Path | str)]
    if len(files) == len(sources):
        return read_sides(files, how, variants)
    if files:
        raise InputError("give files, or the rows of all sides: one of each is not compared")
    return [
        of_rows(source, chr(ord("A") + number), how.guards)
        for number, source in enumerate(sources)
        if not isinstance(source, Path | str)
    ]


def _best(
    sides: Sequence[Outcomes],
    guardrails: Sequence[Guardrail],
    *,
    margin: float,
    regime: Sampling,
    unpaired: bool,
) -> Verdict:
    """The verdict on the best of several candidates; the first side is the baseline."""
    old, *candidates = sides
    if len({side.path for side in candidates}) < len(candidates):
        raise InputError("a candidate is named twice")
    results = {side.path: _with_lost(side, old) for side in candidates}
    chosen = best_of(
        old.results,
        results,
        metric=old.metric,
        margin=margin,
        guardrails=guardrails,
        against=old.path,
        regime=regime,
        unpaired=unpaired,
    ).verdict
    notes = [note for side in sides for note in side.notes]
    return replace(chosen, reasons=(*chosen.reasons, *notes))


def compare_outcomes(
    old: Outcomes,
    new: Outcomes,
    *,
    margin: float = 0.0,
    guardrails: Sequence[Guardrail] = (),
    regime: Sampling = "new-group",
    watched: bool = False,
    unpaired: bool = False,
) -> Verdict:
    """The gate's verdict on two sides that were read.

    Raises:
        GateError: they do not pair up, or nothing is left to compare.
    """
    both, notes = _both(old, new, unpaired=unpaired)
    result = compare(
        [pair.baseline for pair in both],
        [pair.candidate for pair in both],
        metric=old.metric,
        margin=margin,
        guardrails=guardrails,
        against=old.path,
        regime=regime,
        watched=watched,
    )
    result = replace(result, tasks=tuple(sorted({digest(pair.task, _DIGITS) for pair in both})))
    if any(guardrail.metric == "cost" for guardrail in guardrails):
        return replace(result, reasons=(*result.reasons, *notes, *old.notes, *new.notes))
    return replace(result, reasons=(*result.reasons, *_cost(both), *notes, *old.notes, *new.notes))


def _both(old: Outcomes, new: Outcomes, *, unpaired: bool) -> tuple[list[PairedResults], list[str]]:
    """The pairs, and what has to be said of those that one side lost."""
    filled, notes = [], []
    for side, other, name in ((old, new, "A"), (new, old, "B")):
        results = _with_lost(side, other)
        filled.append(results)
        if lost := len(results) - len(side.results):
            notes.append(
                f"{pairs_in_words(lost)} without a result in {name}, whose row there could not be read or was "
                "skipped: counted at the worst for the candidate."
            )
    try:
        return pairs(*filled, unpaired=unpaired), notes
    except GateError as error:
        losses = " ".join(note for side in (old, new) for note in side.notes if "could not be read" in note)
        raise GateError(f"{error} {losses}".strip()) from error


def _with_lost(side: Outcomes, other: Outcomes) -> list[TaskResult]:
    """A side's results; a task whose row there is broken or was skipped has one without a score.

    It counts at the worst for the candidate, as any missing score does: a candidate whose rows break where it is
    wrong would choose its sample otherwise. Where more are missing than were lost the files are of different tasks.
    """
    tasks = {result.task for result in side.results}
    missing = [result for result in other.results if result.task not in tasks]
    if len(missing) > side.absent:
        missing = []
    unscored = [
        TaskResult(task=result.task, group=result.group, scores={side.metric: None}) for result in missing
    ]
    return [*side.results, *unscored]


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
    suite = compare(before, after, metric=metric, margin=margin, against=name, regime=verdict.regime)
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
    shown = f"{'shown' if verdict.promote else 'not shown'} to be {bar} than {verdict.against}"
    held = held_back(verdict)
    return "\n".join([f"{decision(verdict).upper()}: {shown}{held and f'; {held}'}", *figures(verdict)])


def decision(verdict: Verdict) -> str:
    """What to do with the candidate: promote, do not promote, or hold it back for an open finding."""
    if verdict.releasable:
        return "promote"
    return "held back" if verdict.promote else "do not promote"


def held_back(verdict: Verdict) -> str:
    """Why a candidate that is shown to be better is not released yet; "" without an open finding."""
    if not verdict.promote or verdict.releasable:
        return ""
    count = len(verdict.findings)
    return (
        f"{count} finding{'s' * (count > 1)}, named below, hold{'s' * (count == 1)} it back until a person clears "
        f"{'them' if count > 1 else 'it'} (whet findings)"
    )


def figures(verdict: Verdict) -> list[str]:
    """The numbers behind it, its guardrails and its reasons, a line each."""
    low, high = verdict.interval
    lines = [
        f"  effect    {verdict.effect:+.3f}  [{low:+.3f}, {high:+.3f}] 95 %, {_KINDS[verdict.regime]}",
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
