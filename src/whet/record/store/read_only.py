"""A store that this process may only read: on a read-only medium, or in a folder of somebody else's.

Its owner, if one runs, has the lock and the log beside the file, where nothing can be made from here.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Sequence

from ...errors import StoreError
from .group_commit import Submission
from .schema import MIGRATIONS, version_of

_DENIED = (errno.EROFS, errno.EACCES, errno.EPERM)
_READ_ONLY = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM)


class ReadOnlyLink:
    """The Link of a store that is only read: every write is refused, with the reason."""

    def __init__(self, path: str, reason: StoreError) -> None:
        self._path, self._reason = path, reason

    @property
    def refusal(self) -> StoreError:
        """The reason and the remedy."""
        return StoreError(
            f"{self._path} can only be read here: {self._reason} Nothing was recorded. To write, copy it to a folder "
            "where you may."
        )

    def commit(self, group: Sequence[Submission]) -> list[Exception | None]:
        # An empty submission writes nothing, so there is nothing to refuse.
        return [self.refusal if submission.rows else None for submission in group]

    def close(self) -> None:
        """Nothing is held."""

    forget = close


def denied(path: str, problem: StoreError) -> bool:
    """True if a store could not be owned only because it may not be written, and can be read."""
    cause = problem.__cause__
    code = getattr(cause, "sqlite_errorcode", 0) & 0xFF
    return (getattr(cause, "errno", None) in _DENIED or code in _READ_ONLY) and (
        os.path.isfile(path) and os.path.getsize(path) > 0 and os.access(path, os.R_OK)
    )


def unmerged(path: str) -> bool:
    """True if a log stands beside the file whose content the file does not have yet."""
    try:
        return os.path.getsize(path + "-wal") > 0
    except OSError:
        return False


def check_readable(path: str, connection: sqlite3.Connection) -> None:
    """Refuse a file that would have to be written before it can be read.

    Raises:
        StoreVersionError, StoreError: not a store, or of another version of whet.
    """
    if (version := version_of(connection, path)) < len(MIGRATIONS):
        raise StoreError(
            f"{path} has schema {version} of {len(MIGRATIONS)}: an older whet wrote it, and it cannot be brought up to "
            "date where it may only be read. Copy it to a folder where you may write, and open the copy."
        )


def log_problem(path: str, problem: Exception) -> StoreError:
    """The reason why a file with a log beside it could not be read."""
    return StoreError(
        f"{path} cannot be read here ({problem}): its last process was killed, and {path}-wal holds what it committed "
        f"last. Copy both to a folder where you may write, and open the copy."
    )
