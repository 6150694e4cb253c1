"""Rows that a function is judged on, in a file or a folder of them: merged, divided by group, and compared.

JSON Lines, one file per split, with the columns that `record.rows` reads, so the same file goes to
`whet generate-evaluators`, `whet audit` and `whet evolve`.  A row without `expected` and without a
label says only what the function answers today: it shows what changes, and is not a goal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ...errors import InputError, NotFoundError
from ...record.columns import ColumnNames, Columns
from ...record.rows import ROLES, read_columns, row, write_rows
from ...record.tables import read_table
from ...types import Json, Split, Task, canonical, digest
from .division import divide
from .splits import FRACTIONS, Leakage, leakage


def _wordy(input: Json) -> bool:
    """It holds a sentence, so two that nearly agree are nearly the same question."""
    values = input.values() if isinstance(input, dict) else input if isinstance(input, list) else [input]
    return any(isinstance(value, str) and len(value.split()) >= 4 for value in values)


def compared(task: Task) -> Task:
    """With a text only where two that nearly agree are nearly the same question."""
    return task if _wordy(task.initial_state["input"]) else replace(task, instruction="")


def divided(rows: Sequence[Task], *, seed: int = 0) -> list[Task]:
    """The rows with a split each, by group (`division.divide`), without those that nearly repeat another side's.

    Groups stay as they are.  With fewer groups than splits the gate, then validation, gets nothing.

    Raises:
        GateError: one group was given two splits.
    """
    # Rows that were not merged yet may share an id.
    by_name = {f"{task.id}/{index}": task for index, task in enumerate(rows)}
    division = divide([replace(compared(task), id=name) for name, task in by_name.items()], seed=seed)
    return [replace(by_name[task.id], split=task.split) for task in division.tasks]


def leaks(tasks: Iterable[Task]) -> Leakage:
    """Overlap of the gate's rows with those that anything is learned or chosen on."""
    sides: tuple[list[Task], list[Task]] = [], []
    for task in tasks:
        sides[task.split is Split.GATE].append(compared(task))
    return leakage(*sides)


def write(folder: Path, rows: Sequence[Task]) -> None:
    """Write `train.jsonl`, `validation.jsonl` and `gate.jsonl`."""
    folder.mkdir(parents=True, exist_ok=True)
    # An empty file as well: one of an earlier division must not stay.
    for part in FRACTIONS:
        write_rows(folder / f"{part.value}.jsonl", [task for task in rows if task.split is part])


def load(
    path: Path,
    *,
    seed: int = 0,
    note: Callable[[str], None] | None = None,
    names: ColumnNames | None = None,
) -> list[Task]:
    """Rows of a folder that `write` made, or of one file (`record.tables`), divided here as far as they have no splits.

    A row that repeats another is merged with it; rows that contradict each other, and rows that nearly repeat one of
    another side, are left out.

    Args:
        note: told what was merged and left out, and which columns were guessed, a sentence each.
        names: columns of a file; those of a folder have the names that `write` gives.

    Raises:
        NotFoundError: there is nothing at the path.
        InputError: a line is not a row, or nothing is left.
        GateError: one group is in two splits.
    """
    files: dict[Split | None, Path] = {part: path / f"{part.value}.jsonl" for part in FRACTIONS}
    if path.is_file():
        files = {None: path}
    if not any(file.is_file() for file in files.values()):
        raise NotFoundError(
            f"there are no rows at {path}: give a file of rows (CSV, JSON Lines, Parquet), or a folder that "
            "whet generate-training-data made"
        )
    tell = note or (lambda sentence: None)
    read = [row for part, file in files.items() if file.is_file() for row in _file(file, part, names, tell)]
    if not read:
        raise InputError(f"{path} holds no rows")
    rows = merged(read, tell)
    if not rows:
        raise InputError(
            f"{path} holds no row that is not contradicted: where one input has several answers, "
            "keep the right one, or put into the input whatever tells the cases apart"
        )
    sided = divided(rows, seed=seed)
    if len(sided) < len(rows):
        tell(
            f"{len(rows) - len(sided)} of {len(rows)} rows are left out: they nearly repeat a row of another side of "
            "the gate, which could then be passed by memory"
        )
    return sided


def merged(rows: Sequence[Task], tell: Callable[[str], None] = lambda sentence: None) -> list[Task]:
    """One row for each input, the first, with `repeats` in its provenance; those that contradict each other left out.

    Of rows with one input those that say what should come out speak, and they contradict each other where they say
    different things.  Two inputs under one id get ids of their own.

    Args:
        tell: told how many were merged, and of each contradiction where it is and what to do.
    """
    by_input: dict[bytes, list[Task]] = {}
    for task in rows:
        by_input.setdefault(canonical(task.initial_state["input"]), []).append(task)
    distinct: list[Task] = []
    ids: set[str] = set()
    repeated = 0
    for alike in by_input.values():
        goals = [task for task in alike if task.answer_known] or alike
        if len({canonical(task.answer) for task in goals if task.answer_known}) > 1:
            where = ", ".join(f"{_where(task)} ({canonical(task.answer).decode():.60})" for task in goals)
            tell(
                f"contradiction: one input, several answers, on {where}; left out. Keep the right one, or put into "
                "the input whatever tells the cases apart"
            )
            continue
        # A side that was given goes before one that was not, and the gate's before the others.
        first = min(goals, key=lambda task: _SIDES.index(task.split))
        repeated += len(alike) - 1
        if len(alike) > 1:
            provenance = {**first.meta["provenance"], "repeats": len(alike)}
            first = replace(first, meta={**first.meta, "provenance": provenance})
        if first.id in ids:
            first = replace(first, id=digest(["example", first.id, first.initial_state["input"]]))
        ids.add(first.id)
        distinct.append(first)
    if repeated:
        tell(f"{repeated} of {len(rows)} rows repeat the input of another, and are merged with it")
    return distinct


_SIDES = (Split.GATE, Split.VALIDATION, Split.TRAIN, None)


def _where(task: Task) -> str:
    line = task.meta["provenance"].get("line")
    return f"line {line}" if line else f"row {task.id}"


def _file(
    path: Path, part: Split | None, names: ColumnNames | None, tell: Callable[[str], None]
) -> Iterable[Task]:
    table = read_table(path).typed()
    for sentence in table.notes:
        tell(sentence)
    named: Columns | None = None
    names = names or ColumnNames()
    # Rows of ours may have an output or a label and nothing expected: no role is missing there.
    if names or not any(name in ROLES for name in table.columns):
        named = Columns.of(table, input=names.input, expected=names.expected, group=names.group)
        for sentence in named.sentences(table):
            tell(sentence)
    for number, values in table.lines:
        where, line = table.where(number), values if named is None else named.renamed(values)
        columns = read_columns(line, where)
        try:
            side = Split(line["split"]) if line.get("split") else part
        except ValueError as error:
            raise InputError(f"{where}: {error}; it must be train, validation or gate") from error
        yield row(
            **columns,
            group=_name(line, "group", where),
            split=side,
            provenance=_provenance(line.get("provenance"), number, where),
            id=_name(line, "id", where),
        )


def _name(line: Mapping[str, Json], column: str, where: str) -> str:
    """A group or an id as text; "" where there is none. 0 is a name: people are numbered from it."""
    value = line.get(column)
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():  # a column of pandas in which one is missing
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise InputError(
            f"{where}: {column} is {canonical(value).decode():.60}; it must be text or a whole number"
        )
    return str(value)


def _provenance(value: Json, number: int, where: str) -> Mapping[str, Json]:
    """Where a row is from; text says how it came about."""
    if isinstance(value, Mapping):
        return value or {"how": "file", "line": number}
    if value is not None and not isinstance(value, str):
        raise InputError(
            f"{where}: provenance is {canonical(value).decode():.60}; it must be text or an object"
        )
    return {"how": value or "file", "line": number}


_SHOWN = 3
_LONGEST = 80


def unknown_changes(answers: Iterable[tuple[Json, Json, Json]], where: str) -> dict[str, Json] | None:
    """A finding on the rows without a known answer, None where no answer of theirs changed.

    Args:
        answers: input, answer before and answer after, of every row without a known answer.
        where: the name of what answers.

    Returns:
        `kind`, `function`, `count` of changed answers `of` so many, three `examples` and a `sentence`.
    """
    rows = list(answers)
    changed = [row for row in rows if canonical(row[1]) != canonical(row[2])]
    if not changed:
        return None
    shown = [{"input": input, "before": old, "after": new} for input, old, new in changed[:_SHOWN]]
    return {
        "kind": "unknown answers changed",
        "function": where,
        "count": len(changed),
        "of": len(rows),
        "examples": shown,
        "sentence": (
            f"{len(changed)} of {len(rows)} answers of {where} whose right answer is unknown are different now, and "
            f"nothing here judged them: {'; '.join(map(_line, shown))}. Look at them before you take the patch; "
            "rows with expected (null where None is right) let the gate judge."
        ),
    }


def _line(example: Mapping[str, Json]) -> str:
    return f"{_short(example['input'])}: {_short(example['before'])} → {_short(example['after'])}"


def _short(value: Json) -> str:
    text = canonical(value).decode()
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
