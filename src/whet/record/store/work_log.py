"""An append log of one piece of work: answers that were paid for are durable before they are used.

A checkpoint says where a loop stood after a round. Within a round an optimizer asks models and runs candidates, and
a process that is killed there must not pay for them again: it enters each answer under a key, and finds it
when the round is run anew. Entries are never changed; the log ends with the work that it belongs to.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING

import msgspec

from ...types import Json
from .codec import encode_json
from .group_commit import ready

if TYPE_CHECKING:
    from .store import Store

_BEHIND = 256
"""Entries that the disk may be behind; beyond it `put` waits for the oldest."""


class Log:
    """Entries by key, in the store under one name; in memory only where there is no store.

    >>> log = Log(store, "experiment/improve/evolve")
    >>> await asyncio.wrap_future(log.put("answer/1", completion))     # durable
    >>> log.get("answer/1")

    Args:
        store: keeps the entries; None keeps them for the life of the object.
        name: of the work. Entries under the same name belong together.
    """

    def __init__(self, store: Store | None = None, name: str = "log") -> None:
        self.store, self.name = store, name
        self._entries: dict[str, bytes] = {}
        self._pending: deque[tuple[str, Future[None]]] = deque()
        # Read once: a search looks up every proposal, mostly in vain.
        self._stored: set[str] = set()
        if store is not None:
            begin, end = self._key(""), f"log/{name}0"  # "0" follows "/" in the order of keys
            rows = store.database.rows(
                "SELECT key FROM states WHERE key > ? AND key < ? ORDER BY at, key", [begin, end]
            )
            self._stored = {key.removeprefix(begin) for (key,) in rows}

    def _key(self, key: str) -> str:
        return f"log/{self.name}/{key}"

    def __contains__(self, key: str) -> bool:
        return key in self._stored or key in self._entries

    def __len__(self) -> int:
        return len(self._stored | self._entries.keys())

    def __iter__(self) -> Iterator[str]:
        yield from self._stored | self._entries.keys()

    @staticmethod
    def entries(store: Store, kind: str) -> Iterator[tuple[str, Json]]:
        """The name of the work, and the value, of all entries under `kind/`, as they were entered."""
        rows = store.database.rows(
            "SELECT key FROM states WHERE key > 'log/' AND key < 'log0' AND instr(key, ?) ORDER BY at, key",
            [f"/{kind}/"],
        )
        # One by one: together they may be more than memory holds.
        for (key,) in rows:
            yield key.removeprefix("log/").partition(f"/{kind}/")[0], store.state(key)

    def get(self, key: str, default: Json = None) -> Json:
        """The entry under `key`, else `default`."""
        if key in self._entries:
            return msgspec.json.decode(self._entries[key])
        if key in self._stored and self.store is not None:
            return self.store.state(self._key(key), default)
        return default

    def put(self, key: str, value: Json) -> Future[None]:
        """Enter a value; the future is done once it is durable. An entry that is there stays as it is.

        Wait for the future before using a paid answer; an entry that only saves time may be left to `flush`.

        Raises:
            InputError: the value has no JSON form.
            StoreError: an earlier entry could not be written.
        """
        if key in self:
            return ready(None)
        body = encode_json(value)
        # In memory until it is durable: no reader of the file sees it sooner.
        self._entries[key] = body
        if self.store is None:
            return ready(None)
        batch = self.store.batch()
        batch.put_state(self._key(key), value)
        durable = batch.submit()
        self._pending.append((key, durable))
        while self._pending and (self._pending[0][1].done() or len(self._pending) > _BEHIND):
            self._settle()
        return durable

    def flush(self) -> None:
        """Wait until every entry is durable.

        Raises:
            StoreError: one could not be written.
        """
        while self._pending:
            self._settle()

    def _settle(self) -> None:
        """Wait for the oldest entry under way; from then on it is read from the store, not from memory."""
        key, durable = self._pending.popleft()
        durable.result()
        self._stored.add(key)
        del self._entries[key]
