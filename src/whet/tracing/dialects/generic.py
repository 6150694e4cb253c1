"""A span that no dialect knows: a function somebody traced, or the plumbing around a model call.

Which of the two it is depends on its neighbours: among spans that a dialect knows it is left out of
the steps, in a trace that has none it is a step of kind `function`.
"""

from __future__ import annotations

from ..content import Content
from .messages import parsed, plain
from .reading import OTHER, Reading, failure

_INPUT = ("input.value", "input", "mlflow.spanInputs", "ai.prompt")
_OUTPUT = ("output.value", "output", "mlflow.spanOutputs", "ai.response.text")

_NAMES = frozenset((*_INPUT, *_OUTPUT))


def read(content: Content) -> Reading:
    """Its name, its failure, and input and output under the names that are in use for them."""
    held = content.attributes
    reading = Reading(OTHER, content.span.name, error=failure(content))
    if _NAMES.isdisjoint(held):
        return reading
    given = next((held[key] for key in _INPUT if held.get(key) is not None), None)
    result = next((held[key] for key in _OUTPUT if held.get(key) is not None), None)
    reading.arguments = parsed(given)
    reading.result = None if result is None else plain(result)
    return reading
