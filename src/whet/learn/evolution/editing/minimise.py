"""A better program with as little changed as earns it: lines first, then expressions within a statement.

After delta debugging (Zeller & Hildebrandt 2002), on the differences of two syntax trees: a change is taken back,
or what was put around an expression is left out, as long as nothing that is judged gets worse.
"""

from __future__ import annotations

import ast
import difflib
import io
import tokenize
from collections.abc import Awaitable, Callable, Iterator

from ....python_text import module_of
from .program import Program
from .source import PythonSource, parsed

_LARGEST = 12
"""Statements that have changed, above which only whole lines are taken back."""


async def minimised(
    start: Program, best: Program, no_worse: Callable[[Program], Awaitable[bool]], most: int | None = None
) -> tuple[Program, int]:
    """The best with every change taken back that earns nothing, and how many these were.

    Args:
        no_worse: judges a program with less changed.
        most: programs that are judged, None without a limit.
    """
    taken_back = asked = 0
    for part, old in start.parts.items():
        again = best.parts[part] != old
        while again:
            again = False
            # Anew after each change that is taken back: the others have moved.
            for text in smaller(part, old, best.parts[part]):
                if most is not None and asked >= most:
                    return best, taken_back
                asked += 1
                if await no_worse(best.with_part(part, text)):
                    best, taken_back, again = best.with_part(part, text), taken_back + 1, True
                    break
    return best, taken_back


def smaller(part: str, old: str, new: str) -> list[str]:
    """Texts that differ less from the old one than the new one does, those without whole lines of change first."""
    texts = dict.fromkeys(_without_lines(old, new))
    if part.endswith(".py"):
        size = distance(old, new)
        # Not all of them differ less: an operand can be longer than what it replaces.
        texts |= dict.fromkeys(
            text for text in _within(old, new) if text not in texts and distance(old, text) < size
        )
    return [text for text in texts if text != new]


def distance(old: str, new: str) -> int:
    """Tokens that two Python texts do not share; characters where one is no Python."""
    try:
        before, after = _tokens(old), _tokens(new)
    except (tokenize.TokenError, SyntaxError):
        before, after = list(old), list(new)
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    return len(before) + len(after) - 2 * sum(match.size for match in matcher.get_matching_blocks())


def _tokens(text: str) -> list[str]:
    shape = (tokenize.NL, tokenize.COMMENT)
    return [
        token.string
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in shape
    ]


def _without_lines(old: str, new: str) -> list[str]:
    """The new text with one change of lines taken back, for each of them."""
    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    changes: list[tuple[int, int, int, int]] = []
    for kind, a, b, c, d in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind != "equal":
            changes.append((a, b, c, d))
        # Neighbouring lines may have changed for no common reason.
        if kind == "replace" and b - a == d - c > 1:
            changes += [(a + line, a + line + 1, c + line, c + line + 1) for line in range(b - a)]
    return ["".join([*after[:c], *before[a:b], *after[d:]]) for a, b, c, d in changes]


def _within(old: str, new: str) -> Iterator[str]:
    """The new text with a part of a changed statement as it was, or with less around it."""
    try:
        before, after = parsed(old), parsed(new)
    except (SyntaxError, ValueError):
        return
    pairs = list(_changed(before.tree, after.tree))
    if sum(isinstance(node, ast.stmt) for _, node in pairs) > _LARGEST:
        return
    for was, node in pairs:
        if isinstance(was, ast.expr) and isinstance(node, ast.expr):
            yield _put(after, node, before.segment(was), was)
        for inner in ast.walk(node):
            if isinstance(inner, ast.expr) and _has_span(inner):
                for child in ast.iter_child_nodes(inner):
                    if isinstance(child, ast.expr) and not isinstance(child, (ast.Slice, ast.Starred)):
                        yield _put(after, inner, after.segment(child), child)


def _has_span(node: ast.expr) -> bool:
    return not isinstance(node, (ast.Slice, ast.Starred)) and not isinstance(
        getattr(node, "ctx", None), (ast.Store, ast.Del)
    )


def _put(source: PythonSource, node: ast.expr, text: str, instead: ast.expr) -> str:
    compound = isinstance(instead, (ast.BinOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.UnaryOp, ast.Lambda))
    plain = source.spliced([(source.span(node), text)])
    if not compound:
        return plain
    try:
        # Without parentheses where they change nothing.
        bracketed = source.spliced([(source.span(node), f"({text})")])
        return plain if ast.dump(module_of(plain)) == ast.dump(module_of(bracketed)) else bracketed
    except (SyntaxError, ValueError):
        return plain


def _changed(was: ast.AST, node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Pairs of nodes in the same place that differ, the outer ones first; statements and expressions."""
    if ast.dump(was) == ast.dump(node):
        return
    if isinstance(node, (ast.expr, ast.stmt)):
        yield was, node
    if type(was) is not type(node):
        return
    for name, _ in ast.iter_fields(node):
        yield from _paired(getattr(was, name, None), getattr(node, name, None))


def _paired(was: object, now: object) -> Iterator[tuple[ast.AST, ast.AST]]:
    if isinstance(was, ast.AST) and isinstance(now, ast.AST):
        yield from _changed(was, now)
    elif isinstance(was, list) and isinstance(now, list):
        befores = [ast.dump(node) if isinstance(node, ast.AST) else str(node) for node in was]
        afters = [ast.dump(node) if isinstance(node, ast.AST) else str(node) for node in now]
        for kind, a, b, c, d in difflib.SequenceMatcher(None, befores, afters, autojunk=False).get_opcodes():
            if kind == "replace":
                for before, after in zip(was[a:b], now[c:d], strict=False):
                    yield from _paired(before, after)
