"""promptfoo: the file of `promptfoo eval -o results.json`, of version 3 on, its `.jsonl`, and what `evaluate()` gives.

A case is known by its variables. `success` decides unless a metric is named; `score` and the named scores of assertions
are there, too. A call that failed is an infrastructure error, and no failure of the prompt.
"""

from __future__ import annotations

from typing import Any

from ...errors import InputError
from ...types import Json, Outcome
from .file import ResultFile
from .rows import Reading, Row, as_cost, as_score, id_of_input, mapping

_CALL_FAILED = 2
"""`failureReason`: 0 none, 1 an assertion, 2 an error."""


def claims(file: ResultFile) -> bool:
    """Whether it is such a file."""
    if {"testIdx", "promptIdx"} <= file.first.keys():
        return True
    if file.whole is None or "results" not in file.whole:
        return False
    return b'"testIdx"' in bytes(file.whole["results"]) or "evalId" in file.whole


def read(file: ResultFile) -> Reading:
    """The rows; `--repeat` gives several of a case."""
    reading = Reading("promptfoo", primary="success")
    if "testIdx" in file.first:
        return reading.take(file.objects(), _row)
    flat = file.whole is not None and bytes(file.whole.get("results", b"")).lstrip()[:1] == b"["
    return reading.take(file.member("results") if flat else file.member("results", "results"), _row)


def _row(where: str, result: dict[str, Any]) -> Row:
    grading = mapping(result.get("gradingResult"))
    failed = result.get("failureReason") == _CALL_FAILED
    success = as_score(result.get("success", result.get("pass", grading.get("pass"))), "success")
    if success is None and not failed:
        raise InputError("it has no success")
    scores: dict[str, Json] = {"success": success, "score": result.get("score")}
    scores |= mapping(result.get("namedScores")) or mapping(grading.get("namedScores"))
    case = mapping(result.get("testCase"))
    variables = {name: value for name, value in mapping(result.get("vars")).items() if name != "sessionId"}
    provider, prompt = mapping(result.get("provider")), mapping(result.get("prompt"))
    return Row(
        where=where,
        task=id_of_input(variables or case.get("description")),
        scores=scores,
        outcome=Outcome.INFRASTRUCTURE_ERROR if failed else Outcome.UNKNOWN,
        cost=as_cost(result.get("cost") or None),
        fields=variables | mapping(case.get("metadata")) | mapping(result.get("metadata")),
        variant=f"{prompt.get('label', result.get('promptIdx'))!s:.60} / {provider.get('label') or provider.get('id')}",
    )
