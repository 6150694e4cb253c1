"""A function of somebody's repository, staged so that it can be called from outside, one input at a time.

It runs in the sandbox with its dependencies and nothing else; the expected answer stays outside.  Beside it
stands a stand-in for whet, whose marks change nothing, so a staged copy needs no whet.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from ...types import Json
from .signatures import Signature, literals, read, worth_trying

RUNNER = "whet_called"
"""The module that calls the function inside."""

_RUNNER = '''"""Calls the target with one input."""
import importlib
import inspect

found = importlib.import_module({module!r})
owner = None
for part in {qualname!r}.split("."):
    owner, kind = found, inspect.getattr_static(found, part)
    found = getattr(found, part)
instance = inspect.isclass(owner) and not isinstance(kind, (staticmethod, classmethod))


def call(args, kwargs, made, state=None):
    if instance and state is not None:
        # As it stands where it is called: what it changes of itself goes back with the answer.
        itself = object.__new__(owner)
        vars(itself).update(state)
        return {{"value": getattr(itself, part)(*args, **kwargs), "state": vars(itself)}}
    function = getattr(owner(**made), part) if instance else found
    return function(*args, **kwargs)
'''
_STAND_IN = '''"""Stands in for whet where a candidate runs: what is marked stays as it is, nothing is recorded."""


class _Mark:
    def __init__(self, *given, **named):
        self.id = ""
        self.__dict__.update(named)

    def __call__(self, function):
        return function

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None


def _mark(target=None, *given, **named):
    return target if callable(target) and not isinstance(target, _Mark) else _Mark()


evolve = trace = step = propagate = _mark
Store = run = session = _Mark


def resource(name, default=None, **named):
    return default


def feedback(*given, **named):
    return None


def attach(*given, **named):
    return None
'''


_LARGEST = 100_000
"""Bytes of a data file that values are drawn from."""


def _of_json(content: str | bytes) -> list[Json]:
    """Keys and plain values of a JSON file, each once."""
    try:
        queue = [json.loads(content)]
    except ValueError:
        return []
    values: list[Json] = []
    for member in queue:  # it grows while it is read
        if isinstance(member, dict):
            queue += [*member, *member.values()]
        elif isinstance(member, list):
            queue += member
        else:
            values.append(member)
    return worth_trying(values)


# Without slots: cached_property keeps its value in the instance's __dict__.
@dataclass(frozen=True)
class Callee:
    """One function with the files that it needs."""

    name: str
    """Of the target."""
    entry: str
    """`module:qualname`, as it is imported from the files."""
    files: Mapping[str, str | bytes]
    """Path → content, as `extract-targets` stages them."""

    @cached_property
    def signature(self) -> Signature:
        """Its parameters.

        Raises:
            InputError: it is not a function.
        """
        return read(self.text, self.entry.partition(":")[2])

    @property
    def path(self) -> str:
        """The file that defines it."""
        module = self.entry.partition(":")[0].replace(".", "/")
        return next(name for name in (f"{module}.py", f"{module}/__init__.py") if name in self.files)

    @property
    def text(self) -> str:
        """The text of that file."""
        content = self.files[self.path]
        return content if isinstance(content, str) else content.decode()

    @cached_property
    def pool(self) -> list[Json]:
        """The literals that stand around it."""
        texts = {name: text for name, text in self.files.items() if isinstance(text, str)}
        values = literals(text for name, text in texts.items() if name.endswith(".py"))
        for name, content in self.files.items():
            if name.endswith(".json") and len(content) <= _LARGEST:
                values += _of_json(content)
        return values

    @cached_property
    def staged(self) -> dict[str, str | bytes]:
        """The files with the runner that calls the function: entry `whet_called:call`."""
        return staged(self.files, self.entry)

    @property
    def runs(self) -> str:
        """The entry to open in the sandbox."""
        return f"{RUNNER}:call"


def staged(files: Mapping[str, str | bytes], entry: str) -> dict[str, str | bytes]:
    """Files with a runner for `entry` beside them, and a stand-in for whet where they name it."""
    module, _, qualname = entry.partition(":")
    with_runner = {**files, f"{RUNNER}.py": _RUNNER.format(module=module, qualname=qualname)}
    named = any(isinstance(text, str) and "whet" in text for text in files.values())
    return {"whet/__init__.py": _STAND_IN, **with_runner} if named and "whet.py" not in files else with_runner
