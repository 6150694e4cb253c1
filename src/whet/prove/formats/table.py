"""Tables of any origin: CSV and the like, JSON rows, Parquet; DSPy's `save_as_csv` and `save_as_json` among them.

Which column is which is guessed by name and file, said, and can be given. DSPy's rows are those of its examples with
the answer's fields, and the metric last.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import InputError
from ...record.rows import INPUT
from ...record.tables import DELIMITED, read_table
from ...types import Json
from .file import ResultFile, decoded
from .rows import IDS, Reading, Row, as_cost, as_score, as_text, id_of_input, is_score, named_scores

_IDS = (*IDS, "test", "case", "example_id", "sample_id", "question_id", "name")
_SCORES = ("success", "passed", "pass", "correct", "score", "reward", "accuracy")
_NO_SCORE = (
    "index",
    "idx",
    "row",
    "epoch",
    "trial",
    "run",
    "seed",
    "cost",
    "latency",
    "tokens",
    "duration",
    "group",
)


def claims(file: ResultFile) -> bool:
    """Whether it is a table of Parquet, rows of objects, or text with columns."""
    if file.body[:4] == b"PAR1" or file.path.suffix.lower() in DELIMITED or file.first:
        return True
    return file.start not in (b"{", b"[", b"<") and any(
        sign in file.body.splitlines()[0] for sign in b",;\t|"
    )


def read(file: ResultFile, *, id: str = "", metric: str = "") -> Reading:
    """The rows, with every column that holds scores.

    Args:
        id: the column of the task's id; guessed if "".
        metric: the column that decides; guessed if "".
    """
    reading = Reading("table")
    lines = _json_rows(file, reading) if file.start in (b"{", b"[") else _table(file, reading)
    if not lines:
        raise InputError(f"{file.path} holds no row that can be read. {reading.losses()}".strip())
    columns = list(dict.fromkeys(name for _, row in lines for name in row))
    id, metric = id or _id_of(columns, file), metric or _metric_of(columns, lines, id)
    for name in (id, metric):
        if name and name not in columns:
            raise InputError(f"{file.path} has no column {name!r}; it has {_named(columns)}")
    reading.primary = metric
    scored = [metric] if metric else [name for name in columns if name != id and _scores(name, lines)]
    for where, row in lines:
        try:
            named = row.get(id)
            if named in (None, ""):
                raise InputError(f"no {id}")
            task = as_text(named, id) if not isinstance(named, list | dict | float) else id_of_input(named)
            scores: dict[str, Json] = {name: as_score(row.get(name), name) for name in scored}
            reading.add(Row(where=where, task=task, scores=scores, cost=as_cost(row.get("cost")), fields=row))
        except InputError as error:
            reading.unread.append((where, str(error)))
    shown = f", the score in {metric!r}" if metric else ""
    reading.notes.append(f"{file.path}: the task stands in {id!r}{shown}; the columns are {_named(columns)}.")
    return reading


def _json_rows(file: ResultFile, reading: Reading) -> list[tuple[str, dict[str, Any]]]:
    lines = []
    for where, body in file.objects():
        try:
            row = decoded(body)
            if not isinstance(row, dict):
                raise InputError(f"not an object, but {type(row).__name__}")
            if isinstance(row.get("scores"), dict | list):
                row = {**named_scores(row["scores"]), **row}
            lines.append((where, row))
        except InputError as error:
            reading.unread.append((where, str(error)))
    return lines


def _table(file: ResultFile, reading: Reading) -> list[tuple[str, dict[str, Any]]]:
    broken: list[tuple[int, str]] = []
    table = read_table(file.path, broken=broken)
    reading.notes += [f"{note}." for note in table.notes]
    reading.unread += [(f"{table.unit} {number}", why) for number, why in broken]
    return [(f"{table.unit} {number}", row) for number, row in table.lines]


def _id_of(columns: Sequence[str], file: ResultFile) -> str:
    lowered = {name.lower(): name for name in reversed(columns)}
    for name in (*_IDS, *INPUT):
        if name in lowered:
            return lowered[name]
    raise InputError(
        f"{file.path}: no column is named as one of tasks is ({', '.join((*_IDS, *INPUT))}); "
        f"name it with --id. It has {_named(columns)}"
    )


def _metric_of(columns: Sequence[str], lines: Sequence[tuple[str, dict[str, Any]]], id: str) -> str:
    """The one column that can be the score; "" where there are several or none."""
    fitting = [name for name in columns if name != id and _scores(name, lines)]
    known = [name for name in fitting if name.lower() in _SCORES]
    within = [name for name in fitting if _scores(name, lines, top=1.0)]
    for names in (known, within, fitting):
        if len(names) == 1:
            return names[0]
        if names:
            return ""
    return ""


def _scores(name: str, lines: Sequence[tuple[str, dict[str, Any]]], *, top: float = float("inf")) -> bool:
    """Whether most of a column's cells are scores of at most `top`."""
    if name.lower() in _NO_SCORE:
        return False
    cells = [row.get(name) for _, row in lines]
    cells = [cell for cell in cells if cell not in (None, "") and not isinstance(cell, list)]
    fitting = [cell for cell in cells if is_score(cell) and 0 <= (as_score(cell, name) or 0.0) <= top]
    return 2 * len(fitting) > len(lines)


def _named(columns: Sequence[str]) -> str:
    return ", ".join(name[:40] for name in columns[:12]) + (" and more" if len(columns) > 12 else "")
