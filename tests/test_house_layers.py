"""Imports run one way, torch stays in its rooms, and there is no import cycle.

All of it is read from the syntax trees, so an import inside a function or
under `if TYPE_CHECKING` counts like any other.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

LEVELS = {
    "__main__": 12,
    "cli": 11,
    "worlds": 10,
    "serve": 9,
    "serve.worker": 8,
    "autopilot": 7.5,
    "learn.optimizers": 7,
    "learn.training": 6.5,
    "learn.evolution": 6.5,
    "learn.evolution.repair": 6.4,
    "learn.evolution.prompts": 6.3,
    "learn.evolution.search": 6.2,
    "learn.evolution.agents": 6.1,
    "learn.evolution.editing": 6.05,
    "learn": 6,
    "learn.datasets": 5.5,
    "ship": 5,
    "prove": 5,
    "judge": 4,
    "record": 3,
    "record.store": 2.5,
    "repository": 2,
    "sandbox": 2,
    "models.fakes": 2,
    "models": 1,
    "stats": 1,
    "lazy": 1,
    "atomic": 1,
    "escapes": 0,
    "python_text": 0,
    "types": 0,
    "errors": 0,
}
"""Room → level.  A room imports rooms of lower levels only; the folders of the package are the steps of the loop."""

SPLIT_ROOMS = {"learn.optimizers"}
"""Packages whose every module is a room of its own: one method, one file."""

LIGHT_OPTIMIZERS = {f"learn.optimizers.{name}" for name in ("evolve", "head", "outcome_model", "route")}
"""Methods that change no weights: torch stays out of them."""
STANDARD_ONLY = {"errors": frozenset[str](), "types": frozenset({"msgspec"})}
"""Room → the third-party packages it may import."""


@dataclass(frozen=True)
class Import:
    """One imported module, as absolute dotted name, and where it stands."""

    module: str
    target: str
    line: int
    at_top: bool
    """True for a statement of the module body, not one inside a function, class or `if`."""


def modules(source: Path) -> dict[str, Path]:
    """Dotted name → file of every module of the package whose folder is given."""
    found = {}
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(module: str, path: Path, known: set[str]) -> Iterator[Import]:
    """Every module that `path` imports; `from package import name` is the submodule if there is one."""
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    tops = {id(node) for node in tree.body}
    for node in ast.walk(tree):
        top = id(node) in tops
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(module, alias.name, node.lineno, top)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base]) if base else ".".join(above)
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                yield Import(module, inner if inner in known else base, node.lineno, top)


def room(module: str) -> str:
    """`whet.learn.optimizers.grpo` → itself below `whet`; `whet.record.store.writer` → `record.store`; `whet` → ``."""
    parts = module.split(".")[1:]
    two = ".".join(parts[:2])
    if two in SPLIT_ROOMS:
        return ".".join(parts[:3])
    three = ".".join(parts[:3])
    return three if three in LEVELS else two if two in LEVELS else parts[0] if parts else ""


def level(name: str) -> float | None:
    """The level of a room, None where nobody has given it one."""
    return LEVELS.get(name, LEVELS.get(name.rpartition(".")[0]))


def violation(edge: Import) -> str | None:
    """Why an import inside the package is wrong, None if it is not."""
    importer, imported = room(edge.module), room(edge.target)
    if importer == imported or importer == "":
        return None
    where = f"{edge.module}:{edge.line} imports {edge.target}"
    if not imported:
        return f"{where}: import from the module that defines the name, not from the lazy whet/__init__"
    high, low = level(importer), level(imported)
    if high is None or low is None:
        unknown = importer if high is None else imported
        return f"{where}: room {unknown!r} has no level; add it to LEVELS in {Path(__file__).name}"
    if high > low or (importer.startswith(f"{imported}.") and imported in SPLIT_ROOMS):
        return None
    if high == low:
        return f"{where}: rooms on one level do not import each other; code shared by two moves down a level"
    return f"{where}: {importer} (level {high:g}) may not import {imported} (level {low:g})"


def cycle(edges: list[Import], known: set[str]) -> list[str] | None:
    """One import cycle among the modules, None if there is none; a package and its parts count apart."""
    graph: dict[str, set[str]] = {name: set() for name in known}
    for edge in edges:
        if edge.module != "whet" and edge.target in known and edge.target != edge.module:
            graph[edge.module].add(edge.target)
    done: set[str] = set()

    def visit(name: str, path: list[str]) -> list[str] | None:
        if name in path:
            return [*path[path.index(name) :], name]
        if name in done:
            return None
        for target in sorted(graph[name]):
            found = visit(target, [*path, name])
            if found:
                return found
        done.add(name)
        return None

    return next((found for name in sorted(graph) if (found := visit(name, []))), None)


@pytest.fixture(scope="module")
def files(repository: Path) -> dict[str, Path]:
    return modules(repository / "src" / "whet")


@pytest.fixture(scope="module")
def edges(files: dict[str, Path]) -> list[Import]:
    return [edge for name, path in files.items() for edge in imports(name, path, set(files))]


def test_imports_run_one_way(edges: list[Import]) -> None:
    inside = [edge for edge in edges if edge.target.split(".")[0] == "whet"]
    assert inside, "no import was found at all: the reader of syntax trees is broken"
    wrong = [message for edge in inside if (message := violation(edge))]
    assert not wrong, "\n".join(wrong)


def test_every_room_has_a_level(files: dict[str, Path]) -> None:
    unknown = {name for name in map(room, files) if name and level(name) is None}
    assert not unknown, f"add to LEVELS: {sorted(unknown)}"


def test_no_import_cycle(edges: list[Import], files: dict[str, Path]) -> None:
    found = cycle(edges, set(files))
    assert found is None, " → ".join(found or [])


def test_torch_is_imported_at_the_top_of_its_rooms_only(edges: list[Import]) -> None:
    wrong = []
    for edge in edges:
        if edge.target.split(".")[0] != "torch":
            continue
        importer = room(edge.module)
        weights = importer.startswith("learn.optimizers.") and importer not in LIGHT_OPTIMIZERS
        if importer != "learn.training" and not weights:
            wrong.append(
                f"{edge.module}:{edge.line}: torch belongs under learn/training and the weight optimizers"
            )
        elif not edge.at_top and not _guarded(edge):
            wrong.append(f"{edge.module}:{edge.line}: import torch at the top of the file")
    assert not wrong, "\n".join(wrong)


def _guarded(edge: Import) -> bool:
    """True inside the module-level `try:` that turns a missing torch into MissingExtra."""
    tree = ast.parse(modules_path(edge.module).read_text(encoding="utf-8"))
    return any(
        isinstance(node, ast.Try) and node.lineno < edge.line <= (node.body[-1].end_lineno or 0)
        for node in tree.body
    )


def modules_path(module: str) -> Path:
    base = Path(__file__).resolve().parent.parent / "src" / Path(*module.split("."))
    return base / "__init__.py" if base.is_dir() else base.with_suffix(".py")


def test_the_bottom_rooms_need_almost_nothing(edges: list[Import]) -> None:
    import sys

    for name, allowed in STANDARD_ONLY.items():
        roots = {edge.target.split(".")[0] for edge in edges if edge.module == f"whet.{name}"}
        foreign = roots - set(sys.stdlib_module_names) - allowed
        assert not foreign, f"whet.{name} imports {sorted(foreign)}"


PLANTED = {
    "upward": (
        "record/store/schema.py",
        "def f():\n    from ...learn.loop import Context\n",
        "may not import",
    ),
    "sideways": ("learn/optimizers/a.py", "from . import b\n", "one level"),
    "type checking": (
        "record/env.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..prove import gate\n",
        "may not import",
    ),
    "unknown room": ("misc.py", "from . import types\n", "LEVELS"),
    "through the surface": ("learn/loop.py", "import whet\n", "lazy"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_violation_is_found(name: str, tmp_path: Path) -> None:
    place, text, expected = PLANTED[name]
    source = tmp_path / "whet"
    for file in (
        "__init__.py",
        "types.py",
        "learn/__init__.py",
        "learn/loop.py",
        "learn/optimizers/__init__.py",
        "learn/optimizers/b.py",
        "prove/__init__.py",
        "prove/gate.py",
    ):
        (source / file).parent.mkdir(parents=True, exist_ok=True)
        (source / file).write_text("")
    (source / place).parent.mkdir(parents=True, exist_ok=True)
    (source / place).write_text(text)
    known = modules(source)
    found = [edge for module, path in known.items() for edge in imports(module, path, set(known))]
    wrong = [message for edge in found if edge.target.startswith("whet") and (message := violation(edge))]
    assert len(wrong) == 1
    assert expected in wrong[0]


def test_a_planted_cycle_is_found() -> None:
    ring = [
        Import("whet.learn.loop", "whet.prove.gate", 1, True),
        Import("whet.prove.gate", "whet.learn.datasets", 1, True),
        Import("whet.learn.datasets", "whet.learn.loop", 9, False),
    ]
    assert cycle(ring, {"whet", "whet.learn.loop", "whet.prove.gate", "whet.learn.datasets"}) is not None
    assert cycle(ring[:2], {"whet", "whet.learn.loop", "whet.prove.gate", "whet.learn.datasets"}) is None
