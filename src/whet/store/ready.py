"""What waits next in line, read ahead of the claims: a claim reads nothing when it is here.

A rollout's row does not change while it waits, but its task may be recorded anew and may be erased:
`forget` is called with each commit that did so, before whoever wrote it is told.  Sizes are bounded;
what is not here is read.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from ..types import Rollout
from .access import Access
from .board import Entry
from .codec import decode_rollout, encode_json
from .rollouts import ROLLOUT

AHEAD = 128
"""Rollouts that one read brings."""
BYTES = 8 * 1024 * 1024
"""Of tasks that are kept; beyond that they are read when they are claimed."""


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

    def take(self, taken: Sequence[tuple[Entry, int]], ahead: Sequence[Entry]) -> list[Rollout]:
        """Rollouts that were just claimed, with the numbers of their attempts, as they will be recorded.

        Args:
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
        return [_rollout(found[entry.seq], number) for entry, number in taken]

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


def _rollout(row: Any, attempt: int) -> Rollout:
    id, task, body, mode, resources, limit, created, meta = row[:8]
    return decode_rollout(
        id, task, body, mode, resources, limit, created, meta, "running", attempt, None, None
    )


def _weight(row: Any) -> int:
    return 500 + len(row[2] or b"") + len(row[7])
