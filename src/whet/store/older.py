"""Which traces and runs the older segments hold: asked before they are searched.

Nearly every trace lies in the newest segment alone.  To look for it in all the others costs the more the
older a record is, in time and in statements that are prepared for them, so what they hold is noted in a
Bloom filter of a fixed size: it never misses what is there, and says now and then that something is
there that is not.  It lies in memory, and is made by whoever looks for many traces (`Spans.note_older`).
"""

from __future__ import annotations

from collections.abc import Iterable

from .writer import Value

BITS = 1 << 26
"""8 MB: of four million traces and runs it lets 0.5 % through, of twenty million 20 %."""


class Older:
    """The filter, and the segments that it knows."""

    def __init__(self, bits: int = BITS) -> None:
        self._bits = bits
        self._filter = bytearray()
        self.known: frozenset[int] = frozenset()
        """Numbers of segments that need not be searched for what `holds` denies."""

    def add(self, values: Iterable[Value]) -> None:
        """Note traces or runs of a segment that takes no more."""
        if not self._filter:
            self._filter = bytearray(self._bits // 8)
        filled, most = self._filter, self._bits - 1
        for value in values:
            found = hash(value)
            place, stride = found & most, (found >> 32) | 1
            filled[place >> 3] |= 1 << (place & 7)
            place = place + stride & most
            filled[place >> 3] |= 1 << (place & 7)
            place = place + stride & most
            filled[place >> 3] |= 1 << (place & 7)

    def close(self, segment: int) -> None:
        """Everything of this segment was added."""
        self.known |= {segment}

    def holds(self, value: Value) -> bool:
        """False if no segment that is known has it."""
        filled = self._filter
        if not filled:
            return False
        most, found = self._bits - 1, hash(value)
        place, stride = found & most, (found >> 32) | 1
        for _ in range(3):
            if not filled[place >> 3] >> (place & 7) & 1:
                return False
            place = place + stride & most
        return True
