"""Reads the fenced blocks of Markdown files, and runs the Python ones of one file.

    python tests/house_markdown.py FILE.md

runs every ```python block of the file in order, in one namespace and in the
current directory, with top-level `await` allowed and warnings as errors.  A block
headed ```python no-run: REASON is left out.
"""

from __future__ import annotations

import ast
import asyncio
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^(?P<indent> *)```(?P<info>[^`]*)$")


@dataclass(frozen=True)
class Block:
    """One fenced block; `line` is the 1-based line of its first line of text."""

    path: Path
    line: int
    language: str
    note: str
    text: str


def blocks(path: Path) -> Iterator[Block]:
    """Every fenced block of a Markdown file, in order.

    Raises:
        ValueError: a fence is never closed.
    """
    opened: tuple[int, str, str] | None = None
    inside: list[str] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        fence = FENCE.match(line)
        if opened is None:
            if fence:
                language, _, note = fence["info"].strip().partition(" ")
                opened, inside = (number + 1, language, note.strip()), []
        elif fence and not fence["info"].strip():
            yield Block(path, opened[0], opened[1], opened[2], "\n".join(inside) + "\n")
            opened = None
        else:
            inside.append(line)
    if opened is not None:
        raise ValueError(f"{path}: the block that starts at line {opened[0]} is never closed")


def python_blocks(path: Path) -> list[Block]:
    """The blocks that are to run."""
    return [one for one in blocks(path) if one.language == "python" and not one.note.startswith("no-run")]


def run(path: Path) -> None:
    """Run the Python blocks of one file; an error's traceback names the file and line of the Markdown."""
    namespace: dict[str, object] = {"__name__": "__main__", "__file__": str(path)}
    with asyncio.Runner() as runner:
        for block in python_blocks(path):
            # Empty lines before it make every line number that of the Markdown file.
            source = "\n" * (block.line - 1) + block.text
            code = compile(source, str(path), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            pending = eval(code, namespace)
            if asyncio.iscoroutine(pending):
                runner.run(pending)


if __name__ == "__main__":
    run(Path(sys.argv[1]))
