"""What waits next in line and what is live, read ahead of the claims: a claim reads nothing when it is here.

A rollout's row does not change while it waits, but its task may be recorded anew and may be erased:
`forget` is called with each commit that did so, before whoever wrote it is told.  Sizes are bounded;
what is not here is read.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import msgspec

from ..types import Rollout, digest
from .access import Access
from .board import Entry
from .bundles import EMPTY
from .codec import decode_rollout, encode_json
from .rollouts import ROLLOUT

AHEAD = 128
"""Rollouts that one read brings."""
BYTES = 8 * 1024 * 1024
"""Of tasks that are kept; beyond that they are read when they are claimed."""


class LiveId:
    """Id of the live Bundle, read again after a release.

    Args:
        store: what is read.
    """

    def __init__(self, store: Access) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._id: str | None = None
        self._changes = 0
        """Releases; a read that one of them overtook is not kept."""

    def forget(self) -> None:
        """Something was released.  Called from the writer's thread."""
        with self._lock:
            self._id = None
            self._changes += 1

    def get(self) -> str:
        """The id; the empty Bundle's where nothing was released."""
        with self._lock:
            known, changes = self._id, self._changes
        if known is not None:
            return known
        rows = self._store.rows(
            "SELECT bundle, body FROM releases WHERE name = 'live' ORDER BY seq DESC LIMIT 1"
        )
        # An entry from before Bundles had an id in the log has that of its Versions all the same.
        found = EMPTY.id if not rows else rows[0][0] or digest(sorted(msgspec.json.decode(rows[0][1])))
        with self._lock:
            if changes == self._changes:
                self._id = found
        return str(found)


class Ready:
    """The rows of rollouts that wait, by their place.

    Args:
        store: what is read.
    """

    def __init__(self, store: Access) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._rows: dict[int, Any] = {}
        self._places: dict[str, list[int]] = {}
        """Task id → the places of its rollouts among the rows."""
        self._size = 0
        self._changes = 0
        """Commits that have changed tasks; a read that one of them overtook is not kept."""

    def lacks(self, entries: Sequence[Entry]) -> bool:
        """Whether one of them would have to be read."""
        return any(entry.seq not in self._rows for entry in entries)

    def take(self, taken: Sequence[tuple[Entry, int]], ahead: Sequence[Entry], live: str) -> list[Rollout]:
        """Rollouts that were just claimed, with the numbers of their attempts.

        Args:
            live: the Bundle that those run under which name none.
            ahead: who is next in line, read at the same time if anything has to be.
        """
        with self._lock:
            found = {entry.seq: self._pop(entry.seq) for entry, _ in taken}
            changes = self._changes
        # A row that was read while another claimed it is of the attempt before.
        missing = [e.seq for e, number in taken if (row := found[e.seq]) is None or row[9] != number - 1]
        if missing:
            wanted = encode_json([*missing, *(entry.seq for entry in ahead)]).decode()
            rows = self._store.rows(ROLLOUT + "WHERE r.seq IN (SELECT value FROM json_each(?))", [wanted])
            read = {row[13]: row for row in rows}
            found.update({seq: read.pop(seq) for seq in missing})
            self._keep(read, changes)
        return [_rollout(found[entry.seq], number, live) for entry, number in taken]

    def forget(self, tasks: Sequence[str] | None) -> None:
        """These tasks are not what they were; None stands for any.  Called from the writer's thread."""
        with self._lock:
            self._changes += 1
            if tasks is None:
                self._clear()
            for task in tasks or ():
                for seq in self._places.get(task, [])[:]:
                    self._pop(seq)

    def _keep(self, read: dict[int, Any], changes: int) -> None:
        with self._lock:
            if changes != self._changes:
                return
            if (
                len(self._rows) > 4 * AHEAD or self._size >= BYTES
            ):  # of rollouts that were cancelled, or claimed while they were read
                self._clear()
            for seq, row in read.items():
                if seq not in self._rows and self._size < BYTES:
                    self._rows[seq] = row
                    self._places.setdefault(row[1], []).append(seq)
                    self._size += _weight(row)

    def _clear(self) -> None:
        self._rows.clear()
        self._places.clear()
        self._size = 0

    def _pop(self, seq: int) -> Any:
        row = self._rows.pop(seq, None)
        if row is not None:
            self._size -= _weight(row)
            places = self._places[row[1]]
            places.remove(seq)
            if not places:
                del self._places[row[1]]
        return row


def _rollout(row: Any, attempt: int, live: str) -> Rollout:
    id, task, body, mode, resources, limit, created, meta = row[:8]
    return decode_rollout(
        id, task, body, mode, resources or live, limit, created, meta, "running", attempt, None, None
    )


def _weight(row: Any) -> int:
    return 500 + len(row[2] or b"") + len(row[7])
