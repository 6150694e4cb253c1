"""Messages on a pipe: four bytes of length, then the bytes."""

from __future__ import annotations

import os


def read_exactly(descriptor: int, count: int) -> bytes:
    """`count` bytes, or fewer at the end of the stream."""
    parts = []
    while count:
        # os.read allocates as much as it is asked for, and the count may be a program's word.
        part = os.read(descriptor, min(count, 1 << 20))
        if not part:
            break
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def read(descriptor: int) -> bytes | None:
    """The next message, None at the end of the stream."""
    head = read_exactly(descriptor, 4)
    if len(head) < 4:
        return None
    length = int.from_bytes(head, "little")
    body = read_exactly(descriptor, length)
    return body if len(body) == length else None


def write(descriptor: int, *bodies: bytes) -> None:
    """Send messages, at once so that the peer wakes once; one that is gone raises BrokenPipeError."""
    unwritten = memoryview(b"".join([len(body).to_bytes(4, "little") + body for body in bodies]))
    while unwritten:
        unwritten = unwritten[os.write(descriptor, unwritten) :]
