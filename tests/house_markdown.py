"""Reads the fenced blocks of Markdown files, and runs the Python ones of one file.

    python tests/house_markdown.py FILE.md

runs every ```python block of the file in order, in one namespace and in the
current directory, with top-level `await` allowed and warnings as errors.  A block
headed ```python no-run: REASON is left out, as is ```python theirs, the code of another product.

A block headed ```python file after a paragraph that ends in `name.py`: is that file.  `script` gives the shell
blocks of a file and its files as one program, in their order.
"""

from __future__ import annotations

import ast
import asyncio
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

NAMED = re.compile(r"`(?P<name>[\w./-]+\.\w+)`:$")
FENCE = re.compile(r"^(?P<indent> *)```(?P<info>[^`]*)$")


@dataclass(frozen=True)
class Block:
    """One fenced block; `line` is the 1-based line of its first line of text."""

    path: Path
    line: int
    language: str
    note: str
    text: str
    file: str = ""
    """Name of the file that it is, "" if it is none."""


def blocks(path: Path) -> Iterator[Block]:
    """Every fenced block of a Markdown file, in order.

    Raises:
        ValueError: a fence is never closed.
    """
    opened: tuple[int, str, str] | None = None
    inside: list[str] = []
    before = name = ""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        fence = FENCE.match(line)
        if opened is None:
            if fence:
                language, _, note = fence["info"].strip().partition(" ")
                opened, inside = (number + 1, language, note.strip()), []
                named = NAMED.search(before) if note.strip() == "file" else None
                name = named["name"] if named else ""
            before = line.strip() or before
        elif fence and not fence["info"].strip():
            yield Block(path, opened[0], opened[1], opened[2], "\n".join(inside) + "\n", name)
            opened, before = None, ""
        else:
            inside.append(line)
    if opened is not None:
        raise ValueError(f"{path}: the block that starts at line {opened[0]} is never closed")


def python_blocks(path: Path) -> list[Block]:
    """The blocks that are to run."""
    return [
        one
        for one in blocks(path)
        if one.language == "python" and not one.file and not one.note.startswith(("no-run", "theirs"))
    ]


def script(path: Path) -> str:
    """The shell blocks of a file as one program, which writes the file's files where they stand."""
    parts = ["set -euo pipefail"]
    for block in blocks(path):
        if block.file:
            parts.append(f"cat > {block.file} <<'END OF FILE'\n{block.text}END OF FILE")
        elif block.language == "bash" and not block.note.startswith("no-run"):
            parts.append(f"echo '== line {block.line}' >&2\n{block.text.rstrip()}")
    return "\n".join(parts) + "\n"


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
