"""What is live in the record that a program records to, without waiting for it.

A file is asked at most once in `WATCH` seconds, by whoever reads a resource then, which costs a tenth of a
millisecond, and at once after this process released or rolled back; a server is asked by a thread.  Nothing here makes
a store, writes one, or raises into the caller's code: where the record cannot be read, what was live goes on, at first
the agent as it came, and that is said once.
"""

from __future__ import annotations

import os
import threading
import time
import warnings
from typing import TYPE_CHECKING, Any

from ..errors import WhetError
from ..store import Store
from ..store.bundles import EMPTY
from ..store.database import Reader
from ..store.group_commit import releases_written
from ..store.releases import LIVE, history
from ..types import Bundle

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..store.group_commit import Value
    from .remote import Remote

WATCH = 1.0
"""Seconds after which the record is asked again."""
_inherited: list[object] = []
"""Connections that a fork copied: never to be used or closed in the child."""


class _File(Reader):
    """The file of a store, which need not exist yet."""

    def rows(self, query: str, values: Sequence[Value] = ()) -> list[Any]:
        return super().rows(query, values) if os.path.exists(self.path) else []


class Following:
    """The live Bundle of one store, given as a Store, the path of a file, or a server."""

    def __init__(self, target: Store | Remote | str) -> None:
        self._target = target
        self._reset()

    def _reset(self) -> None:
        """At the start, and in a forked child, which has neither the threads nor the connections of its parent."""
        self._source: Reader | None = None
        if isinstance(self._target, Store):
            self._source = self._target.database
        elif isinstance(self._target, str):
            self._source = _File(self._target)
        self._bundle = EMPTY
        self._release: str | None = None
        self._ask_at = 0.0
        self._written = releases_written()
        self._told = False
        self._lock = threading.Lock()

    def forked(self) -> None:
        """In the child of a fork."""
        _inherited.append(self._source)
        self._reset()

    @property
    def bundle(self) -> Bundle:
        """What is live; empty where nothing is."""
        # Of a server, a thread asks; of a file, who comes after a release of this process may not miss it.
        newer = self._source is not None and releases_written() != self._written
        if newer or time.monotonic() >= self._ask_at:
            self._ask_once(wait=newer)
        return self._bundle

    def _ask_once(self, *, wait: bool) -> None:
        if self._lock.acquire(blocking=wait):
            try:
                self._written = (
                    releases_written()
                )  # before asking: what is written meanwhile is asked for again
                self._ask_at = time.monotonic() + WATCH
                self._ask()
            finally:
                self._lock.release()

    def _ask(self) -> None:
        try:
            if self._source is not None:
                self._read(self._source)
            else:
                self._ask_at = float("inf")  # from here on the thread asks
                try:
                    self._fetch()
                finally:
                    threading.Thread(target=self._watch, name="whet-live", daemon=True).start()
        except (WhetError, OSError, RuntimeError, ValueError) as error:
            self._tell(error)

    def _read(self, source: Reader) -> None:
        newest = source.rows("SELECT id FROM releases WHERE name = 'live' ORDER BY seq DESC LIMIT 1")
        release = newest[0][0] if newest else None
        if release != self._release:
            entries = history(source, LIVE, 1)
            self._bundle, self._release = entries[0].bundle if entries else EMPTY, release

    def _fetch(self) -> None:
        remote = self._target
        if not isinstance(remote, Store | str) and (bundle := remote.live()) != self._bundle:
            self._bundle = bundle

    def _watch(self) -> None:
        while True:
            time.sleep(WATCH)
            try:
                self._fetch()
            except (OSError, ValueError) as error:
                self._tell(error)

    def _tell(self, error: Exception) -> None:
        if not self._told:
            self._told = True
            warnings.warn(
                f"what is live cannot be read, so this program goes on as it is: {error}", stacklevel=2
            )
