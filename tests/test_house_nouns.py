"""docs/nouns.md and the code use the same words."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

CONTRACTS = (
    "types",
    "record/policy",
    "record/env",
    "learn/loop",
    "learn/improvement",
    "learn/experiment",
)
ELSEWHERE = {"Reward": "judge", "Store": "record/store"}
"""Nouns of the page that are defined in a package of their own."""


def public_classes(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.ClassDef) and node.name[0] != "_"}


def bold(page: Path) -> set[str]:
    return set(re.findall(r"\*\*(\w+)\*\*", page.read_text(encoding="utf-8")))


@pytest.mark.parametrize("module", CONTRACTS)
def test_every_public_class_of_the_contracts_is_a_noun(module: str, repository: Path) -> None:
    classes = public_classes(repository / "src/whet" / f"{module}.py")
    assert classes, "no class was found: the reader of syntax trees is broken"
    missing = classes - bold(repository / "docs/nouns.md")
    assert not missing, f"say in docs/nouns.md what these are: {sorted(missing)}"


def test_every_noun_of_the_page_exists(repository: Path) -> None:
    source = repository / "src/whet"
    known = set().union(*(public_classes(source / f"{module}.py") for module in CONTRACTS)) | set(ELSEWHERE)
    assert bold(repository / "docs/nouns.md") <= known


@pytest.mark.parametrize("noun", sorted(ELSEWHERE))
def test_a_noun_from_another_room_is_defined_there(noun: str, repository: Path) -> None:
    room = repository / "src/whet" / ELSEWHERE[noun]
    pattern = re.compile(rf"^(?:class {noun}\b|{noun}\b[^=\n]*=|type {noun}\b)", re.MULTILINE)
    assert any(pattern.search(path.read_text(encoding="utf-8")) for path in room.glob("*.py"))
