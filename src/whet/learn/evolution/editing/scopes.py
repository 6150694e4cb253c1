"""What a function of a Python text is made of: its expressions in their places, and the names that it can say."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ....repository.syntax import FunctionNode
from ....repository.text import Span
from .corrections import NO_CORRECTIONS, Corrections
from .source import PythonSource

COMPOUND = (ast.BinOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.UnaryOp, ast.Lambda, ast.NamedExpr)
_BUILT_IN = frozenset(dir(builtins))
_MOST_INGREDIENTS = 24
_MOST_NAMES = 14


class SingleEdit(NamedTuple):
    """One edit: spans of a text, and what takes their place.

    A search makes thousands of them for each new best program, and this is the form that is made soonest.
    """

    kind: str
    prior: float
    line: int
    """Of the text, from 1."""
    changes: tuple[tuple[Span, str], ...]
    beyond: int = 0
    """A second line that it concerns, 0 without one."""


@dataclass(slots=True)
class Scope:
    """One function, and what can be said in it."""

    owner: ast.AST
    around: Sequence[ast.AST] = ()
    """Functions that it is defined in."""
    names: list[str] = field(default_factory=list)
    """Parameters, what is assigned, and what is read of the module, the most used first."""
    called: list[str] = field(default_factory=list)
    """Names of functions that are called and no built-in."""
    attributes: list[str] = field(default_factory=list)
    expressions: list[tuple[str, ast.expr]] = field(default_factory=list)
    """Text and node of those that consist of more than a name, each text once."""
    numbers: list[int | float] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    conditions: list[str] = field(default_factory=list)
    corrections: Corrections = NO_CORRECTIONS
    """Of the rows that it is judged by."""
    wordy: bool = False
    """It works with text."""


@dataclass(frozen=True, slots=True)
class Place:
    """One expression that is evaluated."""

    node: ast.expr
    parent: ast.AST
    name: str
    """Of the parent's field that holds it."""
    scope: Scope


def scopes(source: PythonSource) -> Iterator[tuple[Scope, list[Place]]]:
    """Every function that may change, and the statements of the module, each with its expressions."""
    for owner, outer in _owners(source.tree, ()):
        scope = Scope(owner, [node for node in outer if not isinstance(node, ast.Module)])
        places = list(_places(owner, scope))
        _fill(scope, source, outer)
        changeable = [place for place in places if source.inside(place.node)]
        if changeable:
            yield scope, changeable


def _owners(node: ast.AST, outer: tuple[ast.AST, ...]) -> Iterator[tuple[ast.AST, tuple[ast.AST, ...]]]:
    if isinstance(node, (ast.Module, *_functions())):
        yield node, outer
        outer = (*outer, node)
    for child in ast.iter_child_nodes(node):
        yield from _owners(child, outer)


def _functions() -> tuple[type, ...]:
    return (ast.FunctionDef, ast.AsyncFunctionDef)


def _places(owner: ast.AST, scope: Scope) -> Iterator[Place]:
    """Expressions that run in the owner itself, in the order of the text."""
    queue: list[tuple[ast.AST, str, ast.AST]] = [
        (owner, name, child) for name, child in _children(owner) if not _apart(owner, name)
    ]
    while queue:
        parent, name, node = queue.pop(0)
        if isinstance(node, (*_functions(), ast.ClassDef)):
            continue
        if isinstance(node, ast.expr) and not isinstance(getattr(node, "ctx", None), (ast.Store, ast.Del)):
            yield Place(node, parent, name, scope)
        # Positions within a formatted string are not those of the text before Python 3.12.
        if not isinstance(node, ast.JoinedStr):
            queue[:0] = [(node, name, child) for name, child in _children(node) if not _apart(node, name)]


def _apart(parent: ast.AST, name: str) -> bool:
    return name in ("decorator_list", "annotation", "returns", "bases", "type_params", "keywords") and not (
        name == "keywords" and isinstance(parent, ast.Call)
    )


def _children(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    for name, child in ast.iter_fields(node):
        for member in child if isinstance(child, list) else [child]:
            if isinstance(member, ast.AST):
                yield name, member


def _fill(scope: Scope, source: PythonSource, outer: Sequence[ast.AST]) -> None:
    counts: dict[str, int] = {}
    called: dict[str, None] = {}
    attributes: dict[str, None] = {}
    texts: dict[str, ast.expr] = {}
    conditions: dict[str, None] = {}
    numbers: dict[int | float, None] = {}
    words: dict[str, None] = {}
    own = [scope.owner] if not isinstance(scope.owner, ast.Module) else list(scope.owner.body)
    for around in (*own, *(node for node in outer if not isinstance(node, ast.Module))):
        for node in ast.walk(around):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                called.setdefault(node.func.id)
            if isinstance(node, ast.Name):
                counts[node.id] = counts.get(node.id, 0) + 1
            elif isinstance(node, ast.arg):
                counts[node.arg] = counts.get(node.arg, 0) + 1
    functions = {
        node.name
        for tree in (*outer, scope.owner)
        for node in ast.walk(tree)
        if isinstance(node, FunctionNode)
    }
    for place in _places(scope.owner, scope):
        node = place.node
        if isinstance(node, ast.Attribute) and place.name != "func":
            attributes.setdefault(node.attr)
        if isinstance(node, ast.Constant):
            if isinstance(node.value, (int, float)) and not isinstance(node.value, bool):
                numbers.setdefault(node.value)
            elif (
                isinstance(node.value, str)
                and len(node.value) <= 40
                and not isinstance(place.parent, ast.Expr)
            ):
                words.setdefault(node.value)
        if isinstance(node, (ast.Compare, ast.BoolOp)):
            conditions.setdefault(source.segment(node))
        if isinstance(node, (*COMPOUND, ast.Call, ast.Attribute, ast.Subscript, ast.List, ast.Tuple)) and (
            place.name != "func" and sum(1 for _ in ast.walk(node)) <= 16
        ):
            text = source.segment(node)
            if "\n" not in text:
                texts.setdefault(text, node)
    modules = {
        alias.asname or alias.name.split(".")[0]
        for tree in (*outer, scope.owner)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    }
    names = [
        name for name in counts if name not in _BUILT_IN and name not in functions | modules | {"self", "cls"}
    ]
    scope.names = sorted(names, key=lambda name: -counts[name])[:_MOST_NAMES]
    scope.called = [name for name in called if name not in _BUILT_IN or name in functions]
    scope.called += [name for name in sorted(functions) if name not in scope.called]
    scope.attributes, scope.numbers, scope.texts = list(attributes), list(numbers), list(words)
    scope.expressions, scope.conditions = list(texts.items())[:_MOST_INGREDIENTS], list(conditions)
    scope.wordy = bool(words)
