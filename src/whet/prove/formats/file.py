"""A file of results as bytes, looked into without believing it: its kind, its members, its objects one by one.

Nothing is decoded before it is needed: a member of a large log that no reader asks for costs no memory.
"""

from __future__ import annotations

import codecs
import json
import re
import zlib
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ...errors import InputError
from ...escapes import read_json
from ...types import Json

Value = TypeVar("Value")
LARGEST = 1 << 30
"""Bytes that a file may have, packed or not."""
_LINES_LOOKED_AT = 20
_NOT_JSON = re.compile(rb"-?\b(?:NaN|Infinity)\b")
"""Numbers that Python's `json` writes and JSON does not have."""
_WRAPPED = ("results", "rows", "data", "records", "items", "examples", "samples")
_ANY_LENGTH = 1 << 40
_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_elements = msgspec.json.Decoder(list[msgspec.Raw])


class ResultFile:
    """The bytes of a file, from one that exists.

    Raises:
        InputError: it cannot be read, is empty or larger than `LARGEST`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            if path.stat().st_size > LARGEST:
                raise InputError(
                    f"{path} is larger than {LARGEST >> 20} MiB: write results without their traces"
                )
            self.body = path.read_bytes()
        except OSError as error:
            raise InputError(f"cannot read outcomes from {path}: {error.strerror or error}") from error
        if self.body.startswith(b"\x1f\x8b"):
            self.body = self._unpacked()
        if self.body.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            self.body = self.body.decode("utf-16", "replace").encode()
        self.body = self.body.removeprefix(codecs.BOM_UTF8)
        if not self.body.strip():
            raise InputError(f"{path} holds no outcomes: it is empty")

    def _unpacked(self) -> bytes:
        stream = zlib.decompressobj(zlib.MAX_WBITS | 16)
        try:
            body = stream.decompress(self.body, LARGEST + 1)
        except zlib.error as error:
            raise InputError(f"{self.path} cannot be unpacked: {error}") from error
        if len(body) > LARGEST or not stream.eof:
            raise InputError(f"{self.path} is cut short, or unpacks to more than {LARGEST >> 20} MiB")
        return body

    @cached_property
    def start(self) -> bytes:
        """Its first byte that is not blank."""
        return self.body.lstrip()[:1]

    @cached_property
    def whole(self) -> dict[str, msgspec.Raw] | None:
        """The members of a file that is one JSON object; None of any other."""
        return self._read_whole(_members) if self.start == b"{" else None

    @cached_property
    def elements(self) -> list[msgspec.Raw] | None:
        """The elements of a file that is one JSON array; None of any other."""
        return self._read_whole(_elements) if self.start == b"[" else None

    def _read_whole(self, decoder: msgspec.json.Decoder[Value]) -> Value | None:
        try:
            return read_json(decoder.decode, self.body, most=_ANY_LENGTH)
        except (msgspec.MsgspecError, UnicodeError):
            pass
        if self.of_lines or not _NOT_JSON.search(self.body):
            return None
        try:
            # NaN in it: written again with null in its place, so that each member can be read by itself.
            self.body = msgspec.json.encode(decoded(self.body))
            return decoder.decode(self.body)
        except (InputError, msgspec.MsgspecError, UnicodeError):
            return None

    @cached_property
    def of_lines(self) -> bool:
        """Whether it is JSON Lines: any of its first lines is an object by itself."""
        for line in self.body.splitlines()[:_LINES_LOOKED_AT]:
            if line.lstrip()[:1] == b"{":
                try:
                    read_json(_members.decode, line)
                except (msgspec.MsgspecError, UnicodeError):
                    continue
                return True
        return False

    def objects(self) -> Iterator[tuple[str, bytes]]:
        """The rows of JSON Lines or of one array, each with its place.

        Raises:
            InputError: it is neither.
        """
        if self.elements is not None:
            for number, element in enumerate(self.elements, 1):
                yield f"row {number}", bytes(element)
        elif self._wrapped:
            yield from self.member(self._wrapped)
        elif self.of_lines:
            # Bytes: `str.splitlines` also cuts at U+2028 and others, which JSON may hold in a text.
            for number, line in enumerate(self.body.splitlines(), 1):
                if line.strip():
                    yield f"line {number}", line
        elif self.whole is not None:
            yield "line 1", self.body
        else:
            raise InputError(f"{self.path} is not JSON: {self._why_not_json()}")

    @property
    def _wrapped(self) -> str:
        """The member of one object in which its rows stand, as APIs and scripts wrap them; "" of any other file."""
        for name in _WRAPPED:
            body = b"" if self.whole is None else bytes(self.whole.get(name, b"")).lstrip()
            if body[:1] == b"[" and body[1:].lstrip()[:1] == b"{":
                return name
        return ""

    def _why_not_json(self) -> str:
        try:
            read_json(msgspec.json.Decoder(msgspec.Raw).decode, self.body, most=_ANY_LENGTH)
        except (msgspec.MsgspecError, UnicodeError) as error:
            return str(error)
        return "it holds neither an object nor an array"

    @cached_property
    def first(self) -> dict[str, Any]:
        """The first of its objects that can be read; {} where none can."""
        try:
            rows = self.objects()
            for _, (_, body) in zip(range(_LINES_LOOKED_AT), rows, strict=False):
                try:
                    row = decoded(body)
                except InputError:
                    continue
                if isinstance(row, dict):
                    return row
        except InputError:
            pass
        return {}

    def member(self, *names: str) -> list[tuple[str, bytes]]:
        """The elements of an array that lies under these names, one in the other, each with its place.

        Raises:
            InputError: there is no such array.
        """
        body: msgspec.Raw | None = None
        members = self.whole
        if members is None:
            raise InputError(f"{self.path} is not JSON: {self._why_not_json()}")
        try:
            for name in names:
                body = (members if body is None else read_json(_members.decode, bytes(body), _ANY_LENGTH))[
                    name
                ]
            assert body is not None
            listed = read_json(_elements.decode, bytes(body), _ANY_LENGTH)
        except (KeyError, msgspec.MsgspecError, UnicodeError):
            raise InputError(f"{self.path} has no list under {'.'.join(names)!r}") from None
        return [(f"{names[-1]} {number}", bytes(element)) for number, element in enumerate(listed, 1)]


def decoded(body: bytes) -> Json:
    """JSON as it comes; NaN and Infinity, which Python writes and JSON does not have, are None: not scored.

    Raises:
        InputError: it is not JSON, or has too many values.
    """
    try:
        return read_json(msgspec.json.decode, body)
    except (msgspec.DecodeError, UnicodeError) as error:
        if not _NOT_JSON.search(body):
            raise InputError(f"not JSON: {error}") from error
    try:
        return json.loads(body.decode(), parse_constant=lambda _: None)
    except (ValueError, RecursionError) as error:
        raise InputError(f"not JSON: {error}") from error
