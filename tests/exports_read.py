"""The files of tests/exports, made by `integrations/exports/remake.py`, and copies of a run in other words."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "exports"
QUESTION = "What is the weather in Paris, and is there a table at Chez Paul?"
ANSWER = "It is 22 degrees in Paris, and Chez Paul has no table."
CORRECTED = "It is 22 degrees in Paris. Chez Paul is full; shall I try another place?"
PROMPT = "You are the desk of a hotel. Be brief."
FILES = {
    "langfuse": ("observations.jsonl", "scores.jsonl", "score_configs.jsonl", "dataset_items.jsonl"),
    "langsmith": ("runs.jsonl", "feedback.jsonl", "feedback_configs.jsonl", "examples.jsonl"),
    "langsmith, second API": ("runs_v2.jsonl", "feedback.jsonl", "feedback_configs.jsonl", "examples.jsonl"),
    "phoenix": ("spans.jsonl", "annotations.jsonl", "dataset.jsonl"),
    "phoenix, tables": ("spans.parquet", "annotations_table.jsonl", "dataset.csv"),
    "phoenix, API": ("api_spans.json", "annotations.jsonl", "dataset.jsonl"),
    "mlflow": ("traces.jsonl", "dataset.jsonl"),
    "mlflow, table": ("table.jsonl", "dataset.jsonl"),
    "mlflow, database": ("mlflow.db",),
    "mlflow, folder": ("mlruns", "dataset.jsonl"),
}
"""Product and form → its files."""
RUNS = {
    "langfuse": ("observations.jsonl", "scores.jsonl"),
    "langsmith": ("runs.jsonl", "feedback.jsonl"),
    "phoenix": ("spans.jsonl", "annotations.jsonl"),
    "mlflow": ("traces.jsonl", ""),
}


def product_of(form: str) -> str:
    return form.partition(",")[0]


def exported(form: str, folder: Path) -> list[Path]:
    """The files of a form; a database is unpacked into `folder`."""
    paths = []
    for name in FILES[form]:
        path = FOLDER / product_of(form) / name
        packed_folder = path.with_name(f"{name}.tar.gz")
        if packed_folder.exists():
            with tarfile.open(packed_folder) as archive:
                archive.extractall(folder)  # the repository's own; a filter came with Python 3.11.4
            path = folder / name
        elif not path.exists():
            packed = gzip.decompress((FOLDER / product_of(form) / f"{name}.gz").read_bytes())
            path = folder / name
            path.write_bytes(packed)
        paths.append(path)
    return paths


def objects(product: str, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (FOLDER / product / name).read_text("utf-8").splitlines()]


Asked = tuple[str, str, str, bool]
"""Person, question, answer, and whether the person liked it."""


def write_copies(product: str, asked: Sequence[Asked], folder: Path, *, prompt: str = PROMPT) -> list[Path]:
    """The first run of an export and its thumb once for each of these, in the export's own format."""
    runs_file, notes_file = RUNS[product]
    whole = [objects(product, runs_file), objects(product, notes_file) if notes_file else []]
    trace, runs, thumb = _TEMPLATES[product](*whole)
    texts = ["\n".join(json.dumps(one) for one in part) for part in (runs, [thumb] if thumb else [])]
    ids = sorted(
        {trace, *re.findall(r'"(?:id|span_id|context\.span_id)": "([0-9a-f-]{16,36})"', texts[0])}, key=len
    )
    written: tuple[list[str], list[str]] = ([], [])
    for number, (person, question, answer, liked) in enumerate(asked):
        for text, lines in zip(texts, written, strict=True):
            for id in ids:
                text = text.replace(id, _other(id, number))
            text = text.replace(json.dumps(QUESTION)[1:-1], question).replace(
                json.dumps(ANSWER)[1:-1], answer
            )
            text = (
                text.replace(PROMPT, prompt)
                .replace('"ada"', f'"{person}"')
                .replace('"monday"', f'"s-{person}"')
            )
            text = text.replace('"name": "desk"', '"name": "answer"')
            lines.append(_with_thumb(product, text, number, liked))
    paths = []
    for name, lines in zip((runs_file, notes_file), written, strict=True):
        if name:
            paths.append(folder / f"{product}-{name}")
            paths[-1].write_text("\n".join(lines) + "\n", "utf-8")
    return paths


def _other(id: str, number: int) -> str:
    """Another id of the same shape."""
    digits = iter(hashlib.sha256(f"{id} {number}".encode()).hexdigest())
    return "".join(next(digits) if letter in "0123456789abcdef" else letter for letter in id)


def _with_thumb(product: str, text: str, number: int, liked: bool) -> str:
    lines = []
    for line in filter(None, text.splitlines()):
        note = json.loads(line)
        if product == "langfuse" and "dataType" in note:
            note |= {"id": f"score-{number}", "value": liked}
        elif product == "langsmith" and "key" in note:
            note |= {"id": f"note-{number}", "score": liked}
        elif product == "phoenix" and "annotator_kind" in note:
            note |= {"id": f"note-{number}", "result": {"score": float(liked), "label": None}}
        elif product == "mlflow":
            (thumb,) = [one for one in note["info"]["assessments"] if one["assessment_name"] == "thumbs"]
            thumb |= {"assessment_id": f"note-{number}", "feedback": {"value": liked}}
            note["info"]["assessments"] = [thumb]
        lines.append(json.dumps(note))
    return "\n".join(lines)


Template = Callable[
    [list[dict[str, Any]], list[dict[str, Any]]], tuple[str, list[dict[str, Any]], dict[str, Any] | None]
]


def _langfuse(rows: list[dict[str, Any]], notes: list[dict[str, Any]]) -> Any:
    trace = notes[0]["subject"]["id"]
    return trace, [row for row in rows if row["traceId"] == trace], notes[0]


def _langsmith(rows: list[dict[str, Any]], notes: list[dict[str, Any]]) -> Any:
    trace = notes[0]["run_id"]
    return trace, [row for row in rows if row["trace_id"] == trace], notes[0]


def _phoenix(rows: list[dict[str, Any]], notes: list[dict[str, Any]]) -> Any:
    (root,) = [row for row in rows if row["attributes.user.id"] == "ada" and row["span_kind"] == "AGENT"]
    trace = root["context.trace_id"]
    (thumb,) = [note for note in notes if note["result"]["label"] == "thumbs-up"]
    return trace, [row for row in rows if row["context.trace_id"] == trace], thumb


def _mlflow(rows: list[dict[str, Any]], _: list[dict[str, Any]]) -> Any:
    (run,) = [row for row in rows if row["info"]["trace_metadata"]["mlflow.trace.user"] == "ada"]
    return run["info"]["trace_id"].removeprefix("tr-"), [run], None


_TEMPLATES: dict[str, Template] = {
    "langfuse": _langfuse,
    "langsmith": _langsmith,
    "phoenix": _phoenix,
    "mlflow": _mlflow,
}
