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

from ..atomic import write_whole
from ..errors import InputError
from ..types import Feedback, Json, Task, Trajectory, canonical
from .columns import ColumnNames
from .exchange.formats import task_from_json
from .rows import EXPECTED, INPUT, as_text
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
    write_whole(Path(path), lines)
    return len(lines)


def from_jsonl(path: Path | str, columns: ColumnNames | None = None) -> list[Task]:
    """Read tasks from a file (`tables.read_table`): as `to_jsonl` writes them, in the published shape, or as rows.

    A row has an input and, where it is known, the right answer, under the names of columns that people use, or those of
    a benchmark (WebArena, SWE-bench, Mind2Web).

    Args:
        columns: those that a person named: every line is a row.

    Raises:
        NotFoundError: there is no such file.
        InputError: the file cannot be read, a line is not a task, an id comes twice, or a column is not there; says
            which line. Or several columns are named as the input.
    """
    table = read_table(Path(path)).typed()
    named = columns or ColumnNames()
    if len(named.input) > 1:
        raise InputError(
            f"a task asks one thing: name one column of its input, not {' and '.join(named.input)}"
        )
    for name in filter(None, (*named.input, named.expected, named.group)):
        if name not in table.columns:
            raise InputError(f"{table.path} has no column {name!r}; it has {', '.join(table.columns)}")
    read: dict[str, str] = {}
    result: list[Task] = []
    for number, fields in table.lines:
        where = table.where(number)
        try:
            whole = not named and _is_task(fields)
            task = task_from_json(fields) if whole else _task_of_row(_of_a_benchmark(fields), named)
        except InputError as error:
            raise InputError(f"{where}: {error}") from error
        if task.id in read:
            raise InputError(f"{where}: task {task.id!r} was already on {table.unit} {read[task.id]}")
        read[task.id] = str(number)
        result.append(task)
    return result


def _is_task(fields: Mapping[str, Json]) -> bool:
    if any(name in fields for name in ("natural_language_instruction", "initial_state")):
        return True
    # `instruction` is also what people call the column of the input; beside a column of the right answer it is that.
    if "instruction" in fields:
        return "answer" in fields or not any(name in fields for name in EXPECTED)
    # A row may have an id, too. One whose input is empty is known by its id alone.
    asked = any(fields.get(name) is not None for name in (*INPUT, *_BENCHMARKS))
    return not asked and any(name in fields for name in ("id", "task_id"))


_BENCHMARKS = {"intent": "eval", "problem_statement": "instance_id", "confirmed_task": "annotation_id"}
"""What is asked in the files of WebArena, SWE-bench and Mind2Web, and a field by which they are known."""


def _of_a_benchmark(fields: Mapping[str, Json]) -> Mapping[str, Json]:
    """A row of a benchmark's file under the names that all rows have; every other row as it is."""
    asked = next((name for name, sign in _BENCHMARKS.items() if name in fields and sign in fields), None)
    if asked is None:
        return fields
    row = {**fields, "input": fields[asked]}
    del row[asked]
    if asked == "intent":
        row["initial_state"] = {"url": row.pop("start_url", None)}
        # Many tasks of one template: they stay on one side.
        if row.get("intent_template_id") is not None:
            row["group"] = f"template {row['intent_template_id']}"
        judged = fields["eval"] if isinstance(fields["eval"], Mapping) else {}
        answers = judged.get("reference_answers")
        # Its other checks look at pages, or ask a model: an answer alone does not pass them.
        if (
            judged.get("eval_types") == ["string_match"]
            and isinstance(answers, Mapping)
            and set(answers) == {"exact_match"}
        ):
            row["expected"] = answers["exact_match"]
    else:
        row["id"] = row.pop(_BENCHMARKS[asked])
        group = row.get("repo" if asked == "problem_statement" else "website")
        row |= {} if group is None else {"group": group}
    return row


def _task_of_row(fields: Mapping[str, Json], columns: ColumnNames) -> Task:
    """A Task of one input, whose instruction it is; other columns go to `meta`."""
    question = next((name for name in columns.input or INPUT if name in fields), None)
    if question is None or fields[question] is None:
        raise InputError(
            f"it is neither a task (task_id, instruction, answer) nor a row with an input ({', '.join(INPUT)}); its "
            f"columns: {', '.join(fields)}"
        )
    names = (columns.expected,) if columns.expected else (*EXPECTED, "answer")
    expected = next((name for name in names if name in fields), None)
    named = ("group", "split")
    rest = {name: value for name, value in fields.items() if name not in (question, expected, *named)}
    task: dict[str, Json] = {"instruction": _asked(fields[question]), **rest}
    task |= {name: str(fields[name]) for name in named if fields.get(name) is not None}
    if columns.group and fields[columns.group] is not None:
        task["group"] = as_text(fields[columns.group])
    if expected is not None:
        task["answer"] = fields[expected]
    # Benchmarks number their tasks, from 0 on; the published shape has texts.
    for name in ("id", "task_id"):
        if isinstance(task.get(name), int):
            task[name] = as_text(task[name])
    return task_from_json(task)


def _asked(value: Json) -> str:
    """An input as text: of a chat with one message of the user, its words."""
    inner = value
    while isinstance(inner, list) and len(inner) == 1:
        inner = inner[0]
    if isinstance(inner, Mapping) and inner.get("role") == "user" and isinstance(inner.get("content"), str):
        return str(inner["content"])
    return as_text(value)
