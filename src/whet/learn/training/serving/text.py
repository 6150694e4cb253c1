"""Messages to tokens and tokens to text, for the kinds of vocabulary that policies have.

`WordText` is for a closed list of strings (`Vocabulary`): words stand for themselves, a turn of
the policy begins with `<act>` and ends with `<eos>`.  `TemplateText` is a tokenizer of
transformers with its chat template.  `IdText` is for weights that came without either.

What the policy said comes back in the next request as text, and tokenised again it may be other
tokens than were sampled; then no prompt would extend the call before it, and training would see
what was never said.  So a `TextCodec` remembers the ids of what it has answered and takes those
wherever a rendered prompt begins with that text.
"""

from __future__ import annotations

import hashlib
import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from ....errors import InputError
from ....escapes import read_json
from ....types import Json
from ..templates import tokenizer_of
from ..vocabulary import ACT, BOS, EOS, SPECIAL, WORDS, Vocabulary
from .tools import ToolForm, called, form_of

_REMEMBERED = 1024
"""Conversations whose ids are kept."""
_LONGEST = 32 * 1024 * 1024
"""Characters of conversations that are kept."""


@dataclass(frozen=True, slots=True)
class RenderedChat:
    """A chat as text and ids."""

    text: str
    ids: list[int]
    trail: Any
    """A hash of the conversation so far, which an answer is remembered under."""


class TextCodec(ABC):
    """A policy's way of reading and writing text."""

    eos: frozenset[int]
    """Ids that end an answer unless the request says otherwise."""
    tools: ToolForm

    def __init__(self) -> None:
        self._answers: OrderedDict[str, list[int]] = OrderedDict()
        self._raw: OrderedDict[bytes, str] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    @abstractmethod
    def render(self, messages: Sequence[Mapping[str, Json]], tools: Sequence[Json]) -> str:
        """The prompt that a chat becomes, the beginning of the answer included."""

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """The ids of a text, special tokens by their names."""

    @abstractmethod
    def decode(self, ids: Sequence[int], *, special: bool = False) -> str:
        """The text of some ids; with the special ones as `render` writes them if asked."""

    @abstractmethod
    def writer(self) -> TextWriter:
        """A TextWriter of ids as they come."""

    def word(self, id: int) -> str:
        """One token as text."""
        return self.decode([id], special=True)

    def chat(self, messages: Sequence[Mapping[str, Json]], tools: Sequence[Json] = ()) -> RenderedChat:
        """The prompt of a chat, our own answers in it as they were sampled.

        Raises:
            InputError: it cannot be rendered or encoded.
        """
        plain = [_plain(message) for message in messages]
        trail = hashlib.blake2b(digest_size=16)
        with self._lock:
            for number, message in enumerate(plain):
                _note(trail, message)
                if message.get("role") == "assistant" and (raw := self._raw.get(trail.digest())) is not None:
                    without_calls = {name: value for name, value in message.items() if name != "tool_calls"}
                    plain[number] = {**without_calls, "content": raw}
            prompt = self.render(plain, tools)
            # The longest: the conversation's earlier turns are beginnings of the prompt as well.
            prefix = max((text for text in self._answers if prompt.startswith(text)), key=len, default="")
            ids = list(self._answers.get(prefix, ()))
            if prefix:
                self._answers.move_to_end(prefix)
        ids += self.encode(prompt[len(prefix) :])
        if not ids:
            raise InputError("the prompt is empty; give at least one message with content")
        return RenderedChat(prompt, ids, trail)

    def remember(
        self, prompt: RenderedChat, output: Sequence[int], content: str, calls: Sequence[Json]
    ) -> None:
        """Keep the ids of a conversation up to the end of an answer, for the request that goes on from it.

        Args:
            output: ids of the answer.
            content: what the answer was shown as, beside its calls.
        """
        conversation = self.joined(prompt.text, self.decode(output, special=True))
        trail = prompt.trail.copy()
        _note(trail, {"role": "assistant", "content": content, "tool_calls": calls})
        # Without its end, which the template writes itself after a message.
        answer = output[:-1] if output and output[-1] in self.eos else output
        with self._lock:
            self._raw[trail.digest()] = self.decode(answer, special=True)
            # A conversation that is remembered again replaces its own size.
            self._size += len(conversation) - (len(conversation) if conversation in self._answers else 0)
            self._answers[conversation] = [*prompt.ids, *output]
            self._answers.move_to_end(conversation)
            while len(self._answers) > _REMEMBERED or self._size > _LONGEST:
                dropped, _ = self._answers.popitem(last=False)
                self._size -= len(dropped)
            while len(self._raw) > _REMEMBERED:
                self._raw.popitem(last=False)

    def joined(self, prompt: str, answer: str) -> str:
        """A prompt and what was written after it, as `render` will show them."""
        return prompt + answer

    def read(self, text: str, tools: Sequence[Json]) -> tuple[str, list[dict[str, str]]]:
        """An answer as content and tool calls (`name`, `arguments` as JSON text)."""
        return called(text, self.tools) if tools else (text, [])


class TextWriter(ABC):
    """Text of ids as they come; characters that are not whole yet are held back."""

    @abstractmethod
    def push(self, id: int) -> str:
        """The text that one more id adds."""


def _note(trail: Any, message: Mapping[str, Json]) -> None:
    """Add a message to the hash of a conversation; a template would write its calls in its own way, so that
    they are known by their ids."""
    calls = [str(call.get("id")) for call in message.get("tool_calls") or ()]
    trail.update(msgspec.json.encode([message.get("role"), message.get("content") or "", calls]))


def _plain(message: Mapping[str, Json]) -> dict[str, Json]:
    """A message whose content is text and whose calls have their arguments as objects."""
    plain = dict(message)
    content = plain.get("content")
    if isinstance(content, list):
        kinds = {part.get("type") for part in content if isinstance(part, Mapping)}
        if kinds - {"text"}:
            raise InputError(f"this policy reads text alone; a message has {sorted(map(str, kinds))}")
        plain["content"] = "".join(str(part.get("text", "")) for part in content)
    elif content is None:
        plain["content"] = ""
    elif not isinstance(content, str):
        raise InputError(f"a message's content must be text, not {type(content).__name__}")
    calls = plain.get("tool_calls")
    if not calls:
        plain.pop("tool_calls", None)
        return plain
    if not isinstance(calls, list) or not all(isinstance(call, Mapping) for call in calls):
        raise InputError("tool_calls must be a list of objects")
    plain["tool_calls"] = [_with_arguments(call) for call in calls]
    return plain


def _with_arguments(call: Mapping[str, Any]) -> dict[str, Json]:
    function = dict(call.get("function") or {})
    written = function.get("arguments")
    if isinstance(written, str):
        try:
            function["arguments"] = read_json(msgspec.json.decode, written or "{}")
        except msgspec.DecodeError:
            function["arguments"] = written  # what the policy wrote, right or wrong
    return {**call, "function": function}


class WordText(TextCodec):
    """A closed vocabulary: the words of a message are its tokens."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        self.eos = frozenset({vocabulary.eos})
        self.tools = ToolForm.JSON

    def render(self, messages: Sequence[Mapping[str, Json]], tools: Sequence[Json]) -> str:
        words = [BOS]
        for message in messages:
            if message.get("role") == "assistant":
                words += [ACT, *str(message["content"]).split(), EOS]
            else:
                words += str(message["content"]).split()
        return " ".join([*words, ACT])

    def joined(self, prompt: str, answer: str) -> str:
        return f"{prompt} {answer}"

    def encode(self, text: str) -> list[int]:
        return self.vocabulary.encode(text.split())

    def decode(self, ids: Sequence[int], *, special: bool = False) -> str:
        words = self.vocabulary.decode(ids)
        return " ".join(word for word in words if special or word not in SPECIAL)

    def writer(self) -> TextWriter:
        return _Words(self)


class IdText(TextCodec):
    """No vocabulary at all: ids as decimal numbers, for a policy that is asked by token ids."""

    def __init__(self, eos: Sequence[int] = ()) -> None:
        super().__init__()
        self.eos = frozenset(eos)
        self.tools = ToolForm.JSON

    def render(self, messages: Sequence[Mapping[str, Json]], tools: Sequence[Json]) -> str:
        raise InputError(
            "this policy has no vocabulary, so messages cannot become tokens; ask /v1/completions with a "
            "list of token ids, or start it with --vocabulary FILE"
        )

    def encode(self, text: str) -> list[int]:
        try:
            return [int(word) for word in text.split()]
        except ValueError as error:
            raise InputError(f"this policy has no vocabulary and reads token ids alone: {error}") from error

    def decode(self, ids: Sequence[int], *, special: bool = False) -> str:
        return " ".join(str(id) for id in ids if special or id not in self.eos)

    def writer(self) -> TextWriter:
        return _Words(self)


class _Words(TextWriter):
    def __init__(self, text: TextCodec) -> None:
        self._text, self._any = text, False

    def push(self, id: int) -> str:
        word = self._text.decode([id])
        if not word:
            return ""
        piece, self._any = (" " if self._any else "") + word, True
        return piece


class TemplateText(TextCodec):
    """A tokenizer of transformers.

    Args:
        tokenizer: a fast one.
    """

    def __init__(self, tokenizer: Any, *, eos: Sequence[int] = ()) -> None:
        super().__init__()
        self.tokenizer = tokenizer
        eos_ids = {*eos, tokenizer.eos_token_id} - {None}
        self.eos = frozenset(int(id) for id in eos_ids)
        self.tools = form_of(str(getattr(tokenizer, "chat_template", "") or ""))
        special = set(tokenizer.all_special_ids)
        marks = {tokenizer.convert_tokens_to_ids(mark) for mark in self.tools.marks}
        # Markers of a tool call are special tokens of some models, and are part of what was said.
        self._dropped = (special | self.eos) - marks

    def render(self, messages: Sequence[Mapping[str, Json]], tools: Sequence[Json]) -> str:
        if not getattr(self.tokenizer, "chat_template", None):
            raise InputError(
                "this model's tokenizer has no chat template, so messages cannot become tokens; use "
                "/v1/completions, or give the folder a chat_template.jinja"
            )
        try:
            prompt: str = self.tokenizer.apply_chat_template(
                list(messages), tools=list(tools) or None, tokenize=False, add_generation_prompt=True
            )
        except Exception as error:  # templates raise whatever jinja raises
            raise InputError(f"the chat template cannot render these messages: {error}") from error
        return prompt

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    def decode(self, ids: Sequence[int], *, special: bool = False) -> str:
        visible = list(ids) if special else [id for id in ids if id not in self._dropped]
        text: str = self.tokenizer.decode(
            visible, skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        return text

    def writer(self) -> TextWriter:
        return _Pieces(self)


class _Pieces(TextWriter):
    """Decodes the last few ids with and without the new one: a piece's text depends on the one before."""

    def __init__(self, text: TemplateText) -> None:
        self._text = text
        self._before: list[int] = []
        self._waiting: list[int] = []

    def push(self, id: int) -> str:
        self._waiting.append(id)
        old = self._text.decode(self._before)
        new = self._text.decode([*self._before, *self._waiting])
        # A character of several tokens decodes to U+FFFD until its last one is there.
        if new.endswith("�") or len(new) < len(old):
            return ""
        self._before, self._waiting = self._waiting, []
        return new[len(old) :]


def text_of(folder: Path, vocabulary: Path | None = None) -> TextCodec:
    """The TextCodec of a model's folder: its `vocabulary.json`, else its tokenizer, else ids alone.

    Args:
        vocabulary: a file that `Vocabulary.save` wrote, where the folder has none.

    Raises:
        InputError: what is there cannot be read.
        MissingExtra: transformers is not installed.
    """
    words = vocabulary or (folder / WORDS)
    if vocabulary is not None or words.is_file():
        return WordText(Vocabulary.load(words))
    tokenizer = tokenizer_of(folder)
    if tokenizer is None:
        return IdText(_eos_of(folder))
    return TemplateText(tokenizer, eos=_eos_of(folder))


def _eos_of(folder: Path) -> list[int]:
    """The ids on which the model's own generation settings end an answer."""
    try:
        eos = read_json(msgspec.json.decode, (folder / "generation_config.json").read_bytes())["eos_token_id"]
    except (OSError, msgspec.DecodeError, KeyError, TypeError):
        return []
    ids = eos if isinstance(eos, list) else [eos]
    return [id for id in ids if isinstance(id, int)]
