"""A program's side of its store: records go there through a queue, and what is live is read from it.

Records: a background thread drains the queue; the caller appends and goes on.  A full queue drops and counts.
Where no owner of the store can be reached, or it cannot be written, records go to `<store>.spool-<pid>`, which the
next owner takes in.  Nothing here ever raises into the caller's code.

Secrets are taken out on the background thread, before anything reaches the store or the spool
(`store/redaction/` says which); a record that cannot be searched is dropped and counted, not written.

What is live: a file is asked at most once in `WATCH` seconds, by whoever reads a resource then, which costs a tenth
of a millisecond, and at once after this process released or rolled back; a server is asked by a thread.
`LiveBundle` makes no store and writes to none: where the record cannot be read, what was live goes on, at first the
agent as it came, with one warning.
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
from typing import TYPE_CHECKING, Any

from ...errors import StoreError, WhetError
from ...types import Bundle, Feedback
from ..store import Batch, Store
from ..store.batch import trajectory_row
from ..store.bundles import EMPTY
from ..store.client import append_to_spool
from ..store.codec import encode
from ..store.database import DatabaseReader
from ..store.group_commit import releases_written
from ..store.redaction.current import redaction, searching
from ..store.releases import GATEWAY, LIVE, declared, history, newest_id, trials
from ..store.trials import Trials
from .record import CallNote, process_run, trajectory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..store.group_commit import Value
    from .remote import Remote

LIMIT = 100_000
"""Finished calls that may wait."""
GROUPING = 0.005
"""Seconds that the writer lets a group gather: a process killed without warning may lose as much."""
# Of the slowest 1 % of calls three in four were the first after a pause: waking took 25 of their 41 µs.
LISTENS = 50
"""Times that it looks for more after the last one before it has to be woken, for which who calls would pay."""
RETRY = 2.0
"""Seconds between attempts to open a store that could not be opened."""
LOOK = 0.1
"""Seconds for which a lookup in the environment holds: it costs several times a read of a resource."""
_AT_EXIT = 10.0

Item = CallNote | Feedback | threading.Event
"""An Event is set once everything before it has been written."""


WATCH = 1.0
"""Seconds after which the record is asked again."""
_inherited: list[object] = []
"""Connections that a fork copied: never to be used or closed in the child."""


class _File(DatabaseReader):
    """The file of a store, which need not exist yet."""

    def rows(self, query: str, values: Sequence[Value] = ()) -> list[Any]:
        return super().rows(query, values) if os.path.exists(self.path) else []


class LiveBundle:
    """The live Bundle of one store, given as a Store, the path of a file, or a server."""

    def __init__(self, target: Store | Remote | str) -> None:
        self._target = target
        self._reset()

    def _reset(self) -> None:
        """At the start, and in a forked child, which has neither the threads nor the connections of its parent."""
        self._source: DatabaseReader | None = None
        if isinstance(self._target, Store):
            self._source = self._target.database
        elif isinstance(self._target, str):
            self._source = _File(self._target)
        self._standing = EMPTY, Trials()
        self._release: str | None = None
        self._ask_at = 0.0
        self._written = releases_written()
        self._warned = False
        # A new one: the parent's may be held by a thread that the child does not have.
        self._lock = threading.Lock()

    def forked(self) -> None:
        """In the child of a fork."""
        _inherited.append(self._source)
        self._reset()

    @property
    def standing(self) -> tuple[Bundle, Trials]:
        """The live Bundle, and the canaries beside it."""
        # Of a server, a thread asks; of a file, who comes after a release of this process may not miss it.
        newer = self._source is not None and releases_written() != self._written
        if newer or time.monotonic() >= self._ask_at:
            self._ask_once(wait=newer)
        return self._standing

    @property
    def bundle(self) -> Bundle:
        """The live Bundle; empty where nothing is."""
        return self.standing[0]

    def _ask_once(self, *, wait: bool) -> None:
        if self._lock.acquire(blocking=wait):
            try:
                # Before asking: what is written meanwhile is asked for again.
                self._written = releases_written()
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
            self._warn(error)

    def _read(self, source: DatabaseReader) -> None:
        release = newest_id(source, LIVE)
        if release != self._release:
            entries = history(source, LIVE, 1)
            live = entries[0].bundle if entries else EMPTY
            if self._standing[0] == live:
                live = self._standing[0]  # the same object: handles keep what they looked up in it
            canaries = Trials(trials(source, LIVE), live, reads=lambda name: name not in GATEWAY)
            # One tuple, replaced at once: nobody draws into canaries beside what they were not made for.
            self._standing, self._release = (live, canaries), release

    def _fetch(self) -> None:
        remote = self._target
        if not isinstance(remote, Store | str) and (bundle := remote.live()) != self._standing[0]:
            self._standing = bundle, Trials()

    def _watch(self) -> None:
        while True:
            time.sleep(WATCH)
            try:
                self._fetch()
            except (OSError, ValueError) as error:
                self._warn(error)

    def _warn(self, error: Exception) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"the live release cannot be read, so this program continues as it is: {error}", stacklevel=2
            )


class Sink:
    """Takes the records for one store: a Store, the path of one that is opened when needed, or a server."""

    def __init__(self, target: Store | Remote | str) -> None:
        self.path = target.path if isinstance(target, Store) else ""
        if isinstance(target, str):
            self.path = os.path.realpath(target)
        self._store = target if isinstance(target, Store) else None
        self._remote = None if isinstance(target, Store | str) else target
        self._own = isinstance(target, str)
        self._retry_at = 0.0
        self._following = LiveBundle(target if self._store or self._remote else self.path)
        self._declared: set[str] = set()
        """Names of resources that the record knows this program reads."""
        self._reset()
        _sinks.add(self)
        if isinstance(target, Store):
            target.database.before_close(self._flushed)

    @property
    def target(self) -> Store | str | None:
        """The Store or the path that was given; None for a server."""
        return self._store if self._store is not None and not self._own else self.path or None

    @property
    def live(self) -> Bundle:
        """The Bundle live in this store, or a second ago if another process released; empty: the agent as it came."""
        return self._following.bundle

    @property
    def standing(self) -> tuple[Bundle, Trials]:
        """That Bundle, and the canaries beside it."""
        return self._following.standing

    def _forked(self) -> None:
        """In a forked child."""
        self._reset()
        self._following.forked()

    def _reset(self) -> None:
        """A state without threads: at the start, and in a forked child, whose parent keeps the rest."""
        self._queue: deque[Item] = deque()
        self._idle = True
        self._event = threading.Event()
        # Reentrant: at the end of the interpreter `_wake` drains under it, and a drop counts under it.
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        self.dropped = 0

    def add(self, item: Item) -> None:
        """Queue it, or count it as dropped."""
        queue = self._queue
        if len(queue) >= LIMIT and not isinstance(item, threading.Event):
            self._drop(1)
            return
        # In this order: the writer sets `_idle` before it looks whether the queue is empty.
        queue.append(item)
        if self._idle:
            self._wake()

    def flush(self, timeout: float = _AT_EXIT) -> bool:
        """Wait until every record has been written, spooled or dropped; False after `timeout` seconds."""
        # Both: with an empty queue the writer may still be at what it has taken out, and is not idle then.
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
                # Not at import, which a forked worker may have behind it: only a process that records needs
                # it.
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
        with searching:
            for item in items:
                try:
                    if isinstance(item, CallNote):
                        self._add_call(batch, item)
                        count += 1
                    elif isinstance(item, Feedback):
                        batch.add_feedback(item)
                        count += 1
                except Exception:  # one record that cannot be encoded may not cost the others
                    self._drop(1)
            if count:
                self._declare(batch)
        if count:
            self._write(batch, count)
        for item in items:
            if isinstance(item, threading.Event):
                item.set()

    def _declare(self, batch: Batch) -> None:
        """Declare to the record which resources this program reads, and their defaults."""
        for name, handle in list(declared.items()):
            if name in self._declared:
                continue
            self._declared.add(name)  # before the attempt: one that fails is not tried at every batch
            try:
                default, redactor = handle.default_version, redaction()
                secret = redactor is not None and redactor.suspects(encode(default))
                batch.declare(default, content=not secret)
            except Exception:  # a default that cannot be read any more: what was traced counts
                continue

    def _add_call(self, batch: Batch, note: CallNote) -> None:
        row = trajectory_row(trajectory(note, encoded=True))
        redactor, body = redaction(), row[-1]
        if redactor is not None and isinstance(body, bytes) and redactor.suspects_runs(body):
            # Decoded and searched text by text only where the bytes may hold a secret, which is seldom.
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
                # Waits for the commit: an Event in the queue says that all before it is written.
                store.database.write(batch.writes).result()
                return
        except (WhetError, OSError):
            pass
        try:
            if self.path == ":memory:":
                raise OSError("a store in memory has no spool")
            append_to_spool(f"{self.path}.spool-{os.getpid()}", batch.writes)
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
_by_address: dict[str, Sink] = {}
_of_store: weakref.WeakKeyDictionary[Store, Sink] = weakref.WeakKeyDictionary()
_default: list[Store | str] = []
_cached_default: list[tuple[float, Store | str | None, Sink]] = []
"""Until when the default sink stands, the store that was named in code, and the sink."""


def sink_for(target: Store | str | os.PathLike[str] | None) -> Sink:
    """The one sink of a store, of a path, or of the default store."""
    if target is None:
        served = None if _default else _served()
        if served is not None:
            return served
        target = _default[0] if _default else os.environ.get("WHET_STORE", "whet.db")
    if isinstance(target, Store):
        sink = _of_store.get(target)
        if sink is None:
            sink = _of_store.setdefault(target, Sink(target))
        return sink
    # One sink for a file, by whatever path: two would open its store twice.
    path = os.path.realpath(target)
    if path not in _by_address:
        _by_address[path] = Sink(path)
        _warn_apart(path)
    return _by_address[path]


def default_sink() -> Sink:
    """`sink_for(None)`, found at little cost: for who reads a resource outside a traced call."""
    default = _default[0] if _default else None
    if _cached_default:
        until, of, sink = _cached_default[0]
        if of is default and time.monotonic() < until:
            return sink
    sink = sink_for(None)
    _cached_default[:] = [(time.monotonic() + LOOK, default, sink)]
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
    if url not in _by_address:
        from .remote import Remote  # here: few programs need it

        _by_address[url] = Sink(Remote(url, os.environ.get("WHET_TOKEN")))
    return _by_address[url]


def record_to(target: Store | str | os.PathLike[str]) -> None:
    """Where `@trace` without a store records.

    Else it is the environment's WHET_STORE, the server that WHET_URL names, or `whet.db` here.
    """
    _default[:] = [target if isinstance(target, Store) else os.fspath(target)]


def dropped() -> int:
    """Records lost in this process so far: a full queue, or neither store nor spool writable."""
    return sum(sink.dropped for sink in list(_sinks))


def flush(timeout: float = _AT_EXIT) -> bool:
    """Wait until everything recorded so far is in its store or spool; False if time ran out."""
    drained = [sink.flush(timeout) for sink in list(_sinks)]
    return all(drained)


def _at_exit() -> None:
    # A copy: the garbage collector may take sinks out of a WeakSet while it is walked.
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
