"""What a span holds beside what its step says: kept in the step's info, so that no text is lost unseen.

An attribute that no dialect reads is kept as it came.  One that is read is kept too where a sentence in it is nowhere
in the step: a field that no reader knows, or a message of a form that none has met.  The plumbing of a request
(addresses, code places, the instrumentor's own bookkeeping) is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from ....types import Json
from ..content import Content
from .messages import Remembered, parsed, raw_messages, structure
from .reading import SpanReading

_encode = msgspec.json.Encoder().encode
EVALUATION = "gen_ai.evaluation.result"
READ = frozenset(
    {
        # OpenTelemetry's GenAI conventions
        "gen_ai.operation.name",
        "gen_ai.request.model",
        "gen_ai.response.model",
        "gen_ai.response.id",
        "gen_ai.response.finish_reasons",
        "gen_ai.response.finish_reason",
        "gen_ai.response.stop_reason",
        "gen_ai.usage.input_tokens",
        "gen_ai.usage.output_tokens",
        "gen_ai.usage.prompt_tokens",
        "gen_ai.usage.completion_tokens",
        "gen_ai.usage.cache_read.input_tokens",
        "gen_ai.usage.cache_read_input_tokens",
        "gen_ai.usage.reasoning.output_tokens",
        "gen_ai.usage.reasoning_tokens",
        "gen_ai.usage.total_tokens",
        "gen_ai.agent.name",
        "gen_ai.workflow.name",
        "gen_ai.tool.name",
        "gen_ai.tool.call.id",
        "gen_ai.conversation.id",
        "error.type",
        "session.id",
        "user.id",
        "enduser.id",
        "metadata",
        # OpenInference
        "openinference.span.kind",
        "llm.model_name",
        "llm.request.model_name",
        "llm.response.model_name",
        "llm.finish_reason",
        "llm.token_count.prompt",
        "llm.token_count.completion",
        "llm.token_count.total",
        "llm.token_count.prompt_details.cache_read",
        "llm.token_count.completion_details.reasoning",
        "embedding.model_name",
        "reranker.model_name",
        "input.mime_type",
        "output.mime_type",
        "tool.name",
        "tool.id",
        "tool_call.id",
        "tool_call.function.name",
        "agent.name",
        # Traceloop
        "traceloop.span.kind",
        "traceloop.entity.name",
        "traceloop.entity.path",
        "traceloop.workflow.name",
        "llm.request.type",
        "llm.usage.total_tokens",
        "llm.is_streaming",
        "gen_ai.is_streaming",
        # Langfuse, PydanticAI
        "langfuse.observation.type",
        "langfuse.observation.model.name",
        "langfuse.observation.usage_details",
        "agent_name",
        "model_name",
        "pydantic_ai.new_message_index",
        "whet.run",
    }
)
"""Attributes that have a field of the step or of its run, and say nothing else."""
CONTENT = (
    "gen_ai.input.messages",
    "gen_ai.output.messages",
    "gen_ai.system_instructions",
    "gen_ai.tool.call.arguments",
    "gen_ai.tool.call.result",
    "gen_ai.task.input",
    "gen_ai.task.output",
    "input.value",
    "output.value",
    "llm.input_messages.",
    "llm.output_messages.",
    "llm.invocation_parameters",
    "tool.parameters",
    "tool_call.function.arguments",
    "tool_arguments",
    "tool_response",
    "traceloop.entity.input",
    "traceloop.entity.output",
    "traceloop.association.properties.",
    "langfuse.observation.input",
    "langfuse.observation.output",
    "langfuse.trace.input",
    "langfuse.trace.output",
    "pydantic_ai.all_messages",
    "all_messages_events",
    "final_result",
    "events",
    "gen_ai.prompt",
    "gen_ai.completion",
    "crewai.",
    "gcp.vertex.agent.",
    "request_data",
    "response_data",
    "raw_input",
    "response",
    "mlflow.",
    "input",
    "output",
)
"""Attributes with what was said, or the beginnings of their names; kept where the step does not say all of it."""
PLUMBING = (
    "server.",
    "client.",
    "network.",
    "net.",
    "http.",
    "url.",
    "code.",
    "thread.",
    "telemetry.",
    "service.",
    "deployment.",
    "logfire.",
    "otel.",
    "langsmith.",
    "gen_ai.openai.api_base",
    "gen_ai.headers",
    "gen_ai.event.",
    "final_result_type",
)


def unread(contents: Iterable[Content], reading: SpanReading) -> dict[str, Json]:
    """The attributes of a step's spans of which something is not in its reading; the step's own span goes first.

    Where a second span of the step has another value under the same name, it is kept as `NAME #2`.
    """
    kept: dict[str, Json] = {}
    spoken: list[tuple[str, Json]] = []
    for content in contents:
        for key, value in content.attributes.items():
            if key in READ or value is None or key.startswith(PLUMBING):
                continue
            if key.startswith(CONTENT):
                spoken.append((key, value))
            else:
                _keep(kept, key, value)
        for event in content.events:
            if event.name not in (EVALUATION, "exception"):
                spoken += [(f"{event.name}: {key}", value) for key, value in event.attributes.items()]
                spoken.append((f"{event.name}: body", event.body))
    if spoken:
        told = _Told([_told(reading), list(kept.values())])
        for key, value in spoken:
            if not told.holds(value):
                _keep(kept, key, value)
    return kept


class _Told:
    """The texts in a step, to ask whether it holds those of an attribute.

    Nearly always it does, and that the step's JSON shows: looking at each value of a conversation in Python takes
    several times as long as writing it and finding a text in it.  Only a text that is not found so may be in
    JSON that is a text itself, with other escapes, and is looked for among the texts one by one.
    """

    def __init__(self, values: list[Json]) -> None:
        self._values = values
        self._texts: str | None = None
        try:
            self._json = _encode(values)
        except (msgspec.MsgspecError, TypeError, ValueError, RecursionError):
            self._json = b""

    def holds(self, value: Json) -> bool:
        """True if every sentence in a value is in the step."""
        return all(self._said(text) for text in sentences(value))

    def _said(self, text: str) -> bool:
        try:
            if _encode(text)[1:-1] in self._json:
                return True
        except ValueError:  # half of a character, which no JSON has
            pass
        if self._texts is None:
            self._texts = "\0".join(texts(self._values))
        return text in self._texts


def _keep(kept: dict[str, Json], key: str, value: Json) -> None:
    name, number = key, 1
    while name in kept:
        if kept[name] == value:
            return
        number += 1
        name = f"{key} #{number}"
    kept[name] = value


def evaluations(contents: Iterable[Content]) -> list[Json]:
    """The evaluations that events of a step's spans hold, as OpenTelemetry has them: name, score, label."""
    return [
        dict(event.attributes) for content in contents for event in content.events if event.name == EVALUATION
    ]


_JSON = frozenset('"{[')
"""How a text begins that may be JSON."""


def texts(value: Json) -> list[str]:
    """The texts in a value; a text that is JSON is looked into."""
    found: list[str] = []
    pending = [value]
    for held in pending:  # which grows meanwhile
        if isinstance(held, str):
            if held[:1] not in _JSON:
                found.append(held)
                continue
            inner = parsed(held) if held[:1] == '"' else structure(held)
            if inner is None or inner == held:
                found.append(held)
            else:
                pending.append(inner)
        elif isinstance(held, dict):
            pending += held.values()
        elif isinstance(held, list | tuple):
            pending += held
        # The abstract Mapping last: its check costs more than all others, for each value of a conversation.
        elif isinstance(held, Mapping):
            pending += held.values()
    return found


def sentences(value: Json) -> Sequence[str]:
    """The texts in a value that somebody may have said; a word alone is a role, a type or an id."""
    if isinstance(value, str) and value[:1] == "[":
        try:
            raw = raw_messages(value)
        except (msgspec.DecodeError, RecursionError, ValueError):
            return _prose([value])
        return [sentence for message in raw for sentence in _in_message(bytes(message))]
    return _prose(texts(value))


def _prose(found: Sequence[str]) -> tuple[str, ...]:
    return tuple([text for text in found if " " in text and " " in text.strip()])


_in_message = Remembered(lambda raw: _prose(texts(msgspec.json.decode(raw))))


def _told(reading: SpanReading) -> list[Json]:
    return [
        reading.name,
        reading.input,
        reading.output,
        reading.others,
        reading.arguments,
        reading.result,
        reading.transcript,
        None if reading.error is None else reading.error[1],
        reading.extra,
    ]
