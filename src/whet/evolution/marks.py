"""Finds what a repository marks as something to improve, without importing any of it.

Marks: `@whet.evolve` on functions, methods and async functions, under any name it was imported as;
a comment `# whet: evolve kind=prompt metric=accuracy` on or above a constant; `whet.resource("name",
...)`.  Without marks: descriptions of tools (`{"type": "function", ...}` literals, `@tool`
functions), MCP tool schemas in JSON, and skill files.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..types import Json
from .modules import Module, Repository, keyword

KINDS = ("prompt", "tool", "router", "planner", "executor", "flow", "function", "skill")
_COMMENT = re.compile(r"#\s*whet:\s*evolve\b(.*)")
_PAIR = re.compile(r"(\w+)\s*=\s*([\w.:-]+)")
_FRONT = re.compile(r"\A---\r?\n(.*?)^---\r?$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Mark:
    """One target, as it stands in a file."""

    name: str
    """Of the resource: given, or the definition's in lower case."""
    kind: str
    path: str
    """Relative to the repository, with forward slashes."""
    line: int
    qualname: str = ""
    """Of the definition inside its module; "" for what is no Python definition."""
    metric: str | None = None
    how: str = "decorator"
    """`decorator`, `comment`, `resource`, `schema` (a tool's description) or `skill`."""
    text: str = ""
    """What may change."""


def marks(repository: Repository) -> list[Mark]:
    """Every target of a repository, in the order of its files."""
    found: list[Mark] = []
    for path in repository.files("*.py"):
        module = repository.load(path)
        if module is not None:
            found += _of_module(module)
    for path in repository.files("*.json"):
        found += _of_json(repository, path)
    for path in repository.files("*.md"):
        found += _of_markdown(repository, path)
    return found


def _of_module(module: Module) -> Iterator[Mark]:
    calls = _names_of_whet(module, "evolve")
    handles = _names_of_whet(module, "resource")
    path = module.path.as_posix()
    for qualname, node in _definitions(module.tree, ""):
        marked = next((each for each in node.decorator_list if _called(each) in calls), None)
        text = ast.get_source_segment(module.text, node) or ""
        if marked is not None:
            given = keyword(marked, ("name", "kind", "metric"))
            yield Mark(
                given.get("name") or _positional(marked) or node.name.lower(),
                given.get("kind", "function"),
                path,
                node.lineno,
                qualname,
                given.get("metric"),
                text=text,
            )
        elif any((_called(each) or "").split(".")[-1] == "tool" for each in node.decorator_list):
            said = ast.get_docstring(node)
            if said:
                yield Mark(node.name.lower(), "tool", path, node.lineno, qualname, None, "schema", said)
    yield from _of_comments(module)
    for part in ast.walk(module.tree):
        if isinstance(part, ast.Call) and _called(part) in handles and part.args:
            first = part.args[0]
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                kind = keyword(part, ("kind",)).get("kind", "prompt")
                said = ast.get_source_segment(module.text, part) or ""
                yield Mark(first.value, kind, path, part.lineno, "", None, "resource", said)
        elif isinstance(part, ast.Dict):
            yield from _of_schema(module, part)


def _names_of_whet(module: Module, wanted: str) -> set[str]:
    """What `whet.<wanted>` is called in this module."""
    found = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            found |= {f"{alias.asname or 'whet'}.{wanted}" for alias in node.names if alias.name == "whet"}
        elif isinstance(node, ast.ImportFrom) and node.module in ("whet", "whet.tracing") and not node.level:
            found |= {alias.asname or alias.name for alias in node.names if alias.name == wanted}
    return found


def _called(node: ast.expr) -> str | None:
    """Dotted name of a decorator or of what a call calls."""
    if isinstance(node, ast.Call):
        node = node.func
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else None


def _positional(node: ast.expr) -> str | None:
    """The name in `@whet.evolve("name")`."""
    first = node.args[0] if isinstance(node, ast.Call) and node.args else None
    return first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else None


def is_mark(module: Module, node: ast.expr) -> bool:
    """True for a decorator that is `whet.evolve`."""
    return _called(node) in _names_of_whet(module, "evolve")


def _definitions(
    tree: ast.Module | ast.ClassDef, prefix: str
) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield from _definitions(node, f"{prefix}{node.name}.")
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield prefix + node.name, node


def _of_comments(module: Module) -> Iterator[Mark]:
    lines = module.text.splitlines()
    for statement in module.tree.body:
        if isinstance(statement, ast.Assign):
            targets: list[ast.expr] = statement.targets
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            targets = [statement.target]
        else:
            continue
        if not isinstance(targets[0], ast.Name):
            continue
        ends = {statement.lineno - 1, statement.lineno, statement.end_lineno or statement.lineno}
        said = next(
            (
                match
                for line in sorted(ends)
                if 0 < line <= len(lines)
                # At the end of the line above it speaks of what stands there.
                and (line >= statement.lineno or lines[line - 1].lstrip().startswith("#"))
                and (match := _COMMENT.search(lines[line - 1]))
            ),
            None,
        )
        if said is None:
            continue
        given = dict(_PAIR.findall(said[1]))
        name = targets[0].id
        text = ast.get_source_segment(module.text, statement) or ""
        yield Mark(
            given.get("name", name.lower()),
            given.get("kind", "flow" if _plain_value(statement.value) else "prompt"),
            module.path.as_posix(),
            statement.lineno,
            name,
            given.get("metric"),
            "comment",
            text,
        )


def _plain_value(node: ast.expr | None) -> bool:
    """A number, a table or a list: no text that a model reads."""
    if isinstance(node, ast.UnaryOp):
        node = node.operand
    if isinstance(node, ast.Constant):
        return not isinstance(node.value, str)
    return isinstance(node, (ast.Dict, ast.List, ast.Tuple, ast.Set))


def _of_schema(module: Module, node: ast.Dict) -> Iterator[Mark]:
    """`{"type": "function", "function": {"name": ..., "description": ...}}`, as the chat APIs take it."""
    held = _strings(node)
    inner = next(
        (
            value
            for key, value in zip(node.keys, node.values, strict=True)
            if isinstance(key, ast.Constant) and key.value == "function" and isinstance(value, ast.Dict)
        ),
        None,
    )
    if held.get("type") == "function" and inner is not None:
        named = _strings(inner)
        if named.get("name") and named.get("description"):
            yield Mark(
                named["name"],
                "tool",
                module.path.as_posix(),
                inner.lineno,
                "",
                None,
                "schema",
                named["description"],
            )


def _strings(node: ast.Dict) -> dict[str, str]:
    return {
        str(key.value): value.value
        for key, value in zip(node.keys, node.values, strict=True)
        if isinstance(key, ast.Constant) and isinstance(value, ast.Constant) and isinstance(value.value, str)
    }


def _of_json(repository: Repository, path: Path) -> Iterator[Mark]:
    """Tools of an MCP server's `tools/list`, at any depth of the file."""
    text = path.read_text(encoding="utf-8", errors="replace")
    if '"inputSchema"' not in text:
        return
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        repository.problems[path.relative_to(repository.root).as_posix()] = f"not JSON: {error}"
        return
    for tool in _tools(data):
        line = text.count("\n", 0, max(0, text.find(json.dumps(tool["name"])))) + 1
        inside = path.relative_to(repository.root).as_posix()
        yield Mark(tool["name"], "tool", inside, line, "", None, "schema", str(tool.get("description", "")))


def _tools(data: Json) -> Iterator[dict[str, Json]]:
    if isinstance(data, dict):
        if isinstance(data.get("name"), str) and isinstance(data.get("inputSchema"), dict):
            yield data
        else:
            for value in data.values():
                yield from _tools(value)
    elif isinstance(data, list):
        for value in data:
            yield from _tools(value)


def _of_markdown(repository: Repository, path: Path) -> Iterator[Mark]:
    """Skill files: SKILL.md, or front matter with both a name and a description."""
    text = path.read_text(encoding="utf-8", errors="replace")
    front = _FRONT.match(text)
    given = dict(re.findall(r"^(\w+):\s*(.+?)\s*$", front[1], re.MULTILINE)) if front else {}
    if path.name != "SKILL.md" and not {"name", "description"} <= set(given):
        return
    inside = path.relative_to(repository.root).as_posix()
    yield Mark(given.get("name", path.parent.name), "skill", inside, 1, "", None, "skill", text)
