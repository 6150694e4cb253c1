"""From the caller's thread to the store: a queue that a background thread drains.

The caller appends and goes on.  A full queue drops and counts.  Where no owner of the store can
be reached, or it cannot be written, what was recorded goes to `<store>.spool-<pid>`, which the
next owner takes in.  Nothing here ever raises into the caller's code.

Secrets are taken out on the background thread, before anything reaches the store or the spool
(`redact.py` says which); a record that cannot be looked through is dropped and counted, not written.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import time
import warnings
import weakref
from collections import deque
from typing import TYPE_CHECKING

from ..errors import StoreError, WhetError
from ..store import Batch, Store
from ..store.batch import trajectory_row
from ..store.client import append_to_spool
from ..store.codec import encode
from ..store.releases import declared
from ..types import Bundle, Feedback
from .following import Following
from .record import CallNote, process_run, trajectory

if TYPE_CHECKING:
    from .redact import Redactor
    from .remote import Remote

LIMIT = 100_000
"""Finished calls that may wait."""
GROUPING = 0.005
"""Seconds that the writer lets a group gather: what a process killed without warning may lose."""
LISTENS = 50
"""Times that it looks for more after the last one before it has to be woken, for which who calls would pay."""
RETRY = 2.0
"""Seconds between attempts to open a store that could not be opened."""
LOOK = 0.1
"""Seconds for which what the environment names stands: looking it up costs several times a read of a resource."""
_AT_EXIT = 10.0

Item = CallNote | Feedback | threading.Event
"""An Event is set once everything before it has been written."""


class Sink:
    """Takes what is recorded for one store: a Store, the path of one that is opened when needed, or a server."""

    def __init__(self, target: Store | Remote | str) -> None:
        self.path = target.path if isinstance(target, Store) else ""
        if isinstance(target, str):
            self.path = os.path.realpath(target)
        self._store = target if isinstance(target, Store) else None
        self._remote = None if isinstance(target, Store | str) else target
        self._own = isinstance(target, str)
        self._retry_at = 0.0
        self._following = Following(target if self._store or self._remote else self.path)
        self._declared: set[str] = set()
        """Names of resources that the record knows this program reads."""
        self.spooled = 0
        self._reset()
        _sinks.add(self)
        if isinstance(target, Store):
            target.database.before_close(self._flushed)

    @property
    def target(self) -> Store | str | None:
        """The Store that was given, else the path; None of what is sent to a server."""
        return self._store if self._store is not None and not self._own else self.path or None

    @property
    def live(self) -> Bundle:
        """What is live in this store, or was a second ago if another process released; empty: as it came."""
        return self._following.bundle

    def _forked(self) -> None:
        """In a forked child."""
        self._reset()
        self._following.forked()

    def _reset(self) -> None:
        """A state without threads: at the start, and in a forked child, whose parent keeps the rest."""
        self._queue: deque[Item] = deque()
        self._idle = True
        self._event = threading.Event()
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        self.dropped = 0

    def add(self, item: Item) -> None:
        """Queue it, or count it as dropped."""
        queue = self._queue
        if len(queue) >= LIMIT and not isinstance(item, threading.Event):
            self._drop(1)
            return
        queue.append(item)
        if self._idle:
            self._wake()

    def flush(self, timeout: float = _AT_EXIT) -> bool:
        """Wait until what was added has been written, spooled or dropped; False after `timeout` seconds."""
        if not self._queue and self._idle:
            return True
        done = threading.Event()
        self.add(done)
        return done.wait(timeout)

    def _flushed(self) -> None:
        self.flush()

    def close(self) -> None:
        """Flush, and close the store if this sink opened it."""
        self.flush()
        if self._own and self._store is not None:
            with contextlib.suppress(StoreError):
                self._store.close()
            self._store = None

    def _drop(self, number: int) -> None:
        with self._lock:
            self.dropped += number

    def _wake(self) -> None:
        with self._lock:
            self._idle = False
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="whet-tracing", daemon=True)
                try:
                    self._thread.start()
                except RuntimeError:  # the interpreter is ending: what comes now is written right here
                    self._thread = None
                    self._idle = True
                    items = list(self._queue)
                    self._queue.clear()
                    self._drain(items)
                    return
                _finish_with_multiprocessing()
            self._event.set()

    def _run(self) -> None:
        queue, nothing = self._queue, 0
        while True:
            if nothing >= LISTENS:
                self._idle = True
                if not queue:
                    self._event.wait()
                self._idle = False
                self._event.clear()
            time.sleep(GROUPING)
            nothing = 0 if queue else nothing + 1
            while queue:
                self._drain([queue.popleft() for _ in range(min(len(queue), 200))])

    def _drain(self, items: list[Item]) -> None:
        batch = Batch()
        count = 0
        for item in items:
            try:
                if isinstance(item, CallNote):
                    self._add_call(batch, item)
                    count += 1
                elif isinstance(item, Feedback):
                    redactor = redaction()
                    batch.add_feedback(item if redactor is None else redactor.feedback(item))
                    count += 1
            except Exception:  # one record that cannot be encoded may not cost the others
                self._drop(1)
        if count:
            self._declare(batch)
            self._write(batch, count)
        for item in items:
            if isinstance(item, threading.Event):
                item.set()

    def _declare(self, batch: Batch) -> None:
        """Have the record know which resources this program reads, and what they are as they came."""
        for name, handle in list(declared.items()):
            if name in self._declared:
                continue
            self._declared.add(name)
            try:
                default, redactor = handle.default_version, redaction()
                secret = redactor is not None and redactor.suspects(encode(default))
                batch.declare(default, content=not secret)
            except Exception:  # a default that cannot be read any more: what was traced counts
                continue

    def _add_call(self, batch: Batch, note: CallNote) -> None:
        row = trajectory_row(trajectory(note, encoded=True))
        redactor, body = redaction(), row[-1]
        if redactor is not None and isinstance(body, bytes) and redactor.suspects(body):
            row = trajectory_row(redactor.trajectory(trajectory(note, encoded=False)))
        batch.put_row(row)

    def _write(self, batch: Batch, count: int) -> None:
        if self._remote is not None:
            try:
                self._drop(self._remote.send(batch.writes))
            except (OSError, ValueError):
                self._drop(count)
            return
        try:
            store = self._opened()
            if store is not None:
                store.database.write(batch.writes).result()
                return
        except (WhetError, OSError):
            pass
        try:
            if self.path == ":memory:":
                raise OSError("a store in memory has no spool")
            append_to_spool(f"{self.path}.spool-{os.getpid()}", batch.writes)
            self.spooled += count
        except OSError:
            self._drop(count)

    def _opened(self) -> Store | None:
        if self._store is None and time.monotonic() >= self._retry_at:
            try:
                self._store = Store(self.path)
            except (StoreError, OSError, RuntimeError):
                self._retry_at = time.monotonic() + RETRY
        return self._store


_sinks: weakref.WeakSet[Sink] = weakref.WeakSet()
_kept: dict[str, Sink] = {}
_of_store: weakref.WeakKeyDictionary[Store, Sink] = weakref.WeakKeyDictionary()
_default: list[Store | str] = []
_found: list[tuple[float, Store | str | None, Sink]] = []
"""Until when the default sink stands, the store that was named in code, and the sink."""
_redactor: list[Redactor | None] = []


def sink_for(target: Store | str | os.PathLike[str] | None) -> Sink:
    """The one sink of a store, of a path, or of the default store."""
    if target is None:
        served = None if _default else _served()
        if served is not None:
            return served
        target = _default[0] if _default else os.environ.get("WHET_STORE", "whet.db")
    if isinstance(target, Store):
        found = _of_store.get(target)
        if found is None:
            found = _of_store.setdefault(target, Sink(target))
        return found
    path = os.path.realpath(target)
    if path not in _kept:
        _kept[path] = Sink(path)
        _warn_apart(path)
    return _kept[path]


def default_sink() -> Sink:
    """`sink_for(None)`, found at little cost: for who reads a resource outside a traced call."""
    default = _default[0] if _default else None
    if _found:
        until, of, sink = _found[0]
        if of is default and time.monotonic() < until:
            return sink
    sink = sink_for(None)
    _found[:] = [(time.monotonic() + LOOK, default, sink)]
    return sink


def _warn_apart(path: str) -> None:
    """Say that a program which names its own store has its model calls in another."""
    behind = os.environ.get("WHET_STORE") or os.environ.get("WHET_URL")
    if process_run() is None or not behind or os.path.realpath(behind) == path:
        return
    warnings.warn(
        f"traced functions record to {path}, and `whet run` records the model calls in {behind}: they are "
        "not put together. Give both the same store, or none to whet.trace.",
        stacklevel=2,
    )


def _served() -> Sink | None:
    """The sink of the server behind which this program runs (`whet run --url`), if it does."""
    url = os.environ.get("WHET_URL")
    if not url or "WHET_STORE" in os.environ or process_run() is None:
        return None
    if url not in _kept:
        from .remote import Remote  # here: few programs need it

        _kept[url] = Sink(Remote(url, os.environ.get("WHET_TOKEN")))
    return _kept[url]


def record_to(target: Store | str | os.PathLike[str]) -> None:
    """Where `@trace` without a store records.

    Else it is the environment's WHET_STORE, the server that WHET_URL names, or `whet.db` here.
    """
    _default[:] = [target if isinstance(target, Store) else os.fspath(target)]


def redact_with(redactor: Redactor | None) -> None:
    """Which secrets are taken out of what is recorded from now on: a `Redactor`'s, or none with None.

    >>> redact_with(Redactor([*RULES, EMAIL]))
    """
    _redactor[:] = [redactor]


def redaction() -> Redactor | None:
    """The Redactor in use: `RULES` unless `redact_with` said otherwise."""
    if not _redactor:
        from .redact import Redactor  # here: a program that records nothing need not compile its patterns

        _redactor[:] = [Redactor()]
    return _redactor[0]


def dropped() -> int:
    """Records lost in this process so far: a full queue, or neither store nor spool writable."""
    return sum(sink.dropped for sink in list(_sinks))


def flush(timeout: float = _AT_EXIT) -> bool:
    """Wait until everything recorded so far is in its store or spool; False if time ran out."""
    written = [sink.flush(timeout) for sink in list(_sinks)]
    return all(written)


def _at_exit() -> None:
    for sink in list(_sinks):
        sink.close()
    if lost := dropped():
        print(
            f"whet: {lost} traced records were dropped (queue full, or store not writable).", file=sys.stderr
        )


def _finish_with_multiprocessing() -> None:
    """A multiprocessing worker ends without atexit; its own finalizers run."""
    util = sys.modules.get("multiprocessing.util")
    process = sys.modules.get("multiprocessing.process")
    if util is not None and process is not None and process.parent_process() is not None:
        util.Finalize(None, _at_exit, exitpriority=10)


def _forked() -> None:
    for sink in list(_sinks):
        sink._forked()


atexit.register(_at_exit)
os.register_at_fork(after_in_child=_forked)
