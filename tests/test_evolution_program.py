"""What of a program may change, and how a model's answer or a blind edit changes it."""

from __future__ import annotations

import ast
import random

import pytest
from evolution_toys import LINE

from whet.errors import InputError
from whet.learn.evolution.editing.edits import EDITS
from whet.learn.evolution.editing.program import Program, apply_diff, apply_rewrite, keep_outside, regions
from whet.learn.evolution.editing.source import PythonSource

BUSY = '''\
"""Ünïcode before the block."""
LIMIT = 5  # 0..9

# EVOLVE-BLOCK-START
SCALE = 2.0  # 0.1..9.0: how much
FLAGS = {"fast": True, "size": 3}


class Rule:
    limit = 4

    def apply(self, value):  # größe
        return value if value > self.limit else value - 1


def priority(item, space):
    # why: what remains
    left = space - item   # odd   spacing
    bonus = 0
    if left < 3 and item > 1:
        bonus = 1
    return -left * SCALE + bonus
# EVOLVE-BLOCK-END


def outside(x):
    return x + 1  # must not change
'''


def program(text: str = BUSY) -> Program:
    return Program({"rules.py": text}, "rules.py")


def answer(search: str, replace: str) -> str:
    return f"Because.\n<<<<<<< SEARCH\n{search}\n=======\n{replace}\n>>>>>>> REPLACE\nDone."


def test_blocks_are_the_lines_between_the_marks() -> None:
    (block,) = regions(LINE)
    assert LINE[block.start : block.stop].startswith("def f(x):")
    assert LINE[block.start : block.stop].endswith("+ 1\n")


def test_a_text_without_marks_is_one_region() -> None:
    assert regions("x = 1\n") == [(0, 6)]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("# EVOLVE-BLOCK-START\nx\n", "line 1"),
        ("x\n# EVOLVE-BLOCK-END\n", "line 2"),
        ("# EVOLVE-BLOCK-START\n# EVOLVE-BLOCK-START\n# EVOLVE-BLOCK-END\n", "line 2"),
    ],
)
def test_marks_that_do_not_pair_are_named_with_their_line(text: str, line: str) -> None:
    with pytest.raises(InputError, match=line):
        regions(text)


def test_marks_work_in_other_languages() -> None:
    text = "fn a() {}\n// EVOLVE-BLOCK-START\nfn b() {}\n// EVOLVE-BLOCK-END\n"
    (block,) = regions(text)
    assert text[block.start : block.stop] == "fn b() {}\n"


@pytest.mark.parametrize("name", ["../x.py", "/etc/passwd", "a//b", "a\\b"])
def test_a_part_cannot_leave_the_folder_of_its_program(name: str) -> None:
    with pytest.raises(InputError):
        Program({name: ""}, name)


def test_an_expression_too_deep_to_be_dumped_has_a_shape() -> None:
    deep = "x = " + " + ".join(["1"] * 1500) + "\n"
    assert program(deep).shape() != program(deep + "y = 2\n").shape()


def test_the_shape_ignores_comments_and_formatting_and_nothing_else() -> None:
    shape = program("def f(x):\n    return x + 1\n").shape()
    assert program('def f( x ):\n    """Says."""\n    return (x+1)  # one\n').shape() == shape
    assert program("def f(x):\n    return x + 2\n").shape() != shape


def test_search_replace_blocks_change_what_they_quote() -> None:
    child = apply_diff(program(), answer("    bonus = 0", "    bonus = 7"))
    assert "bonus = 7\n    if left" in child.text


def test_a_quotation_without_its_trailing_space_still_fits() -> None:
    child = apply_diff(program("a = 1   \nb = 2\n"), answer("a = 1\nb = 2", "a = 3\nb = 2"))
    assert child.text == "a = 3\nb = 2\n"


def test_a_quotation_without_its_margin_is_found_where_it_stands_once() -> None:
    text = "def f(x):\n    if x:\n        return 1\n    return 2\n"
    child = apply_diff(program(text), answer("if x:\n    return 1", "if not x:\n    return 1\nlog(x)"))
    assert child.text == "def f(x):\n    if not x:\n        return 1\n    log(x)\n    return 2\n"
    with pytest.raises(InputError, match="no part holds"):  # the lines of another nesting are others
        apply_diff(program(text), answer("if x:\nreturn 1", "pass"))
    with pytest.raises(InputError, match="no part holds"):  # nobody knows which is meant
        apply_diff(program("if a:\n    go()\nif b:\n    go()\n"), answer("go()", "stop()"))


def test_a_quotation_from_the_middle_of_a_line_does_not_fit() -> None:
    with pytest.raises(InputError, match="SEARCH text"):
        apply_diff(program("bonus = 10\n"), answer("onus = 10", "onus = 20"))


def test_edits_outside_the_blocks_are_undone() -> None:
    child = apply_diff(program(), answer("LIMIT = 5  # 0..9", "LIMIT = 500"))
    assert child.text == BUSY


def test_a_proposal_that_loses_the_marks_is_refused() -> None:
    with pytest.raises(InputError, match="no END"):
        keep_outside(BUSY, BUSY.replace("# EVOLVE-BLOCK-END\n", ""))


def test_a_rewrite_of_the_block_alone_is_put_into_its_place() -> None:
    child = apply_rewrite(program(LINE), "So:\n```python\ndef f(x):\n    return 4\n```\n")
    assert child.text == LINE.replace("    # what a person wrote\n    return x * 2 + 1", "    return 4")


@pytest.mark.parametrize("text", ["no code at all", "<<<<<<< SEARCH\nx\n>>>>>>> REPLACE"])
def test_an_answer_that_changes_nothing_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        apply_diff(program(), text)
    with pytest.raises(InputError):
        apply_rewrite(program(), text)


def test_a_diff_over_several_parts_finds_the_right_one() -> None:
    both = Program({"a.py": "x = 1\n", "prompt.txt": "Be brief.\n"}, "a.py")
    child = apply_diff(both, answer("Be brief.", "Be exact."))
    assert child.parts == {"a.py": "x = 1\n", "prompt.txt": "Be exact.\n"}


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_keeps_the_outside_parses_and_is_repeatable(name: str) -> None:
    donor = program(BUSY.replace("bonus = 1", "bonus = item * 4").replace("return -left", "return left / 2"))
    made = []
    for seed in range(60):
        child = EDITS[name](program(), donor, random.Random(seed))
        again = EDITS[name](program(), donor, random.Random(seed))
        assert (child and child.text) == (again and again.text)
        if child is None:
            continue
        made.append(child.text)
        ast.parse(child.text)
        assert keep_outside(BUSY, child.text) == child.text
        assert "# größe" in child.text
    assert len(set(made)) >= (1 if name == "unite" else 3), "the edit hardly ever does anything"
    assert any(text != BUSY for text in made)


def test_a_repeated_statement_stands_where_its_file_puts_it() -> None:
    tabs = Program({"a.py": "def f(x):\n\tif x: x += 1; x += 2\n\tx -= 3\n\treturn x\n"}, "a.py")
    made = {child.text for seed in range(60) if (child := EDITS["reorder"](tabs, None, random.Random(seed)))}
    for text in made:
        ast.parse(text)
    assert any("\n\tx -= 3\n\tx -= 3\n" in text for text in made)
    assert any("x += 1; x += 1; x += 2" in text for text in made)


def test_edits_leave_the_formatting_of_other_lines_alone() -> None:
    for seed in range(40):
        child = EDITS["number"](program(), None, random.Random(seed))
        assert child is not None
        before, after = BUSY.splitlines(), child.text.splitlines()
        assert len(before) == len(after)
        assert sum(one != two for one, two in zip(before, after, strict=True)) <= 6
        assert "space - item   # odd   spacing" in child.text


def test_knobs_stay_inside_the_domain_their_comment_states() -> None:
    for seed in range(60):
        child = EDITS["knobs"](program(), None, random.Random(seed))
        assert child is not None
        names = {
            node.targets[0].id: node.value
            for node in ast.parse(child.text).body
            if isinstance(node, ast.Assign)
        }  # type: ignore[attr-defined]
        assert 0.1 <= ast.literal_eval(names["SCALE"]) <= 9.0
        assert ast.literal_eval(names["LIMIT"]) == 5, "outside of the block"


def test_unite_takes_whole_definitions_from_the_donor() -> None:
    mine = program("def a():\n    return 1\n\n\ndef b():\n    return 1\n")
    other = program("def a():\n    return 2\n\n\ndef b():\n    return 2\n")
    seen = set()
    for seed in range(30):
        child = EDITS["unite"](mine, other, random.Random(seed))
        seen.add(child.text.count("return 2") if child else 0)
    assert seen == {0, 1, 2}


def test_what_is_not_python_is_left_to_models() -> None:
    text = Program({"prompt.txt": "Count to 10."}, "prompt.txt")
    assert all(edit(text, text, random.Random(0)) is None for edit in EDITS.values())


def test_source_counts_bytes_not_characters() -> None:
    source = PythonSource('x = "é" + "ü"; y = 1 + 2\n')
    site = next(
        site for site in source.sites() if isinstance(site.node, ast.Constant) and site.node.value == 2
    )
    assert source.segment(site.node) == "2"
