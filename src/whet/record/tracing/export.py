"""Reading an exporter's request, as far as that is possible without the record: unpacked, cut, redacted, understood.

It is a pure function of the request, so that a server may have other processes do it (`serve/readers.py`): these hold
nothing, and one that dies loses nothing.
"""

from __future__ import annotations

import contextlib
import gc
import os
from multiprocessing.connection import Connection
from typing import NamedTuple

from ...errors import InputError
from ...types import Span
from ..store.redaction.redact import Redactor
from . import otlp
from .whole import WholeTrace, read_whole


class Export(NamedTuple):
    """A request as it came."""

    body: bytes
    encoding: str
    """`identity` or `gzip`."""
    json: bool
    """True for OTLP/JSON, False for protobuf."""
    logs: bool
    """True for log records, False for spans."""
    run: str | None = None
    """The run of spans that name none."""


class ExportRead(NamedTuple):
    """What is in a request."""

    spans: list[Span]
    wholes: list[WholeTrace]
    """The traces among them that are whole."""
    rejected: int
    reasons: tuple[str, ...]
    size: int
    """Bytes that will be written, about."""


def unpacked(export: Export, most: int) -> Export:
    """The request without its compression.

    Args:
        most: bytes that it may have then.

    Raises:
        InputError: it is not what it says to be, or longer.
    """
    if export.encoding == "identity":
        return export
    if export.encoding != "gzip":
        raise InputError(f"content-encoding {export.encoding[:100]!r} is not supported: send gzip or nothing")
    return export._replace(body=otlp.gunzip(export.body, most), encoding="identity")


def read_export(export: Export, redactor: Redactor, limits: otlp.DecodeLimits) -> ExportRead:
    """Cut the spans out of an unpacked request, redact them, and read the traces that are whole.

    Raises:
        InputError: it cannot be read; nothing of it counts.
    """
    decoded = otlp.decode(export.body, json=export.json, logs=export.logs, limits=limits, run=export.run)
    spans = redactor.spans(decoded.spans, export.body, json=export.json)
    # One span by itself says nothing: who sends each alone sends the root last.
    wholes = read_whole(spans) if len(spans) > 1 and not export.logs else []
    size = len(export.body) + sum([whole.size for whole in wholes])
    return ExportRead(spans, wholes, decoded.rejected, decoded.reasons, size)


# -- in a process of its own ------------------------------------------------------------------

COLLECT = (10_000, 20, 50)
"""Thresholds of the garbage collector of a process that makes many objects and no circles of them."""


def read_exports(descriptor: int) -> None:
    """Answer each (Export, DecodeLimits) that comes with its ExportRead or an exception, until the other end is closed.

    The whole life of a process that reads for another.  It is told the redactor's rules first, and answers with its
    id once it can read.  A killed server closes its end too, so nobody has to be told to end.

    Args:
        descriptor: of its end of a pipe.
    """
    with contextlib.suppress(EOFError, OSError), Connection(descriptor) as connection:
        redactor = Redactor(connection.recv())
        gc.freeze()
        gc.set_threshold(*COLLECT)
        connection.send(os.getpid())
        while True:
            export, limits = connection.recv()
            answer: ExportRead | Exception
            try:
                answer = read_export(export, redactor, limits)
            except Exception as exception:
                answer = exception
            connection.send(answer)
