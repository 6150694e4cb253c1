"""OpenTelemetry's GenAI conventions, as their instrumentors and frameworks write them.

Names of version 1.41, the older `gen_ai.system`, `gen_ai.usage.prompt_tokens` and message events, and
what three frameworks with instrumentation of their own add: Microsoft Agent Framework (an agent's
output is the whole dialogue, and its tokens are a sum under the keys of a call), AutoGen (no model
call and no content at all) and PydanticAI (`pydantic_ai.py`).

Source: OpenTelemetry semantic conventions, "Generative AI", 1.28 to 1.41.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ....types import Json
from ..content import Content, SpanEvent
from .messages import Message, message, messages, parsed, plain, structure, tool_result, with_wire_ids
from .reading import (
    AGENT,
    CONSTRUCTION,
    FUNCTION,
    LLM,
    NODE,
    TOOL,
    SpanReading,
    Usage,
    array,
    failure,
    first,
    number,
    usage,
    word,
)

_OPERATIONS = {
    "chat": LLM,
    "generate_content": LLM,
    "text_completion": LLM,
    "completion": LLM,
    "execute_tool": TOOL,
    "invoke_agent": AGENT,
    "invoke_workflow": AGENT,
    "create_agent": CONSTRUCTION,
    "execute_task": NODE,
    "embeddings": FUNCTION,
    "retrieval": FUNCTION,
    "rerank": FUNCTION,
}
_DETAILS = "gen_ai.client.inference.operation.details"
_ROLES = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
}


MARKS = frozenset({"gen_ai.operation.name", "gen_ai.request.model", "gen_ai.response.model"})
"""A span without any of these attributes is none of `read`'s."""


def read(content: Content) -> SpanReading | None:
    """A span of a GenAI operation; None if it is of none."""
    operation = word(content.attributes, "gen_ai.operation.name")
    kind = _OPERATIONS.get(operation or "")
    if kind is None:
        if operation is None and word(content.attributes, "gen_ai.request.model", "gen_ai.response.model"):
            kind = LLM  # before operations had names
        else:
            return None
    return of_kind(content, kind)


def of_kind(content: Content, kind: str) -> SpanReading:
    """Read a span whose kind is known."""
    held = content.attributes
    reading = SpanReading(kind, content.span.name, error=failure(content))
    if kind == LLM:
        model_call(content, reading)
    elif kind == TOOL:
        reading.name = word(held, "gen_ai.tool.name") or content.span.name.removeprefix("execute_tool ")
        reading.tool_call_id = word(held, "gen_ai.tool.call.id")
        reading.arguments = parsed(first(held, "gen_ai.tool.call.arguments", "tool_arguments"))
        reading.result, _ = tool_result(first(held, "gen_ai.tool.call.result", "tool_response"))
    elif kind == AGENT:
        name = word(held, "gen_ai.agent.name", "gen_ai.workflow.name")
        reading.named = name is not None
        reading.name = name or content.span.name.removeprefix("invoke_agent ")
        reading.model = word(held, "gen_ai.request.model")
        reading.aggregate = tokens(held, "gen_ai.aggregated_usage.") or tokens(held)
        spoken(content, reading)
        if isinstance(dialogue := structure(held.get("gen_ai.output.messages")), list):
            answers = [turn for turn in messages(dialogue) if turn["role"] == "assistant"]
            reading.output, reading.others = (answers[-1] if answers else None), []
    elif kind == FUNCTION:
        reading.model = word(held, "gen_ai.request.model")
        reading.usage = tokens(held)
    return reading


def model_call(content: Content, reading: SpanReading) -> None:
    """Read a model call: model, usage, messages."""
    held = content.attributes
    reading.response_model = word(held, "gen_ai.response.model")
    reading.model = word(held, "gen_ai.request.model") or reading.response_model
    reading.response_id = word(held, "gen_ai.response.id")
    if reasons := array(held.get("gen_ai.response.finish_reasons")):
        reading.finish = reasons[0]
    reading.usage = tokens(held)
    spoken(content, reading)


def tokens(held: Mapping[str, Json], prefix: str = "gen_ai.usage.") -> Usage | None:
    """Counts under the names of several years."""
    return usage(
        number(held, prefix + "input_tokens", prefix + "prompt_tokens"),
        number(held, prefix + "output_tokens", prefix + "completion_tokens"),
        number(
            held,
            prefix + "cache_read.input_tokens",
            prefix + "cache_read_input_tokens",
            prefix + "details.cache_read_tokens",
        ),
        number(
            held,
            prefix + "reasoning.output_tokens",
            prefix + "reasoning_tokens",
            prefix + "details.reasoning_tokens",
        ),
    )


def spoken(content: Content, reading: SpanReading) -> None:
    """Input and output messages, from attributes, else from events or log records of the span."""
    for held in (
        content.attributes,
        *(event.attributes for event in content.events if event.name == _DETAILS),
    ):
        prompt = [*_instructions(held), *messages(held.get("gen_ai.input.messages"))]
        if prompt and reading.input is None:
            reading.input = with_wire_ids(prompt)
        answers = [message(answer) for answer in array(held.get("gen_ai.output.messages"))]
        finals = [answer[-1] for answer in answers if answer]
        if finals and reading.output is None:
            reading.output, reading.others = finals[0], finals[1:]
    if reading.input is None and reading.output is None:
        by_event(_events(content), reading)


def by_event(events: Iterable[SpanEvent], reading: SpanReading) -> None:
    """Messages that came one by one, as events of the span or as log records."""
    prompt: list[Message] = []
    answers: list[Message] = []
    # A stable sort: events out of one attribute all have the time 0 and keep their order.
    for event in sorted(events, key=lambda event: event.at):
        body = event.body if isinstance(event.body, dict) else event.attributes
        if event.name == "gen_ai.choice":
            inner = structure(body.get("message"))
            choice = inner if isinstance(inner, dict) else {**body, "content": inner or body.get("content")}
            answers += message(_with_calls({**choice, "role": choice.get("role") or "assistant"}))
            reading.finish = reading.finish or body.get("finish_reason")
        elif event.name in _ROLES:
            prompt += message(_with_calls({**body, "role": body.get("role") or _ROLES[event.name]}))
        elif event.name == "gen_ai.content.prompt":
            prompt += messages(body.get("gen_ai.prompt"))
        elif event.name == "gen_ai.content.completion":
            answers += messages(body.get("gen_ai.completion"))
    if prompt:
        reading.input = with_wire_ids(prompt)
    if answers:
        reading.output, reading.others = answers[0], answers[1:]


def _events(content: Content) -> list[SpanEvent]:
    """Events and log records, and those that an older PydanticAI writes as one attribute."""
    events = list(content.events)
    for record in array(content.attributes.get("events")):
        if isinstance(record, dict) and isinstance(name := record.get("event.name"), str):
            events.append(SpanEvent(name, 0, record))
    return events


def _instructions(held: Mapping[str, Json]) -> list[Message]:
    """The system prompt, which stands apart from the messages."""
    instructions = held.get("gen_ai.system_instructions")
    parts = structure(instructions)
    if isinstance(parts, list):
        return [turn for turn in message({"role": "system", "parts": parts}) if turn.get("text")]
    return [{"role": "system", "text": plain(instructions)}] if instructions else []


def _with_calls(body: dict[str, Json]) -> dict[str, Json]:
    """A message whose calls or content may be JSON text, because an attribute holds no objects."""
    # It changes the dict that it is given: callers hand over a fresh one, never an event's own.
    for key in ("tool_calls", "content"):
        inner = structure(body.get(key))
        if key == "tool_calls" or isinstance(inner, list):
            body[key] = inner
    return body
