"""A span that no dialect knows: a function somebody traced, or the plumbing around a model call.

Which of the two it is depends on its neighbours: among spans that a dialect knows it is left out of
the steps, in a trace that has none it is a step of kind `function`.
"""

from __future__ import annotations

from ..content import Content
from .messages import parsed, plain
from .reading import OTHER, Reading, failure, first

_INPUT = ("input.value", "input", "mlflow.spanInputs", "ai.prompt")
_OUTPUT = ("output.value", "output", "mlflow.spanOutputs", "ai.response.text")

_NAMES = frozenset((*_INPUT, *_OUTPUT))


def read(content: Content) -> Reading:
    """Its name, its failure, and input and output under the names that are in use for them."""
    held = content.attributes
    reading = Reading(OTHER, content.span.name, error=failure(content))
    if _NAMES.isdisjoint(held):
        return reading
    result = first(held, *_OUTPUT)
    reading.arguments = parsed(first(held, *_INPUT))
    reading.result = None if result is None else plain(result)
    return reading
