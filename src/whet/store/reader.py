"""Reads: a pool of read-only connections to the file, one per thread that reads at the time."""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from ..errors import StoreError
from .owner import failure
from .writer import Value

STATEMENTS_KEPT = 64
"""Prepared statements of a connection: those that look for spans take up to 40 KB each."""


class Readers:
    """Connections are made as they are needed and used again."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._idle: deque[sqlite3.Connection] = deque()
        self._closed = False

    def rows(self, query: str, values: Sequence[Value] = ()) -> list[Any]:
        """All rows of a query, from what is committed now.

        Raises:
            StoreError: closed, damaged, or not readable.
        """
        if self._closed:
            raise StoreError(f"{self._path} is closed. Open it again with whet.Store(path).")
        try:
            try:
                connection = self._idle.pop()
            except IndexError:
                connection = self._open()
            try:
                found = connection.execute(query, values).fetchall()
            except BaseException:
                connection.close()
                raise
            self._idle.append(connection)
            return found
        except sqlite3.Error as exception:
            raise failure(self._path, exception) from exception

    def close(self) -> None:
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"file:{quote(self._path)}?mode=ro",
            uri=True,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=STATEMENTS_KEPT,
        )
        connection.execute("PRAGMA busy_timeout = 10000")
        return connection
