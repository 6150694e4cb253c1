"""Places of a function filled with whatever makes its rows right: expressions, and statements that are not there.

A single edit changes what stands in a text; what was lost from it has to be made.  A hole is a place with the names
that can be said there; the sandbox fills it (`sandbox/inside/holes.py`) after the manner of semantic repair by
enumeration (SemFix, Nguyen et al. 2013; Angelix, Mechtaev et al. 2016), and what it is filled with is an edit as
others are.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ...repository.syntax import FunctionNode
from ...repository.text import Span
from ...types import Json
from .corrections import NO_CORRECTIONS, Corrections
from .scopes import COMPOUND, Place, Scope, scopes
from .source import PythonSource
from .statements import Spot, Statements
from .synthesis import parameters, unset_names

_CONSTANTS = ("0", "1", "-1", "2", '""', '" "', "[]", "{}", "True", "False", "None")
_ANSWERS: dict[str, Json] = {"True": True, "False": False, "None": None, "0": 0, "[]": [], '""': "", "-1": -1}
"""What an early return may give, where it is the right answer of some row."""
_NAMES, _TARGETS, _WORDS, _FRAMES = 12, 6, 6, 6
_EFFECTS = (ast.Yield, ast.YieldFrom, ast.Await, ast.NamedExpr)
_CHANGING = frozenset(
    ["pop", "popleft", "append", "add", "remove", "extend", "update", "setdefault", "next", "insert"]
)
_LOOSE = (ast.stmt, ast.Call, ast.keyword, ast.Subscript, ast.List, ast.Slice, ast.Dict, ast.comprehension)
"""Parents in which an expression needs no parentheses."""


class Target(NamedTuple):
    """What a filling becomes."""

    takes: str
    """`value`, `test` or `any`: an expression; `set`: one for a `name`; `jump`: the condition of one."""
    name: str
    form: str
    """The text with `{}` for the expression."""


class Part(NamedTuple):
    """An expression that others are made of."""

    text: str
    compound: bool
    """It needs parentheses as an operand."""


@dataclass(frozen=True)
class Hole:
    """One place that can be filled."""

    prior: float
    line: int
    changes: tuple[tuple[Span, str], ...]
    """That make the hole."""
    place: tuple[Span, str, str]
    """Where a filling goes, and the texts before and after it."""
    names: tuple[str, ...]
    before: tuple[Part, ...]
    """The expression that stands there."""
    atoms: tuple[Part, ...]
    called: tuple[str, ...]
    attributes: tuple[str, ...]
    targets: tuple[Target, ...] = field(default=())
    beyond: int = 0

    kind = "hole"

    def filled(self, text: str, target: int) -> tuple[tuple[Span, str], ...]:
        """The changes that put an expression there."""
        span, before, after = self.place
        return ((span, f"{before}{self.targets[target].form.format(text)}{after}"),)


def holes(source: PythonSource, corrections: Corrections = NO_CORRECTIONS) -> list[Hole]:
    """The places of the functions of a text that may change, in the order of kind and place."""
    return [
        hole
        for scope, places in scopes(source)
        if isinstance(scope.owner, FunctionNode)
        for hole in _Holes(source, scope, corrections).all(places)
    ]


class _Holes:
    def __init__(self, source: PythonSource, scope: Scope, corrections: Corrections) -> None:
        self.source, self.scope = source, scope
        self._parameters = parameters(scope.owner)
        self._unset = unset_names(source, scope)
        outer = [
            target.id
            for node in source.tree.body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        ]
        names = [*scope.names, *self._parameters, *outer]
        self._names = tuple(dict.fromkeys(name for name in names if name not in scope.called))[:_NAMES]
        frames = [
            frame.format(name)
            for name in self._parameters
            for frame in corrections.of_parameter(name, len(self._parameters) == 1)[:_FRAMES]
        ]
        pure = [(text, _compound(node)) for text, node in scope.expressions if not _has_effects(node)]
        own = [*map(repr, scope.numbers), *map(repr, scope.texts), *map(repr, corrections.words[:_WORDS])]
        simple = [(text, text.startswith("-")) for text in (*_CONSTANTS, *own)]
        parts = [*simple, *pure, *((frame, True) for frame in frames)]
        self._atoms = tuple({text: Part(text, compound) for text, compound in parts}.values())
        wanted = [row.wanted for row in corrections.rows]
        self._answers = [text for text, answer in _ANSWERS.items() if answer in wanted]
        # What calls the function itself comes upon the hole, and says nothing yet.
        self._called = tuple(name for name in scope.called if name != getattr(scope.owner, "name", ""))[:4]

    def all(self, places: Sequence[Place]) -> Iterator[Hole]:
        for place in places:
            yield from self._value(place)
        statements = Statements(self.source, self.scope)
        for spot in statements.spots:
            yield from self._statements(statements, spot)

    def _hole(self, **own: object) -> Hole:
        attributes = tuple(self.scope.attributes)
        return Hole(names=self._names, called=self._called, attributes=attributes, **own)  # type: ignore[arg-type]

    def _getters(self) -> str:
        return ", ".join(f"lambda: {name}" for name in self._names)

    def _value(self, place: Place) -> Iterator[Hole]:
        node, parent = place.node, place.parent
        prior = _prior(place)
        if not prior or _has_effects(node) or not self._names:
            return
        text, span = self.source.segment(node), self.source.span(node)
        inner = f"__whet_hole__(lambda: ({text}), {self._getters()})"
        compound = not isinstance(parent, _LOOSE)
        yield self._hole(
            prior=prior,
            line=node.lineno,
            changes=((span, inner),),
            before=(Part(text, _compound(node)),),
            place=(span, "(" if compound else "", ")" if compound else ""),
            atoms=tuple(atom for atom in self._atoms if atom.text != text),
            targets=(Target("test" if place.name in ("test", "ifs") else "value", "", "{}"),),
        )

    def _statements(self, statements: Statements, spot: Spot) -> Iterator[Hole]:
        targets = self._targets(statements, spot)
        reads = {node.id for node in ast.walk(spot.node) if isinstance(node, ast.Name)}
        prior = 0.8 if reads & set(self._unset) else 0.3
        lines = [f"__whet_to__, __whet_it__ = __whet_spot__({self._getters()})"]
        for index, target in enumerate(targets):
            # The form of a jump says its condition, which has been looked at by then.
            form = (
                target.form.partition(": ")[2]
                if target.takes == "jump"
                else target.form.format("__whet_it__")
            )
            lines.append(f"if __whet_to__ == {index}: {form}")
        places = [(statements.before, prior)]
        if spot.index == len(spot.body) - 1 and not isinstance(
            spot.node, (ast.Return, ast.Break, ast.Continue, ast.Raise)
        ):
            places.append((statements.after, 0.3))
        for put, place_prior in places:
            indent = statements.indent(spot.node)
            change = put(spot.node, f"\n{indent}".join(lines))
            if change is None or not self._names:
                continue
            ((span, whole),) = change
            before, _, after = whole.partition(lines[0])
            after = after.partition(lines[-1])[2]
            yield self._hole(
                prior=place_prior,
                line=spot.node.lineno,
                changes=tuple(change),
                before=(),
                place=(span, before, after),
                atoms=self._atoms,
                targets=tuple(targets),
            )

    def _targets(self, statements: Statements, spot: Spot) -> list[Target]:
        stored = [
            node.id
            for node in ast.walk(self.scope.owner)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        ]
        assigned = [name for name in dict.fromkeys((*self._unset, *stored)) if name in self._names]
        assigned += [name for name in self._parameters if name in self._names and name not in assigned]
        targets = [Target("set", name, f"{name} = {{}}") for name in assigned[:_TARGETS]]
        targets += [
            Target("any", "", f"{holder}.{method}({{}})") for method, holder in statements.containers()[:2]
        ]
        subscripts = {
            self.source.segment(node): None
            for node in ast.walk(self.scope.owner)
            if isinstance(node, ast.Subscript)
            and isinstance(node.ctx, ast.Store)
            and not isinstance(node.slice, ast.Slice)
        }
        targets += [
            Target("any", "", f"{text.replace('{', '{{').replace('}', '}}')} = {{}}")
            for text in list(subscripts)[:2]
        ]
        if not spot.loop:
            targets.append(Target("any", "", "return {}"))
        jumps = ["continue", "break"] if spot.loop else []
        jumps += [f"return {text}" for text in (*self._answers, *assigned[:2])]
        targets += [Target("jump", "", f"if {{}}: {jump}") for jump in jumps]
        return targets


def _compound(node: ast.expr) -> bool:
    return isinstance(node, (*COMPOUND, ast.Tuple))


def _has_effects(node: ast.AST) -> bool:
    for part in ast.walk(node):
        if isinstance(part, _EFFECTS):
            return True
        if isinstance(part, ast.Call):
            name = part.func.attr if isinstance(part.func, ast.Attribute) else getattr(part.func, "id", "")
            if name in _CHANGING:
                return True
    return False


def _prior(place: Place) -> float:
    """How likely an expression lacks something; 0 where it is left alone."""
    node, parent, name = place.node, place.parent, place.name
    if isinstance(node, (ast.Starred, ast.Slice, ast.JoinedStr, ast.Lambda)) or name == "func":
        return 0.0
    if isinstance(parent, (ast.Expr, ast.Attribute, ast.FormattedValue, ast.JoinedStr)):
        return 0.0
    if isinstance(parent, ast.Return):
        return 0.9 if isinstance(node, ast.Constant) else 0.5
    if isinstance(parent, (ast.Assign, ast.AugAssign)):
        return 0.45
    if name in ("test", "ifs"):
        return 0.4
    if isinstance(parent, (ast.Call, ast.keyword)):
        return 0.3
    if (
        isinstance(parent, (ast.List, ast.Tuple, ast.Dict, ast.IfExp, ast.For, ast.comprehension))
        or name == "elt"
    ):
        return 0.3
    if isinstance(parent, (ast.Subscript, ast.Slice)):
        return 0.25
    if isinstance(node, COMPOUND):
        return 0.25
    return 0.15 if isinstance(parent, (ast.Compare, ast.BinOp, ast.BoolOp)) else 0.0
