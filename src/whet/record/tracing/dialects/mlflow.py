"""MLflow's SDK: `mlflow.spanType`, and inputs and outputs as JSON in `mlflow.spanInputs` and `mlflow.spanOutputs`.

Every attribute is JSON in a text.  A model call of an autolog has the request and the answer of the API as they were;
that of another integration has messages in its own form.

Source: mlflow 3 (Python), `mlflow.tracing.constant.SpanAttributeKey`.
"""

from __future__ import annotations

from collections.abc import Mapping

from ....types import AGENT, FUNCTION, LLM, TOOL, Json
from ..content import Content
from .calls import answers_of
from .messages import Message, joined, messages, tool_result, with_wire_ids
from .openinference import prompt_of
from .reading import NODE, SpanReading, failure, number, usage, word
from .values import called_with, parsed, plain, structure

_TYPE, _INPUT, _OUTPUT = "mlflow.spanType", "mlflow.spanInputs", "mlflow.spanOutputs"
MARKS = frozenset({_TYPE})
"""A span without it is none of `read`'s."""
_KINDS = {
    "LLM": LLM,
    "CHAT_MODEL": LLM,
    "TOOL": TOOL,
    "AGENT": AGENT,
    "CHAIN": NODE,
    "WORKFLOW": NODE,
    "TASK": NODE,
}


def read(content: Content) -> SpanReading | None:
    """A span of MLflow; a type that is not known is a function."""
    held = content.attributes
    type = parsed(held.get(_TYPE))
    if not isinstance(type, str):
        return None
    kind = _KINDS.get(type.upper(), FUNCTION)
    if not content.span.parent and kind in (FUNCTION, NODE):
        kind = AGENT
    # MLflow numbers the spans of a trace that have one name.
    name = content.span.name
    reading = SpanReading(kind, name, named=type.upper() == "AGENT", error=failure(content))
    inputs, outputs = parsed(held.get(_INPUT)), parsed(held.get(_OUTPUT))
    if kind == LLM:
        _model_call(held, inputs, outputs, reading)
    elif kind == AGENT:
        reading.fill = lambda agent: _agent(inputs, outputs, agent)
    elif kind == TOOL:
        reading.arguments = called_with(inputs)
        reading.result, reading.tool_call_id = tool_result(outputs if outputs is None else plain(outputs))
    elif kind == FUNCTION:
        reading.arguments = called_with(inputs)
        reading.result = None if outputs is None else plain(outputs)
    elif kind == NODE:
        reading.fill = lambda agent: _agent(inputs, outputs, agent)
    return reading


def _model_call(held: Mapping[str, Json], inputs: Json, outputs: Json, reading: SpanReading) -> None:
    request = inputs if isinstance(inputs, dict) else {}
    stated = parsed(held.get("mlflow.llm.model"))
    reading.model = word(request, "model", "model_name") or (stated if isinstance(stated, str) else None)
    answer = outputs if isinstance(outputs, dict) else {}
    reading.response_model, reading.response_id = word(answer, "model"), word(answer, "id")
    spent = structure(held.get("mlflow.chat.tokenUsage"))
    counts = spent if isinstance(spent, dict) else {}
    reading.usage = usage(
        number(counts, "input_tokens"),
        number(counts, "output_tokens"),
        number(counts, "cache_read_input_tokens"),
        number(counts, "reasoning_tokens"),
    )
    reading.input = with_wire_ids(prompt_of(inputs) or _said("user", inputs)) or None
    if reading.error is None:
        answers, reading.finish = answers_of(answer)
        if not answers:
            spoken = messages(answer.get("messages", outputs if isinstance(outputs, list) else [answer]))
            answers = [*filter(None, [joined(spoken)])] or _said("assistant", outputs)
        reading.output, reading.others = (answers[0] if answers else None), answers[1:]


def _agent(inputs: Json, outputs: Json, reading: SpanReading) -> None:
    if reading.input is None:
        asked = called_with(inputs)
        prompt = prompt_of(asked) or (prompt_of(next(iter(asked.values()))) if _single(asked) else None)
        reading.input = [turn for turn in prompt or () if turn["role"] == "user"][-1:] or _said("user", asked)
    if reading.output is None and reading.error is None:
        body = outputs if isinstance(outputs, dict) else {}
        spoken = answers_of(body)[0] or [
            turn for turn in messages(body.get("messages", body.get("output"))) if turn["role"] == "assistant"
        ]
        reading.output = spoken[-1] if spoken else next(iter(_said("assistant", outputs)), None)


def _single(value: Json) -> bool:
    return isinstance(value, dict) and len(value) == 1


def _said(role: str, value: Json) -> list[Message]:
    """What was said: a lone text in an object, else the value as text."""
    while _single(value):
        (value,) = value.values()
    return [] if value is None else [{"role": role, "text": plain(value)}]
