"""A Python text with its syntax tree, to be cut at the tree's positions: what edits look at and change."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from .program import regions

SIMPLE = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr)
"""Statements that may be moved, repeated or dropped."""
_COMPOUND = (ast.BinOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.UnaryOp, ast.Lambda)
_NOT_VALUES = ("decorator_list", "annotation", "returns", "args", "type_params", "bases", "targets")
"""Fields of syntax nodes whose expressions are no values to compute with; `args` of a call are."""


@dataclass(slots=True)
class Site:
    """One expression that may be replaced."""

    node: ast.expr
    parent: ast.AST
    names: tuple[str, ...]
    """Names that hold something there and are used in arithmetic somewhere near."""


@dataclass(slots=True)
class Source:
    """A Python text with its tree, cut at bytes because the tree counts in bytes."""

    text: str
    tree: ast.Module = field(init=False)
    raw: bytes = field(init=False)
    starts: list[int] = field(init=False)
    blocks: list[tuple[int, int]] = field(init=False)
    _sites: list[Site] | None = None

    def __post_init__(self) -> None:
        """Raises SyntaxError or InputError for what cannot be edited."""
        self.tree = ast.parse(self.text)
        self.raw = self.text.encode()
        self.starts = [0]
        for line in self.raw.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        self.blocks = [
            (len(self.text[: block.start].encode()), len(self.text[: block.stop].encode()))
            for block in regions(self.text)
        ]

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """First byte and the byte after the last."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return (
            self.starts[node.lineno - 1] + node.col_offset,
            self.starts[node.end_lineno - 1] + node.end_col_offset,
        )

    def inside(self, node: ast.expr | ast.stmt) -> bool:
        """True if the whole node may change."""
        begin, end = self.span(node)
        return any(start <= begin and end <= stop for start, stop in self.blocks)

    def cut(self, changes: list[tuple[tuple[int, int], str]]) -> str:
        """The text with spans replaced; spans do not overlap."""
        raw = self.raw
        for (begin, end), new in sorted(changes, reverse=True):
            raw = raw[:begin] + new.encode() + raw[end:]
        return raw.decode()

    def segment(self, node: ast.expr | ast.stmt) -> str:
        """The node as it stands in the text."""
        begin, end = self.span(node)
        return self.raw[begin:end].decode()

    def sites(self) -> list[Site]:
        """Every expression that may be replaced, in the order of the text, the outer ones first."""
        if self._sites is not None:
            return self._sites
        found: list[Site] = []
        for owner in [*_functions(self.tree), self.tree]:
            names = _names(owner)
            for parent, node in _expressions(owner):
                if self.inside(node):
                    found.append(Site(node, parent, names))
        found.sort(key=lambda site: (self.span(site.node)[0], -self.span(site.node)[1]))
        self._sites = found
        return found

    def statements(self) -> list[tuple[list[ast.stmt], int]]:
        """Every simple statement that may be moved or dropped, as its body and place in it."""
        found = []
        for function in _functions(self.tree):
            for node in ast.walk(function):
                for name in ("body", "orelse"):
                    body = getattr(node, name, None)
                    if isinstance(body, list):
                        found += [
                            (body, place)
                            for place, each in enumerate(body)
                            if isinstance(each, SIMPLE) and self.inside(each) and not _is_text(each)
                        ]
        return found

    def put(self, site: Site, new: ast.expr) -> str:
        """The text with one expression replaced, in parentheses where they may be needed."""
        text = ast.unparse(ast.fix_missing_locations(new))
        bare = isinstance(site.parent, (ast.stmt, ast.Call, ast.Subscript, ast.List, ast.Tuple, ast.keyword))
        if isinstance(new, _COMPOUND) and not bare:
            text = f"({text})"
        return self.cut([(self.span(site.node), text)])


def _functions(tree: ast.AST) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]


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
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.JoinedStr, ast.Lambda)):
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
    found: dict[str, None] = {}
    if isinstance(owner, (ast.FunctionDef, ast.AsyncFunctionDef)):
        every = [*owner.args.posonlyargs, *owner.args.args, *owner.args.kwonlyargs]
        found.update(dict.fromkeys(each.arg for each in every if each.arg not in ("self", "cls")))
    for node in ast.walk(owner):
        sides: list[ast.expr] = []
        if isinstance(node, ast.BinOp):
            sides = [node.left, node.right]
        elif isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
        found.update(dict.fromkeys(side.id for side in sides if isinstance(side, ast.Name)))
    return tuple(found)


def is_number(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, (int, float))


@lru_cache(maxsize=256)
def parsed(text: str) -> Source:
    """Parsed once: the same parents are drawn again and again, and no edit changes a tree."""
    return Source(text)


def definitions(source: Source) -> dict[str, ast.stmt]:
    """Dotted name → function, method or assignment that may change as a whole."""
    found: dict[str, ast.stmt] = {}

    def visit(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef):
                visit(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                found[prefix + node.name] = node
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                found[prefix + node.targets[0].id] = node
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
                found[prefix + node.target.id] = node

    visit(source.tree.body, "")
    return {key: node for key, node in found.items() if source.inside(node)}
