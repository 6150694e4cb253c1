"""The three APIs side by side: what the gateway needs of each, and how one is told as another.

Chat is what every translation goes through: an agent's Responses call to a Messages upstream is put as
chat, and that as Messages.
"""

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
from .to_messages import ChatStream, to_chat_answer, to_messages

Reader = ChatReader | MessagesReader | ResponsesReader
"""Puts a streamed answer together: `read(event)`, `finished`, `failure`, `response()`."""


class StreamTranslator(Protocol):
    """The stream of one API as that of another."""

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
DIALECTS: Mapping[str, Dialect] = {each.api: each for each in (CHAT, RESPONSES, MESSAGES)}


def request_as(body: dict[str, Any], api: str, spoken: str) -> dict[str, Any]:
    """A request of the API `api` as one of the API that the upstream speaks.

    Raises:
        CallFailed: it uses what the upstream's API does not have.
    """
    if api == spoken:
        return body
    chat = body if api == "chat" else TO_CHAT[api](body)
    return chat if spoken == "chat" else to_messages(chat)


def answer_as(answer: Mapping[str, Any], api: str, spoken: str, request: Mapping[str, Any]) -> dict[str, Any]:
    """An upstream's answer in the API that the agent asked in.

    Args:
        request: the agent's.
    """
    chat = answer if spoken == "chat" else to_chat_answer(answer, request)
    return dict(chat) if api == "chat" else FROM_CHAT[api](chat, request)


class _Through:
    """Two translations of a stream, one after the other."""

    def __init__(self, first: StreamTranslator, second: StreamTranslator) -> None:
        self._first, self._second = first, second

    def feed(self, chunk: Mapping[str, Any]) -> list[Json]:
        return [event for each in self._first.feed(chunk) for event in self._second.feed(each)]

    def end(self) -> list[Json]:
        last = [event for each in self._first.end() for event in self._second.feed(each)]
        return [*last, *self._second.end()]


def stream_as(api: str, spoken: str, request: Mapping[str, Any]) -> StreamTranslator | None:
    """Translator from the upstream's stream format to the caller's; None if both use the same API."""
    if api == spoken:
        return None
    if spoken == "chat":
        return STREAM_FROM_CHAT[api](request)
    told = ChatStream(request)
    return told if api == "chat" else _Through(told, STREAM_FROM_CHAT[api](request))
