"""A program's behaviour on calls that its evaluator made of it.

The calls are recorded once, with the start program; a candidate that answers all of them as another
did behaves like it, as far as that evaluator can see, and need not be evaluated.
"""

from __future__ import annotations

import base64
import hashlib
import importlib
import json
import math
import os
import sys
import types
from typing import Any

from .beside import beside, evaluator_at, measured
from .worker import load

_EVENTS = 60_000
"""Calls looked at before the recording ends: a profiled call costs ten plain ones."""
_CALLS = 512
"""Calls kept per function, drawn evenly: a change in one input of a hundred is missed once in 170."""
_BYTES = 300_000


def record(evaluator: str, function: str, program: str) -> dict[str, Any]:
    """As `evaluate`, and the calls that the evaluator made of the program's functions: `"calls"`."""
    # What only this needs, which runs once in a search, would be copied for every evaluation.
    import inspect
    import random
    import threading

    program = os.path.abspath(program)
    beside(program)
    draw = random.Random(0)
    calls_of: dict[str, list[Any]] = {}
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
        count = counts[name] = counts.get(name, 0) + 1
        slot = count - 1 if count <= _CALLS else draw.randrange(count)
        if slot >= _CALLS:
            return
        try:
            # Encoded here and now: the function may change what it is called with.
            arguments = [
                _encode(frame.f_locals[variable]) for variable in code.co_varnames[: code.co_argcount]
            ]
        except (TypeError, ValueError, KeyError):
            return
        calls = calls_of.setdefault(name, [])
        if slot < len(calls):
            calls[slot] = arguments
        else:
            calls.append(arguments)

    module = evaluator_at(evaluator)
    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        value = getattr(module, function)(program)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    drawn: list[Any] = []
    size = 0
    for name, calls in calls_of.items():
        for arguments in calls:
            size += len(json.dumps(arguments))
            if size <= _BYTES:
                drawn.append([name, arguments])
    return {**measured(value), "calls": drawn}


def _encode(value: Any, depth: int = 0) -> Any:
    """JSON that `_decode` turns back; refuses a value that is large or not plain."""
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


def behave(program: str, recorded: str) -> str:
    """Digest of what a program returns and raises on the calls in a file, "" where that says nothing.

    Importing the program is part of it: one that does not import raises here, at the price of a
    fraction of an evaluation.
    """
    with open(recorded, "rb") as file:
        calls = json.loads(file.read())
    with open(program, "rb") as file:
        if b"random" in file.read():
            importlib.import_module("random")  # so that it is seeded before the first call, too
    program = os.path.abspath(program)
    beside(program)
    module = load("candidate_program", program)
    digest = hashlib.blake2b(digest_size=12)
    answered = False
    for name, arguments in calls:
        function = getattr(module, name, None)
        if not callable(function):
            return ""
        _seed(0)
        try:
            value = _text(function(*_decode(arguments)))
            answered = answered or value is not None
        except Exception as error:
            value = "raised " + type(error).__name__
        if value is None:
            return ""
        digest.update(value.encode() + b"\0")
    _seed(None)  # what follows in this process must not depend on the seeds above
    return digest.hexdigest() if answered else ""


def _seed(seed: int | None) -> None:
    if "random" in sys.modules:
        sys.modules["random"].seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)


def _text(value: Any, depth: int = 0) -> str | None:
    """A value as text in which equal values are equal; None if it has no such text."""
    if isinstance(value, float):
        return f"{value:.12g}"
    if value is None or isinstance(value, (bool, int, str, bytes)):
        return repr(value)
    if isinstance(value, (list, tuple)) and depth < 6:
        return _joined(type(value).__name__, [_text(item, depth + 1) for item in value])
    if isinstance(value, (set, frozenset)) and depth < 6:
        return _joined("set", sorted(_text(item, depth + 1) or "?" for item in value))
    if isinstance(value, dict) and depth < 6:
        return _joined("dict", [_text(pair, depth + 1) for pair in value.items()])
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        return _text(value.tolist(), depth + 1)
    return None


def _joined(kind: str, parts: list[str | None] | list[str]) -> str | None:
    texts = [part for part in parts if part is not None]
    return f"{kind}({','.join(texts)})" if len(texts) == len(parts) else None


def behaviour(evaluator: str, program: str) -> str:
    """Digest of what the evaluator itself calls the behaviour of a program."""
    program = os.path.abspath(program)
    beside(program)
    value = evaluator_at(evaluator).behaviour(program)
    text = _text(value) or base64.b64encode(repr(value).encode()).decode()
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()
