"""The page of references names each paper once, and only what the package has."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

from whet.learn.plugins import BUILT_IN

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "references.md").read_text(encoding="utf-8")


def test_each_paper_is_named_once_and_its_link_is_its_number() -> None:
    links = re.findall(r"\[(\d{4}\.\d{4,5})\]\(https://arxiv\.org/abs/(\d{4}\.\d{4,5})\)", PAGE)
    assert len(links) >= 30
    assert all(shown == linked for shown, linked in links)
    assert len({shown for shown, _ in links}) == len(links)
    assert PAGE.count("arxiv.org") == len(links)


def test_what_follows_a_paper_is_there() -> None:
    for module in re.findall(r"`(whet(?:\.[a-z_]+)+)`", PAGE):
        import_module(module)
    for file in re.findall(r"`(examples/[\w./]+)`", PAGE):
        assert (ROOT / file).is_file(), file
    reference = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    commands = {command.split(" --")[0] for command in re.findall(r"`(whet [a-z -]+)`", PAGE)}
    assert len(commands) >= 15
    for command in commands:
        assert f"### {command}\n" in reference or f"## {command}\n" in reference, command
    for reward in ("tests", "numeric", "sql", "tool_use"):
        assert f"`{reward}`" in PAGE
        assert reward in BUILT_IN["whet.rewards"]


def test_each_method_whose_source_is_a_number_in_the_code_is_on_the_page() -> None:
    in_code = {
        number
        for file in (ROOT / "src" / "whet").rglob("*.py")
        for number in re.findall(r"arXiv (\d{4}\.\d{4,5})", file.read_text(encoding="utf-8"))
    }
    assert in_code
    assert not [number for number in sorted(in_code) if number not in PAGE]
