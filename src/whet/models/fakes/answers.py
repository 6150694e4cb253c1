"""Scripted answers as the model APIs give them, by the writers that the gateway uses.

Texts are streamed by words and each tool call's arguments in two pieces.  Ids and times are fixed, so that the
same script gives the same bytes.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from ...types import Json
from ..base import Completion, ModelRequest
from ..scripted import pieces
from ..wire import chat, messages, responses
from ..wire.neutral import AnswerPart, AnswerWriter, CallPiece
from ..wire.sse import DONE, named_event

_OWN = {
    "chat": ("model", "messages", "stream", "stream_options", "return_token_ids", "logprobs", "n"),
    "responses": ("model", "input", "instructions", "stream"),
    "messages": ("model", "messages", "system", "stream"),
    "completions": ("model", "prompt", "stream", "return_token_ids", "logprobs", "n"),
    "sglang": ("input_ids", "return_logprob", "stream"),
}
"""API → the fields of a request that are not settings of the ModelRequest that a script is asked."""


def request(api: str, body: Mapping[str, Any]) -> ModelRequest:
    """The ModelRequest that a script is asked; nothing in it is refused, and content stays as the API has it.

    A system prompt is the first message; the prompt of a completion is one user message, of its text or of
    its token ids as numbers.
    """
    turns: Any
    system = None
    if api == "completions":
        turns = body["prompt"] if isinstance(body["prompt"], str) else " ".join(map(str, body["prompt"]))
    elif api == "sglang":
        turns = " ".join(map(str, body["input_ids"]))
    elif api == "responses":
        items, system = body["input"], body.get("instructions")
        turns = [{"role": "user", "content": items}] if isinstance(items, str) else [*map(_turn, items)]
    else:
        turns, system = body["messages"], body.get("system") if api == "messages" else None
    if system:
        turns = [{"role": "system", "content": system}, *turns]
    return ModelRequest.of(turns, {name: value for name, value in body.items() if name not in _OWN[api]})


def _turn(item: Mapping[str, Any]) -> Mapping[str, Any]:
    if item.get("type") == "function_call_output":
        return {"role": "tool", "content": item["output"], "tool_call_id": item["call_id"]}
    return item if "role" in item else {"role": "assistant", **item}


def answer(api: str, completions: Sequence[Completion], body: Mapping[str, Any]) -> Json:
    """A whole answer; one choice for each completion, where the API has choices."""
    if api == "completions":
        head = {"id": "cmpl-scripted", "object": "text_completion", "model": body["model"]}
        choices = [_text_choice(index, completion, body) for index, completion in enumerate(completions)]
        return {**head, "choices": choices, **_policy(completions)}
    if api == "sglang":
        return _generated(completions[0], body)
    piece = _whole(completions[0], body)
    if api == "messages":
        return messages.write_answer(piece, body)
    if api == "responses":
        return _responses_writer(body).whole(piece)
    choices = []
    for index, completion in enumerate(completions):
        choice = chat.write_answer(_whole(completion, body), body)["choices"][0]
        if not completion.tool_calls:
            choice["message"]["content"] = completion.text
        choices.append({**choice, "index": index, **_token_fields(completion, body)})
    return {
        **chat.write_answer(piece, body),
        "choices": choices,
        "usage": _usage(completions),
        **_prompt_ids(completions, body),
        **_policy(completions),
    }


def events(api: str, completions: Sequence[Completion], body: Mapping[str, Any]) -> list[bytes]:
    """The answer as the API streams it."""
    if api == "responses":
        return [named_event(event) for event in _stream(_responses_writer(body), completions[0], body)]
    if api == "messages":
        start, *rest = _stream(messages.MessagesStreamWriter(body), completions[0], body)
        return [named_event(event) for event in (start, {"type": "ping"}, *rest)]
    queues = [_chunks(index, completion, body) for index, completion in enumerate(completions)]
    # Choices take turns, as the samples of a batch do.
    turns = itertools.chain.from_iterable(itertools.zip_longest(*queues))
    chunks = [{**chunk, **_policy(completions)} for chunk in turns if chunk]
    chunks[0] |= _prompt_ids(completions, body)
    if (body.get("stream_options") or {}).get("include_usage"):
        # A last chunk without choices, as OpenAI sends it, which comes after every finish reason.
        chunks.append({**chunks[0], "choices": [], "usage": _usage(completions)})
    return [*map(chat.frame, chunks), DONE]


def _stream(writer: AnswerWriter, completion: Completion, body: Mapping[str, Any]) -> list[Json]:
    piece = _whole(completion, body)
    parts = [AnswerPart(id=piece.id, model=piece.model, created=piece.created, usage=piece.usage)]
    parts += [AnswerPart(text=word) for word in pieces(completion.text)]
    for call in piece.calls:
        half = len(call.arguments) // 2
        parts.append(AnswerPart(calls=[CallPiece(call.index, call.id, call.name, call.arguments[:half])]))
        parts.append(AnswerPart(calls=[CallPiece(call.index, arguments=call.arguments[half:])]))
    parts.append(AnswerPart(finish=piece.finish))
    return [event for part in parts for event in writer.write(part)] + writer.end()


def _chunks(index: int, completion: Completion, body: Mapping[str, Any]) -> list[dict[str, Json]]:
    chunks = _stream(chat.ChatStreamWriter(body), completion, body)[
        :-1
    ]  # the usage is told once, of all choices
    for chunk in chunks:
        chunk["choices"][0]["index"] = index
    # All ids ride on the second event: how they are cut up is the server's choice.
    chunks[min(1, len(chunks) - 2)]["choices"][0] |= _token_fields(completion, body)
    return chunks


def _whole(completion: Completion, body: Mapping[str, Any]) -> AnswerPart:
    calls = enumerate(completion.tool_calls)
    return AnswerPart(
        id="scripted",
        model=body["model"],
        created=1,
        text=completion.text,
        calls=[CallPiece(index, call.id, call.name, call.arguments) for index, call in calls],
        finish=completion.finish or "stop",
        usage={"input": completion.usage.prompt_tokens, "output": completion.usage.output_tokens},
    )


def _responses_writer(body: Mapping[str, Any]) -> responses.ResponsesStreamWriter:
    numbers = itertools.count()
    return responses.ResponsesStreamWriter(body, lambda: str(next(numbers)))


def _text_choice(index: int, completion: Completion, body: Mapping[str, Any]) -> Json:
    choice: dict[str, Json] = {
        "index": index,
        "text": completion.text,
        "finish_reason": completion.finish or "stop",
        "logprobs": None,
    }
    tokens = completion.tokens
    if tokens is not None and body.get("logprobs") is not None:
        words = [""] * len(tokens.output_ids)
        choice["logprobs"] = {"tokens": words, "token_logprobs": list(tokens.logprobs)}
    if tokens is not None and body.get("return_token_ids"):
        choice |= {"token_ids": list(tokens.output_ids), "prompt_token_ids": list(tokens.prompt_ids)}
    return choice


def _generated(completion: Completion, body: Mapping[str, Any]) -> Json:
    tokens = completion.tokens
    output = list(tokens.output_ids) if tokens is not None else []
    about: dict[str, Json] = {
        "id": "scripted",
        "finish_reason": {"type": completion.finish or "stop"},
        "prompt_tokens": len(body["input_ids"]),
        "completion_tokens": len(output),
    }
    if tokens is not None and body.get("return_logprob"):
        rows = zip(tokens.logprobs, tokens.output_ids, strict=True)
        about["output_token_logprobs"] = [[logprob, id, None] for logprob, id in rows]
    return {"text": completion.text, "output_ids": output, "meta_info": about}


def _usage(completions: Sequence[Completion]) -> Json:
    output = sum(completion.usage.output_tokens for completion in completions)
    return chat.usage_of({"input": completions[0].usage.prompt_tokens, "output": output})


def _token_fields(completion: Completion, body: Mapping[str, Any]) -> dict[str, Json]:
    tokens = completion.tokens
    if tokens is None or not body.get("return_token_ids"):
        return {}
    entries = [{"token": "", "logprob": logprob} for logprob in tokens.logprobs]
    return {"token_ids": list(tokens.output_ids), "logprobs": {"content": entries}}


def _prompt_ids(completions: Sequence[Completion], body: Mapping[str, Any]) -> dict[str, Json]:
    tokens = completions[0].tokens
    if tokens is None or not body.get("return_token_ids"):
        return {}
    return {"prompt_token_ids": list(tokens.prompt_ids)}


def _policy(completions: Sequence[Completion]) -> dict[str, Json]:
    """The tag of a policy server, where the script's tokens have a policy version."""
    tokens = completions[0].tokens
    version = None if tokens is None else tokens.policy_version
    return {} if version is None else {"policy_version": version}
