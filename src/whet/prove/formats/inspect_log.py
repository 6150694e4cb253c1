"""Inspect: a log of `inspect eval`, as `.eval` (a zip) or as `.json`. Epochs of a sample are averaged.

Of a zip only the summaries are read, not the transcripts. Letters are worth what Inspect makes them worth: C 1, P 0.5,
I and N 0. A sample that ended in an error and has no score is an infrastructure error.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable
from typing import Any

import msgspec

from ...errors import InputError, MissingExtra
from ...types import Json, Outcome
from .file import ResultFile, decoded
from .rows import Reading, Row, as_text, mapping

_LETTERS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
_STORED, _DEFLATED, _ZSTANDARD = zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, 93
_HEADER = 30
"""Bytes of a local header before the name of its entry."""
_MOST_ENTRIES = 1_000_000
LARGEST_ENTRY = 1 << 28
"""Bytes that one entry of a zip may unpack to: summaries are small."""


def claims(file: ResultFile) -> bool:
    """Whether it is a zip, or an object with the parts of a log."""
    if file.body[:4] == b"PK\x03\x04":
        return True
    return file.whole is not None and {"eval", "status", "samples"} <= file.whole.keys()


def read(file: ResultFile) -> Reading:
    """The rows, by the sample's id; a scorer that gives several values has a metric for each."""
    if file.body[:2] == b"PK":
        header, samples = _packed(file)
    else:
        header = {} if file.whole is None else _header(bytes(file.whole.get("status", msgspec.Raw(b"null"))))
        samples = file.member("samples")
    reading = Reading("inspect").take(samples, _row)
    status = header.get("status")
    if status not in (None, "success"):
        reading.notes.append(
            f"{file.path} is of an evaluation that did not end: its status is {str(status)[:40]!r}."
        )
    return reading


def _header(status: bytes) -> dict[str, Any]:
    return {"status": decoded(status)}


def _row(where: str, sample: dict[str, Any]) -> Row | None:
    task = as_text(sample.get("id"), "id")
    if not task:
        raise InputError("no id")
    scores: dict[str, Json] = {}
    # Before version 0.3.30 a sample had one score, without the name of its scorer.
    older = {"score": sample["score"]} if sample.get("score") is not None else {}
    for scorer, score in (mapping(sample.get("scores")) or older).items():
        value = mapping(score).get("value")
        several = value.items() if isinstance(value, dict) else [("", value)]
        for name, part in several:
            scores[f"{scorer}/{name}" if name else scorer] = (
                _LETTERS.get(part.upper(), part) if isinstance(part, str) else part
            )
    failed = sample.get("error") is not None and not scores
    return Row(
        where=where,
        task=task,
        scores=scores,
        outcome=Outcome.INFRASTRUCTURE_ERROR if failed else Outcome.UNKNOWN,
        fields=mapping(sample.get("metadata")),
    )


def _packed(file: ResultFile) -> tuple[dict[str, Any], Iterable[tuple[str, bytes]]]:
    """The header of a zip, and its samples, each with its place."""
    path = file.path
    try:
        archive = zipfile.ZipFile(io.BytesIO(file.body))
        entries = {entry.filename: entry for entry in archive.infolist()}
    except (zipfile.BadZipFile, ValueError, OverflowError, NotImplementedError, UnicodeError) as error:
        raise InputError(f"{path} is not a zip that can be read: {error}") from error
    if len(entries) > _MOST_ENTRIES or sum(entry.file_size for entry in entries.values()) > 1 << 40:
        raise InputError(f"{path} would take more room than a log has: it is not unpacked")
    header = decoded(_entry(file, entries["header.json"])) if "header.json" in entries else {}
    if "summaries.json" in entries:
        body = _entry(file, entries["summaries.json"])
        try:
            listed = msgspec.json.decode(body, type=list[msgspec.Raw])
        except (msgspec.MsgspecError, RecursionError, UnicodeError):
            listed = [msgspec.Raw(msgspec.json.encode(part)) for part in _listed(decoded(body), path)]
        return mapping(header), [(f"sample {number}", bytes(raw)) for number, raw in enumerate(listed, 1)]
    samples = [
        entry for name, entry in entries.items() if name.startswith("samples/") and name.endswith(".json")
    ]
    if not samples:
        raise InputError(f"{path} is a zip without samples: of Inspect's logs, `.eval` files are read")
    return mapping(header), [(entry.filename, _entry(file, entry)) for entry in samples]


def _listed(value: Json, path: Any) -> list[Json]:
    if not isinstance(value, list):
        raise InputError(f"{path}: its summaries are not a list")
    return value


def _entry(file: ResultFile, entry: zipfile.ZipInfo) -> bytes:
    """One entry, unpacked to `LARGEST_ENTRY` bytes at most, whatever it says of itself."""
    start = entry.header_offset
    local = file.body[start : start + _HEADER]
    if len(local) < _HEADER or local[:4] != b"PK\x03\x04" or entry.flag_bits & 1:
        raise InputError(f"{file.path}: {entry.filename[:80]!r} cannot be read")
    begin = start + _HEADER + int.from_bytes(local[26:28], "little") + int.from_bytes(local[28:30], "little")
    packed = file.body[begin : begin + entry.compress_size]
    try:
        if entry.compress_type == _ZSTANDARD:
            body = _zstandard(packed)
        elif entry.compress_type in (_STORED, _DEFLATED):
            with zipfile.ZipFile(io.BytesIO(file.body)).open(entry) as stream:
                body = stream.read(LARGEST_ENTRY + 1)
        else:
            raise InputError(f"{file.path} is packed by method {entry.compress_type}, which is not read")
    except (InputError, MissingExtra):
        raise
    except Exception as error:  # of three libraries, each with its own
        raise InputError(f"{file.path}: {entry.filename[:80]!r} cannot be unpacked: {error}") from error
    if len(body) > LARGEST_ENTRY:
        raise InputError(
            f"{file.path}: {entry.filename[:80]!r} unpacks to more than {LARGEST_ENTRY >> 20} MiB"
        )
    return body


def _zstandard(packed: bytes) -> bytes:
    try:
        import zstandard
    except ImportError:
        raise MissingExtra("zstandard", "inspect") from None
    with zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(io.BytesIO(packed)) as stream:
        return bytes(stream.read(LARGEST_ENTRY + 1))
