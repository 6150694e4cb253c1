"""OpenInference (Arize): `openinference.span.kind`, and messages flattened into attributes.

Its instrumentors differ in what they leave out.  LangGraph's agent is a CHAIN like its graph nodes,
and a tool's argument loses its name; CrewAI's and openai-agents' run is a CHAIN or AGENT around the
agent; CrewAI's model calls are not recorded, only the conversation inside an output text; smolagents
wraps a tool's arguments and names the span after a class.  Message indices may begin at 1, and a
text may stand in `content`, in `contents`, or in both.

Source: OpenInference semantic conventions, openinference-semantic-conventions 0.1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ....types import AGENT, FUNCTION, LLM, TOOL, Json
from ..content import Content
from .messages import Message, joined, message, messages, together, tool_result, with_wire_ids
from .reading import NODE, SpanReading, Usage, array, failure, first, indexed, number, under, usage, word
from .values import arguments_of, literal, parsed, plain, structure

_KINDS = {"LLM": LLM, "TOOL": TOOL, "AGENT": AGENT, "CHAIN": NODE, "PROMPT": NODE}
_REPR = re.compile(
    r"""(?:^|\s)source='(?P<source>[^']*)'.*?\scontent=(?P<content>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")""",
    re.DOTALL,
)
"""Speaker and text in the repr of one of AutoGen's messages."""
_LITERAL = r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
_METHODS = ("openinference.instrumentation.llama_index",)
"""Scopes whose spans are called after the methods that they are of."""
_CALL_EVENT = re.compile(r""""ToolCall\(tool_name='([^']*)', tool_kwargs=(\{.*?\}), tool_id='([^']*)'\)""")
_CHAT_ROLE = re.compile(r"ChatMessage\(_role=<ChatRole\.\w+: '(\w+)'>")
_CHAT_TEXT = re.compile(rf"TextContent\(text={_LITERAL}")
_CHAT_CALL = re.compile(rf"ToolCall\(tool_name='([^']*)', arguments=(\{{.*?\}}), id={_LITERAL}")
_CHAT_RESULT = re.compile(rf"ToolCallResult\(result={_LITERAL}, origin=ToolCall\(.*?, id={_LITERAL}")
"""Role, texts, calls and results in the repr of one of Haystack's messages."""
MARKS = frozenset({"openinference.span.kind"})
"""A span without it is none of `read`'s."""


def read(content: Content) -> SpanReading | None:
    """A span that says its OpenInference kind."""
    kind_name = word(content.attributes, "openinference.span.kind")
    if kind_name is None:
        return None
    kind = _KINDS.get(kind_name.upper(), FUNCTION)
    if content.scope in _METHODS and content.span.name.rpartition(".")[2].startswith("_"):
        kind = NODE  # a private method that prepares the call, and makes none
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
        reading.calls = _given_calls(content.attributes.get("input.value"))
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
    reading.input = _messages(held, "llm.input_messages.") or prompt_of(held.get("input.value"))
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
        results = _function_results(branch)
        if results:
            turns += results
        elif isinstance(inner, dict):
            turns += message(_unflattened(inner))
    return with_wire_ids(together(turns)) or None


def _function_results(branch: Mapping[str, Json]) -> list[Message]:
    """The results of AutoGen's one message for all tools, each of which is JSON beside the message."""
    held = branch.get("function")
    parts = [structure(result) for result in held.values()] if isinstance(held, dict) else []
    return messages([{"type": "tool_result", **part} for part in parts if isinstance(part, dict)])


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


def prompt_of(value: Json) -> list[Message] | None:
    """Messages of a request that stands as JSON in `input.value`."""
    body = structure(value)
    if isinstance(body, list):
        return messages(body) or None
    if not isinstance(body, dict):
        return None
    system: list[Message] = []
    if isinstance(body.get("instructions"), str):
        system = [{"role": "system", "text": body["instructions"]}]
    prompt = body.get("messages", body.get("input"))
    if isinstance(prompt, str):
        return [*system, {"role": "user", "text": prompt}]
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], list) and prompt[0]:
        prompt = prompt[0] if isinstance(prompt[0][0], dict | list) else prompt  # LangChain's batch of one
    return [*system, *messages(prompt)] or None


def _tool(content: Content, reading: SpanReading) -> None:
    held = content.attributes
    reading.name = word(held, "tool.name", "tool_call.function.name") or content.span.name
    arguments = arguments_of(first(held, "tool_call.function.arguments", "input.value"))
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
    if reading.transcript is None:
        reading.transcript = _haystack(answer) or None
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
    prompt = prompt_of(body)
    if not prompt and isinstance(body, dict):
        prompt = _haystack(body) or _autogen(body.get("messages"))
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
        spoken = _haystack(body) or _autogen(body.get("messages")) or messages(body.get("messages"))
        answers = [turn for turn in spoken if turn["role"] == "assistant"]
        if answers:
            return answers[-1]
        text = word(body, "output", "answer", "result", "text")
        if text:
            return {"role": "assistant", "text": text}
    text = _text(held.get("output.value"))
    # LlamaIndex ends a run with an event, whose repr is cut: the last model call has the answer whole.
    return {"role": "assistant", "text": text} if text and not text.startswith("StopEvent(") else None


def _autogen(turns: Json) -> list[Message]:
    """AutoGen's messages: objects with a source, or their reprs; its events of tools stand in spans of their own."""
    conversation: list[Message] = []
    for turn in turns if isinstance(turns, list) else ():
        if isinstance(turn, dict):
            source, spoken = turn.get("source"), turn.get("content")
        else:
            shown = _REPR.search(turn) if isinstance(turn, str) else None
            source, spoken = (shown["source"], literal(shown["content"])) if shown else (None, None)
        if isinstance(source, str) and isinstance(spoken, str):
            conversation.append({"role": "user" if source == "user" else "assistant", "text": spoken})
    return conversation


def _haystack(body: Mapping[str, Json]) -> list[Message]:
    """The messages of a Haystack agent, which are reprs; of a pipeline, those of its one component that has any."""
    data = body.get("data")
    held = data if isinstance(data, dict) else body
    turns = held.get("messages")
    if turns is None:
        inner = [part["messages"] for part in held.values() if isinstance(part, dict) and "messages" in part]
        turns = inner[0] if len(inner) == 1 else None
    conversation: list[Message] = []
    for turn in turns if isinstance(turns, list) else ():
        role = _CHAT_ROLE.match(turn) if isinstance(turn, str) else None
        if role is None:
            return []
        parts: list[Json] = [{"type": "text", "text": literal(text)} for text in _CHAT_TEXT.findall(turn)]
        if role[1] == "assistant":
            for name, arguments, id in _CHAT_CALL.findall(turn):
                parts.append(
                    {"type": "tool_call", "name": name, "arguments": literal(arguments), "id": literal(id)}
                )
        for text, id in _CHAT_RESULT.findall(turn):
            parts.append({"type": "tool_result", "tool_call_id": literal(id), "content": literal(text)})
        conversation += message({"role": role[1], "parts": parts})
    return conversation


def _text(value: Json) -> str | None:
    return None if value is None else plain(value)


def _given_calls(value: Json) -> list[Message]:
    """The calls that a graph's node for tools was given: LangGraph's as JSON, LlamaIndex's as the repr of an event."""
    event = _CALL_EVENT.search(value) if isinstance(value, str) and '"ev"' in value else None
    if event is not None:
        name, arguments, id = event.groups()
        return [{"name": name, "args": literal(arguments), "id": id}]
    return [call for call in _dicts(value) if "args" in call]


def _dicts(value: Json) -> list[Message]:
    """The objects of a list; `input.value` of a graph node that runs tools is one."""
    if not isinstance(value, str) or not value.startswith("[{"):
        return []
    return [call for call in array(value) if isinstance(call, dict)]
