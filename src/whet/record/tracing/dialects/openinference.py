"""OpenInference (Arize): `openinference.span.kind`, and messages flattened into attributes.

Its instrumentors differ in what they leave out.  LangGraph's agent is a CHAIN like its graph nodes,
and a tool's argument loses its name; CrewAI's and openai-agents' run is a CHAIN or AGENT around the
agent; CrewAI's model calls are not recorded, only the conversation inside an output text; smolagents
wraps a tool's arguments and names the span after a class.  Message indices may begin at 1, and a
text may stand in `content`, in `contents`, or in both.

Source: OpenInference semantic conventions, openinference-semantic-conventions 0.1.
"""

from __future__ import annotations

from collections.abc import Mapping

from ....types import Json
from ..content import Content
from .messages import Message, joined, message, messages, parsed, plain, structure, tool_result, with_wire_ids
from .reading import (
    AGENT,
    FUNCTION,
    LLM,
    NODE,
    TOOL,
    SpanReading,
    Usage,
    array,
    failure,
    indexed,
    number,
    under,
    usage,
    word,
)

_KINDS = {"LLM": LLM, "TOOL": TOOL, "AGENT": AGENT, "CHAIN": NODE, "PROMPT": NODE}
MARKS = frozenset({"openinference.span.kind"})
"""A span without it is none of `read`'s."""


def read(content: Content) -> SpanReading | None:
    """A span that says its OpenInference kind."""
    kind_name = word(content.attributes, "openinference.span.kind")
    if kind_name is None:
        return None
    kind = _KINDS.get(kind_name.upper(), FUNCTION)
    reading = SpanReading(kind, content.span.name, error=failure(content))
    if kind == LLM:
        _model_call(content, reading)
    elif kind == TOOL:
        _tool(content, reading)
    elif kind == FUNCTION:
        reading.arguments = parsed(content.attributes.get("input.value"))
        reading.result = _text(content.attributes.get("output.value"))
        reading.usage = _tokens(content.attributes)
        reading.model = word(
            content.attributes, "llm.model_name", "embedding.model_name", "reranker.model_name"
        )
    else:
        name = word(content.attributes, "agent.name") or (
            word(content.attributes, "graph.node.id") if kind == AGENT else None
        )
        reading.named = name is not None and kind == AGENT
        reading.name = name or content.span.name.removesuffix(".run")
        reading.calls = [call for call in _dicts(content.attributes.get("input.value")) if "args" in call]
        # Later, by `trajectories._complete`: only the tree tells whether a chain is an agent.
        reading.fill = lambda agent: _agent(content, agent)
    return reading


def _model_call(content: Content, reading: SpanReading) -> None:
    held = content.attributes
    parameters = structure(held.get("llm.invocation_parameters"))
    requested = word(parameters, "model", "model_name") if isinstance(parameters, dict) else None
    body = structure(held.get("output.value"))
    stated = word(held, "llm.model_name")
    answer = body if isinstance(body, dict) else {}
    reading.response_model = word(answer, "model") or (stated if requested and stated != requested else None)
    reading.response_id = word(answer, "id")
    reading.model = requested or stated
    reading.finish = held.get("llm.finish_reason")
    reading.usage = _tokens(held)
    reading.input = _messages(held, "llm.input_messages.") or _prompt(held.get("input.value"))
    answers = _messages(held, "llm.output_messages.") or []
    choices = answer.get("choices")
    if isinstance(choices, list) and len(choices) > 1:
        reading.output, reading.others = (answers[0] if answers else None), answers[1:]
    else:
        reading.output = joined(answers)
    if reading.output is None and body is None and reading.error is None:
        text = word(held, "output.value")
        reading.output = {"role": "assistant", "text": text} if text else None


def _tokens(held: Mapping[str, Json]) -> Usage | None:
    return usage(
        number(held, "llm.token_count.prompt"),
        number(held, "llm.token_count.completion"),
        number(held, "llm.token_count.prompt_details.cache_read"),
        number(held, "llm.token_count.completion_details.reasoning"),
    )


def _messages(held: Mapping[str, Json], prefix: str) -> list[Message] | None:
    """Messages from flattened attributes, None if there are none."""
    turns: list[Message] = []
    for branch in indexed(under(held, prefix)):
        inner = branch.get("message")
        if isinstance(inner, dict):
            turns += message(_unflattened(inner))
    return with_wire_ids(turns) or None


def _unflattened(flat: dict[str, Json]) -> Message:
    """One message in the form that the model's API has."""
    parts: list[Json] = []
    for branch in indexed(flat.get("contents")):
        part = branch.get("message_content")
        if isinstance(part, dict):
            parts.append(part)
    content = flat.get("content")
    if parts and (not content or any(part.get("type") != "text" for part in parts if isinstance(part, dict))):
        content = parts  # else the same text twice
    calls = []
    for branch in indexed(flat.get("tool_calls")):
        call = branch.get("tool_call")
        if isinstance(call, dict):
            calls.append(call)
    wire_message = {"role": flat.get("role"), "content": content, "tool_calls": calls}
    if "tool_call_id" in flat:
        wire_message["tool_call_id"] = flat["tool_call_id"]
    if "function_call_name" in flat:
        wire_message["function_call"] = {
            "name": flat["function_call_name"],
            "arguments": flat.get("function_call_arguments_json"),
        }
    return wire_message


def _prompt(value: Json) -> list[Message] | None:
    """Messages of a request that stands as JSON in `input.value`."""
    body = structure(value)
    if isinstance(body, list):
        return messages(body) or None
    if not isinstance(body, dict):
        return None
    first: list[Message] = []
    if isinstance(body.get("instructions"), str):
        first = [{"role": "system", "text": body["instructions"]}]
    prompt = body.get("messages", body.get("input"))
    if isinstance(prompt, str):
        return [*first, {"role": "user", "text": prompt}]
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], list) and prompt[0]:
        prompt = prompt[0] if isinstance(prompt[0][0], dict | list) else prompt  # LangChain's batch of one
    return [*first, *messages(prompt)] or None


def _tool(content: Content, reading: SpanReading) -> None:
    held = content.attributes
    reading.name = word(held, "tool.name", "tool_call.function.name") or content.span.name
    arguments = parsed(held.get("tool_call.function.arguments") or held.get("input.value"))
    if isinstance(arguments, dict) and isinstance(arguments.get("kwargs"), dict) and "args" in arguments:
        arguments = arguments["kwargs"] or ({"args": arguments["args"]} if arguments["args"] else {})
    reading.arguments = arguments
    reading.result, id = tool_result(held.get("output.value"))
    reading.tool_call_id = word(held, "tool_call.id", "tool.id") or id


def _agent(content: Content, reading: SpanReading) -> None:
    held = content.attributes
    body = structure(held.get("output.value"))
    answer = body if isinstance(body, dict) else {}
    reading.aggregate = reading.aggregate or _tokens(held)
    if reading.input is None:
        reading.input = _messages(held, "llm.input_messages.") or _task(held, answer)
    if reading.output is None and reading.error is None:
        reading.output = _answer(held, body)
    spoken = answer.get("messages")
    tasks = answer.get("tasks_output")
    if reading.transcript is None and "raw" in answer:
        if not spoken and isinstance(tasks, list) and len(tasks) == 1 and isinstance(tasks[0], dict):
            spoken = tasks[0].get("messages")
        reading.transcript = messages(spoken) or None


def _task(held: Mapping[str, Json], answer: Message) -> list[Message] | None:
    """The task of an agent."""
    if "raw" in answer and "expected_output" in answer:  # CrewAI: the task is in what came of it
        question = word(answer, "description")
        return [{"role": "user", "text": question}] if question else None
    value = held.get("input.value")
    body = structure(value)
    prompt = _prompt(body)
    if prompt:
        return prompt
    if isinstance(body, dict):
        question = word(body, "task", "input", "question", "query", "prompt")
        return [{"role": "user", "text": question}] if question else None
    question = _text(value)
    return [{"role": "user", "text": question}] if question else None


def _answer(held: Mapping[str, Json], body: Json) -> Message | None:
    """The final answer of an agent."""
    if isinstance(body, dict):
        if isinstance(body.get("raw"), str):
            return {"role": "assistant", "text": body["raw"]}
        answers = [turn for turn in messages(body.get("messages")) if turn["role"] == "assistant"]
        if answers:
            return answers[-1]
        text = word(body, "output", "answer", "result", "text")
        if text:
            return {"role": "assistant", "text": text}
    text = _text(held.get("output.value"))
    return {"role": "assistant", "text": text} if text else None


def _text(value: Json) -> str | None:
    return None if value is None else plain(value)


def _dicts(value: Json) -> list[Message]:
    """The objects of a list; `input.value` of a graph node that runs tools is one."""
    if not isinstance(value, str) or not value.startswith("[{"):
        return []
    return [call for call in array(value) if isinstance(call, dict)]
