"""CrewAI under OpenLLMetry: `crewai.crew.*`, `crewai.task.*` and `crewai.agent.*` beside Traceloop's own attributes.

The span of an agent has its name and nothing that was said: the question is the description of the task around
it, and the answer is that task's output.  A crew is the run; it is its one agent, or stands around several.

Source: opentelemetry-instrumentation-crewai 0.36 to 0.62.
"""

from __future__ import annotations

from ....types import AGENT, Json
from ..content import Content
from .messages import Message
from .reading import SpanReading, array, failure, first, word
from .values import parsed, plain

MARKS = frozenset({"crewai.task.description", "crewai.crew.tasks"})
"""A span without any of these attributes is none of `read`'s."""


def read(content: Content) -> SpanReading | None:
    """A crew or a task."""
    held = content.attributes
    if "crewai.crew.tasks" in held:
        name = word(held, "crewai.crew.name")
        tasks = [
            task.get("description") for task in array(held["crewai.crew.tasks"]) if isinstance(task, dict)
        ]
        question = "\n".join(task for task in tasks if isinstance(task, str))
        answer = first(held, "crewai.crew.result", "crewai.crew.output")
    elif "crewai.task.description" in held:
        name = word(held, "crewai.task.agent")
        question = plain(held["crewai.task.description"])
        answer = first(held, "traceloop.entity.output", "crewai.task.output")
    else:
        return None
    # Not named: the agent inside is, and it is the same run.
    reading = SpanReading(AGENT, name or content.span.name, error=failure(content))
    reading.extra["workflow"] = True
    reading.input = [{"role": "user", "text": question}] if question else None
    reading.output = None if answer is None else _answer(answer)
    return reading


def _answer(value: Json) -> Message:
    answer = parsed(value)
    return {"role": "assistant", "text": answer if isinstance(answer, str) else plain(value)}
