"""The assembler's memory of spans that have just been written, so that it need not read them back.

The writer tells an `ArrivalFeed` of each commit; the assembler takes the batches in order.  What does not fit is left
out, and read from the record when its turn comes: the record alone decides what there is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...types import Span
from ..store.segments import Inserted

HELD = 128 * 1024 * 1024
"""Bytes of spans of open runs that are kept in memory, those that the assembler has not looked at yet among them."""
_OVERHEAD = 400
"""Bytes of a span's objects beside its body."""


class ArrivalFeed:
    """Spans of runs that are not written yet.

    Args:
        most: bytes of them; what arrives beyond that is left out.
    """

    def __init__(self, most: int = HELD) -> None:
        self._most = most
        self._batches: deque[Inserted] = deque()
        self._bytes = 0
        self._expected: dict[bytes, frozenset[bytes]] = {}
        self._held: dict[bytes, list[Span]] = {}
        self.last = -1
        """`seq` of the last span that the writer told of, left out or not; -1 if it tells nothing."""

    @property
    def size(self) -> int:
        """Bytes of the spans that are kept."""
        return self._bytes

    # -- the writer's side ----------------------------------------------------------------------

    def note(self, inserted: Inserted) -> None:
        """Take a commit's spans, without those that are expected; called by the writer's thread."""
        numbers, spans, expected = inserted.numbers, inserted.spans, self._expected
        if expected:
            none: frozenset[bytes] = frozenset()
            places = [place for place, span in enumerate(spans) if span[1] not in expected.get(span[0], none)]
            if len(places) < len(spans):
                numbers, spans = [numbers[place] for place in places], [spans[place] for place in places]
        size = _size(spans)
        if self._bytes + size <= self._most:
            # Counted before they can be taken: the two threads share the number without a lock.
            self._bytes += size
            self._batches.append(inserted._replace(numbers=numbers, spans=spans))
        self.last = inserted.last

    def expect(self, trace: bytes, ids: Iterable[bytes]) -> None:
        """Leave these spans out when they are inserted: their Trajectory is in the same commit."""
        self._expected[trace] = frozenset(ids)

    def settled(self, traces: Iterable[bytes]) -> None:
        """Expect no more spans of these traces: their commit is done, or has failed."""
        for trace in traces:
            self._expected.pop(trace, None)

    def expects(self, trace: bytes) -> bool:
        """True while spans of this trace are being committed with their Trajectory."""
        return trace in self._expected

    # -- the assembler's side -------------------------------------------------------------------

    def next(self) -> Inserted | None:
        """The oldest batch that was not taken, which stays; None if there is none."""
        return self._batches[0] if self._batches else None

    def take(self) -> None:
        """Take the oldest batch: its spans no longer count as waiting."""
        self._bytes -= _size(self._batches.popleft().spans)

    def forget_all(self) -> None:
        """Begin anew, as after a time in which the writer told nothing."""
        self._batches.clear()
        self._held.clear()
        self._bytes = 0
        self.last = -1

    def hold(self, span: Sequence[object]) -> None:
        """Keep a span of an open run, if there is room."""
        held = span if isinstance(span, Span) else Span._make(span)
        size = len(held.body) + _OVERHEAD
        if self._bytes + size <= self._most:
            self._bytes += size
            self._held.setdefault(held.trace, []).append(held)

    def spans(self, sizes: Mapping[bytes, int]) -> dict[bytes, list[Span]]:
        """The traces of which every stored span is held, with their spans by start, then id.

        Args:
            sizes: trace → spans of it in the record.  What is held was inserted, so an equal number is the same set.
        """
        whole = {}
        for trace, size in sizes.items():
            held = self._held.get(trace, ())
            if len(held) == size:
                whole[trace] = sorted(held, key=lambda span: (span.started, span.id))
        return whole

    def drop(self, traces: Iterable[bytes]) -> None:
        """Forget the spans of traces that were written."""
        for trace in traces:
            held = self._held.pop(trace, None)
            if held is not None:
                self._bytes -= _size(held)


def _size(spans: Sequence[Sequence[object]]) -> int:
    bodies: Sequence[Any] = [span[6] for span in spans]
    return sum(map(len, bodies)) + _OVERHEAD * len(spans)
