"""The tables, their numbered migrations, and the few statements that write to them.

Bodies are raw JSON (`codec.py`) beside the columns that are searched.  `PRAGMA user_version`
counts the migrations that a file has seen; a migration is never edited once released, only
followed.  `seq` is the order of commit, which a later step can cut into time segments and seal.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from ...errors import StoreError, StoreVersionError

APPLICATION = 0x77686574
"""`PRAGMA application_id` of a whet store: "whet" in ASCII."""


_NUMBERED = ("trajectories", "feedback", "tasks", "versions", "bundles", "preferences", "rollouts")
"""Tables whose rows `totals` counted at first; the migration must stay as it was released."""


def _totals_of(*tables: str) -> str:
    """SQL that has the rows of tables counted from here on."""
    return "".join(
        f"""
    INSERT INTO totals SELECT '{table}', coalesce(max(seq), 0), count(*) FROM {table};
    CREATE TRIGGER {table}_gone AFTER DELETE ON {table}
    BEGIN UPDATE totals SET rows = rows - 1 WHERE name = '{table}'; END;
    """
        for table in tables
    )


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
    """
    CREATE TABLE segments (
        number INTEGER PRIMARY KEY, opened REAL NOT NULL, newest REAL NOT NULL, last INTEGER NOT NULL,
        rows INTEGER NOT NULL
    );
    CREATE TABLE contexts (
        id INTEGER PRIMARY KEY, hash BLOB NOT NULL UNIQUE, segment INTEGER NOT NULL, body BLOB NOT NULL
    );
    CREATE TABLE rollouts (
        seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, task_id TEXT NOT NULL, mode TEXT NOT NULL,
        resources TEXT, max_attempts INTEGER NOT NULL, created REAL NOT NULL, meta BLOB NOT NULL,
        status TEXT NOT NULL DEFAULT 'queued', attempts INTEGER NOT NULL DEFAULT 0,
        fence INTEGER, worker TEXT, lease REAL, trajectory TEXT, error BLOB, done INTEGER
    );
    CREATE INDEX rollouts_open ON rollouts (seq) WHERE done IS NULL;
    CREATE UNIQUE INDEX rollouts_done ON rollouts (done) WHERE done IS NOT NULL;
    CREATE TABLE attempts (
        fence INTEGER PRIMARY KEY, rollout TEXT NOT NULL, number INTEGER NOT NULL, worker TEXT NOT NULL,
        started REAL NOT NULL, ended REAL, outcome TEXT NOT NULL, error BLOB, digest TEXT
    );
    CREATE INDEX attempts_rollout ON attempts (rollout);
    CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;

    ALTER TABLE trajectories ADD COLUMN session TEXT;
    ALTER TABLE trajectories ADD COLUMN subject TEXT;
    UPDATE trajectories SET session = json_extract(CAST(body AS TEXT), '$.session'),
        subject = json_extract(CAST(body AS TEXT), '$.subject') WHERE json_valid(CAST(body AS TEXT));
    CREATE INDEX trajectories_session ON trajectories (session) WHERE session IS NOT NULL;
    CREATE INDEX trajectories_subject ON trajectories (subject) WHERE subject IS NOT NULL;
    CREATE TABLE trajectory_revisions (
        seq INTEGER PRIMARY KEY, id TEXT NOT NULL, at REAL NOT NULL, body BLOB NOT NULL
    );
    CREATE INDEX trajectory_revisions_id ON trajectory_revisions (id);
    CREATE TRIGGER trajectories_revised AFTER UPDATE OF body ON trajectories WHEN old.body IS NOT new.body
    BEGIN
        INSERT INTO trajectory_revisions (id, at, body)
        VALUES (old.id, (julianday('now') - 2440587.5) * 86400.0, old.body);
    END;
    ALTER TABLE feedback ADD COLUMN session TEXT;
    CREATE INDEX feedback_session ON feedback (session) WHERE session IS NOT NULL;
    ALTER TABLE bundles ADD COLUMN bundle TEXT;
    CREATE INDEX bundles_bundle ON bundles (name, bundle) WHERE bundle IS NOT NULL;
    """,
    """
    CREATE TABLE tombstones (
        kind TEXT NOT NULL, id TEXT NOT NULL, at REAL NOT NULL, PRIMARY KEY (kind, id)
    ) WITHOUT ROWID;
    CREATE TABLE erasures (id TEXT PRIMARY KEY, at REAL NOT NULL, body BLOB NOT NULL) WITHOUT ROWID;
    CREATE TRIGGER trajectories_erased BEFORE INSERT ON trajectories
    WHEN EXISTS (SELECT 1 FROM tombstones WHERE kind = 'run' AND id IN (new.id, new.run))
    BEGIN SELECT RAISE(IGNORE); END;
    CREATE TRIGGER feedback_erased BEFORE INSERT ON feedback
    WHEN EXISTS (SELECT 1 FROM tombstones WHERE kind = 'run' AND id = new.run)
    BEGIN SELECT RAISE(IGNORE); END;

    CREATE VIEW operations AS
    SELECT t.id AS trajectory, t.run, t.session, t.subject, s.key AS position,
        json_extract(s.value, '$.id') AS step, json_extract(s.value, '$.parent') AS parent,
        json_extract(s.value, '$.kind') AS kind, json_extract(s.value, '$.name') AS name,
        json_extract(s.value, '$.agent') AS agent, json_extract(s.value, '$.info.model') AS model,
        json_extract(s.value, '$.latency') AS seconds,
        json_extract(s.value, '$.usage.prompt_tokens') AS prompt_tokens,
        json_extract(s.value, '$.usage.output_tokens') AS output_tokens,
        json_extract(s.value, '$.usage.dollars') AS dollars, json_extract(s.value, '$.reward') AS reward,
        json_extract(s.value, '$.error.fault') AS fault, json_extract(s.value, '$.error.message') AS error,
        json_extract(s.value, '$.observation') AS input, json_extract(s.value, '$.action') AS output
    FROM trajectories t, json_each(CAST(t.body AS TEXT), '$.steps') s;

    CREATE VIEW messages AS
    WITH talks AS (
        SELECT id, run, session, subject, started, CAST(body AS TEXT) AS body, (
            SELECT max(s.key) FROM json_each(CAST(t.body AS TEXT), '$.steps') s
            WHERE json_type(s.value, '$.info.input_messages') = 'array'
        ) AS last FROM trajectories t
    )
    SELECT talks.id AS trajectory, run, session, subject, started AS at, m.key AS position,
        json_extract(m.value, '$.role') AS role, json_extract(m.value, '$.content') AS content
    FROM talks, json_each(talks.body, '$.steps[' || last || '].info.input_messages') m WHERE last IS NOT NULL
    UNION ALL
    SELECT id, run, session, subject, started, 0, 'user', json_extract(body, '$.task.instruction')
    FROM talks WHERE last IS NULL
    UNION ALL
    SELECT id, run, session, subject, started + coalesce(json_extract(body, '$.seconds'), 0),
        coalesce(json_array_length(body, '$.steps[' || last || '].info.input_messages'), 1), 'assistant',
        json_extract(body, '$.output')
    FROM talks WHERE json_extract(body, '$.output') IS NOT NULL;
    """,
    """
    CREATE TABLE totals (name TEXT PRIMARY KEY, upto INTEGER NOT NULL, rows INTEGER NOT NULL) WITHOUT ROWID;
    """
    + _totals_of(*_NUMBERED)
    + """
    CREATE INDEX trajectories_outcome ON trajectories (outcome, started);

    CREATE VIEW labels AS
    SELECT f.id, CASE WHEN json_extract(b.body, '$.step') IS NOT NULL THEN 'step'
            WHEN f.session IS NOT NULL THEN 'session' ELSE 'trajectory' END AS level,
        f.run, json_extract(b.body, '$.step') AS step, f.session, f.at,
        coalesce(json_extract(b.body, '$.kind'), 'thumb') AS kind, json_extract(b.body, '$.value') AS value,
        json_extract(b.body, '$.comment') AS comment, json_extract(b.body, '$.correction') AS correction,
        json_extract(b.body, '$.correction.chosen') AS chosen,
        json_extract(b.body, '$.correction.rejected') AS rejected
    FROM feedback f JOIN (SELECT seq, CAST(body AS TEXT) AS body FROM feedback) b ON b.seq = f.seq;
    """,
    # The run of `whet run` that a run of its program's own was a part of.  Few have one: a body is looked
    # through only where it has a run, and read only where the name is found.
    """
    ALTER TABLE trajectories ADD COLUMN process_run TEXT GENERATED ALWAYS AS (
        CASE WHEN run IS NOT NULL AND instr(body, CAST('"process_run":' AS BLOB)) > 0
        THEN json_extract(CAST(body AS TEXT), '$.meta.process_run') END
    ) VIRTUAL;
    CREATE INDEX trajectories_process_run ON trajectories (process_run) WHERE process_run IS NOT NULL;
    """,
    # One live.  What was called a bundle here is a release; snapshots of resources, which were releases of another
    # name, are Bundles that are recorded.  A row from before Bundles had an id here names none.
    """
    DROP TRIGGER bundles_gone;
    DROP INDEX bundles_name;
    DROP INDEX bundles_bundle;
    ALTER TABLE bundles RENAME TO releases;
    ALTER TABLE releases ADD COLUMN verdict TEXT;
    ALTER TABLE releases ADD COLUMN unproven INTEGER NOT NULL DEFAULT 1;
    CREATE TABLE bundles (seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, at REAL NOT NULL, body BLOB NOT NULL);
    INSERT OR IGNORE INTO bundles (id, at, body)
        SELECT bundle, at, body FROM releases WHERE bundle IS NOT NULL ORDER BY seq;
    DELETE FROM releases WHERE name = 'resources';
    CREATE INDEX releases_name ON releases (name, seq);
    CREATE TABLE verdicts (
        seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, candidate TEXT NOT NULL, experiment TEXT NOT NULL,
        at REAL NOT NULL, body BLOB NOT NULL
    );
    CREATE INDEX verdicts_candidate ON verdicts (candidate, seq);
    ALTER TABLE attempts ADD COLUMN bundle TEXT;
    DELETE FROM totals WHERE name = 'bundles';
    """
    + _totals_of("bundles", "releases", "verdicts"),
    # What keeps out the rows of who was erased is made with the first that is (`keep_out`).
    # A trajectory of the queue is ROLLOUT.ATTEMPT of the run ROLLOUT: the index of ids has its run already (`OF_RUNS`).
    """
    DROP TRIGGER trajectories_erased;
    DROP TRIGGER feedback_erased;
    DROP INDEX trajectories_run;
    CREATE INDEX trajectories_run ON trajectories (run)
        WHERE run IS NOT NULL AND rtrim(id, '0123456789') <> run || '.';
    """,
    # Attempts are found by their rollout's number, whose index grows at its end: ids from outside are in no order, and
    # each cost a page of the log.
    """
    ALTER TABLE attempts ADD COLUMN rollout_seq INTEGER;
    UPDATE attempts SET rollout_seq = (SELECT seq FROM rollouts WHERE id = attempts.rollout);
    DROP INDEX attempts_rollout;
    CREATE INDEX attempts_rollout_seq ON attempts (rollout_seq);
    """,
    # Stages. What a log held so far was live when it was written; a trial is what it names from its first entry on.
    """
    ALTER TABLE releases ADD COLUMN stage TEXT NOT NULL DEFAULT 'live';
    ALTER TABLE releases ADD COLUMN share REAL NOT NULL DEFAULT 0;
    ALTER TABLE releases ADD COLUMN unit TEXT NOT NULL DEFAULT 'session';
    ALTER TABLE releases ADD COLUMN candidate TEXT;
    ALTER TABLE releases ADD COLUMN trial TEXT;
    ALTER TABLE releases ADD COLUMN base TEXT;
    UPDATE releases SET candidate = bundle, trial = id;
    CREATE INDEX releases_stage ON releases (name, stage, seq);
    CREATE INDEX releases_trial ON releases (trial, seq);
    """,
    # A move that is made from what another one has changed meanwhile has its number, and is refused.
    """
    CREATE TABLE issues (seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, body BLOB NOT NULL);
    CREATE TABLE issue_moves (
        seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, issue TEXT NOT NULL, number INTEGER NOT NULL,
        status TEXT NOT NULL, at REAL NOT NULL, reason TEXT NOT NULL, UNIQUE (issue, number)
    );
    """,
)
OF_ROLLOUT = "a.rollout_seq = r.seq AND a.rollout = r.id"
"""Condition of the attempts `a` at a rollout `r`: once retention has deleted the last of them, a number comes again."""
OF_RUNS = (
    "seq IN (SELECT seq FROM trajectories WHERE run IN (SELECT value FROM json_each({0})) "
    "AND rtrim(id, '0123456789') <> run || '.' UNION ALL "
    "SELECT attempt.seq FROM json_each({0}) AS named CROSS JOIN trajectories AS attempt "
    "ON attempt.id >= named.value || '.' AND attempt.id < named.value || '/' WHERE attempt.run = named.value)"
)
"""Condition of the trajectories of these runs; {0} is a parameter that `listed` makes, named twice."""
_KEPT_OUT = (
    "CREATE TRIGGER IF NOT EXISTS trajectories_erased BEFORE INSERT ON trajectories "
    "WHEN EXISTS (SELECT 1 FROM tombstones WHERE kind = 'run' AND id IN (new.id, new.run)) "
    "BEGIN SELECT RAISE(IGNORE); END",
    "CREATE TRIGGER IF NOT EXISTS feedback_erased BEFORE INSERT ON feedback "
    "WHEN EXISTS (SELECT 1 FROM tombstones WHERE kind = 'run' AND id = new.run) "
    "BEGIN SELECT RAISE(IGNORE); END",
)

# DO UPDATE and never REPLACE, which deletes the row and gives it another `seq`: `totals` counts by `seq`.
_TRAJECTORY = (
    "INSERT OR ROLLBACK INTO trajectories "
    "(id, run, task_id, experiment, bundle, outcome, started, session, subject, body) VALUES {0} ON CONFLICT (id) DO "
)
STATEMENTS: dict[str, str] = {
    "trajectory": _TRAJECTORY + "NOTHING",
    # A replacement that names no experiment keeps the one that is recorded.
    "trajectory_again": _TRAJECTORY
    + "UPDATE SET run = excluded.run, experiment = coalesce(excluded.experiment, experiment), "
    "bundle = excluded.bundle, outcome = excluded.outcome, session = excluded.session, "
    "subject = excluded.subject, body = excluded.body",
    "feedback": "INSERT OR ROLLBACK INTO feedback (id, run, at, session, body) VALUES {0} ON CONFLICT (id) DO NOTHING",
    "task": "INSERT OR ROLLBACK INTO tasks (id, split, grp, body) VALUES {0} "
    "ON CONFLICT (id) DO UPDATE SET split = excluded.split, grp = excluded.grp, body = excluded.body",
    "version": "INSERT OR ROLLBACK INTO versions (id, resource, kind, body) VALUES {0} ON CONFLICT (id) DO NOTHING",
    "bundle": "INSERT OR ROLLBACK INTO bundles (id, at, body) VALUES {0} ON CONFLICT (id) DO NOTHING",
    "release": "INSERT OR ROLLBACK INTO releases (id, name, bundle, previous, at, reason, verdict, unproven, stage, "
    "share, unit, candidate, trial, base, body) VALUES {0} ON CONFLICT (id) DO NOTHING",
    "verdict": "INSERT OR ROLLBACK INTO verdicts (id, candidate, experiment, at, body) VALUES {0} "
    "ON CONFLICT (id) DO NOTHING",
    "state": "INSERT OR ROLLBACK INTO states (key, at, body) VALUES {0} "
    "ON CONFLICT (key) DO UPDATE SET at = excluded.at, body = excluded.body",
    "issue": "INSERT OR ROLLBACK INTO issues (id, body) VALUES {0} "
    "ON CONFLICT (id) DO UPDATE SET body = excluded.body",
    "issue_move": "INSERT OR ROLLBACK INTO issue_moves (id, issue, number, status, at, reason) VALUES {0} "
    "ON CONFLICT (id) DO NOTHING",
    "preference": "INSERT OR ROLLBACK INTO preferences (id, body) VALUES {0} ON CONFLICT (id) DO NOTHING",
    # RETURNING gives only rows that are new: a rollout that is known must not be queued a second time.
    "rollout": "INSERT OR ROLLBACK INTO rollouts (id, task_id, mode, resources, max_attempts, created, meta) "
    "VALUES {0} ON CONFLICT (id) DO NOTHING RETURNING seq, id, mode, max_attempts",
}
"""Writes that any process may ask for.  Each may be repeated without effect, so a write whose
acknowledgement was lost is simply sent again; a client names a key and never sends SQL.  {0} stands for
any number of rows; a row has a value for each column that is named.

OR ROLLBACK, here and wherever many rows are written: a row that a table refuses ends the transaction, as the
owner would anyway.  So SQLite keeps no journal for undoing one statement, for which it would copy every page
that the statement changes."""

LENGTHS = (100, 50, 40, 30, 25, 20, 15, 12, 10, 8, 6, 5, 4, 3, 2, 1)
"""Rows that a statement may have.  As many as can be: sqlite3 gives up the interpreter lock at every step, and
getting it back from a busy server takes longer than the step, up to 5 ms.  Not any number: each is a statement
of its own, of which the prepared form and the values that it was last given are kept."""
KEPT = 256 * 1024
"""Bytes of bodies in a statement of several rows, for the same reason."""


def portions(rows: Sequence[Sequence[Any]]) -> Iterator[Sequence[Sequence[Any]]]:
    """Rows, whose bodies stand last, cut into the lengths that statements have."""
    start, remaining = 0, len(rows)
    while remaining:
        length = next(length for length in LENGTHS if length <= remaining)
        # Numbers and short texts need no weighing, as most rows of the queue end in.
        while (
            length > 1
            and isinstance(rows[start][-1], bytes)
            and sum([_weight(row[-1]) for row in rows[start : start + length]]) > KEPT
        ):
            length = LENGTHS[LENGTHS.index(length) + 1]
        yield rows[start : start + length]
        start, remaining = start + length, remaining - length


def _weight(value: Any) -> int:
    return len(value) if isinstance(value, str | bytes) else 8


FINISHED = "finished"
"""Key of a trajectory that ends an attempt: another one under its id is an error, and no repetition."""
QUEUE_STATEMENTS: dict[str, tuple[int, str]] = {
    FINISHED: (10, _TRAJECTORY.partition(" ON CONFLICT")[0]),
    "attempt": (
        7,
        "WITH given (fence, rollout, rollout_seq, number, worker, started, bundle) AS (VALUES {0}) "
        "INSERT OR ROLLBACK INTO attempts (fence, rollout, rollout_seq, number, worker, started, bundle, outcome) "
        "SELECT *, 'running' FROM given",
    ),
    "attempt_end": (
        5,
        "WITH given (fence, ended, outcome, error, digest) AS (VALUES {0}) "
        "UPDATE OR ROLLBACK attempts SET ended = given.ended, outcome = given.outcome, error = given.error, "
        "digest = given.digest FROM given WHERE attempts.fence = given.fence",
    ),
    "rollout_state": (
        9,
        "WITH given (seq, status, attempts, fence, worker, lease, trajectory, error, done) AS (VALUES {0}) "
        "UPDATE OR ROLLBACK rollouts SET status = given.status, attempts = given.attempts, fence = given.fence, "
        "worker = given.worker, lease = given.lease, trajectory = given.trajectory, error = given.error, "
        "done = given.done FROM given WHERE rollouts.seq = given.seq",
    ),
    "counter": (
        2,
        "INSERT OR ROLLBACK INTO counters (name, value) VALUES {0} "
        "ON CONFLICT (name) DO UPDATE SET value = max(value, excluded.value)",
    ),
    "count": (
        2,
        "INSERT OR ROLLBACK INTO counters (name, value) VALUES {0} "
        "ON CONFLICT (name) DO UPDATE SET value = value + excluded.value",
    ),
}
"""Writes of the queue, which keeps the same state in memory: never taken from another process.  Columns of
a row, and the statement for any number of rows, in the order in which a transaction runs them."""

HANDLED = {"span": 10, "withdraw": 1, "erase": 4, "retain": 4, "as_of": 1, "follows": 3}
"""Writes that take more than one statement (`owner.py`): key → columns of a row."""

# Counted in the text: the first parenthesis of a statement must close its list of columns.
WIDTHS = {key: sql.partition(")")[0].count(",") + 1 for key, sql in STATEMENTS.items()} | HANDLED
"""Key → values in a row, for all that another process may send."""

TABLES = (
    "trajectories",
    "feedback",
    "tasks",
    "versions",
    "bundles",
    "releases",
    "verdicts",
    "states",
    "preferences",
    "rollouts",
)
COUNTED = tuple(table for table in TABLES if table != "states")
"""Tables whose number of rows is known without counting them and without a cost to those who write.

A new row's `seq` is the highest so far and one.  So a table has the rows that it had up to some `seq`, which
`totals` keeps, and as many more as the numbers since: nothing is written when rows come.  Where rows are deleted,
which erasure and retention alone do, that `seq` is moved to the end first (`settle`), and a trigger subtracts each
row that goes."""
SUBJECTS = "subject/"
"""Prefix of the states that hold metadata of a person."""
_HIGHEST = "coalesce((SELECT max(seq) FROM {0}), 0)"


LISTED = "(SELECT value FROM json_each(?))"
"""Any number of values as one parameter, which `listed` makes: no statement for each number is prepared and kept."""


def listed(values: Iterable[Any]) -> str:
    """Values as the parameter of `LISTED`."""
    return msgspec.json.encode(list(values)).decode()


def count_query(table: str) -> str:
    """The query for the number of rows of `spans` or of one of `TABLES`."""
    if table == "spans":
        return "SELECT coalesce(sum(rows), 0) FROM segments"
    if table not in COUNTED:
        return f"SELECT count(*) FROM {table}"
    return f"SELECT rows + {_HIGHEST.format(table)} - upto FROM totals WHERE name = '{table}'"


def settle(connection: sqlite3.Connection) -> None:
    """Move `upto` to the end of each table: before rows are deleted, and after it, for the last one may go."""
    for table in COUNTED:
        highest = _HIGHEST.format(table)
        connection.execute(
            f"UPDATE totals SET rows = rows + max(0, {highest} - upto), upto = {highest} WHERE name = ?",
            (table,),
        )


def version_of(connection: sqlite3.Connection, path: str) -> int:
    """The number of migrations that a file has seen.

    Raises:
        StoreVersionError: written by a newer whet.
        StoreError: a SQLite database of something else.
    """
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if application != APPLICATION and (tables or version or application):
        raise StoreError(f"{path} is a SQLite database of another program. Name another file for the store.")
    if version > len(MIGRATIONS):
        raise StoreVersionError(
            f"{path} has schema {version}, this whet knows {len(MIGRATIONS)}: a newer whet wrote it. "
            "Upgrade (pip install -U whet), or name another file."
        )
    return version


def keep_out(connection: sqlite3.Connection) -> None:
    """Have rows refused that would bring back who was erased; called once there may be tombstones.

    Where nobody was, no row is compared with any: that would be a fifth of what a reported trajectory costs the writer.
    """
    if connection.execute("SELECT 1 FROM tombstones WHERE kind = 'run' LIMIT 1").fetchone():
        for trigger in _KEPT_OUT:
            connection.execute(trigger)


def migrate(connection: sqlite3.Connection, path: str) -> None:
    """Bring the file up to this version's schema, or refuse it unchanged.

    Raises:
        StoreVersionError, StoreError: as of `version_of`.
    """
    for number in range(version_of(connection, path), len(MIGRATIONS)):
        connection.executescript(
            # The pragmas are in the transaction: a migration that fails leaves the file's version as it was.
            f"BEGIN IMMEDIATE; {MIGRATIONS[number]}; PRAGMA application_id = {APPLICATION}; "
            f"PRAGMA user_version = {number + 1}; COMMIT;"
        )
