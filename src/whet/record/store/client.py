"""Writing to a file that another process owns: through its socket, or into a spool while nobody listens there.

A spool is a file per process beside the store: a sequence of frames, each four bytes of length and MessagePack of
the writes that commit together, as they would go over the owner's socket.  It is locked while it is appended to or
taken in, so neither sees half of what the other does; a frame that a killed process left unfinished is given up, and
everything before it is taken in.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from ...errors import StoreError
from .group_commit import LinkLost, Submission, Writes
from .owner import FRAME, YIELD, OwnerReply, address, check, receive, send

_reply = msgspec.msgpack.Decoder(OwnerReply)
_spool_encoder = msgspec.msgpack.Encoder()
_spool_decoder = msgspec.msgpack.Decoder(list[tuple[str, list[list[Any]]]])


class OwnerClient:
    """The Link through the socket of the owner of `path`; only writes go this way.

    Raises:
        LinkLost: nobody listens.
    """

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # `address` may raise StoreError, which is an OSError: caught as
            # LinkLost it would be tried for PATIENCE seconds.
            self._socket.connect(address(path))
        except StoreError:
            self._socket.close()
            raise
        except OSError as exception:
            self._socket.close()
            raise LinkLost(str(exception)) from exception

    def commit(self, group: Sequence[Submission]) -> list[Exception | None]:
        try:
            send(self._socket, [submission.writes for submission in group])
            body = receive(self._socket)
        except OSError as exception:
            # The owner may have committed before it was lost; the group is sent
            # again all the same (`schema.STATEMENTS`).
            raise LinkLost(str(exception)) from exception
        if body is None:
            raise LinkLost("the owner closed the store")
        try:
            reply = _reply.decode(body)
        except msgspec.MsgspecError as exception:
            raise LinkLost(f"the owner answered something else: {exception}") from exception
        # Not LinkLost: the writer would send the same frame to the next
        # owner, which refuses it too, without end.
        if reply.refused:
            return [StoreError(f"the store's owner refused: {reply.refused}")] * len(group)
        if len(reply.errors) != len(group):
            raise LinkLost("the owner answered something else")
        # An exception's type does not cross the socket: what was an
        # InputError at the owner is a StoreError here.
        return [None if error is None else StoreError(error) for error in reply.errors]

    def close(self) -> None:
        self._socket.close()

    forget = close


def ask_to_yield(path: str) -> bool:
    """Ask the owner of `path` to give the file up; True if it does, or is gone already."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(5.0)
        try:
            connection.connect(address(path))
            send(connection, YIELD)
            body = receive(connection)
        except TimeoutError:
            # Caught first, for it is an OSError: an owner that is only slow still has the file.
            return False
        except (OSError, ValueError):
            return True
        try:
            return body is None or not _reply.decode(body).refused
        except msgspec.MsgspecError:
            return False


def append_to_spool(path: str, writes: Writes) -> None:
    """Append writes to the spool at `path`, durably.

    Raises:
        OSError: it cannot be written; nothing of the frame remains in it.
    """
    body = _spool_encoder.encode(writes)
    while True:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.fstat(descriptor).st_nlink == 0:
                continue  # taken in and removed between opening and locking
            before = os.fstat(descriptor).st_size
            try:
                frame = memoryview(struct.pack(">I", len(body)) + body)
                while frame:
                    # A write may be short, as on a disk that is nearly full.
                    frame = frame[os.write(descriptor, frame) :]
                os.fsync(descriptor)
            except OSError:
                # Half a frame would hide every later one from `absorb_spool`; under
                # the lock nobody has appended since.
                os.ftruncate(descriptor, before)
                raise
            return
        finally:
            os.close(descriptor)


def absorb_spool(path: str, write: Callable[[Writes], None]) -> None:
    """Hand every frame of the spool at `path` to `write`, then remove it.

    A spool that cannot be read is set aside as `<path>.bad`.  An error of `write` leaves the spool as
    it is; taking it in again later repeats nothing, as writes may be repeated without effect.
    """
    if path.endswith(".bad"):
        return
    try:
        spool = open(path, "rb")  # noqa: SIM115 - closed below
    except OSError:
        return  # another process took it in, or it is not ours to read
    with spool:
        try:
            fcntl.flock(spool, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return  # in use; the next owner takes it
        while len(header := spool.read(4)) == 4:
            (length,) = struct.unpack(">I", header)
            # A length that no frame has is damage, not an unfinished frame: b""
            # does not decode, so the file is set aside.
            body = spool.read(length) if length <= FRAME else b""
            if length <= FRAME and len(body) < length:
                break  # unfinished: its process was killed while writing
            try:
                writes = _spool_decoder.decode(body)
                check(writes)
            except (msgspec.MsgspecError, ValueError):
                with contextlib.suppress(OSError):
                    os.replace(path, path + ".bad")
                return
            write(writes)
        with contextlib.suppress(OSError):
            # Still locked: whoever waits in `append_to_spool` sees that
            # no link is left and begins a new file.
            os.unlink(path)
