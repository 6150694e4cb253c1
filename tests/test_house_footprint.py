"""The core installation stays small: under 30 packages and 60 MB, and its licence and extras are stated."""

from __future__ import annotations

import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def closure(requirements: list[str]) -> dict[str, int]:
    """Installed package → bytes on disk, for everything that these requirements bring."""
    found: dict[str, int] = {}
    waiting = [(Requirement(text), "") for text in requirements]
    seen: set[tuple[str, str]] = set()
    while waiting:
        requirement, extra = waiting.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        for asked in {"", *requirement.extras}:
            if (name, asked) in seen:
                continue
            seen.add((name, asked))
            try:
                package = distribution(name)
            except PackageNotFoundError:
                pytest.fail(f"{name} is required and not installed; run scripts/install")
            located = (Path(str(file.locate())) for file in package.files or ())
            found[name] = sum(path.stat().st_size for path in located if path.is_file())
            waiting += [(Requirement(text), asked) for text in package.requires or ()]
    return found


@pytest.fixture(scope="module")
def project(repository: Path) -> dict[str, object]:
    settings: dict[str, object] = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    return settings


def test_the_core_brings_few_packages_and_few_bytes(project: dict[str, object]) -> None:
    packages = closure(project["dependencies"])  # type: ignore[arg-type]
    assert 4 <= len(packages) + 1 < 30, sorted(packages)
    assert 1e6 < sum(packages.values()) < 60e6, {name: size for name, size in packages.items() if size > 1e6}


def test_the_core_needs_no_heavy_package(project: dict[str, object]) -> None:
    packages = closure(project["dependencies"])  # type: ignore[arg-type]
    assert not packages.keys() & {"torch", "numpy", "pydantic", "litellm", "transformers", "lightgbm"}


def test_training_is_measured_as_heavy(project: dict[str, object]) -> None:
    """The negative control of the measure: the training extra does break the core's bounds."""
    extras = project["optional-dependencies"]
    packages = closure(extras["train"])  # type: ignore[index]
    assert sum(packages.values()) > 60e6
    assert "torch" in packages
