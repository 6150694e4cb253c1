"""The process that owns the file: it alone writes, and it commits for the others.

Ownership is an flock on `<store>.lock`, so it ends with the process however that ends.  The
owner listens on a Unix socket beside the file (mode 0600; in a private folder of the temporary
directory where the path would be too long for one) and answers a client once its writes are
committed.  A frame is four bytes of length and MessagePack; a frame that makes no sense is
answered with an error.  Nothing that arrives can name anything but a statement of `schema.py`, or ask
that the file be given up: a server that finds it owned by an agent's process takes it over so.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import socket
import sqlite3
import struct
import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import msgspec

from ...errors import ConflictError, InputError, StoreError
from ...types import Mode
from .erasure import ERASURES, erase
from .group_commit import Gathered, LinkLost, Submission, Writes, run
from .retention import retain
from .schema import WIDTHS, keep_out, migrate, settle
from .segments import SEGMENT, STATEMENTS_KEPT, Inserted, Segments

FRAME = 512 * 1024 * 1024
"""Bytes that a frame may have."""
_ADDRESS = 100
"""Bytes that an AF_UNIX address may have, with room to spare (108 on Linux, 104 on macOS)."""

YIELD = "yield"
"""The frame that asks the owner to let go of the file."""
Arrival = tuple[int, str, Mode, int]
"""seq, id, mode and max_attempts of a rollout that was not known before."""
_request = msgspec.msgpack.Decoder(list[list[tuple[str, list[list[Any]]]]] | str)
_encoder = msgspec.msgpack.Encoder()
# Of the disk or the file, not of one row: writing a group's submissions one by one would not help.
_FATAL = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_READONLY)


class OwnerReply(msgspec.Struct):
    """The owner's answer: an error or None per submission, or why the frame was refused."""

    errors: list[str | None] = []
    refused: str = ""


SQLITE_ERRORS = (sqlite3.Error, UnicodeDecodeError)
"""What reading or writing raises: the message of an error is decoded, and may quote bytes of a damaged file."""


def failure(path: str, exception: Exception) -> StoreError:
    """An error of SQLite or the system as a StoreError that says what to do."""
    code = getattr(exception, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL or getattr(exception, "errno", 0) == errno.ENOSPC:
        return StoreError(
            f"the disk that holds {path} is full; nothing was recorded. Free space and try again."
        )
    if code == sqlite3.SQLITE_NOTADB:
        return StoreError(f"{path} is not a whet store (no SQLite database). Name another file.")
    if code == sqlite3.SQLITE_CORRUPT or isinstance(exception, UnicodeDecodeError):
        return StoreError(
            f"{path} is damaged ({exception}). Restore a copy, or save what `sqlite3 .recover` finds."
        )
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM) or isinstance(exception, PermissionError):
        return StoreError(f"no permission to write {path} or its folder ({exception}).")
    if code == sqlite3.SQLITE_CONSTRAINT and str(exception).endswith("trajectories.id"):
        return ConflictError(
            "the record has another trajectory under the id of this attempt, which stays. Nothing was recorded; the "
            "rollout is given out again when its lease ends."
        )
    if code == sqlite3.SQLITE_CANTOPEN:
        return StoreError(
            f"{path} cannot be opened ({exception}). Check that it is a file one may read and write."
        )
    return StoreError(f"{path} could not be read or written: {exception}")


def address(path: str) -> str:
    """The socket on which the owner of `path` listens."""
    beside = path + ".sock"
    if len(os.fsencode(beside)) <= _ADDRESS:
        return beside
    folder = os.path.join(tempfile.gettempdir(), f"whet-{os.getuid()}")
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    status = os.lstat(folder)  # not stat: a link could lead to another user's folder
    if status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise StoreError(
            f"{folder} is not private to this user; remove it or set TMPDIR to a folder of your own."
        )
    return os.path.join(folder, hashlib.sha256(os.fsencode(path)).hexdigest()[:24] + ".sock")


def claim(path: str) -> int | None:
    """Lock the file `path` for this process: the descriptor that holds the lock, None if it is held.

    Raises:
        StoreError: the folder is missing or not writable.
    """
    try:
        # O_CLOEXEC: an flock lasts as long as any copy of its descriptor, and a child program would keep one.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError as exception:
        raise StoreError(f"the folder {os.path.dirname(path)} does not exist. Make it first.") from exception
    except OSError as exception:
        raise failure(path, exception) from exception
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    # The holder's pid is for messages only; a full disk is no reason to fail here.
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
    return descriptor


def receive(connection: socket.socket) -> bytes | None:
    """One frame, None at the end of the stream.

    Raises:
        ValueError: longer than `FRAME`.
        ConnectionError: the stream ended inside it.
    """
    header = _exactly(connection, 4)
    if header is None:
        return None
    (length,) = struct.unpack(">I", header)
    if length > FRAME:
        raise ValueError(f"a frame of {length} bytes; at most {FRAME} are taken")
    body = _exactly(connection, length)
    if body is None:
        raise ConnectionError("the stream ended inside a frame")
    return body


def _exactly(connection: socket.socket, length: int) -> bytes | None:
    body = bytearray()
    while len(body) < length:
        part = connection.recv(min(length - len(body), 1 << 20))
        if not part:
            if body:
                raise ConnectionError("the stream ended inside a frame")
            return None
        body += part
    return bytes(body)


def send(connection: socket.socket, value: Any) -> None:
    """Send one frame."""
    body = _encoder.encode(value)
    connection.sendall(struct.pack(">I", len(body)) + body)


def check(writes: Writes) -> None:
    """Refuse writes from another process that name no statement of `schema.py`.

    Raises:
        ValueError: no such statement, or a row of the wrong width.
    """
    for key, rows in writes:
        width = WIDTHS.get(key)
        if width is None:
            raise ValueError(f"no statement is called {key!r}")
        for row in rows:
            if len(row) != width:
                raise ValueError(f"a row of {key} has {width} values, {len(row)} were given")
            for value in row:
                # Not isinstance: a bool is an int, and no row of whet's own has one.
                if value is not None and type(value) not in (str, int, float, bytes):
                    raise ValueError(f"a row of {key} holds a {type(value).__name__}")


class Owner:
    """The Link into the file.

    Args:
        path: the database, or ":memory:".
        lock: descriptor of the held lock, None in memory.
        submit: the writer's, for what arrives on the socket.
        segment: spans in a time segment.
    """

    def __init__(
        self,
        path: str,
        lock: int | None,
        submit: Callable[[Writes], Future[None]],
        *,
        segment: int = SEGMENT,
    ) -> None:
        self.path = path
        self.on_rollouts: Callable[[list[Arrival]], None] | None = None
        """Called by the writer's thread with the rollouts that a commit added."""
        self.on_tasks: Callable[[Sequence[str] | None], None] | None = None
        """Called so with the ids of tasks that were written, None if some were taken out."""
        self.on_release: Callable[[], None] | None = None
        """Called so when something was released or rolled back."""
        self.on_spans: Callable[[Inserted], None] | None = None
        """Called so with the spans that a commit inserted, whoever sent them."""
        self.lock = lock
        # Reentrant: `commit` calls itself for each submission of a group that failed.
        self.mutex = threading.RLock()
        """Held while the connection is in use: in memory, the readers share it."""
        self.gave_way = False
        """Another process asked for the file: the next commit goes through it."""
        self._submit = submit
        self._listener: socket.socket | None = None
        self._peers: set[socket.socket] = set()
        self._address = ""
        try:
            if lock is not None and not os.path.exists(path):
                # Private from the start: it holds what users said.  Never opened raw once it
                # exists: closing such a descriptor would drop SQLite's own locks.
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            self.connection = sqlite3.connect(
                path, isolation_level=None, check_same_thread=False, cached_statements=STATEMENTS_KEPT
            )
            try:
                self._prepare()
                self._segments = Segments(self.connection, segment)
            except BaseException:
                self.connection.close()
                raise
        except (*SQLITE_ERRORS, OSError) as exception:
            self._unlock()
            # StoreError is an OSError, so one of `_prepare` comes by here too.
            raise exception if isinstance(exception, StoreError) else failure(path, exception) from exception
        except BaseException:
            self._unlock()
            raise

    def _prepare(self) -> None:
        self.connection.execute("PRAGMA busy_timeout = 10000")
        # The page size must come first: it is fixed once the file has a table or a write-ahead log.
        # For a new file: five spans of 1.4 KB to a page, where the usual 4 KB take two and waste a third.
        self.connection.execute("PRAGMA page_size = 8192")
        self.connection.execute("PRAGMA cache_size = -32768")  # KiB: two segments' indexes
        # Overwritten and erased content must not stay readable in free pages.
        self.connection.execute("PRAGMA secure_delete = ON")
        migrate(self.connection, self.path)
        keep_out(self.connection)
        # The rows that a statement updates from are gathered first: in a file, which each commit made and removed anew.
        # After the migrations, whose indexes may be large.
        self.connection.execute("PRAGMA temp_store = MEMORY")
        if self.lock is None:
            return
        self.connection.execute("PRAGMA journal_mode = WAL")
        # NORMAL would lose acknowledged commits with the power.
        self.connection.execute("PRAGMA synchronous = FULL")
        # Pages, so 32 MB; SQLite's own 1,000 would checkpoint four times as often.
        self.connection.execute("PRAGMA wal_autocheckpoint = 4000")

    def listen(self) -> None:
        """Publish the socket; called once the writer can take submissions."""
        self._address = address(self.path)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._address)  # left by an owner that was killed: we hold its lock
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(self._address)
            os.chmod(self._address, 0o600)  # before listen: until then nobody can connect
            listener.listen(128)
        except OSError as exception:
            listener.close()
            raise failure(self._address, exception) from exception
        self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), name="whet-store-accept", daemon=True).start()

    def commit(self, group: Sequence[Submission]) -> list[Exception | None]:
        if self.gave_way:
            raise LinkLost("the file was given to another process")
        with self.mutex:
            try:
                self._apply(group)
                return [None] * len(group)
            except SQLITE_ERRORS as exception:
                if len(group) == 1 or getattr(exception, "sqlite_errorcode", 0) & 0xFF in _FATAL:
                    return [failure(self.path, exception)] * len(group)
            except StoreError as exception:
                if len(group) == 1:
                    return [exception]
            except (UnicodeEncodeError, OverflowError) as exception:
                if len(group) == 1:
                    problem = f"an id, name, group, session, person or time cannot be stored: {exception}."
                    return [InputError(f"{problem} Give text that UTF-8 carries and numbers of 64 bits.")]
            errors: list[Exception | None] = []
            for submission in group:  # one of them is at fault; the others shall not pay for it
                errors += self.commit([submission])
            return errors

    def _apply(self, group: Sequence[Submission]) -> None:
        connection = self.connection
        gathered = Gathered(self._segments)
        arrivals: list[Arrival] = []
        tasks: list[str] | None = []
        released = False
        try:
            connection.execute("BEGIN IMMEDIATE")  # a deferred one could fail half-way, on its first write
            for submission in group:
                for key, rows in submission.writes:
                    if gathered.takes(key, rows):
                        continue
                    if key == "rollout":
                        # SQLite promises no order for RETURNING; the queue wants that of `seq`.
                        arrivals += sorted(run(connection, key, rows))
                        continue
                    if key == "as_of":
                        self._check(rows)
                        continue
                    if key == "follows":
                        self._check_live(rows)
                        continue
                    gathered.write(connection)  # earlier rows first: these may change them
                    if key == "withdraw":
                        settle(connection)
                        connection.executemany("DELETE FROM trajectories WHERE id = ?", rows)
                        settle(connection)
                        continue
                    if key in ("erase", "retain"):
                        self._delete(erase if key == "erase" else retain, rows)
                        tasks = None
                        continue
                    run(connection, key, rows)
                    released = released or key == "release"
                    if key == "task" and tasks is not None:
                        tasks += [str(row[0]) for row in rows]
            gathered.write(connection)
            self._segments.note()
            connection.execute("COMMIT")
        except BaseException:
            # OR ROLLBACK in a statement may have ended the transaction already.
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            # Retention sets it to FAST and may have failed there.
            connection.execute("PRAGMA secure_delete = ON")
            self._segments.reload()
            raise
        inserted, self._segments.inserted = self._segments.inserted, []
        # Callbacks before the futures are done: whoever waits for one finds the queue up to date.
        if self.on_spans is not None:
            for spans in inserted:
                self.on_spans(spans)
        if tasks != [] and self.on_tasks is not None:
            self.on_tasks(tasks)
        if released and self.on_release is not None:
            self.on_release()
        if arrivals and self.on_rollouts is not None:
            self.on_rollouts(arrivals)

    def _check(self, rows: Sequence[Sequence[Any]]) -> None:
        """Refuse writes made from rows that were read before an erasure (`Batch.as_of`)."""
        ((erasures,),) = self.connection.execute(ERASURES).fetchall()
        if any(row[0] != erasures for row in rows):
            raise StoreError(
                "a person was erased since this was read; nothing of it was recorded. Read it again."
            )

    def _check_live(self, rows: Sequence[Sequence[Any]]) -> None:
        """Refuse an entry of the release log that was made from an older end of it (`Batch.add_release`)."""
        for name, expected, own in rows:
            newest = self.connection.execute(
                "SELECT id FROM releases WHERE name = ? ORDER BY seq DESC LIMIT 1", [name]
            ).fetchone()
            if (None if newest is None else newest[0]) == expected:
                continue
            # Sent again because its acknowledgement was lost: it is there, and others may have come since.
            if not self.connection.execute("SELECT 1 FROM releases WHERE id = ?", [own]).fetchone():
                raise ConflictError(
                    f"another release of {name!r} came meanwhile; nothing was released. Read what is live again."
                )

    def _delete(self, delete: Callable[..., None], rows: Sequence[Sequence[Any]]) -> None:
        """Erase, or apply retention, within the transaction."""
        # The position first: what deletes changes it in the file, and `reload` reads it back from there.
        self._segments.note()
        # Before rows go, for the count; and after, for the last of a table may have gone.
        settle(self.connection)
        for row in rows:
            delete(self.connection, *row)
        settle(self.connection)
        self._segments.reload()

    def close(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._address)
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        for peer in list(self._peers):
            with contextlib.suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)
        with self.mutex, contextlib.suppress(sqlite3.Error):
            self.connection.close()
        # The lock goes last: whoever waits for it opens the file at once.
        self._unlock()

    def forget(self) -> None:
        """In a forked child: close the copies of the parent's descriptors, without touching its file."""
        if self._listener is not None:
            self._listener.close()
        for peer in self._peers:
            peer.close()
        self._unlock()

    def _unlock(self) -> None:
        if self.lock is not None:
            # Closed, never LOCK_UN: a forked child shares the parent's
            # lock and would take it from the parent.
            os.close(self.lock)
            self.lock = None

    def _yield(self, peer: socket.socket, request: str) -> None:
        """Let go of the file for a server, unless work is handed out from here.

        Raises:
            ValueError: that is not a request.
        """
        if request != YIELD:
            raise ValueError(f"nothing is called {request[:20]!r}")
        if self.on_rollouts is not None:
            send(peer, OwnerReply(refused="it hands out work"))
            return
        self.gave_way = True  # before the answer: from here on no commit may go into the file
        send(peer, OwnerReply())
        with contextlib.suppress(StoreError):
            self._submit([])  # the writer learns of it at its next commit: this empty one

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return  # closed
            self._peers.add(peer)
            threading.Thread(target=self._serve, args=(peer,), name="whet-store-peer", daemon=True).start()

    def _serve(self, peer: socket.socket) -> None:
        try:
            while (body := receive(peer)) is not None:
                try:
                    group = _request.decode(body)
                    if isinstance(group, str):
                        self._yield(peer, group)
                        continue
                    for writes in group:
                        check(writes)
                except (msgspec.MsgspecError, ValueError) as exception:
                    send(peer, OwnerReply(refused=f"not a request: {exception}"))
                    continue
                try:
                    # All are submitted before one is waited for, so that they share a commit.
                    futures = [self._submit(writes) for writes in group]
                except StoreError:
                    return  # closing: without an answer the client looks for the next owner
                failures = [future.exception() for future in futures]
                send(peer, OwnerReply(errors=[None if error is None else str(error) for error in failures]))
        except ValueError as exception:
            with contextlib.suppress(OSError):
                send(peer, OwnerReply(refused=str(exception)))
        except OSError:
            pass  # the client is gone; it sends again whatever was not acknowledged
        finally:
            self._peers.discard(peer)
            peer.close()
