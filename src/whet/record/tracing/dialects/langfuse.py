"""Langfuse's SDK: OpenTelemetry spans with `langfuse.observation.type` and JSON in attributes of its own.

A function decorated with `@observe()` alone is an observation of the type span: the run itself where nothing
is around it, else a function.  Its input is its arguments, `{"args": [...], "kwargs": {...}}`.

Source: langfuse 3 to 5 (Python), `LangfuseOtelSpanAttributes`.
"""

from __future__ import annotations

from collections.abc import Mapping

from ....types import AGENT, FUNCTION, LLM, TOOL, Json
from ..content import Content
from .messages import Message, joined, messages, tool_result, with_wire_ids
from .reading import NODE, SpanReading, Usage, failure, number, usage, word
from .values import called_with, parsed, plain, structure

_TYPE = "langfuse.observation.type"
_INPUT, _OUTPUT = "langfuse.observation.input", "langfuse.observation.output"

MARKS = frozenset({_TYPE})
"""A span without it is none of `read`'s."""
_KINDS = {"generation": LLM, "tool": TOOL, "agent": AGENT, "chain": NODE}


def read(content: Content) -> SpanReading | None:
    """An observation; a type that is not known is a function."""
    held = content.attributes
    type = word(held, _TYPE)
    if type is None:
        return None
    kind = _KINDS.get(type, FUNCTION)
    if not content.span.parent and kind in (FUNCTION, NODE):
        kind = AGENT
    # Not named by its span alone: `tree._same_run` may put an agent inside in the place of this one.
    reading = SpanReading(kind, content.span.name, named=type == "agent", error=failure(content))
    if kind == LLM:
        _generation(held, reading)
    elif kind == AGENT:
        _agent(held, reading)
    elif kind == TOOL:
        reading.arguments = _called(held)
        reading.result, reading.tool_call_id = tool_result(held.get(_OUTPUT))
    elif kind == FUNCTION:
        reading.arguments = _called(held)
        result = held.get(_OUTPUT)
        reading.result = None if result is None else plain(result)
    return reading


def _generation(held: Mapping[str, Json], reading: SpanReading) -> None:
    reading.model = word(held, "langfuse.observation.model.name")
    reading.finish = parsed(held.get("langfuse.observation.metadata.finish_reason"))
    reading.usage = _tokens(structure(held.get("langfuse.observation.usage_details")))
    reading.input = with_wire_ids(_prompt(held.get(_INPUT))) or None
    if reading.error is None:
        answer = structure(held.get(_OUTPUT))
        spoken = messages(answer if isinstance(answer, list) else [answer])
        reading.output = joined(spoken) or _text("assistant", held.get(_OUTPUT))


def _prompt(value: Json) -> list[Message]:
    """A list of messages, a request that has one, or a bare prompt."""
    body = structure(value)
    if isinstance(body, dict) and "messages" in body:
        body = body["messages"]
    if isinstance(body, list):
        return messages(body)
    turn = _text("user", value)
    return [] if turn is None else [turn]


def _tokens(details: Json) -> Usage | None:
    """Langfuse's own names, or those of the provider."""
    if not isinstance(details, dict):
        return None
    return usage(
        number(details, "input", "prompt_tokens", "input_tokens"),
        number(details, "output", "completion_tokens", "output_tokens"),
        number(details, "input_cached_tokens", "cache_read_input_tokens")
        or _detail(details, "prompt_tokens_details", "cached_tokens"),
        number(details, "output_reasoning_tokens")
        or _detail(details, "completion_tokens_details", "reasoning_tokens"),
    )


def _detail(details: Mapping[str, Json], group: str, name: str) -> int | None:
    held = details.get(group)
    return number(held, name) if isinstance(held, dict) else None


def _agent(held: Mapping[str, Json], reading: SpanReading) -> None:
    arguments = _called(held)
    if isinstance(arguments, dict):
        values = arguments.get("args") if set(arguments) == {"args"} else list(arguments.values())
        arguments = values[0] if isinstance(values, list) and len(values) == 1 else arguments
    question = _text("user", arguments)
    reading.input = None if question is None else [question]
    if reading.error is None:
        reading.output = _text("assistant", held.get(_OUTPUT))


def _called(held: Mapping[str, Json]) -> Json:
    """The arguments of the call: by name as far as they were, as a tool's arguments are."""
    return called_with(parsed(held.get(_INPUT)))


def _text(role: str, value: Json) -> Message | None:
    return None if value is None else {"role": role, "text": plain(value)}
