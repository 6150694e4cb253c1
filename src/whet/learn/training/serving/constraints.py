"""Answers that must have a form: a JSON schema, a regular expression, one of some texts, a tool call.

The forms are kept by llguidance (an extra): a Rust library without dependencies, 3 MB, that
takes any vocabulary; see docs/decisions/061.  A schema that it cannot keep to is refused, never
kept to in part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

import msgspec
import torch
from torch import Tensor

from ....errors import InputError, MissingExtra, ModelError
from ....types import Json
from .sampling import Constraint
from .text import TemplateText, TextCodec, WordText
from .tools import ToolForm

_SPACE = r"\n?[ ]{0,16}"


@dataclass(frozen=True, slots=True)
class AnswerFormat:
    """The form that an answer must have."""

    kind: Literal["json", "regex", "choice", "lark"]
    value: Any
    """A JSON schema, a regular expression, a list of texts, or a grammar of llguidance's Lark."""


def form_of(body: Mapping[str, Any]) -> AnswerFormat | None:
    """The form that a request asks for, None if it asks for none.

    `response_format` as OpenAI has it, and vLLM's `structured_outputs` (`json`, `regex`, `choice`).

    Raises:
        InputError: a form that is not known, or two of them.
    """
    form, structured = body.get("response_format"), body.get("structured_outputs")
    kind = form.get("type") if isinstance(form, Mapping) else None
    if form is not None and kind not in ("text", "json_object", "json_schema"):
        raise InputError(
            f"response_format is {form!r:.200}; its type must be text, json_object or json_schema"
        )
    if structured is not None and kind not in (None, "text"):
        raise InputError("give response_format or structured_outputs, not both")
    if structured is not None:
        return _structured(structured)
    if not isinstance(form, Mapping) or kind == "text":
        return None
    if kind == "json_object":
        return AnswerFormat("json", {"type": "object"})
    described = form.get("json_schema")
    if not isinstance(described, Mapping) or not isinstance(described.get("schema"), Mapping):
        raise InputError('response_format of type json_schema needs {"json_schema": {"schema": {...}}}')
    return AnswerFormat("json", described["schema"])


def _structured(structure: Json) -> AnswerFormat:
    kinds = [
        name for name in ("json", "regex", "choice") if isinstance(structure, Mapping) and structure.get(name)
    ]
    if len(kinds) != 1:
        raise InputError(
            f"structured_outputs must have one of json, regex and choice; got {structure!r:.200}"
        )
    value = structure[kinds[0]]
    if kinds[0] == "json":
        try:
            return AnswerFormat("json", msgspec.json.decode(value) if isinstance(value, str) else value)
        except msgspec.DecodeError as error:
            raise InputError(f"structured_outputs.json is no JSON: {error}") from error
    if kinds[0] == "regex" and isinstance(value, str):
        return AnswerFormat("regex", value)
    if kinds[0] == "choice" and isinstance(value, list) and all(isinstance(e, str) and e for e in value):
        return AnswerFormat("choice", value)
    raise InputError("structured_outputs: regex must be a text, choice a list of texts that are not empty")


def call_form(functions: Sequence[Mapping[str, Any]], text: TextCodec) -> AnswerFormat:
    """A call of one of these functions, as this policy writes calls."""
    branches = [
        {
            "type": "object",
            "properties": {
                "name": {"const": function["name"]},
                "arguments": function.get("parameters") or {"type": "object"},
            },
            "required": ["name", "arguments"],
            "additionalProperties": False,
        }
        for function in functions
    ]
    schema = _written(branches[0] if len(branches) == 1 else {"anyOf": branches})
    first, last = text.tools.value
    if text.tools is ToolForm.MISTRAL:
        return AnswerFormat("lark", f'start: {_mark(first, text)} "[" call "]"\ncall: %json {schema}')
    if text.tools is ToolForm.JSON:
        return AnswerFormat("lark", f"start: %json {schema}")
    marks = _mark(first, text), _mark(last, text)
    return AnswerFormat("lark", f'start: {marks[0]} "\\n" call "\\n" {marks[1]}\ncall: %json {schema}')


def _mark(mark: str, text: TextCodec) -> str:
    """A marker in a grammar: by its id where it is one token of its own, else by its letters."""
    if isinstance(text, TemplateText) and (id := text.tokenizer.get_added_vocab().get(mark)) is not None:
        return f"<[{id}]>"
    return _quoted(mark)


def _written(schema: Any) -> str:
    """A schema as text; between its parts a line break and an indentation at most, or a policy that has
    learned nothing yet writes white space to the end."""
    bounded = {"whitespace_flexible": True, "whitespace_pattern": _SPACE}
    return msgspec.json.encode({**schema, "x-guidance": bounded}).decode()


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()


class Constraints:
    """Makes constraints for one vocabulary, which is read once."""

    def __init__(self, text: TextCodec, vocab_size: int) -> None:
        self._text, self._vocab_size = text, vocab_size
        self._tokenizer: Any = None

    def constraint(self, form: AnswerFormat) -> Constraint:
        """A fresh constraint.

        Raises:
            InputError: the form cannot be kept to.
            MissingExtra: llguidance is not installed.
        """
        if isinstance(self._text, WordText):
            if form.kind != "choice":
                raise InputError(
                    "a policy with a closed vocabulary of words can be held to a choice of texts "
                    f"(structured_outputs.choice) and to no {form.kind}"
                )
            ways = [[*self._text.encode(wording), self._text.vocabulary.eos] for wording in form.value]
            return OneOf(ways, self._vocab_size)
        try:
            llguidance, hf = import_module("llguidance"), import_module("llguidance.hf")
        except ImportError as error:
            raise MissingExtra("llguidance", "constrain") from error
        text = self._text
        assert isinstance(text, TemplateText)
        if self._tokenizer is None:
            # a tokenizer may know words that the model has no row for: they are never allowed below
            size = max(self._vocab_size, len(text.tokenizer))
            self._tokenizer = hf.from_tokenizer(text.tokenizer, n_vocab=size, eos_token=sorted(text.eos))
        matcher = llguidance.LLMatcher(self._tokenizer, _grammar(llguidance.LLMatcher, form), log_level=0)
        if matcher.is_error():
            raise InputError(f"answers cannot be held to this form: {matcher.get_error()}")
        return Matching(matcher, self._vocab_size, text.eos)


def _grammar(matcher: Any, form: AnswerFormat) -> str:
    """The form as llguidance takes it."""
    try:
        if form.kind == "json":
            grammar: str = matcher.grammar_from_json_schema(_written(form.value))
        elif form.kind == "regex":
            grammar = matcher.grammar_from_regex(form.value)
        elif form.kind == "choice":
            grammar = matcher.grammar_from_lark("start: " + " | ".join(map(_quoted, form.value)))
        else:
            grammar = matcher.grammar_from_lark(form.value)
    except (ValueError, TypeError) as error:
        raise InputError(f"answers cannot be held to this form: {error}") from error
    return grammar


class OneOf:
    """A Constraint to one of some sequences of tokens."""

    def __init__(self, ways: Sequence[Sequence[int]], vocab_size: int) -> None:
        self._ways = [list(way) for way in ways]
        self._vocab_size = vocab_size
        self._place = 0

    def allowed(self) -> Tensor:
        mask = torch.zeros(self._vocab_size, dtype=torch.bool)
        mask[[way[self._place] for way in self._ways]] = True
        return mask

    def accept(self, token: int) -> bool:
        self._ways = [way for way in self._ways if way[self._place] == token]
        self._place += 1
        # Every way ends with <eos>, so none is the beginning of another and the first that is whole ends it.
        self._ways = [way for way in self._ways if len(way) > self._place]
        return not self._ways


class Matching:
    """A Constraint kept by llguidance."""

    def __init__(self, matcher: Any, vocab_size: int, eos: frozenset[int]) -> None:
        self._matcher = matcher
        self._vocab_size = vocab_size
        self._eos = eos

    def allowed(self) -> Tensor:
        # A bytearray, which can be written to: torch warns of a buffer over bytes.
        bits = torch.frombuffer(bytearray(self._matcher.compute_bitmask()), dtype=torch.uint8)
        spread = (bits.unsqueeze(1) >> torch.arange(8, dtype=torch.uint8)) & 1
        # The mask is as long as the tokenizer, rounded up; a model's rows may be fewer.
        return spread.flatten()[: self._vocab_size].bool()

    def accept(self, token: int) -> bool:
        if token in self._eos:
            return True
        if not self._matcher.consume_token(token):
            raise ModelError(f"the form could not be kept to: {self._matcher.get_error():.200}")
        return bool(self._matcher.is_stopped())
