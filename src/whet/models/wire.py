"""The OpenAI chat API as bytes: requests written, answers and event streams read.

What is read is checked for shape once, here, because it comes from another program.  A plain
answer is read as a stream of one event, so both have one reader.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from ..escapes import read_json
from ..types import Json, Tokens, Usage
from .base import Completion, Request, ToolCall, text_of


class Refusal(Exception):
    """One attempt that brought no answer; an Endpoint retries it or makes a ModelError of it."""

    def __init__(
        self,
        what: str,
        *,
        status: int | None = None,
        retryable: bool = True,
        retry_after: float | None = None,
        billed: bool = False,
        body: str = "",
        advice: str = "",
    ) -> None:
        super().__init__(what)
        self.status = status
        self.retryable = retryable
        self.retry_after = retry_after
        self.billed = billed
        """True where the endpoint may have done, and may charge for, the work."""
        self.body = body
        self.advice = advice


def encode(request: Request, model: str, *, stream: bool, tokens: bool) -> bytes:
    """The body of a chat completion request."""
    body: dict[str, Any] = {"model": model, "messages": request.messages, **request.settings}
    if stream:
        body["stream"] = True
        body["stream_options"] = {"include_usage": True}
    if tokens:
        body["logprobs"] = True
        body["return_token_ids"] = True
    return msgspec.json.encode(body)


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: Any = None


class _Call(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: _Function = msgspec.field(default_factory=_Function)


class _Message(msgspec.Struct):
    content: str | list[Any] | None = None
    tool_calls: list[_Call] | None = None


class _Logprob(msgspec.Struct):
    logprob: float


class _Logprobs(msgspec.Struct):
    content: list[_Logprob] | None = None


class _Choice(msgspec.Struct):
    message: _Message | None = None
    delta: _Message | None = None
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None
    token_ids: list[int] | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Event(msgspec.Struct):
    choices: list[_Choice] | None = None
    model: str | None = None
    usage: _Usage | None = None
    prompt_token_ids: list[int] | None = None
    error: Any = None


class Reader:
    """Puts one Completion together from the events of an answer."""

    def __init__(self) -> None:
        self.finish: str | None = None
        self._text: list[str] = []
        self._calls: dict[int, dict[str, str]] = {}
        self._output_ids: list[int] = []
        self._logprobs: list[float] = []
        self._prompt_ids: list[int] | None = None
        self._usage: _Usage | None = None
        self._model = ""
        self._raw: Json = None

    def read(self, data: bytes | str, *, whole: bool = False) -> str:
        """Take in one event and return the text that it adds.

        Args:
            whole: this is a plain answer, which must have a message.

        Raises:
            Refusal: not JSON, not the shape of a chat completion, or an error object.
        """
        try:
            raw = read_json(msgspec.json.decode, data.encode() if isinstance(data, str) else data)
            event = msgspec.convert(raw, _Event)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise _malformed(data, f"the answer is no chat completion ({error})") from error
        if event.error is not None:
            raise _malformed(data, "the endpoint answered with an error object")
        choice = event.choices[0] if event.choices else None
        message = None if choice is None else (choice.message or choice.delta)
        if whole and message is None:
            raise _malformed(data, "the answer has no message")
        if whole:
            self._raw = raw
        self._model = event.model or self._model
        self._usage = event.usage or self._usage
        self._prompt_ids = event.prompt_token_ids if event.prompt_token_ids is not None else self._prompt_ids
        if choice is not None:
            self._take_tokens(choice)
        return "" if message is None else self._take_message(message)

    def _take_tokens(self, choice: _Choice) -> None:
        self.finish = choice.finish_reason or self.finish
        self._output_ids += choice.token_ids or ()
        if choice.logprobs and choice.logprobs.content:
            self._logprobs += [entry.logprob for entry in choice.logprobs.content]

    def _take_message(self, message: _Message) -> str:
        text = text_of({"content": message.content})
        self._text.append(text)
        for position, part in enumerate(message.tool_calls or ()):
            # A stream names a call by its index and sends its arguments in pieces.
            index = position if part.index is None else part.index
            call = self._calls.setdefault(index, {"id": "", "name": "", "arguments": ""})
            call["id"] = part.id or call["id"]
            call["name"] = part.function.name or call["name"]
            arguments = part.function.arguments
            if isinstance(arguments, str):
                call["arguments"] += arguments
            elif arguments is not None:
                call["arguments"] += msgspec.json.encode(arguments).decode()
        return text

    def completion(self, *, tokens: bool, expected: Usage) -> Completion:
        """The whole answer.

        Args:
            tokens: token ids and log-probabilities were asked for.
            expected: prompt tokens as estimated, for an endpoint that reports no usage.

        Raises:
            Refusal: tokens were asked for and the answer cannot be trained on.
        """
        text = "".join(self._text)
        usage = Usage(expected.prompt_tokens, len(text.encode()) // 3 + 1, calls=1)
        if self._usage is not None:
            usage = Usage(self._usage.prompt_tokens, self._usage.completion_tokens, calls=1)
        return Completion(
            text=text,
            tool_calls=tuple(
                ToolCall(id=call["id"], name=call["name"], arguments=call["arguments"] or "{}")
                for _, call in sorted(self._calls.items())
            ),
            usage=usage,
            model=self._model,
            finish=self.finish,
            tokens=self._tokens(asked=tokens),
            raw=self._raw,
        )

    def _tokens(self, *, asked: bool) -> Tokens | None:
        ids, logprobs = self._output_ids, self._logprobs
        sound = len(ids) == len(logprobs) and all(map(math.isfinite, logprobs))
        if self._prompt_ids is not None and ids and sound:
            return Tokens(tuple(self._prompt_ids), tuple(ids), tuple(logprobs))
        if asked:
            raise Refusal(
                f"tokens=True, but the answer has {len(ids)} token_ids, {len(logprobs)} logprobs and "
                f"{'no' if self._prompt_ids is None else 'its'} prompt_token_ids",
                retryable=False,
                billed=True,
                advice="Such an answer cannot be trained on. Serve the model with vLLM 0.10.2 or newer.",
            )
        return None


def _malformed(data: bytes | str, what: str) -> Refusal:
    body = data.decode(errors="replace") if isinstance(data, bytes) else data
    return Refusal(what, status=200, billed=True, body=body, advice="Check that base_url is a chat API.")
