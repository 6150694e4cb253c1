"""Execution match of a query: do the answered and the right SELECT give the same rows?

Both run on a database in memory that is made of the task's own script, read only: nothing but reading is allowed, no
file can be reached, and a query that does not end is stopped.  Rows are compared as a multiset, or in order where the
right query orders them.  Values count and names of columns do not, as in the benchmarks of text to SQL.
"""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Mapping
from typing import Any

from ..errors import InputError
from ..types import Json, Score, Trajectory, digest

MOST_STEPS = 50_000_000
"""Instructions of SQLite's machine after which a query is stopped: some seconds."""
MOST_ROWS = 100_000
_FENCE = re.compile(r"```(?:sql)?[ \t]*\n(.*?)```", re.DOTALL | re.IGNORECASE)
_NO_DATABASE = (
    "the task does not say on which database its query runs; give the script of it in meta['database'], or the "
    "databases to sql_match(databases={name: script})"
)
_NO_QUERY = "the task has no right query or rows to compare with; give the Task one as its answer"
_ALLOWED = frozenset(
    [
        sqlite3.SQLITE_SELECT,
        sqlite3.SQLITE_READ,
        sqlite3.SQLITE_FUNCTION,
        getattr(sqlite3, "SQLITE_RECURSIVE", 33),
    ]
)
_FORBIDDEN_FUNCTIONS = frozenset({"load_extension", "readfile", "writefile", "edit", "fts3_tokenizer"})

Rows = list[tuple[Any, ...]]


class SqlMatch:
    """The share of rows that the answered query and the right one have in common (F1); 1.0 only for the same rows.

    The task's answer is the right query, or its rows as a list of lists; `meta["database"]` is a script of CREATE
    and INSERT statements, or the name of one of `databases`.

    Args:
        databases: name → script.
        partial: False gives 1.0 or 0.0.
    """

    def __init__(self, databases: Mapping[str, str] | None = None, *, partial: bool = True) -> None:
        self.name = "sql"
        self._databases, self._partial = dict(databases or {}), partial
        self.version = f"1:{digest([self._databases, partial], 12)}"
        self._open: tuple[str, sqlite3.Connection] | None = None

    def __call__(self, trajectory: Trajectory) -> Score:
        """The score; None where the task does not say what is right.

        Raises:
            InputError: the task's own script or query fails.
        """
        named, right = trajectory.task.meta.get("database"), trajectory.task.answer
        script = self._databases.get(named, named) if isinstance(named, str) else None
        if not script:
            return Score(self.name, None, _NO_DATABASE, self.version)
        if not right:
            return Score(self.name, None, _NO_QUERY, self.version)
        connection = self._connection(script)
        ordered = isinstance(right, str) and re.search(r"\border\s+by\b", right, re.IGNORECASE) is not None
        try:
            wanted = _rows(connection, right) if isinstance(right, str) else [tuple(row) for row in right]
        except (sqlite3.Error, TypeError) as error:
            raise InputError(f"the right query of task {trajectory.task.id} fails: {error}") from error
        query = query_in(trajectory.output)
        if not query:
            return Score(self.name, 0.0, "no query was answered", self.version)
        try:
            answered = _rows(connection, query)
        except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
            return Score(self.name, 0.0, f"the query fails: {error}"[:300], self.version)
        value, reason = _alike(wanted, answered, ordered)
        return Score(self.name, value if self._partial else float(value == 1.0), reason, self.version)

    def _connection(self, script: str) -> sqlite3.Connection:
        """The database of a script; the last one is kept, for tasks of one come together."""
        key = digest(script)
        if self._open is not None and self._open[0] == key:
            return self._open[1]
        if self._open is not None:
            self._open[1].close()
            self._open = None
        connection = sqlite3.connect(":memory:", check_same_thread=False)
        # Before the script, too: it comes with a task, and may not reach a file.
        connection.set_authorizer(_building)
        _limit(connection)
        try:
            connection.executescript(script)
        except sqlite3.Error as error:
            connection.close()
            raise InputError(f"the script of a task's database fails: {error}") from error
        connection.set_authorizer(_reading)
        self._open = key, connection
        return connection


def query_in(output: Json) -> str:
    """The query of an answer: its last fenced block, or all of it."""
    text = output if isinstance(output, str) else ""
    blocks = _FENCE.findall(text)
    return (blocks[-1] if blocks else text).strip().rstrip(";")


def _rows(connection: sqlite3.Connection, query: str) -> Rows:
    _limit(connection)
    rows = connection.execute(query).fetchmany(MOST_ROWS + 1)
    if len(rows) > MOST_ROWS:
        raise ValueError(f"more than {MOST_ROWS:,} rows")
    return [tuple(map(_plain, row)) for row in rows]


def _limit(connection: sqlite3.Connection) -> None:
    left = [MOST_STEPS // 100_000]

    def spent() -> int:
        left[0] -= 1
        return int(left[0] < 0)

    connection.set_progress_handler(spent, 100_000)


def _plain(value: Any) -> Any:
    return round(float(value), 6) if isinstance(value, int | float) else value


def _alike(wanted: Rows, answered: Rows, ordered: bool) -> tuple[float, str]:
    # The rows that were given as JSON have not gone through `_rows`.
    wanted = [tuple(map(_plain, row)) for row in wanted]
    if wanted == answered or (not ordered and Counter(wanted) == Counter(answered)):
        return 1.0, ""
    if not wanted or not answered:
        return 0.0, f"{len(answered)} rows instead of {len(wanted)}"
    common = sum((Counter(wanted) & Counter(answered)).values())
    share = 2 * common / (len(wanted) + len(answered))
    if share == 1.0:
        return 0.9, "the right rows in another order"
    return share, f"{common} of {len(wanted)} rows, {len(answered) - common} others"


def _reading(action: int, name: str | None, other: str | None, *_: Any) -> int:
    called = str(other or name).lower()
    if action not in _ALLOWED or (action == sqlite3.SQLITE_FUNCTION and called in _FORBIDDEN_FUNCTIONS):
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK


def _building(action: int, name: str | None, other: str | None, *_: Any) -> int:
    if action in (sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH, sqlite3.SQLITE_PRAGMA):
        return sqlite3.SQLITE_DENY
    if action == sqlite3.SQLITE_FUNCTION and str(other or name).lower() in _FORBIDDEN_FUNCTIONS:
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK


def sql_match(databases: Mapping[str, str] | None = None, *, partial: bool = True) -> SqlMatch:
    """A reward for answered queries; arguments as of `SqlMatch`."""
    return SqlMatch(databases, partial=partial)


SQL = SqlMatch()
"""The reward that is named `sql`."""
