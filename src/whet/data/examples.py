"""Rows that a function is judged on: what goes in, what is known to come out, and where that is from.

JSON Lines, one file per split; the columns are those that `reward.rows` reads, so the same file goes to
`whet generate-evaluators`, `whet audit` and `whet evolve`.  A row without `expected` and without a
label says only what the function answers today: it shows what changes, and is not a goal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from ..errors import InputError, NotFoundError
from ..escapes import read_json
from ..reward.rows import read_row
from ..reward.variants import Row
from ..types import Json, Split, Task, canonical, digest
from .splits import FRACTIONS, Leakage, leakage, split


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One row."""

    input: Json = None
    output: Json = None
    """What the function answered; for a row that was recorded or run."""
    expected: Json = None
    """What it should answer, where somebody or something said so."""
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
    def row(self) -> Row:
        """As evaluators take it."""
        return Row(self.input, self.output, self.expected, self.label)

    @property
    def goal(self) -> bool:
        """It says what should come out: expected, or an output that people liked."""
        return self.expected is not None or (self.label is not None and self.label > 0)

    @property
    def wanted(self) -> Json:
        """What should come out; None where only people's dislike, or nothing, is known."""
        if self.expected is not None:
            return self.expected
        return self.output if self.goal else None


def said(given: Json) -> str:
    """An input as a text to compare with others: its words, or its JSON."""
    return given if isinstance(given, str) else canonical(given).decode()


def _wordy(given: Json) -> bool:
    """It holds a sentence, so two that nearly agree are nearly the same question."""
    values = given.values() if isinstance(given, dict) else given if isinstance(given, list) else [given]
    return any(isinstance(value, str) and len(value.split()) >= 4 for value in values)


def _task(row: Example, group: str = "") -> Task:
    return Task(id=row.id, instruction=said(row.input), group=group or row.group, split=row.split)


def divided(rows: Sequence[Example], *, seed: int = 0) -> list[Example]:
    """The rows with a split each, by group; rows that say nearly the same are one group.

    With fewer groups than splits the gate, then validation, gets nothing.

    Raises:
        GateError: one group was given two splits.
    """
    keys = _keys(rows)
    tasks = [_task(row, key) for row, key in zip(rows, keys, strict=True)]
    groups = len(set(keys))
    fractions = FRACTIONS if groups >= 3 else {Split.TRAIN: 1.0}
    if groups == 2:
        fractions = {Split.TRAIN: 0.6, Split.VALIDATION: 0.4}
    found = split(tasks, seed=seed, fractions=fractions, balanced=True) if tasks else []
    # A group of its own making is nobody's business: it is kept where rows do share something.
    shared = {key for key in keys if keys.count(key) > 1}
    return [
        replace(row, split=task.split, group=key if key in shared else row.group)
        for row, task, key in zip(rows, found, keys, strict=True)
    ]


def _keys(rows: Sequence[Example]) -> list[str]:
    """The group of each row: its own, joined with that of rows that it nearly repeats."""
    above: dict[str, str] = {}

    def root(key: str) -> str:
        while above.setdefault(key, key) != key:
            key = above[key]
        return key

    own = {row.id: row.group or row.id for row in rows}
    for key in own.values():
        root(key)
    wordy = [_task(row, own[row.id]) for row in rows if _wordy(row.input)]
    found = leakage(wordy, wordy)
    for one, other in [*found.same, *((one, other) for one, other, _ in found.near)]:
        first, second = sorted((root(own[one]), root(own[other])))
        above[second] = first
    return [root(own[row.id]) for row in rows]


def leaks(rows: Iterable[Example]) -> Leakage:
    """What the gate's rows share with those that anything is learned or chosen on."""
    listed = list(rows)
    learned = [row for row in listed if row.split is not Split.GATE]
    held = [row for row in listed if row.split is Split.GATE]
    exact = {row.id for row in learned} & {row.id for row in held}
    groups = ({row.group for row in learned} & {row.group for row in held}) - {""}
    found = leakage(
        [_task(row) for row in learned if _wordy(row.input)],
        [_task(row) for row in held if _wordy(row.input)],
    )
    return replace(found, ids=tuple(sorted(exact)), groups=tuple(sorted(groups)))


def write(folder: Path, rows: Sequence[Example]) -> dict[str, int]:
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


def load(path: Path, *, seed: int = 0) -> list[Example]:
    """Rows of a folder that `write` made, or of one JSON Lines file, which is divided here.

    Raises:
        NotFoundError: there is nothing at the path.
        InputError: a line is no row, or the folder holds no rows.
    """
    if path.is_file():
        rows = list(_file(path, None))
        return rows if all(row.split for row in rows) else divided(rows, seed=seed)
    files = {part: path / f"{part.value}.jsonl" for part in FRACTIONS}
    if not any(each.is_file() for each in files.values()):
        raise NotFoundError(
            f"there are no rows at {path}: give a JSON Lines file, or a folder that "
            "whet generate-training-data made"
        )
    rows = [row for part, each in files.items() if each.is_file() for row in _file(each, part)]
    if not rows:
        raise InputError(f"{path} holds no rows")
    return rows


_objects = msgspec.json.Decoder(dict[str, Any])


def _file(path: Path, part: Split | None) -> Iterable[Example]:
    seen: dict[str, int] = {}
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            given = read_json(_objects.decode, line)
        except msgspec.MsgspecError as error:
            raise InputError(f"{where}: not a JSON object ({error})") from error
        row = read_row(given, where)
        try:
            own = Split(given["split"]) if given.get("split") else part
        except ValueError as error:
            raise InputError(f"{where}: {error}; it must be train, validation or gate") from error
        found = Example(
            input=row.input,
            output=row.output,
            expected=row.expected,
            label=row.label,
            group=str(given.get("group") or ""),
            split=own,
            provenance=given.get("provenance") or {"how": "file", "line": number},
            id=str(given.get("id") or ""),
        )
        if found.id in seen:
            raise InputError(
                f"{where}: the same input, or id, as on line {seen[found.id]}; take one out, for a row that is "
                "there twice cannot be held back"
            )
        seen[found.id] = number
        yield found
