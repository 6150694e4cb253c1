"""How many model calls a gateway has begun and how many it has recorded, over the life of a store.

A gateway answers before it has recorded, so a `kill -9` can lose calls.  The number of those that were begun stands
in a few shared bytes beside the store (`FILE.calls`), which outlive the process and cost no write to the disk; the
number of those that were recorded is written by the commit that records them.  What was begun and is not recorded when
the next gateway starts was lost.  When a machine loses its power the bytes may be some seconds old and the count low.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
import time
from pathlib import Path
from typing import NamedTuple

import msgspec

from ...errors import StoreError
from .group_commit import Writes
from .store import Store

KEY = "gateway calls"
_COUNTS = struct.Struct("<8sQ")
_MARK = b"whet-cal"


class CallCounts(NamedTuple):
    """The model calls of a store's gateways."""

    recorded: int
    lost: int
    """Before the gateway was started last."""
    open: int
    """Begun since then and not recorded: under way, or about to be written, or lost where no gateway runs any more."""


class CallTally:
    """Counts for the gateway that serves a store; one at a time.

    Args:
        store: a file, or in memory, where nothing outlives the process.

    Raises:
        StoreError: the record cannot be read.
    """

    def __init__(self, store: Store) -> None:
        self.recorded, before = _stored(store)
        self._shared: mmap.mmap | None = None
        path = _path(store)
        begun = 0
        if path is not None:
            with contextlib.suppress(
                OSError, ValueError
            ):  # a folder that cannot be written to: calls go on uncounted
                self._shared = _mapped(path)
                begun = _begun(self._shared[:])
        self._begun = max(begun, self.recorded + before)
        self.lost = self._begun - self.recorded
        """Calls that were begun before this start and never recorded."""
        if self.lost != before:
            store.put_state(KEY, {"recorded": self.recorded, "lost": self.lost})
        self._note()

    def begin(self) -> None:
        """Count a call that is let in.  Called in one thread."""
        self._begun += 1
        self._note()

    def record(self, calls: int) -> Writes:
        """What counts these calls as recorded, for the commit that records them.  Called in one thread."""
        body = msgspec.json.encode({"recorded": self.recorded + calls, "lost": self.lost})
        return [("state", [(KEY, time.time(), body)])]

    def committed(self, calls: int) -> None:
        """That commit is durable."""
        self.recorded += calls

    def close(self) -> None:
        """Let go of the file."""
        if self._shared is not None:
            self._shared.flush()
            self._shared.close()
            self._shared = None

    def _note(self) -> None:
        if self._shared is not None:
            _COUNTS.pack_into(self._shared, 0, _MARK, self._begun)


def counts(store: Store) -> CallCounts | None:
    """The counts of a store's gateways, None if it never had one."""
    recorded, lost = _stored(store)
    begun, path = 0, _path(store)
    if path is not None:
        with contextlib.suppress(OSError):
            begun = _begun(path.read_bytes())
    if not recorded and not begun:
        return None
    return CallCounts(recorded, lost, max(0, begun - recorded - lost))


def _stored(store: Store) -> tuple[int, int]:
    held = store.state(KEY, {})
    numbers = [held.get(name, 0) if isinstance(held, dict) else 0 for name in ("recorded", "lost")]
    if not all(type(number) is int and number >= 0 for number in numbers):
        raise StoreError(
            f"the state {KEY!r} of the record is {held!r:.100}; it holds two counts of model calls"
        )
    return numbers[0], numbers[1]


def _path(store: Store) -> Path | None:
    name = str(store.database.path)
    return None if name == ":memory:" else Path(f"{name}.calls")


def _mapped(path: Path) -> mmap.mmap:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if os.fstat(descriptor).st_size < _COUNTS.size:
            os.truncate(descriptor, _COUNTS.size)
        return mmap.mmap(descriptor, _COUNTS.size)
    finally:
        os.close(descriptor)


def _begun(held: bytes) -> int:
    """The number of calls that were begun, 0 where the bytes are not a count."""
    if len(held) < _COUNTS.size:
        return 0
    mark, begun = _COUNTS.unpack_from(held)
    return int(begun) if mark == _MARK else 0
