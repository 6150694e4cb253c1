"""Rows: what goes in, what came out, what should have; read from JSON Lines under the names that people use.

Evaluators are proven on rows, and functions are judged on them: there a row is a Task (`data.examples.task_of`).
A row alone tells an answer that was recorded from the one that is right, and holds what people said of it.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET

from ..errors import InputError, NotFoundError
from ..escapes import read_json
from ..types import Json, Split, digest

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


_NOT_JSON = re.compile(rb"[:\[,]\s*-?(?:NaN|Infinity)\s*[,\]}]")
"""Numbers that `json.dumps` of Python writes and no JSON has."""
_objects = msgspec.json.Decoder(dict[str, Any])


@dataclass(frozen=True, slots=True)
class Row:
    """One row; UNSET is unknown, None is an answer."""

    input: Json = None
    output: Json = UNSET
    """An answer that was recorded or came of a run."""
    expected: Json = UNSET
    """The right one."""
    label: float | None = None
    """Feedback on `output`: above 0 is good."""
    group: str = ""
    """What it shares with others: session, mailbox, person. Empty: it stands alone."""
    split: Split | None = None
    provenance: Mapping[str, Json] = field(default_factory=dict)
    """`how` (trace, docstring, repository, model, generated), and what belongs to it."""
    id: str = ""

    def __post_init__(self) -> None:
        if not self.id:
            object.__setattr__(self, "id", digest(["example", self.input]))

    @property
    def goal(self) -> bool:
        """It says what should come out: expected, or an output that people liked."""
        liked = self.label is not None and self.label > 0
        return self.expected is not UNSET or (liked and self.output is not UNSET)

    @property
    def wanted(self) -> Json:
        """The right answer; UNSET where only people's dislike, or nothing, is known."""
        if self.expected is not UNSET:
            return self.expected
        return self.output if self.goal else UNSET

    @property
    def good(self) -> Json:
        """An answer to prove an evaluator by: where nobody has said anything, the one that was recorded.

        Feedback errs, so what was expected goes before it.
        """
        if self.label is None:
            # Files of known answers leave the output empty as often as out: what was expected is good either way.
            nothing = self.output is UNSET or (self.output is None and self.expected is not UNSET)
            return self.expected if nothing else self.output
        return self.wanted

    @property
    def reference(self) -> Json:
        """What an answer is compared with in such a proof: what was expected, else the one that is good."""
        return self.expected if self.expected is not UNSET else self.good


def read_rows(path: Path) -> list[Row]:
    """Rows of a JSON Lines file.

    A label is a number (above 0 is good), a bool, or a word such as up and down.  A column that is not there is
    unknown; null is an answer, so `"expected": null` says that the right answer is None.

    Raises:
        NotFoundError: there is no such file.
        InputError: a line is no JSON object, has neither output nor expected, or a label that is none.
    """
    if not path.is_file():
        raise NotFoundError(f"there is no file at {path}")
    rows = [read_row(given, f"{path}, line {number}") for number, given in numbered(path)]
    if not rows:
        raise InputError(f"{path} holds no rows")
    return rows


def numbered(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a JSON Lines file, each with the number of its line.

    Raises:
        InputError: the file cannot be read, or a line is not a JSON object.
    """
    try:
        lines = path.read_bytes().removeprefix(codecs.BOM_UTF8).splitlines()
    except OSError as error:
        raise InputError(f"cannot read rows from {path}: {error.strerror or error}") from error
    for number, line in enumerate(lines, 1):
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
                raise InputError(f"{path}, line {number}: not a JSON object ({why})") from error


def read_row(given: dict[str, Any], where: str) -> Row:
    """One row under whatever names its columns have.

    Args:
        where: how errors name it.

    Raises:
        InputError: it has neither output nor expected, or a label that is none.
    """
    found = {
        field: next((given[name] for name in names if name in given), UNSET)
        for field, names in _COLUMNS.items()
    }
    if not any(name in given for field in ("output", "expected") for name in _COLUMNS[field]):
        raise InputError(f"{where}: it has neither output nor expected; it has {', '.join(given)}")
    label = found["label"]
    return Row(
        None if found["input"] is UNSET else found["input"],
        found["output"],
        found["expected"],
        None if label is UNSET else _label(label, where),
    )


def _label(value: Any, where: str) -> float | None:
    if value is None or isinstance(value, int | float):
        # A bool of False is a verdict; as a number it would be 0, which is not above 0 either.
        try:
            return None if value is None else float(value)
        except OverflowError:  # a whole number of JSON has no bounds
            raise InputError(f"{where}: label is out of the range of a number") from None
    if isinstance(value, str) and value.lower() in _WORDS:
        return _WORDS[value.lower()]
    raise InputError(f"{where}: label {value!r} is no number, bool or word such as up and down")
