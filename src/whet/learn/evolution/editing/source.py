"""The expressions and statements of a Python text that edits may change."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from ....repository.syntax import FunctionNode, definitions
from ....repository.text import SourceText
from .program import regions

SIMPLE = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr)
"""Statements that may be moved, repeated or dropped."""
_COMPOUND = (ast.BinOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.UnaryOp, ast.Lambda)
_NOT_VALUES = ("decorator_list", "annotation", "returns", "args", "type_params", "bases", "targets")
"""Fields of syntax nodes whose expressions are not values to compute with; `args` of a call are."""


_APART = (ast.FunctionDef, ast.AsyncFunctionDef, ast.JoinedStr, ast.Lambda)
"""A tuple and not a union: `A | B` in a loop over nodes is made anew for each, which takes longer than the test."""


@dataclass(slots=True)
class Site:
    """One expression that may be replaced."""

    node: ast.expr
    parent: ast.AST
    names: tuple[str, ...]
    """Names that hold something there and are used in arithmetic somewhere near."""


class PythonSource(SourceText):
    """A Python text with its tree, and the spans of it that may change.

    Raises:
        SyntaxError, ValueError, InputError: the text cannot be edited.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._sites: list[Site] | None = None
        bare = self.raw.decode()
        # `regions` counts characters, the tree counts bytes.
        self._regions = [
            (len(bare[: region.start].encode()), len(bare[: region.stop].encode()))
            for region in regions(bare)
        ]

    def inside(self, node: ast.expr | ast.stmt) -> bool:
        """True if the whole node may change."""
        begin, end = self.span(node)
        return any(start <= begin and end <= stop for start, stop in self._regions)

    def sites(self) -> list[Site]:
        """Every expression that may be replaced, in the order of the text, the outer ones first."""
        if self._sites is not None:
            return self._sites
        sites: list[Site] = []
        for owner in [*_functions(self.tree), self.tree]:
            names = _names(owner)
            for parent, node in _expressions(owner):
                if self.inside(node):
                    sites.append(Site(node, parent, names))
        # Edits draw by position in this list, so its order is part of what a seed reproduces.
        sites.sort(key=lambda site: (self.span(site.node)[0], -self.span(site.node)[1]))
        self._sites = sites
        return sites

    def statements(self) -> list[tuple[list[ast.stmt], int]]:
        """Every simple statement that may be moved or dropped, as its body and its index there."""
        statements = []
        for function in _functions(self.tree):
            for node in ast.walk(function):
                for name in ("body", "orelse"):
                    body = getattr(node, name, None)
                    if isinstance(body, list):
                        statements += [
                            (body, index)
                            for index, statement in enumerate(body)
                            if isinstance(statement, SIMPLE)
                            and self.inside(statement)
                            and not _is_text(statement)
                        ]
        return statements

    def put(self, site: Site, new: ast.expr) -> str:
        """The text with one expression replaced, in parentheses where they may be needed."""
        text = ast.unparse(ast.fix_missing_locations(new))
        bare = isinstance(site.parent, (ast.stmt, ast.Call, ast.Subscript, ast.List, ast.Tuple, ast.keyword))
        if isinstance(new, _COMPOUND) and not bare:
            text = f"({text})"
        return self.spliced([(self.span(site.node), text)])


def _functions(tree: ast.AST) -> list[FunctionNode]:
    return [node for node in ast.walk(tree) if isinstance(node, FunctionNode)]


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _expressions(owner: ast.AST) -> Iterator[tuple[ast.AST, ast.expr]]:
    """Expressions that are evaluated in `owner` itself, without its inner functions, with their parents."""
    queue: list[ast.AST] = [owner]
    while queue:
        parent = queue.pop()
        for name, value in ast.iter_fields(parent):
            if name in _NOT_VALUES and not (name == "args" and isinstance(parent, ast.Call)):
                continue
            for node in value if isinstance(value, list) else [value]:
                if not isinstance(node, ast.AST):
                    continue
                if isinstance(node, _APART):
                    continue  # its own owner, or with positions that cannot be cut
                if isinstance(node, ast.expr) and _replaceable(parent, name, node):
                    yield parent, node
                queue.append(node)


def _replaceable(parent: ast.AST, name: str, node: ast.expr) -> bool:
    if isinstance(getattr(node, "ctx", None), (ast.Store, ast.Del)) or isinstance(
        node, (ast.Slice, ast.Starred)
    ):
        return False
    if isinstance(parent, ast.Call) and name == "func":
        return False
    if isinstance(parent, (ast.Attribute, ast.Import, ast.Expr)):
        return False
    return not (isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes, type(...))))


def _names(owner: ast.AST) -> tuple[str, ...]:
    """Arguments, and names that stand beside an arithmetic sign or a comparison in `owner`."""
    names: dict[str, None] = {}  # in the order of the text, which a set would not keep
    if isinstance(owner, FunctionNode):
        arguments = [*owner.args.posonlyargs, *owner.args.args, *owner.args.kwonlyargs]
        names.update(dict.fromkeys(node.arg for node in arguments if node.arg not in ("self", "cls")))
    for node in ast.walk(owner):
        operands: list[ast.expr] = []
        if isinstance(node, ast.BinOp):
            operands = [node.left, node.right]
        elif isinstance(node, ast.Compare):
            operands = [node.left, *node.comparators]
        names.update(dict.fromkeys(operand.id for operand in operands if isinstance(operand, ast.Name)))
    return tuple(names)


def is_number(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, (int, float))


@lru_cache(maxsize=256)
def parsed(text: str) -> PythonSource:
    """Parsed once: the same parents are drawn again and again, and no edit changes a tree."""
    return PythonSource(text)


def changeable(source: PythonSource) -> dict[str, ast.stmt]:
    """Dotted name → function, method or assignment that may change as a whole."""
    # The last of several definitions of a name is the one that counts, so it decides first.
    last = dict(definitions(source.tree.body))
    return {name: node for name, node in last.items() if source.inside(node)}
