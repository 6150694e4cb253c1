"""Single edits of expressions: another operator, name, bound, argument or call, or the same in another order."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from ....repository.text import Span
from .scopes import COMPOUND, Place, SingleEdit
from .source import PythonSource

_COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<= > >= != =="),
    ast.LtE: ("<=", "< >= > == !="),
    ast.Gt: (">", ">= < <= != =="),
    ast.GtE: (">=", "> <= < == !="),
    ast.Eq: ("==", "!= <= >= < >"),
    ast.NotEq: ("!=", "== < > <= >="),
    ast.Is: ("is", "==|is not"),
    ast.IsNot: ("is not", "!=|is"),
    ast.In: ("in", "not in|=="),
    ast.NotIn: ("not in", "in|!="),
}
"""Operator → its text, and those that are tried in its place, the likelier first."""
_ARITHMETIC: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "- * //"),
    ast.Sub: ("-", "+ * // %"),
    ast.Mult: ("*", "/ + // - **"),
    ast.Div: ("/", "// * %"),
    ast.FloorDiv: ("//", "/ % * -"),
    ast.Mod: ("%", "// / *"),
    ast.Pow: ("**", "* +"),
    ast.BitAnd: ("&", "| ^ and"),
    ast.BitOr: ("|", "& ^ or"),
    ast.BitXor: ("^", "& |"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
}
_COUNTERPARTS = (
    "min max",
    "any all",
    "append extend appendleft add insert",
    "add discard remove update",
    "lower upper casefold title capitalize swapcase",
    "strip lstrip rstrip",
    "startswith endswith",
    "find rfind index rindex count",
    "split rsplit splitlines",
    "ljust rjust center",
    "floor ceil round trunc int",
    "pop popleft",
    "keys values items",
    "sum max min len",
    "sorted reversed list",
    "list set tuple",
    "isdigit isalpha isalnum isspace isupper islower isdecimal",
    "union intersection difference symmetric_difference",
    "bisect bisect_left bisect_right",
    "removeprefix removesuffix",
    "partition rpartition",
    "setdefault get",
    "int float str",
    "issubset issuperset",
    "heappush heappop heapify",
    "permutations combinations product",
    "sin cos tan",
    "year month day",
    "days seconds hours minutes weeks",
    "now today utcnow",
    "total_seconds seconds",
)
_TWINS: dict[str, list[str]] = {}
for _family in _COUNTERPARTS:
    for _name in _family.split():
        others = [other for other in _family.split() if other != _name and other not in _TWINS.get(_name, [])]
        _TWINS[_name] = [*_TWINS.get(_name, []), *others]
_CONVERSIONS = [
    "tuple",
    "dict",
    "ord",
    "chr",
    "repr",
    "any",
    "all",
    "min",
    "max",
    "next",
    "iter",
    "enumerate",
    "hex",
    "bin",
    "range",
]
"""Calls that are seldom left out."""
_ASKED = ("startswith", "endswith", "split", "rsplit", "partition", "find", "count", "strip", "index")
"""Methods of a text that are given another."""
_LOOSE = (ast.stmt, ast.Call, ast.Subscript, ast.List, ast.keyword, ast.Slice, ast.Dict)
"""Parents in which an expression needs no parentheses."""
_BUILT_IN = frozenset(dir(builtins))


def expression_edits(source: PythonSource, places: Iterable[Place]) -> Iterator[SingleEdit]:
    """The edits of expressions in their places."""
    return _Expressions(source).of(places)


class _Expressions:
    """The edits of expressions."""

    def __init__(self, source: PythonSource) -> None:
        self.source = source

    def of(self, places: Iterable[Place]) -> Iterator[SingleEdit]:
        for place in places:
            node = place.node
            for kind in type(node).__mro__:
                handler = getattr(self, f"_at_{kind.__name__.lower()}", None)
                if handler is not None:
                    yield from handler(place)
            if place.name != "func" and not isinstance(node, (ast.Starred, ast.Slice)):
                yield from self._any(place)

    # How a change is written.

    def text(self, node: ast.expr) -> str:
        """A node as an operand of something else."""
        segment = self.source.segment(node)
        loose = isinstance(node, (*COMPOUND, ast.Yield, ast.YieldFrom, ast.Await))
        # A tuple without parentheses, and a generator in those of its call, mean something else elsewhere.
        bare = isinstance(node, ast.Tuple) and not segment.startswith("(")
        return f"({segment})" if loose or bare else segment

    def edit(self, kind: str, prior: float, place: Place, text: str, *, compound: bool = True) -> SingleEdit:
        if compound and not isinstance(place.parent, _LOOSE):
            text = f"({text})"
        return self._splice(kind, prior, place.node, [(self.source.span(place.node), text)])

    def _splice(
        self, kind: str, prior: float, node: ast.expr | ast.stmt, changes: Sequence[tuple[Span, str]]
    ) -> SingleEdit:
        return SingleEdit(kind, prior, node.lineno, tuple(changes))

    def sign(
        self, kind: str, prior: float, left: ast.expr, right: ast.expr, old: str, new: str
    ) -> Iterator[SingleEdit]:
        """The sign between two operands replaced."""
        span = (self.source.span(left)[1], self.source.span(right)[0])
        pattern = (
            r"\b" + r"\s+".join(map(re.escape, old.split())) + r"\b" if old[0].isalpha() else re.escape(old)
        )
        between, count = re.subn(pattern, new.replace("\\", r"\\"), self.source.at(span), count=1)
        if count:
            yield self._splice(kind, prior, left, [(span, between)])

    # By the kind of node.

    def _at_compare(self, place: Place) -> Iterator[SingleEdit]:
        node = place.node
        assert isinstance(node, ast.Compare)
        operands = [node.left, *node.comparators]
        for index, operation in enumerate(node.ops):
            old, alternatives = _COMPARISONS[type(operation)]
            others = alternatives.split("|") if "|" in alternatives else alternatives.split()
            for rank, new in enumerate(others):
                prior = 1.0 if not rank else 0.8 if rank == 1 else 0.5
                yield from self.sign("comparison", prior, operands[index], operands[index + 1], old, new)
        if len(node.ops) == 1:
            left, right = self.source.segment(node.left), self.source.segment(node.comparators[0])
            old = _COMPARISONS[type(node.ops[0])][0]
            yield self.edit("operand", 0.3, place, f"{right} {old} {left}")

    def _at_binop(self, place: Place) -> Iterator[SingleEdit]:
        node = place.node
        assert isinstance(node, ast.BinOp)
        if type(node.op) not in _ARITHMETIC:
            return
        old, others = _ARITHMETIC[type(node.op)]
        for rank, new in enumerate(others.split()):
            yield from self.sign("arithmetic", 0.9 if not rank else 0.5, node.left, node.right, old, new)
        left, right = self.text(node.left), self.text(node.right)
        yield self.edit("operand", 0.5, place, f"{right} {old} {left}")
        for part in (node.left, node.right):
            yield self.edit(
                "operand", 0.6, place, self.source.segment(part), compound=isinstance(part, COMPOUND)
            )
        # The other way to read what stands without parentheses: (a + b) * c and a + b * c.
        if isinstance(node.left, ast.BinOp) and type(node.left.op) in _ARITHMETIC:
            inner = _ARITHMETIC[type(node.left.op)][0]
            first, second = self.text(node.left.left), self.text(node.left.right)
            yield self.edit("grouping", 0.5, place, f"{first} {inner} ({second} {old} {right})")
        if isinstance(node.right, ast.BinOp) and type(node.right.op) in _ARITHMETIC:
            inner = _ARITHMETIC[type(node.right.op)][0]
            second, third = self.text(node.right.left), self.text(node.right.right)
            yield self.edit("grouping", 0.5, place, f"({left} {old} {second}) {inner} {third}")

    def _at_boolop(self, place: Place) -> Iterator[SingleEdit]:
        node = place.node
        assert isinstance(node, ast.BoolOp)
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for first, second in zip(node.values, node.values[1:], strict=False):
            yield from self.sign("logic", 0.9, first, second, old, new)
        if len(node.values) > 2:
            yield self.edit("logic", 0.8, place, f" {new} ".join(map(self.text, node.values)))
        for index in range(len(node.values)):
            rest = [self.source.segment(part) for at, part in enumerate(node.values) if at != index]
            yield self.edit("logic", 0.6, place, f" {old} ".join(rest))

    def _at_unaryop(self, place: Place) -> Iterator[SingleEdit]:
        node = place.node
        assert isinstance(node, ast.UnaryOp)
        yield self.edit("negation", 0.8, place, self.source.segment(node.operand), compound=False)

    def _at_ifexp(self, place: Place) -> Iterator[SingleEdit]:
        node = place.node
        assert isinstance(node, ast.IfExp)
        test, body, orelse = (self.source.segment(part) for part in (node.test, node.body, node.orelse))
        yield self.edit("negation", 0.7, place, f"{orelse} if {test} else {body}")
        yield self.edit("operand", 0.4, place, body)
        yield self.edit("operand", 0.4, place, orelse)

    def _at_constant(self, place: Place) -> Iterator[SingleEdit]:
        node = place.node
        assert isinstance(node, ast.Constant)
        old, corrections = node.value, place.scope.corrections
        likely: list[object] = []
        rest: list[object] = []
        if isinstance(old, bool):
            likely, rest = [not old], [None]
        elif isinstance(old, int):
            likely = [old + 1, old - 1]
            rest = [0, 1, -1, 2, -old, *place.scope.numbers]
            if abs(old) >= 10:
                rest += [old * 10, old // 10, old * 2, old // 2]
            likely += [old + offset for offset in corrections.offsets]
            rest += [old * factor for factor in corrections.factors]
        elif isinstance(old, float):
            rest = [
                0.0,
                1.0,
                -old,
                old * 10,
                old / 10,
                old * 100,
                old / 100,
                old * 2,
                old / 2,
                old + 1,
                old - 1,
            ]
            rest += place.scope.numbers
            likely += [old + offset for offset in corrections.offsets]
            likely += [old * factor for factor in corrections.factors]
        elif isinstance(old, str) and not isinstance(place.parent, ast.Expr):
            likely = [word for word in ("", " ", old.strip(), old.lower(), old.upper()) if word != old]
            likely += corrections.texts(old)
            rest = [*place.scope.texts, *corrections.words, f"{old} ", f" {old}"]
            for spelling in corrections.spellings(old):
                yield self.edit("text", 0.25, place, _literal(spelling), compound=False)
            for moved in moved_numbers(old):
                yield self.edit("text", 0.4, place, _literal(moved), compound=False)
            yield from self._asked(place)
        elif old is None:
            rest = [0, False, True, "", 1]
        if (
            isinstance(place.parent, ast.Compare)
            and isinstance(old, (int, float))
            and not isinstance(old, bool)
        ):
            rest += corrections.given
        for prior, values in ((0.8, likely), (0.4, rest)):
            for new in values:
                if new != old or type(new) is not type(old):
                    yield self.edit("constant", prior, place, _literal(new), compound=_signed(new))
        if old is None:
            yield self.edit("constant", 0.3, place, "[]", compound=False)
            yield self.edit("constant", 0.3, place, "{}", compound=False)

    def _asked(self, place: Place) -> Iterator[SingleEdit]:
        """A name asked about what stands alone: `"a, b"` was perhaps `text.split("a, b")`, a tuple `x in (...)`."""
        text = self.source.segment(place.node)
        methods = ("startswith", "endswith") if isinstance(place.node, ast.Tuple) else _ASKED
        whole = text if text.startswith(("(", '"', "'", "r", "b", "f", "R")) else f"({text})"
        if isinstance(place.parent, (ast.Call, ast.Compare, ast.JoinedStr, ast.Expr, ast.Subscript)):
            return
        prior = 0.4 if _is_condition(place) else 0.12
        for name in place.scope.names[:6]:
            yield self.edit("lost call", prior, place, f"{name} in {whole}")
            yield self.edit("lost call", prior, place, f"{name} not in {whole}")
            for method in methods:
                yield self.edit("lost call", prior, place, f"{name}.{method}({whole})", compound=False)
            if not isinstance(place.node, ast.Tuple):
                yield self.edit("lost call", prior, place, f"{whole}.join({name})", compound=False)

    def _at_joinedstr(self, place: Place) -> Iterator[SingleEdit]:
        """Texts and names in a formatted string, found by their text: they have no positions before Python 3.12."""
        node, scope = place.node, place.scope
        assert isinstance(node, ast.JoinedStr)
        whole = self.source.segment(node)
        for part in node.values:
            if (
                isinstance(part, ast.Constant)
                and isinstance(part.value, str)
                and whole.count(part.value) == 1
            ):
                corrections = scope.corrections
                for prior, texts in (
                    (0.8, corrections.texts(part.value)),
                    (0.2, corrections.spellings(part.value)),
                ):
                    for text in texts:
                        if not set(text) & set("{}\\\n'\""):
                            yield self.edit(
                                "text", prior, place, whole.replace(part.value, text), compound=False
                            )
            elif isinstance(part, ast.FormattedValue) and isinstance(part.value, ast.Name):
                old = f"{{{part.value.id}"
                for name in scope.names[:8]:
                    if name != part.value.id and whole.count(old) == 1:
                        yield self.edit("name", 0.5, place, whole.replace(old, f"{{{name}"), compound=False)

    def _at_name(self, place: Place) -> Iterator[SingleEdit]:
        node, scope = place.node, place.scope
        assert isinstance(node, ast.Name)
        if place.name == "func":
            for name in [*_TWINS.get(node.id, []), *(name for name in scope.called if name not in _BUILT_IN)]:
                if name != node.id:
                    yield self.edit(
                        "call", 0.7 if name in _TWINS.get(node.id, []) else 0.3, place, name, compound=False
                    )
            return
        prior = 0.7 if len(scope.names) <= 5 else 0.5
        for name in scope.names:
            if name != node.id:
                yield self.edit("name", prior, place, name, compound=False)
        if not isinstance(place.parent, ast.Attribute):
            for attribute in scope.attributes:
                yield self.edit("attribute", 0.25, place, f"{node.id}.{attribute}", compound=False)

    def _at_attribute(self, place: Place) -> Iterator[SingleEdit]:
        node, scope = place.node, place.scope
        assert isinstance(node, ast.Attribute)
        before = self.text(node.value)
        others = _TWINS.get(node.attr, [])
        if place.name != "func":
            yield self.edit("attribute", 0.4, place, self.source.segment(node.value), compound=False)
            others = [*others, *(name for name in scope.attributes if name not in others)]
        for name in others:
            if name != node.attr:
                yield self.edit("attribute", 0.7, place, f"{before}.{name}", compound=False)

    def _at_call(self, place: Place) -> Iterator[SingleEdit]:
        node = place.node
        assert isinstance(node, ast.Call)
        function = self.source.segment(node.func)
        called = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        named = [
            f"{given.arg}={self.source.segment(given.value)}" if given.arg else f"**{self.text(given.value)}"
            for given in node.keywords
        ]
        generator = len(node.args) == 1 and isinstance(node.args[0], ast.GeneratorExp)
        args = [self.source.segment(arg) for arg in node.args]
        if generator and args[0].startswith("(") and not named:
            args = [args[0]]

        def call(positional: Sequence[str], keywords: Sequence[str]) -> str:
            return f"{function}({', '.join([*positional, *keywords])})"

        for index in range(len(args)):
            for other in range(index + 1, len(args)):
                swapped = list(args)
                swapped[index], swapped[other] = args[other], args[index]
                yield self.edit("arguments", 0.8, place, call(swapped, named), compound=False)
            if len(args) + len(named) > 1:
                yield self.edit(
                    "arguments", 0.4, place, call(args[:index] + args[index + 1 :], named), compound=False
                )
        for index in range(len(named)):
            yield self.edit(
                "arguments", 0.5, place, call(args, named[:index] + named[index + 1 :]), compound=False
            )
        if not generator:
            for arg in node.args:
                # What a call makes of its argument, undone.
                yield self.edit("unwrap", 0.5, place, self.text(arg), compound=False)
        if isinstance(node.func, ast.Attribute):
            yield self.edit("unwrap", 0.5, place, self.text(node.func.value), compound=False)
        if called in ("sorted", "sort", "max", "min") and not node.keywords:
            if called in ("sorted", "sort"):
                yield self.edit("arguments", 0.6, place, call(args, ["reverse=True"]), compound=False)
            for key in (
                "len",
                "abs",
                "str",
                "lambda pair: pair[0]",
                "lambda pair: pair[1]",
                "lambda pair: -pair[1]",
            ):
                yield self.edit("arguments", 0.25, place, call(args, [f"key={key}"]), compound=False)
        elif called in ("sorted", "sort") and not any(given.arg == "reverse" for given in node.keywords):
            yield self.edit("arguments", 0.6, place, call(args, [*named, "reverse=True"]), compound=False)
        if called == "range":
            yield from self._range(place, args)
        elif called == "enumerate" and len(args) == 1:
            yield self.edit("arguments", 0.6, place, call([*args, "1"], named), compound=False)
        elif len(args) < 3 and not generator:
            yield from self._further(place, called, args, call, named)

    def _further(
        self,
        place: Place,
        called: str,
        args: Sequence[str],
        call: Callable[[Sequence[str], Sequence[str]], str],
        named: Sequence[str],
    ) -> Iterator[SingleEdit]:
        """One more argument, after the others or before them."""
        scope = place.scope
        often = called in ("round", "pop", "get", "split", "sum", "strip", "join") or called in scope.called
        texts = dict.fromkeys((*scope.texts[:8], *scope.corrections.words[:8]))
        extras = ["1", "0", "-1", "2", *scope.names[:6], *map(_literal, texts), "None", "True", "False"]
        extras += [text for text, _ in scope.expressions[:8]]
        for rank, extra in enumerate(extras):
            prior = 0.25 if often and rank < 10 else 0.12
            yield self.edit("arguments", prior, place, call([*args, extra], named), compound=False)
            if args and scope.called:
                yield self.edit("arguments", 0.08, place, call([extra, *args], named), compound=False)

    def _range(self, place: Place, args: Sequence[str]) -> Iterator[SingleEdit]:
        stop = args[0] if len(args) == 1 else args[1] if len(args) > 1 else ""
        start = "0" if len(args) == 1 else args[0]
        forms = [
            f"range(1, {stop})",
            f"range(1, {stop} + 1)",
            f"range(0, {stop})",
            f"range({start}, {stop}, 2)",
        ]
        forms += [
            f"range({stop} - 1, {start} - 1, -1)",
            f"range({start}, {stop}, -1)",
            f"range({start}, {stop} + 2)",
        ]
        forms += [f"range({start} + 1, {stop} + 1)", f"range({start} - 1, {stop} - 1)"]
        if len(args) > 2:
            forms = [f"range({start}, {stop})", f"range({start}, {stop}, 1)", *forms]
        for form in forms:
            yield self.edit("range", 0.5, place, form, compound=False)
        for name in place.scope.names[:8]:
            yield self.edit("range", 0.25, place, f"range({name}, {stop})", compound=False)
            yield self.edit("range", 0.25, place, f"range({name} + 1, {stop})", compound=False)

    def _at_subscript(self, place: Place) -> Iterator[SingleEdit]:
        node = place.node
        assert isinstance(node, ast.Subscript)
        before = self.text(node.value)
        yield self.edit("index", 0.4, place, self.source.segment(node.value), compound=False)
        if isinstance(node.slice, ast.Slice):
            yield from self._slice(place, before, node.slice)
            return
        index = self.source.segment(node.slice)
        for new in ("0", "-1", "1"):
            if new != index:
                yield self.edit("index", 0.5, place, f"{before}[{new}]", compound=False)
        if not isinstance(node.slice, ast.Tuple):
            slices = (f"{index}:", f":{index}", f"{index} + 1:", f":{index} + 1", f"-{self.text(node.slice)}")
            for new in slices:
                yield self.edit("index", 0.25, place, f"{before}[{new}]", compound=False)
            yield self.edit("index", 0.25, place, f"{before}.get({index})", compound=False)
            yield self.edit("index", 0.25, place, f"{before}.get({index}, 0)", compound=False)
        else:
            parts = [self.source.segment(part) for part in node.slice.elts]
            yield self.edit("index", 0.6, place, f"{before}[{', '.join(reversed(parts))}]", compound=False)

    def _slice(self, place: Place, before: str, bounds: ast.Slice) -> Iterator[SingleEdit]:
        low, high, step = (
            self.source.segment(bound) if bound is not None else ""
            for bound in (bounds.lower, bounds.upper, bounds.step)
        )
        tail = f":{step}" if step else ""
        forms: list[tuple[float, str]] = []
        if low:
            forms += [
                (0.6, f":{high}{tail}"),
                (0.6, f":{low}{tail}"),
                (0.7, f"{low} + 1:{high}{tail}"),
                (0.7, f"{low} - 1:{high}{tail}"),
            ]
        else:
            forms += [(0.6, f"1:{high}{tail}")]
            forms += [(0.3, f"{name}:{high}{tail}") for name in place.scope.names[:8]]
        if high:
            forms += [
                (0.6, f"{low}:{tail}"),
                (0.6, f"{high}:{tail}"),
                (0.7, f"{low}:{high} + 1{tail}"),
                (0.7, f"{low}:{high} - 1{tail}"),
            ]
            forms += [(0.5, f"{low}:-{high}{tail}")]
        else:
            forms += [(0.6, f"{low}:-1{tail}")]
            forms += [(0.3, f"{low}:{name}{tail}") for name in place.scope.names[:8]]
        if step:
            forms += [(0.6, f"{low}:{high}"), (0.5, f"{low}:{high}:-{step}")]
        else:
            forms += [(0.5, f"{low}:{high}:-1"), (0.3, f"{low}:{high}:2")]
        for prior, form in forms:
            yield self.edit("slice", prior, place, f"{before}[{form}]", compound=False)

    def _at_list(self, place: Place) -> Iterator[SingleEdit]:
        node = place.node
        assert isinstance(node, ast.List)
        if not node.elts:
            yield self.edit("display", 0.6, place, "[[]]", compound=False)
            for name in place.scope.names:
                yield self.edit("display", 0.5, place, f"[{name}]", compound=False)
            for form in ("[0]", "[1]", "[None]", "{}", "set()", "[()]"):
                yield self.edit("display", 0.3, place, form, compound=False)
        yield from self._elements(place, "[", "]")

    def _at_tuple(self, place: Place) -> Iterator[SingleEdit]:
        if not isinstance(place.parent, ast.Subscript):
            yield from self._elements(place, "(", ")")
            yield from self._asked(place)

    def _at_dict(self, place: Place) -> Iterator[SingleEdit]:
        node = place.node
        assert isinstance(node, ast.Dict)
        for key, entry in zip(node.keys, node.values, strict=True):
            if key is not None and len(node.keys) == 1:
                swapped = f"{{{self.source.segment(entry)}: {self.source.segment(key)}}}"
                yield self.edit("display", 0.5, place, swapped, compound=False)

    def _elements(self, place: Place, begin: str, end: str) -> Iterator[SingleEdit]:
        elements = place.node.elts  # type: ignore[attr-defined]
        parts = [self.source.segment(part) for part in elements]
        for index in range(len(parts)):
            if index + 1 < len(parts):
                swapped = [*parts[:index], parts[index + 1], parts[index], *parts[index + 2 :]]
                yield self.edit("display", 0.5, place, begin + ", ".join(swapped) + end, compound=False)
            if len(parts) > 1 and begin == "[":
                yield self.edit(
                    "display",
                    0.4,
                    place,
                    begin + ", ".join(parts[:index] + parts[index + 1 :]) + end,
                    compound=False,
                )

    def _at_yield(self, place: Place) -> Iterator[SingleEdit]:
        node = place.node
        assert isinstance(node, ast.Yield)
        if node.value is not None:
            yield self.edit("yield", 0.7, place, f"yield from {self.source.segment(node.value)}")

    def _at_yieldfrom(self, place: Place) -> Iterator[SingleEdit]:
        node = place.node
        assert isinstance(node, ast.YieldFrom)
        yield self.edit("yield", 0.7, place, f"yield {self.source.segment(node.value)}")

    def _at_lambda(self, place: Place) -> Iterator[SingleEdit]:
        node = place.node
        assert isinstance(node, ast.Lambda)
        yield self._splice("negation", 0.4, node, [(self.source.span(node.body), f"-{self.text(node.body)}")])

    # Of any expression.

    def _any(self, place: Place) -> Iterator[SingleEdit]:
        yield from self._conditions(place)
        if isinstance(place.node, ast.Constant) and isinstance(place.node.value, (str, bytes)):
            return
        if isinstance(place.parent, ast.Attribute):
            return
        if isinstance(place.parent, ast.Expr):
            return
        if not _is_condition(place):
            yield from self._offsets(place)
            yield from self._wraps(place)
            yield from self._terms(place)
        yield from self._ingredients(place)

    def _conditions(self, place: Place) -> Iterator[SingleEdit]:
        node, scope = place.node, place.scope
        if not _is_condition(place):
            return
        text = self.text(node)
        if not (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)):
            yield self.edit("negation", 0.8, place, f"not {text}")
        literal = isinstance(node, ast.Constant)
        if not literal:
            yield self.edit("condition", 0.3, place, "True", compound=False)
            yield self.edit("condition", 0.3, place, "False", compound=False)
        simple = [form for name in scope.names[:10] for form in (name, f"not {name}")]
        simple += [
            f"({condition})" for condition in scope.conditions if condition not in self.source.segment(node)
        ]
        simple += [f"not ({condition})" for condition in scope.conditions]
        for extra in simple:
            if literal:
                yield self.edit("condition", 0.5, place, extra)
            else:
                yield self.edit("condition", 0.2, place, f"{text} and {extra}")
                yield self.edit("condition", 0.2, place, f"{text} or {extra}")
                yield self.edit("condition", 0.15, place, extra)

    def _offsets(self, place: Place) -> Iterator[SingleEdit]:
        node = place.node
        if not isinstance(node, (ast.Name, ast.Attribute, ast.Subscript, ast.Call, ast.BinOp)):
            return
        prior = (
            0.7
            if isinstance(place.parent, (ast.Compare, ast.Slice, ast.Subscript, ast.Call, ast.Return))
            else 0.4
        )
        if isinstance(place.parent, ast.BinOp):
            prior = 0.25
        for new in (f"{self.text(node)} + 1", f"{self.text(node)} - 1"):
            yield self.edit("offset", prior, place, new)

    def _wraps(self, place: Place) -> Iterator[SingleEdit]:
        node, scope = place.node, place.scope
        text, inner = self.text(node), self.source.segment(node)
        if isinstance(node, (ast.Tuple, ast.GeneratorExp)):
            return
        if isinstance(place.parent, ast.Return):
            for frame in scope.corrections.frames:
                yield self.edit("frame", 0.6, place, frame.format(text))
        named = place.parent.targets[0] if isinstance(place.parent, ast.Assign) else None
        if isinstance(named, (ast.Name, ast.Subscript, ast.Attribute)) and not isinstance(node, ast.List):
            target = self.source.segment(named)
            for form in ("max", "min"):
                yield self.edit("wrap", 0.5, place, f"{form}({target}, {inner})", compound=False)
            for sign in ("+", "-", "*"):
                yield self.edit("wrap", 0.3, place, f"{target} {sign} {text}")
        if isinstance(node, (ast.Name, ast.Subscript, ast.Attribute, ast.Call, ast.BinOp)):
            forms = [
                "abs({})",
                "max(0, {})",
                "min(0, {})",
                "len({})",
                "sorted({})",
                "list({})",
                "set({})",
                "int({})",
                "str({})",
                "float({})",
                "sum({})",
                "round({})",
                "max(1, {})",
                "reversed({})",
                "bool({})",
            ]
            for form in forms:
                yield self.edit("wrap", 0.2, place, form.format(inner), compound=False)
            for called in _CONVERSIONS:
                yield self.edit("wrap", 0.1, place, f"{called}({inner})", compound=False)
            yield self.edit("negation", 0.3, place, f"-{text}")
            yield self.edit("negation", 0.3, place, f"not {text}")
            for end in ("[1:]", "[:-1]", "[::-1]", "[0]", "[-1]", "[1]", ".copy()"):
                yield self.edit("slice", 0.25, place, f"{text}{end}", compound=False)
            if not isinstance(node, ast.BinOp):
                for name in scope.names[:8]:
                    if name != inner:
                        for end in (f"[{name}:]", f"[:{name}]", f"[{name}]"):
                            yield self.edit("slice", 0.12, place, f"{text}{end}", compound=False)
            if scope.wordy:
                for end in (".strip()", ".lower()", ".upper()", ".split()", ".strip().lower()"):
                    yield self.edit("text", 0.2, place, f"{text}{end}", compound=False)
        if isinstance(node, (ast.Name, ast.Call, ast.Subscript, ast.Attribute, ast.List)):
            yield self.edit("wrap", 0.2, place, f"[{inner}]", compound=False)
        for name in scope.called:
            yield self.edit("wrap", 0.1, place, f"{name}({inner})", compound=False)
        if isinstance(place.parent, ast.Assign) or isinstance(node, (ast.Name, ast.List)):
            for form in ('"".join({})', '" ".join({})'):
                yield self.edit("wrap", 0.12, place, form.format(inner), compound=False)

    def _terms(self, place: Place) -> Iterator[SingleEdit]:
        """`e` becomes `e + name`, `e - name` or `e * name`."""
        node = place.node
        if not isinstance(node, (ast.Name, ast.Attribute, ast.Subscript, ast.Call, ast.BinOp, ast.Constant)):
            return
        text = self.text(node)
        terms = [
            *place.scope.names[:8],
            "2",
            *(part for part, kind in place.scope.expressions if isinstance(kind, ast.Call)),
        ][:12]
        for term in terms:
            for sign in ("-", "+", "*", "//", "%"):
                yield self.edit("term", 0.16 if sign in "-+*" else 0.08, place, f"{text} {sign} {term}")
            yield self.edit("term", 0.1, place, f"{term} - {text}")

    def _ingredients(self, place: Place) -> Iterator[SingleEdit]:
        node, own = place.node, self.source.segment(place.node)
        condition = _is_condition(place)
        for text, ingredient in place.scope.expressions:
            if text == own or (isinstance(ingredient, (ast.Compare, ast.BoolOp)) and not condition):
                continue
            prior = 0.3 if type(ingredient) is type(node) else 0.15
            yield self.edit(
                "ingredient", prior, place, text, compound=isinstance(ingredient, (*COMPOUND, ast.Tuple))
            )
        if not isinstance(node, ast.Name) and not condition:
            for name in place.scope.names:
                yield self.edit("ingredient", 0.25, place, name, compound=False)
        if isinstance(place.parent, ast.Return):
            for form in ("True", "False", "None", "0", "1", "[]", '""', "-1"):
                if form != own:
                    yield self.edit("return", 0.3, place, form, compound=False)


def _is_condition(place: Place) -> bool:
    return (
        place.name in ("test", "ifs")
        or (isinstance(place.node, ast.Constant) and isinstance(place.node.value, bool))
        or (isinstance(place.parent, ast.BoolOp))
        or isinstance(place.node, (ast.Compare, ast.BoolOp))
        or (isinstance(place.node, ast.UnaryOp) and isinstance(place.node.op, ast.Not))
    )


def _signed(value: object) -> bool:
    return isinstance(value, (int, float)) and value < 0


def moved_numbers(text: str) -> list[str]:
    """A text with one of the numbers in it one more, or one less."""
    moved: list[str] = []
    for number in list(re.finditer(r"[0-9]{1,4}", text))[:4]:
        for value in (int(number[0]) + 1, int(number[0]) - 1):
            if value >= 0:
                moved.append(f"{text[: number.start()]}{value}{text[number.end() :]}")
    return moved


def _literal(value: object) -> str:
    if isinstance(value, float):
        return repr(float(f"{value:.12g}"))
    # As most programs quote; an apostrophe keeps repr's choice.
    text = repr(value)
    return f'"{text[1:-1]}"' if isinstance(value, str) and text[0] == "'" and '"' not in text else text
