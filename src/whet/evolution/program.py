"""A candidate of code evolution: a set of files and named texts, and what of it may change.

Between `EVOLVE-BLOCK-START` and `EVOLVE-BLOCK-END` comments, in any language, text may change; a
part without markers may change everywhere.  Nothing here runs or imports a program.  `edits.py`
says how programs change without a model, `proposers.py` how they change with one.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from ..errors import InputError
from ..types import digest
from .targets import diff

_MARKER = re.compile(r"^\W*EVOLVE-BLOCK-(START|END)\b", re.MULTILINE)
_SEARCH = re.compile(
    r"^[ \t]*<{7} SEARCH[ \t]*\r?\n(.*?)^[ \t]*={7}[ \t]*\r?\n(.*?)^[ \t]*>{7} REPLACE",
    re.DOTALL | re.MULTILINE,
)
_FENCE = re.compile(r"^```[ \t]*([\w+.-]*)[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)


class Region(NamedTuple):
    """Characters `start` to `stop` of a text, the lines between a pair of markers."""

    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Program:
    """Named texts that are judged together.

    Raises:
        InputError: `main` is none of the parts, or a name that would leave the folder of the program.
    """

    parts: Mapping[str, str]
    """Name → text.  A name is a path relative to the program's folder, with forward slashes."""
    main: str
    """The part whose path an evaluator is given."""

    def __post_init__(self) -> None:
        if self.main not in self.parts:
            raise InputError(f"main part {self.main!r} is none of {sorted(self.parts)}")
        for name in self.parts:
            if not name or name.startswith("/") or "\\" in name or {"..", ""} & set(name.split("/")):
                raise InputError(f"{name!r} is no name of a part: give a path inside the program's folder")

    @property
    def id(self) -> str:
        """Digest of the texts, to the character."""
        return digest([self.main, dict(self.parts)])

    @property
    def text(self) -> str:
        """The main part."""
        return self.parts[self.main]

    def shape(self) -> str:
        """Digest that ignores what cannot matter: formatting, comments and docstrings of Python."""
        return digest([self.main, {name: _shape(name, text) for name, text in self.parts.items()}])

    def with_part(self, name: str, text: str) -> Program:
        """A copy with one part replaced."""
        return Program({**self.parts, name: text}, self.main)

    def diff(self, other: Program, folder: str = "") -> str:
        """Unified diff to `other`, for `git apply`; `folder` is put before the names."""
        names = sorted({*self.parts, *other.parts})
        return "".join(
            diff(folder + name, self.parts.get(name, ""), other.parts.get(name, "")) for name in names
        )


def regions(text: str) -> list[Region]:
    """The blocks between markers, or the whole text if it has none.

    Raises:
        InputError: markers that are nested or not paired, with their line.
    """
    found: list[Region] = []
    open_at: int | None = None
    for marker in _MARKER.finditer(text):
        line = text.count("\n", 0, marker.start(1)) + 1
        start = text.rfind("\n", 0, marker.start(1)) + 1
        end = text.find("\n", marker.end())
        after = len(text) if end < 0 else end + 1
        if marker[1] == "START":
            if open_at is not None:
                raise InputError(f"line {line}: EVOLVE-BLOCK-START inside a block; blocks cannot be nested")
            open_at = after
        elif open_at is None:
            raise InputError(f"line {line}: EVOLVE-BLOCK-END without a START before it")
        else:
            found.append(Region(open_at, start))
            open_at = None
    if open_at is not None:
        line = text.count("\n", 0, open_at)
        raise InputError(f"line {line}: EVOLVE-BLOCK-START has no END")
    return found or [Region(0, len(text))]


def keep_outside(original: str, changed: str) -> str:
    """`changed` with everything outside the blocks as in `original`.

    Raises:
        InputError: `changed` does not have the same number of blocks.
    """
    if not _MARKER.search(original):
        return changed
    old, new = regions(original), regions(changed)
    if len(old) != len(new) or not _MARKER.search(changed):
        raise InputError(f"the program has {len(old)} evolve blocks, the proposal does not keep them")
    out, last = [], 0
    for before, after in zip(old, new, strict=True):
        out += [original[last : before.start], changed[after.start : after.stop]]
        last = before.stop
    return "".join([*out, original[last:]])


def apply_diff(program: Program, answer: str) -> Program:
    """The program after the SEARCH/REPLACE blocks of a model's answer.

    Each SEARCH text is looked for in the main part, then in the others; where it does not stand to
    the character, lines are compared without the space at their ends.  Edits outside the evolve
    blocks are undone.

    Raises:
        InputError: no block, or a SEARCH text that no part holds.
    """
    found = _SEARCH.findall(answer)
    if not found:
        raise InputError("the answer holds no SEARCH/REPLACE block")
    order = [program.main, *(name for name in program.parts if name != program.main)]
    parts = dict(program.parts)
    for search, replace in found:
        for name in order:
            changed = _replace(parts[name], search, replace)
            if changed is not None:
                parts[name] = changed
                break
        else:
            raise InputError(f"no part holds the SEARCH text {search[:200]!r}")
    return _kept(program, parts)


def apply_rewrite(program: Program, answer: str) -> Program:
    """The program with its main part, or its only block, as the answer's last fenced block has it.

    Raises:
        InputError: no fenced block.
    """
    fenced = [body for _, body in _FENCE.findall(answer)]
    if not fenced:
        raise InputError("the answer holds no fenced block of code")
    text = fenced[-1]
    blocks = regions(program.text)
    if _MARKER.search(program.text) and not _MARKER.search(text):
        if len(blocks) != 1:
            raise InputError(f"the program has {len(blocks)} evolve blocks and the answer marks none")
        text = program.text[: blocks[0].start] + text + program.text[blocks[0].stop :]
    return _kept(program, {**program.parts, program.main: text})


def _kept(program: Program, parts: Mapping[str, str]) -> Program:
    return Program(
        {name: keep_outside(program.parts[name], text) for name, text in parts.items()}, program.main
    )


def _replace(text: str, search: str, replace: str) -> str | None:
    if not search.strip():
        return None
    at = text.find(search)
    # A match in the middle of a line is chance, not a quotation.
    if at >= 0 and (at == 0 or text[at - 1] == "\n"):
        return text[:at] + replace + text[at + len(search) :]
    lines = text.splitlines(keepends=True)
    wanted = [line.rstrip() for line in search.splitlines()]
    for start in range(len(lines) - len(wanted) + 1):
        if [line.rstrip() for line in lines[start : start + len(wanted)]] == wanted:
            return "".join([*lines[:start], replace, *lines[start + len(wanted) :]])
    return None


@lru_cache(maxsize=64)
def _shape(name: str, text: str) -> str:
    if not name.endswith(".py"):
        return text
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return text
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            first = node.body[0] if node.body else None
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                node.body = node.body[1:]
    return ast.dump(tree)
