"""Requests for chats and completions, in OpenAI's words and vLLM's.

A field that would change the answer and is not offered is refused, never passed over in silence.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from ...errors import InputError
from ...learn.training.serving.constraints import AnswerFormat, call_form, form_of
from ...learn.training.serving.sampling import Forcing, Sampling
from ...learn.training.serving.text import RenderedChat, TextCodec
from ...learn.training.serving.tools import functions
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
    """`budget_forcing`, a field of our own: see `learn.training.serving.sampling.Forcing`."""

    end: str = "</think>"
    more: str = "Wait"
    min_tokens: int = 0
    max_tokens: int | None = None
    times: int = 2


class Common(msgspec.Struct):
    """The fields of both kinds of request."""

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
class GenerationRequest:
    """A request that can be served."""

    request: Common
    prompt: RenderedChat | None
    """Of a chat."""
    ids: Sequence[int]
    samplings: Sequence[Sampling]
    """One for each choice."""
    stops: Sequence[str]
    form: AnswerFormat | None
    tools: Sequence[Json]
    logprobs: bool

    @property
    def chat(self) -> bool:
        """True for a chat, False for a completion."""
        return self.prompt is not None


def read_chat(body: dict[str, Any], text: TextCodec, max_length: int) -> GenerationRequest:
    """A chat request, for the version that is to answer it.

    Raises:
        InputError: it cannot be served; says why.
    """
    request = _converted(body, ChatRequest)
    if not request.messages:
        raise InputError("a chat needs at least one message")
    tools = [] if request.tool_choice == "none" else request.tools or []
    prompt = text.chat(request.messages, tools)
    form = form_of(body)
    required = functions(request.tools or [], request.tool_choice)
    if required:
        if form is not None:
            raise InputError("tool_choice asks for a call, and response_format for something else")
        form = call_form(required, text)
    limit = request.max_completion_tokens if request.max_tokens is None else request.max_tokens
    if limit is None:
        limit = max(1, min(DEFAULT_TOKENS, max_length - len(prompt.ids)))
    top = (request.top_logprobs or 0) if request.logprobs else 0
    samplings = _samplings(request, text, limit, top)
    stops, logprobs = _stops(request.stop), bool(request.logprobs)
    return GenerationRequest(request, prompt, prompt.ids, samplings, stops, form, tools, logprobs)


def read_completion(body: dict[str, Any], text: TextCodec, max_length: int) -> GenerationRequest:
    """A completion request, for the version that is to answer it.

    Raises:
        InputError: it cannot be served; says why.
    """
    request = _converted(body, CompletionRequest)
    ids = text.encode(request.prompt) if isinstance(request.prompt, str) else request.prompt
    limit = 16 if request.max_tokens is None else request.max_tokens  # the API's own default
    samplings = _samplings(request, text, limit, request.logprobs or 0)
    stops, logprobs = _stops(request.stop), request.logprobs is not None
    return GenerationRequest(request, None, ids, samplings, stops, form_of(body), (), logprobs)


def _converted(body: dict[str, Any], kind: type[Any]) -> Any:
    for name, idle in _NOT_OFFERED.items():
        value = body.get(name)
        if value is not None and value not in idle:
            raise InputError(f"{name}={value!r:.100} is not offered by this server; leave it out")
    try:
        return msgspec.convert(body, kind)
    except msgspec.ValidationError as error:
        raise InputError(f"the request cannot be used: {error}") from error


def _samplings(request: Common, text: TextCodec, limit: int, top: int) -> list[Sampling]:
    count = 1 if request.n is None else request.n
    if not 1 <= count <= MOST_CHOICES:
        raise InputError(f"n must be between 1 and {MOST_CHOICES}; got {count}")
    seed = int.from_bytes(os.urandom(6)) if request.seed is None else request.seed
    stop = set(request.stop_token_ids or ()) | (set() if request.ignore_eos else text.eos)
    first = Sampling(
        max_tokens=limit,
        min_tokens=request.min_tokens,
        temperature=1.0 if request.temperature is None else request.temperature,
        top_p=1.0 if request.top_p is None else request.top_p,
        top_k=max(0, request.top_k or 0),  # vLLM's way of saying all is -1
        seed=seed,
        stop_ids=frozenset(stop),
        top_logprobs=top,
        forcing=_forcing(request.budget_forcing, text),
    )
    # The first choice keeps the seed: it is the answer that n=1 gives.
    further = [replace(first, seed=int(digest([seed, number], 12), 16)) for number in range(1, count)]
    return [first, *further]


def _forcing(thinking: Thinking | None, text: TextCodec) -> Forcing | None:
    if thinking is None:
        return None
    end = text.encode(thinking.end)
    if len(end) != 1:
        raise InputError(
            f"budget_forcing.end is {thinking.end!r}, which is {len(end)} tokens to this policy; it must be one"
        )
    return Forcing(
        end=end[0],
        more=text.encode(thinking.more),
        min_tokens=thinking.min_tokens,
        max_tokens=thinking.max_tokens,
        times=thinking.times,
    )


def _stops(stop: str | list[str] | None) -> list[str]:
    stops = [stop] if isinstance(stop, str) else stop or []
    if len(stops) > 16 or not all(stops):
        raise InputError("stop must be at most 16 texts, none of them empty")
    return stops
