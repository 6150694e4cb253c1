"""Nodes of Python's syntax tree: the names, definitions, parameters and literals in them."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ..errors import NotFoundError
from ..types import Json

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


def is_method(node: FunctionNode) -> bool:
    """True for the definition of a method of an object, with no decorator that makes something else of it."""
    first = [*node.args.posonlyargs, *node.args.args][:1]
    return not node.decorator_list and [argument.arg for argument in first] == ["self"]


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a function."""

    name: str
    annotation: str = ""
    """As it stands in the text."""
    required: bool = True
    default: Json = None
    """Where it is a literal."""
    keyword_only: bool = False


def parameters(arguments: ast.arguments) -> Iterator[Parameter]:
    """Every named parameter, without *args and **kwargs."""
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults))
    defaults += arguments.defaults
    rows = [(node, default, False) for node, default in zip(positional, defaults, strict=True)]
    keywords = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    rows += [(node, default, True) for node, default in keywords]
    for node, default, keyword_only in rows:
        # An annotation in quotes is a forward reference: its text is the type.
        annotation = ast.unparse(node.annotation).strip("'\"") if node.annotation else ""
        value = literal(default)[1] if default is not None else None
        yield Parameter(node.arg, annotation, default is None, value, keyword_only)


def definition(tree: ast.Module, qualname: str) -> tuple[ast.stmt, ast.ClassDef | None]:
    """The statement that defines a dotted name, and the class it stands in.

    Raises:
        NotFoundError: nothing defines it; lists the names that are defined.
    """
    body: Sequence[ast.stmt] = tree.body
    owner: ast.ClassDef | None = None
    node: ast.stmt | None = None
    for part in qualname.split("."):
        if node is not None:
            if not isinstance(node, ast.ClassDef):
                break
            owner, body = node, node.body
        node = next((statement for statement in _statements(body) if part in defines(statement)), None)
        if node is None:
            names = sorted({name for statement in _statements(body) for name in defines(statement)})
            raise NotFoundError(f"nothing defines {qualname!r}; there are {', '.join(names) or 'none'}")
    assert node is not None
    return node, owner


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements of a body, those under `if` and `try` among them."""
    for node in body:
        yield node
        if isinstance(node, ast.If | ast.Try):
            yield from _statements([*node.body, *node.orelse])


def defines(node: ast.stmt) -> list[str]:
    """Names that a definition or an assignment binds."""
    if isinstance(node, FunctionNode | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else []
    # `x: int` alone binds nothing.
    if isinstance(node, ast.AnnAssign) and node.value is not None:
        targets = [node.target]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def definitions(body: Iterable[ast.stmt], prefix: str = "") -> Iterator[tuple[str, ast.stmt]]:
    """Dotted name → function, method or assignment, in the order of the text; the first name of an assignment."""
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from definitions(node.body, f"{prefix}{node.name}.")
        else:
            yield from ((prefix + name, node) for name in defines(node)[:1])


def first_line(node: ast.stmt) -> int:
    """The line of a statement, or of its first decorator."""
    decorators = node.decorator_list if isinstance(node, FunctionNode | ast.ClassDef) else []
    return min([node.lineno, *(mark.lineno for mark in decorators)])


def dotted(node: ast.expr) -> str:
    """`a.b.c` of a name, a decorator or a call; "" where it is put together otherwise."""
    if isinstance(node, ast.Call):
        node = node.func
    if isinstance(node, ast.Attribute):
        before = dotted(node.value) if not isinstance(node.value, ast.Call) else ""
        return before and f"{before}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def last_name(node: ast.expr) -> str:
    """The last part of a dotted name, whether it is called or not: `create` of `client().messages.create(…)`."""
    if isinstance(node, ast.Call):
        return last_name(node.func)
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def root_name(node: ast.expr) -> str | None:
    """`a` of `a.b[c].d`."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def string(node: ast.AST | None) -> str | None:
    """The value of a string literal, None for anything else."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def keyword_strings(node: ast.expr) -> dict[str, str]:
    """Those keyword arguments of a call that are string literals."""
    keywords = node.keywords if isinstance(node, ast.Call) else []
    values = ((keyword.arg, string(keyword.value)) for keyword in keywords)
    return {name: value for name, value in values if name is not None and value is not None}


def literal_keys(node: ast.Dict) -> dict[object, ast.expr]:
    """Key → value of a dictionary display, for its literal keys."""
    pairs = zip(node.keys, node.values, strict=True)
    return {key.value: value for key, value in pairs if isinstance(key, ast.Constant)}


def literal(node: ast.expr) -> tuple[bool, Json]:
    """True and the value of a literal that JSON can hold, False for any other expression."""
    try:
        return True, json_literal(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False, None


def json_literal(node: ast.expr | str) -> Json:
    """The value of a literal, tuples as lists.

    Raises:
        ValueError, TypeError, SyntaxError, MemoryError, RecursionError: not a literal, or JSON cannot hold it.
    """
    return json_of(ast.literal_eval(node))


def json_of(value: object) -> Json:
    """A value with tuples as lists.

    Raises:
        ValueError: JSON cannot hold it; names the member.
    """
    if isinstance(value, list | tuple):
        return [json_of(member) for member in value]
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise ValueError(f"a key of {value!r} is not a string")
        return {key: json_of(member) for key, member in value.items()}
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    raise ValueError(f"{value!r} is a {type(value).__name__}")
