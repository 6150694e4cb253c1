"""Recorded: the same question is never paid for twice.

Answers are kept in a SQLite file of their own and are durable before they are returned, so
a run that is killed and started again replays what it has already bought.  One thread writes
them: those that arrive while the disk is busy share the next commit, and the event loop never
waits for a disk.  It is not a semantic cache: a request that differs in one character is
another request.
"""

from __future__ import annotations

import asyncio
import heapq
import sqlite3
import threading
import weakref
from collections import Counter, deque
from collections.abc import AsyncGenerator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from ..errors import ModelError, StoreError
from .base import Chunk, Completion, Messages, Model, Request

_TABLE = "CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, completion BLOB NOT NULL) WITHOUT ROWID"


class Recorded:
    """A Model that answers from its record, and asks the model behind it only for what is not there.

    The key is the model's name, the canonical request and a sample number.  The sample
    number is the `sample` that the call gives, or else how often this object was asked the same
    before: so ten samples of one prompt are ten answers, and a resumed run gets the same ten.
    Give `sample` where identical requests run concurrently and who gets which answer matters.
    Failures are not recorded.

    Args:
        model: what answers the rest; None replays only.
        path: SQLite file, made if missing; ":memory:" forgets.
        name: the model name in the key, if not `model.name`; replaying without a model needs it.

    Raises:
        StoreError: the file cannot be opened or is something else.
    """

    def __init__(self, model: Model | None, path: str | Path = ":memory:", *, name: str = "") -> None:
        self.model = model
        self.name = name or (model.name if model else "recorded")
        self.hits = 0
        self.misses = 0
        self._path = path
        self._asked: Counter[str] = Counter()
        self._freed: dict[str, list[int]] = {}
        self._flights: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()
        self._lock = threading.Lock()
        self._rows: deque[tuple[str, bytes, Future[None]]] = deque()
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="whet-recorded")
        self._db = self._open()
        # What is written in memory is seen through its own connection alone.
        self._out = self._db if str(path) == ":memory:" else self._open()

    def _open(self) -> sqlite3.Connection:
        path = self._path
        try:
            opened = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=30)
        except sqlite3.Error as error:
            raise StoreError(f"Cannot open recorded answers at {path}: {error}.") from error
        try:
            opened.execute("PRAGMA journal_mode=WAL")
            opened.execute("PRAGMA synchronous=FULL")
            opened.execute(_TABLE)
        except sqlite3.Error as error:
            opened.close()
            raise StoreError(f"Cannot use {path} for recorded answers: {error}.") from error
        return opened

    def close(self) -> None:
        """Write what is left and close the file; the model behind stays open."""
        self._writer.shutdown()
        self._out.close()
        self._db.close()

    def __enter__(self) -> Recorded:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        """Answers on record."""
        with self._lock:
            return int(self._db.execute("SELECT count(*) FROM answers").fetchone()[0])

    async def complete(self, messages: Messages, *, sample: int | None = None, **settings: Any) -> Completion:
        """The recorded answer, or a new one that is recorded first.

        Raises:
            ModelError: the model failed, or nothing is recorded and there is no model.
            StoreError: the answer could not be written; it is lost to the record.
        """
        with self._numbered(messages, sample, settings) as key:
            # One lock per key: of two tasks that ask the same, the second waits and replays.
            async with self._flights.setdefault(key, asyncio.Lock()):
                found = self._find(key)
                if found is None:
                    self.misses += 1
                    found = await self._behind(key).complete(messages, **settings)
                    await self._keep(key, found)
                else:
                    self.hits += 1
        return found

    async def stream(
        self, messages: Messages, *, sample: int | None = None, **settings: Any
    ) -> AsyncGenerator[Chunk, None]:
        """The recorded answer in one piece, or a new one as it comes, recorded when it is whole."""
        with self._numbered(messages, sample, settings) as key:
            found = self._find(key)
            if found is not None:
                self.hits += 1
                yield Chunk(found.text)
                yield Chunk(completion=found)
                return
            self.misses += 1
            async for chunk in self._behind(key).stream(messages, **settings):
                if chunk.completion is not None:
                    await self._keep(key, chunk.completion)
                yield chunk

    @contextmanager
    def _numbered(self, messages: Messages, sample: int | None, settings: dict[str, Any]) -> Iterator[str]:
        """The key of this call; a call that fails gives its sample number back to the next."""
        request = Request.of(messages, settings).key(self.name)
        number = sample
        if number is None:
            freed = self._freed.get(request)
            if freed:
                number = heapq.heappop(freed)
            else:
                number = self._asked[request]
                self._asked[request] += 1
        try:
            yield f"{request}:{number}"
        except BaseException:
            if sample is None:
                heapq.heappush(self._freed.setdefault(request, []), number)
            raise

    def _behind(self, key: str) -> Model:
        if self.model is None:
            raise ModelError(
                f"No recorded answer of {self.name!r} for request {key} in {self._path}, and no model "
                "to ask. Give Recorded a model, or replay the run that was recorded."
            )
        return self.model

    def _find(self, key: str) -> Completion | None:
        with self._lock:
            row = self._db.execute("SELECT completion FROM answers WHERE key = ?", (key,)).fetchone()
        if row is None:
            return None
        try:
            return msgspec.json.decode(row[0], type=Completion)
        except msgspec.DecodeError as error:
            raise StoreError(f"Recorded answer {key} in {self._path} is damaged: {error}.") from error

    async def _keep(self, key: str, completion: Completion) -> None:
        """Wait until an answer is on disk; one whose caller gives up meanwhile is written all the same."""
        done: Future[None] = Future()
        self._rows.append((key, msgspec.json.encode(completion), done))
        self._writer.submit(self._write)
        await asyncio.wrap_future(done)

    def _write(self) -> None:
        """In the writer's thread: one commit for all that waits."""
        rows: list[tuple[str, bytes]] = []
        told: list[Future[None]] = []
        while self._rows:
            key, body, done = self._rows.popleft()
            rows.append((key, body))
            if done.set_running_or_notify_cancel():
                told.append(done)
        if not rows:
            return  # they went with the commit before
        failure: StoreError | None = None
        try:
            self._out.execute("BEGIN")
            try:
                self._out.executemany("INSERT OR REPLACE INTO answers VALUES (?, ?)", rows)
                self._out.execute("COMMIT")
            except BaseException:
                if self._out.in_transaction:
                    self._out.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            failure = StoreError(f"Cannot record an answer in {self._path}: {error}.")
        for done in told:
            if failure is None:
                done.set_result(None)
            else:
                done.set_exception(failure)
