"""Bugs of one edit, by the kinds that the literature on mutation testing and on real bugs names.

The kinds are those of mutation testing (arithmetic, relational and logical operators, constants, deleted statements:
Offutt et al. 1996) and the ones that Allamanis et al. 2021 (BugLab) found to be common in real Python: variable misuse,
swapped arguments, wrong literals.  They are written down without a look at the edits that mend them, which live in
`src/whet/learn/evolution` and share no code with these.
"""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass

_SIGNS: dict[str, tuple[str, ...]] = {
    "<": ("<=", ">"),
    "<=": ("<", ">="),
    ">": (">=", "<"),
    ">=": (">", "<="),
    "==": ("!=",),
    "!=": ("==",),
    "in": ("not in",),
    "not in": ("in",),
    "is": ("is not",),
    "is not": ("is",),
    "+": ("-",),
    "-": ("+",),
    "*": ("/", "+"),
    "/": ("*", "//"),
    "//": ("/", "*"),
    "%": ("//", "*"),
    "**": ("*",),
    "<<": (">>",),
    ">>": ("<<",),
    "&": ("|",),
    "|": ("&",),
    "^": ("&",),
    "and": ("or",),
    "or": ("and",),
}
_NAMED = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.In: "in",
    ast.NotIn: "not in",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
    ast.And: "and",
    ast.Or: "or",
}
_CONFUSED = {
    "min": "max",
    "max": "min",
    "any": "all",
    "all": "any",
    "lstrip": "rstrip",
    "rstrip": "lstrip",
    "startswith": "endswith",
    "endswith": "startswith",
    "find": "rfind",
    "rfind": "find",
    "append": "extend",
    "extend": "append",
    "lower": "upper",
    "upper": "lower",
    "split": "rsplit",
    "rsplit": "split",
    "partition": "rpartition",
    "rpartition": "partition",
    "keys": "values",
    "values": "keys",
    "ljust": "rjust",
    "rjust": "ljust",
}
_OPERATORS = (ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp)


@dataclass(frozen=True)
class Mutant:
    """A text with one bug."""

    kind: str
    line: int
    """Of the text, from 1."""
    text: str


def mutants(text: str, function: str, rng: random.Random) -> list[Mutant]:
    """Mutants of a function of an ASCII text, those of different kinds by turns, otherwise in a drawn order."""
    made = list(dict.fromkeys(_Mutations(text, function).all()))
    by_kind: dict[str, list[Mutant]] = {}
    for mutant in made:
        if mutant.text != text and _parses(mutant.text):
            by_kind.setdefault(mutant.kind, []).append(mutant)
    groups = [by_kind[kind] for kind in sorted(by_kind)]
    rng.shuffle(groups)
    for group in groups:
        rng.shuffle(group)
    longest = max(map(len, groups), default=0)
    return [group[rank] for rank in range(longest) for group in groups if rank < len(group)]


def _parses(text: str) -> bool:
    try:
        compile(text, "mutant", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return True


class _Mutations:
    """All of them, one place after the other."""

    def __init__(self, text: str, function: str) -> None:
        self.text = text
        self.starts = [0]
        for line in text.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        functions = [part for part in ast.parse(text).body if isinstance(part, ast.FunctionDef)]
        self.function = next(part for part in functions if part.name == function)
        self.names = sorted(
            {argument.arg for argument in self.function.args.args}
            | {part.id for part in ast.walk(self.function) if isinstance(part, ast.Name) and _stored(part)}
        )

    def all(self) -> Iterator[Mutant]:
        for statement in self.function.body:
            if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):
                yield from self._of(statement, self.function)

    def _of(self, node: ast.AST, parent: ast.AST) -> Iterator[Mutant]:
        # Positions within a formatted string are not those of the text before Python 3.12.
        if isinstance(node, ast.JoinedStr):
            return
        handler = getattr(self, f"_{type(node).__name__.lower()}", None)
        if handler is not None:
            yield from handler(node, parent)
        if isinstance(node, ast.stmt):
            yield from self._statement(node, parent)
        for child in ast.iter_child_nodes(node):
            yield from self._of(child, node)

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = self.starts[node.lineno - 1] + node.col_offset
        return start, self.starts[node.end_lineno - 1] + node.end_col_offset

    def _said(self, node: ast.expr | ast.stmt) -> str:
        start, end = self._span(node)
        return self.text[start:end]

    def _put(self, kind: str, node: ast.expr | ast.stmt, new: str) -> Mutant:
        start, end = self._span(node)
        return Mutant(kind, node.lineno, self.text[:start] + new + self.text[end:])

    def _between(self, kind: str, left: ast.expr, right: ast.expr, old: str) -> Iterator[Mutant]:
        """Another sign between two operands."""
        start, end = self._span(left)[1], self._span(right)[0]
        pattern = rf"\b{old}\b".replace(" ", r"\s+") if old[0].isalpha() else re.escape(old)
        for new in _SIGNS[old]:
            between, count = re.subn(pattern, new, self.text[start:end], count=1)
            if count:
                yield Mutant(kind, left.lineno, self.text[:start] + between + self.text[end:])

    def _compare(self, node: ast.Compare, parent: ast.AST) -> Iterator[Mutant]:
        operands = [node.left, *node.comparators]
        for index, sign in enumerate(node.ops):
            yield from self._between("comparison", operands[index], operands[index + 1], _NAMED[type(sign)])

    def _binop(self, node: ast.BinOp, parent: ast.AST) -> Iterator[Mutant]:
        if type(node.op) in _NAMED:
            yield from self._between("arithmetic", node.left, node.right, _NAMED[type(node.op)])

    def _boolop(self, node: ast.BoolOp, parent: ast.AST) -> Iterator[Mutant]:
        for first, second in zip(node.values, node.values[1:], strict=False):
            yield from self._between("logic", first, second, _NAMED[type(node.op)])

    def _unaryop(self, node: ast.UnaryOp, parent: ast.AST) -> Iterator[Mutant]:
        yield self._put("negation", node, self._said(node.operand))

    def _if(self, node: ast.If | ast.While | ast.IfExp, parent: ast.AST) -> Iterator[Mutant]:
        test = self._said(node.test)
        yield self._put(
            "negation", node.test, f"not ({test})" if isinstance(node.test, _OPERATORS) else f"not {test}"
        )

    _while = _ifexp = _if

    def _constant(self, node: ast.Constant, parent: ast.AST) -> Iterator[Mutant]:
        value = node.value
        if isinstance(value, bool):
            yield self._put("number", node, repr(not value))
        elif isinstance(value, (int, float)):
            yield self._put("number", node, repr(value + 1))
            if value:
                yield self._put("number", node, repr(value - 1) if value >= 1 else repr(value * 2))
        elif isinstance(value, str) and value and not isinstance(parent, ast.Expr):
            for new in (value[1:], value[:-1], value.swapcase(), f"{value}{value[-1]}"):
                if new != value:
                    yield self._put("text", node, repr(new))

    def _name(self, node: ast.Name, parent: ast.AST) -> Iterator[Mutant]:
        if node.id in self.names and not _stored(node):
            for name in self.names:
                if name != node.id:
                    yield self._put("variable", node, name)

    def _call(self, node: ast.Call, parent: ast.AST) -> Iterator[Mutant]:
        function = node.func
        called = function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
        if called in _CONFUSED:
            before = f"{self._said(function.value)}." if isinstance(function, ast.Attribute) else ""
            yield self._put("function", function, before + _CONFUSED[called])
        if len(node.args) == 1 and not isinstance(node.args[0], (ast.GeneratorExp, ast.Starred)):
            inner = self._said(node.args[0])
            yield self._put("call", node, f"({inner})" if isinstance(node.args[0], _OPERATORS) else inner)
        elif len(node.args) > 1:
            first, second = self._span(node.args[0]), self._span(node.args[1])
            swapped = (
                self.text[second[0] : second[1]] + self.text[first[1] : second[0]] + self.text[slice(*first)]
            )
            text = self.text[: first[0]] + swapped + self.text[second[1] :]
            yield Mutant("arguments", node.lineno, text)
            last = (self._span(node.args[-2])[1], self._span(node.args[-1])[1])
            yield Mutant("arguments", node.lineno, self.text[: last[0]] + self.text[last[1] :])

    def _subscript(self, node: ast.Subscript, parent: ast.AST) -> Iterator[Mutant]:
        if not isinstance(node.slice, (ast.Slice, ast.Tuple, ast.Constant)):
            yield self._put("index", node.slice, f"{self._said(node.slice)} + 1")
            yield self._put("index", node.slice, f"{self._said(node.slice)} - 1")

    def _slice(self, node: ast.Slice, parent: ast.AST) -> Iterator[Mutant]:
        for bound in (node.lower, node.upper):
            if bound is not None:
                yield self._put("slice", bound, "")
                if not isinstance(bound, ast.Constant):
                    yield self._put("slice", bound, f"{self._said(bound)} + 1")

    def _augassign(self, node: ast.AugAssign, parent: ast.AST) -> Iterator[Mutant]:
        start, end = self._span(node.target)[1], self._span(node.value)[0]
        sign = _NAMED.get(type(node.op), "")
        if sign:
            for new in (*_SIGNS[sign][:1], ""):
                text = (
                    self.text[:start]
                    + self.text[start:end].replace(f"{sign}=", f"{new}=", 1)
                    + self.text[end:]
                )
                yield Mutant("assignment", node.lineno, text)

    def _return(self, node: ast.Return, parent: ast.AST) -> Iterator[Mutant]:
        if node.value is not None and not (isinstance(node.value, ast.Constant) and node.value.value is None):
            yield self._put("return", node.value, "None")

    def _break(self, node: ast.Break, parent: ast.AST) -> Iterator[Mutant]:
        yield self._put("jump", node, "continue")

    def _continue(self, node: ast.Continue, parent: ast.AST) -> Iterator[Mutant]:
        yield self._put("jump", node, "break")

    def _statement(self, node: ast.stmt, parent: ast.AST) -> Iterator[Mutant]:
        if isinstance(node, (ast.Assign, ast.AugAssign, ast.Expr, ast.Continue, ast.Break)) or (
            isinstance(node, ast.Return) and not isinstance(parent, ast.FunctionDef)
        ):
            yield self._put("deletion", node, "pass")
        for name in ("body", "orelse"):
            body = getattr(parent, name, [])
            if isinstance(body, list) and node in body[:-1]:
                after = body[body.index(node) + 1]
                if isinstance(after, (ast.Assign, ast.AugAssign, ast.Expr)):
                    first, second = self._span(node), self._span(after)
                    text = (
                        self.text[slice(*second)] + self.text[first[1] : second[0]] + self.text[slice(*first)]
                    )
                    yield Mutant("order", node.lineno, self.text[: first[0]] + text + self.text[second[1] :])


def _stored(node: ast.Name) -> bool:
    return isinstance(node.ctx, (ast.Store, ast.Del))
