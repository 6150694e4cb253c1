"""Rollouts next in line and the id of the live Bundle, read ahead of the claims: such a claim reads nothing.

A rollout's row does not change while it waits, but its task may be recorded anew and may be erased:
`forget` is called with each commit that did so, before its future is done.  Sizes are bounded; a row that is not
here is read.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, cast

import msgspec

from ...types import Json, Rollout, Task, digest
from .bundles import EMPTY
from .codec import decode_rollout
from .database import Database
from .queue_index import QueuedRollout
from .rollouts import ROLLOUT
from .schema import LISTED, listed

AHEAD = 128
"""Rollouts that one read brings."""
BYTES = 8 * 1024 * 1024
"""Bytes of tasks that are kept; beyond that they are read when they are claimed."""


class LiveId:
    """Id of the live Bundle, read again after a release."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._id: str | None = None
        self._changes = 0
        """Releases; a read that one of them overtook is not kept."""

    def forget(self) -> None:
        """Forget the id after a release.  Called from the writer's thread."""
        with self._lock:
            self._id = None
            self._changes += 1

    def get(self) -> str:
        """The id; the empty Bundle's where nothing was released."""
        with self._lock:
            id, changes = self._id, self._changes
        if id is not None:
            return id
        rows = self._database.rows(
            "SELECT bundle, body FROM releases WHERE name = 'live' AND stage = 'live' ORDER BY seq DESC LIMIT 1"
        )
        # An entry from before Bundles had an id in the log has that of its Versions all the same.
        id = EMPTY.id if not rows else str(rows[0][0] or digest(sorted(msgspec.json.decode(rows[0][1]))))
        with self._lock:
            if changes == self._changes:
                self._id = id
        return id


class ReadAhead:
    """The rows of rollouts that wait, by their `seq`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._rows: dict[int, Any] = {}
        self._seqs: dict[str, list[int]] = {}
        """Task id → `seq` of its rollouts among the rows."""
        self._size = 0
        self._changes = 0
        """Commits that have changed tasks; a read that one of them overtook is not kept."""

    def lacks(self, entries: Sequence[QueuedRollout]) -> bool:
        """True if one of them would have to be read."""
        return any(entry.seq not in self._rows for entry in entries)

    def take(
        self,
        claimed: Sequence[tuple[QueuedRollout, int]],
        ahead: Sequence[QueuedRollout],
        live: str,
        *,
        undecoded: bool = False,
    ) -> list[tuple[Rollout, str, bytes | None]]:
        """Rollouts that were just claimed, with the numbers of their attempts; each with its task's id and JSON.

        Args:
            undecoded: the rollouts hold the JSON of their tasks and `meta`.
            live: id of the Bundle for rollouts that name none.
            ahead: entries next in line, read at the same time if anything has to be.
        """
        with self._lock:
            row_of = {entry.seq: self._pop(entry.seq) for entry, _ in claimed}
            # Under the same lock as the rows: a task that changes from here
            # on makes the read below out of date.
            changes = self._changes
        # A row that was read while another claimed it is of the attempt before.
        missing = [e.seq for e, number in claimed if (row := row_of[e.seq]) is None or row[9] != number - 1]
        if missing:
            seqs = listed([*missing, *(entry.seq for entry in ahead)])
            rows = self._database.rows(f"{ROLLOUT}WHERE r.seq IN {LISTED}", [seqs])
            read = {row[13]: row for row in rows}
            row_of.update({seq: read.pop(seq) for seq in missing})
            self._keep(read, changes)
        make = _undecoded if undecoded else _rollout
        return [(make(row := row_of[entry.seq], number, live), row[1], row[2]) for entry, number in claimed]

    def forget(self, tasks: Sequence[str] | None) -> None:
        """Forget the rows of tasks that changed; None stands for any.  Called from the writer's thread."""
        with self._lock:
            self._changes += 1
            if tasks is None:
                self._clear()
            for task in tasks or ():
                # A copy, for `_pop` takes from the list.
                for seq in self._seqs.get(task, [])[:]:
                    self._pop(seq)

    def _keep(self, read: dict[int, Any], changes: int) -> None:
        with self._lock:
            if changes != self._changes:
                return
            # Of rollouts that were cancelled, or claimed while they were read.
            if len(self._rows) > 4 * AHEAD or self._size >= BYTES:
                self._clear()
            for seq, row in read.items():
                if seq not in self._rows and self._size < BYTES:
                    self._rows[seq] = row
                    self._seqs.setdefault(row[1], []).append(seq)
                    self._size += _weight(row)

    def _clear(self) -> None:
        self._rows.clear()
        self._seqs.clear()
        self._size = 0

    def _pop(self, seq: int) -> Any:
        row = self._rows.pop(seq, None)
        if row is not None:
            self._size -= _weight(row)
            seqs = self._seqs[row[1]]
            seqs.remove(seq)
            if not seqs:
                del self._seqs[row[1]]
        return row


def _rollout(row: Any, attempt: int, live: str) -> Rollout:
    id, task, body, mode, resources, limit, created, meta = row[:8]
    return decode_rollout(
        id, task, body, mode, resources or live, limit, created, meta, "running", attempt, None, None
    )


def _undecoded(row: Any, attempt: int, live: str) -> Rollout:
    """As `_rollout`, of what is decoded only to be encoded again: a third of a claim."""
    id, task, body, mode, resources, limit, created, meta = row[:8]
    return Rollout(
        task=Task(id=task) if body is None else cast("Task", msgspec.Raw(body)),
        id=id,
        mode=mode,
        resources=resources or live,
        status="running",
        attempts=attempt,
        max_attempts=limit,
        created=created,
        meta=cast("dict[str, Json]", msgspec.Raw(meta)),
    )


def _weight(row: Any) -> int:
    return 500 + len(row[2] or b"") + len(row[7])
