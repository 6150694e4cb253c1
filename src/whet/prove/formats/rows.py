"""What every reader gives: the rows of a file as it has them, and what could not be read of it."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...errors import InputError
from ...types import Json, Outcome, canonical
from .file import decoded

_WORDS = {
    **dict.fromkeys(("true", "yes", "pass", "passed", "correct", "success", "right"), 1.0),
    **dict.fromkeys(("false", "no", "fail", "failed", "incorrect", "failure", "wrong"), 0.0),
}
_NOT_SCORED = ("n/a", "na", "none", "null", "-", "#n/a")
_COMMA = re.compile(r"-?\d+,\d{1,2}")
"""A decimal comma, as spreadsheets of half of Europe write it; behind one of thousands stand three digits."""
_WITHIN = ("score", "value", "passed", "pass")
"""Member of an object that is a score."""
_SHOWN = 3
IDS = ("task", "task_id", "id")
"""Names that a task's id may have in rows of one's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One run of one task."""

    where: str
    """`line 4`, `items 12`."""
    task: str
    scores: Mapping[str, Json] = field(default_factory=dict)
    """Metric → value as written; None was not scored."""
    outcome: Outcome = Outcome.UNKNOWN
    cost: float | None = None
    fields: Mapping[str, Json] = field(default_factory=dict)
    """What the row says of its task, where a group may be looked for."""
    variant: str = ""
    """Which prompt, model or run it is of, where a file may hold several."""


@dataclass(slots=True)
class Reading:
    """The rows of one file."""

    format: str
    rows: list[Row] = field(default_factory=list)
    unread: list[tuple[str, str]] = field(default_factory=list)
    """Place and reason of each row that could not be read."""
    skipped: int = 0
    """Rows that say that the task was not run."""
    notes: list[str] = field(default_factory=list)
    primary: str = ""
    """The metric that decides unless one is named, where the format has such a one."""

    def take(
        self, bodies: Iterable[tuple[str, bytes]], row: Callable[[str, dict[str, Any]], Row | None]
    ) -> Reading:
        """Read each body as a JSON object by `row`; None of it means that the task was not run."""
        for where, body in bodies:
            try:
                value = decoded(body)
                if not isinstance(value, dict):
                    raise InputError(f"an outcome is a JSON object, not {type(value).__name__}")
                self.add(row(where, value))
            except InputError as error:
                self.unread.append((where, str(error)))
        return self

    def add(self, row: Row | None) -> None:
        """Take one row; None is of a task that was not run."""
        if row is None:
            self.skipped += 1
        else:
            self.rows.append(row)

    @property
    def total(self) -> int:
        return len(self.rows) + len(self.unread) + self.skipped

    def losses(self) -> str:
        """How many rows could not be read, and where; "" of none."""
        if not self.unread:
            return ""
        shown = "; ".join(f"{where}: {why:.200}" for where, why in self.unread[:_SHOWN])
        more = len(self.unread) - _SHOWN
        return (
            f"{len(self.unread)} of {self.total} rows could not be read: {shown}"
            f"{f'; and {more} more' if more > 0 else ''}"
        )


def as_score(value: Json, name: str) -> float | None:
    """A number, a truth value or a word for one; None was not scored.

    Raises:
        InputError: it is neither.
    """
    if isinstance(value, dict):  # with its reason beside it
        value = next((value[key] for key in _WITHIN if key in value), value)
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    if isinstance(value, str):
        word = value.strip().lower()
        if word in _WORDS:
            return _WORDS[word]
        if word in _NOT_SCORED:
            return None
        if word.endswith("%"):
            share = as_score(word[:-1], name)
            return None if share is None else share / 100
        if _COMMA.fullmatch(word):
            word = word.replace(",", ".")
        try:
            value = float(word)
        except ValueError:
            raise InputError(f"{name} {value[:60]!r} is not a score: a number, true or false is") from None
    if isinstance(value, bool | int | float):
        # A whole number of JSON has no bounds, and a float of text may be infinite.
        if not isinstance(value, float) and abs(value) > sys.float_info.max:
            raise InputError(f"{name} is a number of {len(str(value)[:400])} digits or more, and no score")
        if math.isnan(value):
            return None
        if math.isfinite(value):
            return float(value)
    raise InputError(f"{name} {str(value)[:60]!r} is not a score: a number, true or false is")


def is_score(value: Json) -> bool:
    """Whether `as_score` would read it as one."""
    try:
        return as_score(value, "") is not None
    except InputError:
        return False


def as_text(value: Json, name: str) -> str:
    """An id or the name of a group; None is "".

    Raises:
        InputError: it is neither a text nor a whole number.
    """
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # of a column with gaps, which pandas writes with a decimal point
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise InputError(f"{name} {str(value)[:60]} must be text or a whole number")
    try:
        return str(value)
    except ValueError:  # of more digits than Python writes
        raise InputError(f"{name} is a number of more digits than an id has") from None


def as_cost(value: Json) -> float | None:
    """Cost of a row.

    Raises:
        InputError: it is not a number from 0 on.
    """
    if value is None or value == "":
        return None
    cost = as_score(value, "cost") if not isinstance(value, bool) else -1.0
    if cost is None or cost < 0:
        raise InputError(f"cost {str(value)[:60]!r} must be a number from 0 to {sys.float_info.max:g}")
    return cost


def named_scores(listed: Any, name: str = "name", value: str = "value") -> dict[str, Json]:
    """Metric → value of a list of scores that each have a name and a value, or of an object that has them by name.

    Raises:
        InputError: it is neither.
    """
    if listed is None:
        return {}
    if isinstance(listed, dict):
        return dict(listed)
    if not isinstance(listed, list):
        raise InputError(f"its scores are {type(listed).__name__}, not a list")
    scores: dict[str, Json] = {}
    for score in listed:
        if not isinstance(score, dict) or not isinstance(score.get(name), str):
            raise InputError(f"a score without {name}: {str(score)[:60]!r}")
        given = score.get(value)
        scores[score[name]] = score.get("stringValue") if given is None else given
    return scores


def id_of_input(value: Json) -> str:
    """The task's id where a file has none: its input, which is the same on both sides.

    Raises:
        InputError: there is no input.
    """
    if value is None or value == "" or value == {}:
        raise InputError("no task id, and no input to tell tasks apart by")
    return value if isinstance(value, str) else canonical(value).decode()


def mapping(value: Any) -> dict[str, Any]:
    """The object that stands there; {} where there is none or something else."""
    return value if isinstance(value, dict) else {}
