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

from ...types import Task
from ..rows import reference_answer
from ..variants import fields

TaskKind = Literal["classification", "extraction", "text", "code", "ranking", "routing"]
"""What the answers are: one of a few labels, a record, prose, a program, an order, or a tool with arguments."""

TASKS: tuple[TaskKind, ...] = get_args(TaskKind)

_FILLED = re.compile(r"^LABELS: .*$", re.MULTILINE)


def source(task: TaskKind, rows: Sequence[Task]) -> str:
    """The evaluator of one kind of task as text, filled with what the known answers say."""
    labels = sorted({label for row in rows for label in [_label(row, task)] if label})
    text = (Path(__file__).parent / f"{task}.py").read_text(encoding="utf-8")
    return _FILLED.sub(lambda _: f"LABELS: list[str] = {labels!r}", text)


def _label(row: Task, task: TaskKind) -> str:
    wanted = reference_answer(row)
    if task == "routing" and isinstance(wanted, dict):
        wanted = wanted.get("tool", wanted.get("name"))
    return wanted.strip() if isinstance(wanted, str) else ""


def _is_code(text: str) -> bool:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return any(isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Import | ast.For) for node in tree.body)


def likely(rows: Sequence[Task]) -> list[TaskKind]:
    """Kinds of task that the known answers could be, the likeliest first."""
    wanted = [one for row in rows if (one := reference_answer(row)) is not None and one is not UNSET]
    if not wanted:
        return ["extraction"]
    if all(isinstance(one, dict) for one in wanted):
        if all({"function", "cases"} <= set(one) for one in wanted):
            return ["code"]
        routed = all("tool" in one or {"name", "arguments"} <= set(one) for one in wanted)
        return ["routing", "extraction"] if routed else ["extraction"]
    if all(isinstance(one, list) for one in wanted):
        # Fields have their places: that is no order of preference.
        unlike = any(fields(one) for one in wanted if isinstance(one, list))
        return ["extraction"] if unlike else ["ranking", "extraction"]
    if not all(isinstance(one, str) for one in wanted):
        return ["extraction"]
    if all(_is_code(one) for one in wanted):
        return ["code", "text"]
    few = len(set(wanted)) <= max(2, len(wanted) // 2)
    if few and all(len(one.split()) <= 3 for one in wanted):
        named = all("_" in one or "." in one for one in wanted)
        return ["routing", "classification", "text"] if named else ["classification", "text"]
    return ["text", "extraction"]
