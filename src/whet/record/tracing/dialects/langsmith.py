"""LangSmith's SDK sending OpenTelemetry: `langsmith.span.kind`, with input and output as JSON in `gen_ai.prompt` and
`gen_ai.completion`.

They hold the values that LangChain gave its callbacks: serialised messages in a batch of one, generations, a tool's
arguments.  A graph and its nodes are chains, and the outermost one is the run.

Source: langsmith 0.4 to 0.14, its OpenTelemetry exporter.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ....types import FUNCTION, LLM, TOOL, Json
from ..content import Content
from . import genai
from .calls import answers_of
from .messages import Message, joined, message, messages, tool_result, with_wire_ids
from .openinference import prompt_of
from .reading import NODE, SpanReading, failure, word
from .values import literal, parsed, plain, structure

_KIND = "langsmith.span.kind"
_INPUT, _OUTPUT = "gen_ai.prompt", "gen_ai.completion"
_KINDS = {"llm": LLM, "tool": TOOL, "chain": NODE, "prompt": NODE, "parser": NODE}
_REPR = re.compile(r"(?P<type>[A-Za-z_][\w.]*)\((?P<message>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")?.*?\)")
"""The repr of an exception, as the SDK writes it before the traceback, under the type Exception."""
MARKS = frozenset({_KIND})
"""A span without it is none of `read`'s."""


def read(content: Content) -> SpanReading | None:
    """A run of LangSmith; a kind that is not known is a function."""
    held = content.attributes
    stated = word(held, _KIND)
    if stated is None:
        return None
    kind = _KINDS.get(stated, FUNCTION)
    if kind == LLM:
        reading = genai.of_kind(content, LLM)
        _model_call(held, reading)
    elif kind == TOOL:
        reading = genai.of_kind(content, TOOL)
        reading.arguments = parsed(held.get(_INPUT)) if reading.arguments is None else reading.arguments
        reading.result, id = tool_result(held.get(_OUTPUT))
        reading.tool_call_id = reading.tool_call_id or id
    else:
        reading = SpanReading(kind, word(held, "langsmith.trace.name") or content.span.name)
        if kind == FUNCTION:
            result = held.get(_OUTPUT)
            reading.arguments, reading.result = (
                parsed(held.get(_INPUT)),
                None if result is None else plain(result),
            )
        else:
            reading.fill = lambda agent: _agent(held, agent)
    reading.error = _failure(content)
    return reading


def _model_call(held: Mapping[str, Json], reading: SpanReading) -> None:
    reading.input = with_wire_ids(prompt_of(held.get(_INPUT)) or []) or reading.input
    body = structure(held.get(_OUTPUT))
    answers = []
    batches = body.get("generations") if isinstance(body, dict) else None
    for batch in batches if isinstance(batches, list) else ():
        for generation in batch if isinstance(batch, list) else [batch]:
            if isinstance(generation, dict):
                spoken = joined(message(generation.get("message")))
                answers.append(spoken or {"role": "assistant", "text": plain(generation.get("text"))})
                details = generation.get("generation_info")
                if isinstance(details, dict):
                    reading.finish = reading.finish or details.get("finish_reason")
    if not answers and isinstance(body, dict):
        # A wrapped client's call has the answer of its API as it was.
        answers, reading.finish = answers_of(body)
    if not answers and isinstance(body, dict):
        answers = [
            turn for turn in messages(body.get("messages")) if turn["role"] == "assistant"
        ] or messages([body])
    if answers:
        reading.output, reading.others = answers[0], answers[1:]


def _agent(held: Mapping[str, Json], reading: SpanReading) -> None:
    reading.name = word(held, "langsmith.metadata.lc_agent_name") or reading.name
    if reading.input is None:
        reading.input = prompt_of(held.get(_INPUT)) or _spoken("user", held.get(_INPUT))
    if reading.output is None and reading.error is None:
        body = structure(held.get(_OUTPUT))
        turns = messages(body.get("messages")) if isinstance(body, dict) else []
        answers = [turn for turn in turns if turn["role"] == "assistant"]
        reading.output = (
            answers[-1] if answers else next(iter(_spoken("assistant", held.get(_OUTPUT)) or ()), None)
        )


def _spoken(role: str, value: Json) -> list[Message] | None:
    """A value that holds no messages, as what was said: the lone text in it, else its JSON."""
    body = parsed(value)
    if isinstance(body, dict) and len(body) == 1:
        (body,) = body.values()
    return [{"role": role, "text": plain(body)}] if body else None


def _failure(content: Content) -> tuple[str, str] | None:
    error = failure(content)
    shown = _REPR.match(error[1]) if error is not None and error[0] == "Exception" else None
    if error is None or shown is None:
        return error
    told = literal(shown["message"]) if shown["message"] else ""
    return shown["type"], told if isinstance(told, str) else error[1]
