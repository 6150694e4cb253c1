"""What docs/integrations.md tells a user to type is what scripts/test-integrations runs."""

from __future__ import annotations

import re
from pathlib import Path

import house_markdown

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "integrations.md"
FOLDERS = sorted(path.parent for path in (ROOT / "integrations").glob("*/check.py"))
RUNS = ("as_documented(", "wire(")
"""What a check runs the commands of its section by."""


def sections() -> dict[str, tuple[str, ...]]:
    """Folders linked in each section that has a block of commands."""
    parts = PAGE.read_text(encoding="utf-8").split("\n## ")[1:]
    return {
        part.splitlines()[0]: tuple(re.findall(r"\]\(\.\./integrations/(\w+)\)", part))
        for part in parts
        if "```" in part
    }


def test_every_block_belongs_to_a_check_that_runs_it() -> None:
    found = sections()
    assert len(found) >= 8
    assert len(list(house_markdown.blocks(PAGE))) == len(found), "one block a section"
    assert {block.language for block in house_markdown.blocks(PAGE)} == {"bash"}
    for heading, folders in found.items():
        assert len(folders) == 1, f"{heading} links to {folders}; one folder's check runs its block"
        check = (ROOT / "integrations" / folders[0] / "check.py").read_text(encoding="utf-8")
        assert any(runs in check for runs in RUNS), f"{heading}: nothing runs what it says"


def test_what_is_installed_for_a_check_is_pinned() -> None:
    assert len(FOLDERS) >= 10
    for folder in FOLDERS:
        wanted = folder / "requirements.txt"
        if not wanted.exists():
            continue
        for line in wanted.read_text(encoding="utf-8").splitlines():
            assert line.startswith(("#", "--editable .")) or re.search(r"[=<]=?\d", line), f"{wanted}: {line}"
