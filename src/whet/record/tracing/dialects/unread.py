"""What a span holds beside what its step says: kept in the step's info, so that no text is lost unseen.

An attribute that no dialect reads is kept as it came.  One that is read is kept too where a sentence in it is nowhere
in the step: a field that no reader knows, or a message of a form that none has met.  The plumbing of a request
(addresses, code places, the instrumentor's own bookkeeping) is not.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from ....types import Json
from ..content import Content
from .reading import NAMES, SHAPES, SpanReading
from .values import parsed, structure

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
        "gen_ai.usage.cost",
        "llm.cost.total",
        "langfuse.observation.cost_details",
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
    quoted = reading.quoted
    for content in contents:
        attributes = content.attributes
        few = len(attributes) <= NAMES
        others, said = (_parted if few else _parted.__wrapped__)(tuple(attributes))
        for key in others:
            if (value := attributes[key]) is not None:
                _keep(kept, key, value)
        for key in said:
            value = attributes[key]
            if value is None or value is reading.result:
                continue
            if key in quoted:
                quoted_value, told_by = quoted[key]
                if quoted_value is value and (
                    told_by is reading.input or told_by is reading.output or told_by is reading.arguments
                ):
                    continue
            spoken.append((key, value))
        for event in content.events:
            if event.name not in (EVALUATION, "exception"):
                spoken += [(f"{event.name}: {key}", value) for key, value in event.attributes.items()]
                spoken.append((f"{event.name}: body", event.body))
    if spoken:
        told = StepTexts([*_told(reading), *kept.values()])
        for key, value in spoken:
            if not told.says(value):
                _keep(kept, key, value)
    return kept


@functools.lru_cache(maxsize=SHAPES)
def _parted(keys: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Of the names of a span's attributes those that no step says, and those of what was said."""
    says = [(key, _says(key)) for key in keys]
    return tuple(key for key, said in says if said is False), tuple(key for key, said in says if said)


@functools.lru_cache(maxsize=4096)
def _says(key: str) -> bool | None:
    """True of an attribute with what was said, None of one that is read elsewhere or is plumbing, else False."""
    return None if key in READ or key.startswith(PLUMBING) else key.startswith(CONTENT)


class StepTexts:
    """The texts of a step, and whether one of its attributes says more.

    Nearly all that is said stands in the step word for word.  So the texts of an attribute are looked for in the step
    as both stand in JSON, which takes a tenth of walking through them; where one is not found so, both are walked.
    """

    def __init__(self, said: list[Json]) -> None:
        self._said = said
        self._encoded: str | None = None
        self._texts: str | None = None

    def says(self, value: Json) -> bool:
        """True if every sentence in a value is in the step."""
        if value is None or (isinstance(value, str) and (" " not in value or self._quotes(value))):
            return True
        if self._texts is None:
            self._texts = "\0".join(leaves(self._said))
        return not any(leaf not in self._texts for leaf in leaves(value) if _prose(leaf))

    def _quotes(self, value: str) -> bool:
        if self._encoded is None:
            self._encoded = _encoded(self._said)
        if value[:1] not in _JSON:
            return (_encoded(value) or value) in self._encoded
        try:
            _any_json(value)
        except (msgspec.DecodeError, RecursionError, ValueError):
            return False  # it only begins as JSON: what stands between its texts was said, too
        # Cut at the quotation marks where none is escaped: the texts are every second piece.
        texts = _QUOTED.findall(value) if "\\" in value else value.split('"')[1::2]
        # With their quotation marks: a text that another one ends with is another text.
        return all(f'"{text}"' in self._encoded for text in texts if " " in text)


def _encoded(value: Json) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError):  # what no JSON holds
        return ""


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
_QUOTED = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"')
"""A text, as JSON has it."""
_any_json = msgspec.json.Decoder(msgspec.Raw).decode
"""Steps over a value and makes nothing of it."""


def leaves(value: Json) -> Iterator[str]:
    """The texts in a value; a text that is JSON is looked into."""
    # The abstract Mapping last: its check costs more than all others, for each value of a conversation.
    pending = [value]
    while pending:
        held = pending.pop()
        if isinstance(held, str):
            if held[:1] not in _JSON:
                yield held
                continue
            inner = parsed(held) if held[:1] == '"' else structure(held)
            if inner is None or inner == held:
                yield held
            else:
                pending.append(inner)
        elif isinstance(held, dict):
            pending += held.values()
        elif isinstance(held, list | tuple):
            pending += held
        elif isinstance(held, Mapping):
            pending += held.values()


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


def _prose(leaf: str) -> bool:
    """True of a text that somebody may have said; a word alone is a role, a type or an id."""
    return " " in leaf.strip()
