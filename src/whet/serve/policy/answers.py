"""Generations as the chat and completions APIs write them, with vLLM's token fields where asked for.

Every answer carries `policy_version` in the body and in the header `x-whet-policy-version`.
Where budget forcing put tokens in, `token_mask` says which of the others the policy chose.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from ...learn.training.serving.host import ServedVersion, Ticket
from ...learn.training.serving.sampling import Generation
from ...learn.training.serving.text import TextCodec, TextWriter
from ...models.wire import chat
from ...types import Json, new_id
from .requests import GenerationRequest


class ChoiceText:
    """The text of one choice as it grows; told of every token in the engine's thread.

    What could still become a stop text or a tool call is held back.
    """

    def __init__(self, text: TextCodec, stops: Sequence[str], tools: bool) -> None:
        self._writer: TextWriter = text.writer()
        self._stops = stops
        self._hold = max(map(len, stops), default=1) - 1
        self._call = text.tools.begins if tools else ""
        self.text = ""
        self.stop: str | None = None
        """The stop text that ended it."""

    def push(self, token: int) -> bool:
        """Add a token; True once a stop text is there."""
        before = len(self.text)
        text = self.text + self._writer.push(token)
        for stop in self._stops:
            # A stop text may have begun in earlier tokens; searching all of the text would be quadratic.
            offset = text.find(stop, max(0, before - len(stop) + 1))
            if offset >= 0:
                self.text, self.stop = text[:offset], stop
                return True
        self.text = text
        return False

    def shown(self, *, done: bool) -> str:
        """The text that a stream may show by now."""
        text = self.text
        if not done and self._hold and self.stop is None:
            text = text[: max(0, len(text) - self._hold)]
        if not self._call:
            return text
        offset = text.find(self._call)
        if offset >= 0:
            return text[:offset]
        if not done:  # a marker may have begun
            for length in range(min(len(self._call), len(text)), 0, -1):
                if self._call.startswith(text[-length:]):
                    return text[:-length]
        return text


class Choice:
    """One choice of an answer: the ticket, its words, and the part that a stream has shown."""

    def __init__(self, index: int, ticket: Ticket, words: ChoiceText, query: GenerationRequest) -> None:
        self.index, self.ticket, self.words, self._query = index, ticket, words, query
        self._text = ticket.served.text
        self._shown = 0
        self._tokens = 0

    @property
    def generation(self) -> Generation:
        """The tokens so far."""
        return self.ticket.generation

    def settle(self) -> tuple[str, list[Json], str]:
        """Content, tool calls and finish reason of the whole answer, remembered for the next turn."""
        generation, query = self.generation, self._query
        content, calls = self._text.read(self.words.text, query.tools)
        tool_calls: list[Json] = [
            chat.tool_call(f"call_{new_id()}", call["name"], call["arguments"]) for call in calls
        ]
        # Not where a stop text cut it: the sampled ids then say more than the text that comes back.
        if query.prompt is not None and self.words.stop is None:
            self._text.remember(query.prompt, generation.output, content, tool_calls)
        return content, tool_calls, "tool_calls" if tool_calls else (generation.finish or "stop")

    def whole(self) -> dict[str, Json]:
        """The choice of a plain answer."""
        content, calls, finish = self.settle()
        choice: dict[str, Json] = {
            "index": self.index,
            "finish_reason": finish,
            "stop_reason": self.words.stop,
        }
        if self._query.chat:
            message: dict[str, Json] = {"role": "assistant", "content": content}
            if calls:
                message |= {"content": content or None, "tool_calls": calls}
            choice["message"] = message
        else:
            choice["text"] = content
        choice["logprobs"] = None
        return choice | self._fields(0, len(self.generation.output))

    def opening(self) -> dict[str, Json]:
        """The first event of a chat's stream."""
        return {"index": self.index, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}

    def piece(self) -> dict[str, Json] | None:
        """The event for the text since the last one, None if nothing is to be shown yet."""
        text, tokens = self.words.shown(done=False), len(self.generation.output)
        new, first = text[self._shown :], self._tokens
        if not new:
            return None
        self._shown, self._tokens = len(text), tokens
        addition: dict[str, Json] = {"delta": {"content": new}} if self._query.chat else {"text": new}
        return {"index": self.index, **addition, "finish_reason": None, **self._fields(first, tokens)}

    def ending(self) -> list[dict[str, Json]]:
        """The last events: what was held back, the calls, and why it stopped."""
        content, calls, finish = self.settle()
        first, tokens = self._tokens, len(self.generation.output)
        rest = (content if calls else self.words.text)[self._shown :]
        if not self._query.chat:
            last: dict[str, Json] = {"index": self.index, "text": rest, "finish_reason": finish}
            return [last | {"stop_reason": self.words.stop} | self._fields(first, tokens)]
        events: list[dict[str, Json]] = []
        delta: dict[str, Json] = {"content": rest} if rest else {}
        if calls:
            delta["tool_calls"] = [{"index": index, **call} for index, call in enumerate(calls)]
        if delta or tokens > first:
            chunk = {"index": self.index, "delta": delta, "finish_reason": None}
            events.append(chunk | self._fields(first, tokens))
        end = {"index": self.index, "delta": {}, "finish_reason": finish, "stop_reason": self.words.stop}
        return [*events, end]

    def _fields(self, first: int, last: int) -> dict[str, Json]:
        """The token fields that were asked for, of the tokens from `first` to `last`."""
        query, generation = self._query, self.generation
        fields: dict[str, Json] = {}
        if query.request.return_token_ids:
            fields["token_ids"] = generation.output[first:last]
            if not query.chat and first == 0:
                fields["prompt_token_ids"] = list(generation.prompt)
            if generation.sampling.forcing is not None:
                fields["token_mask"] = generation.mask[first:last]
        if query.logprobs:
            entries = [self._logprob(offset) for offset in range(first, last)]
            fields["logprobs"] = {"content": entries} if query.chat else _legacy(entries)
        return fields

    def _logprob(self, offset: int) -> dict[str, Json]:
        generation = self.generation
        top = generation.top[offset] if generation.sampling.top_logprobs else []
        return {
            **self._entry(generation.output[offset], generation.logprobs[offset]),
            "top_logprobs": [self._entry(id, logprob) for id, logprob in top],
        }

    def _entry(self, id: int, logprob: float) -> dict[str, Json]:
        token = self._text.word(id)
        return {"token": token, "logprob": logprob, "bytes": list(token.encode())}


def _legacy(entries: Sequence[Mapping[str, Json]]) -> Json:
    """Log-probabilities as the completions API writes them."""
    top = [
        {alternative["token"]: alternative["logprob"] for alternative in entry["top_logprobs"]}
        for entry in entries
    ]
    return {
        "tokens": [entry["token"] for entry in entries],
        "token_logprobs": [entry["logprob"] for entry in entries],
        "top_logprobs": top,
        "text_offset": [],
    }


def head(query: GenerationRequest, served: ServedVersion, *, chunk: bool) -> dict[str, Json]:
    """The fields that every answer or event of one request begins with."""
    kind = ("chat.completion.chunk" if chunk else "chat.completion") if query.chat else "text_completion"
    prefix = "chatcmpl" if query.chat else "cmpl"
    return {
        "id": f"{prefix}-{new_id()}",
        "object": kind,
        "created": int(time.time()),
        "model": query.request.model,
        "system_fingerprint": served.version or served.policy_version,
        "policy_version": served.policy_version,
    }


def used(choices: Sequence[Choice]) -> dict[str, Json]:
    """The tokens that a request has used."""
    output = sum(len(choice.generation.output) for choice in choices)
    return chat.usage_of({"input": len(choices[0].generation.prompt), "output": output})
