"""Literal constants are found, hinted, patched and shown as diffs that git accepts."""

from __future__ import annotations

import ast
import random
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whet.errors import InputError, NotFoundError
from whet.learn.evolution.editing import operators
from whet.learn.evolution.editing.targets import Domain, find, names, patch
from whet.repository.text import diff

SOURCE = '''"""An agent."""
import os

LIMIT = 10  # 1..50
RULE = {
    "match": "all",  # all | any: how words combine
    "max_missing": 1,  # 0..4
    'weights': {"subject": 2.0, "body": 1},  # 0.1..3.5
    "fields": ["from", "subject"],  # any of from, to, subject, body
    "order": ("date", "rank"),  # any order
    "note": "keep  me",   # fixed
    "nested": [
        {"on": True, "α": -3},
    ],
}

SOURCE: str = "a" 'b'
computed = os.sep + "x"


def decide(read, rule=RULE):
    return len(read)  # 0..4
'''


def test_the_value_and_its_hints_are_read_without_running_the_program() -> None:
    found = find("raise SystemExit('was run')\n" + SOURCE, "RULE")
    assert found.value["nested"] == [{"on": True, "α": -3}]
    assert found.value["order"] == ["date", "rank"]
    assert found.domains[("match",)] == Domain("choice", choices=("all", "any"))
    assert found.domains[("max_missing",)] == Domain("int", 0, 4)
    assert found.domains[("fields",)] == Domain("subset", choices=("from", "to", "subject", "body"))
    assert found.domains[("order",)] == Domain("order")
    assert found.domains[("note",)] == Domain("fixed")
    # Two values end on that line: the comment belongs to the last, and 0.1 makes it a float.
    assert found.domains[("weights", "body")] == Domain("float", 0.1, 3.5)
    assert ("weights", "subject") not in found.domains
    assert find(SOURCE, "LIMIT").domains == {(): Domain("int", 1, 50)}


def test_only_literal_constants_of_the_module_are_offered() -> None:
    assert names(SOURCE) == ["LIMIT", "RULE", "SOURCE"]
    with pytest.raises(NotFoundError, match="assigned at module level: LIMIT, RULE, SOURCE, computed"):
        find(SOURCE, "rule")
    with pytest.raises(InputError, match="not a JSON literal"):
        find(SOURCE, "computed")
    with pytest.raises(InputError, match="lines 1, 2"):
        find("A = 1\nA = 2\n", "A")
    with pytest.raises(InputError, match="not valid Python"):
        find("A = (", "A")
    with pytest.raises(InputError, match="is a set"):
        find("A = {1, 2}", "A")
    with pytest.raises(InputError, match="outside its own hint"):
        find("A = 9  # 0..4\n", "A")


def test_a_patch_touches_nothing_but_the_literals_that_changed() -> None:
    value = find(SOURCE, "RULE").value
    value["max_missing"] = 3
    value["match"] = 'a"n\ny'
    value["order"] = ["rank", "date"]
    value["nested"][0]["α"] = 12
    new = patch(SOURCE, "RULE", value)
    expected = (
        SOURCE.replace('"max_missing": 1', '"max_missing": 3')
        .replace('"match": "all"', """"match": 'a"n\\ny'""")
        .replace('("date", "rank")', '("rank", "date")')
        .replace('"α": -3', '"α": 12')
    )
    assert new == expected
    assert patch(new, "RULE", value) == new


def test_lists_and_dicts_of_another_shape_are_written_anew() -> None:
    value = find(SOURCE, "RULE").value
    value["fields"] = ["to"]
    value["weights"] = {"subject": 2.0}
    new = patch(SOURCE, "RULE", value)
    assert '"fields": ["to"],  # any of' in new
    assert "'weights': {\"subject\": 2.0},  # 0.1..3.5" in new
    assert patch("T = (1, 2)\n", "T", [5]) == "T = (5,)\n"
    assert patch(SOURCE, "SOURCE", "c") == SOURCE.replace("\"a\" 'b'", '"c"')


def test_true_and_1_and_1_0_are_different_values() -> None:
    assert patch("A = True\n", "A", 1) == "A = 1\n"
    assert patch("A = [1]\n", "A", [1.0]) == "A = [1.0]\n"


def test_line_endings_and_the_byte_order_mark_survive() -> None:
    source = "\ufeff# é\r\nA = {\r\n  'x': 'é', 'y': 1}\r\n"
    assert patch(source, "A", {"x": "ü", "y": 2}) == "\ufeff# é\r\nA = {\r\n  'x': 'ü', 'y': 2}\r\n"


def test_what_is_no_json_is_refused_before_it_is_written() -> None:
    with pytest.raises(InputError, match="set"):
        patch("A = 1\n", "A", {1, 2})
    with pytest.raises(InputError, match="no JSON literal"):
        patch("A = 1\n", "A", float("nan"))


LEAF = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
)
VALUE = st.recursive(
    LEAF, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
)


@settings(max_examples=60)
@given(old=VALUE, new=VALUE)
def test_any_json_value_can_be_patched_to_any_other(old: object, new: object) -> None:
    source = f"# before\nX = {old!r}  # after\nY = 1\n"
    patched = patch(source, "X", new)
    assert find(patched, "X").value == new
    assert patched.startswith("# before\n")
    assert patched.endswith("Y = 1\n")


@pytest.mark.parametrize(
    "path", ["agent.py", "deep/er/agent.py", "with space/my agent.py", "ünïcode/ägent.py", 'quo"te.py']
)
@pytest.mark.parametrize("ending", ["\n", ""])
def test_git_applies_the_diff(tmp_path: Path, path: str, ending: str) -> None:
    old = SOURCE + "\x0cLAST = 1  # 0..9" + ending
    new = patch(patch(old, "LAST", 4), "RULE", {**find(old, "RULE").value, "max_missing": 0})
    file = tmp_path / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(old, newline="")
    (tmp_path / "change.patch").write_text(diff(path, old, new), newline="")
    command = ["git", "-c", "core.autocrlf=false", "apply", "--whitespace=nowarn", "change.patch"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    assert file.read_bytes() == new.encode()


def test_mutants_stay_inside_their_domains_and_differ() -> None:
    target = find(SOURCE, "RULE")
    places = operators.knobs(target.value, target.domains)
    assert ("note",) not in {knob.path for knob in places}
    rng = random.Random(1)
    value, differ = target.value, 0
    for _ in range(400):
        other = operators.mutate(value, places, rng)
        differ += other != value
        value = operators.crossover(other, target.value, places, rng)
        for mutant in (other, value):
            assert all(knob.domain.holds(operators.get(mutant, knob.path)) for knob in places)
            assert mutant["note"] == "keep  me"
        assert find(patch(SOURCE, "RULE", other), "RULE").value == other
    assert differ > 380  # a float may be drawn equal at an edge
    assert target.value == find(SOURCE, "RULE").value


def test_every_value_of_a_domain_can_be_reached() -> None:
    rng = random.Random(2)
    target = find('A = {"n": 1,  # 0..4\n "c": "x",  # x | y | 3\n "s": [],  # any of a, b\n "b": True}', "A")
    places = operators.knobs(target.value, target.domains)
    seen: dict[str, set[str]] = {key: set() for key in target.value}
    value = target.value
    for _ in range(300):
        value = operators.mutate(value, places, rng)
        for key, held in value.items():
            seen[key].add(repr(held))
    assert seen["n"] == {"0", "1", "2", "3", "4"}
    assert seen["c"] == {"'x'", "'y'", "3"}
    assert seen["s"] == {"[]", "['a']", "['b']", "['a', 'b']"}
    assert seen["b"] == {"True", "False"}


def test_merging_brings_gains_together() -> None:
    base = {"a": 1, "b": 1, "c": {"d": True}}
    places = operators.knobs(base)
    one, other = {**base, "a": 2}, {**base, "b": 5, "a": 3, "c": {"d": False}}
    assert operators.merge(one, other, base, places) == {"a": 2, "b": 5, "c": {"d": False}}


def test_the_same_seed_makes_the_same_proposals() -> None:
    target = find(SOURCE, "RULE")
    places = operators.knobs(target.value, target.domains)
    made = [operators.mutate(target.value, places, random.Random(5)) for _ in range(2)]
    assert made[0] == made[1]


def test_unhinted_numbers_keep_their_sign_and_text_is_left_alone() -> None:
    value = {"n": 2, "x": -0.5, "text": "leave", "none": None, "on": False}
    places = operators.knobs(value)
    assert [knob.path for knob in places] == [("n",), ("x",), ("on",)]
    rng = random.Random(3)
    for _ in range(300):
        value = operators.mutate(value, places, rng)
        assert value["n"] >= 0
        assert value["x"] <= 0
    assert value["text"] == "leave"


def test_a_domain_for_nothing_or_against_the_value_is_refused() -> None:
    with pytest.raises(InputError, match=r"nested\.gone"):
        operators.knobs({"a": 1}, {("nested", "gone"): Domain("bool")})
    with pytest.raises(InputError, match="outside its domain"):
        operators.knobs({"a": 9}, {("a",): Domain("int", 0, 4)})


def test_the_hint_of_a_whole_constant_is_found_on_its_last_line() -> None:
    source = "WORDS = [\n    'a',\n    'b',\n]  # any of a, b, c\n"
    target = find(source, "WORDS")
    assert target.domains == {(): Domain("subset", choices=("a", "b", "c"))}
    assert ast.literal_eval(patch(source, "WORDS", ["c"]).split("=")[1].split("#")[0].strip()) == ["c"]
