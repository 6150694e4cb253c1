"""The three APIs side by side: what the gateway needs of each, and the translations to chat."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ...types import Json
from . import messages, responses
from .chat import Chat, ChatReader
from .messages import Messages, MessagesReader
from .messages_stream import MessagesStream
from .responses import Responses, ResponsesReader
from .responses_stream import ResponsesStream

Reader = ChatReader | MessagesReader | ResponsesReader
"""Puts a streamed answer together: `read(event)`, `finished`, `failure`, `response()`."""


class StreamTranslator(Protocol):
    """A chat stream as one of another API."""

    def feed(self, chunk: Mapping[str, Any]) -> list[Json]: ...

    def end(self) -> list[Json]: ...


class Dialect(Protocol):
    """One API: how its answers are recognised and read, and how it words an error."""

    api: str
    path: str

    def error(self, status: int, kind: str, message: str) -> Json: ...

    def error_events(self, kind: str, message: str, reader: Any) -> bytes: ...

    def reader(self) -> Reader: ...

    def accepts(self, answer: Json) -> bool: ...

    def usage(self, answer: Mapping[str, Any]) -> dict[str, int] | None: ...


CHAT = Chat()
RESPONSES = Responses()
MESSAGES = Messages()

TO_CHAT: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "responses": responses.to_chat,
    "messages": messages.to_chat,
}
FROM_CHAT: Mapping[str, Callable[[Mapping[str, Any], Mapping[str, Any]], dict[str, Json]]] = {
    "responses": responses.from_chat,
    "messages": messages.from_chat,
}
STREAM_FROM_CHAT: Mapping[str, Callable[[Mapping[str, Any]], StreamTranslator]] = {
    "responses": ResponsesStream,
    "messages": MessagesStream,
}
