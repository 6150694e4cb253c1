"""OpenTelemetry's GenAI conventions, as their instrumentors and frameworks write them.

Names of version 1.41, the older `gen_ai.system`, `gen_ai.usage.prompt_tokens` and message events, and
what three frameworks with instrumentation of their own add: Microsoft Agent Framework (an agent's
output is the whole dialogue, and its tokens are a sum under the keys of a call), AutoGen (no model
call and no content at all) and PydanticAI (`pydantic_ai.py`).

Source: OpenTelemetry semantic conventions, "Generative AI", 1.28 to 1.41.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping

from ....types import AGENT, FUNCTION, LLM, TOOL, Json
from ..content import Content, SpanEvent
from .messages import (
    Message,
    answers,
    conversation,
    joined,
    message,
    messages,
    text,
    together,
    tool_result,
    with_wire_ids,
)
from .reading import (
    CONSTRUCTION,
    NAMES,
    NODE,
    SHAPES,
    SpanReading,
    Usage,
    array,
    failure,
    first,
    number,
    usage,
    word,
)
from .values import arguments_of, parsed, plain, structure

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
_UNSTATED = ("<not specified>",)
"""Texts that stand where Google's ADK knows no id."""
_ASKED, _ANSWERED = "gen_ai.input.messages", "gen_ai.output.messages"
_DETAILS = "gen_ai.client.inference.operation.details"
_ITEMS = ("opentelemetry.instrumentation.openai_agents",)
"""Scopes whose output messages are the items of one answer, and not answers to choose from."""
_GRAPHS = ("openlit.instrumentation.langgraph",)
"""Scopes that show each node of a graph as an agent, and the graph as a workflow."""
_MERGED = "(merged tools)"
"""The name under which Google's ADK shows that it put the results of several tools together."""
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
    name = operation(content.attributes)
    kind = _OPERATIONS.get(name or "")
    node = content.scope in _GRAPHS and name == "invoke_agent"
    if node or content.attributes.get("gen_ai.tool.name") == _MERGED:
        kind = NODE
    if kind is None:
        if name is None and word(content.attributes, "gen_ai.request.model", "gen_ai.response.model"):
            kind = LLM  # before operations had names
        else:
            return None
    return of_kind(content, kind)


def operation(held: Mapping[str, Json]) -> str | None:
    """The operation that a span says it is."""
    return word(held, "gen_ai.operation.name")


def of_kind(content: Content, kind: str) -> SpanReading:
    """Read a span whose kind is known."""
    held = content.attributes
    reading = SpanReading(kind, content.span.name, error=failure(content))
    if kind == LLM:
        model_call(content, reading)
    elif kind == TOOL:
        reading.name = word(held, "gen_ai.tool.name") or content.span.name.removeprefix("execute_tool ")
        id = word(held, "gen_ai.tool.call.id")
        reading.tool_call_id = None if id in _UNSTATED else id
        stated = first(held, "gen_ai.tool.call.arguments", "tool_arguments")
        reading.arguments = arguments_of(stated)
        if isinstance(stated, str) and stated[:1] == "{" and stated[:2] != "{'" and "kwargs" not in stated:
            reading.quoted["gen_ai.tool.call.arguments"] = stated, reading.arguments
        reading.result, told = tool_result(first(held, "gen_ai.tool.call.result", "tool_response"))
        reading.tool_call_id = reading.tool_call_id or told
        _executed(content, reading)
    elif kind == AGENT:
        name = word(held, "gen_ai.agent.name", "gen_ai.workflow.name")
        reading.named = name is not None
        reading.name = name or content.span.name.removeprefix("invoke_agent ")
        reading.extra["workflow"] = operation(held) == "invoke_workflow"
        reading.model = word(held, "gen_ai.request.model")
        reading.aggregate = tokens(held, "gen_ai.aggregated_usage.") or tokens(held)
        spoken(content, reading)
        _take_dialogue(held.get(_ANSWERED), reading)
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
    reasons = array(held.get("gen_ai.response.finish_reasons"))
    reading.finish = (
        reasons[0] if reasons else word(held, "gen_ai.response.finish_reason", "gen_ai.response.stop_reason")
    )
    reading.usage = tokens(held)
    spoken(content, reading)


def tokens(held: Mapping[str, Json], prefix: str = "gen_ai.usage.") -> Usage | None:
    """Counts under the names of several years."""
    input, output, cached, reasoning = _token_keys(prefix, tuple(held) if len(held) <= NAMES else None)
    if not (input or output or cached or reasoning):
        return None
    return usage(number(held, *input), number(held, *output), number(held, *cached), number(held, *reasoning))


@functools.lru_cache(maxsize=SHAPES)
def _token_keys(prefix: str, keys: tuple[str, ...] | None) -> tuple[tuple[str, ...], ...]:
    """The names of each count, of those that are there if `keys` are all names."""
    names = (
        ("input_tokens", "prompt_tokens"),
        ("output_tokens", "completion_tokens"),
        ("cache_read.input_tokens", "cache_read_input_tokens", "details.cache_read_tokens"),
        ("reasoning.output_tokens", "reasoning_tokens", "details.reasoning_tokens"),
    )
    return tuple(
        tuple(prefix + name for name in several if keys is None or prefix + name in keys) for several in names
    )


def spoken(content: Content, reading: SpanReading) -> None:
    """Input and output messages, from attributes, else from events or log records of the span."""
    items = content.scope in _ITEMS
    _take_spoken(content.attributes, reading, items=items)
    for event in content.events:
        if event.name == _DETAILS:
            _take_spoken(event.attributes, reading, items=items)
    if reading.input is None and reading.output is None:
        by_event(_events(content), reading)


def _take_spoken(held: Mapping[str, Json], reading: SpanReading, *, items: bool) -> None:
    prompt, everything = conversation(held.get(_ASKED))
    if system := _instructions(held):
        # OpenLIT shows the system prompt in both places.
        prompt = prompt if prompt[: len(system)] == system else [*system, *prompt]
    if prompt and reading.input is None:
        reading.input = with_wire_ids(together(prompt))
        if everything and len(reading.input) == len(prompt):
            reading.quoted[_ASKED] = held[_ASKED], reading.input
    finals, everything = answers(held.get(_ANSWERED))
    if items and len(finals) > 1:
        finals = [answer for answer in (joined(finals),) if answer is not None]
    if finals and reading.output is None:
        reading.output, reading.others = finals[0], finals[1:]
        if everything and len(finals) == 1:
            reading.quoted[_ANSWERED] = held[_ANSWERED], reading.output


def _take_dialogue(stated: Json, reading: SpanReading) -> None:
    """The last answer of a whole dialogue, which is what some frameworks show as an agent's output."""
    dialogue, everything = conversation(stated)
    if isinstance(stated, list) or (
        isinstance(stated, str) and stated[:1] == "[" and (dialogue or structure(stated) is not None)
    ):
        spoken_turns = [turn for turn in dialogue if turn["role"] == "assistant"]
        reading.output, reading.others = (spoken_turns[-1] if spoken_turns else None), []
        if everything and len(dialogue) == 1:
            reading.quoted[_ANSWERED] = stated, reading.output


def by_event(events: Iterable[SpanEvent], reading: SpanReading) -> None:
    """Messages that came one by one, as events of the span or as log records."""
    prompt: list[Message] = []
    choices: list[Message] = []
    # A stable sort: events out of one attribute all have the time 0 and keep their order.
    for event in sorted(events, key=lambda event: event.at):
        # Semantic Kernel writes the body as JSON text, as the standard library's logging has only text.
        told = structure(event.body)
        body = told if isinstance(told, dict) else event.attributes
        if event.name == "gen_ai.choice":
            spoken_message = body.get("message")
            inner = structure(spoken_message)
            content = inner or spoken_message or body.get("content")
            choice = inner if isinstance(inner, dict) else {**body, "content": content}
            choices += message(_with_calls({**choice, "role": choice.get("role") or "assistant"}))
            reading.finish = reading.finish or body.get("finish_reason")
        elif event.name in _ROLES:
            prompt += message(_with_calls({**body, "role": body.get("role") or _ROLES[event.name]}))
        elif event.name == "gen_ai.content.prompt":
            prompt += messages(body.get("gen_ai.prompt"))
        elif event.name == "gen_ai.content.completion":
            choices += messages(body.get("gen_ai.completion"))
    if prompt:
        reading.input = with_wire_ids(prompt)
    if choices:
        reading.output, reading.others = choices[0], choices[1:]


def _executed(content: Content, reading: SpanReading) -> None:
    """Arguments and result of a tool that came as messages in events: Strands Agents writes both forms of them."""
    for event in content.events:
        held = event.attributes
        if event.name == "gen_ai.tool.message" and reading.arguments is None:
            reading.arguments = parsed(held.get("content"))
        elif event.name == "gen_ai.choice" and reading.result is None:
            parts = structure(held.get("message"))
            reading.result = text(parts) if isinstance(parts, list) else tool_result(held.get("message"))[0]
        elif event.name == _DETAILS:
            asked = messages(held.get(_ASKED))
            calls = [call for turn in asked for call in turn.get("tool_calls", ())]
            if calls and reading.arguments is None:
                reading.arguments = calls[0]["arguments"]
            told = [turn for turn in messages(held.get(_ANSWERED)) if turn.get("text")]
            if told and reading.result is None:
                reading.result = told[0]["text"]


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
