"""Strands: the report of `strands_evals`, as `EvaluationReport.to_file` writes it.

`passed` decides unless a metric is named; `score` and, where several evaluators judged, `EVALUATOR` are there, too.
"""

from __future__ import annotations

from ...errors import InputError
from ...types import Json
from .file import ResultFile, decoded
from .rows import Reading, Row, as_text, id_of_input, mapping


def claims(file: ResultFile) -> bool:
    """Whether it is such a report."""
    return file.whole is not None and {"scores", "cases", "test_passes"} <= file.whole.keys()


def read(file: ResultFile) -> Reading:
    """The rows, by the name of the case, or by its input where it has none."""
    cases = file.member("cases")
    scores, passes = ([body for _, body in file.member(name)] for name in ("scores", "test_passes"))
    if not len(cases) == len(scores) == len(passes):
        raise InputError(
            f"{file.path} has {len(cases)} cases, {len(scores)} scores and {len(passes)} test_passes"
        )
    details = [decoded(body) for _, body in file.member("detailed_results")] if _detailed(file) else []
    reading = Reading("strands")
    judges: set[str] = set()
    for number, ((where, body), score, passed) in enumerate(zip(cases, scores, passes, strict=True)):
        try:
            case = decoded(body)
            if not isinstance(case, dict):
                raise InputError(f"a case is a JSON object, not {type(case).__name__}")
            judge = as_text(case.get("evaluator"), "evaluator")
            values: dict[str, Json] = {
                judge or "score": decoded(score),
                f"{judge}/passed" if judge else "passed": decoded(passed),
            }
            task = as_text(case.get("name"), "name") or id_of_input(case.get("input"))
            judges.add(judge)
            if number < len(details) and _inapplicable(details[number]):
                reading.add(None)
                continue
            reading.add(Row(where=where, task=task, scores=values, fields=mapping(case.get("metadata"))))
        except InputError as error:
            reading.unread.append((where, str(error)))
    if len(judges) == 1:
        (judge,) = judges
        reading.primary = f"{judge}/passed" if judge else "passed"
    return reading


def _detailed(file: ResultFile) -> bool:
    return file.whole is not None and "detailed_results" in file.whole


def _inapplicable(outputs: Json) -> bool:
    """Whether every judge passed the case as none of its business, as Strands leaves it out of its averages."""
    if not isinstance(outputs, list) or not outputs:
        return False
    return all(
        mapping(output).get("not_applicable") and mapping(output).get("test_pass") for output in outputs
    )
