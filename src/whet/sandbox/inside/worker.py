"""One evaluation: load the staged code, call it on one input at a time, answer in JSON.

It shares a process with code that may be hostile, so nothing it says is believed beyond being that
code's answer.  What cannot cross as JSON exactly is refused, not approximated: a tuple is not a
list, and numpy's float is not a float.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import math
import os
import sys
import traceback
import types
from collections.abc import Awaitable
from importlib import machinery
from typing import Any

from . import frames

VALUE, RAISED, REFUSED, ENDED = b"v", b"x", b"r", b"e"

_PLAIN = (type(None), bool, str)


class CannotCross(TypeError):
    """A value that JSON would change."""


def crossing(value: Any, path: str = "the value") -> None:
    """Refuse what would not come out of JSON as the same type and value.

    Raises:
        CannotCross: names the place and the type.
    """
    # The exact type: numpy.float64 is an instance of float, and would come back as another type.
    kind = type(value)
    if kind in _PLAIN or kind is int:
        return
    if kind is float:
        if not math.isfinite(value):
            raise CannotCross(f"{path} is {value}, which JSON has no way to write")
    elif kind is list:
        for index, item in enumerate(value):
            crossing(item, f"{path}[{index}]")
    elif kind is dict:
        for key, item in value.items():
            if type(key) is not str:
                raise CannotCross(
                    f"{path} has the key {key!r:.60}, a {type(key).__name__}; JSON's keys are str"
                )
            crossing(item, f"{path}[{key!r:.60}]")
    else:
        hint = {"tuple": "; return a list", "set": "; return a sorted list", "bytes": "; decode it"}
        number = "; call .item() on it" if kind.__module__ == "numpy" and hasattr(value, "item") else ""
        name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
        raise CannotCross(f"{path} is a {name}, which cannot cross as JSON{hint.get(name, number)}")


def encode(value: Any) -> bytes:
    """`value` as JSON.

    Raises:
        CannotCross: it would not come out the same.
    """
    try:
        crossing(value, "the returned value")
        # A value that contains itself has ended in `crossing` with a RecursionError.
        return json.dumps(value, ensure_ascii=False, check_circular=False, separators=(",", ":")).encode()
    except RecursionError:
        raise CannotCross("the returned value is nested too deep, or contains itself") from None
    except ValueError as error:  # a lone surrogate, an integer of more digits than Python writes
        raise CannotCross(f"the returned value cannot be written as JSON: {error}") from None


def measurements(value: Any) -> Any:
    """The return value of an OpenEvolve evaluator as JSON: a dict, an EvaluationResult, a number.

    Numbers are taken by value whatever their type, because such evaluators return numpy's; the
    score is co-resident anyway, and promotes nothing.
    """
    metrics = getattr(value, "metrics", value)
    if not isinstance(metrics, dict):
        metrics = {"score": metrics}
    artifacts = getattr(value, "artifacts", {})
    plain = {str(name): _measurement(measure) for name, measure in metrics.items()}
    return {
        "metrics": plain,
        "artifacts": {str(name): str(text) for name, text in dict(artifacts or {}).items()},
    }


def _measurement(value: Any) -> Any:
    if value is None or isinstance(value, str):
        return value
    try:
        number = float(value)
    except (TypeError, ValueError):
        return str(value)[:4000]
    return number if math.isfinite(number) else None


class EvaluationResult:
    """The return type of evaluators written for OpenEvolve: numbers, and texts beside them."""

    def __init__(self, metrics: Any, artifacts: Any = None) -> None:
        self.metrics = metrics
        self.artifacts = artifacts or {}

    @classmethod
    def from_dict(cls, metrics: Any) -> EvaluationResult:
        """One without texts."""
        return cls(metrics)

    def to_dict(self) -> Any:
        """The numbers."""
        return self.metrics

    def has_artifacts(self) -> bool:
        """True if there are texts."""
        return bool(self.artifacts)


def stand_in_for_openevolve() -> None:
    """Let an evaluator import EvaluationResult without the package that defines it, which is slow to load.

    What else it imports of that package comes from where it is installed, and is looked for only then.
    """
    package: Any = types.ModuleType("openevolve")
    module: Any = types.ModuleType("openevolve.evaluation_result")

    def asked_for(name: str) -> Any:
        if name != "__path__":
            raise AttributeError(f"module 'openevolve' has no attribute {name!r}")
        spec = machinery.PathFinder.find_spec("openevolve")
        return spec.submodule_search_locations if spec else []

    package.__getattr__ = asked_for
    package.evaluation_result = module
    package.EvaluationResult = module.EvaluationResult = EvaluationResult
    sys.modules.update({"openevolve": package, "openevolve.evaluation_result": module})


_codes: dict[tuple[str, bytes], Any] = {}
"""Path and text → code: a screen loads one evaluator for every version that it looks at."""
_MOST_CODES = 64


def _code(loader: machinery.SourceFileLoader, path: str) -> Any:
    key = path, loader.get_data(path)
    if key not in _codes:
        if len(_codes) >= _MOST_CODES:
            _codes.clear()
        _codes[key] = loader.source_to_code(key[1], path)
    return _codes[key]


def load(name: str, path: str) -> Any:
    """The module in a file, as an import leaves it, but not looked for: the search costs a tenth of a small program."""
    loader = machinery.SourceFileLoader(name, path)
    module: Any = types.ModuleType(name)
    module.__spec__ = spec = machinery.ModuleSpec(name, loader, origin=path)
    spec.has_location = True
    module.__file__, module.__loader__, module.__package__ = path, loader, spec.parent
    # Before its body runs, as import does: dataclasses look their module up by its name.
    sys.modules[name] = module
    try:
        exec(_code(loader, path), vars(module))
    except BaseException:
        sys.modules.pop(name, None)
        raise
    # A module may put another object in its place there.
    return sys.modules.get(name, module)


def resolve(entry: str) -> Any:
    """The object that `module:name` or `module:Class.name` means among the staged files."""
    module, _, name = entry.partition(":")
    staged = f"{os.getcwd()}/{module}.py"
    imported = module in sys.modules or not os.path.isfile(staged)
    target: Any = importlib.import_module(module) if imported else load(module, staged)
    for part in name.split("."):
        target = getattr(target, part)
    return target


def describe(error: BaseException) -> bytes:
    """An exception as JSON: its type, its message, and where in the staged code it was raised."""
    where = ""
    staged = [
        frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(os.getcwd())
    ]
    if staged:
        where = f"{os.path.relpath(staged[-1].filename)}:{staged[-1].lineno} in {staged[-1].name}"
    elif isinstance(error, SyntaxError) and error.lineno:
        where = f"{os.path.basename(error.filename or '')}:{error.lineno}"
    try:
        message = str(error)
    except Exception:
        message = "(an exception whose message cannot be had)"
    report = {"type": type(error).__name__, "message": message[:4000], "where": where}
    return json.dumps(report, ensure_ascii=True).encode()


def call(function: Any, request: bytes, pair: bool) -> bytes:
    """One call: `given` is JSON `[args, kwargs]`, for a pair the name of the staged program; a letter and JSON."""
    args, kwargs = json.loads(request)
    if pair:
        args = [os.path.abspath(args[0])]
    value = awaited(function(*args, **kwargs))
    return VALUE + encode(measurements(value) if pair else value)


def awaited(value: Any) -> Any:
    """A value; of an awaitable its result, in an event loop of its own."""
    if not isinstance(value, Awaitable):
        return value
    # Loaded before the fork where the staged code says `async`; everywhere it would cost each fork a fifth.
    import asyncio

    async def come() -> Any:
        return await value

    return asyncio.run(come())


def attempt(step: Any, *args: Any) -> bytes | None:
    """The return value of `step`, or its exception as an answer; None if it returned None."""
    try:
        answer: bytes | None = step(*args)
        return answer
    except CannotCross as error:
        return REFUSED + json.dumps(str(error)).encode()
    except BaseException as error:
        return RAISED + describe(error)


def serve(requests: int, answers: int, entry: str, pair: bool) -> None:
    """Answer every request with what `entry` makes of it, until the requests end."""
    own_pid = os.getpid()
    if pair:
        stand_in_for_openevolve()
    loaded: list[Any] = []
    broken = attempt(lambda: loaded.append(resolve(entry)))
    while True:
        _end_if_forked(own_pid, 1 if broken else 0)
        request = frames.read(requests)
        if request is None:
            return
        answer = broken or attempt(call, loaded[0], request, pair) or RAISED
        _end_if_forked(own_pid, 0 if answer[:1] == VALUE else 1)
        frames.write(answers, answer)


def _end_if_forked(own_pid: int, code: int) -> None:
    """End a process that the staged code forked and let come back here: only the one that was asked answers."""
    if os.getpid() == own_pid:
        return
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def script(answers: int, path: str, argv: list[str]) -> None:
    """Run a file as `__main__` and answer with its exit code."""
    import runpy

    own_pid = os.getpid()
    sys.argv = [path, *argv]
    code: Any = 0
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit as error:
        code = error.code
        if code is not None and not isinstance(code, int):
            print(code, file=sys.stderr)
            code = 1
    except BaseException:
        traceback.print_exc()
        code = 1
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            code = code or 1
    _end_if_forked(own_pid, int(code or 0) & 0xFF)
    frames.write(answers, ENDED + json.dumps(int(code or 0) & 0xFF).encode())
