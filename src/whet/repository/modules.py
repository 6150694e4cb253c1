"""The modules of a repository: names that each binds at its top, and names that a statement refers to.

Nothing is imported or run.  A module is cut into its top-level statements; a statement is the
smallest piece that `learn/evolution/agents/extract.py` takes.  Names that a statement refers to come from Python's own
symbol table, which tells arguments, comprehensions and shadowed names from globals.
"""

from __future__ import annotations

import ast
import copy
import symtable
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ..errors import InputError
from .files import files
from .syntax import FunctionNode, first_line, root_name
from .text import BYTE_ORDER_MARK, SourceText, plain

LARGEST = 2_000_000
"""Bytes of a source file that is still read: a larger one was generated."""


_SCOPES = (
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ClassDef,
    ast.Lambda,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
)
"""Nodes with names of their own."""


@dataclass(frozen=True, slots=True)
class Binding:
    """Where a top-level name of a module comes from."""

    statement: int
    """Index of the statement that binds it."""
    module: str | None = None
    """For an import: the module named, absolute."""
    name: str | None = None
    """For `from module import name`: the name; None if the binding is a module itself."""

    @property
    def imported(self) -> str:
        """Dotted name of what is imported; "" where the binding is not an import."""
        return ".".join(filter(None, (self.module, self.name)))


class Module(SourceText):
    """One file, parsed.

    Args:
        name: dotted, as it is imported.
        path: relative to the repository.
        package: it is an `__init__.py`.

    Raises:
        SyntaxError: the text is not Python.
    """

    def __init__(self, name: str, path: Path, text: str, package: bool) -> None:
        super().__init__(text)
        self.name, self.path, self.package = name, path, package
        self._stars: list[tuple[int, str]] = []
        self._whet: dict[str, set[str]] = {}

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """Every node of the tree. The walk is most of what reading a parsed file costs, so it is made once."""
        return list(ast.walk(self.tree))

    @cached_property
    def bindings(self) -> dict[str, list[Binding]]:
        """Top-level name → its bindings, in the order of the text."""
        bindings: dict[str, list[Binding]] = {}
        for index, statement in enumerate(self.tree.body):
            for name, binding in self._bound(index, statement):
                bindings.setdefault(name, []).append(binding)
        return bindings

    @property
    def stars(self) -> list[tuple[int, str]]:
        """(statement, module) of every `from module import *`."""
        assert self.bindings is not None  # reading the bindings fills the list
        return self._stars

    @cached_property
    def lazy_annotations(self) -> bool:
        """`from __future__ import annotations`: annotations need not resolve."""
        return any(
            isinstance(statement, ast.ImportFrom)
            and statement.module == "__future__"
            and any(alias.name == "annotations" for alias in statement.names)
            for statement in self.tree.body
        )

    def names_of_whet(self, name: str) -> set[str]:
        """Names, dotted ones too, by which this module calls `whet.<name>`."""
        if name not in self._whet:
            names = self._whet[name] = set()
            for node in self.nodes:
                if isinstance(node, ast.Import):
                    for alias in node.names:
                        if alias.name == "whet" or (alias.name.startswith("whet.") and not alias.asname):
                            names.add(f"{alias.asname or 'whet'}.{name}")
                elif (
                    isinstance(node, ast.ImportFrom)
                    and node.module in ("whet", "whet.record.tracing")
                    and not node.level
                ):
                    names |= {alias.asname or alias.name for alias in node.names if alias.name == name}
        return self._whet[name]

    def absolute(self, node: ast.ImportFrom) -> str:
        """The module that a `from` import names."""
        if not node.level:
            return node.module or ""
        parts = self.name.split(".") if self.package else self.name.split(".")[:-1]
        # One dot is the package itself, so one level less is taken off than there are dots.
        base = parts[: len(parts) - node.level + 1]
        return ".".join([*base, *([node.module] if node.module else [])])

    def _bound(self, index: int, statement: ast.stmt) -> Iterator[tuple[str, Binding]]:
        for node in _executed(statement):
            if isinstance(node, FunctionNode | ast.ClassDef):
                yield node.name, Binding(index)
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    top = alias.name.split(".")[0]
                    yield alias.asname or top, Binding(index, alias.name if alias.asname else top)
            elif isinstance(node, ast.ImportFrom):
                module = self.absolute(node)
                for alias in node.names:
                    if alias.name == "*":
                        self._stars.append((index, module))
                    elif module != "__future__":
                        yield alias.asname or alias.name, Binding(index, module, alias.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id, Binding(index)

    def touching(self, name: str) -> list[int]:
        """Statements that change the value of `name` without binding it: `name[k] = v`, `name.add(f)`."""
        bound = (self.tree.body[binding.statement] for binding in self.bindings.get(name, ()))
        variable = not any(isinstance(statement, FunctionNode | ast.ClassDef) for statement in bound)

        def changes(statement: ast.stmt) -> bool:
            targets: list[ast.expr] = []
            if isinstance(statement, ast.AugAssign):
                return root_name(statement.target) == name
            if isinstance(statement, ast.Assign | ast.Delete):
                targets = statement.targets
            elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
                targets = [statement.value.func]
            elif isinstance(statement, FunctionNode | ast.ClassDef) and variable:
                # `@handlers.add` puts the function into `handlers`.
                marks = statement.decorator_list
                targets = [mark.func if isinstance(mark, ast.Call) else mark for mark in marks]
            kinds = (
                (ast.Attribute, ast.Subscript)
                if isinstance(statement, ast.Assign | ast.Delete)
                else ast.Attribute
            )
            return any(isinstance(target, kinds) and root_name(target) == name for target in targets)

        return [index for index, statement in enumerate(self.tree.body) if changes(statement)]

    def references(self, statement: ast.stmt) -> set[str]:
        """Top-level names that a statement needs when it runs, or when the function or class it defines does."""
        if isinstance(statement, ast.Import | ast.ImportFrom):
            return set()
        if self.lazy_annotations:
            statement = _unannotated(statement)
        # `symtable` takes text alone, and the span of a definition is without its decorators: hence `unparse`.
        return set(_globals(symtable.symtable(ast.unparse(statement), str(self.path), "exec"), top=True))

    def chains(self, statement: ast.stmt, name: str) -> tuple[set[str], bool]:
        """Attributes used of a name that is a module, dotted, and True if it is also used bare."""
        chains: set[str] = set()
        inner: set[int] = set()
        bare = False
        for node in ast.walk(statement):  # an attribute comes before the shorter one inside it
            if isinstance(node, ast.Attribute) and id(node) not in inner and root_name(node) == name:
                parts = []
                below: ast.expr = node
                while isinstance(below, ast.Attribute):
                    parts.append(below.attr)
                    below = below.value
                    inner.add(id(below))
                if isinstance(below, ast.Name):
                    chains.add(".".join(reversed(parts)))
            elif isinstance(node, ast.Name) and node.id == name and id(node) not in inner:
                bare = bare or isinstance(node.ctx, ast.Load)
        return chains, bare

    def source(self, index: int) -> str:
        """A top-level statement as it stands, with its decorators and the comments right above it."""
        statement = self.tree.body[index]
        start = first_line(statement)
        floor = (self.tree.body[index - 1].end_lineno or 0) + 1 if index else 1
        while start > floor and self.at(self.lines(start - 1, start - 1)).lstrip().startswith("#"):
            start -= 1
        text = self.at(self.lines(start, statement.end_lineno or start))
        return text if text.endswith("\n") else text + "\n"


def _unannotated(statement: ast.stmt) -> ast.stmt:
    # The tree is shared with every other reader of the module.
    bare = copy.deepcopy(statement)
    for node in ast.walk(bare):
        if isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, FunctionNode):
            node.returns = None
        elif isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(None)
    return bare


def _executed(statement: ast.stmt) -> Iterator[ast.AST]:
    """The nodes of a statement that run with the module, without the insides of functions and classes."""
    queue: list[ast.AST] = [statement]
    for node in queue:  # it grows while it is read
        yield node
        if not isinstance(node, _SCOPES):
            queue.extend(ast.iter_child_nodes(node))


def _globals(table: symtable.SymbolTable, top: bool) -> Iterator[str]:
    for symbol in table.get_symbols():
        if (top and symbol.is_referenced()) or (not top and symbol.is_global()):
            yield symbol.get_name()
    for child in table.get_children():
        yield from _globals(child, top=False)


class Repository:
    """The Python files below a folder, parsed on demand.

    Absolute imports are looked up from the folder, its `src`, and the folder of a script; a module that is not
    found there is not of the repository: it is of the standard library, or installed.

    Raises:
        InputError: `root` is not a folder.
    """

    def __init__(self, root: Path) -> None:
        if not root.is_dir():
            raise InputError(f"{root} is not a folder: give the root of the repository")
        self.root = root
        self.problems: dict[str, str] = {}
        """Path → why it could not be read."""
        self._modules: dict[Path, Module | None] = {}

    @cached_property
    def paths(self) -> list[Path]:
        """The repository's own files, those of a folder before those of its subfolders."""
        return list(files(self.root))

    def files(self, suffix: str) -> list[Path]:
        """The repository's own files with this ending, sorted by their paths."""
        return sorted(path for path in self.paths if path.suffix == suffix)

    def base(self, path: Path) -> Path:
        """The folder that the module in a file is imported from: the first above without `__init__.py`."""
        folder = path.parent
        # The root itself may be a package; what lies above it is not looked at.
        while (folder / "__init__.py").is_file() and folder != self.root.parent:
            folder = folder.parent
        return folder

    def relative(self, path: Path) -> str:
        """The path in the repository, with forward slashes."""
        return path.relative_to(self.root).as_posix()

    def text(self, name: str) -> str:
        """A file of the repository by its relative path, its lines ending in a line feed."""
        return plain(self.written(name)).removeprefix(BYTE_ORDER_MARK)

    def written(self, name: str) -> str:
        """A file of the repository, with the line ends and the byte order mark that it has."""
        return (self.root / name).read_bytes().decode()

    def read(self, path: Path) -> Module | None:
        """The module in a file, None with a reason in `problems` if it is too large, not UTF-8 or not Python."""
        relative = path.relative_to(self.base(path)).with_suffix("").parts
        package = relative[-1] == "__init__"
        name = ".".join(relative[:-1] if package else relative)
        try:
            if path.stat().st_size > LARGEST:
                self.problems[self.relative(path)] = f"larger than {LARGEST:,} bytes"
                return None
            return Module(name, path.relative_to(self.root), self.text(self.relative(path)), package)
        except (SyntaxError, ValueError, OSError, RecursionError) as error:
            # A file that is not UTF-8 is a ValueError.
            self.problems[self.relative(path)] = f"not valid Python: {error}"
            return None

    def load(self, path: Path) -> Module | None:
        """As `read`, once for each file."""
        if path not in self._modules:
            self._modules[path] = self.read(path)
        return self._modules[path]

    def find(self, name: str, near: Module) -> Module | None:
        """The module that an absolute import in `near` means, None if it is not of the repository."""
        if not name:
            return None
        here = self.root / near.path
        for base in dict.fromkeys((self.base(here), here.parent, self.root, self.root / "src")):
            stem = base.joinpath(*name.split("."))
            for path in (stem / "__init__.py", stem.with_suffix(".py")):  # a package goes before a module
                # Where the root is a package `base` is the folder above: its other files are no part.
                if path.is_file() and path.is_relative_to(self.root):
                    return self.load(path)
        return None
