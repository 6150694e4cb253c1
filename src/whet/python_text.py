"""Python text as a syntax tree: the one place that parses it."""

from __future__ import annotations

import ast

_ATTEMPTS = 100


def module_of(text: str | bytes, name: str = "<unknown>") -> ast.Module:
    """The tree of a module's text.

    Raises:
        SyntaxError: it is not Python; nor is text with a NUL or half of a character, or nested too deeply.
    """
    tree = _parsed(text, name, "exec")
    assert isinstance(tree, ast.Module)
    return tree


def expression_of(text: str) -> ast.expr:
    """The tree of an expression's text.

    Raises:
        SyntaxError: it is no expression, as above.
    """
    tree = _parsed(text, "<unknown>", "eval")
    assert isinstance(tree, ast.Expression)
    return tree.body


def _parsed(text: str | bytes, name: str, mode: str) -> ast.AST:
    for attempt in range(_ATTEMPTS):
        try:
            return ast.parse(text, name, mode)
        except SystemError:
            # CPython before 3.11.8 and 3.12.2 counts the depth of a tree for all threads together (gh-106905):
            # a text parsed while another thread parses, in whatever library, fails although it is sound.
            if attempt == _ATTEMPTS - 1:
                raise
        except (ValueError, MemoryError, RecursionError) as error:
            raise SyntaxError(str(error) or "it is nested too deeply") from error
    raise AssertionError("unreachable")
