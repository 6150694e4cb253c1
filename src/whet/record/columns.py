"""Which column of a table is what: named by the person, else guessed from its name, and said.

`Columns.of` decides, `Columns.tasks` reads a table's rows as Tasks (`rows.row`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from msgspec import UNSET

from ..errors import InputError
from ..types import Json, Task
from .rows import EXPECTED, INPUT, OUTPUT, ROLES, row
from .tables import RowTable

GROUP = ("group", "user", "user_id", "person", "customer", "customer_id", "session", "session_id", "thread")
"""Names of columns that say which rows belong together, tried in this order."""
SAID = ("comment", "feedback_text", "critique", "explanation", "reason")
"""Names of columns with what people said of a row."""
META_SAID = "said"
"""Entry of `Task.meta` with that text."""
_SHOWN = 80
_LOOKED_AT = 200
"""Rows by which a column is taken for words or not."""

Missing = Literal["none", "unknown"]
"""An empty cell of the expected column: the right answer is None, or nobody knows it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnNames:
    """The columns that a person named; what is empty or None is guessed."""

    input: tuple[str, ...] = ()
    expected: str | None = None
    group: str | None = None

    def __bool__(self) -> bool:
        return bool(self.input) or self.expected is not None or self.group is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """The columns of a table by what they are."""

    input: tuple[str, ...]
    """One column whose value is the input; several, whose values by name are."""
    expected: str
    group: str = ""
    """Rows with one value in it never stand on two sides of the gate; "" where each row stands alone."""
    said: str = ""
    guessed: tuple[str, ...] = ()
    """The roles that nobody named: `input`, `expected`, `group`, `said`."""

    @classmethod
    def of(
        cls,
        table: RowTable,
        *,
        input: Sequence[str] = (),
        expected: str | None = None,
        group: str | None = None,
        parameters: Sequence[str] = (),
    ) -> Columns:
        """The columns as named, and those that were not as their names suggest.

        Of a table with two columns the first is the input and the second what is expected, whatever they are called;
        numbers, dates and keys beside two columns of words do not count.

        Args:
            parameters: of the function that is called: where all are columns, they are the input.

        Raises:
            InputError: a name is not a column, or nothing tells which column it is; lists the columns.
        """
        names = {name.casefold(): name for name in table.columns}
        for option, named in (("--input", input), ("--expected", (expected,)), ("--group", (group,))):
            for name in filter(None, named):
                if name not in table.columns:
                    raise InputError(
                        f"{option} {name}: {table.path} has no such column; it has {_listed(table)}"
                    )
        guessed = [] if input else ["input"]
        inputs = tuple(input)
        if not inputs and parameters and all(name in table.columns for name in parameters):
            inputs = tuple(parameters)
        right = expected or _first(EXPECTED, names, inputs)
        if not inputs:
            # `answer` is an answer that was given, or the right one: here only the latter makes sense.
            others = [name for name in table.columns if name not in (right, group)]
            inputs = tuple(filter(None, [_first(INPUT, names, (right or "",))])) or tuple(
                others[: len(others) == 1]
            )
        if right is None:
            right = _first(OUTPUT, names, inputs)
        inputs, right = _by_place(table, inputs, right, group, whole=bool(parameters))
        if not inputs or right is None:
            missing = "--expected" if inputs else "--input" if right else "--input and --expected"
            raise InputError(
                f"{table.path}: it is not clear which column is what; name {missing}. Its columns: {_listed(table)}"
            )
        if right in inputs:
            raise InputError(
                f"{table.path}: column {right!r} cannot be both the input and the expected answer"
            )
        guessed += [] if expected else ["expected"]
        used = (*inputs, right)
        grouped = group if group is not None else _first(GROUP, names, used) or ""
        said = _first(SAID, names, used) or ""
        guessed += (["group"] if grouped and group is None else []) + (["said"] if said else [])
        return cls(input=inputs, expected=right, group=grouped, said=said, guessed=tuple(guessed))

    def sentences(self, table: RowTable) -> list[str]:
        """What is what, with an example and the way to say otherwise."""
        first = table.lines[0][1]
        shown = ", ".join(f"{name} = {_short(first.get(name))}" for name in self.input)
        guess = " (guessed; name others with " + ", ".join(f"--{role}" for role in self._options) + ")"
        lines = [
            f"input: {shown}; expected: {self.expected} = {_short(first.get(self.expected))}"
            + (guess if self._options else "")
        ]
        if self.group:
            lines.append(f"rows with the same {self.group} stay on one side of the proof")
        if self.said:
            lines.append(f"{self.said} is taken for what people said of a row")
        return lines

    def renamed(self, values: Mapping[str, Json]) -> dict[str, Json]:
        """A row under the names that `rows.read_columns` reads, the other columns as they are."""
        used = {*self.input, self.expected, self.group}
        inputs = [values.get(name) for name in self.input]
        named: dict[str, Json] = {
            "input": inputs[0] if len(inputs) == 1 else dict(zip(self.input, inputs, strict=True)),
            "group": values.get(self.group) if self.group else None,
        }
        if self.expected in values:
            named["expected"] = values[self.expected]
        rest = {name: value for name, value in values.items() if name not in used and name not in ROLES}
        return {**rest, **named}

    @property
    def _options(self) -> list[str]:
        return [role for role in self.guessed if role != "said"]

    def tasks(self, table: RowTable, *, missing: Missing) -> tuple[list[Task], list[str]]:
        """The rows as Tasks, and a sentence on each kind of row that is special.

        A row without an input is left out; one whose expected cell is empty has no known answer, or None as the
        right one.  Repeated inputs stay: `learn.datasets.examples.merged` joins them.

        Raises:
            InputError: no row is left.
        """
        tasks: list[Task] = []
        without_input, without_answer = 0, 0
        for number, values in table.lines:
            given = [values.get(name) for name in self.input]
            if all(value is None for value in given):
                without_input += 1
                continue
            expected: Json = values.get(self.expected)
            if expected is None:
                without_answer += 1
                expected = None if missing == "none" else UNSET
            said = {META_SAID: str(values[self.said])} if self.said and values.get(self.said) else {}
            task = row(
                given[0] if len(given) == 1 else dict(zip(self.input, given, strict=True)),
                expected=expected,
                group=_group(values.get(self.group)) if self.group else "",
                provenance={"how": "file", "line": number},
            )
            task.meta.update(said)  # type: ignore[attr-defined]
            tasks.append(task)
        if not tasks:
            raise InputError(f"{table.path}: no row has an input in {', '.join(self.input)}")
        notes = []
        if without_input:
            notes.append(f"{_rows(without_input)} without {', '.join(self.input)} left out")
        if without_answer:
            taken = (
                "None is taken to be the right answer (--missing unknown: nobody knows it)"
                if missing == "none"
                else "not counted, for nobody knows the right answer (--missing none: no answer is right)"
            )
            notes.append(f"{_rows(without_answer)} with an empty {self.expected}: {taken}")
        return tasks, notes


def _by_place(
    table: RowTable, inputs: tuple[str, ...], right: str | None, group: str | None, *, whole: bool
) -> tuple[tuple[str, ...], str | None]:
    """The input and what is expected: the first and the second of two columns, where so many are left.

    Args:
        whole: the inputs are all that a function takes, so the only other column is what it should give.
    """
    if inputs and right:
        return inputs, right
    others = [name for name in table.columns if name not in (*inputs, group)]
    if whole and inputs and len(others) == 1:
        return inputs, others[0]
    worded = [name for name in others if name.casefold() not in (*GROUP, *SAID) and _has_words(table, name)]
    two = table.columns if len(table.columns) == 2 else worded
    if not inputs and right is None and len(two) == 2:
        return (two[0],), two[1]
    if len(table.columns) == 2:
        inputs = inputs or tuple(name for name in two if name != right)[:1]
        right = right or next(name for name in two if name not in inputs)
    elif inputs and right is None:
        left = [name for name in two if name not in inputs]
        right = left[0] if len(left) == 1 else None
    elif not inputs:
        left = [name for name in two if name != right]
        inputs = tuple(left) if len(left) == 1 else ()
    return inputs, right


def _has_words(table: RowTable, column: str) -> bool:
    """Nearly every cell has a letter, and they are no keys: all different, and of one word."""
    cells = [
        str(value) for _, values in table.lines[:_LOOKED_AT] if (value := values.get(column)) is not None
    ]
    lettered = sum(any(sign.isalpha() for sign in cell) for cell in cells)
    keys = len(set(cells)) == len(cells) and not any(" " in cell.strip() for cell in cells)
    return bool(cells) and lettered >= 0.9 * len(cells) and not keys


def _first(names: Sequence[str], columns: dict[str, str], used: Sequence[str]) -> str | None:
    return next((columns[name] for name in names if name in columns and columns[name] not in used), None)


def _rows(number: int) -> str:
    return "1 row" if number == 1 else f"{number:,} rows"


def _group(value: Json) -> str:
    """A group as text; a whole number of a column with gaps, which pandas writes with a decimal point, as such."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return "" if value is None else str(value)


def _listed(table: RowTable) -> str:
    return ", ".join(table.columns)


def _short(value: Json) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
