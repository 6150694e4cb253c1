"""Files of rows of text, in the formats of TRL's datasets: JSON, one row a line, or Parquet."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from ...errors import InputError
from ...escapes import read_json
from ...types import Json
from ..tables import json_lines, read_table

KEYS = ({"prompt", "completion"}, {"messages"}, {"prompt", "chosen", "rejected"})


def is_text_row(row: Any) -> bool:
    """True if a row has the keys of one of the formats."""
    return isinstance(row, Mapping) and any(keys <= set(row) for keys in KEYS)


def read_text_rows(path: Path) -> list[Mapping[str, Json]] | None:
    """The rows of a file whose first one is a row of text; None for every other file.

    Raises:
        InputError: it cannot be read, or a line of it is no JSON.
        MissingExtra: Parquet takes pyarrow.
    """
    try:
        with open(path, "rb") as file:
            parquet = file.read(4) == b"PAR1"
            file.seek(0)
            first = b"" if parquet else next((line for line in islice(file, 100) if line.strip()), b"")
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    if parquet:
        # A column that another row has is empty in this one.
        lines: list[Mapping[str, Json]] = [
            {key: value for key, value in row.items() if value is not None}
            for _, row in read_table(path).lines
        ]
        return lines if lines and is_text_row(lines[0]) else None
    try:
        row = read_json(msgspec.json.decode, first)
    except msgspec.DecodeError:
        return None
    return [row for _, row in json_lines(path, path.read_bytes())] if is_text_row(row) else None
