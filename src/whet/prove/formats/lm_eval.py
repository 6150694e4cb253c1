"""lm-evaluation-harness: `samples_TASK_DATE.jsonl`, which `--log_samples` writes.

A document has a row for each filter of answers; a metric under a filter is named as the harness names it
(`exact_match,strict-match`).
"""

from __future__ import annotations

from typing import Any

from ...errors import InputError
from ...types import Json
from .file import ResultFile
from .rows import Reading, Row, as_text, is_score, mapping

_NUMBERS = ("doc_id", "task_id", "idx", "epoch", "repeat")
"""Numbers of a sample that are no metrics, where it does not list these."""


def claims(file: ResultFile) -> bool:
    """Whether the rows are such samples."""
    named = {"doc_id", "doc"} <= file.first.keys()
    return named and bool(file.first.keys() & {"arguments", "resps", "filtered_resps"})


def read(file: ResultFile) -> Reading:
    """The rows by the number of the document, those of several filters joined."""
    reading = Reading("lm-eval").take(file.objects(), _row)
    joined: dict[tuple[str, int], Row] = {}
    for row in reading.rows:
        # A second row of the same metric is another run of the document.
        turn = 0
        while (task := (row.task, turn)) in joined and joined[task].scores.keys() & row.scores.keys():
            turn += 1
        old = joined.get(task)
        joined[task] = (
            row
            if old is None
            else Row(where=old.where, task=old.task, scores={**old.scores, **row.scores}, fields=old.fields)
        )
    reading.rows = list(joined.values())
    return reading


def _row(where: str, sample: dict[str, Any]) -> Row:
    task = as_text(sample.get("doc_id"), "doc_id")
    if not task:
        raise InputError("no doc_id")
    metrics = sample.get("metrics")
    if not isinstance(metrics, list):
        metrics = [
            name
            for name, value in sample.items()
            if isinstance(value, bool | int | float) and name not in _NUMBERS
        ]
    under = sample.get("filter")
    scores: dict[str, Json] = {}
    for metric in metrics:
        if not isinstance(metric, str) or metric not in sample:
            raise InputError(f"it has no {str(metric)[:60]!r}, which it lists as a metric")
        value = sample[metric]
        if value is None or is_score(value):  # lists are what a metric of the whole set is made of
            scores[metric if under in (None, "none") else f"{metric},{under}"] = value
    return Row(where=where, task=task, scores=scores, fields=mapping(sample.get("doc")))
