"""The import statements that a program begins with, as far as they are of other packages.

They run before the first line of the program's own, in this order, whoever imports it: so they may as well have run
in the process that a candidate is forked from.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from importlib.machinery import all_suffixes
from pathlib import Path

from ....python_text import module_of


def leading_imports(module: str, folders: Sequence[Path]) -> str:
    """Import statements of other packages that run before anything else when a module is imported.

    Of the program's own modules those are followed that come first; the statements end with the first that is no
    import, in whichever of them that stands.

    >>> leading_imports("nowhere", [])
    ''

    Args:
        module: dotted name.
        folders: in which the program's own modules lie, as they stand on `sys.path`.
    """
    walk = _Walk(folders)
    walk.module(module)
    return "\n".join(map(ast.unparse, walk.statements))


class _Walk:
    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = folders
        self._begun: set[str] = set()
        self.statements: list[ast.stmt] = []

    def module(self, dotted: str) -> bool:
        """Follow the import of a module and the packages around it; False where something else than imports runs."""
        parts = dotted.split(".")
        return all(self._file(".".join(parts[: count + 1])) for count in range(len(parts)))

    def _file(self, dotted: str) -> bool:
        if dotted in self._begun:  # imported already, or about to be
            return True
        self._begun.add(dotted)
        path = self._path(dotted)
        if path is None:
            return False
        try:
            tree = module_of(path.read_bytes())
        except (OSError, SyntaxError, ValueError):
            return False
        package = dotted if path.name == "__init__.py" else dotted.rpartition(".")[0]
        return all(self._statement(statement, package) for statement in tree.body)

    def _statement(self, statement: ast.stmt, package: str) -> bool:
        if isinstance(statement, ast.Import):
            return all(self._import(alias) for alias in statement.names)
        if isinstance(statement, ast.ImportFrom):
            return self._import_from(statement, package)
        # A docstring, or `...`.
        return isinstance(statement, ast.Pass) or (
            isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        )

    def _import(self, alias: ast.alias) -> bool:
        if self._own(alias.name):
            return self.module(alias.name)
        self.statements.append(ast.Import([alias]))
        return True

    def _import_from(self, statement: ast.ImportFrom, package: str) -> bool:
        if statement.module == "__future__":
            return True
        base = statement.module or ""
        if statement.level:
            above = package.split(".")[: len(package.split(".")) - statement.level + 1]
            base = ".".join([*above, *filter(None, [base])])
        elif not self._own(base):
            self.statements.append(statement)
            return True
        # A name may be a module of the package; what else it is was made by what ran.
        inner = [f"{base}.{alias.name}" for alias in statement.names]
        return (
            bool(base) and self.module(base) and all(self._file(each) for each in inner if self._path(each))
        )

    def _own(self, dotted: str) -> bool:
        name = dotted.partition(".")[0]
        files = [name, *(name + suffix for suffix in all_suffixes())]
        return any((folder / each).exists() for folder in self._folders for each in files)

    def _path(self, dotted: str) -> Path | None:
        place = dotted.replace(".", "/")
        candidates = (
            folder / name for folder in self._folders for name in (f"{place}/__init__.py", f"{place}.py")
        )
        return next((path for path in candidates if path.is_file()), None)
