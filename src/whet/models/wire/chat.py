"""The chat completions API, with vLLM's token fields.

Requests in the other APIs are translated to chat, so this reader sees the token ids of all of them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from typing import Any

from ...types import Json, Tokens, Usage
from ..base import Completion, ToolCall, text_of
from .neutral import AnswerPart, CallPiece, Counts, arguments_text, count, trainable
from .sse import DONE, data_event

api = "chat"
path = "/chat/completions"
frame = data_event


# -- errors and usage -----------------------------------------------------------------------------


def error(status: int, kind: str, message: str) -> dict[str, Json]:
    """The JSON of an error answer."""
    family = "invalid_request_error" if 400 <= status < 500 else "server_error"
    return {"error": {"message": message, "type": family, "param": None, "code": kind}}


def error_events(kind: str, message: str, sequence: int) -> bytes:
    """The end of a stream that failed after it had begun."""
    return data_event(error(502, kind, message)) + DONE


def accepts(answer: Json) -> bool:
    """True for a whole answer of this API."""
    return isinstance(answer, dict) and isinstance(answer.get("choices"), list) and bool(answer["choices"])


def usage(
    answer: Mapping[str, Any], prompt: str = "prompt_tokens", completion: str = "completion_tokens"
) -> Counts | None:
    """Token counts, None where the answer has none; the Responses API names two of them otherwise."""
    counts = answer.get("usage")
    if not isinstance(counts, dict):
        return None
    return {
        "input": count(counts, prompt),
        "output": count(counts, completion),
        "cached_input": count(counts.get(f"{prompt}_details"), "cached_tokens"),
        "reasoning": count(counts.get(f"{completion}_details"), "reasoning_tokens"),
    }


def usage_of(counts: Counts) -> dict[str, Json]:
    """Token counts as this API writes them."""
    prompt, output = counts.get("input", 0), counts.get("output", 0)
    totals = {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output}
    if "cached_input" not in counts:
        return totals
    return {**totals, "prompt_tokens_details": {"cached_tokens": counts["cached_input"]}}


# -- requests -------------------------------------------------------------------------------------


def asking(request: Mapping[str, Any], *, tokens: bool, usage: bool) -> dict[str, Any]:
    """A copy of a request that asks for token ids (vLLM's fields) and for usage in a stream."""
    # A copy: the gateway compares both, and forwards the agent's own bytes if nothing was added (053).
    body = dict(request)
    if tokens:
        body["return_token_ids"] = True
        body["logprobs"] = True
    if usage and request.get("stream"):
        body["stream_options"] = {**(request.get("stream_options") or {}), "include_usage": True}
    return body


def tool_call(id: str, name: str, arguments: str) -> dict[str, Any]:
    """A tool call, in a request or an answer."""
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


# -- writing answers ------------------------------------------------------------------------------


def _head(piece: AnswerPart, request: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """The fields of an answer, or of each chunk of one, that are about all of it."""
    return {
        "id": f"chatcmpl-{piece.id}",
        "object": kind,
        "created": piece.created or int(time.time()),
        "model": piece.model or request.get("model"),
    }


def write_answer(piece: AnswerPart, request: Mapping[str, Any]) -> dict[str, Any]:
    """A whole answer to `request`, with one choice."""
    message: dict[str, Json] = {"role": "assistant", "content": piece.text or None}
    message["refusal"] = piece.refusal or None
    if piece.reasoning:
        message["reasoning_content"] = piece.reasoning
    if piece.calls:
        message["tool_calls"] = [tool_call(call.id, call.name, call.arguments) for call in piece.calls]
    return {
        **_head(piece, request, "chat.completion"),
        "choices": [{"index": 0, "message": message, "logprobs": None, **_ending(piece)}],
        "usage": usage_of(piece.usage or {}),
    }


def _ending(piece: AnswerPart) -> dict[str, Json]:
    """`finish_reason`, and the stop sequence where vLLM has it."""
    ending: dict[str, Json] = {"finish_reason": piece.finish or "stop"}
    if piece.sequence:
        ending["stop_reason"] = piece.sequence
    return ending


class ChatStreamWriter:
    """Writes an answer to `request` as chunks, as its AnswerParts come; the usage is a last chunk."""

    def __init__(self, request: Mapping[str, Any]) -> None:
        self._request = request
        self._head: dict[str, Any] = {}
        self._last = AnswerPart()

    def write(self, piece: AnswerPart) -> list[Json]:
        """The chunks that an AnswerPart becomes."""
        chunks: list[Json] = []
        if not self._head:
            self._head = _head(piece, self._request, "chat.completion.chunk")
            chunks.append(self._chunk({"role": "assistant", "content": ""}))
        if piece.finish:
            self._last.finish, self._last.sequence = piece.finish, piece.sequence
        self._last.usage = piece.usage or self._last.usage
        fields = (("content", piece.text), ("reasoning_content", piece.reasoning), ("refusal", piece.refusal))
        delta: dict[str, Json] = {name: text for name, text in fields if text}
        if piece.calls:
            delta["tool_calls"] = [_call_delta(call) for call in piece.calls]
        return [*chunks, self._chunk(delta)] if delta else chunks

    def end(self) -> list[Json]:
        """The chunks after the last AnswerPart of a whole answer."""
        counts = {**self._head, "choices": [], "usage": usage_of(self._last.usage or {})}
        return [self._chunk({}, **_ending(self._last)), counts]

    def _chunk(self, delta: Json, **fields: Json) -> dict[str, Json]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None, **fields}
        return {**self._head, "choices": [choice]}


def _call_delta(call: CallPiece) -> Json:
    if call.name:  # only the first piece of a call names it
        return {"index": call.index, **tool_call(call.id, call.name, call.arguments)}
    return {"index": call.index, "function": {"arguments": call.arguments}}


# -- reading answers ------------------------------------------------------------------------------


class ChatStreamReader:
    """Puts the chunks of a stream together into the answer that would have come whole.

    A whole answer is read as a stream of one chunk.
    """

    sequence = -1

    def __init__(self) -> None:
        self.finished = False
        """Every choice that was begun has said why it stopped."""
        self.failure: Json = None
        """An error object that the upstream sent inside the stream."""
        self.policy_version: str | None = None
        self._head: dict[str, Json] = {}
        self._choices: dict[int, _Choice] = {}
        self._prompt_ids: Json = None

    def read(self, event: Json) -> None:
        """Take in one chunk."""
        if event.get("error"):
            self.failure = event["error"]
            return
        choices = event.get("choices")
        # The first chunk, and those about the whole answer; the same fields in each of the others are skipped.
        if not self._head or not choices:
            # None does not overwrite: with include_usage every chunk but the last says `usage: null`.
            for name, value in event.items():
                if name not in _NOT_HEAD and value is not None:
                    self._head[name] = value
        elif event.get("usage") is not None:
            self._head["usage"] = event["usage"]
        if "prompt_token_ids" in event:
            self._prompt_ids = event["prompt_token_ids"] or self._prompt_ids
        if "policy_version" in event:
            self.policy_version = version_of(event) or self.policy_version
        for choice in choices or ():
            index = choice.get("index") or 0
            state = self._choices.get(index)
            if state is None:
                state = self._choices[index] = _Choice(index)
                self.finished = False
            state.read(choice)
            if state.finish is not None:
                self.finished = all(choice.finish is not None for choice in self._choices.values())

    def text_alone(self, event: Mapping[str, Any]) -> list[str] | None:
        """The pieces that the text of a chunk was added to; None if the chunk held anything else."""
        choices = event.get("choices")
        if not isinstance(choices, list) or len(choices) != 1 or not _SAID_ELSEWHERE.isdisjoint(event):
            return None
        choice, delta = choices[0], choices[0].get("delta")
        if not isinstance(delta, dict) or delta.keys() != {"content"} or event.get("usage") is not None:
            return None
        if not isinstance(delta["content"], str) or any(
            choice.get(name) is not None for name in _OF_A_CHOICE
        ):
            return None
        return self._choices[choice.get("index") or 0].pieces_of("content")

    def response(self) -> dict[str, Json] | None:
        """The answer so far as a whole chat completion, None if nothing came."""
        if not self._choices:
            return None
        answer = {**self._head, "object": "chat.completion"}
        answer["choices"] = [choice.value() for _, choice in sorted(self._choices.items())]
        if self._prompt_ids is not None:
            answer["prompt_token_ids"] = self._prompt_ids
        if self.policy_version is not None:
            answer["policy_version"] = self.policy_version
        return answer

    def pieces(self, event: Mapping[str, Any]) -> list[AnswerPart]:
        """The part of a chunk that is of the first choice; the other APIs have no second."""
        choice = first_choice(event)
        delta = choice.get("delta") or {}
        calls = []
        for position, call in enumerate(delta.get("tool_calls") or ()):
            function = call.get("function") or {}
            name, arguments = function.get("name") or "", function.get("arguments") or ""
            calls.append(CallPiece(_index(call, position), call.get("id") or "", name, arguments))
        return [_piece(event, choice, delta, calls)]


def first_choice(event: Mapping[str, Any]) -> dict[str, Any]:
    """The first choice of a chunk or an answer, empty if it has none."""
    choice: dict[str, Any]
    # By index, not the first in the list: with `n` above 1 a chunk holds whichever choice grew.
    for choice in event.get("choices") or ():
        if not choice.get("index"):
            return choice
    return {}


def read_answer(answer: Mapping[str, Any]) -> AnswerPart:
    """A whole answer; of several choices the first."""
    choice = answer["choices"][0]
    message = choice.get("message") or {}
    calls = []
    for index, call in enumerate(message.get("tool_calls") or ()):
        function = call["function"]
        calls.append(CallPiece(index, call["id"], function["name"], function.get("arguments") or ""))
    return _piece(answer, choice, message, calls)


def _piece(
    event: Mapping[str, Any], choice: Mapping[str, Any], message: Mapping[str, Any], calls: list[CallPiece]
) -> AnswerPart:
    # By position: one is made for every chunk, and keywords take 0.42 in place of 0.24 µs.
    return AnswerPart(
        event.get("id"),
        event.get("model"),
        event.get("created"),
        message.get("content") or "",
        # Some versions of vLLM send a thought under both names.
        message.get("reasoning_content") or message.get("reasoning") or "",
        message.get("refusal") or "",
        calls,
        choice.get("finish_reason"),
        choice.get("stop_reason"),
        usage(event) if event.get("usage") else None,
    )


_NOT_HEAD = frozenset({"choices", "prompt_token_ids", "policy_version"})
_SAID_ELSEWHERE = frozenset({"error", "prompt_token_ids", "policy_version"})
_OF_A_CHOICE = ("message", "finish_reason", "stop_reason", "token_ids", "token_mask", "logprobs")
"""What a chunk may say beside a text."""


class _Choice:
    """One choice of a streamed answer; texts are kept in pieces until somebody asks."""

    __slots__ = ("_calls", "_fields", "_ids", "_logprobs", "_mask", "_texts", "finish", "index", "sequence")

    def __init__(self, index: int) -> None:
        self.index = index
        self.finish: str | None = None
        self.sequence: Json = None
        """The stop sequence that was met, as vLLM names it."""
        self._texts: dict[str, list[str]] = {}
        self._fields: dict[str, Json] = {"role": "assistant", "content": None}
        self._calls: list[dict[str, Any]] = []
        self._ids: list[Json] = []
        self._mask: list[Json] = []
        self._logprobs: dict[str, list[Json]] | None = None

    def read(self, choice: Mapping[str, Any]) -> None:
        """Add a delta: texts and lists are appended, tool calls by their index, anything else replaces."""
        for name, value in (choice.get("delta") or choice.get("message") or {}).items():
            if isinstance(value, str) and name != "role":  # first: nearly every delta is one text
                texts = self._texts.get(name)
                if texts is None:
                    texts = self._texts[name] = []
                texts.append(value)
            elif name == "tool_calls" and isinstance(value, list):
                _merge_calls(self._calls, value)
            elif isinstance(value, list):
                self._fields[name] = [*(self._fields.get(name) or ()), *value]
            elif value is not None:
                self._fields[name] = value
            else:
                self._fields.setdefault(name, None)
        if choice.get("finish_reason") is not None:
            self.finish, self.sequence = choice["finish_reason"], choice.get("stop_reason")
        if choice.get("token_ids"):
            self._ids += choice["token_ids"]
            self._mask += choice.get("token_mask") or ()
        logprobs = choice.get("logprobs")
        if isinstance(logprobs, dict):
            self._logprobs = {} if self._logprobs is None else self._logprobs
            for name, entries in logprobs.items():
                if isinstance(entries, list):
                    self._logprobs.setdefault(name, []).extend(entries)

    def pieces_of(self, name: str) -> list[str] | None:
        """The texts of one name so far, in pieces."""
        return self._texts.get(name)

    def value(self) -> dict[str, Json]:
        """The choice as a whole answer has it."""
        message = dict(self._fields)
        for name, texts in self._texts.items():
            text, parts = "".join(texts), message.get(name)
            # Mistral streams one content both as parts and as texts.
            message[name] = [*parts, {"type": "text", "text": text}] if isinstance(parts, list) else text
        if self._calls:
            # Not copied: the answer of a stream that goes on grows with it.
            message["tool_calls"] = self._calls
        choice = {"index": self.index, "message": message, "finish_reason": self.finish}
        if self.sequence is not None:
            choice["stop_reason"] = self.sequence
        if self._ids:
            choice["token_ids"] = self._ids
        if self._mask:
            choice["token_mask"] = self._mask
        if self._logprobs is not None:
            choice["logprobs"] = self._logprobs
        return choice


def _index(call: Mapping[str, Any], position: int) -> int:
    index: int | None = call.get("index")
    return position if index is None else index


def _merge_calls(calls: list[dict[str, Any]], pieces: list[dict[str, Any]]) -> None:
    for position, piece in enumerate(pieces):
        # A stream names a call by its index, which may be absurd: it is looked up, never used as a place.
        index = _index(piece, position)
        merged = next((call for call in calls if call["index"] == index), None)
        if merged is None:
            merged = {"index": index, **tool_call("", "", "")}
            calls.append(merged)
        merged["id"] = piece.get("id") or merged["id"]
        merged["type"] = piece.get("type") or merged["type"]
        function = piece.get("function") or {}
        merged["function"]["name"] = function.get("name") or merged["function"]["name"]
        merged["function"]["arguments"] += arguments_text(function.get("arguments"))


def completion(answer: Mapping[str, Any], *, expected: Usage, raw: Json = None) -> Completion:
    """The first choice of an answer that a ChatStreamReader has put together.

    Args:
        expected: prompt tokens as estimated, for an endpoint that reports no usage.
        raw: the endpoint's own answer, if it came whole.
    """
    choice = answer["choices"][0]
    message, counts = choice["message"], usage(answer)
    text = text_of(message)
    calls = [
        ToolCall(
            id=call["id"], name=call["function"]["name"], arguments=call["function"]["arguments"] or "{}"
        )
        for call in sorted(message.get("tool_calls") or (), key=lambda call: call["index"])
    ]
    sample = next(iter(samples(answer) or ()), {})
    tokens = None
    if sample.get("logprobs") and sample["prompt_ids"] is not None:
        prompt, output, logprobs = sample["prompt_ids"], sample["output_ids"], sample["logprobs"]
        tokens = Tokens(tuple(prompt), tuple(output), tuple(logprobs))
    return Completion(
        text=text,
        tool_calls=tuple(calls),
        usage=Usage(expected.prompt_tokens, len(text.encode()) // 3 + 1, calls=1)
        if counts is None
        else Usage(counts["input"], counts["output"], calls=1),
        model=answer.get("model") or "",
        finish=choice["finish_reason"],
        tokens=tokens,
        raw=raw,
    )


# -- token ids ------------------------------------------------------------------------------------


def version_of(answer: Mapping[str, Any]) -> str | None:
    """The version of the policy that answered, as a policy server tags it."""
    version = answer.get("policy_version")
    return None if version is None else str(version)


def samples(answer: Mapping[str, Any] | None) -> list[dict[str, Any]] | None:
    """Token ids and log-probabilities of every choice, None where the answer has no ids.

    One entry per choice, in their order; a choice whose log-probabilities are missing, not finite
    or not as many as its ids has None in their place, for it cannot be trained on.
    """
    if answer is None:
        return None
    choices = [choice for choice in answer.get("choices") or () if isinstance(choice, dict)]
    if not any(choice.get("token_ids") for choice in choices):
        return None
    prompt = answer.get("prompt_token_ids")
    sampled = []
    for choice in choices:
        ids, logprobs = choice.get("token_ids") or None, list(_logprobs(choice))
        sample = {
            "prompt_ids": choice.get("prompt_token_ids") or prompt,
            "output_ids": ids,
            "logprobs": logprobs if trainable(ids, logprobs) else None,
        }
        if choice.get("token_mask"):  # some were put in by the server, not chosen by the policy
            sample["mask"] = choice["token_mask"]
        sampled.append(sample)
    return sampled


def _logprobs(choice: Mapping[str, Any]) -> Iterator[float]:
    logprobs = choice.get("logprobs")
    for entry in (logprobs.get("content") if isinstance(logprobs, dict) else None) or ():
        logprob = entry.get("logprob") if isinstance(entry, dict) else None
        # NaN, not left out: the count must match the ids, and `trainable` refuses what is not finite.
        yield float(logprob) if isinstance(logprob, int | float) else math.nan


# The gateway takes a module as the description of an API, and asks each for these two by one name.
stream_reader = ChatStreamReader
stream_writer = ChatStreamWriter
