"""Chunks of a streamed chat that differ from one before in their text alone, as nearly all of them do.

Bytes that are the same were read before: what stands around the text says nothing new, and the text is taken from
between it.  All else is read as JSON.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ...models.wire.chat import ChatStreamReader

_LITERAL = re.compile(rb'[^"\\\x00-\x1f]*')
"""Of a string in JSON, what stands in it as it is."""
_NAME = b'"content"'


class TextChunk:
    """What stands around the text of a chunk, as it came and as it was passed on.

    Args:
        came, passed: the text with what stands before and behind it, in three parts.
        texts: what its text was added to, and that of the next one is.
    """

    __slots__ = ("_before", "_behind", "_least", "_new", "_texts")

    def __init__(
        self, came: tuple[bytes, bytes, bytes], passed: tuple[bytes, bytes, bytes], texts: list[str]
    ) -> None:
        self._before, _, self._behind = came
        self._least = len(self._before) + len(self._behind)
        self._new = None if passed == came else (passed[0], passed[2])
        self._texts = texts

    @classmethod
    def of(
        cls, event: bytes, passed: bytes, value: Mapping[str, Any], reader: ChatStreamReader
    ) -> TextChunk | None:
        """What a chunk that was read tells of those that follow; None if it held more than a text.

        Args:
            event: as it came.
            passed: as it was passed on.
            value: its JSON.
        """
        texts = reader.text_alone(value)
        if not texts:
            return None
        came, went = _around(event, texts[-1]), _around(passed, texts[-1])
        return None if came is None or went is None else cls(came, went, texts)

    def read(self, event: bytes) -> bytes | None:
        """Read another chunk, and return it as it is passed on; None if it is not of this form."""
        before, behind = self._before, self._behind
        if len(event) < self._least or not event.startswith(before) or not event.endswith(behind):
            return None
        literal = event[len(before) : len(event) - len(behind)]
        if _LITERAL.fullmatch(literal) is None:
            return None
        try:
            text = literal.decode()
        except UnicodeDecodeError:
            return None
        self._texts.append(text)
        return event if self._new is None else self._new[0] + literal + self._new[1]


def _around(event: bytes, text: str) -> tuple[bytes, bytes, bytes] | None:
    """An event's bytes before its text, the text, and those behind; None if it is not there once, as it is."""
    if event.count(_NAME) != 1 or event.count(b"\n") != 2 or not event.endswith(b"\n\n"):
        return None
    literal = text.encode("utf-8", "surrogatepass")
    start = event.index(_NAME) + len(_NAME)
    start += 3 if event.startswith(b': "', start) else 2 if event.startswith(b':"', start) else 0
    end = start + len(literal)
    whole = event[start:end] == literal and event[end : end + 1] == b'"'
    if not whole or event[start - 1 : start] != b'"' or _LITERAL.fullmatch(literal) is None:
        return None
    return event[:start], literal, event[end:]
