"""The three APIs as the gateway uses them: told apart, translated, and asked for token ids and usage.

Chat is the pivot of requests: an agent's Responses call to a Messages upstream is read as chat, and that is
written as Messages.  Answers are read as Pieces and written in the API of the agent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from ...models.wire import chat, messages, responses
from ...models.wire.neutral import AnswerPart, AnswerReader, AnswerWriter, Counts, Untranslatable
from ...types import Fault, Json
from .failures import UpstreamFailed

encode = msgspec.json.Encoder().encode
# Must name every field that `take_out` removes: an answer with none of these is not looked at.
# Looked for one by one, which takes a tenth of one expression for all.
_MARKS = (b'token_ids"', b'"token_mask"', b'"logprobs"', b'"policy_version"')
_STREAM_MARKS = (b'"usage"', *_MARKS)
"""Names in every answer that has something to be taken out: searching costs a fraction of taking out.  Every whole
answer has its usage, which is taken out of streams alone."""


class Dialect(Protocol):
    """One API, as the gateway uses it; each is a module of `models.wire`."""

    @property
    def api(self) -> str: ...

    @property
    def path(self) -> str: ...

    def error(self, status: int, kind: str, message: str) -> dict[str, Json]: ...

    def error_events(self, kind: str, message: str, sequence: int) -> bytes: ...

    def frame(self, value: Json) -> bytes: ...

    def accepts(self, answer: Json) -> bool: ...

    def usage(self, answer: Mapping[str, Any]) -> Counts | None: ...

    def stream_reader(self) -> AnswerReader: ...

    def stream_writer(self, request: Mapping[str, Any]) -> AnswerWriter: ...

    def write_answer(self, piece: AnswerPart, request: Mapping[str, Any]) -> dict[str, Any]: ...


DIALECTS: Mapping[str, Dialect] = {"chat": chat, "responses": responses, "messages": messages}


def request_as(body: dict[str, Any], api: str, spoken: str) -> dict[str, Any]:
    """A request of `api` as one of `spoken`, which the upstream speaks.

    Raises:
        UpstreamFailed: it uses what the upstream's API does not have.
    """
    try:
        if api != "chat" and api != spoken:
            body = (messages if api == "messages" else responses).read_request(body)
            api = "chat"
        return body if api == spoken else messages.write_request(body)
    except Untranslatable as error:
        raise UpstreamFailed(
            Fault.AGENT,
            "not_translatable",
            f"{error.feature} cannot be put to this gateway's upstream, which speaks the {error.api} API only. "
            "Leave it out, or give the gateway an upstream that speaks the API of the request.",
            status=400,
        ) from error


def answer_as(answer: Mapping[str, Any], api: str, spoken: str, request: Mapping[str, Any]) -> dict[str, Any]:
    """An upstream's whole answer in the agent's API.

    Args:
        request: the agent's.
    """
    piece = (chat if spoken == "chat" else messages).read_answer(answer)
    return DIALECTS[api].write_answer(piece, request)


class ExtraFields:
    """The extras that the agent asked for itself; those that only the gateway asked for are taken out again."""

    __slots__ = ("ids", "logprobs", "usage")

    def __init__(self, request: Mapping[str, Any]) -> None:
        options = request.get("stream_options")
        self.ids = bool(request.get("return_token_ids"))
        self.logprobs = bool(request.get("logprobs"))
        self.usage = isinstance(options, dict) and bool(options.get("include_usage"))

    @staticmethod
    def in_stream(events: bytes) -> bool:
        """True if there may be something to take out of these events of a stream."""
        return any(mark in events for mark in _STREAM_MARKS)

    def stripped(self, raw: bytes, answer: dict[str, Any], *, streamed: bool) -> bytes | None:
        """An answer or a chunk without the extras that the agent did not ask for; None if nothing is left.

        Args:
            raw: the answer as it came, given back where there is nothing to take out.
            streamed: it is a chunk of a stream of which `in_stream` is true.
        """
        if not streamed and not any(mark in raw for mark in _MARKS):
            return raw
        removed = self.take_out(answer, streamed=streamed)
        return None if removed is None else encode(answer) if removed else raw

    def take_out(self, answer: dict[str, Any], *, streamed: bool) -> bool | None:
        """Take such extras out of `answer`; True if there were any, None if nothing is left of a chunk."""
        unasked = () if self.ids else ("token_ids", "prompt_token_ids", "token_mask")
        removed = [_removed(answer, name) for name in ("policy_version", *unasked)]
        choices = answer.get("choices") or ()
        for choice in choices:
            removed += [_removed(choice, name) for name in unasked]
            if not self.logprobs:
                removed.append(_removed(choice, "logprobs"))
        if streamed and not self.usage and "usage" in answer:
            used = answer.pop("usage")
            removed.append(True)
            if used is not None and not choices:
                return None
        return any(removed)


def _removed(fields: dict[str, Any], name: str) -> bool:
    """Take a field out; False if it was not there, or said nothing."""
    return fields.get(name) is not None and fields.pop(name) is not None
