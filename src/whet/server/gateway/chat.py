"""The chat completions API: what a call used and wrote is read here, whoever speaks it.

Chat is also what requests in the other two dialects are translated to, so this reader sees the
token ids of all of them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from ...types import Json
from .sse import DONE, data_event

encode = msgspec.json.Encoder().encode
_MARKS = re.compile(rb'"(?:usage|(?:prompt_)?token_ids|token_mask|logprobs|policy_version)"')
"""What an answer that has something to be taken out contains: looking for it costs a fraction of taking."""


class Chat:
    """The dialect of `/v1/chat/completions`."""

    api = "chat"
    path = "/chat/completions"

    def error(self, status: int, kind: str, message: str) -> Json:
        """The JSON of an error answer."""
        return error_object(status, kind, message)

    def error_events(self, kind: str, message: str, reader: ChatReader) -> bytes:
        """How a stream that was begun says that it failed."""
        return data_event(error_object(502, kind, message)) + DONE

    def reader(self) -> ChatReader:
        return ChatReader()

    def accepts(self, answer: Json) -> bool:
        """Whether a plain answer is one of this API's."""
        return (
            isinstance(answer, dict) and isinstance(answer.get("choices"), list) and bool(answer["choices"])
        )

    def usage(self, answer: Mapping[str, Any]) -> dict[str, int] | None:
        """Token counts in the record's words, None where the answer has none."""
        used = answer.get("usage")
        if not isinstance(used, dict):
            return None
        return {
            "input": count(used, "prompt_tokens"),
            "output": count(used, "completion_tokens"),
            "cached_input": count(used.get("prompt_tokens_details"), "cached_tokens"),
            "reasoning": count(used.get("completion_tokens_details"), "reasoning_tokens"),
        }


def error_object(status: int, kind: str, message: str) -> dict[str, Json]:
    """An error as OpenAI's APIs write it."""
    family = "invalid_request_error" if 400 <= status < 500 else "server_error"
    return {"error": {"message": message, "type": family, "param": None, "code": kind}}


def count(used: Json, name: str) -> int:
    """A token count, 0 where there is none."""
    found = used.get(name) if isinstance(used, dict) else None
    return found if isinstance(found, int) else 0


class ChatReader:
    """Puts the chunks of a stream together to the answer that would have come in one piece."""

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
        if not self._head or not choices:  # the first chunk, and those about the whole answer
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
            known = self._choices.get(index)
            if known is None:
                known = self._choices[index] = _Choice(index)
                self.finished = False
            known.read(choice)
            if known.finish is not None:
                self.finished = all(each.finish is not None for each in self._choices.values())

    def response(self) -> dict[str, Json] | None:
        """The answer so far as a plain chat completion, None if nothing came."""
        if not self._choices:
            return None
        answer = {**self._head, "object": "chat.completion"}
        answer["choices"] = [choice.value() for _, choice in sorted(self._choices.items())]
        if self._prompt_ids is not None:
            answer["prompt_token_ids"] = self._prompt_ids
        if self.policy_version is not None:
            answer["policy_version"] = self.policy_version
        return answer


_NOT_HEAD = frozenset({"choices", "prompt_token_ids", "policy_version"})


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
        """Add a delta: text is appended, tool calls by their index, anything else replaces."""
        for name, value in (choice.get("delta") or choice.get("message") or {}).items():
            if name == "tool_calls" and isinstance(value, list):
                _merge_calls(self._calls, value)
            elif isinstance(value, str) and name != "role":
                self._texts.setdefault(name, []).append(value)
            elif value is not None:
                self._fields[name] = value
            else:
                self._fields.setdefault(name, None)
        if choice.get("finish_reason") is not None:
            self.finish, self.sequence = choice["finish_reason"], choice.get("stop_reason")
        if choice.get("token_ids"):
            self._ids += choice["token_ids"]
            self._mask += choice.get("token_mask") or ()
        written = choice.get("logprobs")
        if isinstance(written, dict):
            self._logprobs = {} if self._logprobs is None else self._logprobs
            for name, entries in written.items():
                if isinstance(entries, list):
                    self._logprobs.setdefault(name, []).extend(entries)

    def value(self) -> dict[str, Json]:
        """The choice as a plain answer has it."""
        message = self._fields | {name: "".join(parts) for name, parts in self._texts.items()}
        if self._calls:
            message["tool_calls"] = self._calls
        found = {"index": self.index, "message": message, "finish_reason": self.finish}
        if self.sequence is not None:
            found["stop_reason"] = self.sequence
        if self._ids:
            found["token_ids"] = self._ids
        if self._mask:
            found["token_mask"] = self._mask
        if self._logprobs is not None:
            found["logprobs"] = self._logprobs
        return found


def _merge_calls(calls: list[dict[str, Any]], pieces: list[dict[str, Any]]) -> None:
    for position, piece in enumerate(pieces):
        index = piece.get("index", position)
        known = next((call for call in calls if call["index"] == index), None)
        if known is None:
            known = {"index": index, "id": "", "type": "function", "function": {"name": "", "arguments": ""}}
            calls.append(known)
        known["id"] = piece.get("id") or known["id"]
        known["type"] = piece.get("type") or known["type"]
        function = piece.get("function") or {}
        known["function"]["name"] = function.get("name") or known["function"]["name"]
        known["function"]["arguments"] += function.get("arguments") or ""


def version_of(answer: Mapping[str, Any]) -> str | None:
    """The version of the policy that answered, as a policy server tags it."""
    found = answer.get("policy_version")
    return None if found is None else str(found)


def samples(answer: Mapping[str, Any] | None) -> list[dict[str, Json]] | None:
    """Token ids and log-probabilities of every choice, None where the answer has no ids.

    One entry per choice, in their order; a choice whose log-probabilities are missing, not finite
    or not as many as its ids has None in their place, for it cannot be trained on.
    """
    if answer is None:
        return None
    found = [dict(choice) for choice in answer.get("choices") or () if isinstance(choice, dict)]
    if not any(choice.get("token_ids") for choice in found):
        return None
    prompt = answer.get("prompt_token_ids")
    kept = []
    for choice in found:
        ids = choice.get("token_ids") or None
        logprobs = list(_logprobs(choice))
        sound = ids is not None and len(ids) == len(logprobs) and all(map(math.isfinite, logprobs))
        own_prompt = choice.get("prompt_token_ids") or prompt
        kept.append({"prompt_ids": own_prompt, "output_ids": ids, "logprobs": logprobs if sound else None})
        if choice.get("token_mask"):  # some were put in by the server, not chosen by the policy
            kept[-1]["mask"] = choice["token_mask"]
    return kept


def _logprobs(choice: Mapping[str, Any]) -> Iterator[float]:
    written = choice.get("logprobs")
    for entry in (written.get("content") if isinstance(written, dict) else None) or ():
        value = entry.get("logprob") if isinstance(entry, dict) else None
        yield float(value) if isinstance(value, int | float) else math.nan


class Asked:
    """What the agent asked for itself, so that the rest of what we ask for can be taken out again."""

    __slots__ = ("ids", "logprobs", "usage")

    def __init__(self, request: Mapping[str, Any]) -> None:
        options = request.get("stream_options")
        self.ids = bool(request.get("return_token_ids"))
        self.logprobs = bool(request.get("logprobs"))
        self.usage = isinstance(options, dict) and bool(options.get("include_usage"))

    def stripped(self, raw: bytes, answer: dict[str, Any], *, whole: bool) -> bytes | None:
        """An answer or a chunk without what was not asked for; None if nothing is left of a chunk.

        Args:
            raw: the answer as it came, given back where there is nothing to take out.
        """
        if _MARKS.search(raw) is None:
            return raw
        removed = self.take_out(answer, whole=whole)
        return None if removed is None else encode(answer) if removed else raw

    def take_out(self, answer: dict[str, Any], *, whole: bool) -> bool | None:
        """Take out of `answer` what was not asked for; whether there was any, None if nothing is left."""
        unasked = () if self.ids else ("token_ids", "prompt_token_ids", "token_mask")
        removed = [_removed(answer, name) for name in ("policy_version", *unasked)]
        choices = answer.get("choices") or ()
        for choice in choices:
            removed += [_removed(choice, name) for name in unasked]
            if not self.logprobs:
                removed.append(_removed(choice, "logprobs"))
        if not whole and not self.usage and "usage" in answer:
            used = answer.pop("usage")
            removed.append(True)
            if used is not None and not choices:
                return None
        return any(removed)


def _removed(found: dict[str, Any], name: str) -> bool:
    """Take a field out; False if it was not there, or said nothing."""
    return found.get(name) is not None and found.pop(name) is not None


def ask(request: Mapping[str, Any], *, tokens: bool, usage: bool) -> dict[str, Any]:
    """A copy of a chat request that asks for token ids (vLLM's fields) and for usage in a stream."""
    wanted = dict(request)
    if tokens:
        wanted["return_token_ids"] = True
        wanted["logprobs"] = True
    if usage and request.get("stream"):
        wanted["stream_options"] = {**(request.get("stream_options") or {}), "include_usage": True}
    return wanted
