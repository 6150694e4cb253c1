"""Scripted answers as the chat completions API gives them, with vLLM's token fields where asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ..models.base import Completion, Request
from ..models.scripted import pieces
from ..types import Json, Tokens

_OWN = ("model", "messages", "stream", "stream_options", "return_token_ids", "logprobs", "n")


def request(body: Mapping[str, Any]) -> Request:
    """What a script is asked, from the body of a request."""
    return Request.of(body["messages"], {name: value for name, value in body.items() if name not in _OWN})


def answer(completions: Sequence[Completion], body: Mapping[str, Any]) -> Json:
    """A plain answer; one choice for each completion."""
    asked = bool(body.get("return_token_ids"))
    whole: dict[str, Json] = {
        "id": "chatcmpl-scripted",
        "object": "chat.completion",
        "model": body["model"],
        "choices": [_choice(number, each, asked) for number, each in enumerate(completions)],
        "usage": _usage(completions),
    }
    tokens = completions[0].tokens
    if asked and tokens is not None:
        whole["prompt_token_ids"] = list(tokens.prompt_ids)
    return whole | policy(completions)


def policy(completions: Sequence[Completion]) -> dict[str, Json]:
    """The tag of a policy server, where the script's tokens have a policy version."""
    tokens = completions[0].tokens
    return (
        {} if tokens is None or tokens.policy_version is None else {"policy_version": tokens.policy_version}
    )


def events(completions: Sequence[Completion], body: Mapping[str, Any]) -> list[bytes]:
    """The answer as a server streams it: text by words, each call's arguments in two pieces, usage last.

    Choices take turns, as the samples of a batch do.
    """
    asked = bool(body.get("return_token_ids"))
    common = {"id": "chatcmpl-scripted", "object": "chat.completion.chunk", "model": body["model"]}
    common |= policy(completions)
    queues = [_chunks(number, each, asked) for number, each in enumerate(completions)]
    found: list[dict[str, Json]] = []
    for turn in range(max(map(len, queues))):
        found += [{**common, "choices": [queue[turn]]} for queue in queues if turn < len(queue)]
    tokens = completions[0].tokens
    if asked and tokens is not None:
        found[0]["prompt_token_ids"] = list(tokens.prompt_ids)
    if (body.get("stream_options") or {}).get("include_usage"):
        found.append({**common, "choices": [], "usage": _usage(completions)})
    lines = [b"data: " + msgspec.json.encode(event) + b"\n\n" for event in found]
    return [*lines, b"data: [DONE]\n\n"]


def _choice(number: int, completion: Completion, asked: bool) -> Json:
    message: dict[str, Json] = {"role": "assistant", "content": completion.text}
    if completion.tool_calls:
        message = {**message, "content": completion.text or None, "tool_calls": _calls(completion)}
    choice = {"index": number, "message": message, "finish_reason": completion.finish or "stop"}
    if asked and completion.tokens is not None:
        choice["token_ids"] = list(completion.tokens.output_ids)
        choice["logprobs"] = _logprobs(completion.tokens)
    return choice


def _chunks(number: int, completion: Completion, asked: bool) -> list[dict[str, Json]]:
    deltas: list[dict[str, Json]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": piece} for piece in pieces(completion.text)]
    for call in _calls(completion):
        arguments = call["function"]["arguments"]
        half = len(arguments) // 2
        first = {**call, "function": {**call["function"], "arguments": arguments[:half]}}
        rest = {"index": call["index"], "function": {"arguments": arguments[half:]}}
        deltas += [{"tool_calls": [first]}, {"tool_calls": [rest]}]
    choices: list[dict[str, Json]] = [{"index": number, "delta": delta} for delta in deltas]
    if asked and completion.tokens is not None:
        # All ids ride on the second event: how they are cut up is the server's choice.
        carrier = choices[min(1, len(choices) - 1)]
        carrier["token_ids"] = list(completion.tokens.output_ids)
        carrier["logprobs"] = _logprobs(completion.tokens)
    last = {"index": number, "delta": {}, "finish_reason": completion.finish or "stop"}
    return [*choices, last]


def _calls(completion: Completion) -> list[Json]:
    return [
        {
            "index": number,
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for number, call in enumerate(completion.tool_calls)
    ]


def _usage(completions: Sequence[Completion]) -> Json:
    read = completions[0].usage.prompt_tokens
    written = sum(each.usage.output_tokens for each in completions)
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


def _logprobs(tokens: Tokens) -> Json:
    return {"content": [{"token": "", "logprob": value} for value in tokens.logprobs]}
