"""Rows that a function is judged on: what goes in, what is known to come out, and where that is from.

JSON Lines, one file per split; the columns are those that `reward.rows` reads, so the same file goes to
`whet generate-evaluators`, `whet audit` and `whet evolve`.  A row without `expected` and without a
label says only what the function answers today: it shows what changes, and is not a goal.  A column that is
not there is unknown; null is known: `"expected": null` says that the right answer is None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
from msgspec import UNSET

from ..errors import InputError, NotFoundError
from ..reward.rows import Row, numbered, read_row
from ..types import Json, Split, Task, canonical, digest
from .division import Standing, divide, standing
from .splits import FRACTIONS, Leakage, leakage


def task_of(row: Row, function: str, group: str | None = None) -> Task:
    """The row as a Task of a function; `meta["rating"]` is how good people think its answer.

    Args:
        group: in the place of the row's own.
    """
    meta: dict[str, Json] = {"answer_known": row.goal, "provenance": dict(row.provenance)}
    if row.label is not None:
        # A correction speaks of another answer than the label does, and is as good as the best.
        meta["rating"] = 1.0 if row.expected is not UNSET else row.label
    return Task(
        id=row.id,
        instruction=said(row.input),
        initial_state={"function": function, "input": row.input},
        answer=row.wanted if row.goal else None,
        group=row.group if group is None else group,
        split=row.split or Split.TRAIN,
        meta=meta,
    )


def said(given: Json) -> str:
    """An input as a text to compare with others: its words, or its JSON."""
    return given if isinstance(given, str) else canonical(given).decode()


def _wordy(given: Json) -> bool:
    """It holds a sentence, so two that nearly agree are nearly the same question."""
    values = given.values() if isinstance(given, dict) else given if isinstance(given, list) else [given]
    return any(isinstance(value, str) and len(value.split()) >= 4 for value in values)


def _compared(task: Task) -> Task:
    """With a text only where two that nearly agree are nearly the same question."""
    return task if _wordy(task.initial_state["input"]) else replace(task, instruction="")


def divided(rows: Sequence[Row], *, seed: int = 0) -> list[Row]:
    """The rows with a split each, by group (`division.divide`), without those that nearly repeat another side's.

    Groups stay as they are.  With fewer groups than splits the gate, then validation, gets nothing.

    Raises:
        GateError: one group was given two splits.
    """
    by_name = {f"{row.id}/{place}": row for place, row in enumerate(rows)}
    tasks = [replace(_compared(task_of(row, "")), id=name, split=row.split) for name, row in by_name.items()]
    done = divide(tasks, seed=seed)
    return [replace(by_name[task.id], split=task.split) for task in done.tasks]


def standing_of(rows: Sequence[Row]) -> Standing:
    """What the gate can show with these rows."""
    return standing([_compared(task_of(row, "")) for row in rows], [row.goal for row in rows])


def leaks(tasks: Iterable[Task]) -> Leakage:
    """What the gate's tasks share with those that anything is learned or chosen on; each is a row's."""
    sides: tuple[list[Task], list[Task]] = [], []
    for task in tasks:
        sides[task.split is Split.GATE].append(_compared(task))
    return leakage(*sides)


def write(folder: Path, rows: Sequence[Row]) -> dict[str, int]:
    """Write `train.jsonl`, `validation.jsonl` and `gate.jsonl`; returns how many rows each holds."""
    folder.mkdir(parents=True, exist_ok=True)
    counts = {}
    for part in FRACTIONS:
        mine = [row for row in rows if row.split is part]
        counts[part.value] = len(mine)
        text = b"".join(msgspec.json.encode(row) + b"\n" for row in mine)
        partial = folder / f"{part.value}.jsonl.partial"
        partial.write_bytes(text)
        partial.replace(folder / f"{part.value}.jsonl")
    return counts


def load(path: Path, *, seed: int = 0, note: Callable[[str], None] | None = None) -> list[Row]:
    """Rows of a folder that `write` made, or of one JSON Lines file, divided here as far as they have no splits.

    A row that repeats another is merged with it; rows that contradict each other, and rows that nearly repeat one of
    another side, are left out.

    Args:
        note: told what was merged and left out, a sentence each.

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
            f"there are no rows at {path}: give a JSON Lines file, or a folder that "
            "whet generate-training-data made"
        )
    tell = note or (lambda sentence: None)
    read = [row for part, file in files.items() if file.is_file() for row in _file(file, part)]
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


def merged(rows: Sequence[Row], tell: Callable[[str], None] = lambda sentence: None) -> list[Row]:
    """One row for each input, the first, with `repeats` in its provenance; those that contradict each other left out.

    Of rows with one input those that say what should come out speak, and they contradict each other where they say
    different things.  Two inputs under one id get ids of their own.

    Args:
        tell: told how many were merged, and of each contradiction where it is and what to do.
    """
    alike: dict[bytes, list[Row]] = {}
    for row in rows:
        alike.setdefault(canonical(row.input), []).append(row)
    kept: list[Row] = []
    taken: set[str] = set()
    repeated = 0
    for same in alike.values():
        spoken = [row for row in same if row.goal] or same
        answers = {canonical(row.wanted) for row in spoken if row.goal}
        if len(answers) > 1:
            where = ", ".join(f"{_where(row)} ({canonical(row.wanted).decode():.60})" for row in spoken)
            tell(
                f"contradiction: one input, several answers, on {where}; left out. Keep the right one, or put into "
                "the input whatever tells the cases apart"
            )
            continue
        # A side that was given goes before one that was not, and the gate's before the others.
        first = min(spoken, key=lambda row: _SIDES.index(row.split))
        repeated += len(same) - 1
        if len(same) > 1:
            first = replace(first, provenance={**first.provenance, "repeats": len(same)})
        if first.id in taken:
            first = replace(first, id=digest(["example", first.id, first.input]))
        taken.add(first.id)
        kept.append(first)
    if repeated:
        tell(f"{repeated} of {len(rows)} rows repeat the input of another, and are merged with it")
    return kept


_SIDES = (Split.GATE, Split.VALIDATION, Split.TRAIN, None)


def _where(row: Row) -> str:
    line = row.provenance.get("line")
    return f"line {line}" if line else f"row {row.id}"


def _file(path: Path, part: Split | None) -> Iterable[Row]:
    for number, given in numbered(path):
        where = f"{path}, line {number}"
        row = read_row(given, where)
        try:
            own = Split(given["split"]) if given.get("split") else part
        except ValueError as error:
            raise InputError(f"{where}: {error}; it must be train, validation or gate") from error
        yield replace(
            row,
            group=_name(given, "group", where),
            split=own,
            provenance=_provenance(given.get("provenance"), number, where),
            id=_name(given, "id", where),
        )


def _name(given: Mapping[str, Json], column: str, where: str) -> str:
    """A group or an id as text; "" where there is none. 0 is a name: people are numbered from it."""
    value = given.get(column)
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
