"""Messages on a pipe: four bytes of length, then the bytes; and buffers whose bytes no fork sees."""

from __future__ import annotations

import mmap
import os
import sys
from collections.abc import Sequence

Part = bytes | memoryview
_WIPE_ON_FORK = 18
_SIZE = 1 << 16


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


def framed(*parts: Part) -> list[Part]:
    """One message of these parts, none of which is copied."""
    return [sum(map(len, parts)).to_bytes(4, "little"), *filter(len, parts)]


def written(unwritten: Sequence[Part], count: int) -> list[Part]:
    """What is left of some parts once `count` bytes of them are on their way."""
    left = list(unwritten)
    while left and count >= len(left[0]):
        count -= len(left.pop(0))
    if count:
        left[0] = memoryview(left[0])[count:]
    return left


def send(descriptor: int, parts: Sequence[Part]) -> None:
    """Send parts, at once so that the peer wakes once; one that is gone raises BrokenPipeError."""
    while parts:
        parts = written(parts, os.writev(descriptor, parts))


def write(descriptor: int, *bodies: bytes) -> None:
    """Send messages, at once so that the peer wakes once; one that is gone raises BrokenPipeError."""
    send(descriptor, [part for body in bodies for part in framed(body)])


class Unshared:
    """A buffer that every fork finds empty, and that no copy of its bytes leaves.

    What an evaluation is given, prints and answers passes through the zygote, from which the next one is forked:
    as an object of Python it would be found in the memory of that one, freed or not.  Bytes come in by `readv` and
    go out as views, by `writev`.
    """

    def __init__(self) -> None:
        self._map = _wiped_on_fork(_SIZE)
        self._begin = self._end = 0

    def __len__(self) -> int:
        return self._end - self._begin

    def view(self, begin: int = 0, end: int | None = None) -> memoryview:
        """Bytes of its content, good until more is received."""
        stop = self._end if end is None else min(self._end, self._begin + end)
        return memoryview(self._map)[self._begin + begin : stop]

    def receive(self, descriptor: int, most: int) -> int:
        """Append up to `most` bytes; the number, 0 at the end of the stream.

        Raises:
            BlockingIOError: none has come.
        """
        self._room(most)
        count = os.readv(descriptor, [memoryview(self._map)[self._end : self._end + most]])
        self._end += count
        return count

    def message(self, descriptor: int) -> bool:
        """Have the next message as its content, in place of the last; False at the end of the stream."""
        self.drop(len(self))
        head = read_exactly(descriptor, 4)
        left = int.from_bytes(head, "little")
        if len(head) < 4:
            return False
        while left:
            count = self.receive(descriptor, min(left, 1 << 20))
            if not count:
                return False
            left -= count
        return True

    def drop(self, count: int) -> None:
        """Let go of its first bytes; of the memory, too, where an empty one has much."""
        self._begin += count
        if self._begin == self._end:
            self._begin = self._end = 0
            if len(self._map) > 1 << 20:
                self._map = _wiped_on_fork(_SIZE)

    def _room(self, count: int) -> None:
        if self._end + count <= len(self._map):
            return
        held, size = len(self), len(self._map)
        while size < held + count:
            size *= 2
        # A new one even where its own space would do: a view of the old one may not have been sent yet.
        larger = _wiped_on_fork(size)
        memoryview(larger)[:held] = self.view()
        self._map, self._begin, self._end = larger, 0, held


def _wiped_on_fork(size: int) -> mmap.mmap:
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if sys.platform == "linux":  # elsewhere nothing is shut in
        memory.madvise(_WIPE_ON_FORK)
    return memory
