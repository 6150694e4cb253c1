"""MLflow: the artifact `eval_results_table.json` of `mlflow.models.evaluate`, and traces with their assessments.

The table may be split into columns and data, as MLflow writes it, or rows of objects.

Traces are `Trace.to_json` a line, or the table of `mlflow.search_traces` as JSON; the scores are the feedback of
`mlflow.genai.evaluate`, of judges and of people. A task is known by its input: a trace has another id in each run.
"""

from __future__ import annotations

import json
from typing import Any

from ...errors import InputError
from ...types import Json, Outcome
from .file import ResultFile, decoded
from .rows import Reading, Row, id_of_input, mapping

_COLUMNS = ("/score", "/value")
_INPUTS = ("inputs", "input", "question", "prompt", "query", "request")


def claims(file: ResultFile) -> bool:
    """Whether it is such a table, or the rows are traces."""
    if file.whole is not None and {"columns", "data"} <= file.whole.keys():
        return True
    if file.whole is not None and "traces" in file.whole:
        return b'"trace_id"' in bytes(file.whole["traces"])
    first = file.first
    if "trace_id" not in first and any(name.endswith(_COLUMNS) for name in first):
        return True
    info = mapping(first.get("info"))
    return "trace_id" in info or {"trace_id", "assessments"} <= first.keys()


def read(file: ResultFile) -> Reading:
    """The rows: columns that end in /score or /value, or feedback by its name."""
    if file.whole is not None and "columns" in file.whole:
        return _table(file)
    if file.whole is not None and "traces" in file.whole:
        return Reading("mlflow").take(file.member("traces"), _trace)
    if "trace_id" not in file.first and any(name.endswith(_COLUMNS) for name in file.first):
        return Reading("mlflow").take(file.objects(), _cells)
    return Reading("mlflow").take(file.objects(), _trace)


def _table(file: ResultFile) -> Reading:
    assert file.whole is not None
    columns = decoded(bytes(file.whole["columns"]))
    if not isinstance(columns, list) or not all(isinstance(name, str) for name in columns):
        raise InputError(f"{file.path}: its columns are not a list of names")
    reading = Reading("mlflow")
    for where, body in file.member("data"):
        try:
            cells = decoded(body)
            if not isinstance(cells, list) or len(cells) != len(columns):
                raise InputError(f"it does not have the {len(columns)} cells of {', '.join(columns)[:80]}")
            reading.add(_cells(where, dict(zip(columns, cells, strict=True))))
        except InputError as error:
            reading.unread.append((where, str(error)))
    return reading


def _cells(where: str, fields: dict[str, Json]) -> Row:
    scores = {name.rpartition("/")[0]: value for name, value in fields.items() if name.endswith(_COLUMNS)}
    inputs = next((fields[name] for name in _INPUTS if fields.get(name) not in (None, "")), None)
    if inputs is None:
        # A function of several columns has no `inputs`: what is neither an answer nor a score.
        inputs = {
            name: value
            for name, value in fields.items()
            if "/" not in name and name not in ("outputs", "predictions")
        }
    return Row(where=where, task=id_of_input(inputs), scores=scores, fields=fields)


def _trace(where: str, trace: dict[str, Any]) -> Row:
    info = mapping(trace.get("info")) or trace
    metadata = mapping(info.get("trace_metadata"))
    scores: dict[str, Json] = {}
    assessments = info.get("assessments") or []
    if not isinstance(assessments, list):
        raise InputError("its assessments are not a list")
    for assessment in assessments:
        feedback = mapping(mapping(assessment).get("feedback"))
        if "feedback" not in mapping(assessment) or assessment.get("valid") is False:
            continue
        name = assessment.get("assessment_name", assessment.get("name"))
        if not isinstance(name, str):
            raise InputError("an assessment without a name")
        # A judge that failed leaves an error and no value: not scored.
        scores[name] = feedback.get("value")
    inputs = metadata.get("mlflow.traceInputs") or info.get("request_preview") or info.get("request")
    return Row(
        where=where,
        task=id_of_input(inputs),
        scores=scores,
        # A run that raised has no answer that a judge could have scored.
        outcome=Outcome.FAILURE if info.get("state") == "ERROR" else Outcome.UNKNOWN,
        fields=mapping(info.get("tags")) | _object(inputs),
        variant=str(metadata.get("mlflow.sourceRun") or ""),
    )


def _object(text: Json) -> dict[str, Json]:
    try:
        return mapping(json.loads(text) if isinstance(text, str) else text)
    except (ValueError, RecursionError):
        return {}
