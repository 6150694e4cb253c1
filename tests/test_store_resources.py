"""Snapshots of resources and revisions of trajectories: what was handed out or read stays readable."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from whet.errors import InputError, NotFoundError
from whet.store import Store, schema
from whet.store.codec import encode
from whet.types import Outcome, Step, Task, Trajectory


def test_a_snapshot_never_changes_and_the_latest_moves(tmp_path: Path) -> None:
    with Store(tmp_path / "runs.db") as store, Store(tmp_path / "runs.db") as client:
        assert store.resources.latest() is None
        first = store.resources.put({"prompt": "a", "knobs": {"k": 1}})
        second = client.resources.put({"prompt": "b", "knobs": {"k": 1}})
        assert first != second
        assert store.resources.latest() == (second, {"prompt": "b", "knobs": {"k": 1}})
        assert client.resources.get(first) == {"prompt": "a", "knobs": {"k": 1}}
        assert store.resources.put({"knobs": {"k": 1}, "prompt": "a"}) == first
        latest = store.resources.latest()
        assert latest is not None
        assert latest[0] == first
        assert store.live() is None  # a snapshot for workers is no release
        with pytest.raises(NotFoundError, match="never"):
            store.resources.get("never")
        with pytest.raises(InputError, match="JSON"):
            store.resources.put({"x": object()})


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
        assert store.rows("SELECT session, subject FROM trajectories") == [("s", "ann")]
        assert store.rows("PRAGMA user_version") == [(len(schema.MIGRATIONS),)]
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
