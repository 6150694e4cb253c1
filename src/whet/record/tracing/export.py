"""Reading an exporter's request, as far as that is possible without the record: unpacked, cut, redacted, understood.

It is a pure function of the request, so that a server may have other processes do it (`serve/readers.py`): these hold
nothing, and one that dies loses nothing.
"""

from __future__ import annotations

import contextlib
import gc
import os
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import msgspec

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

COLLECT = (100_000, 20, 50)
"""Thresholds of the garbage collector of a process that makes many objects and no circles of them."""


class _Reading(msgspec.Struct, array_like=True):
    """What a process answers: what it has read, or why it could not."""

    spans: list[Span] = []
    wholes: list[tuple[bytes, tuple[Any, ...] | None]] = []
    rejected: int = 0
    reasons: tuple[str, ...] = ()
    size: int = 0
    fault: str | None = None
    """Of the request."""
    failed: bool = False
    """True where the reader is at fault."""


_encode = msgspec.msgpack.Encoder().encode
_decode_export = msgspec.msgpack.Decoder(Export).decode
_decode_reading = msgspec.msgpack.Decoder(_Reading).decode


def encode_export(export: Export) -> bytes:
    """A request for `read_exports`."""
    return _encode(export)


def decode_read(answer: bytes | bytearray) -> ExportRead | None:
    """An answer of `read_exports`; None if the request must be read again, by somebody else.

    Raises:
        InputError: the request cannot be read; nothing of it counts.
    """
    reading = _decode_reading(answer)
    if reading.fault is not None:
        raise InputError(reading.fault)
    if reading.failed:
        return None
    wholes = [WholeTrace(*whole) for whole in reading.wholes]
    return ExportRead(reading.spans, wholes, reading.rejected, reading.reasons, reading.size)


def read_exports(descriptor: int) -> None:
    """Answer each request that comes, as `encode_export` writes it, until the other end is closed.

    The whole life of a process that reads for another.  It is told the redactor's rules and the limits first, and
    answers with its id once it can read.  A killed server closes its end too, so nobody has to be told to end.

    Args:
        descriptor: of its end of a pipe.
    """
    with contextlib.suppress(EOFError, OSError), Connection(descriptor) as connection:
        rules, limits = connection.recv()
        redactor = Redactor(rules)
        gc.freeze()
        gc.set_threshold(*COLLECT)
        connection.send(os.getpid())
        while True:
            connection.send_bytes(_answer(connection.recv_bytes(), redactor, limits))


def _answer(sent: bytes, redactor: Redactor, limits: otlp.DecodeLimits) -> bytes:
    try:
        read = read_export(_decode_export(sent), redactor, limits)
        wholes: list[tuple[bytes, tuple[Any, ...] | None]] = [*read.wholes]
        return _encode(_Reading(read.spans, wholes, read.rejected, read.reasons, read.size))
    except InputError as error:
        with contextlib.suppress(UnicodeEncodeError):
            return _encode(_Reading(fault=str(error)))
    except Exception:  # the server reads it then, and shows what is wrong
        pass
    return _encode(_Reading(failed=True))
