"""Expressions made of a function's names, for places where nothing is left that an edit could change.

A `return None` where an expression stood, a name that nothing sets: filled by
enumeration, the smallest first.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator

from ....repository.syntax import FunctionNode
from .scopes import Scope
from .source import PythonSource

_FUNCTIONS = ["len", "sum", "sorted", "list", "int", "str", "abs", "max", "min", "set"]
_FORMS = (
    *("{} is not None", "{} is None", "bool({})", "{}[0]", "{}[-1]", "not {}", "-{}"),
    *('"".join({})', '" ".join({})', "{}.strip()", "{}.copy()", "{}.getvalue()", "[{}]", "{} + 1"),
)
_SIGNS = ("-", "/", "//", "%", "<", "<=", "==", "or", "and")
_MOST_NAMES, _MOST_CALLED = 7, 4


def answers(scope: Scope) -> Iterator[tuple[float, str]]:
    """What a function might return: prior and text."""
    taken = parameters(scope.owner)
    for parameter in taken:
        for frame in scope.corrections.of_parameter(parameter, len(taken) == 1):
            yield 0.6, frame.format(parameter)
    for name in (*scope.names[:8], "True", "False", "0", "[]"):
        yield 0.3, name
    for text, _ in scope.expressions:
        yield 0.25, text
        for moved in _adapted(text):
            yield 0.2, moved
    names, called = scope.names[:_MOST_NAMES], scope.called[:_MOST_CALLED]
    for name in names:
        for function in (*called, *_FUNCTIONS):
            yield 0.2, f"{function}({name})"
        for form in _FORMS:
            yield 0.15, form.format(name)
        for other in names:
            if other != name:
                for text in _of_two(name, other, called):
                    yield 0.15, text


def _adapted(text: str) -> list[str]:
    """An expression of the function with one of its numbers one more or one less: as its sibling, and not quite."""
    return [
        f"{text[: number.start()]}{value}{text[number.end() :]}"
        for number in list(re.finditer(r"(?<![\w])[0-9]{1,3}(?!\w)|(?<=\.)[0-9](?=[a-z])", text))[:3]
        for value in (int(number[0]) + 1, int(number[0]) - 1)
        if value >= 0
    ]


def cut_texts(scope: Scope) -> Iterator[str]:
    """Pieces that a text of the function may be cut into, for a name that nothing sets."""
    names = scope.names[:5]
    counts = ["1", *names, *(f"{name} - 1" for name in names), *(f"{name} + 1" for name in names)]
    signs = dict.fromkeys((*scope.texts[:4], *(word for word in scope.corrections.words if len(word) == 1)))
    for name in names:
        for method in ("split", "rsplit", "partition", "rpartition"):
            for sign in list(signs)[:6]:
                yield f"{name}.{method}({sign!r})"
                if method.endswith("split"):
                    yield from (f"{name}.{method}({sign!r}, {count})" for count in counts)


def _of_two(name: str, other: str, called: list[str]) -> Iterator[str]:
    for sign in (*_SIGNS, *(("+", "*") if other > name else ())):
        yield f"{name} {sign} {other}"
    yield from (f"{name}[{other}]", f"[{name}, {other}]", f"{name}.get({other})")
    for function in called:
        yield f"{function}({name}, {other})"


def parameters(owner: ast.AST) -> list[str]:
    """Names of a function's positional parameters, without the object of a method."""
    arguments = getattr(owner, "args", None)
    positional = arguments.args if isinstance(arguments, ast.arguments) else []
    return [argument.arg for argument in positional if argument.arg not in ("self", "cls")]


def unset_names(source: PythonSource, scope: Scope) -> list[str]:
    """Names that a function reads, or adds to, and that neither it nor anything around it sets."""
    nodes = list(ast.walk(scope.owner))
    targets = [node.target for node in nodes if isinstance(node, ast.AugAssign)]
    added = [target.id for target in targets if isinstance(target, ast.Name)]
    read = [node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)]
    # A target of `+=` is stored, too, but has to be set before.
    own = {name for node in nodes if node not in targets for name in _set_by(node)}
    inside = {id(node) for node in nodes}
    known = {name for node in ast.walk(source.tree) if id(node) not in inside for name in _set_by(node)}
    unset = [name for name in added if name not in own]
    unset += [name for name in read if name not in own | known and not hasattr(builtins, name)]
    return list(dict.fromkeys(unset))


def _set_by(node: ast.AST) -> list[str]:
    """Names that a node of a tree itself binds."""
    if isinstance(node, ast.arg):
        return [node.arg]
    if isinstance(node, ast.Name):
        return [] if isinstance(node.ctx, ast.Load) else [node.id]
    if isinstance(node, (FunctionNode, ast.ClassDef)) or (isinstance(node, ast.ExceptHandler) and node.name):
        return [str(node.name)]
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return [alias.asname or alias.name.split(".")[0] for alias in node.names]
    return []
