"""Where writes wait while no owner of the store can be reached: a file per process beside it.

A spool is a sequence of frames, each four bytes of length and MessagePack of the writes that
commit together, as they would go over the owner's socket.  It is locked while it is appended to
or taken in, so neither sees half of what the other does; a frame that a killed process left
unfinished is given up, and everything before it is taken in.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
from collections.abc import Callable
from typing import Any

import msgspec

from .owner import FRAME, check
from .writer import Writes

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[tuple[str, list[list[Any]]]])


def append(path: str, writes: Writes) -> None:
    """Add writes to the spool at `path`.

    Raises:
        OSError: it cannot be written; nothing of the frame remains in it.
    """
    body = _encoder.encode(writes)
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
                    frame = frame[os.write(descriptor, frame) :]
                os.fsync(descriptor)
            except OSError:
                os.ftruncate(descriptor, before)
                raise
            return
        finally:
            os.close(descriptor)


def absorb(path: str, write: Callable[[Writes], None]) -> int:
    """Hand every frame of the spool at `path` to `write`, then remove it; returns the rows.

    What makes no sense is set aside as `<path>.bad`.  An error of `write` leaves the spool as
    it is; taking it in again later repeats nothing, as writes may be repeated without effect.
    """
    rows = 0
    with contextlib.ExitStack() as stack:
        try:
            spool = stack.enter_context(open(path, "rb"))
        except OSError:
            return 0  # another process took it in, or it is not ours to read
        try:
            fcntl.flock(spool, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return 0  # in use; the next owner takes it
        if path.endswith(".bad"):
            return 0
        while len(header := spool.read(4)) == 4:
            (length,) = struct.unpack(">I", header)
            body = spool.read(length) if length <= FRAME else b""
            if length <= FRAME and len(body) < length:
                break  # unfinished: its process was killed while writing
            try:
                writes = _decoder.decode(body)
                check(writes)
            except (msgspec.MsgspecError, ValueError):
                with contextlib.suppress(OSError):
                    os.replace(path, path + ".bad")
                return rows
            write(writes)
            rows += sum(len(batch) for _, batch in writes)
        with contextlib.suppress(OSError):
            os.unlink(path)
    return rows
