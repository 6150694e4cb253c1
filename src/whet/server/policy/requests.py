"""What a request asks: chat or completion, in OpenAI's words and vLLM's.

A field that would change the answer and is not offered is refused, never passed over in silence.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from ...errors import InputError
from ...training.serving.constraints import Form, call_form, form_of
from ...training.serving.sampling import Forcing, Sampling
from ...training.serving.text import Prompt, Text
from ...training.serving.tools import functions
from ...types import Json, digest

MOST_CHOICES = 64
DEFAULT_TOKENS = 2048
"""Tokens of an answer where the request does not say and the context has room for so many."""
_NOT_OFFERED: dict[str, tuple[Json, ...]] = {
    "frequency_penalty": (0, 0.0),
    "presence_penalty": (0, 0.0),
    "repetition_penalty": (1, 1.0),
    "logit_bias": ({},),
    "best_of": (1,),
    "use_beam_search": (False,),
    "prompt_logprobs": (),
    "echo": (False,),
    "suffix": ("",),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "modalities": (["text"],),
    "audio": (),
}
"""Field → the values that mean nothing; any other is refused."""


class Thinking(msgspec.Struct, forbid_unknown_fields=True):
    """`budget_forcing`, a field of our own: see `training.serving.sampling.Forcing`."""

    end: str = "</think>"
    more: str = "Wait"
    min_tokens: int = 0
    max_tokens: int | None = None
    times: int = 2


class Common(msgspec.Struct):
    """What both kinds of request have."""

    model: str
    max_tokens: int | None = None
    min_tokens: int = 0
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    n: int | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool = False
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    return_token_ids: bool | None = None
    budget_forcing: Thinking | None = None


class ChatRequest(Common, kw_only=True):
    """The body of `/v1/chat/completions`."""

    messages: list[dict[str, Any]]
    max_completion_tokens: int | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None


class CompletionRequest(Common, kw_only=True):
    """The body of `/v1/completions`; the prompt is a text or token ids."""

    prompt: str | list[int]
    logprobs: int | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that can be served."""

    model: str
    prompt: Prompt | None
    """Of a chat."""
    ids: Sequence[int]
    samplings: Sequence[Sampling]
    """One for each choice."""
    stops: Sequence[str]
    form: Form | None
    tools: Sequence[Json]
    stream: bool
    usage: bool
    """Whether a stream ends with what was used."""
    token_ids: bool
    logprobs: bool

    @property
    def chat(self) -> bool:
        """Whether it is a chat, no completion."""
        return self.prompt is not None


def read_chat(body: dict[str, Any], text: Text, max_length: int) -> Asked:
    """A chat request, for the version that is to answer it.

    Raises:
        InputError: it cannot be served; says why.
    """
    asked = _converted(body, ChatRequest)
    if not asked.messages:
        raise InputError("a chat needs at least one message")
    tools = [] if asked.tool_choice == "none" else asked.tools or []
    prompt = text.chat(asked.messages, tools)
    form = form_of(body)
    required = functions(asked.tools or [], asked.tool_choice)
    if required:
        if form is not None:
            raise InputError("tool_choice asks for a call, and response_format for something else")
        form = call_form(required, text)
    limit = asked.max_completion_tokens if asked.max_tokens is None else asked.max_tokens
    top = (asked.top_logprobs or 0) if asked.logprobs else 0
    samplings = _samplings(asked, text, _limit(limit, max_length, len(prompt.ids)), top)
    return Asked(
        asked.model,
        prompt,
        prompt.ids,
        samplings,
        _stops(asked.stop),
        form,
        tools,
        bool(asked.stream),
        bool((asked.stream_options or {}).get("include_usage")),
        bool(asked.return_token_ids),
        bool(asked.logprobs),
    )


def read_completion(body: dict[str, Any], text: Text, max_length: int) -> Asked:
    """A completion request, for the version that is to answer it.

    Raises:
        InputError: it cannot be served; says why.
    """
    asked = _converted(body, CompletionRequest)
    ids = text.encode(asked.prompt) if isinstance(asked.prompt, str) else asked.prompt
    limit = 16 if asked.max_tokens is None else asked.max_tokens  # the API's own default
    return Asked(
        asked.model,
        None,
        ids,
        _samplings(asked, text, limit, asked.logprobs or 0),
        _stops(asked.stop),
        form_of(body),
        (),
        bool(asked.stream),
        bool((asked.stream_options or {}).get("include_usage")),
        bool(asked.return_token_ids),
        asked.logprobs is not None,
    )


def _converted(body: dict[str, Any], kind: type[Any]) -> Any:
    for name, idle in _NOT_OFFERED.items():
        value = body.get(name)
        if value is not None and value not in idle:
            raise InputError(f"{name}={value!r:.100} is not offered by this server; leave it out")
    try:
        return msgspec.convert(body, kind)
    except msgspec.ValidationError as error:
        raise InputError(f"the request cannot be used: {error}") from error


def _limit(given: int | None, max_length: int, prompt: int) -> int:
    return max(1, min(DEFAULT_TOKENS, max_length - prompt)) if given is None else given


def _samplings(asked: Common, text: Text, limit: int, top: int) -> list[Sampling]:
    count = 1 if asked.n is None else asked.n
    if not 1 <= count <= MOST_CHOICES:
        raise InputError(f"n must be between 1 and {MOST_CHOICES}; got {count}")
    seed = int.from_bytes(os.urandom(6)) if asked.seed is None else asked.seed
    stop = set(asked.stop_token_ids or ()) | (set() if asked.ignore_eos else text.eos)
    first = Sampling(
        max_tokens=limit,
        min_tokens=asked.min_tokens,
        temperature=1.0 if asked.temperature is None else asked.temperature,
        top_p=1.0 if asked.top_p is None else asked.top_p,
        top_k=max(0, asked.top_k or 0),  # vLLM's way of saying all is -1
        seed=seed,
        stop_ids=frozenset(stop),
        top_logprobs=top,
        forcing=_forcing(asked.budget_forcing, text),
    )
    further = [replace(first, seed=int(digest([seed, number], 12), 16)) for number in range(1, count)]
    return [first, *further]


def _forcing(given: Thinking | None, text: Text) -> Forcing | None:
    if given is None:
        return None
    end = text.encode(given.end)
    if len(end) != 1:
        raise InputError(
            f"budget_forcing.end is {given.end!r}, which is {len(end)} tokens to this policy; it must be one"
        )
    return Forcing(
        end=end[0],
        more=text.encode(given.more),
        min_tokens=given.min_tokens,
        max_tokens=given.max_tokens,
        times=given.times,
    )


def _stops(given: str | list[str] | None) -> list[str]:
    stops = [given] if isinstance(given, str) else given or []
    if len(stops) > 16 or not all(stops):
        raise InputError("stop must be at most 16 texts, none of them empty")
    return stops
