"""Slices a marked target with all that it really needs into a folder that runs alone.

Starting at the target, names are followed to where they are bound: through relative imports,
re-exports, star imports, module attributes, class bodies, decorators, defaults, f-strings and calls of
constructors.  Of every module on the way only the needed top-level statements are kept, as they stand,
in the same package layout.  Nothing is imported, and nothing is guessed: a dependency that only shows when the
code runs is listed with the reason (`Slice.unsure`).
"""

from __future__ import annotations

import ast
import builtins
import copy
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ....errors import InputError, NotFoundError
from ....repository.files import STAGED
from ....repository.modules import Module, Repository
from ....repository.syntax import FunctionNode, last_name, string
from .marks import Mark, is_mark, marks

_DYNAMIC = {
    "eval": "runs text as code",
    "exec": "runs text as code",
    "globals": "reads names that are only known when it runs",
    "vars": "reads names that are only known when it runs",
    "__import__": "imports what is only known when it runs",
    "import_module": "imports what is only known when it runs",
}


@dataclass(frozen=True, slots=True)
class Slice:
    """A target with its dependencies."""

    mark: Mark
    entry: str
    """`module:qualname`, as it is imported from the staged folder."""
    files: dict[str, str | bytes]
    """Path in the staged folder → content."""
    dependencies: tuple[str, ...]
    """`module:name` of everything taken, the target first."""
    requirements: tuple[str, ...]
    """Installed packages that it imports."""
    unsure: tuple[str, ...]
    """Each dependency that could not be followed, and why."""


@dataclass(slots=True)
class _Taken:
    """The part of one module that is taken."""

    statements: set[int] = field(default_factory=set)
    names: set[str] = field(default_factory=set)
    """Names that are needed, to cut imports down to."""
    stars: dict[int, set[str]] = field(default_factory=dict)
    """Statement → names that its star import must bring."""
    whole: bool = False


def extract(root: Path) -> tuple[list[Slice], list[Mark], dict[str, str]]:
    """All targets of a repository.

    Returns:
        Slices of the Python definitions, every mark, and path → why a file could not be read.

    Raises:
        InputError: `root` is not a folder.
    """
    repository = Repository(root.resolve())
    targets = marks(repository)
    slices = [slice_of(repository, mark) for mark in targets if mark.qualname]
    return slices, targets, repository.problems


def slice_of(repository: Repository, mark: Mark) -> Slice:
    """The target with its dependencies.

    Raises:
        NotFoundError: the file does not define it.
    """
    module = repository.load(repository.root / mark.path)
    if module is None:
        raise InputError(f"{mark.path}: {repository.problems[mark.path]}")
    name = mark.qualname.split(".")[0]
    if name not in module.bindings:
        raise NotFoundError(f"{mark.path} defines no {mark.qualname!r} at its top level")
    slicer = _Slicer(repository)
    slicer.need(module, name)
    slicer.work()
    return slicer.result(mark, module)


class _Slicer:
    def __init__(self, repository: Repository) -> None:
        self.repository = repository
        self.taken: dict[Path, _Taken] = {}
        self.modules: dict[Path, Module] = {}
        self.order: list[str] = []
        self.requirements: set[str] = set()
        self.unsure: list[str] = []
        self.data: dict[str, bytes] = {}
        self._queue: list[tuple[Module, int]] = []

    def of(self, module: Module) -> _Taken:
        """The part of a module taken so far; taking anything takes its packages' `__init__` files, emptied."""
        if module.path not in self.taken:
            self.taken[module.path] = _Taken()
            self.modules[module.path] = module
        return self.taken[module.path]

    def need(self, module: Module, name: str) -> None:
        """Take the statements that bind a top-level name of a module, and those that change it later."""
        part = self.of(module)
        if name in part.names:
            return
        part.names.add(name)  # before anything is followed: modules may import each other in a circle
        self.order.append(f"{module.name}:{name}")
        bound = module.bindings.get(name)
        if bound:
            for binding in bound:
                self._take(module, binding.statement)
                if binding.module is not None:
                    self._follow(module, binding.module, binding.name)
            foreign = any(
                binding.module
                and not self.repository.find(binding.module, module)
                and not self.repository.find(binding.imported, module)
                for binding in bound
            )
            for index in module.touching(name):
                # `@whet.trace` of an installed package puts nothing into it that the target would see.
                if not (foreign and isinstance(module.tree.body[index], FunctionNode | ast.ClassDef)):
                    self._take(module, index)
            return
        submodule = self.repository.find(f"{module.name}.{name}", module) if module.package else None
        if submodule is not None:
            self.of(submodule)
            return
        for index, star in module.stars:
            source = self.repository.find(star, module)
            if source is None or self._offers(source, name, set()):
                part.stars.setdefault(index, set()).add(name)
                self._take(module, index)
                if source is not None:
                    self.need(source, name)
                else:
                    self._foreign(star)
                return
        if "__getattr__" in module.bindings:
            self.unsure.append(f"{module.path.as_posix()}: {name} is made by the module's __getattr__")
            self.need(module, "__getattr__")
        elif name not in ("__file__", "__name__", "__doc__"):
            self.unsure.append(f"{module.path.as_posix()}: nothing binds {name}")

    def _offers(self, module: Module, name: str, visited: set[str]) -> bool:
        """True if a star import of the module brings the name."""
        if module.name in visited:
            return False
        visited.add(module.name)
        if name in module.bindings:
            return True
        sources = (self.repository.find(star, module) for _, star in module.stars)
        return any(source is not None and self._offers(source, name, visited) for source in sources)

    def _foreign(self, module: str) -> None:
        package = module.split(".")[0]
        if package not in sys.stdlib_module_names:
            self.requirements.add(package)

    def _take(self, module: Module, index: int) -> None:
        part = self.of(module)
        if index not in part.statements:
            part.statements.add(index)
            self._queue.append((module, index))

    def _follow(self, near: Module, name: str, member: str | None) -> None:
        """Go to the module that an import names."""
        module = self.repository.find(name, near)
        if module is None:
            self._foreign(name)
            return
        if member is None:
            self.of(module)
            return
        inner = self.repository.find(f"{name}.{member}", near) if module.package else None
        if inner is not None and member not in module.bindings:
            self.of(module)
            self.of(inner)
        else:
            self.need(module, member)

    def work(self) -> None:
        """Follow references until there are no new ones."""
        while self._queue:
            module, index = self._queue.pop(0)
            statement = self._without_marks(module, module.tree.body[index])
            self._dynamic(module, statement)
            # Sorted: a set of texts has another order in each process, and so would the dependencies.
            for name in sorted(module.references(statement)):
                if name in module.bindings:
                    self.need(module, name)
                    self._attributes(module, statement, name)
                # Any name is taken to come from an installed package's star: no builtin may be asked of it.
                elif module.stars and not hasattr(builtins, name):
                    self.need(module, name)
            for node in ast.walk(statement):
                if isinstance(node, (ast.Import, ast.ImportFrom)) and node is not statement:
                    self._inner_import(module, statement, node)

    def _attributes(self, module: Module, statement: ast.stmt, name: str) -> None:
        """Take the attributes used of a name that is a module of ours."""
        for binding in module.bindings[name]:
            imported = self.repository.find(binding.imported, module)
            if imported is not None:
                if module.chains(statement, name)[1]:
                    why = f"{module.path.as_posix()} hands the module {binding.imported} on as a value"
                    self._whole(imported, why)
                self._used(module, statement, name, imported, binding.imported)

    def _chain(self, near: Module, module: Module, full: str, parts: list[str]) -> None:
        """`parts[0]` of a module is a submodule or a name; go down to the name."""
        inner = self.repository.find(f"{full}.{parts[0]}", near) if module.package else None
        if inner is not None and parts[0] not in module.bindings:
            self.of(module)
            self.of(inner)
            if len(parts) > 1:
                self._chain(near, inner, f"{full}.{parts[0]}", parts[1:])
            return
        self.need(module, parts[0])
        for binding in module.bindings.get(parts[0], ()):
            target = self.repository.find(binding.imported, module)
            if target is not None and len(parts) > 1:
                self.need(target, parts[1])

    def _whole(self, module: Module, why: str) -> None:
        part = self.of(module)
        if part.whole:
            return
        part.whole = True
        self.unsure.append(f"{why}: all of {module.name} is taken")
        for name in list(module.bindings):
            self.need(module, name)

    def _inner_import(self, module: Module, statement: ast.stmt, node: ast.Import | ast.ImportFrom) -> None:
        if isinstance(node, ast.ImportFrom):
            name = module.absolute(node)
            for alias in node.names:
                if alias.name == "*":
                    self.unsure.append(
                        f"{module.path.as_posix()}:{node.lineno}: a star import that is not at the top"
                    )
                else:
                    self._follow(module, name, alias.name)
                    inner = self.repository.find(f"{name}.{alias.name}", module)
                    if inner is not None:
                        self._used(
                            module, statement, alias.asname or alias.name, inner, f"{name}.{alias.name}"
                        )
            return
        for alias in node.names:
            imported = self.repository.find(alias.name, module)
            if imported is None:
                self._foreign(alias.name)
                continue
            self.of(imported)
            top = alias.name if alias.asname else alias.name.split(".")[0]
            start = self.repository.find(top, module)
            if start is not None:
                self._used(module, statement, alias.asname or top, start, top)

    def _used(self, module: Module, statement: ast.stmt, name: str, imported: Module, full: str) -> None:
        for chain in sorted(module.chains(statement, name)[0]):
            self._chain(module, imported, full, chain.split("."))

    def _dynamic(self, module: Module, statement: ast.stmt) -> None:
        """Note each call that depends on run time, and take the files that a statement names."""
        where = f"{module.path.as_posix()}:{statement.lineno}"
        # The file that `@whet.trace("runs.db")` names is written, not read.
        decorators = {
            id(node) for mark in getattr(statement, "decorator_list", ()) for node in ast.walk(mark)
        }
        for node in ast.walk(statement):
            text = string(node)
            if text is not None and len(text) < 256 and id(node) not in decorators:
                self._file(module, text)
            elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
                self._file(module, "/".join(_joined(node)))
            elif isinstance(node, ast.Call) and not isinstance(node.func, ast.Call):
                called = last_name(node.func)
                # `model.eval()` and `cursor.exec()` are methods of something else.
                if called in _DYNAMIC and not (
                    called in ("eval", "exec") and isinstance(node.func, ast.Attribute)
                ):
                    self._called(module, node, called, where)

    def _called(self, module: Module, call: ast.Call, name: str, where: str) -> None:
        imported = string(call.args[0]) if call.args and name.endswith("import_module") else None
        if not imported:
            self.unsure.append(f"{where}: {name}() {_DYNAMIC[name]}")
            return
        source = self.repository.find(imported, module)
        if source is not None:
            self._whole(source, f"{where} imports by name")

    def _file(self, module: Module, text: str) -> None:
        """Take a data file that a string names, from the module's folder or from the repository's."""
        if (
            not text.strip()
            or "\n" in text
            or text.startswith("/")
            or "\0" in text
            or ".." in text.split("/")
        ):
            return
        folder = (self.repository.root / module.path).parent
        for base in (folder, self.repository.root):
            path = base / text
            if (
                path.suffix not in ("", ".py")
                and path.is_file()
                and path.resolve().is_relative_to(self.repository.root)
            ):
                self.data[self._staged(base, path, module)] = path.read_bytes()

    def _staged(self, base: Path, path: Path, module: Module) -> str:
        """Where a file lies in the staged folder: beside its module, or where the repository has it."""
        if base == self.repository.root:
            return path.relative_to(base).as_posix()
        top = self.repository.base(self.repository.root / module.path)
        return path.relative_to(top).as_posix()

    def _without_marks(self, module: Module, statement: ast.stmt) -> ast.stmt:
        """The statement without `@whet.evolve`: the staged copy needs no whet."""
        if not any(_marks_in(module, statement)):
            return statement
        bare = copy.deepcopy(statement)
        for node in ast.walk(bare):
            if isinstance(node, FunctionNode | ast.ClassDef):
                node.decorator_list = [mark for mark in node.decorator_list if not is_mark(module, mark)]
        return bare

    # -- writing ------------------------------------------------------------------------------

    def result(self, mark: Mark, module: Module) -> Slice:
        """Everything that was taken, as files."""
        files: dict[str, str | bytes] = {}
        for path, part in self.taken.items():
            base = self.repository.base(self.repository.root / path)
            staged = (self.repository.root / path).relative_to(base)
            files[staged.as_posix()] = "".join(self._written(self.modules[path], part))
            # Without the last, the staged folder itself; an `__init__` that is taken keeps its text.
            for package in list(staged.parents)[:-1]:
                init = (package / "__init__.py").as_posix()
                if (base / init).is_file():
                    files.setdefault(init, "")
        files.update({name: content for name, content in self.data.items() if name not in files})
        uses_whet = any(isinstance(text, str) and "whet" in text for text in files.values())
        return Slice(
            mark,
            f"{module.name}:{mark.qualname}",
            dict(sorted(files.items())),
            tuple(self.order),
            tuple(sorted(self.requirements if uses_whet else self.requirements - {"whet"})),
            tuple(dict.fromkeys(self.unsure)),
        )

    def _written(self, module: Module, part: _Taken) -> Iterator[str]:
        for index, statement in enumerate(module.tree.body):
            if isinstance(statement, ast.ImportFrom) and statement.module == "__future__":
                # Always: it changes how the statements after it are compiled.
                yield module.source(index)
            elif index not in part.statements:
                continue
            elif isinstance(statement, (ast.Import, ast.ImportFrom)):
                yield from _cut(statement, part.names, part.stars.get(index, set()))
            else:
                yield self._unmarked(module, index)

    def _unmarked(self, module: Module, index: int) -> str:
        """The statement as it stands, with the lines of `@whet.evolve` cut out."""
        text = module.source(index)
        statement = module.tree.body[index]
        # Not `splitlines`, which also splits at form feeds; a module's text has line feeds alone.
        lines = [f"{line}\n" for line in text.split("\n")[:-1]]
        first = (statement.end_lineno or statement.lineno) - len(lines) + 1
        for mark in _marks_in(module, statement):
            for number in range(mark.lineno, (mark.end_lineno or mark.lineno) + 1):
                lines[number - first] = ""
        return "".join(lines)


def _marks_in(module: Module, statement: ast.stmt) -> Iterator[ast.expr]:
    """The decorators `@whet.evolve` of a definition and of those inside it."""
    for node in ast.walk(statement):
        if isinstance(node, FunctionNode | ast.ClassDef):
            yield from (mark for mark in node.decorator_list if is_mark(module, mark))


def _joined(node: ast.expr) -> Iterator[str]:
    """The strings that a path is joined from: `Path(__file__).parent / "data" / "x.json"`."""
    if isinstance(node, ast.BinOp):
        yield from _joined(node.left)
        yield from _joined(node.right)
    elif (text := string(node)) is not None:
        yield text


def _cut(statement: ast.Import | ast.ImportFrom, names: set[str], stars: set[str]) -> Iterator[str]:
    """An import with only the names that are needed; a star becomes the names it must bring."""
    aliases = []
    for alias in statement.names:
        if alias.name == "*":
            aliases += [ast.alias(name) for name in sorted(stars)]
        elif (
            alias.asname
            or (alias.name if isinstance(statement, ast.ImportFrom) else alias.name.split(".")[0])
        ) in names:
            aliases.append(alias)
    if aliases:
        if isinstance(statement, ast.ImportFrom):
            new: ast.stmt = ast.ImportFrom(statement.module, aliases, statement.level)
        else:
            new = ast.Import(aliases)
        yield ast.unparse(new) + "\n"


def stage(sliced: Slice, parent: Path) -> Path:
    """Write a slice into a folder of its own below `parent`, with a `target.json` that describes it.

    The folder has the target's name; where another target has that name too, it has the entry's.
    """
    folder = parent / sliced.mark.name.replace("/", "_")
    described_before = folder / "target.json"
    if described_before.is_file():
        before = json.loads(described_before.read_text(encoding="utf-8"))
        if before.get("entry") != sliced.entry:
            folder = parent / sliced.entry.replace(":", ".")
    for name, content in sliced.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    (folder / STAGED).touch()
    (folder / "target.json").write_text(json.dumps(described(sliced), indent=2), encoding="utf-8")
    return folder


def described(sliced: Slice) -> dict[str, object]:
    """A slice as JSON, without the files' content."""
    return {
        "name": sliced.mark.name,
        "kind": sliced.mark.kind,
        "metric": sliced.mark.metric,
        "path": sliced.mark.path,
        "line": sliced.mark.line,
        "how": sliced.mark.how,
        "entry": sliced.entry,
        "files": sorted(sliced.files),
        "dependencies": list(sliced.dependencies),
        "requirements": list(sliced.requirements),
        "not_followed": list(sliced.unsure),
    }
