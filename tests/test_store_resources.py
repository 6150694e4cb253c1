"""Recorded Bundles and revisions of trajectories: what was handed out or read stays readable."""

from __future__ import annotations

import contextlib
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from whet.errors import InputError, NotFoundError
from whet.record.store import Stage, Store, bundle_of, schema
from whet.record.store.codec import encode, encode_json
from whet.types import Bundle, Outcome, Rollout, Step, Task, Trajectory


def test_a_recorded_bundle_is_read_by_its_id_from_any_process_and_is_not_live(tmp_path: Path) -> None:
    with Store(tmp_path / "runs.db") as store, Store(tmp_path / "runs.db") as client:
        first, second = bundle_of({"prompt": "a", "knobs": {"k": 1}}), bundle_of({"prompt": "b"})
        assert store.put_bundle(first) == client.put_bundle(bundle_of({"knobs": {"k": 1}, "prompt": "a"}))
        client.put_bundle(second)
        assert dict(client.bundle(first.id)) == dict(first)
        assert store.bundle(second.id)["prompt"].kind == "prompt"
        assert store.live() is None
        assert store.bundle(Bundle().id) == Bundle()  # the agent as it came needs no record
        assert store.count("bundles") == 2
        with pytest.raises(NotFoundError, match="never"):
            store.bundle("never")
        with pytest.raises(InputError, match="JSON"):
            store.put_bundle(bundle_of({"x": object()}))


def test_snapshots_of_an_older_record_are_bundles_that_rollouts_name_and_are_not_live(tmp_path: Path) -> None:
    path, snapshot, released = tmp_path / "old.db", bundle_of({"prompt": "old"}), bundle_of({"rule": 1})
    with sqlite3.connect(path) as connection:
        for number in range(5):
            connection.executescript(schema.MIGRATIONS[number])
        connection.execute(f"PRAGMA application_id = {schema.APPLICATION}")
        connection.execute("PRAGMA user_version = 5")
        for name, kept in (("resources", snapshot), ("live", released)):
            (version,) = kept.values()
            connection.execute(
                "INSERT INTO versions (id, resource, kind, body) VALUES (?, ?, ?, ?)",
                (version.id, version.resource, version.kind, encode(version)),
            )
            connection.execute(
                "INSERT INTO bundles (id, name, bundle, at, reason, body) VALUES (?, ?, ?, 1.0, '', ?)",
                (name, name, kept.id, encode_json([version.id])),
            )
    connection.close()
    with Store(path) as store:
        assert store.bundle(snapshot.id) == snapshot
        assert store.live() == released
        assert store.history("resources") == []
        assert [store.count(table) for table in ("bundles", "releases", "verdicts")] == [2, 1, 0]
        assert store.history()[0].unproven
        store.add_rollouts(Rollout(id="old", task=Task(id="t"), resources=snapshot.id))
        (lease,) = store.queue.claim("w").result()
        assert store.bundle(lease.rollout.resources or "") == snapshot


def test_an_overwritten_trajectory_keeps_what_was_read_before() -> None:
    first = Trajectory(task=Task(id="t"), id="x", outcome=Outcome.UNKNOWN)
    second = replace(first, steps=(Step(kind="tool"),))
    third = replace(second, outcome=Outcome.SUCCESS)
    with Store(":memory:") as store:
        store.put(first)
        store.put(first, replace=True)
        assert store.revisions("x") == []  # nothing changed
        store.put(second, replace=True)
        store.put(third, replace=True)
        assert store.trajectory("x") == third
        assert store.revisions("x") == [first, second]
        assert store.counts()["trajectories"] == 1


def test_a_store_of_the_first_schema_opens_with_all_it_had(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    old = Trajectory(task=Task(id="t"), id="x", session="s", subject="ann")
    with sqlite3.connect(path) as connection:
        connection.executescript(schema.MIGRATIONS[0])
        connection.execute(f"PRAGMA application_id = {schema.APPLICATION}")
        connection.execute("PRAGMA user_version = 1")
        connection.execute(
            "INSERT INTO trajectories (id, task_id, outcome, started, body) VALUES (?, ?, ?, ?, ?)",
            (old.id, "t", "unknown", old.started, encode(old)),
        )
        connection.execute("INSERT INTO states VALUES ('round', 1.0, CAST('3' AS BLOB))")
    connection.close()
    with Store(path) as store:
        assert list(store.trajectories()) == [old]
        assert store.state("round") == 3
        assert store.database.rows("SELECT session, subject FROM trajectories") == [("s", "ann")]
        assert store.database.rows("PRAGMA user_version") == [(len(schema.MIGRATIONS),)]
        assert (store.count("trajectories"), store.count("states")) == (1, 1)
        store.put(replace(old, outcome=Outcome.SUCCESS), replace=True)
        assert store.revisions("x") == [old]
    Store(path).close()


def test_a_migration_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    with sqlite3.connect(path) as connection:
        connection.executescript(schema.MIGRATIONS[0] + "; CREATE TABLE rollouts (mine)")
        connection.execute(f"PRAGMA application_id = {schema.APPLICATION}")
        connection.execute("PRAGMA user_version = 1")
    connection.close()
    with pytest.raises(OSError, match="rollouts"):
        Store(path)
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)
        names = {
            name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        }
        assert "segments" not in names
    connection.close()


def test_attempts_of_an_earlier_schema_are_found_by_their_rollout(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for migration in schema.MIGRATIONS[:7]:
            connection.executescript(migration)
        connection.execute(f"PRAGMA application_id = {schema.APPLICATION}")
        connection.execute("PRAGMA user_version = 7")
        connection.execute(
            "INSERT INTO rollouts (seq, id, task_id, mode, max_attempts, created, meta, attempts) "
            "VALUES (7, 'r', 't', 'train', 3, 1.0, CAST('{}' AS BLOB), 2)"
        )
        for fence, rollout, bundle in ((1, "r", "first"), (2, "gone", "other"), (3, "r", "second")):
            connection.execute(
                "INSERT INTO attempts (fence, rollout, number, worker, started, outcome, bundle) "
                "VALUES (?, ?, ?, 'w', 1.0, 'expired', ?)",
                (fence, rollout, fence, bundle),
            )
        connection.execute("INSERT INTO counters VALUES ('fence', 3)")
    with Store(path) as store:
        assert [(attempt.fence, attempt.bundle) for attempt in store.queue.attempts("r")] == [
            (1, "first"),
            (3, "second"),
        ]
        assert store.queue.bundle("r.2") == "second"
        store.queue.claim("w").result()
        assert [attempt.fence for attempt in store.queue.attempts("r")] == [1, 3, 4]


def test_a_rollout_with_the_number_of_a_deleted_one_does_not_get_its_attempts() -> None:
    with Store(":memory:") as store:
        store.add_rollouts(Rollout(id="old", task=Task(id="t"), created=1.0))
        (lease,) = store.queue.claim("w").result()
        store.queue.finish("old", lease.fence, trajectory=Trajectory(task=Task(id="t"))).result()
        assert len(store.queue.attempts("old")) == 1
        assert store.retain(days=1).rollouts == 1
        store.add_rollouts(Rollout(id="new", task=Task(id="t")))
        assert store.queue.attempts("new") == []
        assert store.database.rows("SELECT count(*) FROM attempts") == [(1,)], (
            "it ended a moment ago and stays"
        )


def test_who_was_erased_under_an_earlier_schema_stays_out_and_where_nobody_was_no_row_is_compared(
    tmp_path: Path,
) -> None:
    for erased in (True, False):
        path = tmp_path / f"{erased}.db"
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
            for migration in schema.MIGRATIONS[:6]:
                connection.executescript(migration)
            connection.execute(f"PRAGMA application_id = {schema.APPLICATION}")
            connection.execute("PRAGMA user_version = 6")
            if erased:
                connection.execute("INSERT INTO tombstones VALUES ('run', 'gone', 1.0)")
        with Store(path) as store:
            store.put(Trajectory(task=Task(id="t"), id="gone"), Trajectory(task=Task(id="t"), id="here"))
            ids = [trajectory.id for trajectory in store.trajectories()]
            assert ids == (["here"] if erased else ["gone", "here"])
            triggers = store.database.rows("SELECT name FROM sqlite_master WHERE name LIKE '%_erased'")
            assert len(triggers) == (2 if erased else 0)


def test_the_releases_of_an_earlier_schema_are_live_releases_of_their_log(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    first, second = bundle_of({"prompt": "one"}), bundle_of({"prompt": "two"})
    with Store(path) as store:
        store.put_versions(*first.values(), *second.values())
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for column in ("stage", "trial"):
            connection.execute(f"DROP INDEX releases_{column}")
        for column in ("stage", "share", "unit", "candidate", "trial", "base"):
            connection.execute(f"ALTER TABLE releases DROP COLUMN {column}")
        for number, bundle in enumerate((first, second)):
            connection.execute(
                "INSERT INTO releases (id, name, previous, at, reason, verdict, unproven, bundle, body) "
                "VALUES (?, 'live', ?, ?, 'kept', NULL, 1, ?, ?)",
                (
                    f"r{number}",
                    "r0" if number else None,
                    float(number),
                    bundle.id if number else None,
                    f'["{bundle["prompt"].id}"]'.encode(),
                ),
            )
        connection.executescript("DROP TABLE issues; DROP TABLE issue_moves")  # which came after
        connection.execute("PRAGMA user_version = 8")
    with Store(path) as store:
        assert [(entry.id, entry.stage, entry.trial, entry.candidate) for entry in store.release_log()] == [
            ("r0", "live", "r0", first.id),
            ("r1", "live", "r1", second.id),
        ]
        assert (store.live(), store.on_trial()) == (second, [])
        assert store.rollback() == first
        assert store.retire(store.release(second, stage=Stage.SHADOW).id).stage is Stage.RETIRED
