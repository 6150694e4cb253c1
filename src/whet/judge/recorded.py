"""Verdicts that judges gave and a file kept: whet's own rows, and what Langfuse, Phoenix, MLflow and OpenAI export.

Each becomes a row of `calibration.recorded_verdicts`: `judge`, `id` and `winner` or `mark`.  A score of Langfuse is on
a trace or observation, an annotation of Phoenix on a span, an assessment of MLflow on a trace, a result of OpenAI Evals
on an item of its data source.  What people said in the same files is no judge's verdict, and is counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from ..errors import InputError
from ..record.rows import numbered
from ..stats import Interval, wilson
from ..types import Json
from .calibration import unlabelled_votes
from .card import MOST_MOVED
from .labelled import LabelledItem

_WORDS = {
    **dict.fromkeys(("yes", "true", "pass", "passed", "correct", "good", "right"), 1.0),
    **dict.fromkeys(("no", "false", "fail", "failed", "incorrect", "bad", "wrong"), 0.0),
}
_PEOPLE = ("HUMAN", "ANNOTATION")
"""Kind of annotator, source or source type of what people said; who sent a score through an API nobody knows."""
_LOOKED_AT = 50
_SHOWN = 3
_OWN_UUID = re.compile(r"-[0-9a-f]{4}[0-9a-f-]*$")


@dataclass(slots=True)
class RecordedVerdicts:
    """What a file holds."""

    rows: list[dict[str, Json]] = field(default_factory=list)
    people: int = 0
    """Verdicts of people in it."""
    unread: list[str] = field(default_factory=list)
    """What is none, with its place and why."""
    exported: bool = False
    """It is of another product, whose ids a label may lack."""

    def on(self, items: Sequence[LabelledItem]) -> tuple[list[dict[str, Json]], int]:
        """The rows without those of an export on items that have no label, and how many these are."""
        ids = {item.id for item in items}
        rows = [row for row in self.rows if "id" not in row or str(row["id"]) in ids]
        return rows, len(self.rows) - len(rows)

    def notes(self, path: Path) -> list[str]:
        """What was left out, in sentences."""
        notes = []
        if self.people:
            notes.append(f"{path}: {self.people} verdicts are people's, and no judge's")
        if self.unread:
            more = len(self.unread) - _SHOWN
            shown = "; ".join(self.unread[:_SHOWN]) + (f"; and {more} more" if more > 0 else "")
            total = len(self.unread) + len(self.rows) + self.people
            notes.append(f"{path}: {len(self.unread)} of {total} rows are no verdicts: {shown}")
        return notes


def read_verdicts(path: Path) -> RecordedVerdicts:
    """The verdicts of a file: JSON Lines, CSV, Parquet, a JSON list or a page of an API (`data`).

    Raises:
        NotFoundError: there is no such file.
        InputError: it cannot be read, or holds no verdict of a judge.
    """
    verdicts = RecordedVerdicts()
    for where, line in _lines(path):
        try:
            own = list(_verdicts(line, verdicts))
        except (InputError, TypeError, KeyError, AttributeError) as error:
            verdicts.unread.append(f"{where}: {error}")
            continue
        verdicts.rows += own
    if not verdicts.rows:
        raise InputError(
            f"{path} holds no verdict of a judge: {'; '.join(verdicts.notes(path)) or 'it is empty'}. A row has judge, "
            "id and winner (1 or 2) or mark, or is a score of Langfuse, an annotation of Phoenix, a trace of MLflow "
            "with assessments or an output item of OpenAI Evals"
        )
    return verdicts


def holds_verdicts(path: Path) -> bool:
    """True of a JSON file with scores, annotations or assessments of another product, which defines no judge."""
    try:
        lines = list(_lines(path))[:_LOOKED_AT]
    except InputError:
        return False
    return any(
        _product(line) in ("langfuse", "phoenix", "mlflow") for _, line in lines if isinstance(line, Mapping)
    )


def _lines(path: Path) -> Iterator[tuple[str, Any]]:
    if path.suffix != ".json":
        yield from ((where, line) for where, _, line in numbered(path))
        return
    try:
        whole = msgspec.json.decode(path.read_bytes())
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path} is no JSON: {error}") from error
    if isinstance(whole, Mapping):
        whole = next(
            (whole[name] for name in ("data", "traces") if isinstance(whole.get(name), list)), [whole]
        )
    yield from ((f"{path}, entry {number}", entry) for number, entry in enumerate(whole, 1))


def _product(line: Mapping[str, Any]) -> str:
    if "judge" in line:
        return "whet"
    if "annotator_kind" in line:
        return "phoenix"
    if line.get("object") == "eval.run.output_item":
        return "openai"
    if "assessments" in (line.get("info") or line):
        return "mlflow"
    if "name" in line and (
        "subject" in line or "traceId" in line or "observationId" in line or "dataType" in line
    ):
        return "langfuse"
    return ""


def _verdicts(line: Mapping[str, Any], verdicts: RecordedVerdicts) -> Iterator[dict[str, Json]]:
    """What one row says.

    Raises:
        InputError: it is none of the known ones, or has no mark that can be read.
    """
    product = _product(line)
    verdicts.exported |= product not in ("whet", "")
    if product == "whet":
        yield dict(line)
    elif product == "langfuse":
        subject = line.get("subject") or {}
        id = subject.get("id") or line.get("observationId") or line.get("traceId")
        value = line.get("value") if line.get("value") is not None else line.get("stringValue")
        yield from _entered(verdicts, line["name"], id, value, line.get("source"))
    elif product == "phoenix":
        result = line.get("result") or {}
        score = result.get("score", line.get("result.score", line.get("score")))
        label = result.get("label", line.get("result.label", line.get("label")))
        name = line.get("annotation_name", line.get("name"))
        id = line.get("span_id") or line.get("context.span_id") or line.get("trace_id")
        yield from _entered(verdicts, name, id, label if score is None else score, line["annotator_kind"])
    elif product == "openai":
        for result in line.get("results") or ():
            mark = result["passed"] if result.get("score") is None else result["score"]
            # There a result is called by its grader and a UUID of its own.
            name = _OWN_UUID.sub("", str(result["name"]))
            yield from _entered(verdicts, name, line["datasource_item_id"], mark, None)
    elif product == "mlflow":
        info = line.get("info") or line
        for assessment in info["assessments"] or ():
            if "feedback" in assessment and assessment.get("valid") is not False:
                name = assessment.get("assessment_name", assessment.get("name"))
                by = (assessment.get("source") or {}).get("source_type")
                value = assessment["feedback"].get("value")
                yield from _entered(verdicts, name, info["trace_id"], value, by)
    else:
        raise InputError(f"it has {', '.join(map(str, list(line)[:6]))}")


def _entered(
    verdicts: RecordedVerdicts, name: Any, id: Any, value: Json, by: str | None
) -> Iterator[dict[str, Json]]:
    if not name or id in (None, ""):
        raise InputError("no name of a judge, or nothing that it is on")
    if by in _PEOPLE:
        verdicts.people += 1
        return
    mark = _WORDS.get(value.strip().casefold()) if isinstance(value, str) else value
    if isinstance(value, str) and mark is None:
        try:
            mark = float(value)
        except ValueError:
            raise InputError(f"{name} says {value[:40]!r}, which is neither a number nor yes or no") from None
    # A judge that failed left no value: it is missing, and never 0.
    yield {"judge": str(name), "id": str(id), "mark": None if mark is None else float(mark)}


@dataclass(frozen=True, slots=True)
class JudgeDrift:
    """One judge's verdicts at two times, on the same items."""

    judge: str
    changed: float
    """Share of the items on which it says something else now."""
    interval: Interval
    items: int
    before: float
    now: float
    """Mean verdict in [-1, 1] of pairs, mean mark else."""

    @property
    def drifted(self) -> bool:
        """True if surely more of its verdicts changed than may."""
        return self.interval[0] > MOST_MOVED["drift"]


def drifts(
    earlier: Sequence[Mapping[str, Json]], now: Sequence[Mapping[str, Json]]
) -> tuple[list[JudgeDrift], list[str]]:
    """What became of each judge's verdicts, and why nothing can be said of others.

    A mark changed where it lies on the other side of the middle of all that this judge gave; nobody knows here from
    which one on an answer is good.

    Raises:
        InputError: a row has neither form.
    """
    before, after = unlabelled_votes(earlier), unlabelled_votes(now)
    told, notes = [], []
    for judge in sorted(before.keys() | after.keys()):
        old, new = before.get(judge, {}), after.get(judge, {})
        both = sorted(old.keys() & new.keys())
        if not both:
            notes.append(f"{judge}: no item has a verdict at both times ({len(old)} before, {len(new)} now)")
            continue
        marked = any("mark" in line for line in (*earlier, *now) if str(line.get("judge", "")) == judge)
        values = [own[id] for own in (old, new) for id in both]
        border = (min(values) + max(values)) / 2 if marked else 0.0

        def side(value: float, border: float = border, marked: bool = marked) -> int:
            return int(value > border) if marked else (value > 0) - (value < 0)

        changed = sum(side(old[id]) != side(new[id]) for id in both)
        means = [sum(own[id] for id in both) / len(both) for own in (old, new)]
        told.append(JudgeDrift(judge, changed / len(both), wilson(changed, len(both)), len(both), *means))
    return told, notes
