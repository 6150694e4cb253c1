"""Known answers from a file: JSON Lines, under the names that people use for their columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from ..errors import InputError, NotFoundError
from ..escapes import read_json
from .variants import Row

_COLUMNS = {
    "input": ("input", "question", "prompt", "instruction", "query"),
    "output": ("output", "answer", "response", "prediction", "completion"),
    "expected": ("expected", "reference", "gold", "target", "ground_truth"),
    "label": ("label", "feedback", "rating", "thumb", "good", "score"),
}
_WORDS = {
    "good": 1.0,
    "up": 1.0,
    "yes": 1.0,
    "true": 1.0,
    "bad": -1.0,
    "down": -1.0,
    "no": -1.0,
    "false": -1.0,
}


_objects = msgspec.json.Decoder(dict[str, Any])


def read_rows(path: Path) -> list[Row]:
    """Rows of a JSON Lines file.

    A label is a number (above 0 is good), a bool, or a word such as up and down.

    Raises:
        NotFoundError: there is no such file.
        InputError: a line is no JSON object, has neither output nor expected, or a label that is none.
    """
    if not path.is_file():
        raise NotFoundError(f"there is no file at {path}")
    rows = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        if not line.strip():
            continue
        try:
            given = read_json(_objects.decode, line)
        except msgspec.MsgspecError as error:
            raise InputError(f"{path}, line {number}: not a JSON object ({error})") from error
        rows.append(read_row(given, f"{path}, line {number}"))
    if not rows:
        raise InputError(f"{path} holds no rows")
    return rows


def read_row(given: dict[str, Any], where: str) -> Row:
    """One row under whatever names its columns have.

    Args:
        where: how errors name it.

    Raises:
        InputError: it has neither output nor expected, or a label that is none.
    """
    found = {
        field: next((given[name] for name in names if name in given), None)
        for field, names in _COLUMNS.items()
    }
    if not any(name in given for field in ("output", "expected") for name in _COLUMNS[field]):
        raise InputError(f"{where}: it has neither output nor expected; it has {', '.join(given)}")
    label = _label(found.pop("label"), where)
    return Row(**found, label=label)


def _label(value: Any, where: str) -> float | None:
    if value is None or isinstance(value, int | float):
        # A bool of False is a verdict; as a number it would be 0, which is not above 0 either.
        return None if value is None else float(value)
    if isinstance(value, str) and value.lower() in _WORDS:
        return _WORDS[value.lower()]
    raise InputError(f"{where}: label {value!r} is no number, bool or word such as up and down")
