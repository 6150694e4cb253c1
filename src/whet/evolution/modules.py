"""The modules of a repository as text: what each binds at its top, and what a statement refers to.

Nothing is imported or run.  A module is cut into its top-level statements; a statement is the
smallest piece that `extract.py` takes.  What a statement refers to comes from Python's own symbol
table, so arguments, comprehensions and shadowed names are told apart from globals.
"""

from __future__ import annotations

import ast
import symtable
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import InputError

SKIPPED = frozenset(
    {"__pycache__", "node_modules", "site-packages", "build", "dist", "venv", "env", "whet_output"}
)
STAGED = ".staged-by-whet"
"""A file that marks a folder of copies: what is in it is nobody's source."""


@dataclass(frozen=True, slots=True)
class Binding:
    """What a top-level name of a module comes from."""

    statement: int
    """Index of the statement that binds it."""
    module: str | None = None
    """For an import: the module named, absolute."""
    name: str | None = None
    """For `from module import name`: the name; None if the binding is a module itself."""


@dataclass(slots=True)
class Module:
    """One file, parsed."""

    name: str
    """Dotted, as it is imported."""
    path: Path
    """Relative to the repository."""
    text: str
    package: bool
    """It is an `__init__.py`."""
    tree: ast.Module = field(init=False)
    bindings: dict[str, list[Binding]] = field(default_factory=dict)
    stars: list[tuple[int, str]] = field(default_factory=list)
    """(statement, module) of every `from module import *`."""
    lazy_annotations: bool = False
    """`from __future__ import annotations`: annotations need not resolve."""

    def __post_init__(self) -> None:
        """Raises SyntaxError."""
        self.tree = ast.parse(self.text)
        for index, statement in enumerate(self.tree.body):
            for name, binding in self._bound(index, statement):
                self.bindings.setdefault(name, []).append(binding)
        for statement in self.tree.body:
            if isinstance(statement, ast.ImportFrom) and statement.module == "__future__":
                self.lazy_annotations |= any(alias.name == "annotations" for alias in statement.names)

    def absolute(self, node: ast.ImportFrom) -> str:
        """The module that a `from` import names."""
        if not node.level:
            return node.module or ""
        parts = self.name.split(".") if self.package else self.name.split(".")[:-1]
        base = parts[: len(parts) - node.level + 1]
        return ".".join([*base, *([node.module] if node.module else [])])

    def _bound(self, index: int, statement: ast.stmt) -> Iterator[tuple[str, Binding]]:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield statement.name, Binding(index)
            return
        for node in _own(statement):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.asname:
                        yield alias.asname, Binding(index, alias.name)
                    else:
                        yield alias.name.split(".")[0], Binding(index, alias.name.split(".")[0])
            elif isinstance(node, ast.ImportFrom):
                module = self.absolute(node)
                for alias in node.names:
                    if alias.name == "*":
                        self.stars.append((index, module))
                    elif module != "__future__":
                        yield alias.asname or alias.name, Binding(index, module, alias.name)
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                yield node.name, Binding(index)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id, Binding(index)

    def touching(self, name: str) -> list[int]:
        """Statements that change what `name` holds without binding it: `name[k] = v`, `name.add(f)`."""
        found = []
        variable = not any(
            isinstance(self.tree.body[each.statement], (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
            for each in self.bindings.get(name, ())
        )
        for index, statement in enumerate(self.tree.body):
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
                changed = (
                    isinstance(statement.value.func, ast.Attribute) and _root(statement.value.func) == name
                )
            elif isinstance(statement, (ast.Assign, ast.Delete)):
                changed = any(
                    isinstance(target, (ast.Subscript, ast.Attribute)) and _root(target) == name
                    for target in statement.targets
                )
            elif isinstance(statement, ast.AugAssign):
                changed = _root(statement.target) == name
            elif isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and variable:
                # `@handlers.add` puts the function into `handlers`.
                changed = any(
                    isinstance(inner, ast.Attribute) and _root(inner) == name
                    for inner in (
                        each.func if isinstance(each, ast.Call) else each for each in statement.decorator_list
                    )
                )
            else:
                changed = False
            if changed:
                found.append(index)
        return found

    def references(self, statement: ast.stmt) -> set[str]:
        """Top-level names that a statement needs when it runs, or when what it defines does."""
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            return set()
        node: ast.stmt = ast.parse(ast.unparse(statement)).body[0]
        if self.lazy_annotations:
            node = _Bare().visit(node)
        table = symtable.symtable(ast.unparse(ast.fix_missing_locations(node)), str(self.path), "exec")
        return set(_globals(table, top=True))

    def chains(self, statement: ast.stmt, name: str) -> tuple[set[str], bool]:
        """Attributes used of a name that is a module, dotted, and whether it is also used bare."""
        dotted: set[str] = set()
        inner: set[int] = set()
        bare = False
        for node in ast.walk(statement):
            if isinstance(node, ast.Attribute) and id(node) not in inner and _root(node) == name:
                parts = []
                below: ast.expr = node
                while isinstance(below, ast.Attribute):
                    parts.append(below.attr)
                    below = below.value
                    inner.add(id(below))
                if isinstance(below, ast.Name):
                    dotted.add(".".join(reversed(parts)))
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and node.id == name and id(node) not in inner:
                bare = bare or isinstance(node.ctx, ast.Load)
        return dotted, bare

    def source(self, index: int) -> str:
        """A top-level statement as it stands, with the comments right above it."""
        statement = self.tree.body[index]
        lines = self.text.splitlines(keepends=True)
        first = min([statement.lineno, *(each.lineno for each in getattr(statement, "decorator_list", []))])
        floor = (self.tree.body[index - 1].end_lineno or 0) if index else 0
        start = first - 1
        while start > floor and lines[start - 1].lstrip().startswith("#"):
            start -= 1
        text = "".join(lines[start : statement.end_lineno])
        return text if text.endswith("\n") else text + "\n"


class _Bare(ast.NodeTransformer):
    """Takes annotations away."""

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.annotation = ast.Constant(None)
        return self.generic_visit(node)


def _own(statement: ast.stmt) -> Iterator[ast.AST]:
    """The nodes of a statement that run with the module, without the insides of functions and classes."""
    queue: list[ast.AST] = [statement]
    while queue:
        node = queue.pop(0)
        yield node
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            continue
        if isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            continue
        queue.extend(ast.iter_child_nodes(node))


def _root(node: ast.expr) -> str | None:
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def _globals(table: symtable.SymbolTable, top: bool) -> Iterator[str]:
    for symbol in table.get_symbols():
        if (top and symbol.is_referenced()) or (not top and symbol.is_global()):
            yield symbol.get_name()
    for child in table.get_children():
        yield from _globals(child, top=False)


class Repository:
    """The Python files below a folder, parsed when they are asked for.

    Absolute imports are looked up from the folder, its `src`, and the folder of a script; what is not
    found there is not of the repository: the standard library, or installed.

    Raises:
        InputError: `root` is not a folder.
    """

    def __init__(self, root: Path) -> None:
        if not root.is_dir():
            raise InputError(f"{root} is not a folder with a repository to look for targets in")
        self.root = root
        self.problems: dict[str, str] = {}
        """Path → why it could not be read."""
        self._modules: dict[Path, Module | None] = {}

    def files(self, *patterns: str) -> list[Path]:
        """Files whose name fits, in order, without hidden folders, environments and staged copies."""
        found = []
        staged = {each.parent for each in self.root.rglob(STAGED)} - {self.root}
        for path in sorted({each for pattern in patterns for each in self.root.rglob(pattern)}):
            inside = path.relative_to(self.root).parts
            hidden = any(part in SKIPPED or part.startswith(".") for part in inside[:-1])
            if path.is_file() and not hidden and staged.isdisjoint(path.parents):
                found.append(path)
        return found

    def base(self, path: Path) -> Path:
        """The folder that the module in a file is imported from: the first above without `__init__.py`."""
        folder = path.parent
        while (folder / "__init__.py").is_file() and folder != self.root.parent:
            folder = folder.parent
        return folder

    def load(self, path: Path) -> Module | None:
        """The module in a file, None if it cannot be parsed."""
        if path not in self._modules:
            inside = path.relative_to(self.base(path)).with_suffix("").parts
            package = inside[-1] == "__init__"
            name = ".".join(inside[:-1] if package else inside)
            try:
                text = path.read_text(encoding="utf-8-sig")
                self._modules[path] = Module(name, path.relative_to(self.root), text, package)
            except (SyntaxError, ValueError) as error:
                self._modules[path] = None
                self.problems[path.relative_to(self.root).as_posix()] = f"not valid Python: {error}"
        return self._modules[path]

    def find(self, name: str, near: Module) -> Module | None:
        """The module that an absolute import in `near` means, None if it is none of the repository's."""
        if not name:
            return None
        here = self.root / near.path
        for base in dict.fromkeys((self.base(here), here.parent, self.root, self.root / "src")):
            place = base.joinpath(*name.split("."))
            for path in (place / "__init__.py", place.with_suffix(".py")):
                if path.is_file() and path.is_relative_to(self.root):
                    return self.load(path)
        return None


def installed(name: str) -> bool:
    """True if a top-level module is not of the standard library."""
    return name.split(".")[0] not in sys.stdlib_module_names


def strings(nodes: Sequence[ast.stmt]) -> Iterator[str]:
    """Every string constant in statements."""
    for statement in nodes:
        for node in ast.walk(statement):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 256:
                yield node.value


def keyword(node: ast.expr, names: Sequence[str]) -> Mapping[str, str]:
    """Those keyword arguments of a call that are plain strings."""
    if not isinstance(node, ast.Call):
        return {}
    return {
        each.arg: each.value.value
        for each in node.keywords
        if each.arg is not None
        and each.arg in names
        and isinstance(each.value, ast.Constant)
        and isinstance(each.value.value, str)
    }
