"""The nouns of a model call: ModelRequest, Completion, and the Model protocol.

Messages and tools keep the OpenAI chat shape, because every endpoint and framework
speaks it; nothing here validates them, the endpoint does.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import msgspec

from ..errors import InputError, ModelError
from ..escapes import read_json
from ..types import Json, Tokens, Usage, digest

Messages = str | Sequence[Mapping[str, Json]]
"""A chat in the OpenAI shape; a plain string is one user message."""


def as_messages(messages: Messages) -> tuple[Mapping[str, Json], ...]:
    """The chat that `messages` stands for.

    Raises:
        InputError: empty, or not a sequence of objects with a `role`.
    """
    if isinstance(messages, str):
        return ({"role": "user", "content": messages},)
    chat = tuple(messages)
    if not chat:
        raise InputError("A model was asked with no messages. Give at least one {'role', 'content'}.")
    for number, message in enumerate(chat):
        if not isinstance(message, Mapping) or "role" not in message:
            raise InputError(f"Message {number} is {message!r:.80}; it must be an object with a 'role'.")
    return chat


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A tool the model wants called."""

    name: str
    arguments: str = "{}"
    """As the model wrote it: meant to be a JSON object, and not always one."""
    id: str = ""

    def parsed(self) -> dict[str, Json]:
        """The arguments as a JSON object.

        Raises:
            ModelError: the model wrote something else.
        """
        try:
            return read_json(msgspec.json.Decoder(dict[str, Any]).decode, self.arguments or "{}")
        except msgspec.DecodeError as error:
            raise ModelError(
                f"The model called {self.name} with arguments that are not a JSON object "
                f"({error}): {self.arguments[:200]!r}"
            ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One answer of a model."""

    text: str = ""
    tool_calls: Sequence[ToolCall] = ()
    usage: Usage = field(default_factory=Usage)
    model: str = ""
    """The model that answered, as the endpoint names it."""
    finish: str | None = None
    """The reason it stopped: `stop`, `length`, `tool_calls`, ...; None if the endpoint did not say."""
    tokens: Tokens | None = None
    """Ids and log-probabilities as sampled, where the endpoint gives both."""
    raw: Json = None
    """The endpoint's own answer; for a stream, None."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a streamed answer."""

    text: str = ""
    completion: Completion | None = None
    """The whole answer, on the last Chunk and only there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """Everything that decides an answer, as one value."""

    messages: tuple[Mapping[str, Json], ...]
    tools: Sequence[Mapping[str, Json]] | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    options: Mapping[str, Json] = field(default_factory=dict)
    """Further fields of the request, passed to the endpoint as they are."""

    @classmethod
    def of(cls, messages: Messages, settings: Mapping[str, Any]) -> ModelRequest:
        """The ModelRequest of a `complete(messages, **settings)` call.

        Raises:
            InputError: a setting that the call itself owns, such as `stream` or `n`.
        """
        named = {name: settings.get(name) for name in ("tools", "temperature", "max_tokens", "seed")}
        options = {name: value for name, value in settings.items() if name not in named}
        for name in ("model", "messages", "stream", "n"):
            if name in options:
                raise InputError(
                    f"{name}={options[name]!r} cannot be given to a model call. "
                    "Use `stream()` to stream, and ask several times for several answers."
                )
        return cls(messages=as_messages(messages), options=options, **named)

    @property
    def settings(self) -> dict[str, Any]:
        """The keyword arguments that this ModelRequest was made of, those left at None omitted."""
        named = {
            "tools": self.tools,
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
            "seed": self.seed,
        }
        # Only None is left out: 0 is a temperature and a seed, and is part of the key of a recorded answer.
        return {**{name: value for name, value in named.items() if value is not None}, **self.options}

    @property
    def text(self) -> str:
        """Text of the last message: what most scripts match on."""
        return text_of(self.messages[-1])

    def key(self, *more: Json) -> str:
        """32 hex characters that equal ModelRequests share, and different ones do not."""
        # Recorded answers are found by this hash: another form of it orphans them all.
        return digest([[dict(message) for message in self.messages], self.settings, *more], 32)


class AttemptRefused(Exception):
    """One attempt that brought no answer; an Endpoint retries it or makes a ModelError of it."""

    def __init__(
        self,
        problem: str,
        *,
        status: int | None = None,
        retryable: bool = True,
        retry_after: float | None = None,
        billed: bool = False,
        body: str = "",
        advice: str = "",
    ) -> None:
        super().__init__(problem)
        self.status = status
        self.retryable = retryable
        self.retry_after = retry_after
        self.billed = billed
        """True where the endpoint may have done, and may charge for, the work."""
        self.body = body
        self.advice = advice


def text_of(message: Mapping[str, Json]) -> str:
    """The text of a message, whose content may be a string, a list of parts, or missing."""
    content = message.get("content")
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))
    return "" if content is None else str(content)


@runtime_checkable
class Model(Protocol):
    """Anything that completes a chat."""

    name: str
    """Its name in a record; two Models that may answer differently should differ here."""

    async def complete(
        self,
        messages: Messages,
        *,
        tools: Sequence[Mapping[str, Json]] | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
        seed: int | None = None,
        **options: Json,
    ) -> Completion:
        """One answer.

        Raises:
            ModelError: no answer, for good.
            BudgetExceeded: the call would overshoot a budget; it was not made.
        """
        ...

    def stream(self, messages: Messages, **settings: Json) -> AsyncIterator[Chunk]:
        """The answer in pieces, the last of which carries the whole Completion.

        Takes what `complete` takes.  A failure after the first piece raises; it is not retried.
        """
        ...
