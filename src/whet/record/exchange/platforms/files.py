"""The records of an exported file, each with its place: JSON, JSON Lines (gzipped, too), CSV and Parquet.

A line that cannot be read is told with its number, and the others are read all the same.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ....errors import InputError, NotFoundError
from ....escapes import read_json
from ...tables import DELIMITED, read_table

SUFFIXES = (*DELIMITED, ".json", ".jsonl", ".ndjson", ".parquet", ".db", ".sqlite")
_DATABASE = b"SQLite format 3\0"


class Record(NamedTuple):
    """One object of a file, or why there is none."""

    where: str
    object: Mapping[str, Any] | None
    error: str = ""


def files_of(path: Path) -> list[Path]:
    """The files that a path names: itself, or of a folder those with a suffix that is read, in order.

    Raises:
        NotFoundError: there is nothing there.
    """
    if path.is_dir():
        inside = [file for file in sorted(path.rglob("*")) if file.is_file() and _suffix(file) in SUFFIXES]
        if not inside:
            raise NotFoundError(f"there is no {', '.join(SUFFIXES)} below {path}")
        return inside
    if not path.is_file():
        raise NotFoundError(f"there is no file {path}")
    return [path]


def is_database(path: Path) -> bool:
    """True of a SQLite file."""
    with path.open("rb") as file:
        return file.read(len(_DATABASE)) == _DATABASE


def records(path: Path) -> Iterator[Record]:
    """The records of one file.

    Raises:
        InputError: the whole file cannot be read.
        MissingExtra: it is Parquet, and pyarrow is not installed.
    """
    if _suffix(path) in (*DELIMITED, ".parquet"):
        table = read_table(path)
        for number, cells in table.lines:
            yield Record(
                table.where(number), {name: cell for name, cell in cells.items() if cell is not None}
            )
        return
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            body = file.read()
    except (OSError, EOFError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    if (whole := _whole(body)) is not None:
        for number, value in enumerate(whole, 1):
            yield _record(f"{path}, number {number}", value)
        return
    for number, line in enumerate(body.splitlines(), 1):
        if not line.strip():
            continue
        try:
            yield _record(f"{path}, line {number}", read_json(msgspec.json.decode, line))
        except (msgspec.DecodeError, ValueError) as error:
            yield Record(f"{path}, line {number}", None, f"not JSON: {error}")


def _record(where: str, value: Any) -> Record:
    if isinstance(value, dict):
        return Record(where, value)
    return Record(where, None, f"an object is wanted, not {type(value).__name__}")


def _whole(body: bytes) -> list[Any] | None:
    """The members of one JSON text: of an array, of the `data` of an API's answer, or the object itself."""
    start = body.lstrip()[:1]
    if start not in (b"[", b"{"):
        return None
    if start == b"{" and body.count(b"\n{") and b"\n" in body.strip():
        return None  # an object a line
    try:
        value = read_json(msgspec.json.decode, body)
    except (msgspec.DecodeError, ValueError):
        return None
    if isinstance(value, list):
        return value
    for key in ("data", "runs", "items", "traces", "examples"):
        if isinstance(value, dict) and isinstance(value.get(key), list) and "info" not in value:
            return list(value[key])
    return [value]


def _suffix(path: Path) -> str:
    return Path(path.stem).suffix.lower() if path.suffix == ".gz" else path.suffix.lower()
