"""Labelled items: pairs of answers with the better one, or single answers that people called good or bad."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..record.rows import numbered, read_columns, row
from ..types import Json, Task, Trajectory, digest

_PAIR_COLUMNS = (
    ("output_1", "output_2"),
    ("answer1", "answer2"),
    ("response_a", "response_b"),
    ("first", "second"),
)


@dataclass(frozen=True, slots=True)
class LabelledItem:
    """One item that people labelled."""

    id: str
    first: Trajectory
    second: Trajectory | None
    """The other answer of a pair; None for a single answer."""
    label: bool
    """True if the first answer is the better one, or the single one good."""
    kind: str = ""
    authors: tuple[str, str] = ("", "")
    """The models that wrote the answers, where it is known."""


def read_labelled(path: Path) -> list[LabelledItem]:
    """Labelled items of a file: pairs where it has two answers a row, else single answers.

    A pair has `input`, `output_1`, `output_2` and `label` (1 or 2), and may have `kind`, `model_1` and `model_2`;
    `chosen` and `rejected` say the same.  A single answer has input, output and label, as of `read_rows`.

    Raises:
        NotFoundError: there is no such file.
        InputError: a row has no label that is one of these, or the file has none.
    """
    items = [_labelled(line, where, str(line.get("id") or number)) for where, number, line in numbered(path)]
    if not items:
        raise InputError(f"{path} holds no labelled items")
    if len({item.second is None for item in items}) > 1:
        raise InputError(f"{path} holds pairs and single answers: give one file of each")
    return items


def label_rows(path: Path) -> dict[str, tuple[Mapping[str, Any], bool]]:
    """Item → its row and label: rows with `id` and `label`, for answers that stand elsewhere.

    Raises:
        NotFoundError: there is no such file.
        InputError: a row has no label that is one.
    """
    labels: dict[str, tuple[Mapping[str, Any], bool]] = {}
    for where, number, line in numbered(path):
        label = read_columns({"output": None, **line}, where)["label"]
        if label is None:
            raise InputError(f"{where}: it has no label; it has {', '.join(line)}")
        labels[str(line.get("id", number))] = line, label > 0
    return labels


def items_by_id(path: Path) -> list[LabelledItem]:
    """Labelled items of a file whose rows have at least an id and a label: of verdicts on answers that stand elsewhere.

    Raises:
        NotFoundError, InputError: as of `label_rows`, or it has no rows.
    """
    items = [
        LabelledItem(
            id,
            answering(row(line.get("input", "")), line.get("output", "")),
            None,
            good,
            str(line.get("kind") or ""),
        )
        for id, (line, good) in label_rows(path).items()
    ]
    if not items:
        raise InputError(f"{path} holds no labelled items")
    return items


def _labelled(line: Mapping[str, Any], where: str, id: str) -> LabelledItem:
    kind = str(line.get("kind") or line.get("set") or "")
    names = next((pair for pair in _PAIR_COLUMNS if all(name in line for name in pair)), None)
    if names is not None:
        if line.get("label") not in (1, 2, "1", "2"):
            raise InputError(
                f"{where}: the label of a pair is 1 or 2, the better answer; it is {line.get('label')!r}"
            )
        task = row(line.get("input", line.get("prompt", "")))
        authors = (str(line.get("model_1") or ""), str(line.get("model_2") or ""))
        first, second = (answering(task, line[name]) for name in names)
        return LabelledItem(id, first, second, str(line["label"]) == "1", kind, authors)
    if "chosen" in line and "rejected" in line:
        task = row(line.get("input", line.get("prompt", "")))
        first, second = answering(task, line["chosen"]), answering(task, line["rejected"])
        # By its hash: a file that always names the better one first would reward a judge that does.
        if int(digest(id, 2), 16) % 2:
            return LabelledItem(id, second, first, False, kind)
        return LabelledItem(id, first, second, True, kind)
    columns = read_columns(line, where)
    if columns["label"] is None or "output" not in columns:
        raise InputError(
            f"{where}: a labelled answer has input, output and label; this has {', '.join(line)}"
        )
    given = {name: columns[name] for name in ("input", "expected") if name in columns}
    return LabelledItem(id, answering(row(**given), columns["output"]), None, columns["label"] > 0, kind)


def answering(task: Task, output: Json) -> Trajectory:
    """A run of the task that gave this answer."""
    return Trajectory(task=task, output=output, id=digest([task.id, output]))
