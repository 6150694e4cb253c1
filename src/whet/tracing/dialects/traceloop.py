"""Traceloop / OpenLLMetry: `traceloop.span.kind` around GenAI conventions.

A workflow is the run itself, around an agent or beside it under the same name; a task is a graph node
when a graph's framework says so, else a function that somebody decorated.  LangChain's tools come in an
envelope of callbacks.  Older versions flatten the messages of a call: `gen_ai.prompt.0.content`.

Source: opentelemetry-semantic-conventions-ai 0.4, instrumentors 0.30 to 0.62.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...types import Json
from ..content import Content
from . import genai
from .messages import Message, joined, message, messages, parsed, plain, structure, tool_result, with_wire_ids
from .reading import AGENT, FUNCTION, LLM, NODE, TOOL, Reading, failure, indexed, under, word

_INPUT = ("traceloop.entity.input", "gen_ai.task.input")
_OUTPUT = ("traceloop.entity.output", "gen_ai.task.output")

_FLAT = ("gen_ai.prompt.0.role", "gen_ai.prompt.0.content", "gen_ai.completion.0.role")
MARKS = frozenset({"traceloop.span.kind", "llm.request.type", *_FLAT})
"""A span without any of these attributes is none of `read`'s."""


def read(content: Content) -> Reading | None:
    """A span with Traceloop's kind, or a model call in its older flattened form."""
    held = content.attributes
    kind = word(held, "traceloop.span.kind")
    if kind is None:
        if any(key in held for key in _FLAT) or word(held, "llm.request.type") is not None:
            return _model_call(content)
        return None
    if kind == "tool":
        return _tool(content)
    if kind in ("workflow", "agent"):
        return _agent(content, kind)
    if word(held, "gen_ai.task.name", "traceloop.association.properties.langgraph_node"):
        return Reading(NODE, content.span.name, error=failure(content), calls=_calls(held))
    reading = Reading(FUNCTION, _name(content), error=failure(content))
    reading.arguments = _unwrapped(_body(held, *_INPUT), "inputs")
    result = _body(held, *_OUTPUT)
    reading.result = None if result is None else plain(_unwrapped(result, "outputs"))
    return reading


def _model_call(content: Content) -> Reading:
    held = content.attributes
    reading = genai.of_kind(content, LLM)
    if reading.input is None:
        asked: list[Message] = []
        for each in indexed(under(held, "gen_ai.prompt.")):
            asked += message(_unflattened(each, "user"))
        reading.input = with_wire_ids(asked) or None
    answers = indexed(under(held, "gen_ai.completion."))
    if reading.output is None and answers:
        whole = [joined(message(_unflattened(each, "assistant"))) for each in answers]
        spoken = [each for each in whole if each is not None]
        reading.output, reading.others = (spoken[0] if spoken else None), spoken[1:]
        reading.finish = reading.finish or answers[0].get("finish_reason")
    return reading


def _unflattened(flat: dict[str, Json], role: str) -> Message:
    content = flat.get("content")
    parts = structure(content)
    calls = [
        {"id": each.get("id"), "name": each.get("name"), "arguments": each.get("arguments")}
        for each in indexed(flat.get("tool_calls"))
    ]
    return {
        "role": flat.get("role") or role,
        "content": parts if isinstance(parts, list) else content,
        "tool_calls": calls,
        "tool_call_id": flat.get("tool_call_id"),
    }


def _tool(content: Content) -> Reading:
    held = content.attributes
    reading = genai.of_kind(content, TOOL)
    reading.name = word(held, "gen_ai.tool.name") or _name(content)
    given = reading.arguments if reading.arguments is not None else _body(held, *_INPUT)
    if isinstance(given, dict) and "input_str" in given:
        callback = given.get("kwargs")
        if isinstance(callback, dict) and reading.tool_call_id is None:
            reading.tool_call_id = word(callback, "tool_call_id")
        given = parsed(given["inputs"] if given.get("inputs") is not None else given["input_str"])
    reading.arguments = given
    if reading.result is None:
        reading.result, _ = tool_result(_body(held, *_OUTPUT))
    return reading


def _agent(content: Content, kind: str) -> Reading:
    held = content.attributes
    reading = genai.of_kind(content, AGENT)
    reading.named = "gen_ai.agent.name" in held
    reading.name = word(held, "gen_ai.agent.name") or _name(content)
    reading.extra["workflow"] = kind == "workflow"
    asked = _unwrapped(_body(held, *_INPUT), "inputs")
    if reading.input is None and isinstance(asked, dict):
        said = word(asked, "input", "question", "query", "task", "prompt")
        reading.input = messages(asked.get("messages")) or (
            [{"role": "user", "text": said}] if said else None
        )
    answered = _unwrapped(_body(held, *_OUTPUT), "outputs")
    if reading.output is None and reading.error is None:
        spoken = messages(answered.get("messages")) if isinstance(answered, dict) else []
        answers = [each for each in spoken if each["role"] == "assistant"]
        if answers:
            reading.output = answers[-1]
        elif isinstance(answered, str) and answered:
            reading.output = {"role": "assistant", "text": answered}
    return reading


def _calls(held: Mapping[str, Json]) -> list[Message]:
    """The tool calls that a node of a graph was given."""
    given = _unwrapped(_body(held, *_INPUT), "inputs")
    found = given if isinstance(given, list) else []
    return [each for each in found if isinstance(each, dict) and "args" in each]


def _body(held: Mapping[str, Json], *keys: str) -> Json:
    return next((parsed(held[key]) for key in keys if held.get(key) is not None), None)


def _unwrapped(value: Json, key: str) -> Json:
    return value[key] if isinstance(value, dict) and key in value else value


def _name(content: Content) -> str:
    name = word(content.attributes, "traceloop.entity.name", "traceloop.workflow.name")
    return name or content.span.name.rpartition(".")[0] or content.span.name
