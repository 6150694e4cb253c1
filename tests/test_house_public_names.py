"""The public surface is curated: these names, these signatures, and nothing that hides them."""

from __future__ import annotations

import ast
import difflib
import importlib.util
from pathlib import Path

import house_reference
import pytest

import whet


def test_names_and_signatures_are_the_recorded_ones() -> None:
    recorded = house_reference.PUBLIC_NAMES.read_text(encoding="utf-8")
    live = house_reference.public_names()
    change = "\n".join(
        difflib.unified_diff(recorded.splitlines(), live.splitlines(), "recorded", "live", lineterm="", n=0)
    )
    assert not change, f"the public surface changed; if it should, run scripts/reference\n{change}"


@pytest.mark.parametrize("name", whet.__all__)
def test_a_public_name_can_be_had_and_is_documented(name: str) -> None:
    value = getattr(whet, name)
    assert (value.__doc__ or "").strip(), f"whet.{name} has no docstring"


def test_the_lists_of_the_surface_agree(repository: Path) -> None:
    tree = ast.parse((repository / "src/whet/__init__.py").read_text(encoding="utf-8"))
    typed = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.level
        for alias in node.names
    }
    assert typed == set(whet.__all__) == set(whet._HOME)
    assert len(whet.__all__) == len(set(whet.__all__)) <= 52
    assert set(whet.__all__) <= set(dir(whet))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="tracer"):
        whet.tracer  # noqa: B018  # type: ignore[attr-defined]


def test_no_module_hides_a_public_name(repository: Path) -> None:
    """A submodule called like a public name would replace it in the package once it is imported."""
    children = {
        path.stem for path in (repository / "src/whet").iterdir() if path.is_dir() or path.suffix == ".py"
    }
    assert "types" in children
    assert not children & set(whet.__all__)
    for name in whet.__all__:
        assert importlib.util.find_spec(f"whet.{name}") is None


def test_a_public_class_name_stands_once(repository: Path) -> None:
    """Two classes of one name are one noun with two meanings, or one thing written twice."""
    homes: dict[str, list[str]] = {}
    for path in sorted((repository / "src/whet").rglob("*.py")):
        for node in ast.parse(path.read_bytes()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(str(path.relative_to(repository)))
    assert "Trajectory" in homes
    assert not {name: files for name, files in homes.items() if len(files) > 1}
