"""Rows of a file → one `TaskResult` per task, by one metric between 0 and 1, with everything lost said.

The same for every format. Nothing is guessed that decides: of several metrics one has to be named, a score outside
0 to 1 needs a range, and a file most of whose rows are broken is refused.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...errors import InputError
from ...types import Json, Outcome
from ..results import TaskResult
from . import read_rows
from .file import ResultFile
from .rows import Reading, Row, as_score, as_text

_SHOWN = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadAs:
    """How files are read, where that is not left to their file."""

    format: str = ""
    metric: str = ""
    """The metric that decides."""
    group: str = ""
    """The field whose value tasks share; `group` where there is such a one."""
    id: str = ""
    """The column of a table that names the task."""
    range: tuple[float, float] | None = None
    """The worst and the best score there is; 0 and 1 where none is given."""
    guards: Sequence[str] = ()
    """Scores or fields that must not get worse, whatever their range."""


@dataclass(frozen=True, slots=True)
class Outcomes:
    """One side: what was read, and what was not."""

    path: str
    format: str
    metric: str
    results: Sequence[TaskResult]
    absent: int = 0
    """Rows whose task may be missing: broken ones, and such that say that it was not run."""
    notes: Sequence[str] = field(default_factory=tuple)


def read_sides(paths: Sequence[Path], how: ReadAs, variants: Sequence[str] | None = None) -> list[Outcomes]:
    """The sides of a comparison, by a metric that all of them have.

    Args:
        variants: which prompt, model or run of each file, where one holds several.

    Raises:
        InputError: a file cannot be read, or does not say by which metric; says what to do.
    """
    readings = []
    for path, variant in zip(paths, variants or [""] * len(paths), strict=True):
        reading = read_rows(ResultFile(path), format=how.format, metric=how.metric, id=how.id)
        _refuse_broken(path, reading)
        _choose_variant(path, reading, variant)
        readings.append(reading)
    metric = _metric(paths, readings, how)
    return [_outcomes(path, reading, metric, how) for path, reading in zip(paths, readings, strict=True)]


def of_rows(rows: Sequence[Mapping[str, object]], name: str, guards: Sequence[str] = ()) -> Outcomes:
    """Rows of whet's own form that are in memory.

    Args:
        guards: as in `ReadAs`.

    Raises:
        InputError: as of a file of them.
    """
    import msgspec

    from .own import row

    bodies = ((f"row {number}", msgspec.json.encode(fields)) for number, fields in enumerate(rows, 1))
    reading = Reading("whet", primary="success").take(bodies, row)
    _refuse_broken(Path(name), reading)
    return _outcomes(Path(name), reading, "success", ReadAs(guards=guards))


def _refuse_broken(path: Path, reading: Reading) -> None:
    if 2 * len(reading.unread) >= reading.total and reading.unread:
        raise InputError(f"{path}: {reading.losses()}. A file most of which is broken is not compared")
    if not reading.rows:
        raise InputError(
            f"{path} holds no outcomes" + (f": {reading.skipped} were skipped" if reading.skipped else "")
        )


def _choose_variant(path: Path, reading: Reading, variant: str) -> None:
    counts = Counter(row.variant for row in reading.rows)
    if variant:
        matching = [name for name in counts if variant in name]
        exact = [variant] if variant in counts else matching
        if len(exact) != 1:
            raise InputError(f"{path}: {variant!r} names {len(exact)} of its variants: {_listed(counts)}")
        reading.rows = [row for row in reading.rows if row.variant == exact[0]]
    elif len(counts) > 1:
        raise InputError(
            f"{path} holds {len(counts)} variants side by side: {_listed(counts)}. "
            "Say which to compare with --variant A B, in any part of their names, and give the file twice"
        )


def _metric(paths: Sequence[Path], readings: Sequence[Reading], how: ReadAs) -> str:
    held = [_metrics(reading) for reading in readings]
    if how.metric:
        for path, metrics in zip(paths, held, strict=True):
            if how.metric not in metrics:
                raise InputError(f"{path} has no metric {how.metric!r}: it has {_listed(metrics) or 'none'}")
        return how.metric
    primary = readings[0].primary
    if primary and all(reading.primary == primary for reading in readings):
        return primary
    common = [name for name in held[0] if all(name in metrics for metrics in held)]
    if len(common) == 1:
        return common[0]
    if not common:
        each = "; ".join(
            f"{path} has {_listed(metrics) or 'none'}" for path, metrics in zip(paths, held, strict=True)
        )
        raise InputError(f"the files have no metric in common: {each}")
    raise InputError(
        f"{paths[0]} has {len(common)} metrics: {_listed({name: held[0][name] for name in common})}. "
        f"Name the one that decides: --metric {_quoted(common[0])}"
    )


def _metrics(reading: Reading) -> Counter[str]:
    """Metric → rows that have a value of it."""
    counts: Counter[str] = Counter()
    for row in reading.rows:
        if (
            row.outcome is not Outcome.UNKNOWN
            and reading.primary == "success"
            and "success" not in row.scores
        ):
            counts["success"] += 1
        for name, value in row.scores.items():
            counts[name] += value is not None
    return counts


def _outcomes(path: Path, reading: Reading, metric: str, how: ReadAs) -> Outcomes:
    by_task: dict[str, list[Row]] = defaultdict(list)
    scores: dict[str, list[float | None]] = defaultdict(list)
    usable = []
    for row in reading.rows:
        try:
            value = as_score(row.scores.get(metric), metric)
        except InputError as error:
            reading.unread.append((row.where, str(error)))
            continue
        usable.append((row, value))
    reading.rows = [row for row, _ in usable]
    _refuse_broken(path, reading)
    _refuse_range(path, usable, metric, how)
    for row, value in usable:
        by_task[row.task].append(row)
        scores[row.task].append(value if value is None else _scaled(value, how.range))
    for guard in how.guards:
        if all(_guarded(row, guard) is None for row, _ in usable):
            fields = dict.fromkeys([*_metrics(reading), *(usable[0][0].fields if usable else ())])
            if guard in fields:
                raise InputError(
                    f"{path} has no number in {guard!r} of any of its {len(usable)} results, and it must not get worse"
                )
            held = ", ".join([*map(str, fields)][:_SHOWN])
            raise InputError(f"{path} says nothing of {guard!r}, which must not get worse: it has {held}")
    results = [_result(path, task, rows, scores[task], metric, how) for task, rows in by_task.items()]
    notes = _notes(path, reading, metric, by_task)
    return Outcomes(str(path), reading.format, metric, results, len(reading.unread) + reading.skipped, notes)


def _notes(path: Path, reading: Reading, metric: str, by_task: Mapping[str, Sequence[Row]]) -> list[str]:
    notes = list(reading.notes)
    if reading.format not in ("whet", "table"):
        others = [name for name in _metrics(reading) if name != metric]
        also = f" (--metric takes {', '.join(others[:_SHOWN])}, too)" if others else ""
        notes.append(f"{path}: {len(reading.rows)} results of {reading.format}, by {metric!r}{also}.")
    if reading.unread:
        notes.append(f"{path}: {reading.losses()}.")
    if reading.skipped:
        notes.append(
            f"{path}: {reading.skipped} of {reading.total} tests were skipped: they did not run, and did not fail."
        )
    repeated = [len(rows) for rows in by_task.values() if len(rows) > 1]
    if repeated:
        upto = f"to {max(repeated)} " if max(repeated) > min(repeated) else ""
        notes.append(
            f"{path}: {len(repeated)} of {len(by_task)} tasks were run {min(repeated)} {upto}times, and count once "
            "each, by their mean."
        )
    return notes


def _refuse_range(path: Path, usable: Sequence[tuple[Row, float | None]], metric: str, how: ReadAs) -> None:
    outside = [
        (row, value) for row, value in usable if value is not None and not 0 <= _scaled(value, how.range) <= 1
    ]
    if not outside:
        return
    row, value = outside[0]
    values = [value for _, value in usable if value is not None]
    lowest, highest = min(values), max(values)
    if how.range is None:
        remedy = (
            f"scores are compared between 0 and 1, and none is clipped. Say which score is the worst there can be and "
            f"which the best: --range {min(lowest, 1):g} {highest:g} makes {min(lowest, 1):g} into 0 and {highest:g} "
            "into 1, if those are they; where lower is better, the larger number comes first"
        )
    else:
        remedy = f"--range {how.range[0]:g} {how.range[1]:g} does not hold it: give the widest that the metric can have"
    raise InputError(
        f"{path}, {row.where}: {metric} {value:g} lies outside, as {len(outside)} of {len(usable)} do, "
        f"from {lowest:g} to {highest:g}; {remedy}"
    )


def _scaled(value: float, range: tuple[float, float] | None) -> float:
    if range is None:
        return value
    worst, best = range
    return (value - worst) / (best - worst)


def _result(
    path: Path, task: str, rows: Sequence[Row], scores: Sequence[float | None], metric: str, how: ReadAs
) -> TaskResult:
    """Runs of one task as one: the mean over those that no machine broke, None where one of them has no score."""
    group = how.group
    groups = {as_text(_field(row, group), group) if group else _shared(row) for row in rows}
    if len(groups) > 1:
        raise InputError(
            f"{path}: task {task[:80]!r} stands in several groups: {', '.join(sorted(groups))[:120]}"
        )
    (named,) = groups
    unbroken = [
        (row, score)
        for row, score in zip(rows, scores, strict=True)
        if row.outcome is not Outcome.INFRASTRUCTURE_ERROR
    ]
    if not unbroken:
        return TaskResult(task=task, group=named, outcome=Outcome.INFRASTRUCTURE_ERROR)
    values = [_value(row, score, metric) for row, score in unbroken]
    known = [value for value in values if value is not None]
    held: dict[str, float | None] = {metric: sum(known) / len(known) if len(known) == len(values) else None}
    costs = [row.cost for row, _ in unbroken if row.cost is not None]
    if costs:
        held["cost"] = sum(costs) / len(costs)
    for guard in how.guards:
        amounts = [amount for row, _ in unbroken if (amount := _guarded(row, guard)) is not None]
        if guard != metric:
            held[guard] = sum(amounts) / len(amounts) if amounts else None
    return TaskResult(task=task, group=named, scores=held)


def _guarded(row: Row, name: str) -> float | None:
    """What a row says of something that must not get worse; None where it says nothing that is a number."""
    if name == "cost" and row.cost is not None:
        return row.cost
    try:
        value = row.scores[name] if name in row.scores else _field(row, name)
    except InputError:
        return None
    try:
        amount = float(value) if isinstance(value, str) else value
    except ValueError:
        return None
    known = isinstance(amount, int | float) and math.isfinite(amount)  # True and False are 1 and 0
    return float(amount) if known else None


def _value(row: Row, score: float | None, metric: str) -> float | None:
    if metric not in row.scores and row.outcome is not Outcome.UNKNOWN:
        return float(row.outcome is Outcome.SUCCESS)
    return score


def _shared(row: Row) -> str:
    """The group of a row that has one under that very name."""
    value = row.fields.get("group")
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""


def _field(row: Row, name: str) -> Json:
    value: Json = row.fields
    if name in row.fields:
        return row.fields[name]
    for part in name.split("."):
        if not isinstance(value, Mapping) or part not in value:
            raise InputError(
                f"{row.where}: it has no {name!r} to group by; it has {', '.join(map(str, list(row.fields)[:_SHOWN]))}"
            )
        value = value[part]
    return value


def _listed(counts: Mapping[str, int]) -> str:
    shown = ", ".join(f"{name} ({count} rows)" for name, count in list(counts.items())[:_SHOWN])
    return shown + (f" and {len(counts) - _SHOWN} more" if len(counts) > _SHOWN else "")


def _quoted(name: str) -> str:
    return (
        name
        if name.replace("_", "").replace("/", "").replace(",", "").replace("-", "").isalnum()
        else f"'{name}'"
    )
