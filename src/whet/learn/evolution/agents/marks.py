"""Finds the targets of a repository, the parts that it marks as something to improve, without importing any of it.

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

from ....repository.modules import Module, Repository
from ....repository.syntax import (
    FunctionNode,
    defines,
    definitions,
    dotted,
    keyword_strings,
    last_name,
    literal_keys,
    string,
)
from ....types import Json

_COMMENT = re.compile(r"#\s*whet:\s*evolve\b(.*)")
_PAIR = re.compile(r"(\w+)\s*=\s*([\w.:-]+)")
_FRONT = re.compile(r"\A---\r?\n(.*?)^---\r?$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Mark:
    """One target, as it stands in a file."""

    name: str
    """Of the resource: the one that the mark states, or the definition's in lower case."""
    kind: str
    path: str
    """Relative to the repository, with forward slashes."""
    line: int
    qualname: str = ""
    """Of the definition inside its module, or of a value in a file of values; "" for any other target."""
    metric: str | None = None
    how: str = "decorator"
    """`decorator`, `comment`, `resource`, `schema` (a tool's description), `skill` or `file`."""
    text: str = ""
    """A tool's description in a JSON file, where no syntax tree tells what may change."""


def marks(repository: Repository) -> list[Mark]:
    """Every target of a repository, in the order of its files."""
    targets: list[Mark] = []
    for path in repository.files(".py"):
        module = repository.load(path)
        if module is not None:
            targets += _of_module(module)
    for path in repository.files(".json"):
        targets += _of_json(repository, path)
    for path in repository.files(".md"):
        targets += _of_markdown(repository, path)
    return targets


def _of_module(module: Module) -> Iterator[Mark]:
    path = module.path.as_posix()
    for qualname, node in definitions(module.tree.body):
        if not isinstance(node, FunctionNode):
            continue
        marked = next((mark for mark in node.decorator_list if is_mark(module, mark)), None)
        if marked is not None:
            stated = keyword_strings(marked)
            positional = string(marked.args[0]) if isinstance(marked, ast.Call) and marked.args else None
            target = stated.get("name") or positional or node.name.lower()
            kind, metric = stated.get("kind", "function"), stated.get("metric")
            yield Mark(target, kind, path, node.lineno, qualname, metric)
        elif any(last_name(mark) == "tool" for mark in node.decorator_list) and ast.get_docstring(node):
            yield Mark(node.name.lower(), "tool", path, node.lineno, qualname, how="schema")
    yield from _of_comments(module)
    for part in module.nodes:
        if isinstance(part, ast.Call) and part.args and dotted(part) in module.names_of_whet("resource"):
            name = string(part.args[0])
            if name is not None:
                kind = keyword_strings(part).get("kind", "prompt")
                yield Mark(name, kind, path, part.lineno, how="resource")
        elif isinstance(part, ast.Dict):
            yield from _of_schema(module, part)


def is_mark(module: Module, node: ast.expr) -> bool:
    """True for a decorator that is `whet.evolve`."""
    return dotted(node) in module.names_of_whet("evolve")


def _of_comments(module: Module) -> Iterator[Mark]:
    # Of bytes: `str.splitlines` also splits at form feeds, after which line numbers are others.
    lines = module.raw.splitlines()
    for statement in module.tree.body:
        if not isinstance(statement, ast.Assign | ast.AnnAssign) or not defines(statement):
            continue
        ends = {statement.lineno - 1, statement.lineno, statement.end_lineno or statement.lineno} - {0}
        for number in sorted(ends):
            line = lines[number - 1].decode()
            # A comment at the end of the line above belongs to the statement there.
            if number < statement.lineno and not line.lstrip().startswith("#"):
                continue
            comment = _COMMENT.search(line)
            if comment is None:
                continue
            stated = dict(_PAIR.findall(comment[1]))
            name = defines(statement)[0]
            kind = stated.get("kind", "flow" if _plain_value(statement.value) else "prompt")
            yield Mark(
                stated.get("name", name.lower()),
                kind,
                module.path.as_posix(),
                statement.lineno,
                name,
                stated.get("metric"),
                "comment",
            )
            break


def _plain_value(node: ast.expr | None) -> bool:
    """True for a number, a table or a list: no text that a model reads."""
    if isinstance(node, ast.UnaryOp):
        node = node.operand
    if isinstance(node, ast.Constant):
        return not isinstance(node.value, str)
    return isinstance(node, ast.Dict | ast.List | ast.Tuple | ast.Set)


def _of_schema(module: Module, node: ast.Dict) -> Iterator[Mark]:
    """`{"type": "function", "function": {"name": ..., "description": ...}}`, as the chat APIs take it."""
    outer = literal_keys(node)
    inner = outer.get("function")
    if string(outer.get("type")) == "function" and isinstance(inner, ast.Dict):
        schema = literal_keys(inner)
        name = string(schema.get("name"))
        if name and string(schema.get("description")):
            yield Mark(name, "tool", module.path.as_posix(), inner.lineno, how="schema")


def _of_json(repository: Repository, path: Path) -> Iterator[Mark]:
    """Tools of an MCP server's `tools/list`, at any depth of the file."""
    text = path.read_text(encoding="utf-8", errors="replace")
    if '"inputSchema"' not in text:
        return
    name = repository.relative(path)
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        repository.problems[name] = f"not JSON: {error}"
        return
    for tool in _tools(document):
        line = text.count("\n", 0, max(0, text.find(json.dumps(tool["name"])))) + 1
        description = str(tool.get("description", ""))
        yield Mark(tool["name"], "tool", name, line, how="schema", text=description)


def _tools(document: Json) -> Iterator[dict[str, Json]]:
    if isinstance(document, dict):
        if isinstance(document.get("name"), str) and isinstance(document.get("inputSchema"), dict):
            yield document
            return
        document = list(document.values())
    if isinstance(document, list):
        for member in document:
            yield from _tools(member)


def _of_markdown(repository: Repository, path: Path) -> Iterator[Mark]:
    """Skill files: SKILL.md, or front matter with both a name and a description."""
    text = path.read_text(encoding="utf-8", errors="replace")
    front = _FRONT.match(text)
    fields = dict(re.findall(r"^(\w+):\s*(.+?)\s*$", front[1], re.MULTILINE)) if front else {}
    if path.name == "SKILL.md" or {"name", "description"} <= set(fields):
        name = fields.get("name", path.parent.name)
        yield Mark(name, "skill", repository.relative(path), 1, how="skill")
