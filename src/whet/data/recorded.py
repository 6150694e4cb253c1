"""Recorded runs → rows for one function: what it was asked, what it answered, what people said of it.

The function is the traced one itself, or a step of it.  What people said of a run speaks for its
answer; of a step inside it, praise speaks for it too, and blame says nothing, because something else may
have been to blame.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from statistics import fmean

import msgspec

from ..types import Feedback, Json, Step, Trajectory
from .examples import Example
from .signatures import Signature
from .tasks import natural_group


def recorded(signature: Signature, qualname: str, runs: Iterable[Trajectory]) -> Iterator[Example]:
    """A row for every recorded call of the function that fits its signature and did not raise, oldest first.

    Args:
        qualname: as the function has it, `Class.method` for a method.
    """
    for run in sorted(runs, key=lambda run: (run.started, run.id)):
        if run.meta.get("function") == qualname and run.error is None:
            given = _instruction(signature, run.task.instruction)
            if signature.named(given) is not None:
                said = [each for each in run.feedback if each.step is None]
                yield _row(given, run.output, run, said, None)
        for step in run.steps:
            fits = step.name in (qualname, signature.name) and step.kind != "llm" and step.error is None
            if fits and signature.named(step.observation) is not None:
                yield _row(step.observation, step.action, run, _of_step(run, step), step)


def _of_step(run: Trajectory, step: Step) -> list[Feedback]:
    own = [each for each in run.feedback if each.step == step.id]
    praise = [
        each
        for each in run.feedback
        if each.step is None and each.value is not None and each.correction is None
    ]
    good = bool(praise) and min(each.value or 0.0 for each in praise) > 0
    return own or (praise if good else [])


def _instruction(signature: Signature, text: str) -> Json:
    """The arguments of a traced call: they are the instruction, as JSON where they were no single text."""
    first = signature.parameters[0].annotation if signature.parameters else ""
    if first == "str" and len(signature.required) <= 1 and not text.startswith('{"'):
        return text
    try:
        given: Json = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
    if isinstance(given, dict):
        return given if signature.named(given) is not None else text
    return text if first == "str" or (isinstance(given, (int, float)) and first == "") else given


def _row(given: Json, output: Json, run: Trajectory, said: Sequence[Feedback], step: Step | None) -> Example:
    values = [each.value for each in said if each.value is not None]
    label = fmean(values) if values else None
    expected: Json = None
    corrections = [each for each in said if each.correction is not None]
    if corrections:
        latest = max(corrections, key=lambda each: (each.at, each.id))
        expected = latest.correction
        if latest.kind == "preference" and isinstance(expected, dict) and "chosen" in expected:
            expected = expected["chosen"]
        if label is None:
            label = 1.0 if expected == output else -1.0
    provenance: dict[str, Json] = {"how": "trace", "run": run.id, "feedback": len(said)}
    if step is not None:
        provenance["step"] = step.id
    return Example(
        input=given,
        output=output,
        expected=expected,
        label=label,
        group=natural_group(run),
        provenance=provenance,
    )


def distinct(rows: Iterable[Example]) -> tuple[list[Example], int]:
    """One row per input, and how many repeated one: what people said goes before what nobody did, later first."""
    kept: dict[str, Example] = {}
    repeated = 0
    for row in rows:
        before = kept.get(row.id)
        repeated += before is not None
        if before is None or _rank(row) >= _rank(before):
            kept[row.id] = row
    return list(kept.values()), repeated


def _rank(row: Example) -> int:
    if row.expected is not None:
        return 3
    return 0 if row.label is None else 2 if row.label > 0 else 1
