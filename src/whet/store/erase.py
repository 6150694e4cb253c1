"""Erasure of a person, and retention: what is taken out of the record, what is marked, what remains.

Erasing deletes what came from the person (trajectories and what they were before, spans, feedback,
tasks made of them, preferences that they gave) and leaves tombstones, ids without content, so that
a late span or a repeated write does not bring it back.  What was learned from it cannot be
unlearned: a Version whose `meta["data"]` names an erased trajectory is marked instead, and the
report says so.  Deleted content is overwritten in the file.

It cannot reach what left the record: exports, backups, weights, the files of an upstream model.
The functions here run in the owner's transaction; `Store.erase` and `Store.retain` call them.
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
from .subjects import PREFIX

KEYS = ("user.id", "enduser.id", "user_id")
"""Attributes of a span that name its person."""
KEEP = ("feedback", "experiment", "lineage")
"""What retention can leave alone."""
_CHUNK = 1_000
"""Trajectories, and spans of a segment, that one transaction of retention takes out."""


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


_PORTION = "retain-"
_FIGURES = ("trajectories", "revisions", "spans", "feedback", "tasks", "preferences", "rollouts")


def needles(subject: str) -> list[bytes]:
    """How a span's body says that it is of this person, in each encoding."""
    value = subject.encode()
    text = msgspec.json.encode(subject)
    found = [b'"subject":' + text]
    for key in (name.encode() for name in KEYS):
        found.append(b'"' + key + b'","value":{"stringValue":' + text)
        inner = b"\x0a" + _varint(len(value)) + value
        found.append(b"\x0a" + _varint(len(key)) + key + b"\x12" + _varint(len(inner)) + inner)
    return found


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def erase(connection: sqlite3.Connection, id: str, subject: str, at: float, traces: str) -> None:
    """Take a person out and keep the report under `id`; doing it again under that id does nothing.

    Args:
        traces: JSON list of the traces, in hexadecimal, whose spans name the person.
    """
    if connection.execute("SELECT 1 FROM erasures WHERE id = ?", (id,)).fetchone():
        return
    sessions = _column(
        connection,
        "SELECT DISTINCT session FROM trajectories WHERE subject = ? AND session IS NOT NULL",
        subject,
    )
    rows = _rows(
        connection,
        "subject = ? OR (subject IS NULL AND session IN (SELECT value FROM json_each(?)))",
        subject,
        _json(sessions),
    )
    report: dict[str, Any] = {"at": at, **dict.fromkeys(_FIGURES, 0), "open_rollouts": [], "_shared": 0}
    ids: list[str] = []
    programs: set[str] = set()
    extra = set(msgspec.json.decode(traces, type=list[str]))
    while rows or extra:  # what was run on a task that came from the person came from them too
        fresh = [row.id for row in rows]
        ids += fresh
        programs |= {row.process_run for row in rows if row.process_run is not None}
        counts = _erase_rows(connection, rows, sorted(extra), at)
        tasks, gone = _erase_tasks(connection, fresh, sorted({row.task_id for row in rows}))
        for figures in (counts, tasks):
            report |= {name: report[name] + value for name, value in figures.items()}
        rows, extra = _run_on(connection, subject, gone, ids), set()
    report["revisions"] += _erase_programs(connection, sorted(programs))
    report["feedback"] += _delete(
        connection, "feedback WHERE session IN (SELECT value FROM json_each(?))", _json(sessions)
    )
    report["preferences"] = _delete(
        connection, "preferences WHERE json_extract(CAST(body AS TEXT), '$.annotator') = ?", subject
    )
    _delete(connection, "states WHERE key = ?", f"{PREFIX}{subject}")
    report |= _mark_versions(connection, ids, at)
    report["remains"] = [*_unclaimed(connection, sorted(programs)), *_remains(connection, subject, report)]
    connection.execute("INSERT INTO erasures VALUES (?, ?, ?)", (id, at, msgspec.json.encode(report)))


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
        _json(tasks),
        _json(erased),
    )


def _erase_rows(
    connection: sqlite3.Connection, rows: Sequence[_Row], traces: Sequence[str], at: float
) -> dict[str, int]:
    """Delete trajectories with what they were before, their spans and what was said of them."""
    ids = [row.id for row in rows]
    names = sorted({*ids, *(row.run for row in rows if row.run is not None)})
    trace_ids, taken_over = set(traces), list[tuple[bytes, bytes]]()
    for row in rows:
        body = msgspec.json.decode(row.body)
        trace_ids.update(body.get("trace_ids", ()))
        taken_over += _taken_over(body)
    connection.executemany(
        "INSERT OR IGNORE INTO tombstones VALUES (?, ?, ?)",
        [("run", name, at) for name in names] + [("trace", trace, at) for trace in sorted(trace_ids)],
    )
    inside = "IN (SELECT value FROM json_each(?))"
    return {
        "spans": _erase_spans(connection, sorted(trace_ids), names, taken_over),
        "revisions": _delete(connection, f"trajectory_revisions WHERE id {inside}", _json(ids)),
        "trajectories": _delete(connection, f"trajectories WHERE id {inside}", _json(ids)),
        "feedback": _delete(connection, f"feedback WHERE run {inside}", _json(names)),
    }


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
        gone += _delete(
            connection,
            "trajectory_revisions WHERE id IN (SELECT id FROM trajectory_revisions WHERE instr(body, ?) > 0)",
            mark,
        )
    return gone


def _unclaimed(connection: sqlite3.Connection, runs: Sequence[str]) -> list[str]:
    """Runs of whole programs with model calls that no traced call took over."""
    found = _column(
        connection,
        "SELECT DISTINCT run FROM trajectories WHERE run IN (SELECT value FROM json_each(?)) "
        "AND instr(body, CAST('\"function\":' AS BLOB)) = 0",
        _json(runs),
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
    for number in _column(connection, "SELECT number FROM segments"):
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
    gone = _column(
        connection,
        "SELECT t.id FROM tasks t WHERE t.id IN (SELECT value FROM json_each(?)) "
        "AND NOT EXISTS (SELECT 1 FROM trajectories WHERE task_id = t.id)",
        _json(tasks),
    )
    derived = connection.execute(
        "SELECT DISTINCT t.id, t.body FROM tasks t, json_each(CAST(t.body AS TEXT), '$.meta.trajectories') AS source "
        "WHERE source.value IN (SELECT value FROM json_each(?))",
        (_json(ids),),
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
    listed = _json(gone)
    waiting = _column(
        connection,
        "SELECT id FROM rollouts WHERE done IS NULL AND task_id IN (SELECT value FROM json_each(?)) ORDER BY seq",
        listed,
    )
    count = _delete(connection, "tasks WHERE id IN (SELECT value FROM json_each(?))", listed)
    return {"tasks": count, "open_rollouts": waiting, "_shared": shared}, gone


def _mark_versions(connection: sqlite3.Connection, ids: Sequence[str], at: float) -> dict[str, Json]:
    """Say of each Version that it was made from erased trajectories, and take their ids out of its data."""
    erased = set(ids)
    marked = connection.execute(
        "SELECT DISTINCT v.id, v.body FROM versions v, json_each(CAST(v.body AS TEXT), '$.meta.data') AS source "
        "WHERE source.value IN (SELECT value FROM json_each(?)) ORDER BY v.seq",
        (_json(ids),),
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
    releases = connection.execute("SELECT name, body, max(seq) FROM bundles GROUP BY name").fetchall()
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


def retain(connection: sqlite3.Connection, id: str, before: float, keep: str, at: float) -> None:
    """Take out one portion of what is older than `before` (Unix seconds), and keep the count under `id`."""
    if connection.execute("SELECT 1 FROM erasures WHERE id = ?", (id,)).fetchone():
        return
    connection.execute("DELETE FROM erasures WHERE id LIKE ? AND at < ?", (_PORTION + "%", at - 3_600))
    kept = msgspec.json.decode(keep, type=list[str])
    where = ["started < ?"]
    if "experiment" in kept:
        where.append("experiment IS NULL")
    if "feedback" in kept:
        where.append("NOT EXISTS (SELECT 1 FROM feedback f WHERE f.run IN (t.id, t.run))")
    if "lineage" in kept:
        where.append(
            "id NOT IN (SELECT source.value FROM versions v, json_each(CAST(v.body AS TEXT), '$.meta.data') AS source)"
        )
    ids = _column(
        connection,
        f"SELECT id FROM trajectories t WHERE {' AND '.join(where)} ORDER BY seq LIMIT {_CHUNK}",
        before,
    )
    listed = _json(ids)
    inside = "IN (SELECT value FROM json_each(?))"
    connection.execute("PRAGMA secure_delete = FAST")  # to overwrite whole segments would hold up who writes
    report = {
        "at": at,
        "feedback": _delete(connection, f"feedback WHERE run {inside}", listed),
        "revisions": _delete(connection, f"trajectory_revisions WHERE id {inside}", listed),
        "trajectories": _delete(connection, f"trajectories WHERE id {inside}", listed),
        "spans": _retain_spans(connection, before),
        "rollouts": _delete(
            connection,
            f"rollouts WHERE seq IN (SELECT seq FROM rollouts WHERE done IS NOT NULL AND created < ? LIMIT {_CHUNK})",
            before,
        ),
    }
    _delete(
        connection,
        "attempts WHERE ended < ? AND NOT EXISTS (SELECT 1 FROM rollouts WHERE id = attempts.rollout)",
        before,
    )
    connection.execute("PRAGMA secure_delete = ON")
    connection.execute("INSERT INTO erasures VALUES (?, ?, ?)", (id, at, msgspec.json.encode(report)))


def _retain_spans(connection: sqlite3.Connection, before: float) -> int:
    """Old segments go whole; of the two that spans are still compared with, a portion of the rows."""
    numbers = _column(connection, "SELECT number FROM segments ORDER BY number")
    total = 0
    for number in numbers[:-2]:
        newest, rows = connection.execute(
            "SELECT newest, rows FROM segments WHERE number = ?", (number,)
        ).fetchone()
        if newest < before:
            connection.execute(f"DROP TABLE spans_{number}")
            connection.execute("DELETE FROM segments WHERE number = ?", (number,))
            connection.execute("DELETE FROM contexts WHERE segment <= ?", (number,))
            total += rows
    for number in numbers[-2:]:
        oldest = connection.execute(f"SELECT arrived FROM spans_{number} ORDER BY seq LIMIT 1").fetchone()
        if oldest and oldest[0] < before:
            gone = _delete(
                connection,
                f"spans_{number} WHERE seq IN "
                f"(SELECT seq FROM spans_{number} WHERE arrived < ? ORDER BY seq LIMIT {_CHUNK})",
                before,
            )
            connection.execute("UPDATE segments SET rows = rows - ? WHERE number = ?", (gone, number))
            total += gone
    return total


def erase_subject(store: Access, subject: str, traces: Sequence[bytes]) -> Erased:
    """See `Store.erase`; `traces` have spans that name the person."""
    if not subject:
        raise InputError("erase needs the id of a subject.")
    return _taken_out(
        store, "erase", new_id(), subject, time.time(), _json([trace.hex() for trace in traces])
    )


def erase_old(store: Access, days: float, keep: Sequence[str]) -> Erased:
    """See `Store.retain`."""
    if not days >= 0:
        raise InputError(f"days is {days}; give 0 or more.")
    if unknown := sorted(set(keep) - set(KEEP)):
        raise InputError(f"retention cannot keep {unknown[0]!r}; it knows {', '.join(KEEP)}.")
    now = time.time()
    sums = dict.fromkeys(_FIGURES, 0)
    while True:
        part = _taken_out(store, "retain", _PORTION + new_id(), now - days * 86_400, _json(list(keep)), now)
        if not (part.trajectories or part.spans or part.rollouts):
            return msgspec.convert({"at": now, **sums}, Erased)
        sums = {name: count + getattr(part, name) for name, count in sums.items()}


def _taken_out(store: Access, key: str, id: str, *row: str | float) -> Erased:
    store.write([(key, [(id, *row)])]).result()
    ((body,),) = store.rows("SELECT body FROM erasures WHERE id = ?", [id])
    return msgspec.json.decode(body, type=Erased)


def _delete(connection: sqlite3.Connection, what: str, *values: Any) -> int:
    return connection.execute(f"DELETE FROM {what}", values).rowcount


def _column(connection: sqlite3.Connection, query: str, *values: Any) -> list[Any]:
    return [row[0] for row in connection.execute(query, values).fetchall()]


def _json(value: Json) -> str:
    return msgspec.json.encode(value).decode()
