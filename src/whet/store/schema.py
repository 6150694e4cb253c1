"""The tables, their numbered migrations, and the few statements that write to them.

Bodies are raw JSON (`codec.py`) beside the columns that are searched.  `PRAGMA user_version`
counts the migrations that a file has seen; a migration is never edited once released, only
followed.  `seq` is the order of commit, which a later step can cut into time segments and seal.
"""

from __future__ import annotations

import sqlite3

from ..errors import StoreError, StoreVersionError

APPLICATION = 0x77686574
"""`PRAGMA application_id` of a whet store: "whet" in ASCII."""

MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE trajectories (
        seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, run TEXT, task_id TEXT NOT NULL,
        experiment TEXT, bundle TEXT, outcome TEXT NOT NULL, started REAL NOT NULL, body BLOB NOT NULL
    );
    CREATE INDEX trajectories_run ON trajectories (run) WHERE run IS NOT NULL;
    CREATE INDEX trajectories_experiment ON trajectories (experiment, seq) WHERE experiment IS NOT NULL;
    CREATE TABLE feedback (
        seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, run TEXT NOT NULL, at REAL NOT NULL,
        body BLOB NOT NULL
    );
    CREATE INDEX feedback_run ON feedback (run);
    CREATE TABLE tasks (
        seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, split TEXT, grp TEXT NOT NULL, body BLOB NOT NULL
    );
    CREATE TABLE versions (
        seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, resource TEXT NOT NULL, kind TEXT NOT NULL,
        body BLOB NOT NULL
    );
    CREATE INDEX versions_resource ON versions (resource, seq);
    CREATE TABLE bundles (
        seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, name TEXT NOT NULL, previous TEXT,
        at REAL NOT NULL, reason TEXT NOT NULL, body BLOB NOT NULL
    );
    CREATE INDEX bundles_name ON bundles (name, seq);
    CREATE TABLE states (key TEXT PRIMARY KEY, at REAL NOT NULL, body BLOB NOT NULL) WITHOUT ROWID;
    CREATE TABLE preferences (seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, body BLOB NOT NULL);
    """,
)

_TRAJECTORY = (
    "INSERT INTO trajectories (id, run, task_id, experiment, bundle, outcome, started, body) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO "
)
STATEMENTS: dict[str, str] = {
    "trajectory": _TRAJECTORY + "NOTHING",
    "trajectory_again": _TRAJECTORY
    + "UPDATE SET run = excluded.run, experiment = coalesce(excluded.experiment, experiment), "
    "bundle = excluded.bundle, outcome = excluded.outcome, body = excluded.body",
    "feedback": "INSERT INTO feedback (id, run, at, body) VALUES (?, ?, ?, ?) ON CONFLICT (id) DO NOTHING",
    "task": "INSERT INTO tasks (id, split, grp, body) VALUES (?, ?, ?, ?) "
    "ON CONFLICT (id) DO UPDATE SET split = excluded.split, grp = excluded.grp, body = excluded.body",
    "version": "INSERT INTO versions (id, resource, kind, body) VALUES (?, ?, ?, ?) "
    "ON CONFLICT (id) DO NOTHING",
    "bundle": "INSERT INTO bundles (id, name, previous, at, reason, body) VALUES (?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (id) DO NOTHING",
    "state": "INSERT INTO states (key, at, body) VALUES (?, ?, ?) "
    "ON CONFLICT (key) DO UPDATE SET at = excluded.at, body = excluded.body",
    "preference": "INSERT INTO preferences (id, body) VALUES (?, ?) ON CONFLICT (id) DO NOTHING",
}
"""All that can be written.  Each may be repeated without effect, so a write whose
acknowledgement was lost is simply sent again; a client names a key and never sends SQL."""

TABLES = ("trajectories", "feedback", "tasks", "versions", "bundles", "states", "preferences")


def migrate(connection: sqlite3.Connection, path: str) -> None:
    """Bring the file up to this version's schema, or refuse it unchanged.

    Raises:
        StoreVersionError: written by a newer whet.
        StoreError: a SQLite database of something else.
    """
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if application != APPLICATION and (tables or version or application):
        raise StoreError(f"{path} is a SQLite database of another program. Name another file for the store.")
    if version > len(MIGRATIONS):
        raise StoreVersionError(
            f"{path} has schema {version}, this whet knows {len(MIGRATIONS)}: a newer whet wrote it. "
            "Upgrade (pip install -U whet), or name another file."
        )
    for number in range(version, len(MIGRATIONS)):
        connection.executescript(
            f"BEGIN IMMEDIATE; {MIGRATIONS[number]}; PRAGMA application_id = {APPLICATION}; "
            f"PRAGMA user_version = {number + 1}; COMMIT;"
        )
