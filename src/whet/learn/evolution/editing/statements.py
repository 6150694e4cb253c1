"""Single edits of statements: one dropped, moved, repeated or inserted, another jump, another target."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ....repository.syntax import FunctionNode
from ....repository.text import Span
from .scopes import Scope, SingleEdit
from .source import PythonSource
from .synthesis import answers, cut_texts, parameters, unset_names

_SIMPLE = (
    ast.Assign,
    ast.AugAssign,
    ast.AnnAssign,
    ast.Expr,
    ast.Return,
    ast.Break,
    ast.Continue,
    ast.Delete,
)
_AUGMENTED = {
    ast.Add: ("+=", "-= *= = //="),
    ast.Sub: ("-=", "+= = *= //="),
    ast.Mult: ("*=", "/= += //= ="),
    ast.Div: ("/=", "*= //= -="),
    ast.FloorDiv: ("//=", "/= %= -= *="),
    ast.Mod: ("%=", "//= -="),
    ast.Pow: ("**=", "*="),
    ast.BitAnd: ("&=", "|= ^="),
    ast.BitOr: ("|=", "&= ^= ="),
    ast.BitXor: ("^=", "&= |= ="),
    ast.LShift: ("<<=", ">>="),
    ast.RShift: (">>=", "<<="),
}
_MOST_COPIES = 16
_DROPPED = (
    ast.Assign,
    ast.AugAssign,
    ast.Expr,
    ast.Delete,
    ast.Break,
    ast.Continue,
    ast.Return,
    ast.Raise,
    ast.Assert,
)
_MADE_OVER = (
    "str({})", "int({})", "float({})", "list({})", "tuple({})", "sorted({})", "set({})", "abs({})", "len({})", "not {}",
    "-{}", "{}[1:]", "{}[:-1]", "{}[::-1]", "{}[0]", "{}.split()", "{}.strip()", "{}.lower()", "{}.upper()", "{} + 1",
    "{} - 1", "{} * 2", "{} // 2",
)  # fmt: skip
"""What a name may have been set to by a statement that is gone."""
_CLEANED = (".strip()", ".rstrip()", ".lower()", ".upper()")
_GUARDED = (ast.Return, ast.Assign, ast.AugAssign, ast.Expr, ast.For, ast.While)
_BLOCKS = (ast.If, ast.For, ast.While, ast.With, ast.Try)


@dataclass(frozen=True, slots=True)
class _Spot:
    """A statement in its body."""

    node: ast.stmt
    body: Sequence[ast.stmt]
    index: int
    loop: bool
    """Inside a loop of the same function."""


def statement_edits(source: PythonSource, scope: Scope) -> Iterator[SingleEdit]:
    """The edits of a function's statements, or of those of the module."""
    return _Statements(source, scope).all()


class _Statements:
    def __init__(self, source: PythonSource, scope: Scope) -> None:
        self.source, self.scope = source, scope
        self.spots = [
            spot for spot in self._walk(getattr(scope.owner, "body", []), False) if source.inside(spot.node)
        ]
        self.function = isinstance(scope.owner, FunctionNode)

    def _walk(self, body: Sequence[ast.stmt], loop: bool) -> Iterator[_Spot]:
        for index, node in enumerate(body):
            if _is_text(node) or isinstance(node, (ast.Import, ast.ImportFrom)):
                continue
            yield _Spot(node, body, index, loop)
            if isinstance(node, (FunctionNode, ast.ClassDef)):
                continue
            inner = loop or isinstance(node, (ast.For, ast.AsyncFor, ast.While))
            for name in ("body", "orelse", "finalbody"):
                yield from self._walk(getattr(node, name, []), inner)
            for handler in getattr(node, "handlers", []):
                yield from self._walk(handler.body, inner)

    def all(self) -> Iterator[SingleEdit]:
        for spot in self.spots:
            yield from self._own(spot)
        if self.function:
            yield from self._filled()
            yield from self._set()
            yield from self._inserted()
            yield from self._guards()

    # How a change is written.

    def edit(
        self, kind: str, prior: float, node: ast.stmt, changes: list[tuple[Span, str]], beyond: int = 0
    ) -> SingleEdit:
        return SingleEdit(kind, prior, node.lineno, tuple(changes), beyond)

    def indent(self, node: ast.stmt) -> str | None:
        """The white space before a statement; None where it shares its line."""
        begin = self.source.starts[node.lineno - 1]
        before = self.source.at((begin, self.source.span(node)[0]))
        return before if not before.strip() else None

    def before(self, node: ast.stmt, text: str) -> list[tuple[Span, str]] | None:
        """A line put before a statement."""
        indent = self.indent(node)
        start = self.source.span(node)[0]
        return None if indent is None else [((start, start), f"{text}\n{indent}")]

    def after(self, node: ast.stmt, text: str) -> list[tuple[Span, str]] | None:
        """A line put after a statement, with its indentation."""
        indent = self.indent(node)
        end = self.source.span(node)[1]
        following = self.source.raw[end : end + 200].split(b"\n")[0].strip()
        if indent is None or (following and not following.startswith(b"#")):
            return None
        line_end = self.source.raw.find(b"\n", end)
        at = len(self.source.raw) if line_end < 0 else line_end
        return [((at, at), f"\n{indent}{text}")]

    # What there is.

    def _own(self, spot: _Spot) -> Iterator[SingleEdit]:
        node, source = spot.node, self.source
        span = source.span(node)
        if isinstance(node, _DROPPED):
            yield self.edit("delete", 0.5, node, [(span, "pass")])
        if isinstance(node, _BLOCKS) and self.indent(node) is not None:
            yield self.edit("delete", 0.25, node, [(span, "pass")])
        if isinstance(node, ast.AugAssign):
            old, others = _AUGMENTED.get(type(node.op), ("", ""))
            between = (source.span(node.target)[1], source.span(node.value)[0])
            if old:
                for rank, new in enumerate(others.split()):
                    text = source.at(between).replace(old, new, 1)
                    yield self.edit("augmented", 0.9 if not rank else 0.5, node, [(between, text)])
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            yield from self._assigned(node, node.targets[0])
        if isinstance(node, (ast.For, ast.AsyncFor)) and isinstance(node.target, ast.Tuple):
            yield from self._swapped(node.target, node)
        yield from self._left(spot)
        yield from self._exchanged(spot)

    def _left(self, spot: _Spot) -> Iterator[SingleEdit]:
        """Another way to leave a loop or the function, or to enter a block."""
        node, source = spot.node, self.source
        span = source.span(node)
        if isinstance(node, (ast.Break, ast.Continue)):
            jumps = ["break", "continue", *(("return",) if self.function else ())]
            for jump in jumps:
                if jump != source.segment(node):
                    yield self.edit("jump", 0.6, node, [(span, jump)])
            if self.function:
                for name in (*self.scope.names[:8], "True", "False"):
                    yield self.edit("jump", 0.25, node, [(span, f"return {name}")])
        if isinstance(node, ast.Return) and spot.loop:
            yield self.edit("jump", 0.4, node, [(span, "break")])
            yield self.edit("jump", 0.4, node, [(span, "continue")])
        if isinstance(node, ast.Return) and (node.value is None or isinstance(node.value, ast.Constant)):
            for prior, text in answers(self.scope):
                yield self.edit("return", prior, node, [(span, f"return {text}")])
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and self.function:
            call = source.segment(node.value)
            yield self.edit("return", 0.4, node, [(span, f"return {call}")])
            for name in self.scope.names[:6]:
                yield self.edit("assign", 0.15, node, [(span, f"{name} = {call}")])
        if isinstance(node, (ast.If, ast.While)) and self.indent(node) is not None:
            word = (span[0], span[0] + (2 if isinstance(node, ast.If) else 5))
            if source.at(word) in ("if", "while") and not node.orelse:
                yield self.edit("jump", 0.3, node, [(word, "while" if isinstance(node, ast.If) else "if")])

    def _assigned(self, node: ast.Assign, target: ast.expr) -> Iterator[SingleEdit]:
        between = (self.source.span(target)[1], self.source.span(node.value)[0])
        if not isinstance(target, ast.Tuple):
            for sign in ("+=", "-=", "*="):
                yield self.edit("augmented", 0.35, node, [(between, f" {sign} ")])
        if isinstance(target, ast.Name):
            for name in self.scope.names[:10]:
                if name != target.id:
                    yield self.edit("target", 0.25, node, [(self.source.span(target), name)])
        if isinstance(target, ast.Tuple):
            yield from self._swapped(target, node)
        if isinstance(target, ast.Subscript):
            whole = self.source.segment(target.value)
            index = self.source.segment(target.slice)
            for form in (f"{whole}[{index} + 1]", f"{whole}[{index} - 1]"):
                yield self.edit("target", 0.5, node, [(self.source.span(target), form)])
            for name in self.scope.names[:10]:
                yield self.edit("target", 0.3, node, [(self.source.span(target), f"{whole}[{name}]")])
            if isinstance(target.slice, ast.Tuple):
                parts = [self.source.segment(part) for part in target.slice.elts]
                swapped = f"{whole}[{', '.join(reversed(parts))}]"
                yield self.edit("target", 0.5, node, [(self.source.span(target), swapped)])
        for text, kind in self.scope.expressions:
            if isinstance(kind, (ast.Attribute, ast.Subscript)) and isinstance(
                target, (ast.Attribute, ast.Subscript)
            ):
                yield self.edit("target", 0.2, node, [(self.source.span(target), text)])

    def _swapped(self, target: ast.Tuple, node: ast.stmt) -> Iterator[SingleEdit]:
        for first, second in zip(target.elts, target.elts[1:], strict=False):
            texts = self.source.segment(first), self.source.segment(second)
            changes = [(self.source.span(first), texts[1]), (self.source.span(second), texts[0])]
            yield self.edit("target", 0.5, node, changes)

    def _exchanged(self, spot: _Spot) -> Iterator[SingleEdit]:
        """A statement and the one after it change places."""
        if spot.index + 1 >= len(spot.body):
            return
        after = spot.body[spot.index + 1]
        if self.indent(spot.node) is None or self.indent(after) is None or not self.source.inside(after):
            return
        first, second = self.source.segment(spot.node), self.source.segment(after)
        if isinstance(spot.node, (FunctionNode, ast.ClassDef)) or isinstance(
            after, (FunctionNode, ast.ClassDef)
        ):
            return
        changes = [(self.source.span(spot.node), second), (self.source.span(after), first)]
        yield self.edit("order", 0.4, spot.node, changes, after.lineno)

    def _filled(self) -> Iterator[SingleEdit]:
        """A statement in the place of a `pass`, or around an expression whose value nobody takes."""
        grown = self._containers()
        for spot in self.spots:
            node, span = spot.node, self.source.span(spot.node)
            waits = isinstance(getattr(node, "value", None), (ast.Yield, ast.YieldFrom, ast.Await))
            if isinstance(node, ast.Expr) and not waits:
                inner = self.source.segment(node.value)
                for method, holder in grown:
                    if not inner.startswith(f"{holder}."):
                        yield self.edit("lost call", 0.6, node, [(span, f"{holder}.{method}({inner})")])
                if not isinstance(node.value, ast.Call):
                    yield self.edit("return", 0.6, node, [(span, f"return {inner}")])
            if isinstance(node, ast.Pass):
                for prior, text in self._for_pass():
                    yield self.edit("fill", prior, node, [(span, text)])

    def _for_pass(self) -> Iterator[tuple[float, str]]:
        scope = self.scope
        for prior, text in answers(scope):
            yield prior, f"return {text}"
        for prior, text, _ in self._composed():
            yield max(prior, 0.2), text
        stored = [
            node.id
            for node in ast.walk(scope.owner)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        ]
        for name in list(dict.fromkeys([*stored, *parameters(scope.owner)]))[:6]:
            for form in _MADE_OVER:
                yield 0.2, f"{name} = {form.format(name)}"
            for function in scope.called[:4]:
                for other in scope.names[:5]:
                    if other != name:
                        yield 0.15, f"{name} = {function}({name}, {other})"
                        yield 0.12, f"{name} = {function}({other})"
            for other in scope.names[:6]:
                if other != name:
                    yield 0.15, f"{name} += {other}"
                    yield 0.12, f"{name} -= {other}"
        for holder in scope.names[:4]:
            for key in scope.names[:6]:
                for entry in scope.names[:6]:
                    if len({holder, key, entry}) == 3:
                        yield 0.12, f"{holder}[{key}] = {entry}"
                        for called in scope.called[:3]:
                            yield 0.1, f"{holder}[{key}] = {called}({entry})"

    def _set(self) -> Iterator[SingleEdit]:
        """A statement that sets a name which nothing sets, before the first that reads it."""
        for name in unset_names(self.source, self.scope):
            reading = [
                spot
                for spot in self.spots
                if any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(spot.node))
            ]
            initials = ["0", "1", "[]", '""', "{}", "None", "False", "True", "set()"]
            initials += [other for other in self.scope.names[:8] if other != name]
            initials += [f"len({other})" for other in self.scope.names[:6] if other != name]
            initials += [text for text, _ in self.scope.expressions if name not in text]
            initials += [text for _, text in answers(self.scope) if name not in text]
            initials += [text for text in cut_texts(self.scope) if name not in text]
            for spot in reading[:3]:
                for initial in dict.fromkeys(initials):
                    place = self.before(spot.node, f"{name} = {initial}")
                    if place is not None:
                        yield self.edit("set", 0.45, spot.node, place)

    def _inserted(self) -> Iterator[SingleEdit]:
        """A statement of the function, or one made of its names, put before or after another."""
        copies: dict[str, _Spot] = {}
        for spot in self.spots:
            text = self.source.segment(spot.node)
            if isinstance(spot.node, _SIMPLE) and "\n" not in text:
                copies.setdefault(text, spot)
        composed = self._composed()
        for spot in self.spots:
            if isinstance(spot.node, FunctionNode):
                continue
            ends = spot.index == len(spot.body) - 1
            for text, origin in list(copies.items())[:_MOST_COPIES]:
                jump = isinstance(origin.node, (ast.Break, ast.Continue))
                if (jump and not spot.loop) or origin.node is spot.node:
                    continue
                yield from self._put(
                    spot, ends, text, 0.12 if not isinstance(origin.node, ast.Return) else 0.2, origin
                )
            for prior, text, where in composed:
                if where == "loop" and not spot.loop:
                    continue
                yield from self._put(spot, ends, text, prior, None)

    def _put(
        self, spot: _Spot, ends: bool, text: str, prior: float, origin: _Spot | None
    ) -> Iterator[SingleEdit]:
        places = [self.before(spot.node, text)]
        if ends:
            places.append(self.after(spot.node, text))
        for place in places:
            if place is None:
                continue
            yield self.edit("insert", prior, spot.node, place)
            if origin is not None and not isinstance(origin.node, ast.Return):
                gone = (self.source.span(origin.node), "pass")
                yield self.edit("move", prior, spot.node, [*place, gone], origin.node.lineno)

    def _composed(self) -> list[tuple[float, str, str]]:
        """Statements made of the names of the function: prior, text, and where they may stand."""
        scope = self.scope
        stored = {
            node.id: None
            for node in ast.walk(scope.owner)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        assigned = list(stored)[:6]
        statements = [(0.15, "break", "loop"), (0.15, "continue", "loop")]
        for name in dict.fromkeys([*assigned, *parameters(scope.owner)[:4]]):
            statements += [(0.1, f"{name} += 1", ""), (0.1, f"{name} -= 1", "")]
            statements.append((0.15, f"return {name}", ""))
            statements += [(0.07, f"{name} += {other}", "") for other in scope.names[:6] if other != name]
            statements += [(0.07, f"{name} = {called}({name})", "") for called in scope.called[:4]]
            ends = _CLEANED if scope.wordy else ()
            statements += [(0.07, f"{name} = {name}{end}", "") for end in ends]
        for method, holder in self._containers():
            others = [name for name in scope.names[:8] if name != holder]
            statements += [(0.2, f"{holder}.{method}({name})", "") for name in others]
        for name in assigned:
            statements += [(0.1, f"{name} = {other}", "") for other in scope.names[:8] if other != name]
            statements += [(0.06, f"{name} = {text}", "") for text, _ in scope.expressions[:10]]
        statements += [(0.1, f"return {text}", "") for text in ("True", "False", "None", "0", "[]")]
        return statements

    def _containers(self) -> list[tuple[str, str]]:
        """Method and text of what grows in the function."""
        grown: dict[tuple[str, str], None] = {}
        for node in (node for tree in (self.scope.owner, *self.scope.around) for node in ast.walk(tree)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                if node.func.attr in ("append", "add", "push", "appendleft", "extend"):
                    grown.setdefault((node.func.attr, self.source.segment(node.func.value)))
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                if isinstance(node.value, ast.List):
                    grown.setdefault(("append", node.targets[0].id))
                elif isinstance(node.value, ast.Call) and self.source.segment(node.value.func) == "set":
                    grown.setdefault(("add", node.targets[0].id))
        return list(grown)[:4]

    def _guards(self) -> Iterator[SingleEdit]:
        """A statement that runs under a condition only, or one that is put first."""
        if not self.spots:
            return
        first = self.spots[0].node
        for prior, text in _openings(parameters(self.scope.owner)[:4]):
            place = self.before(first, text)
            if place is not None:
                yield self.edit("guard", prior, first, place)
        tests = [*self.scope.conditions, *(f"not ({condition})" for condition in self.scope.conditions)]
        tests += [form for name in self.scope.names[:8] for form in (name, f"not {name}")]
        for spot in self.spots:
            if isinstance(spot.node, (ast.For, ast.While, ast.AsyncFor)) and spot.node.body:
                yield from self._passed_over(spot.node.body[0], tests)
        for spot in self.spots:
            text = self.source.segment(spot.node)
            if isinstance(spot.node, _GUARDED) and "\n" not in text:
                for test in tests:
                    changes = [(self.source.span(spot.node), f"if {test}: {text}")]
                    yield self.edit("guard", 0.1, spot.node, changes)

    def _passed_over(self, node: ast.stmt, tests: Sequence[str]) -> Iterator[SingleEdit]:
        """The round of a loop that begins with this statement ended under a condition."""
        for test in tests:
            for jump in ("continue", "break"):
                place = self.before(node, f"if {test}: {jump}")
                if place is not None:
                    yield self.edit("guard", 0.12, node, place)


def _openings(names: Sequence[str]) -> Iterator[tuple[float, str]]:
    """What a function may begin with: an early return, or a parameter put in order; prior and text."""
    answers = ["[]", "0", "1", "None", "False", "True", '""', "-1", "{}", "[[]]", *names]
    for name in names:
        for condition in ("not {}", "{} is None", "{} == 0", "{} <= 1", "len({}) <= 1", "{} < 0"):
            for answer in answers:
                prior = 0.15 if condition.startswith("not") else 0.1
                yield prior, f"if {condition.format(name)}: return {answer}"
    for name in names:
        for form in ("list({0})", "sorted({0})", "{0}.strip()", "{0}.lower()", "{0} or []"):
            yield 0.12, f"{name} = {form.format(name)}"


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
