"""A candidate of code evolution: a set of files and named texts, and its regions that may change.

Between `EVOLVE-BLOCK-START` and `EVOLVE-BLOCK-END` comments, in any language, text may change; a
part without markers may change everywhere.  Nothing here runs or imports a program.  `edits.py`
changes programs without a model, `proposers.py` with one.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from ....errors import InputError
from ....python_text import module_of
from ....types import digest

_MARKER = re.compile(r"^\W*EVOLVE-BLOCK-(START|END)\b", re.MULTILINE)
_SEARCH = re.compile(
    r"^[ \t]*<{7} SEARCH[ \t]*\r?\n(.*?)^[ \t]*={7}[ \t]*\r?\n(.*?)^[ \t]*>{7} REPLACE",
    re.DOTALL | re.MULTILINE,
)
_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+\d+(?:,(\d+))? @@")
_FENCE = re.compile(r"^```[ \t]*([\w+.-]*)[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)


class Region(NamedTuple):
    """Characters `start` to `stop` of a text, the lines between a pair of markers."""

    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Program:
    """Named texts that are judged together.

    Raises:
        InputError: `main` is not a part, or a name would leave the folder of the program.
    """

    parts: Mapping[str, str]
    """Name → text.  A name is a path relative to the program's folder, with forward slashes."""
    main: str
    """The part whose path an evaluator is given."""

    def __post_init__(self) -> None:
        if self.main not in self.parts:
            raise InputError(f"main part {self.main!r} is not among {sorted(self.parts)}")
        for name in self.parts:
            if not name or name.startswith("/") or "\\" in name or {"..", ""} & set(name.split("/")):
                raise InputError(f"{name!r} cannot name a part: give a path inside the program's folder")

    @property
    def id(self) -> str:
        """Digest of the texts, to the character."""
        return digest([self.main, dict(self.parts)])

    @property
    def text(self) -> str:
        """The main part."""
        return self.parts[self.main]

    def shape(self) -> str:
        """Digest that ignores formatting, comments and docstrings of Python, which cannot matter."""
        return digest([self.main, {name: _shape(name, text) for name, text in self.parts.items()}])

    def with_part(self, name: str, text: str) -> Program:
        """A copy with one part replaced."""
        return Program({**self.parts, name: text}, self.main)


def text_of(path: Path, label: str) -> str:
    """The text of a file, without the byte order mark that some editors put before it.

    Args:
        label: the file's name in errors.

    Raises:
        InputError: no file, no UTF-8, or named `.py` and no Python.
    """
    if not path.is_file():
        raise InputError(f"there is no {label} at {path}" + (": it is a folder" if path.is_dir() else ""))
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"the {label} {path} is not UTF-8: {error}. Save it as UTF-8.") from error
    if path.suffix == ".py":
        try:
            module_of(text, path.name)
        except SyntaxError as error:
            raise InputError(f"the {label} {path} is not valid Python: {error}") from error
    return text


def regions(text: str) -> list[Region]:
    """The blocks between markers, or the whole text if it has none.

    Raises:
        InputError: markers that are nested or not paired, with their line.
    """
    blocks: list[Region] = []
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
            blocks.append(Region(open_at, start))
            open_at = None
    if open_at is not None:
        line = text.count("\n", 0, open_at)
        raise InputError(f"line {line}: EVOLVE-BLOCK-START has no END")
    return blocks or [Region(0, len(text))]


def keep_outside(original: str, changed: str) -> str:
    """`changed` with everything outside the blocks as in `original`.

    Raises:
        InputError: `changed` does not have the same number of blocks.
    """
    if not _MARKER.search(original):
        return changed
    old, new = regions(original), regions(changed)
    # A text without marks has one region as well, the whole of it.
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
    the character, lines are compared without the space at their ends, and without a margin that all
    of them lack or have too much of, which the replacement is moved by.  Edits outside the evolve
    blocks are undone.

    Raises:
        InputError: no block, or a SEARCH text that no part holds.
    """
    edits = _SEARCH.findall(answer)
    if not edits:
        raise InputError("the answer holds no SEARCH/REPLACE block")
    order = [program.main, *(name for name in program.parts if name != program.main)]
    parts = dict(program.parts)
    for search, replace in edits:
        for name in order:
            changed = _replace(parts[name], search, replace)
            if changed is not None:
                parts[name] = changed
                break
        else:
            raise InputError(f"no part holds the SEARCH text {search[:200]!r}")
    return kept(program, parts)


def apply_rewrite(program: Program, answer: str) -> Program:
    """The program with its main part, or its only block, as the answer's last fenced block has it.

    Raises:
        InputError: no fenced block.
    """
    fenced = [body for _, body in _FENCE.findall(answer)]
    if not fenced:
        raise InputError("the answer holds no fenced block of code")
    return rewritten(program, fenced[-1])


def rewritten(program: Program, text: str) -> Program:
    """The program with its main part, or its only block, replaced by a text.

    Raises:
        InputError: the text marks no block, and the program has several.
    """
    blocks = regions(program.text)
    if _MARKER.search(program.text) and not _MARKER.search(text):
        if len(blocks) != 1:
            raise InputError(f"the program has {len(blocks)} evolve blocks and the answer marks none")
        text = program.text[: blocks[0].start] + text + program.text[blocks[0].stop :]
    return kept(program, {**program.parts, program.main: text})


def apply_patch(program: Program, text: str) -> Program:
    """The program after a unified diff, such as `git diff` prints; what stands around the hunks is ignored.

    A hunk is looked for where it says, then nearby: line numbers of hand-written diffs are often wrong,
    its lines have to be right.

    Raises:
        InputError: no hunk, a file that is not part of the program, or lines that no part holds.
    """
    parts = dict(program.parts)
    name = ""
    shift = 0
    patched = False
    lines = text.splitlines(keepends=True)
    at = 0
    while at < len(lines):
        line = lines[at]
        if line.startswith("--- ") and at + 1 < len(lines) and lines[at + 1].startswith("+++ "):
            name, shift = _part_of(program, lines[at + 1][4:].split("\t")[0].strip()), 0
            at += 2
            continue
        heading = _HUNK.match(line)
        if heading is None or not name:
            at += 1
            continue
        count, added = (int(heading[group] or 1) for group in (2, 3))
        at, old, new = _hunk(lines, at + 1, count, added)
        parts[name], shift = _put(parts[name], old, new, int(heading[1]) - 1 + shift, shift)
        patched = True
    if not patched:
        raise InputError("the answer holds no hunk of a unified diff")
    return kept(program, parts)


def _part_of(program: Program, path: str) -> str:
    for prefix in ("b/", "program/", "b/program/", ""):
        name = path.removeprefix(prefix)
        if name in program.parts:
            return name
    raise InputError(f"the patch changes {path!r}, which is none of {sorted(program.parts)}")


def _hunk(lines: list[str], at: int, count: int, added: int) -> tuple[int, list[str], list[str]]:
    """The place after a hunk, its old lines and its new ones."""
    old: list[str] = []
    new: list[str] = []
    while at < len(lines) and (len(old) < count or len(new) < added):
        sign, rest = lines[at][:1], lines[at][1:]
        # Editors take the blank off an empty line of context, which is a bare line feed then.
        if sign not in " -+\n":
            break
        if sign != "+":
            old.append(rest or "\n")
        if sign != "-":
            new.append(rest or "\n")
        at += 1
    if at < len(lines) and lines[at].startswith("\\"):  # no newline at the end of the file
        at += 1
    return at, old, new


def _put(text: str, old: list[str], new: list[str], line_number: int, shift: int) -> tuple[str, int]:
    """The text with one hunk applied, and how far lines after it have moved."""
    lines = text.splitlines(keepends=True)
    bare = [line.rstrip() for line in old]
    places = range(len(lines) - len(bare) + 1)
    for start in sorted(places, key=lambda start: abs(start - line_number)):
        if [line.rstrip() for line in lines[start : start + len(bare)]] == bare:
            changed = [*lines[:start], *new, *lines[start + len(bare) :]]
            return "".join(changed), shift + len(new) - len(old)
    raise InputError(f"no part holds the lines of the hunk that begins with {''.join(old[:2])!r:.200}")


def kept(program: Program, parts: Mapping[str, str]) -> Program:
    """The program with these texts, everything outside its evolve blocks as it was.

    Raises:
        InputError: a text that does not keep the blocks.
    """
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
    searched = [line.rstrip() for line in search.splitlines()]
    moved = list[tuple[int, int]]()
    for start in range(len(lines) - len(searched) + 1):
        found = [line.rstrip() for line in lines[start : start + len(searched)]]
        if found == searched:
            moved = [(start, 0)]
            break
        if (by := _indented_by(found, searched)) is not None:
            moved.append((start, by))
    # Models quote without the margin.  Where it stands twice so, nobody knows which is meant.
    if len(moved) != 1:
        return None
    start, by = moved[0]
    rest = lines[start + len(searched) :]
    replace = "".join(_indented(line, by) for line in replace.splitlines(keepends=True))
    # The last line of a bare text has no end, and what replaces it gets none.
    ended = rest or text.endswith("\n")
    return "".join([*lines[:start], replace if ended else replace.removesuffix("\n"), *rest])


def _indented_by(found: list[str], searched: list[str]) -> int | None:
    """By how many blanks more than those that are searched all of these lines are indented; None if they are others."""
    if [line.lstrip(" ") for line in found] != [line.lstrip(" ") for line in searched]:
        return None
    shifts = {len(line) - len(quoted) for line, quoted in zip(found, searched, strict=True) if quoted}
    return shifts.pop() if len(shifts) == 1 else None


def _indented(line: str, by: int) -> str:
    if not line.strip():
        return line
    return " " * by + line if by >= 0 else line[min(-by, len(line) - len(line.lstrip(" "))) :]


@lru_cache(maxsize=64)
def _shape(name: str, text: str) -> str:
    if not name.endswith(".py"):
        return text
    try:
        # Not `source.parsed`: this tree is changed, and that one is shared.
        tree = module_of(text)
    except SyntaxError:
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
    try:
        return ast.dump(tree)
    except RecursionError:  # a sum of a thousand terms parses, and compiles, and is too deep to be dumped
        return text
