"""Opik: an experiment as `opik export WORKSPACE PROJECT experiment NAME` writes it, or its items as rows.

Several trials of a dataset's item are averaged.
"""

from __future__ import annotations

from typing import Any

from ...errors import InputError
from .file import ResultFile
from .rows import Reading, Row, as_text, mapping, named_scores


def claims(file: ResultFile) -> bool:
    """Whether it is such an export, or the rows are its items."""
    if file.whole is not None and {"experiment", "items"} <= file.whole.keys():
        return True
    named = "dataset_item_id" in file.first
    return named and bool(
        file.first.keys() & {"feedback_scores", "evaluation_task_output", "assertion_results"}
    )


def read(file: ResultFile) -> Reading:
    """The rows, by the id of the dataset's item."""
    whole = file.whole is not None and "items" in file.whole
    return Reading("opik").take(file.member("items") if whole else file.objects(), _row)


def _row(where: str, item: dict[str, Any]) -> Row:
    task = as_text(item.get("dataset_item_id"), "dataset_item_id")
    if not task:
        raise InputError("no dataset_item_id")
    # Rows of a test suite have assertions in place of scores.
    assertions = item.get("assertion_results") or []
    scores = named_scores(assertions, name="value", value="passed") | named_scores(
        item.get("feedback_scores")
    )
    return Row(where=where, task=task, scores=scores, fields=mapping(item.get("dataset_item_data")))
