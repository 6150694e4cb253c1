"""Traces → tasks, and tasks as JSON lines.

A production trace carries the work item that caused it; what people said of it
becomes the task's answer (the latest correction) and its meta (the mean thumb).
Nothing is invented here: a task without an answer has none.  `splits.py` divides
the tasks, `formats.py` reads the published shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Protocol, TypeAlias

import msgspec
from msgspec import UNSET

from ..errors import InputError
from ..types import Feedback, Json, Task, Trajectory, canonical
from .exchange.formats import task_from_json
from .rows import write_lines
from .store import Store
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
        by_content.setdefault(content, (task, []))[1].append(run)
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
    """Read tasks, one per line: as `to_jsonl` writes them or in the published shape.

    Raises:
        InputError: the file cannot be read, a line is not a task, or an id comes twice; says which line.
    """
    try:
        # Bytes: `str.splitlines` also cuts at U+2028, which JSON may hold in a text.
        lines = Path(path).read_bytes().splitlines()
    except OSError as error:
        raise InputError(f"cannot read tasks from {path}: {error.strerror or error}") from error
    read: dict[str, int] = {}
    result: list[Task] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            task = task_from_json(line)
        except InputError as error:
            raise InputError(f"{path}, line {number}: {error}") from error
        if task.id in read:
            raise InputError(f"{path}, line {number}: task {task.id!r} was already on line {read[task.id]}")
        read[task.id] = number
        result.append(task)
    return result
