"""Expressions made of the names at one place of a program, the smallest first, each value once.

What an expression is worth is computed from the values of its parts where the place was reached, not by running it: two
that are worth the same at all of these visits are one (observational equivalence; Albarghouthi et al. 2013).
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

_LONGEST = 400
"""Characters by which two values are told apart."""
_MOST_NUMBER, _MOST_LENGTH = 10**12, 10_000
"""Beyond them nothing is computed."""


class Missing:
    """In the place of a value that there is not."""

    def __deepcopy__(self, memo: Any) -> Missing:
        return self

    def __repr__(self) -> str:
        return "(missing)"


MISSING: Any = Missing()


class Expression(NamedTuple):
    """A text, and its value at each visit."""

    text: str
    values: tuple[Any, ...]
    size: int
    compound: bool

    @property
    def operand(self) -> str:
        return f"({self.text})" if self.compound else self.text

    @property
    def kind(self) -> type:
        """Of its first value."""
        return next((type(value) for value in self.values if value is not MISSING), Missing)


def _small(value: Any) -> Any:
    """A value, MISSING where it is too large to go on with."""
    kind = type(value)
    if kind is int or kind is float:
        return value if -_MOST_NUMBER < value < _MOST_NUMBER else MISSING
    return MISSING if kind in (str, list, tuple) and len(value) > _MOST_LENGTH else value


def _each(function: Callable[[Any], Any], values: Sequence[Any]) -> tuple[Any, ...]:
    """A function of each value, MISSING where it has none."""
    made = []
    for value in values:
        try:
            made.append(MISSING if value is MISSING else _small(function(value)))
        except Exception:
            made.append(MISSING)
    return tuple(made)


def _both(function: Callable[[Any, Any], Any], left: Sequence[Any], right: Sequence[Any]) -> tuple[Any, ...]:
    """The same of pairs of values."""
    made = []
    for first, second in zip(left, right, strict=True):
        try:
            missing = first is MISSING or second is MISSING
            made.append(MISSING if missing else _small(function(first, second)))
        except Exception:
            made.append(MISSING)
    return tuple(made)


_Unary = tuple[str, bool, Callable[[Any], Any]]
_Binary = tuple[str, bool, Callable[[Any, Any], Any]]
_NUMBERS: list[_Unary] = [
    ("{o} + 1", True, lambda a: a + 1),
    ("{o} - 1", True, lambda a: a - 1),
    ("-{o}", True, operator.neg),
    ("not {o}", True, operator.not_),
    ("abs({t})", False, abs),
    ("str({t})", False, str),
    ("[{t}]", False, lambda a: [a]),
    ("{o} // 2", True, lambda a: a // 2),
    ("{o} * 2", True, lambda a: a * 2),
    ("{o} % 2", True, lambda a: a % 2),
    ("int({t})", False, int),
]
_TEXTS: list[_Unary] = [
    ("len({t})", False, len),
    ("not {o}", True, operator.not_),
    ("int({t})", False, int),
    ("float({t})", False, float),
    ("{o}.strip()", False, lambda a: a.strip()),
    ("{o}.lower()", False, lambda a: a.lower()),
    ("{o}.upper()", False, lambda a: a.upper()),
    ("{o}[0]", False, lambda a: a[0]),
    ("{o}[-1]", False, lambda a: a[-1]),
    ("{o}[1:]", False, lambda a: a[1:]),
    ("{o}[:-1]", False, lambda a: a[:-1]),
    ("{o}[::-1]", False, lambda a: a[::-1]),
    ("{o}.split()", False, lambda a: a.split()),
    ("{o}.isdigit()", False, lambda a: a.isdigit()),
    ("{o}.isalpha()", False, lambda a: a.isalpha()),
    ("{o}.isspace()", False, lambda a: a.isspace()),
    ("{o}.title()", False, lambda a: a.title()),
    ("ord({t})", False, ord),
    ("[{t}]", False, lambda a: [a]),
    ("list({t})", False, list),
]
_LISTS: list[_Unary] = [
    ("len({t})", False, len),
    ("not {o}", True, operator.not_),
    ("{o}[0]", False, lambda a: a[0]),
    ("{o}[-1]", False, lambda a: a[-1]),
    ("{o}[1]", False, lambda a: a[1]),
    ("sum({t})", False, sum),
    ("max({t})", False, max),
    ("min({t})", False, min),
    ("sorted({t})", False, sorted),
    ("list({t})", False, list),
    ("{o}[::-1]", False, lambda a: a[::-1]),
    ("{o}[1:]", False, lambda a: a[1:]),
    ("{o}[:-1]", False, lambda a: a[:-1]),
    ("set({t})", False, set),
    ('"".join({t})', False, lambda a: "".join(a)),
    ('" ".join({t})', False, lambda a: " ".join(a)),
    ("[{t}]", False, lambda a: [a]),
    ("dict({t})", False, dict),
]
_MAPPINGS: list[_Unary] = [
    ("len({t})", False, len),
    ("not {o}", True, operator.not_),
    ("list({t})", False, list),
    ("sorted({t})", False, sorted),
    ("list({o}.values())", False, lambda a: list(a.values())),
    ("sum({o}.values())", False, lambda a: sum(a.values())),
    ("max({o}.values())", False, lambda a: max(a.values())),
    ("[{t}]", False, lambda a: [a]),
]
_SETS: list[_Unary] = [
    ("len({t})", False, len),
    ("not {o}", True, operator.not_),
    ("sorted({t})", False, sorted),
    ("list({t})", False, list),
]
_TRUTHS: list[_Unary] = [("not {o}", True, operator.not_), ("int({t})", False, int)]
_UNARY: dict[type, list[_Unary]] = {
    bool: _TRUTHS,
    int: _NUMBERS,
    float: _NUMBERS,
    str: _TEXTS,
    list: _LISTS,
    tuple: _LISTS,
    dict: _MAPPINGS,
    set: _SETS,
}

_OF_NUMBERS: list[_Binary] = [
    ("{0} + {1}", True, operator.add),
    ("{0} - {1}", True, operator.sub),
    ("{0} * {1}", True, operator.mul),
    ("{0} // {1}", True, operator.floordiv),
    ("{0} % {1}", True, operator.mod),
    ("{0} / {1}", True, operator.truediv),
    ("{0} < {1}", True, operator.lt),
    ("{0} <= {1}", True, operator.le),
    ("{0} == {1}", True, operator.eq),
    ("{0} != {1}", True, operator.ne),
    ("min({2}, {3})", False, min),
    ("max({2}, {3})", False, max),
]
_OF_TEXTS: list[_Binary] = [
    ("{0} + {1}", True, operator.add),
    ("{0} == {1}", True, operator.eq),
    ("{0} != {1}", True, operator.ne),
    ("{0} in {1}", True, lambda a, b: a in b),
    ("{0} not in {1}", True, lambda a, b: a not in b),
    ("{0} < {1}", True, operator.lt),
    ("{0}.startswith({3})", False, lambda a, b: a.startswith(b)),
    ("{0}.endswith({3})", False, lambda a, b: a.endswith(b)),
    ("{0}.split({3})", False, lambda a, b: a.split(b)),
    ("{0}.find({3})", False, lambda a, b: a.find(b)),
    ("{0}.count({3})", False, lambda a, b: a.count(b)),
]
_INDEXED: list[_Binary] = [
    ("{0}[{3}]", False, operator.getitem),
    ("{0}[{3}:]", False, lambda a, b: a[b:]),
    ("{0}[:{3}]", False, lambda a, b: a[:b]),
]
_OF_LISTS: list[_Binary] = [
    ("{0} + {1}", True, operator.add),
    ("{0} == {1}", True, operator.eq),
    ("{0} < {1}", True, operator.lt),
]
_OF_SETS: list[_Binary] = [
    ("{0} | {1}", True, operator.or_),
    ("{0} & {1}", True, operator.and_),
    ("{0} - {1}", True, operator.sub),
    ("{0} == {1}", True, operator.eq),
]
_OF_TRUTHS: list[_Binary] = [
    ("{0} and {1}", True, lambda a, b: a and b),
    ("{0} or {1}", True, lambda a, b: a or b),
    ("{0} != {1}", True, operator.ne),
]
_KEYED: list[_Binary] = [
    ("{0}[{3}]", False, operator.getitem),
    ("{0}.get({3})", False, lambda a, b: a.get(b)),
    ("{0}.get({3}, 0)", False, lambda a, b: a.get(b, 0)),
    ("{1} in {0}", True, lambda a, b: b in a),
    ("{1} not in {0}", True, lambda a, b: b not in a),
]
_MEMBER: list[_Binary] = [
    ("{1} in {0}", True, lambda a, b: b in a),
    ("{1} not in {0}", True, lambda a, b: b not in a),
    ("{0} + [{3}]", True, lambda a, b: [*a, b] if type(a) is list else MISSING),
]
_EQUAL: list[_Binary] = [("{0} == {1}", True, operator.eq), ("{0} != {1}", True, operator.ne)]
_EITHER: list[_Binary] = [("{0} or {1}", True, lambda a, b: a or b)]
_COUPLE: list[_Binary] = [("[{2}, {3}]", False, lambda a, b: [a, b])]
_NUMERIC, _LISTED = (int, float), (list, tuple)


def _binary(left: type, right: type) -> list[_Binary]:
    """What is made of two values of such types, in this order."""
    if left in _NUMERIC and right in _NUMERIC:
        return [*_OF_NUMBERS, *_COUPLE]
    if left is str and right is str:
        return [*_OF_TEXTS, *_EITHER]
    if left in (str, list, tuple) and right is int:
        return [*_INDEXED, *(_MEMBER if left in _LISTED else [])]
    if left is str and right in _LISTED:
        return [("{0}.join({3})", False, lambda a, b: a.join(b)), ("{0} in {1}", True, lambda a, b: a in b)]
    if left in _LISTED and right in _LISTED:
        return [*_OF_LISTS, *_MEMBER] if left is right else _MEMBER
    if left is dict:
        return _KEYED
    if left is set:
        return _OF_SETS if right is set else _MEMBER[:2]
    if left in _LISTED:
        return _MEMBER
    if left is bool and right is bool:
        return _OF_TRUTHS
    return _EQUAL if left is right else []


_TRUE = ("<", "==", "!=", " in ", "not ", "startswith", "endswith", ".is", " and ", " or ")
"""Signs of a form that gives a truth."""


def _printed(value: Any) -> tuple[type, str]:
    try:
        return type(value), repr(value)[:_LONGEST]
    except Exception:
        return type(value), f"at {id(value)}"


class Composer:
    """Expressions over names, by their values at some visits.

    Args:
        names: that a visit gives values of.
        visits: values of the names, MISSING where one had none.
        before: the text that stood there, if any, and whether it needs parentheses as an operand.
        atoms: the same of constants and of expressions of the program.
        called: names of functions of the program.
        attributes: of objects.
        evaluate: a text → its value at each visit.
        truth: whether a truth is wanted, None for anything: what cannot be it is not made last of all.
        most: values that are computed.
    """

    def __init__(
        self,
        names: Sequence[str],
        visits: Sequence[Sequence[Any]],
        before: Sequence[tuple[str, bool]],
        atoms: Sequence[tuple[str, bool]],
        called: Sequence[tuple[str, Callable[..., Any]]],
        attributes: Sequence[str],
        evaluate: Callable[[str], tuple[Any, ...]],
        truth: bool | None,
        most: int,
    ) -> None:
        self._before, self._truth, self._left = before, truth, most
        self._called, self._attributes = called, attributes
        self._names = [
            Expression(name, tuple(visit[index] for visit in visits), 1, False)
            for index, name in enumerate(names)
        ]
        self._atoms, self._evaluate = atoms, evaluate
        self._seen: set[tuple[Any, ...]] = set()
        self._own = {id(value) for visit in visits for value in visit}

    def all(self) -> Iterator[Expression]:
        """One expression for each behaviour, about the smallest first."""
        core: list[Expression] = []
        for name in self._names:
            yield from self._new(name, core)
        # What stood there comes next: mostly it lacks something.
        before: list[Expression] = []
        for text, compound in self._before:
            yield from self._new(Expression(text, self._evaluate(text), 1, compound), before)
        core += before
        atoms: list[Expression] = []
        for text, compound in self._atoms:
            yield from self._new(Expression(text, self._evaluate(text), 1 + compound, compound), atoms)
        near: list[Expression] = []
        far: list[Expression] = []
        for inner in core:
            yield from self._made(self._ones(inner), near)
        for left in core:
            for right in core:
                yield from self._made(self._twos(left, right), near)
        for inner in atoms:
            yield from self._made(self._ones(inner), far)
        for left in core:
            for right in atoms:
                yield from self._made(self._twos(left, right), far)
                yield from self._made(self._twos(right, left), far)
        for inners, others in ((near, before), (near, core), (far, before), (near, atoms), (far, core)):
            further: list[Expression] = []
            for inner in inners:
                if others is core:
                    yield from self._made(self._ones(inner, last=True), further)
                for other in others:
                    yield from self._made(self._twos(inner, other, last=True), further)
                    yield from self._made(self._twos(other, inner, last=True), further)
            yield from self._joined(further, before)

    def _joined(self, conditions: Sequence[Expression], before: Sequence[Expression]) -> Iterator[Expression]:
        """Conditions with that which stood there."""
        for condition in conditions:
            for old in before if condition.kind is bool else ():
                yield from self._made(self._twos(old, condition, last=True), [])

    def _made(self, expressions: Iterable[Expression], level: list[Expression]) -> Iterator[Expression]:
        for expression in expressions:
            yield from self._new(expression, level)

    def _new(self, made: Expression, level: list[Expression]) -> Iterator[Expression]:
        if self._left <= 0:
            return
        self._left -= 1
        if all(value is MISSING for value in made.values):
            return
        own = any(type(value) in (list, dict, set) and id(value) in self._own for value in made.values)
        key = (own, *map(_printed, made.values))
        if key in self._seen:
            return
        self._seen.add(key)
        level.append(made)
        yield made

    def _idle(self, form: str, last: bool) -> bool:
        """Whether it is of no use to make something of a form."""
        truth = any(sign in form for sign in _TRUE)
        return self._left <= 0 or (last and self._truth is not None and truth != self._truth)

    def _ones(self, inner: Expression, *, last: bool = False) -> Iterator[Expression]:
        for form, compound, function in _UNARY.get(inner.kind, ()):
            if self._idle(form, last):
                continue
            text = form.format(o=inner.operand, t=inner.text)
            yield Expression(text, _each(function, inner.values), inner.size + 1, compound)
        if hasattr(inner.kind, "__dict__") and inner.kind not in _UNARY:
            for name in self._attributes:
                values = _each(operator.attrgetter(name), inner.values)
                yield Expression(f"{inner.operand}.{name}", values, inner.size + 1, False)
        for name, function in self._called:
            values = _each(function, copy.deepcopy(inner.values))
            yield Expression(f"{name}({inner.text})", values, inner.size + 1, False)

    def _twos(self, left: Expression, right: Expression, *, last: bool = False) -> Iterator[Expression]:
        size = left.size + right.size + 1
        for form, compound, function in _binary(left.kind, right.kind):
            if self._idle(form, last):
                continue
            text = form.format(left.operand, right.operand, left.text, right.text)
            yield Expression(text, _both(function, left.values, right.values), size, compound)
        for name, function in self._called if size <= 3 and self._left > 0 else ():
            values = _both(function, *copy.deepcopy((left.values, right.values)))
            yield Expression(f"{name}({left.text}, {right.text})", values, size, False)
