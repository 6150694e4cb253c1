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
    "cli": 12,
    "__main__": 13,
    "demo": 11,
    "server": 10,
    "worker": 9.5,
    "deploy": 9,
    "optimizers": 8,
    "envs": 8,
    "training": 7,
    "evolution": 7,
    "pipeline": 6.2,
    "plugins": 6.1,
    "sources": 6.4,
    "improving": 6.45,
    "experiment": 6.5,
    "composition": 6.3,
    "improvement": 1.5,
    "episodes": 4.5,
    "checkpoint": 1,
    "releasing": 2,
    "loop": 6,
    "evidence": 6.1,
    "agent_env": 5,
    "loop_checks": 6,
    "gate": 5,
    "guardrails": 4.5,
    "verdict": 5,
    "data": 5,
    "replay": 5,
    "search": 4.5,
    "env": 4,
    "reward": 3,
    "policy": 3,
    "boosting": 2,
    "heads": 2,
    "tracing": 2,
    "wiring": 2,
    "repository": 0.5,
    "sandbox": 1,
    "store": 1,
    "models": 1,
    "fakes": 1,
    "budget": 0.5,
    "stats": 0.5,
    "faults": 0.5,
    "types": 0,
    "escapes": 0,
    "errors": 0,
}
"""Room → level. A room imports rooms of lower levels only."""

NEIGHBOURS = {("loop_checks", "loop"), ("verdict", "gate"), ("fakes", "models"), ("agent_env", "replay")}
"""The pairs on one level where the first may import the second."""

SPLIT_ROOMS = {"optimizers", "envs"}
"""Packages whose every module or subpackage is a room of its own: one method, one world."""

LIGHT_OPTIMIZERS = {"optimizers.evolve", "optimizers.head", "optimizers.outcome_model", "optimizers.route"}
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
    for node in ast.walk(tree):
        top = node in tree.body
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
    """`whet.optimizers.evolve` → `optimizers.evolve`; `whet.store.schema` → `store`; `whet` → ``."""
    parts = module.split(".")[1:]
    if not parts:
        return ""
    return ".".join(parts[:2]) if parts[0] in SPLIT_ROOMS else parts[0]


def violation(edge: Import) -> str | None:
    """What is wrong with one import inside the package, None if nothing is."""
    importer, imported = room(edge.module), room(edge.target)
    if importer == imported or importer == "":
        return None
    where = f"{edge.module}:{edge.line} imports {edge.target}"
    for name in (importer, imported):
        if name and name.split(".")[0] not in LEVELS:
            return f"{where}: room {name!r} has no level; add it to LEVELS in {Path(__file__).name}"
    if not imported:
        return f"{where}: import from the module that defines the name, not from the lazy whet/__init__"
    high, low = LEVELS[importer.split(".")[0]], LEVELS[imported.split(".")[0]]
    if high > low or (importer, imported) in NEIGHBOURS:
        return None
    if imported == importer.split(".")[0]:
        return None  # a module of a split package and the package's own __init__
    if high == low:
        return f"{where}: rooms on one level do not import each other; what two share moves down a level"
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
    rooms = {room(name).split(".")[0] for name in files} - {""}
    assert rooms <= set(LEVELS), f"add to LEVELS: {sorted(rooms - set(LEVELS))}"


def test_no_import_cycle(edges: list[Import], files: dict[str, Path]) -> None:
    found = cycle(edges, set(files))
    assert found is None, " → ".join(found or [])


def test_torch_is_imported_at_the_top_of_its_rooms_only(edges: list[Import]) -> None:
    wrong = []
    for edge in edges:
        if edge.target.split(".")[0] != "torch":
            continue
        importer = room(edge.module)
        weights = importer.startswith("optimizers.") and importer not in LIGHT_OPTIMIZERS
        if importer != "training" and not weights:
            wrong.append(
                f"{edge.module}:{edge.line}: torch belongs under training/ and the weight optimizers"
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
    "upward": ("store/schema.py", "def f():\n    from ..loop import Experiment\n", "may not import"),
    "sideways": ("optimizers/a.py", "from . import b\n", "one level"),
    "type checking": (
        "env.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from . import gate\n",
        "may not import",
    ),
    "unknown room": ("misc.py", "from . import types\n", "LEVELS"),
    "through the surface": ("loop.py", "import whet\n", "lazy"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_violation_is_found(name: str, tmp_path: Path) -> None:
    place, text, expected = PLANTED[name]
    source = tmp_path / "whet"
    for file in (
        "__init__.py",
        "loop.py",
        "gate.py",
        "types.py",
        "optimizers/b.py",
        "optimizers/__init__.py",
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
        Import("whet.loop", "whet.gate", 1, True),
        Import("whet.gate", "whet.data", 1, True),
        Import("whet.data", "whet.loop", 9, False),
    ]
    assert cycle(ring, {"whet", "whet.loop", "whet.gate", "whet.data"}) is not None
    assert cycle(ring[:2], {"whet", "whet.loop", "whet.gate", "whet.data"}) is None
