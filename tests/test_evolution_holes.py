"""What a function lost is made of its names: an expression or a statement, until its rows come out right."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from test_evolution_repair import every_row, mend

from whet.learn.evolution.holes import holes
from whet.learn.evolution.source import PythonSource
from whet.sandbox.inside.composing import MISSING, Composer
from whet.sandbox.inside.holes import digest, fillings

BILL = """\
PRICES = {"tea": 3, "pot": 11, "cup": 5}


def bill(orders):
    total = 0
    for name, count in orders:
        if count > 0:
            total += PRICES[name]
    return total
"""
STOCKS = """\
def moved(events):
    stock, sold = 0, 0
    for kind, count in events:
        if kind == "in":
            stock += count
        elif count <= stock:
            sold += count
    return [stock, sold]
"""


def orders(rng: random.Random) -> dict[str, Any]:
    return {
        "orders": [[rng.choice(["tea", "pot", "cup"]), rng.randint(-1, 4)] for _ in range(rng.randint(0, 4))]
    }


def worth(orders: Sequence[tuple[str, int]]) -> int:
    return sum({"tea": 3, "pot": 11, "cup": 5}[name] * max(0, count) for name, count in orders)


def fates(folder: Path, **more: Any) -> list[tuple[Any, ...]]:
    report = mend(folder, BILL, "bill", orders, worth, **more)
    return [(record.id, record.status, record.tried, record.score) for record in report.found.records]


def test_a_lost_factor_is_made_of_names_whatever_the_workers_and_also_where_it_was_stopped(
    tmp_path: Path,
) -> None:
    whole = fates(tmp_path / "one", workers=1, iterations=60, timeout=10.0)
    assert 1.0 in [score for *_, score in whole]
    assert fates(tmp_path / "four", workers=4, iterations=60, timeout=10.0) == whole
    stopped = fates(tmp_path / "again", workers=2, iterations=9, timeout=10.0)
    assert stopped == whole[: len(stopped)]
    assert fates(tmp_path / "again", workers=2, iterations=60, timeout=10.0) == whole


def test_a_lost_statement_is_made_of_names(tmp_path: Path) -> None:
    def draw(rng: random.Random) -> dict[str, Any]:
        events = [[rng.choice(["in", "out"]), rng.randint(1, 9)] for _ in range(rng.randint(0, 7))]
        return {"events": events}

    def right(events: list[Any]) -> list[int]:
        stock, sold = 0, 0
        for kind, count in events:
            if kind == "in":
                stock += count
            elif count <= stock:
                sold, stock = sold + count, stock - count
        return [stock, sold]

    report = mend(tmp_path, STOCKS, "moved", draw, right, timeout=10.0)
    assert set(every_row(report)) == {1.0}
    added = [line[1:].strip() for line in report.patch.splitlines() if line.startswith("+ ")]
    assert added == ["stock = stock - count"], report.patch


def filled(
    text: str, name: str, inputs: Sequence[Sequence[Any]], right: Callable[..., Any], **rows: Any
) -> set[str]:
    """Every text that fills a hole of a function, here and not in the sandbox."""
    source = PythonSource(text)
    wanted = [digest(right(*values)) for values in inputs]
    texts: set[str] = set()
    for hole in holes(source):
        space: dict[str, Any] = {}
        exec(source.spliced(hole.changes), space)
        place: Mapping[str, Any] = {
            "names": hole.names,
            "before": hole.before,
            "atoms": hole.atoms,
            "called": hole.called,
            "attributes": hole.attributes,
            "targets": [target[:2] for target in hole.targets],
        }
        asked = {"calls": inputs, "wanted": wanted, "failing": len(inputs), "most": 1000, **rows}
        answered, further = fillings(space[name], place, asked, 0.05)
        assert further == []
        texts |= {source.spliced(hole.filled(*filling[:2])) for filling in answered}
    return texts


def test_every_filling_is_a_version_that_answers_some_rows() -> None:
    text = "def f(values, low):\n    return [value for value in values if value]\n"

    def right(values: list[int], low: int) -> list[int]:
        return [value for value in values if value >= low]

    inputs = [[[3, 1, 2], 2], [[5, 0, 7], 6], [[1, 1], 1], [[-4, 2], 2], [[9, 8], 10]]
    texts = filled(text, "f", inputs, right)
    assert "def f(values, low):\n    return [value for value in values if low <= value]\n" in texts, texts
    assert all(any(comes_out(made, values, right) for values in inputs) for made in texts)


def comes_out(text: str, values: Sequence[Any], right: Callable[..., Any]) -> bool:
    space: dict[str, Any] = {}
    exec(text, space)
    try:
        return bool(space["f"](*json.loads(json.dumps(values))) == right(*values))
    except Exception:
        return False


def test_a_filling_after_which_a_loop_never_ends_ends_nothing_else() -> None:
    lines = ["def f(n):", "    count = 0", "    while n:", "        count += 1", "        n = n - 2"]
    lines += ["        if n < 0:", "            return count", "    return count"]
    text = "\n".join(lines) + "\n"
    texts = filled(text, "f", [[5], [6], [9]], lambda n: n)
    assert any("n = n - 1" in made or "n - 1\n" in made for made in texts)


def test_answers_of_other_rows_fill_nothing() -> None:
    text = "def f(values, low):\n    return [value for value in values if value]\n"
    rng = random.Random(5)
    inputs = [[[rng.randint(0, 9) for _ in range(4)], rng.randint(0, 9)] for _ in range(12)]
    answers = {json.dumps(values): [rng.randint(0, 9), rng.randint(0, 9)] for values in inputs}
    texts = filled(text, "f", inputs, lambda *values: answers[json.dumps(list(values))])
    assert texts == set()


def test_what_is_worth_the_same_everywhere_is_made_once_and_what_has_no_value_not_at_all() -> None:
    visits = [(3, [1, 2]), (4, [5]), (7, [0, 0, 8])]

    def evaluated(text: str) -> tuple[Any, ...]:
        values: list[Any] = []
        for n, xs in visits:
            try:
                values.append(eval(text, {}, {"n": n, "xs": xs}))
            except Exception:
                values.append(MISSING)
        return tuple(values)

    composer = Composer(["n", "xs"], visits, [], [("2", False), ("0", False)], [], [], evaluated, None, 3000)
    made = {expression.text: expression.values for expression in composer.all()}
    assert made["sum(xs)"] == (3, 5, 8)
    assert made["len(xs)"] == (2, 1, 3)
    assert {"n + 2", "2 + n"} & made.keys() != {"n + 2", "2 + n"}
    assert all(values == evaluated(text) for text, values in made.items() if MISSING not in values)
    assert not any(set(map(type, values)) == {type(MISSING)} for values in made.values())


@pytest.mark.parametrize(
    ("answer", "same"), [(1.0, 1), ({"a": 1, "b": 2}, {"b": 2, "a": 1}), (0.1 + 0.2, 0.3)]
)
def test_answers_are_compared_by_value(answer: Any, same: Any) -> None:
    assert digest(answer) == digest(same)
    assert digest([answer]) != digest([None])
