"""An evaluator beside its program, for a search: stages, numbers, instances and texts as plain JSON.

What comes from here is written where the program could have written it: it steers, and proves nothing.
"""

from __future__ import annotations

import json
import math
import os
import sys
from typing import Any

from .worker import awaited, load, stand_in_for_openevolve

_TEXT = 20_000
"""Characters of one artifact that are kept."""
_SCORE = "combined_score"


def beside(program: str) -> None:
    """Let a program, or an evaluator, import the other files that it consists of."""
    folder = os.path.dirname(program)
    if folder not in sys.path:
        sys.path.insert(0, folder)


_evaluators: dict[str, Any] = {}


def evaluator_at(path: str) -> Any:
    """The evaluator in a file, loaded once for all that one candidate is asked."""
    path = os.path.abspath(path)
    os.chdir(os.path.dirname(path))
    if path not in _evaluators:
        stand_in_for_openevolve()
        beside(path)
        _evaluators[path] = load("evaluation_module", path)
    return _evaluators[path]


def stages(evaluator: str) -> list[str]:
    """Which of the functions of an evaluator there are, and whether it says itself what behaviour is."""
    module = evaluator_at(evaluator)
    candidates = ("evaluate", "evaluate_stage1", "evaluate_stage2", "evaluate_stage3", "behaviour")
    return [name for name in candidates if callable(getattr(module, name, None))]


def evaluate(evaluator: str, function: str, program: str) -> dict[str, Any]:
    """The result of one function of the evaluator on a program: `{"metrics", "artifacts"}`."""
    program = os.path.abspath(program)
    beside(program)
    return measured(getattr(evaluator_at(evaluator), function)(program))


def measured(value: Any) -> dict[str, Any]:
    value = awaited(value)
    metrics = value if isinstance(value, dict) else getattr(value, "metrics", None)
    artifacts = {} if isinstance(value, dict) else getattr(value, "artifacts", None) or {}
    if not isinstance(metrics, dict):
        raise TypeError(
            f"the evaluator returned {type(value).__name__}, not a dict of numbers or an EvaluationResult"
        )
    numbers = {str(name): _number(measure) for name, measure in metrics.items()}
    # Refused, for it would be left out below, and the mean of the other numbers be the score.
    if numbers.get(_SCORE, 0.0) is None:
        raise ValueError(
            f"the evaluator returned {_SCORE} = {metrics[_SCORE]!r:.80}, which is not a finite number"
        )
    broken = [
        name for name, measure in metrics.items() if isinstance(measure, float) and not math.isfinite(measure)
    ]
    if _SCORE not in numbers and broken:  # of the same kind: the mean would rise by what is left out
        raise ValueError(
            f"the evaluator returned {broken[0]} = {metrics[broken[0]]!r}, which is not a finite number"
        )
    # A program that failed has its reason among the numbers: `"error": "..."`.
    texts = {name: text for name, text in metrics.items() if isinstance(text, str)} | artifacts
    return {
        "metrics": {name: number for name, number in numbers.items() if number is not None},
        "instances": _instances(metrics),
        "artifacts": {str(name): _text(text) for name, text in list(texts.items())[:50]},
    }


def _number(value: Any) -> float | None:
    """A finite number, a flag, or None for anything else."""
    if isinstance(value, (bool, int)):
        return value
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def _instances(metrics: Any) -> dict[str, float]:
    instances = metrics.get("instances")
    if isinstance(instances, (list, tuple)):
        instances = dict(enumerate(instances))
    if not isinstance(instances, dict):
        return {}
    numbers = {str(name): _number(measure) for name, measure in instances.items()}
    return {name: number for name, number in numbers.items() if number is not None}


def _text(value: Any) -> str:
    if isinstance(value, (bytes, bytearray)):
        text = bytes(value).decode("utf-8", "replace")
    elif isinstance(value, str):
        text = value
    else:
        try:
            text = json.dumps(value)
        except (TypeError, ValueError):
            text = repr(value)
    return text if len(text) <= _TEXT else text[:_TEXT] + f"\n[{len(text) - _TEXT} more characters]"
