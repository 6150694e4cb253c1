"""Rows of the data sets as they come: what cannot be read is left out, and said by count and place."""

from __future__ import annotations

import csv
import gzip
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

Row = dict[str, Any]


class AbsentData(Exception):
    """A data set is not there, or holds too little to measure anything on: a line that needs it is missed."""


def json_rows(path: Path, complaint: Callable[[Row], str] = lambda row: "") -> list[Row | None]:
    """The rows of a file of JSON Lines, gzipped or not; None in the place of one that cannot be read.

    Args:
        complaint: what is wrong with a row that is an object, "" if nothing.

    Raises:
        AbsentData: there is no such file.
    """
    rows: list[Row | None] = []
    wrong: list[str] = []
    try:
        body = path.read_bytes()
        # By its content: a file that was unpacked and kept its name is as good.
        body = gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body
    except (OSError, EOFError, zlib.error) as error:
        raise AbsentData(f"{path}: {error}") from error
    for number, line in enumerate(body.decode("utf-8", "replace").splitlines(), 1):
        if not line.strip():
            continue
        why = ""
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            row, why = None, str(error)
        if not why:
            why = complaint(row) if isinstance(row, dict) else "no JSON object"
        rows.append(None if why else row)
        wrong += [f"line {number}: {why}"] if why else []
    if wrong:
        print(f"{path}: {len(wrong)} of {len(rows)} rows left out, {wrong[0]}", flush=True)
    return rows


def csv_rows(path: Path) -> list[dict[str, str]]:
    """The rows of a table; what is no text in it is replaced.

    Raises:
        AbsentData: there is no such file, or it is no table.
    """
    try:
        with path.open(encoding="utf-8", errors="replace", newline="") as file:
            return [
                {
                    name: value
                    for name, value in row.items()
                    if isinstance(name, str) and isinstance(value, str)
                }
                for row in csv.DictReader(file)
            ]
    except (OSError, csv.Error) as error:
        raise AbsentData(f"{path}: {error}") from error


def lacks(*names: str) -> Callable[[Row], str]:
    """Says which of these fields a row has not."""

    def complaint(row: Row) -> str:
        missing = [name for name in names if name not in row]
        return f"it has no {', '.join(missing)}" if missing else ""

    return complaint
