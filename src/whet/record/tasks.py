"""Traces → tasks, and tasks as JSON lines.

A production trace carries the work item that caused it; what people said of it
becomes the task's answer (the latest correction) and its meta (the mean thumb).
Nothing is invented here: a task without an answer has none.  `splits.py` divides
the tasks, `formats.py` reads the published shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Protocol, TypeAlias

import msgspec
from msgspec import UNSET

from ..errors import InputError
from ..types import Feedback, Json, Task, Trajectory, canonical
from .exchange.formats import task_from_json
from .rows import EXPECTED, INPUT, as_text, write_lines
from .store import Store
from .tables import read_table
from .tracing.labels import corrected
from .tracing.signals import hear, telling

GroupKey: TypeAlias = Callable[[Trajectory], str]


class HasTrajectories(Protocol):
    """A Store, or whatever else yields trajectories."""

    def trajectories(self) -> Iterable[Trajectory]: ...


def natural_group(trajectory: Trajectory) -> str:
    """The task's group, else the session, else the subject, else none."""
    return trajectory.task.group or trajectory.session or trajectory.subject or ""


def tasks(
    source: HasTrajectories | Iterable[Trajectory], *, group: GroupKey | str | None = None
) -> list[Task]:
    """The distinct tasks behind recorded runs, in the order in which they were first seen.

    Runs with the same instruction, initial state, checker and group are one task. It keeps the id of
    its first run; its answer is the latest correction, else what the task had.

    Args:
        source: a Store, or trajectories with their feedback.
        group: the key of splits: a function of the trajectory, or the name of an entry in the
            task's `meta` or `initial_state`; None takes `natural_group`.

    Returns:
        Tasks whose `meta` gains `trajectories` (their ids, oldest first), `feedback` (mean value of what people
        said, or of what they let show in a session where they said nothing; absent without either) and `feedback_n`.

    Raises:
        InputError: `group` names an entry that a task lacks.
    """
    key = natural_group if group is None else _entry(group) if isinstance(group, str) else group
    # Before the runs are read: what users let show since the last time is feedback on them.
    if isinstance(source, Store):
        hear(source)
    runs = source.trajectories() if hasattr(source, "trajectories") else source
    by_content: dict[bytes, tuple[Task, list[Trajectory]]] = {}
    for run in runs:
        task = replace(run.task, group=key(run))
        # Without the answer: runs before and after a correction are of one task.
        content = canonical((task.instruction, dict(task.initial_state), task.success_checker, task.group))
        # Without its steps: the runs of a record may be larger than memory.
        by_content.setdefault(content, (task, []))[1].append(replace(run, steps=(), output=None))
    return [_task(task, its_runs) for task, its_runs in by_content.values()]


def _entry(name: str) -> GroupKey:
    def key(run: Trajectory) -> str:
        for where in (run.task.meta, run.task.initial_state):
            if name in where:
                return str(where[name])
        raise InputError(
            f"task {run.task.id!r} has no {name!r} in its meta or initial_state to group by; "
            "give group= a function of the trajectory"
        )

    return key


def _task(task: Task, runs: list[Trajectory]) -> Task:
    feedback: list[Feedback] = [note for run in runs for note in run.feedback]
    # Of the whole run: a correction of a step is not the answer to the task.
    corrections = [note for note in feedback if note.step is None and corrected(note) is not UNSET]
    values = [note.value for run in runs for note in telling(run.feedback) if note.value is not None]
    ordered = sorted(runs, key=lambda run: (run.started, run.id))
    meta: dict[str, Json] = {**task.meta, "trajectories": [run.id for run in ordered]}
    if values:
        meta |= {"feedback": sum(values) / len(values), "feedback_n": len(values)}
    if not corrections:
        answers = [run.task for run in ordered if run.task.answer_known]
        # replace() keeps the meta of the first run, which may not have known that None is the answer.
        if answers and answers[-1].answer is None:
            meta["answer_known"] = True
        return replace(task, answer=answers[-1].answer if answers else None, meta=meta)
    answer = corrected(max(corrections, key=lambda note: (note.at, note.id)))
    if answer is None:
        meta["answer_known"] = True
    return replace(task, answer=answer, meta=meta)


def to_jsonl(path: Path | str, rows: Iterable[Task]) -> int:
    """Write tasks one per line, with every field that is known; returns how many.

    The file appears whole or not at all.
    """
    lines = []
    for task in rows:
        fields = msgspec.to_builtins(task)
        if not task.answer_known:
            del fields["answer"]  # null would say that the right answer is None
        lines.append(msgspec.json.encode(fields) + b"\n")
    write_lines(Path(path), lines)
    return len(lines)


def from_jsonl(path: Path | str) -> list[Task]:
    """Read tasks from a file (`tables.read_table`): as `to_jsonl` writes them, in the published shape, or as rows.

    A row has an input and, where it is known, the right answer, under the names of columns that people use.

    Raises:
        NotFoundError: there is no such file.
        InputError: the file cannot be read, a line is not a task, or an id comes twice; says which line.
    """
    table = read_table(Path(path)).typed()
    read: dict[str, str] = {}
    result: list[Task] = []
    for number, fields in table.lines:
        where = table.where(number)
        try:
            task = task_from_json(fields) if _is_task(fields) else _task_of_row(fields)
        except InputError as error:
            raise InputError(f"{where}: {error}") from error
        if task.id in read:
            raise InputError(f"{where}: task {task.id!r} was already on {table.unit} {read[task.id]}")
        read[task.id] = str(number)
        result.append(task)
    return result


def _is_task(fields: Mapping[str, Json]) -> bool:
    # `instruction` is also what people call the column of the input; beside a column of the right answer it is that.
    if any(name in fields for name in ("id", "task_id", "natural_language_instruction", "initial_state")):
        return True
    return "instruction" in fields and not any(name in fields for name in EXPECTED)


def _task_of_row(fields: Mapping[str, Json]) -> Task:
    """A Task of one input, whose instruction it is; other columns go to `meta`."""
    question = next((name for name in INPUT if name in fields), None)
    if question is None or fields[question] is None:
        raise InputError(
            f"it is neither a task (task_id, instruction, answer) nor a row with an input ({', '.join(INPUT)}); its "
            f"columns: {', '.join(fields)}"
        )
    expected = next((name for name in (*EXPECTED, "answer") if name in fields), None)
    named = ("group", "split")
    rest = {name: value for name, value in fields.items() if name not in (question, expected, *named)}
    task: dict[str, Json] = {"instruction": as_text(fields[question]), **rest}
    task |= {name: str(fields[name]) for name in named if fields.get(name) is not None}
    if expected is not None:
        task["answer"] = fields[expected]
    return task_from_json(task)
