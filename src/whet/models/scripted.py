"""ScriptedModel, the public fake: it answers from a script, and does so the same way every time.

A test that uses it runs the real code around a model call.  It understands nothing;
`whet.models.fakes.ScriptedServer` plays the same scripts over HTTP.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar

from ..errors import InputError, ModelError
from ..types import Json, Usage
from .base import Chunk, Completion, Messages, ModelRequest, ToolCall, text_of
from .budget import Meter
from .spending import Reservation

Answer = str | ToolCall | Sequence[ToolCall] | Completion | Exception
"""One line of a script: text, tool calls, a whole Completion, or an exception to raise."""

Entry = TypeVar("Entry")
_END = object()


class Script(Generic[Entry]):
    """Decides the next answer: in order, by what the last message contains, or by a function.

    Args:
        source: a sequence (answers in order), a mapping (the first key that the last message
            contains decides; a list under a key is answered in order), a function
            of the ModelRequest, plain or async, or one string that answers everything.

    A script is safe to read from several threads.
    """

    def __init__(self, source: Any) -> None:
        if not (callable(source) or isinstance(source, (str, Mapping, Sequence))):
            raise InputError(
                f"A script is a list of answers, a mapping from text to answer, a function, or one "
                f"string; given {type(source).__name__}."
            )
        self._source = source
        self._lock = threading.Lock()
        self._asked = 0
        self._used: dict[str, int] = {}

    async def next(self, request: ModelRequest) -> Entry:
        """The answer to this ModelRequest.

        Raises:
            ModelError: the script has no answer left, or none that fits.
        """
        answer = self.take(request)
        if inspect.isawaitable(answer):
            answer = await answer
        return answer  # type: ignore[no-any-return]

    def take(self, request: ModelRequest) -> Any:
        """The same where there may be no event loop: the answer, or what has to be awaited for it."""
        with self._lock:
            answer = self._look_up(request)
            self._asked += 1
        # Outside the lock: a script's function may wait, or ask the same script again.
        return self._source(request) if answer is _END else answer

    def _look_up(self, request: ModelRequest) -> Any:
        if isinstance(self._source, str):
            return self._source
        if isinstance(self._source, Mapping):
            return self._match(request.text)
        if callable(self._source):
            return _END
        if self._asked >= len(self._source):
            raise ModelError(
                f"The script has {len(self._source)} answers and was asked {self._asked + 1} times. "
                f"The unexpected request ends with: {request.text[-200:]!r}"
            )
        return self._source[self._asked]

    def _match(self, text: str) -> Any:
        for key, answers in self._source.items():
            if key not in text:
                continue
            if not isinstance(answers, list):
                return answers
            used = self._used.get(key, 0)
            if used >= len(answers):
                raise ModelError(f"The script's {len(answers)} answers to {key!r} are used up.")
            self._used[key] = used + 1
            return answers[used]
        raise ModelError(
            f"The script matches {list(self._source)} and none is in the request: {text[-200:]!r}"
        )


class ScriptedModel:
    """A Model that answers from a script, deterministically, and remembers what it was asked.

    Usage counts words as tokens.  Exceptions in the script are raised, as an endpoint's
    failure would be.

    >>> model = ScriptedModel(["Paris", ModelError("overloaded", status=503, retryable=True)])
    >>> model = ScriptedModel({"capital of France": "Paris", "": "I don't know"})
    >>> model = ScriptedModel(lambda request: request.text.upper())

    Args:
        script: see `Script`.
        delay: seconds before each answer.
        meter: budget that each call is reserved on.
    """

    def __init__(
        self,
        script: str | Sequence[Answer] | Mapping[str, Any] | Callable[[ModelRequest], Any],
        *,
        name: str = "scripted",
        delay: float = 0.0,
        meter: Meter | None = None,
    ) -> None:
        self.name = name
        self.delay = delay
        self.calls: list[ModelRequest] = []
        self._script: Script[Answer] = Script(script)
        self._meter = meter

    def __repr__(self) -> str:
        return f"ScriptedModel({self.name!r}, asked {len(self.calls)} times)"

    async def complete(self, messages: Messages, **settings: Any) -> Completion:
        """The script's next answer.

        Raises:
            ModelError: the script has no answer left, or none that fits.
            BudgetExceeded: the meter has nothing left; the call is not recorded.
        """
        request = ModelRequest.of(messages, settings)
        reservation = Reservation(self._meter, None, request, self.name)
        try:
            reservation.attempt()
            self.calls.append(request)
            if self.delay:
                await asyncio.sleep(self.delay)
            answer = await self._script.next(request)
            if isinstance(answer, Exception):
                raise answer
            completion = as_completion(answer, request, self.name)
        except BaseException:
            # All of it, even if the call is cancelled: nothing was bought. A real endpoint may have billed.
            reservation.release()
            raise
        return reservation.settled(completion)

    async def stream(self, messages: Messages, **settings: Json) -> AsyncGenerator[Chunk, None]:
        """The script's next answer, a word at a time."""
        completion = await self.complete(messages, **settings)
        for piece in pieces(completion.text):
            yield Chunk(piece)
        yield Chunk(completion=completion)


def as_completion(answer: Answer, request: ModelRequest, model: str) -> Completion:
    """The Completion that a line of a script stands for; words count as tokens.

    Raises:
        InputError: it stands for none.
    """
    if isinstance(answer, Completion):
        return answer
    text = answer if isinstance(answer, str) else ""
    calls = [] if isinstance(answer, str) else [answer] if isinstance(answer, ToolCall) else answer
    if not isinstance(calls, Sequence):
        raise InputError(
            f"A script answered {answer!r:.100}; "
            "an answer is a string, ToolCalls, a Completion or an exception."
        )
    named = [call if call.id else replace(call, id=f"call_{number}") for number, call in enumerate(calls)]
    prompt_words = sum(len(text_of(message).split()) for message in request.messages)
    output_words = len(text.split()) + sum(1 + len(call.arguments.split()) for call in named)
    return Completion(
        text=text,
        tool_calls=tuple(named),
        usage=Usage(prompt_tokens=prompt_words, output_tokens=output_words, calls=1),
        model=model,
        finish="tool_calls" if named else "stop",
    )


def pieces(text: str) -> list[str]:
    """The text cut after each space, so that joining the pieces gives it back."""
    words = text.split(" ")
    return [word + " " for word in words[:-1]] + ([words[-1]] if words[-1] else [])
