"""Server-sent events as bytes: cut into whole events, read, and written.

Only what model APIs use of the format: `event:` and `data:` lines.  A cut is always between two
events, so that what is forwarded of a broken stream can still be read.
"""

from __future__ import annotations

import re

import msgspec

from ...types import Json

DONE = b"data: [DONE]\n\n"
_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_encode = msgspec.json.Encoder().encode


class Splitter:
    """Cuts a stream that arrives in pieces of any size into its events."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        """The events that this piece completes, each with its blank line, in order."""
        data = self._rest + chunk if self._rest else chunk
        if b"\r" not in data:
            # Nearly every server writes newlines alone, which are found in a tenth of the time.
            *whole, self._rest = data.split(b"\n\n")
            return [event + b"\n\n" for event in whole]
        events, start = [], 0
        for blank_line in _END.finditer(data):
            # "\r\n\r" at the end of a piece may be half of a blank line; finditer waits for all of it.
            events.append(data[start : blank_line.end()])
            start = blank_line.end()
        self._rest = data[start:]
        return events

    def end(self) -> list[bytes]:
        """The event that the stream ended in without a blank line, if there is one."""
        # Blanks alone are no event: servers end a stream with one newline more or less.
        return self.feed(b"\n\n") if self._rest.strip() else []


def data_of(event: bytes) -> bytes:
    """The payload of one event, b"" for a comment or a keep-alive."""
    # Nearly every event is a single data line, which is read in half the time without splitting it.
    if event.startswith(b"data:") and event.find(b"\n") == len(event) - 2 and event[-1] == 10:
        return event[5:].strip()
    lines = [line[5:].strip() for line in event.splitlines() if line.startswith(b"data:")]
    return b"\n".join(lines)


def data_event(value: Json) -> bytes:
    """An event of the chat API: data alone."""
    return b"data: " + _encode(value) + b"\n\n"


def named_event(value: Json) -> bytes:
    """An event of the Responses and Messages APIs: named after its `type`."""
    return b"event: " + str(value["type"]).encode() + b"\ndata: " + _encode(value) + b"\n\n"
