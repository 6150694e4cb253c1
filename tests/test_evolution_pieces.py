"""Targets are cut out of their files and put back with everything else as it was."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.errors import InputError
from whet.learn.evolution.agents.marks import Mark, marks
from whet.learn.evolution.agents.pieces import Piece, cut, patch, program_of, put, stage
from whet.repository.modules import Repository

FIXTURE = Path(__file__).parent / "fixtures" / "targets" / "repository"
MARKS = {mark.name: mark for mark in marks(Repository(FIXTURE))}


def text_of(path: str) -> str:
    return (FIXTURE / path).read_text(encoding="utf-8")


def piece(name: str) -> Piece:
    return cut(MARKS[name], text_of(MARKS[name].path))


@pytest.mark.parametrize("name", MARKS)
def test_a_piece_put_back_unchanged_leaves_its_file_as_it_was(name: str) -> None:
    mark = MARKS[name]
    assert put(mark, text_of(mark.path), piece(name).text) == text_of(mark.path)


def test_a_changed_method_keeps_its_decorators_comments_and_neighbours() -> None:
    mark = MARKS["letter"]
    changed = piece("letter").text.replace("self.level", "self.level + 1")
    lines = put(mark, text_of(mark.path), changed).splitlines()
    before = text_of(mark.path).splitlines()
    different = [new for new, old in zip(lines, before, strict=True) if new != old]
    assert len(different) == 1
    assert "self.level + 1" in different[0]


def test_an_import_that_a_piece_brings_goes_above_its_decorators() -> None:
    mark = MARKS["choose"]
    text = "import re\n\n\n" + piece("choose").text.replace('"other"', 're.sub("x", "", "other")')
    whole = put(mark, text_of(mark.path), text)
    ast.parse(whole)
    assert whole.index("import re\n") < whole.index('@improve(kind="router"')


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("def choose(text, more):\n    return text\n", "parameters"),
        ("async def choose(text):\n    return text\n", "became"),
        ("def other(text):\n    return text\n", "choose"),
        ("def choose(text):\n    return (\n", "not valid Python"),
        ("@cached\ndef choose(text):\n    return text\n", "decorators"),
    ],
)
def test_a_piece_that_is_no_longer_what_callers_expect_is_refused(text: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        put(MARKS["choose"], text_of(MARKS["choose"].path), text)


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\x00")))
def test_any_text_survives_being_written_into_the_source(value: str) -> None:
    for name, read in (("rules", "RULES"), ("system_prompt", None), ("weather", None)):
        mark = MARKS[name]
        whole = put(mark, text_of(mark.path), value)
        constants = [node.value for node in ast.walk(ast.parse(whole)) if isinstance(node, ast.Constant)]
        assert value in constants, (name, read)


def test_a_prompt_of_several_lines_keeps_its_triple_quotes() -> None:
    mark = MARKS["rules"]
    whole = put(mark, text_of(mark.path), '1. Be kind.\n2. Say "please".\n')
    assert 'RULES = """1. Be kind.\n2. Say "please".\n"""' in whole


def test_a_resource_becomes_its_text_where_it_is_staged() -> None:
    mark = MARKS["system_prompt"]
    staged = put(mark, text_of(mark.path), "Be brief.", staged=True)
    assert 'PROMPT = "Be brief."' in staged
    assert 'whet.resource("system_prompt", default="Be brief.")' in put(mark, text_of(mark.path), "Be brief.")


def test_the_patch_of_many_pieces_is_what_git_applies(tmp_path: Path) -> None:
    pieces = [piece(name) for name in ("letter", "rules", "limits", "weather", "search", "refunds")]
    program = program_of(pieces)
    for each in pieces:
        text = each.text.replace("self.level", "3").replace('"steps": 4', '"steps": 5')
        program = program.with_part(each.part, text if text != each.text else f"{each.text} More.")
    for path in {each.mark.path for each in pieces}:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text_of(path), encoding="utf-8")
    said = patch(pieces, program, text_of)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True, timeout=300)
    subprocess.run(["git", "apply"], input=said, text=True, cwd=tmp_path, check=True, timeout=300)
    for each in pieces:
        assert cut_again(tmp_path, each.mark).text == program.parts[each.part]


def cut_again(folder: Path, mark: Mark) -> Piece:
    found = {each.name: each for each in marks(Repository(folder))}[mark.name]
    return cut(found, (folder / mark.path).read_text(encoding="utf-8"))


def test_a_piece_that_is_not_staged_leaves_the_files_alone() -> None:
    one = piece("rules")
    changed = program_of([one]).with_part(one.part, "other")
    assert stage([one], changed, {"a.py": "x = 1\n"}, {one.mark.path: "shop/agents/prompts.py"}) == {
        "a.py": "x = 1\n"
    }


def test_a_class_is_no_piece() -> None:
    mark = Mark("clerk", "function", "shop/agents/prompts.py", 1, "Clerk")
    with pytest.raises(InputError, match="mark the methods"):
        cut(mark, text_of(mark.path))
