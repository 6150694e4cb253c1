"""Rows: Tasks of one input each, read under the column names that people use, and written again as JSON Lines.

What goes in is `initial_state["input"]`, what should come out is `answer` where `answer_known`.  `meta` holds the rest:

- `output`: an answer that was recorded or came of a run; absent where none is known, for None is an answer.
- `label`: what people said of that output; above 0 is good.
- `liked`: true where the answer is that output, because people liked it and nobody gave a better one.
- `provenance`: `how` the row came about (trace, file, docstring, repository, model, generated), and more.

UNSET stands for a column that is not there: `"expected": null` says that the right answer is None.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET

from ..atomic import write_whole
from ..errors import InputError
from ..types import Json, Split, Task, canonical, digest
from .tables import read_table

INPUT = ("input", "question", "prompt", "instruction", "query")
# In files of people `answer` is what an agent answered; in files of tasks (`record.tasks`) it is the right one.
OUTPUT = ("output", "answer", "response", "prediction", "completion")
EXPECTED = ("expected", "reference", "gold", "target", "ground_truth")
_COLUMNS = {
    "input": INPUT,
    "output": OUTPUT,
    "expected": EXPECTED,
    "label": ("label", "feedback", "rating", "thumb", "good", "score"),
}
ROLES = tuple(name for names in _COLUMNS.values() for name in names)
"""Every name that says what a column is."""
_VERDICTS = {
    "good": 1.0,
    "up": 1.0,
    "yes": 1.0,
    "true": 1.0,
    "bad": -1.0,
    "down": -1.0,
    "no": -1.0,
    "false": -1.0,
}


def row(
    input: Json = None,
    output: Json = UNSET,
    expected: Json = UNSET,
    label: float | None = None,
    *,
    group: str = "",
    split: Split | None = None,
    provenance: Mapping[str, Json] | None = None,
    id: str = "",
) -> Task:
    """The Task of a row; the columns are those that the module describes.

    Args:
        group: shared with others: session, mailbox, person. Empty: it stands alone.
        id: the hash of its input unless given.
    """
    # An expected answer goes before a liked output: feedback errs.
    liked = expected is UNSET and output is not UNSET and label is not None and label > 0
    answer = output if liked else expected
    meta: dict[str, Json] = {"answer_known": answer is not UNSET, "provenance": dict(provenance or {})}
    if output is not UNSET:
        meta["output"] = output
    if label is not None:
        meta["label"] = label
    if liked:
        meta["liked"] = True
    return Task(
        id=id or digest(["example", input]),
        instruction=as_text(input),
        initial_state={"input": input},
        answer=None if answer is UNSET else answer,
        group=group,
        split=split,
        meta=meta,
    )


def as_text(value: Json) -> str:
    """A text as it is, anything else as its JSON."""
    return value if isinstance(value, str) else canonical(value).decode()


def columns_of(task: Task) -> dict[str, Json]:
    """The row as it stands in a file; a column whose value is unknown is left out."""
    columns = {
        "input": task.initial_state["input"],
        "output": task.meta.get("output", UNSET),
        "expected": expected_answer(task),
        "label": task.meta.get("label"),
        "group": task.group,
        "split": task.split,
        "provenance": task.meta["provenance"],
        "id": task.id,
    }
    return {name: value for name, value in columns.items() if value is not UNSET}


def expected_answer(task: Task) -> Json:
    """The right answer that was given; UNSET where none was, even if people liked the output."""
    return task.answer if task.answer_known and not task.meta.get("liked") else UNSET


def rating_of(task: Task) -> float | None:
    """People's rating of the task's answer; None where nobody gave one."""
    # A correction speaks of another answer than the label does, and is as good as the best.
    label: float | None = task.meta.get("label")
    return label if label is None or expected_answer(task) is UNSET else 1.0


def good_answer(task: Task) -> Json:
    """An answer to prove an evaluator by: where nobody has said anything, the output that was recorded.

    Feedback errs, so the expected answer goes before a liked output. UNSET where only dislike is known.
    """
    right, output = (task.answer if task.answer_known else UNSET), task.meta.get("output", UNSET)
    if "label" in task.meta:
        return right
    # Files of known answers leave the output empty as often as out: what was expected is good either way.
    return right if output is UNSET or (output is None and right is not UNSET) else output


def reference_answer(task: Task) -> Json:
    """The answer that others are compared with in such a proof: the right one, else the one that is good."""
    return task.answer if task.answer_known else good_answer(task)


def read_rows(path: Path) -> list[Task]:
    """Rows of a file (`tables.read_table`), by their input, output, expected and label alone.

    A label is a number (above 0 is good), a bool, or a word such as up and down.

    Raises:
        NotFoundError: there is no such file.
        InputError: a line is not a JSON object, has neither output nor expected, or a label that is none of these.
    """
    rows = [row(**read_columns(line, where)) for where, _, line in numbered(path)]
    if not rows:
        raise InputError(f"{path} holds no rows")
    return rows


def write_rows(path: Path, rows: Iterable[Task]) -> None:
    """Write rows, one a line."""
    write_whole(path, (msgspec.json.encode(columns_of(task)) + b"\n" for task in rows))


def numbered(path: Path) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """The rows of a file that `tables.read_table` reads, each with its place for an error, and its number there.

    Raises:
        NotFoundError: there is no such file.
        InputError: the file cannot be read, or a line is broken.
    """
    table = read_table(path).typed()
    for number, values in table.lines:
        yield table.where(number), number, values


def read_columns(line: Mapping[str, Json], where: str) -> dict[str, Any]:
    """Input, output, expected and label of one line, under whatever names its columns have.

    Args:
        where: how errors name it.

    Raises:
        InputError: it has neither output nor expected, or a label that is none.
    """
    if not any(name in line for column in ("output", "expected") for name in _COLUMNS[column]):
        raise InputError(f"{where}: it has neither output nor expected; it has {', '.join(line)}")
    values = {
        column: line[name] for column, names in _COLUMNS.items() if (name := _first(names, line)) is not None
    }
    return {**values, "label": _label(values.get("label"), where)}


def _first(names: Iterable[str], line: Mapping[str, Json]) -> str | None:
    return next((name for name in names if name in line), None)


def _label(value: Json, where: str) -> float | None:
    if value is None or isinstance(value, int | float):
        # A bool of False is a verdict; as a number it would be 0, which is not above 0 either.
        try:
            return None if value is None else float(value)
        except OverflowError:  # a whole number of JSON has no bounds
            raise InputError(f"{where}: label is out of the range of a number") from None
    if isinstance(value, str) and value.lower() in _VERDICTS:
        return _VERDICTS[value.lower()]
    raise InputError(f"{where}: label {value!r} is not a number, bool or word such as up and down")
