"""Python as text: cut at the positions of its syntax tree, put together again, and shown as a patch.

Spans of bytes are replaced and nothing else changes: line ends, tabs, comments and the byte order mark stay as
they are.  Why this is not done with libcst: `docs/decisions/064-the-repository-reader.md`.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import accumulate, takewhile

from ..errors import InputError
from ..python_text import module_of
from .syntax import first_line

BYTE_ORDER_MARK = "\ufeff"
"""Some editors put it before UTF-8; `ast.parse` refuses a text that begins with it."""

Span = tuple[int, int]
"""First byte, and the byte after the last; the byte order mark is not counted."""


class SourceText:
    """A Python text with its tree.

    Raises:
        SyntaxError: the text is not Python.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        bare = text.removeprefix(BYTE_ORDER_MARK)
        self._mark = text[: len(text) - len(bare)]
        self.tree = module_of(bare)

    @cached_property
    def raw(self) -> bytes:
        """The text without its byte order mark, in the bytes that the tree counts columns in."""
        return self.text.removeprefix(BYTE_ORDER_MARK).encode()

    @cached_property
    def starts(self) -> list[int]:
        """Index of a line, from 0 → its first byte; and the length of it all."""
        # `bytes.splitlines` splits where Python does; `str.splitlines` also splits at form feeds and U+2028.
        lengths = (len(line) for line in self.raw.splitlines(keepends=True))
        return list(accumulate(lengths, initial=0))

    def span(self, node: ast.expr | ast.stmt) -> Span:
        """Where a node stands; without its decorators."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return (
            self.starts[node.lineno - 1] + node.col_offset,
            self.starts[node.end_lineno - 1] + node.end_col_offset,
        )

    def lines(self, first: int, last: int) -> Span:
        """Whole lines, from 1, both included; `last = first - 1` is the place before a line."""
        return self.starts[first - 1], self.starts[last]

    def lines_of(self, node: ast.stmt) -> Span:
        """The whole lines of a statement, without its decorators."""
        return self.lines(node.lineno, node.end_lineno or node.lineno)

    def above(self, node: ast.stmt) -> Span:
        """The place above the top-level statement that holds a node, and above its decorators."""
        top = next(
            outer for outer in self.tree.body if outer.lineno <= node.lineno <= (outer.end_lineno or 0)
        )
        return self.lines(first_line(top), first_line(top) - 1)

    def at(self, span: Span) -> str:
        """The text of a span."""
        return self.raw[slice(*span)].decode()

    def segment(self, node: ast.expr | ast.stmt) -> str:
        """The node as it stands in the text."""
        return self.at(self.span(node))

    def spliced(self, changes: Iterable[tuple[Span, str]]) -> str:
        """The whole text with spans replaced; spans do not overlap."""
        raw = self.raw
        # From the end backwards, so that earlier offsets stay valid.
        for (begin, end), new in sorted(changes, reverse=True):
            raw = raw[:begin] + new.encode() + raw[end:]
        return self._mark + raw.decode()


def plain(text: str) -> str:
    """A text with a line feed at the end of each line, as Python reads it."""
    # In this order: the other way round a CRLF would become two lines.
    return text.replace("\r\n", "\n").replace("\r", "\n")


def as_written(old: str, new: str) -> str:
    """`new`, whose lines end in a line feed, with the line ends that the file has, and its byte order mark.

    A line that stays keeps its own end, others get the commonest; and where the last line has no end, the
    new one has none.

    Args:
        old: the file byte for byte, as text; not what reading it with universal newlines gives.
    """
    if old.startswith(BYTE_ORDER_MARK):
        bare = new.removeprefix(BYTE_ORDER_MARK)
        return BYTE_ORDER_MARK + as_written(old.removeprefix(BYTE_ORDER_MARK), bare)
    if not old.endswith("\n"):
        new = new.removesuffix("\n")
    if "\r" not in old:
        return new
    *before, _ = old.split("\n")
    *after, rest = new.split("\n")
    usual = "\r" if 2 * sum(line.endswith("\r") for line in before) >= len(before) else ""
    bare_lines = [line.removesuffix("\r") for line in before]
    # Equal beginnings and ends first: the matcher takes long runs, and equal lines for one another.
    head = _alike(bare_lines, after)
    tail = _alike(bare_lines[head:][::-1], after[head:][::-1])
    stop, last = len(bare_lines) - tail, len(after) - tail
    # From 200 lines on `autojunk` leaves common lines, such as blank ones, out of the comparison.
    matcher = difflib.SequenceMatcher(None, bare_lines[head:stop], after[head:last], autojunk=False)
    lines = before[:head]
    for operation, *bounds in matcher.get_opcodes():
        start, end, new_start, new_end = (head + bound for bound in bounds)
        same = operation == "equal"
        lines += before[start:end] if same else [line + usual for line in after[new_start:new_end]]
    return "\n".join([*lines, *before[stop:], rest])


def _alike(first: Sequence[str], second: Sequence[str]) -> int:
    """The number of lines that both begin with."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False)))


def diff(path: str, old: str, new: str) -> str:
    """Unified diff of one file that `git apply` accepts; empty if nothing changed.

    Args:
        path: of the file, relative to the repository's root, with forward slashes.

    Raises:
        InputError: an absolute path, or one that leaves the repository.
    """
    parts = path.split("/")
    if not path or path.startswith("/") or ".." in parts or "\\" in path or ":" in parts[0]:
        raise InputError(f"{path!r} cannot head a patch: give a path relative to the repository's root")
    if old == new:
        return ""
    # git ends a line at a line feed alone.
    before, after = ([line + "\n" for line in text.split("\n")] for text in (old, new))
    for lines in (before, after):
        lines[-1:] = [lines[-1].removesuffix("\n")] if lines[-1] != "\n" else []
    # Without difflib's two lines of names, which it does not quote as git does.
    hunks = list(difflib.unified_diff(before, after, lineterm="\n"))[2:]
    header = [f"--- {_label('a/' + path)}\n", f"+++ {_label('b/' + path)}\n"]
    no_end = "\n\\ No newline at end of file\n"
    return "".join([*header, *(line if line.endswith("\n") else line + no_end for line in hunks)])


def _label(path: str) -> str:
    """A path as git writes it: quoted where it is not plain ASCII, with a tab behind it where it has a space."""
    if all(31 < ord(letter) < 127 and letter != '"' for letter in path):
        return path + ("\t" if " " in path else "")
    escaped = (
        f"\\{byte:03o}" if byte < 32 or byte > 126 or byte == 34 else chr(byte) for byte in path.encode()
    )
    return f'"{"".join(escaped)}"'
