"""The records of an exported file, each with its place: JSON, JSON Lines (gzipped, too), CSV and Parquet.

A line that cannot be read is told with its number, and the others are read all the same.  JSON Lines, one array and
Parquet are read as they go by; a table of CSV, and one JSON object, are read whole.
"""

from __future__ import annotations

import codecs
import gzip
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

import msgspec

from ....errors import InputError, NotFoundError
from ....escapes import read_json
from ...tables import DELIMITED, parquet_rows, read_table

SUFFIXES = (*DELIMITED, ".json", ".jsonl", ".ndjson", ".traj", ".parquet", ".db", ".sqlite")
_DATABASE = b"SQLite format 3\0"
_CHUNK = 1 << 16
"""Bytes of a file, or characters, that are read at once."""
_BLANK = codecs.BOM_UTF8 + b" \t\r\n"
_BETWEEN = re.compile(r"[\s,]*")
"""What stands before a member of an array."""


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
        with path.open("rb") as opened:
            parquet = opened.read(4) == b"PAR1"
        if parquet:
            rows: Iterable[tuple[str, Mapping[str, Any]]] = (
                (f"{path}, row {number}", cells) for number, cells in parquet_rows(path)
            )
        else:
            table = read_table(path)
            rows = ((table.where(number), cells) for number, cells in table.lines)
        for where, cells in rows:
            yield Record(where, {name: cell for name, cell in cells.items() if cell is not None})
        return
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            yield from _json(path, file)
    except (OSError, EOFError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error


def _json(path: Path, file: BinaryIO | gzip.GzipFile) -> Iterator[Record]:
    """The objects of JSON Lines and of one array as they come; of another JSON text once it is read whole."""
    kind = _kind(file)
    file.seek(0)
    if kind == "array":
        number = 0
        try:
            for number, value in enumerate(_members(file), 1):
                yield _record(f"{path}, number {number}", value)
        except (msgspec.DecodeError, ValueError) as error:
            yield Record(f"{path}, number {number + 1}", None, f"not JSON: {error}")
        return
    if kind == "whole" and (whole := _whole(file.read())) is not None:
        for number, value in enumerate(whole, 1):
            yield _record(f"{path}, number {number}", value)
        return
    file.seek(0)
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        try:
            yield _record(f"{path}, line {number}", read_json(msgspec.json.decode, line))
        except (msgspec.DecodeError, ValueError) as error:
            yield Record(f"{path}, line {number}", None, f"not JSON: {error}")


def _kind(file: BinaryIO | gzip.GzipFile) -> Literal["array", "lines", "whole"]:
    """What JSON a file is, by its beginning: `whole` where that does not tell."""
    if file.read(_CHUNK).lstrip(_BLANK)[:1] == b"[":
        return "array"
    file.seek(0)
    lines = list(islice((line for line in file if line.strip()), 2))
    for line in lines if len(lines) > 1 else ():
        try:
            if isinstance(read_json(msgspec.json.decode, line), dict):
                return "lines"
        except (msgspec.DecodeError, ValueError):
            continue
    return "whole"


def _members(file: BinaryIO | gzip.GzipFile) -> Iterator[Any]:
    """The members of one JSON array.

    Raises:
        ValueError: it is cut off, or no JSON.
    """
    # The end of a member is found by one reader, and the member read by the other, as everywhere else.
    end_of = json.JSONDecoder().raw_decode
    chunks = codecs.getreader("utf-8-sig")(file)
    text, place = "", -1
    while True:
        more = chunks.read(_CHUNK)
        text = text[max(place, 0) :] + more
        place = text.index("[") + 1 if place < 0 else 0
        while True:
            place = _BETWEEN.match(text, place).end()  # type: ignore[union-attr]
            if text[place : place + 1] == "]":
                return
            try:
                _, end = end_of(text, place)
            except RecursionError:
                raise ValueError("it is nested too deep") from None
            except ValueError:
                if not more:
                    raise
                break  # it goes on in the next chunk
            if end == len(text) and more:
                break  # so may a number
            yield read_json(msgspec.json.decode, text[place:end])
            place = end


def _record(where: str, value: Any) -> Record:
    if isinstance(value, dict):
        return Record(where, value)
    return Record(where, None, f"an object is wanted, not {type(value).__name__}")


def _whole(body: bytes) -> list[Any] | None:
    """The members of one JSON object: of the `data` of an API's answer, or the object itself."""
    if body.lstrip()[:1] != b"{" or (body.count(b"\n{") and b"\n" in body.strip()):
        return None  # an object a line
    try:
        value = read_json(msgspec.json.decode, body)
    except (msgspec.DecodeError, ValueError):
        return None
    for key in ("data", "runs", "items", "traces", "examples"):
        if isinstance(value, dict) and isinstance(value.get(key), list) and "info" not in value:
            return list(value[key])
    return [value]


def _suffix(path: Path) -> str:
    return Path(path.stem).suffix.lower() if path.suffix == ".gz" else path.suffix.lower()
