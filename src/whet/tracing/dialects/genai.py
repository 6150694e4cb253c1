"""OpenTelemetry's GenAI conventions, as their instrumentors and frameworks write them.

Names of version 1.41, the older `gen_ai.system`, `gen_ai.usage.prompt_tokens` and message events, and
what three frameworks with instrumentation of their own add: Microsoft Agent Framework (an agent's
output is the whole dialogue, and its tokens are a sum under the keys of a call), AutoGen (no model
call and no content at all) and PydanticAI (`pydantic_ai.py`).

Source: OpenTelemetry semantic conventions, "Generative AI", 1.28 to 1.41.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...types import Json
from ..content import Content, Event
from .messages import Message, message, messages, parsed, plain, structure, tool_result, with_wire_ids
from .reading import (
    AGENT,
    CONSTRUCTION,
    FUNCTION,
    LLM,
    NODE,
    TOOL,
    Reading,
    Usage,
    failure,
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


def read(content: Content) -> Reading | None:
    """A span of a GenAI operation; None if it is of none."""
    operation = word(content.attributes, "gen_ai.operation.name")
    kind = _OPERATIONS.get(operation or "")
    if kind is None:
        if operation is None and word(content.attributes, "gen_ai.request.model", "gen_ai.response.model"):
            kind = LLM  # before operations had names
        else:
            return None
    return of_kind(content, kind)


def of_kind(content: Content, kind: str) -> Reading:
    """Read a span whose kind is known."""
    held = content.attributes
    reading = Reading(kind, content.span.name, error=failure(content))
    if kind == LLM:
        model_call(content, reading)
    elif kind == TOOL:
        reading.name = word(held, "gen_ai.tool.name") or content.span.name.removeprefix("execute_tool ")
        reading.tool_call_id = word(held, "gen_ai.tool.call.id")
        reading.arguments = parsed(_first(held, "gen_ai.tool.call.arguments", "tool_arguments"))
        reading.result, _ = tool_result(_first(held, "gen_ai.tool.call.result", "tool_response"))
    elif kind == AGENT:
        name = word(held, "gen_ai.agent.name", "gen_ai.workflow.name")
        reading.named = name is not None
        reading.name = name or content.span.name.removeprefix("invoke_agent ")
        reading.model = word(held, "gen_ai.request.model")
        reading.aggregate = tokens(held, "gen_ai.aggregated_usage.") or tokens(held)
        spoken(content, reading)
        if isinstance(whole := structure(held.get("gen_ai.output.messages")), list):
            answers = [each for each in messages(whole) if each["role"] == "assistant"]
            reading.output, reading.others = (answers[-1] if answers else None), []
    elif kind == FUNCTION:
        reading.model = word(held, "gen_ai.request.model")
        reading.usage = tokens(held)
    return reading


def model_call(content: Content, reading: Reading) -> None:
    """What a model was asked and answered."""
    held = content.attributes
    reading.response_model = word(held, "gen_ai.response.model")
    reading.model = word(held, "gen_ai.request.model") or reading.response_model
    reading.response_id = word(held, "gen_ai.response.id")
    reasons = structure(held.get("gen_ai.response.finish_reasons"))
    if isinstance(reasons, list) and reasons:
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


def spoken(content: Content, reading: Reading) -> None:
    """Input and output messages, from attributes, else from events or log records of the span."""
    for held in (content.attributes, *(each.attributes for each in content.events if each.name == _DETAILS)):
        said = [*_instructions(held), *messages(held.get("gen_ai.input.messages"))]
        if said and reading.input is None:
            reading.input = with_wire_ids(said)
        answers = [message(each) for each in _list(held.get("gen_ai.output.messages"))]
        whole = [each[-1] for each in answers if each]
        if whole and reading.output is None:
            reading.output, reading.others = whole[0], whole[1:]
    if reading.input is None and reading.output is None:
        by_event(_events(content), reading)


def by_event(events: Iterable[Event], reading: Reading) -> None:
    """Messages that came one by one, as events of the span or as log records."""
    said: list[Message] = []
    answers: list[Message] = []
    for event in sorted(events, key=lambda each: each.at):
        body = event.body if isinstance(event.body, dict) else event.attributes
        if event.name == "gen_ai.choice":
            inner = structure(body.get("message"))
            given = inner if isinstance(inner, dict) else {**body, "content": inner or body.get("content")}
            answers += message(_with_calls({**given, "role": given.get("role") or "assistant"}))
            reading.finish = reading.finish or body.get("finish_reason")
        elif event.name in _ROLES:
            said += message(_with_calls({**body, "role": body.get("role") or _ROLES[event.name]}))
        elif event.name == "gen_ai.content.prompt":
            said += messages(body.get("gen_ai.prompt"))
        elif event.name == "gen_ai.content.completion":
            answers += messages(body.get("gen_ai.completion"))
    if said:
        reading.input = with_wire_ids(said)
    if answers:
        reading.output, reading.others = answers[0], answers[1:]


def _events(content: Content) -> list[Event]:
    """Events and log records, and those that an older PydanticAI writes as one attribute."""
    found = list(content.events)
    for each in _list(content.attributes.get("events")):
        if isinstance(each, dict) and isinstance(name := each.get("event.name"), str):
            found.append(Event(name, 0, each))
    return found


def _instructions(held: Mapping[str, Json]) -> list[Message]:
    """The system prompt, which stands apart from the messages."""
    given = held.get("gen_ai.system_instructions")
    parts = structure(given)
    if isinstance(parts, list):
        return [each for each in message({"role": "system", "parts": parts}) if each.get("text")]
    return [{"role": "system", "text": plain(given)}] if given else []


def _with_calls(body: dict[str, Json]) -> dict[str, Json]:
    """A message whose calls or content may be JSON text, because an attribute holds no objects."""
    for key in ("tool_calls", "content"):
        inner = structure(body.get(key))
        if key == "tool_calls" or isinstance(inner, list):
            body[key] = inner
    return body


def _list(value: Json) -> list[Json]:
    found = structure(value)
    return found if isinstance(found, list) else []


def _first(held: Mapping[str, Json], *keys: str) -> Json:
    return next((held[key] for key in keys if held.get(key) is not None), None)
