"""Tables of compared and of judged answers, as DPO, KTO and reward models learn from, in rows that can be refined.

`prompt, chosen, rejected` is a pair: the input is the prompt with both answers, in an order that does not say which was
chosen, and the chosen one is what is expected.  So the same pair again is a duplicate, and the same pair the other way
round a contradiction, where several pairs of one prompt are neither.  `prompt, completion, label` is an answer that was
called good or bad: the input is both texts, and the label is expected.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...errors import InputError
from ...record.columns import Columns, Missing
from ...record.rows import as_text, row
from ...record.tables import RowTable
from ...types import Json, Task
from .dynamics import EXAMPLE, example_of_judged, example_of_pair

PAIR, JUDGED = ("prompt", "chosen", "rejected"), ("prompt", "completion", "label")


def is_of_pairs(table: RowTable) -> bool:
    """True of a table with the columns of pairs."""
    return set(PAIR) <= set(table.columns)


def is_judged(table: RowTable) -> bool:
    """True of a table with the columns of judged answers."""
    return set(JUDGED) <= set(table.columns)


def pairs(table: RowTable) -> tuple[list[Task], list[str]]:
    """The rows of a table of pairs, and a sentence on what they are.

    Raises:
        InputError: no row has all three.
    """
    tasks, lacking = [], 0
    for number, values in table.lines:
        prompt, chosen, rejected = (values.get(name) for name in PAIR)
        if None in (prompt, chosen, rejected):
            lacking += 1
            continue
        asked: dict[str, Json] = {"prompt": prompt, "answers": sorted((chosen, rejected), key=as_text)}
        task = row(asked, expected=chosen, provenance={"how": "file", "line": number})
        task.meta[EXAMPLE] = example_of_pair(prompt, chosen, rejected)  # type: ignore[index]
        tasks.append(task)
    if not tasks:
        raise InputError(f"{table.path}: no row has {', '.join(PAIR)}")
    notes = ["each row is a pair: prompt, chosen and rejected"]
    if lacking:
        notes.append(f"{lacking} of {len(table.lines)} rows lack one of {', '.join(PAIR)} and are left out")
    return tasks, notes


def judged(table: RowTable, missing: Missing) -> tuple[list[Task], list[str]]:
    """The rows of a table of judged answers, and sentences on them; as of `Columns.tasks`."""
    tasks, notes = Columns.of(table, input=JUDGED[:2], expected=JUDGED[2]).tasks(table, missing=missing)
    for task in tasks:
        asked: Mapping[str, Json] = task.initial_state["input"]
        good = _good(task.answer) if task.answer_known else None
        if good is not None:
            example = example_of_judged(asked["prompt"], asked["completion"], good)
            task.meta[EXAMPLE] = example  # type: ignore[index]
    return tasks, ["each row is a judged answer: prompt, completion and label", *notes]


def _good(label: Json) -> bool | None:
    return {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False}.get(
        as_text(label).strip().casefold()
    )
