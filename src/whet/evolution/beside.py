"""Runs inside the sandbox, beside a program and its evaluator; it is staged as text, never imported here.

It uses the standard library alone and gives plain JSON back: metrics, artifacts, and what a program
did on recorded calls.  What comes from here is written where the program could have written it.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import inspect
import json
import math
import os
import random
import sys
import threading
import types
from typing import Any

_TEXT = 20_000
"""Characters of one artifact that are kept."""
_EVENTS = 60_000
"""Calls looked at before the recording ends: a profiled call costs ten plain ones."""
_CALLS = 512
"""Calls kept per function, drawn evenly: a change in one input of a hundred is missed once in 170."""
_BYTES = 300_000


class EvaluationResult:
    """What evaluators written for OpenEvolve return: numbers, and texts beside them."""

    def __init__(self, metrics: Any, artifacts: Any = None) -> None:
        self.metrics = metrics
        self.artifacts = artifacts or {}

    @classmethod
    def from_dict(cls, metrics: Any) -> EvaluationResult:
        return cls(metrics)

    def to_dict(self) -> Any:
        return self.metrics

    def has_artifacts(self) -> bool:
        return bool(self.artifacts)


def _stand_in() -> None:
    """Let `from openevolve.evaluation_result import EvaluationResult` work without the package."""
    package: Any = types.ModuleType("openevolve")
    module: Any = types.ModuleType("openevolve.evaluation_result")
    package.__path__ = []
    package.evaluation_result = module
    package.EvaluationResult = module.EvaluationResult = EvaluationResult
    sys.modules.update({"openevolve": package, "openevolve.evaluation_result": module})


def _load(path: str, name: str) -> Any:
    folder = os.path.dirname(os.path.abspath(path))
    if folder not in sys.path:
        sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _evaluator(path: str) -> Any:
    _stand_in()
    path = os.path.abspath(path)
    os.chdir(os.path.dirname(path))
    return _load(path, "evaluation_module")


def stages(evaluator: str) -> list[str]:
    """Which of the functions of an evaluator there are, and whether it says itself what behaviour is."""
    module = _evaluator(evaluator)
    wanted = ("evaluate", "evaluate_stage1", "evaluate_stage2", "evaluate_stage3", "behaviour")
    return [name for name in wanted if callable(getattr(module, name, None))]


def evaluate(evaluator: str, function: str, program: str) -> dict[str, Any]:
    """What one function of the evaluator makes of a program: `{"metrics", "artifacts"}`."""
    program = os.path.abspath(program)
    return _result(getattr(_evaluator(evaluator), function)(program))


def _result(value: Any) -> dict[str, Any]:
    if inspect.isawaitable(value):
        import asyncio

        value = asyncio.run(_awaited(value))
    metrics = value if isinstance(value, dict) else getattr(value, "metrics", None)
    artifacts = {} if isinstance(value, dict) else getattr(value, "artifacts", None) or {}
    if not isinstance(metrics, dict):
        raise TypeError(f"the evaluator returned {type(value).__name__}, not a dict or an EvaluationResult")
    kept = {str(name): _number(found) for name, found in metrics.items()}
    return {
        "metrics": {name: found for name, found in kept.items() if found is not None},
        "instances": _instances(metrics),
        "artifacts": {str(name): _text(found) for name, found in list(artifacts.items())[:50]},
    }


async def _awaited(value: Any) -> Any:
    return await value


def _number(value: Any) -> float | None:
    """A finite number, a flag, or None for what is no measurement."""
    if isinstance(value, (bool, int)):
        return value
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def _instances(metrics: Any) -> dict[str, float]:
    given = metrics.get("instances")
    if isinstance(given, (list, tuple)):
        given = dict(enumerate(given))
    if not isinstance(given, dict):
        return {}
    kept = {str(name): _number(found) for name, found in given.items()}
    return {name: found for name, found in kept.items() if found is not None}


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


def record(evaluator: str, function: str, program: str) -> dict[str, Any]:
    """As `evaluate`, and the calls that the evaluator made of the program's functions: `"calls"`."""
    program = os.path.abspath(program)
    draw = random.Random(0)
    kept: dict[str, list[Any]] = {}
    counts: dict[str, int] = {}
    events = [0]

    def profile(frame: types.FrameType, event: str, argument: Any) -> None:
        if event != "call" or frame.f_code.co_filename != program or frame.f_code.co_name.startswith("<"):
            return
        above = frame.f_back
        if above is None or above.f_code.co_filename == program:
            return
        events[0] += 1
        if events[0] > _EVENTS:
            sys.setprofile(None)
            return
        code = frame.f_code
        if code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS) or code.co_kwonlyargcount:
            return
        name = getattr(code, "co_qualname", code.co_name)
        if "." in name:
            return  # a method needs its object
        seen = counts[name] = counts.get(name, 0) + 1
        place = seen - 1 if seen <= _CALLS else draw.randrange(seen)
        if place >= _CALLS:
            return
        try:
            arguments = [_encode(frame.f_locals[each]) for each in code.co_varnames[: code.co_argcount]]
        except (TypeError, ValueError, KeyError):
            return
        calls = kept.setdefault(name, [])
        if place < len(calls):
            calls[place] = arguments
        else:
            calls.append(arguments)

    module = _evaluator(evaluator)
    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        value = getattr(module, function)(program)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    found: list[Any] = []
    size = 0
    for name, calls in kept.items():
        for arguments in calls:
            size += len(json.dumps(arguments))
            if size <= _BYTES:
                found.append([name, arguments])
    return {**_result(value), "calls": found}


def _encode(value: Any, depth: int = 0) -> Any:
    """JSON that `_decode` turns back; refuses what is large or is no plain value."""
    if depth > 6:
        raise ValueError("too deep")
    if value is None or isinstance(value, (bool, int, str)):
        if isinstance(value, str) and len(value) > 4000:
            raise ValueError("too long")
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, (list, tuple)) and len(value) <= 400:
        items = [_encode(item, depth + 1) for item in value]
        return items if isinstance(value, list) else {"tuple": items}
    if isinstance(value, dict) and len(value) <= 200:
        return {"dict": [[_encode(key, depth + 1), _encode(item, depth + 1)] for key, item in value.items()]}
    if type(value).__module__ == "numpy" and getattr(value, "size", 401) <= 400:
        return {"array": value.tolist(), "type": str(value.dtype)}
    raise TypeError(type(value).__name__)


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return [_decode(item) for item in value]
    if isinstance(value, dict):
        if "float" in value:
            return float(value["float"])
        if "tuple" in value:
            return tuple(_decode(item) for item in value["tuple"])
        if "dict" in value:
            return {_hashable(_decode(key)): _decode(item) for key, item in value["dict"]}
        import numpy

        return numpy.array(value["array"], dtype=value["type"])
    return value


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def behave(program: str, calls: list[Any]) -> str:
    """Digest of what a program returns and raises on recorded calls, "" where that says nothing.

    Importing the program is part of it: one that does not import raises here, at the price of a
    fraction of an evaluation.
    """
    module = _load(os.path.abspath(program), "candidate_program")
    said = hashlib.blake2b(digest_size=12)
    answered = False
    for name, arguments in calls:
        function = getattr(module, name, None)
        if not callable(function):
            return ""
        random.seed(0)
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed(0)
        try:
            value = _said(function(*_decode(arguments)))
            answered = answered or value is not None
        except Exception as error:
            value = "raised " + type(error).__name__
        if value is None:
            return ""
        said.update(value.encode() + b"\0")
    return said.hexdigest() if answered else ""


def _said(value: Any, depth: int = 0) -> str | None:
    """A value as text in which equal values are equal; None for what has no such text."""
    if isinstance(value, float):
        return f"{value:.12g}"
    if value is None or isinstance(value, (bool, int, str, bytes)):
        return repr(value)
    if isinstance(value, (list, tuple)) and depth < 6:
        return _joined(type(value).__name__, [_said(item, depth + 1) for item in value])
    if isinstance(value, (set, frozenset)) and depth < 6:
        return _joined("set", sorted(_said(item, depth + 1) or "?" for item in value))
    if isinstance(value, dict) and depth < 6:
        return _joined("dict", [_said(pair, depth + 1) for pair in value.items()])
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        return _said(value.tolist(), depth + 1)
    return None


def _joined(kind: str, parts: list[str | None] | list[str]) -> str | None:
    known = [part for part in parts if part is not None]
    return f"{kind}({','.join(known)})" if len(known) == len(parts) else None


def behaviour(evaluator: str, program: str) -> str:
    """Digest of what the evaluator itself calls the behaviour of a program."""
    value = _evaluator(evaluator).behaviour(os.path.abspath(program))
    text = _said(value) or base64.b64encode(repr(value).encode()).decode()
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()
