"""Evaluators by kind of task: files that people can read, edit and ship.

Each is one file of the standard library alone with one function, `evaluate(output, expected, input)`.
`source` fills in what the known answers say (which labels, which tools there are).  That a template
is ours says nothing for it: what comes of it goes through the same proof as any other.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

from msgspec import UNSET

from ...python_text import module_of
from ...record.rows import reference_answer
from ...types import Task
from ..variants import fields

TaskKind = Literal["classification", "extraction", "text", "code", "ranking", "routing"]
"""Kind of the answers: one of a few labels, a record, prose, a program, an order, or a tool with arguments."""

TASKS: tuple[TaskKind, ...] = get_args(TaskKind)

_FILLED = re.compile(r"^LABELS: .*$", re.MULTILINE)


def source(task: TaskKind, rows: Sequence[Task]) -> str:
    """The evaluator of one kind of task as text, filled with what the known answers say."""
    labels = sorted({label for row in rows for label in [_label(row, task)] if label})
    text = (Path(__file__).parent / f"{task}.py").read_text(encoding="utf-8")
    return _FILLED.sub(lambda _: f"LABELS: list[str] = {labels!r}", text)


def _label(row: Task, task: TaskKind) -> str:
    label = reference_answer(row)
    if task == "routing" and isinstance(label, dict):
        label = label.get("tool", label.get("name"))
    return label.strip() if isinstance(label, str) else ""


def _is_code(text: str) -> bool:
    try:
        tree = module_of(text)
    except SyntaxError:
        return False
    return any(isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Import | ast.For) for node in tree.body)


def likely(rows: Sequence[Task]) -> list[TaskKind]:
    """Kinds of task that the known answers could be, the likeliest first."""
    right_answers = [
        answer for row in rows if (answer := reference_answer(row)) is not None and answer is not UNSET
    ]
    if not right_answers:
        return ["extraction"]
    if all(isinstance(answer, dict) for answer in right_answers):
        if all({"function", "cases"} <= set(answer) for answer in right_answers):
            return ["code"]
        routed = all("tool" in answer or {"name", "arguments"} <= set(answer) for answer in right_answers)
        return ["routing", "extraction"] if routed else ["extraction"]
    if all(isinstance(answer, list) for answer in right_answers):
        # Fields have their places: that is not an order of preference.
        unlike = any(fields(answer) for answer in right_answers if isinstance(answer, list))
        return ["extraction"] if unlike else ["ranking", "extraction"]
    if not all(isinstance(answer, str) for answer in right_answers):
        return ["extraction"]
    if all(_is_code(answer) for answer in right_answers):
        return ["code", "text"]
    few = len(set(right_answers)) <= max(2, len(right_answers) // 2)
    if few and all(len(answer.split()) <= 3 for answer in right_answers):
        named = all("_" in answer or "." in answer for answer in right_answers)
        return ["routing", "classification", "text"] if named else ["classification", "text"]
    return ["text", "extraction"]
