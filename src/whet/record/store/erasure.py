"""Erasure of a person: deletes their runs from the record, marks the Versions learned from them, reports the rest.

Erasing deletes everything that came from the person (trajectories and their revisions, spans, feedback,
tasks made of them, preferences that they gave) and leaves tombstones, ids without content, so that
a late span or a repeated write does not bring it back.  What was learned from it cannot be
unlearned: a Version whose `meta["data"]` names an erased trajectory is marked instead, and the
report says so.  Deleted content is overwritten in the file.

It cannot reach what left the record: exports, backups, weights, the files of an upstream model.

`Store.erase` searches the spans for the person first, which reads every body and takes its time while others
write; `erase` then runs in the owner's transaction, where `up_to_now` looks at what has arrived since.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import msgspec

from ...types import Json
from .schema import LISTED, OF_RUNS, SUBJECTS, keep_out, listed


@dataclass(frozen=True, slots=True, kw_only=True)
class Erased:
    """The report of an erasure, or of retention; figures are rows."""

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
    remains: tuple[str, ...] = ()
    """Sentences on what could not be deleted."""


ERASURES = "SELECT coalesce(max(value), 0) FROM counters WHERE name = 'erasures'"
"""Query for the number of people erased so far: rows read before the last of them must not be written back."""
FIGURES = ("trajectories", "revisions", "spans", "feedback", "tasks", "preferences", "rollouts")


def erase(connection: sqlite3.Connection, id: str, subject: str, at: float, naming: str) -> None:
    """Erase a person and keep the report under `id`; repeating it under that id does nothing.

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
        f"subject = ? OR (subject IS NULL AND session IN {LISTED})",
        subject,
        listed(sessions),
    )
    report: dict[str, Any] = {"at": at, **dict.fromkeys(FIGURES, 0), "open_rollouts": [], "_shared": 0}
    ids: list[str] = []
    programs: set[str] = set()
    # Before anything is deleted: it reads whole traces to tell a person's calls from those of others.
    of = up_to_now(connection, subject, msgspec.json.decode(naming, type=Naming))
    mixed = _mixed(connection, of)
    rows += [row for row in mixed if row not in rows]
    first = True
    while rows or first:  # runs on a task that came from the person count as theirs too
        fresh = [row.id for row in rows]
        ids += fresh
        programs |= {row.process_run for row in rows if row.process_run is not None}
        counts, shared = _erase_rows(connection, rows, of, at, {row.id for row in mixed})
        programs |= shared
        # After the trajectories: a task came from them alone if no other trajectory of it is left.
        tasks, gone = _erase_tasks(connection, fresh, sorted({row.task_id for row in rows}))
        for figures in (counts, tasks):
            report |= {name: report[name] + value for name, value in figures.items()}
        rows, first = _run_on(connection, subject, gone, ids), False
    report["revisions"] += _erase_programs(connection, sorted(programs))
    report["feedback"] += delete(connection, f"feedback WHERE session IN {LISTED}", listed(sessions))
    report["preferences"] = delete(
        connection, "preferences WHERE json_extract(CAST(body AS TEXT), '$.annotator') = ?", subject
    )
    delete(connection, "states WHERE key = ?", f"{SUBJECTS}{subject}")
    report |= _mark_versions(connection, ids, at)
    # Last: it reads the figures above, and takes `_shared` out of the report that is stored.
    report["remains"] = [
        *_unclaimed(connection, sorted(programs)),
        *_went_along(mixed),
        *_remains(connection, subject, report),
    ]
    connection.execute("INSERT INTO erasures VALUES (?, ?, ?)", (id, at, msgspec.json.encode(report)))
    connection.execute(
        # In the transaction of the deletion, so that `Batch.as_of` never sees the one without the other.
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
    """Runs of an experiment or a worker on these tasks, or on one made of erased trajectories alone."""
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
    rows = _rows(
        connection,
        f"{OF_RUNS.format('?1')} OR id IN (SELECT value FROM json_each(?2))",
        listed(named.runs),
        listed(sorted(named.shared)),
    )
    own = {id for _, id in named.calls}
    return [
        row
        for row in rows
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
    """Delete trajectories with their revisions, spans and feedback.

    Args:
        again: those of which the calls of others stay, to be read again under the same id.

    Returns:
        Figures for the report, and the runs that go on, because they are other people's too.
    """
    ids = [row.id for row in rows]
    runs = sorted({row.run for row in rows if row.run is not None})
    shared = set(named.runs).intersection(runs) | set(
        column(
            connection,
            f"SELECT DISTINCT run FROM trajectories WHERE {OF_RUNS.format('?1')} "
            "AND id NOT IN (SELECT value FROM json_each(?2))",
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
    # After the loop: a trajectory may name a trace that other people are in too.
    trace_ids -= named.shared
    # A run that goes on gets no tombstone: that would keep out what the others in it send next.
    names = sorted({*ids, *runs} - shared - again)
    connection.executemany(
        "INSERT OR IGNORE INTO tombstones VALUES (?, ?, ?)",
        [("run", name, at) for name in names] + [("trace", trace, at) for trace in sorted(trace_ids)],
    )
    keep_out(connection)
    return {
        "spans": _erase_spans(connection, sorted(trace_ids), names, single),
        "revisions": delete(connection, f"trajectory_revisions WHERE id IN {LISTED}", listed(ids)),
        "trajectories": delete(connection, f"trajectories WHERE id IN {LISTED}", listed(ids)),
        "feedback": delete(connection, f"feedback WHERE run IN {LISTED}", listed(sorted({*names, *ids}))),
    }, shared


def _taken_over(body: dict[str, Any]) -> list[tuple[bytes, bytes]]:
    """Spans of other traces that steps were read from: calls of a whole program's run (`tracing/join.py`)."""
    own = set(body.get("trace_ids", ()))
    infos = [step.get("info") or {} for step in body.get("steps", ())]
    return [
        (bytes.fromhex(info["trace_id"]), bytes.fromhex(id))
        for info in infos
        if "trace_id" in info and info["trace_id"] not in own
        for id in info.get("span_ids", ())
    ]


def _erase_programs(connection: sqlite3.Connection, runs: Sequence[str]) -> int:
    """Delete revisions of runs of whole programs: their model calls may have been in one."""
    gone = 0
    for run in runs:
        # Bodies are the compact JSON of `codec.py`, so bytes are found in them without decoding.
        mark = b'"run":' + msgspec.json.encode(run)
        gone += delete(
            connection,
            "trajectory_revisions WHERE id IN (SELECT id FROM trajectory_revisions WHERE instr(body, ?) > 0)",
            mark,
        )
    return gone


def _unclaimed(connection: sqlite3.Connection, runs: Sequence[str]) -> list[str]:
    """Runs of whole programs with model calls that no traced call took over."""
    unclaimed = column(
        connection,
        f"SELECT DISTINCT run FROM trajectories WHERE {OF_RUNS.format('?1')} "
        "AND instr(body, CAST('\"function\":' AS BLOB)) = 0",
        listed(runs),
    )
    return [
        f"the run {run!r} of a whole program has model calls that no traced run claimed; some may be this "
        f"person's: whet show trajectories --run {run}"
        for run in unclaimed
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
    """Delete the tasks that came from these trajectories alone; remove their ids from the others.

    Returns:
        Figures for the report, and the ids of the deleted tasks.
    """
    gone = column(
        connection,
        f"SELECT t.id FROM tasks t WHERE t.id IN {LISTED} "
        "AND NOT EXISTS (SELECT 1 FROM trajectories WHERE task_id = t.id)",
        listed(tasks),
    )
    # Cast, here as elsewhere: from 3.45 on a BLOB is JSONB to SQLite's JSON functions, if it can be read so.
    derived = connection.execute(
        "SELECT DISTINCT t.id, t.body FROM tasks t, json_each(CAST(t.body AS TEXT), '$.meta.trajectories') AS source "
        f"WHERE source.value IN {LISTED}",
        (listed(ids),),
    ).fetchall()
    shared = 0
    for id, body in derived:
        task = msgspec.json.decode(body)
        sources = [name for name in task["meta"]["trajectories"] if name not in set(ids)]
        if not sources:
            gone.append(id)
        elif id not in gone:
            shared += 1
            task["meta"]["trajectories"] = sources
            connection.execute("UPDATE tasks SET body = ? WHERE id = ?", (msgspec.json.encode(task), id))
    gone = sorted(set(gone))
    deleted = listed(gone)
    waiting = column(
        connection,
        f"SELECT id FROM rollouts WHERE done IS NULL AND task_id IN {LISTED} ORDER BY seq",
        deleted,
    )
    count = delete(connection, f"tasks WHERE id IN {LISTED}", deleted)
    return {"tasks": count, "open_rollouts": waiting, "_shared": shared}, gone


def _mark_versions(connection: sqlite3.Connection, ids: Sequence[str], at: float) -> dict[str, Json]:
    """Mark each Version that was made from erased trajectories, and remove their ids from its data."""
    erased = set(ids)
    marked = connection.execute(
        "SELECT DISTINCT v.id, v.body FROM versions v, json_each(CAST(v.body AS TEXT), '$.meta.data') AS source "
        f"WHERE source.value IN {LISTED} ORDER BY v.seq",
        (listed(ids),),
    ).fetchall()
    for id, body in marked:
        version = msgspec.json.decode(body)
        data = version["meta"]["data"]
        sources = [name for name in data if name not in erased] if isinstance(data, list) else []
        version["meta"]["data"] = sources
        before = version["meta"].get("erased") or {}
        version["meta"]["erased"] = {
            "note": "trained on erased data",
            "at": at,
            "trajectories": before.get("trajectories", 0) + len(data) - len(sources),
        }
        connection.execute("UPDATE versions SET body = ? WHERE id = ?", (msgspec.json.encode(version), id))
    names = {id for id, _ in marked}
    releases = connection.execute(
        "SELECT name, body, max(seq) FROM releases WHERE stage = 'live' GROUP BY name"
    ).fetchall()
    live = [name for name, body, _ in releases if names & set(msgspec.json.decode(body))]
    return {"versions": [id for id, _ in marked], "live": live}


def _remains(connection: sqlite3.Connection, subject: str, report: dict[str, Any]) -> list[str]:
    remains = []
    if report["versions"]:
        remains.append(
            f"{len(report['versions'])} of the Versions were made from erased trajectories and are marked; what "
            "was learned from them is still there. Train anew, or retire them."
        )
    if report["live"]:
        remains.append(f"such a Version is live as {', '.join(report['live'])}.")
    if shared := report.pop("_shared"):
        remains.append(
            f"{shared} tasks were also made from other people's runs and stay; their answers may rest on what "
            "this person said."
        )
    if report["open_rollouts"]:
        remains.append(f"{len(report['open_rollouts'])} rollouts of erased tasks had not ended; cancel them.")
    others = connection.execute("SELECT count(*) FROM preferences").fetchone()[0]
    if others:
        remains.append(
            f"{others} preference pairs name no run; if some hold this person's words they remain."
        )
    text = msgspec.json.encode(subject)
    for (key,) in connection.execute(
        "SELECT key FROM states WHERE instr(body, ?) ORDER BY key", (text,)
    ).fetchall():
        remains.append(f"the state {key!r} mentions this person.")
    remains.append("copies outside this file (exports, backups, artifacts of training) were not touched.")
    return remains


# -- which spans are a person's -----------------------------------------------------------------

KEYS = ("user.id", "enduser.id", "user_id")
"""Attributes of a span that name its person."""


class Naming(msgspec.Struct):
    """Spans that say that they are of a person; ids in hexadecimal."""

    traces: list[str]
    """Theirs as a whole."""
    calls: list[tuple[str, str]] = []
    """Trace and id of model calls of theirs in traces that are other people's too."""
    runs: list[str] = []
    """The runs of those calls."""
    newest: int = 0
    """Number of the newest span when the search began; later ones may not have been looked at."""

    @property
    def shared(self) -> set[str]:
        """The traces that are other people's too."""
        return {trace for trace, _ in self.calls}


def needles(subject: str) -> list[bytes]:
    """Byte strings by which a span's body names a person, one per encoding; JSON as JavaScript and Python write it."""
    value = subject.encode()
    text = msgspec.json.encode(subject)
    marks = [b'"subject":' + text]
    for key in (name.encode() for name in KEYS):
        for literal in sorted({text, json.dumps(subject).encode()}):
            marks.append(b'"%b","value":{"stringValue":%b' % (key, literal))
            marks.append(b'"%b", "value": {"stringValue": %b' % (key, literal))
        # Protobuf's KeyValue: 0x0a is field 1, the key; 0x12 field 2, an AnyValue whose field 1 is the text.
        inner = b"\x0a" + _varint(len(value)) + value
        marks.append(b"\x0a" + _varint(len(key)) + key + b"\x12" + _varint(len(inner)) + inner)
    return marks


Mention: TypeAlias = tuple[bytes, bytes, str, str | None]
"""Trace, id, encoding and run of a span that names the person."""


def mentions(subject: str) -> tuple[str, list[bytes]]:
    """A condition on a span's body, with its values: it names this person."""
    marks = needles(subject)
    return f"({' OR '.join(['instr(body, ?) > 0'] * len(marks))})", marks


def whole_traces(mentioned: Iterable[Mention]) -> set[bytes]:
    """Traces that are the person's whatever else is in them: a span of the program itself says so."""
    return {trace for trace, _, encoding, _ in mentioned if not encoding.startswith("call")}


def named(
    mentioned: Sequence[Mention], bodies: Iterable[tuple[bytes, bytes, str, bytes]], newest: int = 0
) -> Naming:
    """The person's traces and calls, from the spans that name them and the bodies of their traces."""
    own = {(trace, id) for trace, id, _, _ in mentioned}
    shared = {
        trace
        for trace, id, encoding, body in bodies
        # Without a space after the colon, as `gateway/record.py` encodes its calls.
        if (trace, id) not in own and encoding.startswith("call") and b'"subject":"' in body
    } - whole_traces(mentioned)
    single = [row for row in mentioned if row[0] in shared]
    return Naming(
        traces=sorted({trace.hex() for trace, _, _, _ in mentioned if trace not in shared}),
        calls=[(trace.hex(), id.hex()) for trace, id, _, _ in single],
        runs=sorted({run for _, _, _, run in single if run is not None}),
        newest=newest,
    )


def up_to_now(connection: sqlite3.Connection, subject: str, before: Naming) -> Naming:
    """`before` with the spans that have arrived since the search began: a trace that grew is searched again."""
    where, marks = mentions(subject)
    searched = listed([*before.traces, *sorted(before.shared)])
    grown: set[bytes] = set()
    for number in column(connection, "SELECT number FROM segments WHERE last > ?", before.newest):
        grown.update(
            column(
                connection,
                f"SELECT DISTINCT trace FROM spans_{number} WHERE seq > ? AND "
                f"({where} OR lower(hex(trace)) IN {LISTED})",
                before.newest,
                *marks,
                searched,
            )
        )
    mentioned: list[Mention] = []
    bodies: list[tuple[bytes, bytes, str, bytes]] = []
    for number in column(connection, "SELECT number FROM segments") if grown else ():
        for trace in grown:
            of = f"FROM spans_{number} WHERE trace = ?"
            mentioned += connection.execute(
                f"SELECT trace, id, encoding, run {of} AND {where}", (trace, *marks)
            )
            bodies += connection.execute(f"SELECT trace, id, encoding, body {of}", (trace,))
    now, gone = named(mentioned, bodies), {trace.hex() for trace in grown}
    return Naming(
        traces=sorted({*before.traces} - gone) + now.traces,
        calls=[call for call in before.calls if call[0] not in gone] + now.calls,
        runs=sorted({*before.runs, *now.runs}),
    )


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def column(connection: sqlite3.Connection, query: str, *values: Any) -> list[Any]:
    """The first column of a query's rows."""
    return [row[0] for row in connection.execute(query, values).fetchall()]


def delete(connection: sqlite3.Connection, rows: str, *values: Any) -> int:
    """Delete rows of a table by a condition; returns how many."""
    return connection.execute(f"DELETE FROM {rows}", values).rowcount
