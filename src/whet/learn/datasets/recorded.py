"""Recorded runs → rows for one function: what it was asked, what it answered, what people said of it.

The function is the traced one itself, or a step of it.  What people said of a run speaks for its
answer; of a step inside it, praise speaks for it too, and blame says nothing, because something else may
have been to blame.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from statistics import fmean

import msgspec
from msgspec import UNSET

from ...record.rows import expected_answer, row
from ...record.tasks import natural_group
from ...record.tools import bare
from ...record.tracing.labels import corrected
from ...record.tracing.signals import telling
from ...record.tracing.tool_calls import TOLD, tool_steps
from ...types import Feedback, Json, Step, Task, Trajectory
from .signatures import Signature


def recorded(signature: Signature, qualname: str, runs: Iterable[Trajectory]) -> Iterator[Task]:
    """A row for every recorded call of the function that fits its signature and did not raise, oldest first.

    Args:
        qualname: as the function has it, `Class.method` for a method.
    """
    for run in sorted(runs, key=lambda run: (run.started, run.id)):
        if run.meta.get("function") == qualname and run.error is None:
            arguments = instruction_arguments(signature, run.task.instruction)
            if signature.named(arguments) is not None:
                feedback = [note for note in run.feedback if note.step is None]
                yield _row(arguments, run.output, run, feedback, None)
        # Of an agent whose model calls alone were traced the messages tell what its tools were called with and
        # answered; behind the gateway they are steps of the run already, with ids.
        tool_calls = (step for step in tool_steps(run) if TOLD in step.info and not step.id)
        for step in (*run.steps, *tool_calls):
            fits = step.name in (qualname, signature.name) and step.kind != "llm" and step.error is None
            if fits and signature.named(step.observation) is not None:
                yield _row(step.observation, step.action, run, _of_step(run, step), step)


def why_none(name: str, runs: Sequence[Trajectory]) -> str:
    """The reason why recorded runs gave no row, and the remedy."""
    tools = sorted({bare(tool.name) for run in runs for tool in tool_steps(run)})
    held = (
        f"they hold calls of {', '.join(tools)}"
        if tools
        else "they hold no tool call with arguments and result"
    )
    return (
        f"recorded runs without a call of {name} that fits its signature: {held}; mark the function with "
        "@whet.step or @whet.trace, or run its agent behind the gateway"
    )


def _of_step(run: Trajectory, step: Step) -> list[Feedback]:
    own = [note for note in run.feedback if note.step == step.id]
    praise = [note for note in telling(run.feedback) if note.step is None and corrected(note) is UNSET]
    good = bool(praise) and min(note.value or 0.0 for note in praise) > 0
    return own or (praise if good else [])


_ASKERS = frozenset(("person", "user", "user_id", "username", "customer", "customer_id", "subject", "asker"))
"""Names of a parameter that takes who asks."""


def asked_by(signature: Signature, input: Json, person: str) -> Json:
    """An input that says who asks, where the function wants to know it and the input does not say.

    A gateway records the person of a run beside its question.
    """
    names = [parameter.name for parameter in signature.parameters[1:] if parameter.name in _ASKERS]
    given = signature.named(input) or {}
    return input if not names or names[0] in given else {**given, names[0]: person}


def instruction_arguments(signature: Signature, text: str) -> Json:
    """The arguments of a traced call: they are the instruction, as JSON where they were no single text."""
    first = signature.parameters[0].annotation if signature.parameters else ""
    if first == "str" and len(signature.required) <= 1 and not text.startswith('{"'):
        return text
    try:
        arguments: Json = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
    if isinstance(arguments, dict):
        return arguments if signature.named(arguments) is not None else text
    return text if first == "str" or (isinstance(arguments, (int, float)) and first == "") else arguments


def _row(input: Json, output: Json, run: Trajectory, feedback: Sequence[Feedback], step: Step | None) -> Task:
    values = [note.value for note in telling(feedback) if note.value is not None]
    label = fmean(values) if values else None
    expected: Json = UNSET
    corrections = [note for note in feedback if corrected(note) is not UNSET]
    if corrections:
        expected = corrected(max(corrections, key=lambda note: (note.at, note.id)))
        if label is None:
            label = 1.0 if expected == output else -1.0
    provenance: dict[str, Json] = {"how": "trace", "run": run.id, "feedback": len(feedback)}
    if step is not None:
        provenance["step"] = step.id
    return row(
        input=input,
        output=output,
        expected=expected,
        label=label,
        group=natural_group(run),
        provenance=provenance,
    )


def distinct(rows: Iterable[Task]) -> tuple[list[Task], int]:
    """One row per input, and how many repeated one: what people said goes before what nobody did, later first."""
    by_id: dict[str, Task] = {}
    repeated = 0
    for task in rows:
        before = by_id.get(task.id)
        repeated += before is not None
        if before is None or _rank(task) >= _rank(before):
            by_id[task.id] = task
    return list(by_id.values()), repeated


def _rank(task: Task) -> int:
    if expected_answer(task) is not UNSET:
        return 3
    label = task.meta.get("label")
    return 0 if label is None else 2 if label > 0 else 1
