"""The programs of `benchmarks/repair`: functions that are found, bugs that are put in, and rows."""

from __future__ import annotations

import random
import sysconfig
from pathlib import Path
from typing import Any

import pytest

BENCHMARK = Path(__file__).parent.parent / "benchmarks" / "repair"


@pytest.fixture(autouse=True)
def beside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARK)


def test_a_pure_function_of_the_library_gets_rows_that_run_it_whole_and_one_with_effects_is_left_out() -> (
    None
):
    import library

    modules = Path(sysconfig.get_paths()["stdlib"])
    texts = {
        name: (target, text) for name, target, text in library._pure(modules / "colorsys.py", "colorsys")
    }
    target, text = texts["colorsys.hls_to_rgb"]
    assert "def _v(" in text  # what it needs comes with it
    rows = library._rows("colorsys.rgb_to_hsv", *texts["colorsys.rgb_to_hsv"]) or []
    assert rows == []  # a tuple does not come back as one
    found = {name for name, _, _ in library._pure(modules / "tempfile.py", "tempfile")}
    assert "tempfile.mkstemp" not in found
    _, target, text = next(
        entry for entry in library._pure(modules / "ipaddress.py", "ipaddress") if "zero_bits" in entry[0]
    )
    rows = library._rows("zero_bits", target, text)
    assert rows is not None
    assert len(rows) >= library.LEAST
    namespace: dict[str, Any] = {}
    exec(text, namespace)
    assert all(namespace[target](**row["input"]) == row["expected"] for row in rows)
    assert rows == library._rows("zero_bits", target, text)


def test_a_mutant_differs_in_one_line_or_in_two_that_changed_places() -> None:
    import mutations

    lines = [
        "def f(a, b):",
        "    total = 0",
        "    for x in a[1:b]:",
        "        if x > b and not a:",
        "            total += x",
        "    return max(total, b)",
    ]
    text = "\n".join(lines) + "\n"
    mutants = mutations.mutants(text, "f", random.Random(1))
    assert mutants == mutations.mutants(text, "f", random.Random(1))
    kinds = {mutant.kind for mutant in mutants}
    assert {
        "comparison",
        "logic",
        "negation",
        "number",
        "variable",
        "function",
        "slice",
        "assignment",
    } <= kinds
    for mutant in mutants:
        compile(mutant.text, "mutant", "exec")
        pairs = zip(lines, mutant.text.splitlines(), strict=True)
        assert 1 <= sum(old != new for old, new in pairs) <= 2
    assert {mutant.kind for mutant in mutants[: len(kinds)]} == kinds  # kinds by turns


def test_each_classic_is_wrong_on_some_row() -> None:
    from classics import CLASSICS

    for classic in CLASSICS:
        assert classic.text != classic.right
        assert len(classic.rows()) == 60, classic.name
