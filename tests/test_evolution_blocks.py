"""Texts are edited block by block: a prompt is freed of what harms it and takes over what helps, without a model."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.learn.evolution.editing.blocks import BLOCKS, blocks
from whet.learn.evolution.editing.program import Program
from whet.learn.evolution.programs import evolve_program
from whet.learn.evolution.search.settings import Settings

PROMPT = """You answer questions about mail.

- Answer at length.
- Give dates as YYYY-MM-DD.
- Always apologise first.

Begin.
"""
EVALUATOR = """
def evaluate(path):
    text = open(path).read()
    good = ["questions about mail", "YYYY-MM-DD"]
    bad = ["at length", "apologise"]
    return {"combined_score": (2 * sum(g in text for g in good) + sum(b not in text for b in bad)) / 6}
"""


@given(st.text(alphabet="ab \n-*.1", max_size=60))
def test_the_blocks_of_a_text_are_the_text(text: str) -> None:
    assert "".join(blocks(text)) == text


def test_a_block_is_a_paragraph_or_an_item_with_the_lines_below_it() -> None:
    assert blocks("One\nstill one.\n\n1. First\n   more\n2. Second\n\n\nEnd") == [
        "One\nstill one.\n\n",
        "1. First\n   more\n",
        "2. Second\n\n\n",
        "End",
    ]


@pytest.mark.parametrize("name", list(BLOCKS))
def test_every_edit_changes_whole_blocks_inside_the_marks_alone(name: str) -> None:
    marked = f"Head\n<!-- EVOLVE-BLOCK-START -->\n{PROMPT}<!-- EVOLVE-BLOCK-END -->\nTail"
    program = Program({"p.md": marked}, "p.md")
    donor = program.with_part("p.md", marked.replace("- Answer at length.", "- Quote the mail."))
    seen = set()
    for seed in range(30):
        child = BLOCKS[name](program, donor, random.Random(seed))
        assert child is not None
        assert child.text.startswith("Head\n<!-- EVOLVE-BLOCK-START -->\n")
        assert child.text.endswith("<!-- EVOLVE-BLOCK-END -->\nTail")
        known = {block.strip() for block in [*blocks(PROMPT), "- Quote the mail."]}
        inner = child.text.split("START -->\n")[1].split("<!-- EVOLVE-BLOCK-END")[0]
        assert {block.strip() for block in blocks(inner)} <= known
        seen.add(child.text)
    assert len(seen) > 1


def test_a_prompt_is_freed_of_what_harms_it_without_a_model(tmp_path: Path) -> None:
    (tmp_path / "prompt.md").write_text(PROMPT, encoding="utf-8")
    (tmp_path / "evaluator.py").write_text(EVALUATOR, encoding="utf-8")
    settings = Settings(iterations=40, offline=True, unsafe_local=True, target_score=1.0)
    report = asyncio.run(evolve_program(tmp_path / "prompt.md", tmp_path / "evaluator.py", settings))
    assert report.found.start.score == pytest.approx(2 / 3)
    assert report.found.best.score == 1.0
    assert "- Give dates as YYYY-MM-DD.\n" in report.best_path.read_text(encoding="utf-8")
    assert "-- Answer at length." in (report.output / "evolution.patch").read_text(encoding="utf-8")
