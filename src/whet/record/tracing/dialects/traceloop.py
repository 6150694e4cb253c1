"""Traceloop / OpenLLMetry: `traceloop.span.kind` around GenAI conventions.

A workflow is the run itself, around an agent or beside it under the same name; a task is a graph node
when a graph's framework says so, else a function that somebody decorated.  LangChain's tools come in an
envelope of callbacks.  Older versions flatten the messages of a call: `gen_ai.prompt.0.content`.

Source: opentelemetry-semantic-conventions-ai 0.4, instrumentors 0.30 to 0.62.
"""

from __future__ import annotations

from collections.abc import Mapping

from ....types import AGENT, FUNCTION, LLM, TOOL, Json
from ..content import Content
from . import genai
from .messages import Message, joined, message, messages, tool_result, with_wire_ids
from .reading import NODE, UNTYPED, SpanReading, failure, first, indexed, under, word
from .values import arguments_of, parsed, plain, structure

_INPUT = ("traceloop.entity.input", "gen_ai.task.input")
_OUTPUT = ("traceloop.entity.output", "gen_ai.task.output")

_LLAMAINDEX = "opentelemetry.instrumentation.llamaindex"
_FLAT = ("gen_ai.prompt.0.role", "gen_ai.prompt.0.content", "gen_ai.completion.0.role")
MARKS = frozenset({"traceloop.span.kind", "llm.request.type", *_FLAT})
"""A span without any of these attributes is none of `read`'s."""


def read(content: Content) -> SpanReading | None:
    """A span with Traceloop's kind, or a model call in its older flattened form."""
    held = content.attributes
    kind = word(held, "traceloop.span.kind")
    if kind is None:
        # Without the kind only the older, flattened form is ours: a plain GenAI call is left to `genai.read`.
        if any(key in held for key in _FLAT) or word(held, "llm.request.type") is not None:
            return _model_call(content)
        return None
    if kind == "tool":
        return _tool(content)
    if content.scope == _LLAMAINDEX and kind == "task":
        return _llamaindex(content)
    if kind in ("workflow", "agent"):
        return _agent(content, kind)
    if kind == "handoff" or word(held, "gen_ai.task.name", "traceloop.association.properties.langgraph_node"):
        return SpanReading(NODE, content.span.name, error=failure(content), calls=_calls(held))
    reading = SpanReading(FUNCTION, _name(content), error=failure(content))
    reading.arguments = _unwrapped(parsed(first(held, *_INPUT)), "inputs")
    result = parsed(first(held, *_OUTPUT))
    reading.result = None if result is None else plain(_unwrapped(result, "outputs"))
    return reading


def _model_call(content: Content) -> SpanReading:
    held = content.attributes
    reading = genai.of_kind(content, LLM)
    if reading.input is None:
        prompt: list[Message] = []
        for flat in indexed(under(held, "gen_ai.prompt.")):
            prompt += message(_unflattened(flat, "user"))
        reading.input = with_wire_ids(prompt) or None
    answers = indexed(under(held, "gen_ai.completion."))
    if reading.output is None and answers:
        joined_answers = (joined(message(_unflattened(flat, "assistant"))) for flat in answers)
        spoken = [answer for answer in joined_answers if answer is not None]
        reading.output, reading.others = (spoken[0] if spoken else None), spoken[1:]
        reading.finish = reading.finish or answers[0].get("finish_reason")
    return reading


def _unflattened(flat: dict[str, Json], role: str) -> Message:
    content = flat.get("content")
    parts = structure(content)
    calls = [
        {"id": call.get("id"), "name": call.get("name"), "arguments": call.get("arguments")}
        for call in indexed(flat.get("tool_calls"))
    ]
    return {
        "role": flat.get("role") or role,
        "content": parts if isinstance(parts, list) else content,
        "tool_calls": calls,
        "tool_call_id": flat.get("tool_call_id"),
    }


def _llamaindex(content: Content) -> SpanReading:
    """A task of LlamaIndex: a model call, a tool's call, or the glue between the two."""
    held = content.attributes
    answered = structure(held.get("traceloop.entity.output"))
    told = answered if isinstance(answered, dict) else {}
    if genai.operation(held) == "chat":
        reading = genai.of_kind(content, LLM)
        asked = structure(held.get("traceloop.entity.input"))
        # The messages of its own come first: in the conventional ones the calls of tools are left out.
        prompt = messages(asked.get("messages")) if isinstance(asked, dict) else []
        reading.input = with_wire_ids(prompt) or reading.input
        reading.output = joined(message(told.get("message"))) or reading.output
        reading.model = reading.response_model if reading.model == "None" else reading.model
        return reading
    if "tool.name" in held:
        reading = SpanReading(TOOL, word(held, "tool.name") or _name(content), error=failure(content))
        reading.arguments = parsed(held.get("tool.arguments"))
        reading.tool_call_id = word(told, "tool_id")
        result = told.get("tool_output")
        reading.result, _ = tool_result(result)
        if reading.error is None and isinstance(result, dict) and result.get("is_error") is True:
            reading.error = UNTYPED, reading.result or ""
        return reading
    return SpanReading(NODE, _name(content), error=failure(content))


def _tool(content: Content) -> SpanReading:
    held = content.attributes
    reading = genai.of_kind(content, TOOL)
    reading.name = word(held, "gen_ai.tool.name") or _name(content)
    arguments = reading.arguments if reading.arguments is not None else arguments_of(first(held, *_INPUT))
    if isinstance(arguments, dict) and "input_str" in arguments:
        callback = arguments.get("kwargs")
        if isinstance(callback, dict) and reading.tool_call_id is None:
            reading.tool_call_id = word(callback, "tool_call_id")
        arguments = parsed(
            arguments["inputs"] if arguments.get("inputs") is not None else arguments["input_str"]
        )
    reading.arguments = arguments
    if reading.result is None:
        reading.result, _ = tool_result(parsed(first(held, *_OUTPUT)))
    return reading


def _agent(content: Content, kind: str) -> SpanReading:
    held = content.attributes
    reading = genai.of_kind(content, AGENT)
    reading.named = "gen_ai.agent.name" in held
    reading.name = word(held, "gen_ai.agent.name") or _name(content)
    reading.extra["workflow"] = kind == "workflow"
    inputs = _unwrapped(parsed(first(held, *_INPUT)), "inputs")
    if reading.input is None and isinstance(inputs, dict) and set(inputs) == {"args", "kwargs"}:
        question = _called_with(inputs)
        reading.input = None if question is None else [{"role": "user", "text": plain(question)}]
    elif reading.input is None and isinstance(inputs, dict):
        question = word(inputs, "input", "question", "query", "task", "prompt")
        reading.input = messages(inputs.get("messages")) or (
            [{"role": "user", "text": question}] if question else None
        )
    answered = _unwrapped(parsed(first(held, *_OUTPUT)), "outputs")
    if reading.output is None and reading.error is None:
        spoken = messages(answered.get("messages")) if isinstance(answered, dict) else []
        ended = answered.get("result") if isinstance(answered, dict) else None
        if isinstance(ended, dict):  # of a workflow of LlamaIndex
            spoken += messages([ended.get("response")])
        answers = [turn for turn in spoken if turn["role"] == "assistant"]
        if answers:
            reading.output = answers[-1]
        elif isinstance(answered, str) and answered:
            reading.output = {"role": "assistant", "text": answered}
    return reading


def _called_with(inputs: Mapping[str, Json]) -> Json:
    """The arguments of a decorated function: the lone one itself, else all of them; None if there were none."""
    positional, keywords = inputs["args"], inputs["kwargs"]
    values = [*(positional if isinstance(positional, list) else [positional])]
    values += keywords.values() if isinstance(keywords, dict) else ()
    if len(values) == 1:
        return values[0]
    return {**({"args": positional} if positional else {}), **(keywords or {})} or None


def _calls(held: Mapping[str, Json]) -> list[Message]:
    """The tool calls that a node of a graph was given."""
    inputs = _unwrapped(parsed(first(held, *_INPUT)), "inputs")
    array = inputs if isinstance(inputs, list) else []
    return [call for call in array if isinstance(call, dict) and "args" in call]


def _unwrapped(value: Json, key: str) -> Json:
    return value[key] if isinstance(value, dict) and key in value else value


def _name(content: Content) -> str:
    name = word(content.attributes, "traceloop.entity.name", "traceloop.workflow.name")
    # A span is called after its entity, with the kind behind a dot: `joke.task`.
    return name or content.span.name.rpartition(".")[0] or content.span.name
