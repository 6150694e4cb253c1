"""The released text of a function as something to call, in the process of the program that asks for it.

A text is code, and code that comes as data is run by the sandbox alone, but for this one case: the program marks
the function with `@whet.evolve(live=True)`, and the text was released in a store on this machine.  Who may release
there may as well change the program.  Code that a server sends runs in the sandbox, called by JSON; a text that is only
recorded, tried as a candidate or named by WHET_BUNDLE does not come here (`resources.Function`).
"""

from __future__ import annotations

import ast
import inspect
import linecache
import types
from collections.abc import Callable
from importlib.metadata import EntryPoint
from typing import Any

from ...errors import InputError
from ...python_text import module_of
from ...types import Version
from .kinds import kind_of

_FACTORY = "_whet_released"
ISOLATED = EntryPoint("isolated", "whet.learn.evolution.agents.functions:isolated", "whet.loaders")
"""(version, original) → a function whose every call runs in the sandbox, by name as plug-ins are: few programs need it.

It raises InputError, at once or from a call, where something cannot cross as JSON, and SandboxError without a sandbox.
"""


def loadable(function: Any, name: str) -> None:
    """Refuse a function that a text cannot replace.

    Raises:
        InputError: it is not a bare function: a decorator stands between it and the mark.
    """
    if not inspect.isfunction(function) or hasattr(function, "__wrapped__"):
        raise InputError(
            f"@whet.evolve(live=True) replaces the function itself, and {name!r} is {function!r:.60}. Write the mark "
            "directly above the def, below all other decorators."
        )


def function_of(version: Version, original: Callable[..., Any]) -> Callable[..., Any]:
    """The Version's text as a function in the place of `original`: with its globals, its class and its closure.

    Raises:
        InputError: the text is not that of the Version's id, or cannot take the function's place; says why.
    """
    if not isinstance(version.content, str):
        raise InputError("it is not the text of a function")
    if Version(resource=version.resource, content=version.content, kind=version.kind).id != version.id:
        raise InputError("its text is not the one that its id was made of: the record was changed")
    assert inspect.isfunction(original)
    file = f"<released {version.resource} {version.id}>"
    names = dict(zip(original.__code__.co_freevars, original.__closure__ or (), strict=True))
    tree = _factory(version.content, original, tuple(names))
    scope: dict[str, Any] = {}
    # Tracebacks show the lines of the released text.
    # None in the place of the mtime: linecache.checkcache looks for no file, and leaves the entry.
    linecache.cache[file] = len(version.content), None, version.content.splitlines(keepends=True), file
    try:
        # dont_inherit: else this module's `from __future__ import annotations` would hold for the text.
        exec(compile(tree, file, "exec", dont_inherit=True), original.__globals__, scope)
        defined = scope[_FACTORY](*([None] * len(names)))
    except Exception as error:  # whatever its statements raise: the program goes on with its own
        raise InputError(f"its text cannot be loaded: {type(error).__name__}: {error}") from error
    return _placed(defined, original, names)


def _factory(text: str, original: types.FunctionType, names: tuple[str, ...]) -> ast.Module:
    """A function that defines what the text adds and then the function itself, and returns that.

    So nothing is bound in the program's module, and a method's private names are those of its class.
    """
    path = original.__qualname__.rpartition("<locals>.")[2].split(".")
    try:
        tree = module_of(text)
    except SyntaxError as error:
        raise InputError(f"it is not Python: {error}") from error
    body: list[ast.stmt] = []
    node: ast.stmt | None = None
    for statement in tree.body:
        inner, depth = statement, 0
        while (
            isinstance(inner, ast.ClassDef)
            and [inner.name] == path[depth : depth + 1]
            and len(inner.body) == 1
        ):
            inner, depth = inner.body[0], depth + 1
        named = isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef) and inner.name == path[-1]
        if named and depth in (0, len(path) - 1):
            assert isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef)
            inner.decorator_list = []  # those of the source stay around it
            node = statement = inner
        body.append(statement)
    if node is None:
        raise InputError(f"it does not define {original.__qualname__}")
    owner = path[-2] if len(path) > 1 else ""
    if owner:
        around = module_of(f"class {owner}: pass").body[0]
        assert isinstance(around, ast.ClassDef)
        around.body = [node]
        body = [around if statement is node else statement for statement in body]
    answer = f"{owner}.__dict__[{path[-1]!r}]" if owner else path[-1]
    outer = module_of(f"def {_FACTORY}({', '.join(names)}): return {answer}")
    factory = outer.body[0]
    assert isinstance(factory, ast.FunctionDef)
    factory.body = [*body, *factory.body]
    return ast.fix_missing_locations(outer)


def _placed(
    defined: Any, original: types.FunctionType, names: dict[str, types.CellType]
) -> types.FunctionType:
    """The function with the closure of the original, whose cells its neighbours share."""
    if not inspect.isfunction(defined) or kind_of(defined) != kind_of(original):
        raise InputError(f"it is not of the function's kind: {original.__qualname__} is {kind_of(original)}")
    if _parameters(defined) != _parameters(original):
        raise InputError(f"it has other parameters than {original.__qualname__}{inspect.signature(original)}")
    own = dict(zip(defined.__code__.co_freevars, defined.__closure__ or (), strict=True))
    # The cell of `super()` is made by the class statement; here it would be that of the class written around.
    if "__class__" in own and "__class__" not in names:
        raise InputError("it calls super(), which the function in the source does not do")
    cells = tuple(names.get(name, cell) for name, cell in own.items())
    placed = types.FunctionType(
        defined.__code__, original.__globals__, original.__name__, defined.__defaults__, cells
    )
    placed.__kwdefaults__ = defined.__kwdefaults__
    placed.__qualname__, placed.__module__ = original.__qualname__, original.__module__
    placed.__annotations__, placed.__doc__ = defined.__annotations__, defined.__doc__
    return placed


def _parameters(function: Callable[..., Any]) -> list[tuple[str, Any]]:
    return [(parameter.name, parameter.kind) for parameter in inspect.signature(function).parameters.values()]
