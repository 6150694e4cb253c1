"""Tables of examples as people keep them, read to rows: CSV, TSV, JSON, JSON Lines and Parquet.

A row is a mapping of column → value, with the line that it stands on.  The encoding and the delimiter are
found out and told (`Table.notes`); an empty cell is None.  Cells of CSV are text until `Table.typed`, which
turns a column into numbers, truth values or JSON only where all its cells are.  `columns.py` tells which
column is which.
"""

from __future__ import annotations

import codecs
import csv
import datetime
import decimal
import gzip
import io
import re
import sys
import zlib
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from ..errors import InputError, MissingExtra, NotFoundError
from ..escapes import read_json
from ..types import Json

DELIMITED = {".csv": "", ".tsv": "\t", ".tab": "\t", ".psv": "|"}
"""Suffix → delimiter of such a file; "" where it is found out."""
SUFFIXES = (*DELIMITED, ".json", ".jsonl", ".ndjson", ".parquet")
_DELIMITERS = ",;\t|"
_BATCH = 1000
"""Rows of Parquet that are read at once."""
_SAMPLED = 200
"""Records by which a delimiter is chosen."""
_SHOWN = 5
_NAMES = {",": "comma", ";": "semicolon", "\t": "tab", "|": "vertical bar"}
# No leading zeros: 007 and 01234 are names.  At most 15 digits: a float keeps no more.
_WHOLE = re.compile(r"-?(?:0|[1-9]\d{0,14})")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,14})(?:\.\d{1,15})?(?:[eE][-+]?\d{1,2})?")
_NOT_JSON = re.compile(rb"[:\[,]\s*-?(?:NaN|Infinity)\s*[,\]}]")
"""Numbers that `json.dumps` of Python writes and no JSON has."""
_objects = msgspec.json.Decoder(dict[str, Any])


@dataclass(frozen=True, slots=True)
class RowTable:
    """The rows of a file, each with its line, from 1; of Parquet and one JSON array the number of the row."""

    path: Path
    lines: Sequence[tuple[int, dict[str, Json]]]
    columns: Sequence[str]
    """In the order in which they come."""
    unit: str = "line"
    """What `lines` counts: `line` or `row`."""
    delimited: bool = False
    """True of CSV and the like, whose cells are text."""
    notes: Sequence[str] = ()
    """What was found out about the file, a sentence each."""

    def where(self, number: int) -> str:
        """A row's place, for an error."""
        return f"{self.path}, {self.unit} {number}"

    def typed(self, *, text: Collection[str] = (), decimal: Collection[str] = ()) -> RowTable:
        """With the columns of a delimited file as numbers, truth values or JSON where all cells of one are.

        A column with one number that has a decimal point has only such; numbers with leading zeros stay text.

        Args:
            text: columns that stay text.
            decimal: columns whose whole numbers have a decimal point, too.
        """
        if not self.delimited:
            return self
        readers = {
            name: _reader([row[name] for _, row in self.lines if row[name] is not None])
            for name in self.columns
            if name not in text
        }
        readers |= {name: float for name in decimal if readers.get(name) is int}
        lines = [
            (
                number,
                {
                    name: reader(cell) if cell is not None and (reader := readers.get(name)) else cell
                    for name, cell in row.items()
                },
            )
            for number, row in self.lines
        ]
        return replace(self, lines=lines)


def read_table(path: Path, *, broken: list[tuple[int, str]] | None = None) -> RowTable:
    """The rows of a file, by its suffix, or by its content where that says nothing; of a record, its tasks.

    Args:
        broken: takes the line and the fault of each row of a delimited file with too many cells, in place of an error.

    Raises:
        NotFoundError: there is no such file.
        InputError: it cannot be read, holds no rows, or a line of it is broken; names the line.
        MissingExtra: it is Parquet, and pyarrow is not installed.
    """
    if not path.is_file():
        raise NotFoundError(f"cannot read rows: there is no file at {path}")
    try:
        body = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read rows from {path}: {error.strerror or error}") from error
    suffix = path.suffix.lower()
    if body[:4] == b"PAR1":
        return _parquet(path)
    if body.startswith(b"\x1f\x8b"):
        body, suffix = _unzipped(path, body), Path(path.stem).suffix.lower()
    if body.startswith(b"SQLite format 3\0"):
        return _recorded(path)
    if body[:2] == b"PK" or suffix in (".xlsx", ".xls", ".ods"):
        raise InputError(f"{path} is a spreadsheet, which is not read: save it as CSV")
    if suffix in DELIMITED or (broken is not None and body.lstrip()[:1] not in (b"{", b"[")):
        return _delimited(path, body, DELIMITED.get(suffix, ""), broken)
    if suffix == ".json" or (suffix not in (".jsonl", ".ndjson") and body.lstrip()[:1] == b"["):
        return _json(path, body)
    return _lines(path, body)


def _unzipped(path: Path, body: bytes) -> bytes:
    try:
        return gzip.decompress(body)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} cannot be unzipped: {error}") from error


def json_lines(path: Path, body: bytes) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a JSON Lines file, each with the number of its line.

    Raises:
        InputError: a line is not a JSON object, or not UTF-8.
    """
    # Bytes: `str.splitlines` also cuts at U+2028 and the like, which JSON may hold in a text.
    for number, line in enumerate(_utf8(body).splitlines(), 1):
        if line.strip():
            try:
                yield number, read_json(_objects.decode, line)
            except UnicodeDecodeError as error:
                raise InputError(
                    f"{path}, line {number}: not UTF-8 ({error}); save the file as UTF-8"
                ) from error
            except msgspec.MsgspecError as error:
                why = (
                    f"{error}; NaN and Infinity are not JSON: write null" if _NOT_JSON.search(line) else error
                )
                raise InputError(
                    f"{path}, line {number}: not a JSON object ({why}){_kind_of(line)}"
                ) from error


def _kind_of(line: bytes) -> str:
    """The way out where a file of another kind was given as JSON Lines."""
    if line.lstrip()[:1] in (b"{", b"["):
        return ""
    return f"; read are {', '.join(SUFFIXES)}, by the ending of the file's name"


def _lines(path: Path, body: bytes) -> RowTable:
    lines = list(json_lines(path, body))
    return RowTable(path, lines, _names(lines))


def _json(path: Path, body: bytes) -> RowTable:
    try:
        content = read_json(msgspec.json.decode, _utf8(body))
    except msgspec.DecodeError as error:
        if body.lstrip()[:1] == b"{":  # JSON Lines under the name of JSON
            return _lines(path, body)
        raise InputError(f"{path}: not JSON ({error})") from error
    if isinstance(content, dict):
        lists = [value for value in content.values() if isinstance(value, list)]
        # One object with one list is its envelope; one with several of a length has them as columns.
        if len(lists) == 1 and all(isinstance(row, dict) for row in lists[0]):
            content = lists[0]
        elif lists and len(lists) == len(content) and len({len(column) for column in lists}) == 1:
            content = [dict(zip(content, row, strict=True)) for row in zip(*lists, strict=True)]
        else:
            content = [content]
    if not isinstance(content, list):
        raise InputError(f"{path}: it holds one {type(content).__name__}; rows are a list of objects")
    for number, row in enumerate(content, 1):
        if not isinstance(row, dict):
            raise InputError(f"{path}, row {number}: not an object, but {msgspec.json.encode(row)[:60]!r}")
    lines = list(enumerate(content, 1))
    return RowTable(path, lines, _names(lines), unit="row")


def _recorded(path: Path) -> RowTable:
    """The tasks of a record that have a right answer or came as rows of a dataset: `input`, `expected`, `group`.

    Raises:
        InputError: it is another database, or holds no such task.
    """
    from .store import Store

    with Store(path) as store:
        rows = [
            {
                "input": task.initial_state.get("input", task.instruction),
                "expected": task.answer,
                "group": task.group or None,
            }
            for task in store.tasks()
            if task.answer_known
        ]
    if not rows:
        raise InputError(
            f"{path} holds no task with a right answer: whet import brings datasets, and whet tasks add adds tasks"
        )
    columns = ["input", "expected", *(["group"] if any(row["group"] for row in rows) else [])]
    lines = [(number, {name: row[name] for name in columns}) for number, row in enumerate(rows, 1)]
    return RowTable(path, lines, columns, unit="task", notes=[f"{len(rows)} tasks of the record {path}"])


def _parquet(path: Path) -> RowTable:
    lines = list(parquet_rows(path))
    return RowTable(path, lines, _names(lines), unit="row")


def parquet_rows(path: Path) -> Iterator[tuple[int, dict[str, Json]]]:
    """The rows of a Parquet file as they go by, each with its number.

    Raises:
        InputError: it cannot be read.
        MissingExtra: pyarrow is not installed.
    """
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise MissingExtra("pyarrow", "parquet") from None
    number = 0
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(_BATCH):
                for row in batch.to_pylist():
                    number += 1
                    yield number, {name: plain_value(value) for name, value in row.items()}
    except (ArrowException, OSError) as error:
        raise InputError(f"cannot read rows from {path}: {error}") from error


def plain_value(value: Any) -> Json:
    """A value of Parquet or of a DataFrame as JSON: times and decimals as written, bytes as text, NaN as None."""
    if isinstance(value, dict):
        return {str(name): plain_value(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain_value(inner) for inner in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None  # a missing number of pandas
    if isinstance(value, decimal.Decimal):
        return float(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _names(lines: Sequence[tuple[int, dict[str, Json]]]) -> list[str]:
    return list(dict.fromkeys(name for _, row in lines for name in row))


def _utf8(body: bytes) -> bytes:
    """The bytes as UTF-8 without a mark, if they begin with the mark of another encoding; else as they are."""
    if body.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return body.decode("utf-16", "replace").encode()
    return body.removeprefix(codecs.BOM_UTF8)


def _text(body: bytes) -> tuple[str, str]:
    """The text of a file in whatever encoding, and its name where it is not UTF-8."""
    if body.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return body.decode("utf-16", "replace"), "UTF-16"
    sample = body[:4096]
    if sample.count(0) > len(sample) // 4:  # without a mark: every other byte of Latin letters is 0
        endian = "le" if sample[1::2].count(0) > sample[::2].count(0) else "be"
        return body.decode(f"utf-16-{endian}", "replace"), "UTF-16"
    try:
        return body.removeprefix(codecs.BOM_UTF8).decode(), ""
    except UnicodeDecodeError:
        pass
    try:
        return body.decode("cp1252"), "Windows-1252"
    except UnicodeDecodeError:
        return body.decode("latin-1"), "Latin-1"


@dataclass(slots=True)
class _Cells:
    """The records of a delimited text, with the lines that they begin on."""

    text: str
    delimiter: str
    problem: str = ""
    line: int = 0
    records: list[tuple[int, list[str]]] = field(default_factory=list)

    def read(self, most: int | None = None) -> _Cells:
        reader = csv.reader(io.StringIO(self.text, newline=""), delimiter=self.delimiter, strict=True)
        with _any_length():
            while most is None or len(self.records) < most:
                self.line = reader.line_num + 1
                try:
                    record = next(reader)
                except StopIteration:
                    break
                except csv.Error as error:
                    self.problem = str(error)
                    break
                if any(cell.strip() for cell in record):
                    self.records.append((self.line, record))
        return self

    @property
    def fit(self) -> tuple[float, int]:
        """Share of the records that have as many cells as the header, and how many cells it has."""
        if not self.records:
            return 0.0, 0
        width = len(self.records[0][1])
        counts = Counter(len(record) for _, record in self.records)
        return (counts[width] / len(self.records) if width > 1 and not self.problem else 0.0), width


@contextmanager
def _any_length() -> Iterator[None]:
    # A document in a cell is longer than the csv module's 128 KiB; the limit is of the whole process.
    before = csv.field_size_limit(sys.maxsize)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _delimited(
    path: Path, body: bytes, delimiter: str, broken: list[tuple[int, str]] | None = None
) -> RowTable:
    text, encoding = _text(body)
    notes = [f"{path.name} is not UTF-8 and was read as {encoding}"] if encoding else []
    if not delimiter and (declared := re.match(r"sep=(.)\r?\n", text)):  # of Excel
        delimiter, text = declared[1], text[declared.end() :]
    if not delimiter:
        sample = "".join(text.splitlines(keepends=True)[: 4 * _SAMPLED])
        fits = {sign: _Cells(sample, sign).read(_SAMPLED).fit for sign in _DELIMITERS}
        delimiter = max(_DELIMITERS, key=lambda sign: fits[sign])
        if delimiter != "," and fits[delimiter][0]:
            notes.append(f"the columns of {path.name} are separated by a {_NAMES[delimiter]}")
    cells = _Cells(text, delimiter).read()
    if cells.problem:
        raise InputError(
            f"{path}, line {cells.line}: {cells.problem}; a quotation mark that is opened must be closed, and one "
            "within a quoted cell is written twice"
        )
    if not cells.records:
        raise InputError(f"{path} holds no rows")
    (_, header), *records = cells.records
    columns = [name.strip() or f"column {number}" for number, name in enumerate(header, 1)]
    twice = [name for name, count in Counter(columns).items() if count > 1]
    if twice:
        raise InputError(f"{path}, line 1: two columns have the name {twice[0]!r}")
    lines: list[tuple[int, dict[str, Json]]] = []
    for number, record in records:
        if any(cell.strip() for cell in record[len(columns) :]):
            fault = (
                f"{len(record)} cells, where the first line names {len(columns)} columns "
                f"({', '.join(columns[:_SHOWN])}); put a cell that holds a {_NAMES.get(delimiter, delimiter)} in "
                "quotation marks"
            )
            if broken is None:
                raise InputError(f"{path}, line {number}: {fault}")
            broken.append((number, fault))
            continue
        padded = [*record, *[""] * (len(columns) - len(record))]
        values = dict(zip(columns, padded, strict=False))
        lines.append((number, {name: cell if cell.strip() else None for name, cell in values.items()}))
    if not lines and not broken:
        raise InputError(f"{path} holds no rows below its first line, which names the columns")
    return RowTable(path, lines, columns, delimited=True, notes=notes)


def _reader(cells: Sequence[str]) -> Any:
    """The function that reads every one of these cells as a value of JSON; None where they are text."""
    if not cells:
        return None
    stripped = [cell.strip() for cell in cells]
    if all(map(_WHOLE.fullmatch, stripped)):
        return int
    if all(map(_NUMBER.fullmatch, stripped)):
        return float
    if all(cell.lower() in ("true", "false") for cell in stripped):
        return lambda cell: cell.strip().lower() == "true"
    if all(cell[:1] in ("{", "[") for cell in stripped):
        try:
            for cell in stripped:
                read_json(msgspec.json.decode, cell)
        except msgspec.DecodeError:
            return None
        return lambda cell: read_json(msgspec.json.decode, cell)
    return None
