"""Erasure of a person: what is taken out of the record, what is marked, what remains.

Erasing deletes what came from the person (trajectories and what they were before, spans, feedback,
tasks made of them, preferences that they gave) and leaves tombstones, ids without content, so that
a late span or a repeated write does not bring it back.  What was learned from it cannot be
unlearned: a Version whose `meta["data"]` names an erased trajectory is marked instead, and the
report says so.  Deleted content is overwritten in the file.

It cannot reach what left the record: exports, backups, weights, the files of an upstream model.
`erase` runs in the owner's transaction; `Store.erase` calls it.  `retain.py` takes out what is old.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from ..errors import InputError
from ..types import Json, new_id
from .access import Access
from .naming import Naming, column, listed, up_to_now
from .subjects import PREFIX


@dataclass(frozen=True, slots=True, kw_only=True)
class Erased:
    """What an erasure, or a turn of retention, did; figures are rows."""

    at: float = 0.0
    """Unix time in seconds."""
    trajectories: int = 0
    revisions: int = 0
    spans: int = 0
    feedback: int = 0
    tasks: int = 0
    preferences: int = 0
    rollouts: int = 0
    versions: tuple[str, ...] = ()
    """Ids of Versions that were made from erased trajectories, and are marked so."""
    live: tuple[str, ...] = ()
    """Names under which such a Version is live."""
    open_rollouts: tuple[str, ...] = ()
    """Rollouts of erased tasks that had not ended."""
    remains: tuple[str, ...] = field(default=())
    """What could not be taken out, in words."""


ERASURES = "SELECT coalesce(max(value), 0) FROM counters WHERE name = 'erasures'"
"""How many people were erased so far: what was read before the last of them is not to be written back."""
FIGURES = ("trajectories", "revisions", "spans", "feedback", "tasks", "preferences", "rollouts")


def erase(connection: sqlite3.Connection, id: str, subject: str, at: float, naming: str) -> None:
    """Take a person out and keep the report under `id`; doing it again under that id does nothing.

    Args:
        naming: `Naming` as JSON.
    """
    if connection.execute("SELECT 1 FROM erasures WHERE id = ?", (id,)).fetchone():
        return
    sessions = column(
        connection,
        "SELECT DISTINCT session FROM trajectories WHERE subject = ? AND session IS NOT NULL",
        subject,
    )
    rows = _rows(
        connection,
        "subject = ? OR (subject IS NULL AND session IN (SELECT value FROM json_each(?)))",
        subject,
        listed(sessions),
    )
    report: dict[str, Any] = {"at": at, **dict.fromkeys(FIGURES, 0), "open_rollouts": [], "_shared": 0}
    ids: list[str] = []
    programs: set[str] = set()
    of = up_to_now(connection, subject, msgspec.json.decode(naming, type=Naming))
    mixed = _mixed(connection, of)
    rows += [row for row in mixed if row not in rows]
    first = True
    while rows or first:  # what was run on a task that came from the person came from them too
        fresh = [row.id for row in rows]
        ids += fresh
        programs |= {row.process_run for row in rows if row.process_run is not None}
        counts, shared = _erase_rows(connection, rows, of, at, {row.id for row in mixed})
        programs |= shared
        tasks, gone = _erase_tasks(connection, fresh, sorted({row.task_id for row in rows}))
        for figures in (counts, tasks):
            report |= {name: report[name] + value for name, value in figures.items()}
        rows, first = _run_on(connection, subject, gone, ids), False
    report["revisions"] += _erase_programs(connection, sorted(programs))
    report["feedback"] += delete(
        connection, "feedback WHERE session IN (SELECT value FROM json_each(?))", listed(sessions)
    )
    report["preferences"] = delete(
        connection, "preferences WHERE json_extract(CAST(body AS TEXT), '$.annotator') = ?", subject
    )
    delete(connection, "states WHERE key = ?", f"{PREFIX}{subject}")
    report |= _mark_versions(connection, ids, at)
    report["remains"] = [
        *_unclaimed(connection, sorted(programs)),
        *_went_along(mixed),
        *_remains(connection, subject, report),
    ]
    connection.execute("INSERT INTO erasures VALUES (?, ?, ?)", (id, at, msgspec.json.encode(report)))
    connection.execute(
        "INSERT INTO counters VALUES ('erasures', 1) ON CONFLICT (name) DO UPDATE SET value = value + 1"
    )


class _Row(NamedTuple):
    id: str
    run: str | None
    task_id: str
    process_run: str | None
    body: bytes


def _rows(connection: sqlite3.Connection, where: str, *values: str) -> list[_Row]:
    query = f"SELECT DISTINCT t.id, run, task_id, process_run, body FROM trajectories t WHERE {where}"
    return [_Row(*row) for row in connection.execute(query, values)]


def _run_on(
    connection: sqlite3.Connection, subject: str, tasks: Sequence[str], erased: Sequence[str]
) -> list[_Row]:
    """What was run by an experiment or a worker on these tasks, or on one made of erased trajectories alone."""
    return _rows(
        connection,
        "(subject IS NULL OR subject = ?1) AND ("
        "(task_id IN (SELECT value FROM json_each(?2)) AND "
        "(experiment IS NOT NULL OR id IN (SELECT trajectory FROM rollouts WHERE trajectory IS NOT NULL))) "
        # Looked through only where there is such a list, so that a large record is not decoded for it.
        'OR (instr(body, CAST(\'"trajectories":["\' AS BLOB)) > 0 AND EXISTS '
        "(SELECT 1 FROM json_each(CAST(body AS TEXT), '$.task.meta.trajectories')) AND NOT EXISTS "
        "(SELECT 1 FROM json_each(CAST(body AS TEXT), '$.task.meta.trajectories') source "
        "WHERE source.value NOT IN (SELECT value FROM json_each(?3)))))",
        subject,
        listed(tasks),
        listed(erased),
    )


def _mixed(connection: sqlite3.Connection, named: Naming) -> list[_Row]:
    """Trajectories of runs that are other people's too, with a step that was read from a call of this person."""
    found = _rows(
        connection,
        "run IN (SELECT value FROM json_each(?1)) OR id IN (SELECT value FROM json_each(?2))",
        listed(named.runs),
        listed(sorted(named.shared)),
    )
    own = {id for _, id in named.calls}
    return [
        row
        for row in found
        for body in [msgspec.json.decode(row.body)]
        if any(own & set((step.get("info") or {}).get("span_ids", ())) for step in body.get("steps", ()))
    ]


def _went_along(mixed: Sequence[_Row]) -> list[str]:
    if not mixed:
        return []
    return [
        f"of runs that served several people {len(mixed)} trajectories went as a whole; the others' model "
        "calls stay, and are read again when the run's next call arrives. Give each request a run: whet.run()."
    ]


def _erase_rows(
    connection: sqlite3.Connection, rows: Sequence[_Row], named: Naming, at: float, again: set[str]
) -> tuple[dict[str, int], set[str]]:
    """Delete trajectories with what they were before, their spans and what was said of them.

    Args:
        again: those of which the calls of others stay, to be read again under the same id.

    Returns:
        Figures for the report, and the runs that go on, because they are other people's too.
    """
    ids = [row.id for row in rows]
    runs = sorted({row.run for row in rows if row.run is not None})
    inside = "IN (SELECT value FROM json_each(?))"
    shared = set(named.runs).intersection(runs) | set(
        column(
            connection,
            f"SELECT DISTINCT run FROM trajectories WHERE run {inside} AND id NOT {inside}",
            listed(runs),
            listed(ids),
        )
    )
    trace_ids = set(named.traces)
    single = [(bytes.fromhex(trace), bytes.fromhex(id)) for trace, id in named.calls]
    for row in rows:
        if row.id not in again:
            body = msgspec.json.decode(row.body)
            trace_ids.update(body.get("trace_ids", ()))
            single += _taken_over(body)
    trace_ids -= named.shared
    names = sorted({*ids, *runs} - shared - again)
    connection.executemany(
        "INSERT OR IGNORE INTO tombstones VALUES (?, ?, ?)",
        [("run", name, at) for name in names] + [("trace", trace, at) for trace in sorted(trace_ids)],
    )
    return {
        "spans": _erase_spans(connection, sorted(trace_ids), names, single),
        "revisions": delete(connection, f"trajectory_revisions WHERE id {inside}", listed(ids)),
        "trajectories": delete(connection, f"trajectories WHERE id {inside}", listed(ids)),
        "feedback": delete(connection, f"feedback WHERE run {inside}", listed(sorted({*names, *ids}))),
    }, shared


def _taken_over(body: dict[str, Any]) -> list[tuple[bytes, bytes]]:
    """Spans of other traces that steps were read from: calls of a whole program's run (`tracing/join.py`)."""
    own = set(body.get("trace_ids", ()))
    told = [step.get("info") or {} for step in body.get("steps", ())]
    return [
        (bytes.fromhex(info["trace_id"]), bytes.fromhex(id))
        for info in told
        if "trace_id" in info and info["trace_id"] not in own
        for id in info.get("span_ids", ())
    ]


def _erase_programs(connection: sqlite3.Connection, runs: Sequence[str]) -> int:
    """Take out what the runs of whole programs were before: their model calls may have been there first."""
    gone = 0
    for run in runs:
        mark = b'"run":' + msgspec.json.encode(run)
        gone += delete(
            connection,
            "trajectory_revisions WHERE id IN (SELECT id FROM trajectory_revisions WHERE instr(body, ?) > 0)",
            mark,
        )
    return gone


def _unclaimed(connection: sqlite3.Connection, runs: Sequence[str]) -> list[str]:
    """Runs of whole programs with model calls that no traced call took over."""
    found = column(
        connection,
        "SELECT DISTINCT run FROM trajectories WHERE run IN (SELECT value FROM json_each(?)) "
        "AND instr(body, CAST('\"function\":' AS BLOB)) = 0",
        listed(runs),
    )
    return [
        f"the run {run!r} of a whole program has model calls that no traced run claimed; some may be this "
        f"person's: whet show trajectories --run {run}"
        for run in found
    ]


def _erase_spans(
    connection: sqlite3.Connection,
    traces: Sequence[str],
    runs: Sequence[str],
    single: Sequence[tuple[bytes, bytes]],
) -> int:
    keys = [bytes.fromhex(trace) for trace in traces if len(trace) == 32]
    total = 0
    for number in column(connection, "SELECT number FROM segments"):
        before = connection.total_changes
        connection.executemany(f"DELETE FROM spans_{number} WHERE trace = ?", [(key,) for key in keys])
        connection.executemany(f"DELETE FROM spans_{number} WHERE run = ?", [(run,) for run in runs])
        connection.executemany(f"DELETE FROM spans_{number} WHERE trace = ? AND id = ?", single)
        gone = connection.total_changes - before
        connection.execute("UPDATE segments SET rows = rows - ? WHERE number = ?", (gone, number))
        total += gone
    return total


def _erase_tasks(
    connection: sqlite3.Connection, ids: Sequence[str], tasks: Sequence[str]
) -> tuple[dict[str, Any], list[str]]:
    """Delete the tasks that came from the trajectories alone; take the others' mention of them out.

    Returns:
        Figures for the report, and the ids of what was deleted.
    """
    gone = column(
        connection,
        "SELECT t.id FROM tasks t WHERE t.id IN (SELECT value FROM json_each(?)) "
        "AND NOT EXISTS (SELECT 1 FROM trajectories WHERE task_id = t.id)",
        listed(tasks),
    )
    derived = connection.execute(
        "SELECT DISTINCT t.id, t.body FROM tasks t, json_each(CAST(t.body AS TEXT), '$.meta.trajectories') AS source "
        "WHERE source.value IN (SELECT value FROM json_each(?))",
        (listed(ids),),
    ).fetchall()
    shared = 0
    for id, body in derived:
        task = msgspec.json.decode(body)
        left = [name for name in task["meta"]["trajectories"] if name not in set(ids)]
        if not left:
            gone.append(id)
        elif id not in gone:
            shared += 1
            task["meta"]["trajectories"] = left
            connection.execute("UPDATE tasks SET body = ? WHERE id = ?", (msgspec.json.encode(task), id))
    gone = sorted(set(gone))
    inside = listed(gone)
    waiting = column(
        connection,
        "SELECT id FROM rollouts WHERE done IS NULL AND task_id IN (SELECT value FROM json_each(?)) ORDER BY seq",
        inside,
    )
    count = delete(connection, "tasks WHERE id IN (SELECT value FROM json_each(?))", inside)
    return {"tasks": count, "open_rollouts": waiting, "_shared": shared}, gone


def _mark_versions(connection: sqlite3.Connection, ids: Sequence[str], at: float) -> dict[str, Json]:
    """Say of each Version that it was made from erased trajectories, and take their ids out of its data."""
    erased = set(ids)
    marked = connection.execute(
        "SELECT DISTINCT v.id, v.body FROM versions v, json_each(CAST(v.body AS TEXT), '$.meta.data') AS source "
        "WHERE source.value IN (SELECT value FROM json_each(?)) ORDER BY v.seq",
        (listed(ids),),
    ).fetchall()
    for id, body in marked:
        version = msgspec.json.decode(body)
        data = version["meta"]["data"]
        left = [name for name in data if name not in erased] if isinstance(data, list) else []
        version["meta"]["data"] = left
        before = version["meta"].get("erased") or {}
        version["meta"]["erased"] = {
            "note": "trained on erased data",
            "at": at,
            "trajectories": before.get("trajectories", 0) + len(data) - len(left),
        }
        connection.execute("UPDATE versions SET body = ? WHERE id = ?", (msgspec.json.encode(version), id))
    names = {id for id, _ in marked}
    releases = connection.execute("SELECT name, body, max(seq) FROM releases GROUP BY name").fetchall()
    live = [name for name, body, _ in releases if names & set(msgspec.json.decode(body))]
    return {"versions": [id for id, _ in marked], "live": live}


def _remains(connection: sqlite3.Connection, subject: str, report: dict[str, Any]) -> list[str]:
    said = []
    if report["versions"]:
        said.append(
            f"{len(report['versions'])} of the Versions were made from erased trajectories and are marked; what "
            "was learned from them is still there. Train anew, or retire them."
        )
    if report["live"]:
        said.append(f"such a Version is live as {', '.join(report['live'])}.")
    if shared := report.pop("_shared"):
        said.append(
            f"{shared} tasks were also made from other people's runs and stay; their answers may rest on what "
            "this person said."
        )
    if report["open_rollouts"]:
        said.append(f"{len(report['open_rollouts'])} rollouts of erased tasks had not ended; cancel them.")
    others = connection.execute("SELECT count(*) FROM preferences").fetchone()[0]
    if others:
        said.append(f"{others} preference pairs name no run; if some hold this person's words they remain.")
    text = msgspec.json.encode(subject)
    for (key,) in connection.execute(
        "SELECT key FROM states WHERE instr(body, ?) ORDER BY key", (text,)
    ).fetchall():
        said.append(f"the state {key!r} mentions this person.")
    said.append("copies outside this file (exports, backups, artifacts of training) were not touched.")
    return said


def erase_subject(store: Access, subject: str, naming: Naming) -> Erased:
    """See `Store.erase`; `naming` says which spans name the person."""
    if not subject:
        raise InputError("erase needs the id of a subject.")
    return taken_out(store, "erase", new_id(), subject, time.time(), listed(msgspec.to_builtins(naming)))


def taken_out(store: Access, key: str, id: str, *row: str | float) -> Erased:
    """Have the owner do it, and read the report that it kept under `id`."""
    store.write([(key, [(id, *row)])]).result()
    ((body,),) = store.rows("SELECT body FROM erasures WHERE id = ?", [id])
    return msgspec.json.decode(body, type=Erased)


def delete(connection: sqlite3.Connection, what: str, *values: Any) -> int:
    """Delete from `what`, a table and its condition; how many rows."""
    return connection.execute(f"DELETE FROM {what}", values).rowcount
