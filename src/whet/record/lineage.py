"""Lineage: a Version names the runs it was made from; files of rows lose those of an erased person.

A Version names the trajectories that it was made from, which erasure and retention follow (`Store.erase`).  A row of
a file names the one that it came from: a recorded row in `provenance.run`, a task in `meta.trajectories`, a
trajectory by its `id`.  A file that another trainer reads (`whet export`) names none and is left as it is: make it
anew.  Nothing but JSON Lines is looked into.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from ..atomic import write_whole
from ..errors import NotFoundError
from ..escapes import read_json
from ..types import Bundle, Group, Json, digest


def learned_from(
    groups: Sequence[Group], learned: Bundle, parent: Bundle, made: Mapping[str, Json] | None = None
) -> Bundle:
    """A Bundle whose new Versions say how they came about: in `meta["data"]` and `meta["made"]`.

    `data` is the ids of the trajectories of the groups and of those that their tasks were made of, with what the
    Version before was made from.  Erasing a person, and retention, find by it which Versions learned from what
    (`Store.erase`).  `made` counts and hashes what was learned from, beside what the caller knows.  Neither is part
    of a Version's id.

    Args:
        made: the experiment, its seed and rewards, the learner and what it spent.
    """
    sources = {run.id for group in groups for run in group.trajectories}
    for group in groups:
        named = group.task.meta.get("trajectories")
        sources.update(run for run in named or () if isinstance(run, str))
    tasks = sorted({group.task.id for group in groups})
    counted: dict[str, Json] = {
        "tasks": len(tasks),
        # A task without a group stands alone.
        "groups": len({group.task.group or group.task.id for group in groups}),
        "runs": len(sources),
        "hash": digest([tasks, sorted(sources)]),
    }
    versions = []
    for name, version in learned.items():
        before = parent.get(name)
        if before is None or before.id != version.id:
            earlier = [meta.get("data") for meta in (version.meta, before.meta if before else {})]
            data = sources.union(*(ids for ids in earlier if isinstance(ids, list | tuple)))
            # Sorted: a set of texts has another order in each process, and one run must give one record.
            meta = {**version.meta, "made": {**(made or {}), "data": counted}}
            version = replace(version, meta=meta | ({"data": sorted(data)} if sources else {}))
        versions.append(version)
    return Bundle(versions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgotten:
    """The rows taken out of one file."""

    path: str
    rows: int
    left: int
    unnamed: int = 0
    """Rows left that do not say where they came from."""


def forget(paths: Sequence[Path], erased: Collection[str]) -> list[Forgotten]:
    """Take out the rows that came from erased trajectories alone; a changed file is replaced whole.

    Args:
        paths: files, or folders whose `*.jsonl` are meant, those of folders inside too.
        erased: ids of trajectories and runs (`Store.erased`).

    Raises:
        NotFoundError: there is nothing at a path.
    """
    return [_file(path, erased) for path in _files(paths)]


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        if not path.exists():
            raise NotFoundError(f"there is nothing at {path}: give a file of rows, or a folder with some")
        yield from [path] if path.is_file() else sorted(path.rglob("*.jsonl"))


def _file(path: Path, erased: Collection[str]) -> Forgotten:
    remaining: list[bytes] = []
    gone = unnamed = 0
    changed = False
    # Of bytes: `str.splitlines` also cuts at U+2028, which JSON may hold in a text.
    for line in path.read_bytes().splitlines(keepends=True):
        try:
            # With half characters mended: a row that msgspec alone cannot read may be an erased person's.
            row = read_json(msgspec.json.decode, line)
        except msgspec.DecodeError:
            row = None  # a blank line, or no JSON: not ours
        named = _sources(row)
        unnamed += row is not None and named is None
        # A task that somebody else's run asked for too stays, without the name of the erased one.
        if named and all(id in erased for id in named):
            gone += 1
            continue
        if named and isinstance(row, dict) and _without(row, erased):
            line, changed = msgspec.json.encode(row) + b"\n", True
        remaining.append(line)  # byte for byte, whatever it is
    if gone or changed:
        write_whole(path, remaining)
    return Forgotten(path=str(path), rows=gone, left=len(remaining), unnamed=unnamed)


def _sources(row: Any) -> list[str] | None:
    """Ids of the trajectories that a row is or came from; None if it does not say."""
    if not isinstance(row, dict):
        return None
    if isinstance(row.get("steps"), list) and "task" in row:
        return [row["id"]] if isinstance(row.get("id"), str) else None
    run = _inside(row, "provenance").get("run")
    if isinstance(run, str):
        return [run]
    listed = _inside(row, "meta").get("trajectories")
    return [id for id in listed if isinstance(id, str)] if isinstance(listed, list) and listed else None


def _without(row: dict[str, Any], erased: Collection[str]) -> bool:
    """Take the erased out of a task's list; whether any was there."""
    listed = _inside(row, "meta").get("trajectories")
    if not isinstance(listed, list) or not any(id in erased for id in listed):
        return False
    row["meta"]["trajectories"] = [id for id in listed if id not in erased]
    return True


def _inside(row: dict[str, Any], name: str) -> dict[str, Any]:
    inner = row.get(name)
    return inner if isinstance(inner, dict) else {}
