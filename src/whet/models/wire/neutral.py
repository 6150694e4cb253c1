"""An answer in no API's words, and what the readers of all APIs share.

An answer is a series of AnswerParts, whether it was streamed or came whole (then it is one).  Why it stopped
is said in chat's words: `stop`, `length`, `tool_calls`, `content_filter`.  Usage is counted in the record's
words: `input` (cached tokens included), `output`, `cached_input`, `reasoning`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from ...escapes import read_json
from ...types import Json

MISSHAPEN = (KeyError, TypeError, AttributeError, IndexError, ValueError)
"""Raised by reading JSON of an unexpected shape; the place that catches them tells them from a bug."""
Counts = Mapping[str, int]
_decode = msgspec.json.Decoder().decode
_VALUES = 10_000_000
"""Values of an answer: twenty log-probabilities a token, each with its text and bytes, are many."""


class Untranslatable(Exception):
    """A request uses what another API does not have.

    Args:
        feature: of the request.
        api: the one that does not have it, as it is called in a sentence.
    """

    def __init__(self, feature: str, api: str) -> None:
        super().__init__(f"{feature} has no counterpart in the {api} API")
        self.feature, self.api = feature, api


class CallPiece(msgspec.Struct):
    """An AnswerPart's addition to one tool call."""

    index: int
    """Position among the tool calls of the answer."""
    id: str = ""
    name: str = ""
    arguments: str = ""


class AnswerPart(msgspec.Struct):
    """An event's addition to an answer, or all of the answer."""

    # `chat._piece` fills these by position: their order is part of the contract.
    id: str | None = None
    model: str | None = None
    created: int | None = None
    """Unix time in seconds."""
    text: str = ""
    reasoning: str = ""
    refusal: str = ""
    calls: Sequence[CallPiece] = ()
    finish: str | None = None
    sequence: str | None = None
    """The stop sequence that was met."""
    usage: Counts | None = None
    """Of the whole answer so far."""


class AnswerReader(Protocol):
    """Puts a streamed answer together."""

    finished: bool
    failure: Json
    policy_version: str | None

    @property
    def sequence(self) -> int: ...

    def read(self, event: Json) -> None: ...

    def response(self) -> dict[str, Json] | None: ...


class AnswerWriter(Protocol):
    """Writes the AnswerParts of an answer as events of one API."""

    def write(self, piece: AnswerPart) -> list[Json]: ...

    def end(self) -> list[Json]: ...


def decode(raw: bytes) -> Any:
    """JSON from another program; a lone surrogate in it is read as U+FFFD.

    Raises:
        msgspec.DecodeError, UnicodeDecodeError: not JSON.
    """
    if len(raw) < _VALUES:  # a value has a byte at least
        try:
            return _decode(raw)  # by itself first: it is called for every event of a stream
        except Exception:
            return read_json(_decode, raw, _VALUES)
    return read_json(_decode, raw, _VALUES)


def count(usage: Json, name: str) -> int:
    """A token count, 0 if absent."""
    tokens = usage.get(name) if isinstance(usage, dict) else None
    return tokens if isinstance(tokens, int) else 0


def arguments_object(arguments: str) -> dict[str, Json]:
    """A tool call's arguments as an object; anything else is kept as a text under `_raw`."""
    try:
        decoded = read_json(msgspec.json.decode, arguments or "{}")
    except msgspec.DecodeError:
        return {"_raw": arguments}
    return decoded if isinstance(decoded, dict) else {"_raw": arguments}


def arguments_text(arguments: Json) -> str:
    """A tool call's arguments as the text that chat has; some servers send the object itself."""
    if isinstance(arguments, str):
        return arguments
    return "" if arguments is None else msgspec.json.encode(arguments).decode()


def trainable(ids: Sequence[int] | None, logprobs: Sequence[float]) -> bool:
    """True for an output that can be trained on: a finite log-probability for every token id."""
    return bool(ids) and len(ids or ()) == len(logprobs) and all(map(math.isfinite, logprobs))
