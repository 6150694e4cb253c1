"""What stands beside an agent's Python: how it is started, notebooks, other languages, prompt files, tables.

Read from names and texts; nothing is run.
"""

from __future__ import annotations

import ast
import csv
import json
import re
import shlex
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ..python_text import module_of
from .files import files, is_test
from .prompt_files import NESTED, WHOLE

_FOREIGN = {
    ".ts": "TypeScript",
    ".tsx": "TypeScript",
    ".mts": "TypeScript",
    ".js": "JavaScript",
    ".mjs": "JavaScript",
    ".go": "Go",
    ".java": "Java",
    ".rs": "Rust",
    ".rb": "Ruby",
}
_CLIENT = re.compile(r"\b(?:openai|anthropic|langchain)\b", re.IGNORECASE)
_TABLES = (".csv", ".tsv", ".jsonl", ".parquet")
_ANSWERS = ("answer", "expected", "label", "target", "output", "team", "category", "reference")
"""Names of columns that say what is right, or the last words of such: `expected_output`."""
_LAST_WORD = re.compile(r".*[\W_](?=[^\W_])")
_WEB = re.compile(r"^(\w+)\s*(?::[^=\n]+)?=\s*(?:\w+\.)?(FastAPI|Starlette|Litestar|Flask)\(", re.MULTILINE)
_LARGE = 2_000_000
"""Bytes from which on a file is not looked into."""


@dataclass(frozen=True, slots=True)
class ExampleTable:
    """A table that stands in the repository."""

    path: str
    columns: tuple[str, ...] = ()
    """Of a Parquet none: it is not opened."""

    @property
    def right(self) -> str | None:
        """The column that says what is right, by its name."""
        return next((name for name in self.columns if _LAST_WORD.sub("", name.casefold()) in _ANSWERS), None)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Paths are relative to the root, with forward slashes."""

    notebooks: tuple[str, ...]
    """Those whose cells call a model."""
    foreign: tuple[tuple[str, str], ...]
    """Files in other languages that name a model's client, each with its language."""
    templates: tuple[str, ...]
    """Files that are prompts: they lie in a folder or have a name that says so."""
    tables: tuple[ExampleTable, ...]


def surroundings(root: Path) -> Surroundings:
    """Look through a repository."""
    notebooks, foreign, templates, tables = [], [], [], []
    for path in files(root):
        name, suffix = path.relative_to(root).as_posix(), path.suffix.casefold()
        if suffix in _TABLES:
            tables.append(ExampleTable(name, _columns(path, suffix)))
        elif suffix in (*WHOLE, *NESTED) and any(
            "prompt" in part.casefold() for part in PurePosixPath(name).parts
        ):
            templates.append(name)
        elif suffix == ".ipynb" and _CLIENT.search(_cells(path)):
            notebooks.append(name)
        elif suffix in _FOREIGN and _CLIENT.search(_text(path)):
            foreign.append((name, _FOREIGN[suffix]))
    return Surroundings(tuple(notebooks), tuple(foreign), tuple(templates), tuple(tables))


def start_of(root: Path, path: str) -> str:
    """The command that starts the program that a file of it belongs to."""
    module = PurePosixPath(path).with_suffix("")
    inside = module.parts[1:] if module.parts[0] == "src" else module.parts
    source = "env PYTHONPATH=src " if module.parts[0] == "src" else ""
    served = _WEB.search(_text(root / path))
    if served is not None:
        dotted = ".".join(inside)
        if served[2] == "Flask":
            return f"{source}flask --app {dotted}:{served[1]} run"
        return f"{source}uvicorn {dotted}:{served[1]}"
    for parent in PurePosixPath(path).parents:
        if parent.parts and parent.parts != ("src",) and (root / parent / "__main__.py").is_file():
            parts = parent.parts[1:] if parent.parts[0] == "src" else parent.parts
            return f"{source}python -m {'.'.join(parts)}"
    if not _runs(_text(root / path)):
        dotted, name = ".".join(inside[:-1]), inside[-1]
        program = _program_of(root, root / path, dotted, name)
        command = _installed(root, dotted, name) if program == PROGRAM else None
        return command or f"{source}python {program}"
    # A file of a package is no script: what it imports of the package would not be found.
    if len(inside) > 1 and (root / path).with_name("__init__.py").is_file():
        return f"{source}python -m {'.'.join(inside)}"
    return f"{source}python {path}"


PROGRAM = "YOUR_PROGRAM.py"
"""Stands for the program that calls a module which runs nothing by itself, where none is found."""


def _runs(text: str) -> bool:
    """True if a file does something when it is started: more than to import and to define."""
    try:
        body = module_of(text.encode()).body
    except SyntaxError:
        return True
    return any(
        isinstance(statement, ast.If | ast.For | ast.While | ast.With | ast.Try | ast.Match)
        or (isinstance(statement, ast.Expr) and not isinstance(statement.value, ast.Constant))
        for statement in body
    )


def _installed(root: Path, package: str, name: str) -> str | None:
    """The command that a project installs (PEP 621) whose module is this one or imports it."""
    try:
        scripts = tomllib.loads(_text(root / "pyproject.toml")).get("project", {}).get("scripts", {})
        modules = {str(command): str(entry).partition(":")[0].strip() for command, entry in scripts.items()}
    except (ValueError, AttributeError):
        return None
    imports = _imports(package, name)
    for command, module in modules.items():
        places = [root.joinpath(*base, *module.split(".")).with_suffix(".py") for base in ((), ("src",))]
        if module == f"{package}.{name}".strip(".") or any(imports.search(_text(place)) for place in places):
            return command
    return None


def _imports(package: str, name: str) -> re.Pattern[str]:
    """Lines of a file that imports a module of a package."""
    own = f"{package}.{name}".strip(".")
    return re.compile(
        rf"^\s*(?:(?:from|import)\s+{re.escape(own)}\b|from\s+{re.escape(package) or '[.]'}\s+import\s.*\b{name}\b)",
        re.MULTILINE,
    )


def _program_of(root: Path, called: Path, package: str, name: str) -> str:
    """A file that imports a module and runs, the one that lies highest; PROGRAM where there is none."""
    imports = _imports(package, name)
    programs = [
        path
        for path in files(root)
        if path.suffix == ".py"
        and path != called
        and not is_test(path.relative_to(root))
        and imports.search(text := _text(path))
        and _runs(text)
    ]
    programs.sort(key=lambda path: (len(path.parts), path.as_posix()))
    return programs[0].relative_to(root).as_posix() if programs else PROGRAM


def advice(around: Surroundings, agent: str, store: str) -> Iterable[str]:
    """How the agent's answers can be judged, and the command that improves it by that, a sentence each.

    Args:
        agent: the file of its entry point; "" where there is none.
    """
    if agent:
        yield (
            f"reward: what people say of its answers (whet label --store {store}, whet feedback RUN up|down); then "
            f"whet improve {agent} --store {store} --model NAME --base-url URL"
        )
    for table in around.tables:
        if table.right is not None:
            named = f"--data {shlex.quote(table.path)} --expected {shlex.quote(table.right)}"
            judged = f"whet improve {agent} {named} --model NAME --base-url URL"
            then = f"; then {judged}" if agent else ""
            yield f"reward: the right answers in {table.path}, column {table.right}{then}"
    texts = [name for name in around.templates if not name.endswith(NESTED)]
    if texts:
        thumbs = f"by thumbs: whet improve {agent} --store {store}, as above; " if agent else ""
        yield (
            f"prompt files: {', '.join(texts)}; {thumbs}by a table: whet improve {texts[0]} --data TABLE --model NAME "
            "--base-url URL"
        )
    for name in around.templates:
        if name.endswith(NESTED):
            form = {".toml": "TOML", ".json": "JSON"}.get(PurePosixPath(name).suffix.casefold(), "YAML")
            yield (
                f"{name} holds a prompt in {form}: "
                + (f"whet improve {agent} changes it there by thumbs; " if agent else "")
                + "to improve it by a table, move its text into a file of its own"
            )
    for name, language in around.foreign:
        yield f"{name} calls a model from {language}: record it without a change, whet run --store {store} -- COMMAND"
    for name in around.notebooks:
        yield (
            f"{name} calls a model: whet run --store {store} -- jupyter execute {name} records it; move its prompt and "
            "the function that answers into a module, and whet improve MODULE.py can change the prompt"
        )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8") if path.stat().st_size < _LARGE else ""
    except (OSError, UnicodeDecodeError):
        return ""


def _cells(path: Path) -> str:
    try:
        cells = json.loads(_text(path) or "{}").get("cells", [])
        return "\n".join("".join(cell["source"]) for cell in cells if cell.get("cell_type") == "code")
    except (ValueError, AttributeError, KeyError, TypeError):
        return ""


def _columns(path: Path, suffix: str) -> tuple[str, ...]:
    line = _text(path).partition("\n")[0]
    if suffix == ".jsonl":
        try:
            first = json.loads(line)
        except ValueError:
            return ()
        return tuple(first) if isinstance(first, dict) else ()
    if suffix == ".parquet" or not line:
        return ()
    return tuple(
        next(csv.reader([line], delimiter="\t" if suffix == ".tsv" else ";" if ";" in line else ","))
    )
