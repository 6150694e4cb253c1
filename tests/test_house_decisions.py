"""Decision notes are numbered once, complete, and found from their index."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "decisions"
NOTES = sorted(path for path in FOLDER.glob("*.md") if not path.name.startswith("000-"))


def test_numbers_are_used_once() -> None:
    numbers = [path.name[:3] for path in FOLDER.glob("*.md")]
    assert all(number.isdigit() for number in numbers), numbers
    assert len(numbers) == len(set(numbers)), sorted(numbers)


@pytest.mark.parametrize("note", NOTES, ids=lambda path: path.stem)
def test_a_note_is_indexed_titled_and_short(note: Path) -> None:
    index = next(FOLDER.glob("000-*.md")).read_text(encoding="utf-8")
    assert f"]({note.name})" in index, f"link {note.name} from the index of decisions"
    text = note.read_text(encoding="utf-8")
    assert re.match(r"# \S", text), "a note starts with its title"
    assert re.search(r"\d", text.partition("\n")[2]), (
        "a decision without a number is an opinion: say what was measured"
    )
    assert len(text.split()) < 900, "half a page to a page; the rest belongs in a benchmark or a docstring"
