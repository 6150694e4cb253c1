"""Wrong programs are mended without a model: every single edit is tried in the order of suspicion."""

from __future__ import annotations

import ast
import asyncio
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from evolution_toys import LINE, search

from whet.errors import InputError
from whet.learn.evolution.editing.minimise import minimised
from whet.learn.evolution.editing.program import Program
from whet.learn.evolution.editing.singles import single_edits
from whet.learn.evolution.editing.source import PythonSource
from whet.learn.evolution.reports import EvolutionReport
from whet.learn.evolution.repositories import evolve_targets
from whet.learn.evolution.search.engine import SearchOptions
from whet.learn.evolution.search.proposers import Proposer
from whet.learn.evolution.search.screening import CodeLine, ochiai
from whet.learn.evolution.search.settings import RepositoryInput, Settings
from whet.learn.evolution.search.sweep import whose_turn
from whet.models import ScriptedModel
from whet.sandbox import Local, Pool

MERGE = '''\
def sort(values):
    """Sort, by merging."""
    def merge(left, right):
        out = []
        while left and right:
            out.append(left.pop(0) if left[0] <= right[0] else right.pop(0))
        return out + left + right

    if len(values) == 0:
        return values
    middle = len(values) // 2
    return merge(sort(values[:middle]), sort(values[middle:]))
'''
STOCK = """\
def left(stock, orders):
    for name, count in orders:
        if stock.get(name, 0) >= count:
            stock[name] -= count
    return stock
"""
BITS = """\
def bits(number):
    count = 0
    while number:
        number ^= number - 1
        count += 1
    return count
"""


def mend(
    folder: Path,
    text: str,
    name: str,
    draw: Callable[[random.Random], dict[str, Any]],
    right: Callable[..., Any],
    **more: Any,
) -> EvolutionReport:
    """`whet evolve` on a function, with rows of the right answers, by its defaults."""
    rng = random.Random(3)
    repository = folder / "repository"
    repository.mkdir(parents=True, exist_ok=True)
    (repository / "shop.py").write_text(text)
    inputs = list({json.dumps(draw(rng)) for _ in range(60)})
    lines = [
        json.dumps({"input": json.loads(key), "expected": right(**json.loads(key))}) for key in sorted(inputs)
    ]
    (folder / "rows.jsonl").write_text("\n".join(lines))
    source = RepositoryInput(targets=(f"shop:{name}",), repository=repository, data=folder / "rows.jsonl")
    settings = Settings(**{"offline": True, "seed": 1, "timeout": 5.0, "output": folder / "output", **more})
    return asyncio.run(evolve_targets(source, settings))


def numbers(rng: random.Random) -> dict[str, Any]:
    return {"values": [rng.randint(0, 30) for _ in range(rng.randint(1, 6))]}


def words(rng: random.Random) -> str:
    return rng.choice(("tea", "pot", "x")) + str(rng.randint(0, 60))


def every_row(report: EvolutionReport) -> list[float]:
    scores = next(iter(report.json()["scores"].values()))
    return [part["after"] for part in scores.values() if part["n"]]


def test_a_function_that_fails_on_every_row_starts_at_0_and_is_mended_by_one_edit(tmp_path: Path) -> None:
    report = mend(tmp_path, MERGE, "sort", numbers, lambda values: sorted(values))
    assert report.found.start.score < 0.2
    assert set(every_row(report)) == {1.0}
    assert report.found.stopped == "target"
    changed = [
        line for line in report.patch.splitlines() if line[0] in "+-" and line[:3] not in ("+++", "---")
    ]
    assert len(changed) == 2, report.patch


def test_a_loop_that_never_ends_is_mended(tmp_path: Path) -> None:
    def ones(number: int) -> int:
        return number.bit_count()

    report = mend(tmp_path, BITS, "bits", lambda rng: {"number": rng.randint(1, 4000)}, ones, timeout=1.0)
    assert report.found.start.score == 0.0
    assert set(every_row(report)) == {1.0}
    assert report.found.cpu_seconds < 20.0


def test_an_augmented_sign_is_flipped_and_what_is_found_does_not_depend_on_the_workers(
    tmp_path: Path,
) -> None:
    def draw(rng: random.Random) -> dict[str, Any]:
        stock = {name: rng.randint(0, 9) for name in ("tea", "pot")}
        return {"stock": stock, "orders": [[rng.choice(("tea", "pot")), rng.randint(1, 5)] for _ in range(3)]}

    def right(stock: dict[str, int], orders: list[Any]) -> dict[str, int]:
        for name, count in orders:
            if stock.get(name, 0) >= count:
                stock[name] -= count
        return stock

    wrong = STOCK.replace("-=", "+=")
    reports = [
        mend(tmp_path / str(workers), wrong, "left", draw, right, workers=workers, iterations=12)
        for workers in (1, 4)
    ]
    assert "+            stock[name] -= count" in reports[0].patch
    assert reports[0].patch == reports[1].patch
    tried = [
        [(record.id, record.status, record.tried) for record in report.found.records] for report in reports
    ]
    assert tried[0] == tried[1]
    # A search that is run again goes on with the edits that are left.
    again = mend(tmp_path / "1", wrong, "left", draw, right, workers=4, iterations=12)
    assert again.found.replayed == again.found.iterations
    assert again.patch == reports[0].patch


def test_with_the_answers_of_other_rows_nothing_is_promoted(tmp_path: Path) -> None:
    rng = random.Random(5)
    report = mend(
        tmp_path, MERGE, "sort", numbers, lambda values: sorted(rng.sample(range(30), 2)), iterations=20
    )
    assert report.verdict is None or not report.verdict.promote


def test_a_start_that_lacks_a_module_is_refused_and_not_searched(tmp_path: Path) -> None:
    def draw(rng: random.Random) -> dict[str, Any]:
        return {"stock": {"tea": rng.randint(0, 9)}, "orders": []}

    def unchanged(stock: dict[str, int], orders: list[Any]) -> dict[str, int]:
        return stock

    with pytest.raises(InputError, match="not_here_at_all"):
        mend(
            tmp_path,
            STOCK.replace("    for", "    import not_here_at_all\n\n    for"),
            "left",
            draw,
            unchanged,
        )


PARABOLA = """\
import importlib.util

def evaluate(path):
    spec = importlib.util.spec_from_file_location("program", path)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    right = sum(program.f(x) == x * 3 + 1 for x in range(20))
    return {"combined_score": right / 20}
"""


def test_a_program_is_mended_beside_its_evaluator_by_trying_many_edits_in_one_evaluation() -> None:
    outcome = search(LINE, PARABOLA, options=SearchOptions(iterations=12, target=1.0))
    assert outcome.best.score == 1.0
    assert "x * 3 + 1" in outcome.best.program.text
    assert "# what a person wrote" in outcome.best.program.text
    assert outcome.tried > 2 * outcome.evaluations


def test_a_model_has_its_turns_after_the_likeliest_edits() -> None:
    turns = [whose_turn(number, models=True, sweeps=True, alone=True) for number in range(1, 41)]
    assert turns[:8] == ["sweep"] * 3 + ["chance"] + ["sweep"] * 3 + ["chance"]
    assert turns[8:].count("model") == 16
    assert {"sweep", "chance"} < set(turns[8:])
    dear = [whose_turn(number, models=True, sweeps=True, alone=False) for number in range(1, 9)]
    assert dear == [*["model"] * 3, "sweep", *["model"] * 3, "chance"]
    model = ScriptedModel(lambda request: "no change comes to mind")
    outcome = search(options=SearchOptions(iterations=40, target=None), proposers=[Proposer(model)])
    assert len(model.calls) >= 16
    assert {row["name"]: row["tried"] for row in outcome.operators}["single"] >= 10


def test_every_single_edit_is_python_and_leaves_the_rest_as_it_stands() -> None:
    text = f"# before\n{MERGE}# after, with tabs:\t\n"
    source = PythonSource(text)
    edits = single_edits(source)
    texts = [source.spliced(edit.changes) for edit in edits]
    assert len(texts) > 1000
    assert all(each.startswith("# before\n") and each.endswith("# after, with tabs:\t\n") for each in texts)
    broken = 0
    for each in texts:
        try:
            ast.parse(each)
        except SyntaxError:
            broken += 1
    assert broken < 0.01 * len(texts)
    assert [edit.changes for edit in single_edits(PythonSource(text))] == [edit.changes for edit in edits]


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("return a - b", "return a + b"),
        ("return a if a < b else b", "return a if a > b else b"),
        ("return values[1:]", "return values[:1]"),
        ("return min(a, b)", "return max(a, b)"),
        ("return a and b", "return a or b"),
        ("return divide(a, b)", "return divide(b, a)"),
        ("return [a]", "return [b]"),
        ("return sorted(values)", "return sorted(values, reverse=True)"),
        ("return range(a)", "return range(a + 1)"),
        ("return values[a]", "return values[a - 1]"),
        ("return a.lower()", "return a.upper()"),
        ("return True", "return not a"),
        ("return a", "return a - b"),
        ("a += b\n    return a", "a -= b\n    return a"),
        ("a = b\n    return a", "a = max(a, b)\n    return a"),
        ("values.append(a)\n    return b", "values.extend(a)\n    return b"),
        ("yield values", "yield from values"),
        ("a, b = b, a\n    return a", "pass\n    return a"),
        ("pass\n    return a", "return sorted(values)\n    return a"),
        ("pass\n    return a", "a += b\n    return a"),
        (
            "out = []\n    divide(a, b)\n    return out",
            "out = []\n    out.append(divide(a, b))\n    return out",
        ),
        ("return None", "return a is not None"),
        ('return a if ("x", "y") else b', 'return a if a.startswith(("x", "y")) else b'),
        ('b = "; "\n    return b', 'b = a.split("; ")\n    return b'),
        ('a = "%.1f" % b\n    return a', 'a = "%.0f" % b\n    return a'),
    ],
)
def test_the_edit_that_mends_it_is_among_them(wrong: str, right: str) -> None:
    before, after = (f"def f(a, b, values):\n    {body}\n" for body in (wrong, right))
    source = PythonSource(before)
    wanted = ast.dump(ast.parse(after))
    shapes = set()
    for edit in single_edits(source):
        try:
            shapes.add(ast.dump(ast.parse(source.spliced(edit.changes))))
        except SyntaxError:
            continue
    assert wanted in shapes


def test_a_line_is_blamed_by_the_failing_rows_that_run_it_and_by_few_passing_ones() -> None:
    first, second, third = (CodeLine("p.py", number) for number in (1, 2, 3))
    blame = ochiai([frozenset({first, second})], [frozenset({first}), frozenset({first, third})])
    assert blame[second] == 1.0
    assert blame[first] == pytest.approx(1 / 3**0.5)
    assert third not in blame


def test_what_a_statement_does_not_need_is_taken_back_within_it() -> None:
    old = "def f(a, b):\n    return a + b  # kept\n"
    new = "def f(a, b):\n    return max(0, (a - b) * 1) + 0  # kept\n"

    async def no_worse(shorter: Program) -> bool:
        namespace: dict[str, Any] = {}
        exec(shorter.text, namespace)
        return all(namespace["f"](a, b) == a - b for a, b in ((5, 2), (3, 3), (9, 0)))

    start, best = (Program({"p.py": text}, "p.py") for text in (old, new))
    shortest, count = asyncio.run(minimised(start, best, no_worse))
    assert shortest.text == "def f(a, b):\n    return a - b  # kept\n"
    assert count >= 2


def test_a_version_that_hangs_or_dies_takes_no_other_along() -> None:
    texts = [
        "def f(x): return x + 1",
        "def f(x):\n    while True: pass",
        "import os\ndef f(x): os._exit(3)",
        "def f(x): return [].pop()",
        "def f(x): retur x",
        "def f(x): return x + 2",
    ]
    runner = "import importlib\n\ndef call(x):\n    return importlib.import_module('program').f(x)\n"

    async def use() -> Any:
        files = {"program.py": "", "runner.py": runner}
        async with Pool(Local()) as pool, pool.open(files, "inside.screen:handle") as session:
            versions = [{"program.py": text} for text in texts]
            return (
                await session.call(["answers", "runner", versions, [[1], [2]], 0.05, 5.0], last=True)
            ).value

    told = [report["told"] for report in asyncio.run(use())]
    assert told == [["v2", "v3"], [], [], ["xIndexError"] * 2, ["xSyntaxError"] * 2, ["v3", "v4"]]


def test_a_text_in_an_answer_is_corrected_by_what_stands_beside_it_in_the_right_one(tmp_path: Path) -> None:
    text = 'def tag(word):\n    return "<em" + word.strip() + "</em>"\n'
    report = mend(
        tmp_path,
        text,
        "tag",
        lambda rng: {"word": " " * rng.randint(0, 2) + words(rng)},
        lambda word: f"<em>{word.strip()}</em>",
    )
    assert set(every_row(report)) == {1.0}
    assert report.found.tried < 200


def test_an_answer_that_is_returned_no_more_is_made_of_the_names_of_the_function(tmp_path: Path) -> None:
    text = "def parts(total, size):\n    whole = total // size\n    rest = total - whole * size\n    return None\n"
    report = mend(
        tmp_path,
        text,
        "parts",
        lambda rng: {"total": rng.randint(0, 90), "size": rng.randint(2, 9)},
        lambda total, size: list(divmod(total, size)),
    )
    assert set(every_row(report)) == {1.0}


def test_a_name_that_nothing_sets_is_set(tmp_path: Path) -> None:
    unset = "def mean(values):\n    for value in values:\n        total += value\n    return total / len(values)\n"
    report = mend(tmp_path, unset, "mean", numbers, lambda values: sum(values) / len(values))
    assert set(every_row(report)) == {1.0}
    assert report.found.start.score == 0.0


def test_an_edit_that_answers_the_rows_of_the_search_alone_is_not_the_end_of_it(tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()
    rng = random.Random(2)
    splits = {"train": (30, 1), "validation": (6, 3), "gate": (20, 3)}
    rows = [
        # Where the search looks b is c, and a name as good as the other.
        {"input": {"a": -3 * number, "b": number * apart, "c": number}, "expected": number, "split": split}
        for split, (count, apart) in splits.items()
        for number in rng.sample(range(10**6, 10**9), count)
    ]
    (repository / "shop.py").write_text("def pick(a, b, c):\n    return a\n")
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    source = RepositoryInput(targets=("shop:pick",), repository=repository, data=tmp_path / "rows.jsonl")
    settings = Settings(offline=True, seed=1, timeout=5.0, output=tmp_path / "output", cpu_seconds=20.0)
    report = asyncio.run(evolve_targets(source, settings))
    assert report.found.stopped == "target"
    assert set(every_row(report)) == {1.0}
    assert "return c" in report.patch


def test_the_right_edit_is_no_duplicate_of_a_wrong_one_that_answers_the_same_rows(tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()
    rng = random.Random(4)
    rows = [
        # Where the search looks all numbers are negative, and `-a`, which it tries first, does as well as `abs(a)`.
        {"input": {"a": number}, "expected": abs(number), "split": split}
        for split, count, low, high in (
            ("train", 30, -99, -1),
            ("validation", 8, -99, 99),
            ("gate", 20, -99, 99),
        )
        for number in rng.sample(range(low, high), count)
    ]
    (repository / "shop.py").write_text("def size(a):\n    return a\n")
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    source = RepositoryInput(targets=("shop:size",), repository=repository, data=tmp_path / "rows.jsonl")
    settings = Settings(offline=True, seed=1, timeout=5.0, output=tmp_path / "output", cpu_seconds=20.0)
    report = asyncio.run(evolve_targets(source, settings))
    assert report.found.stopped == "target"
    assert set(every_row(report)) == {1.0}


def test_an_import_error_that_the_function_raises_itself_is_searched(tmp_path: Path) -> None:
    text = (
        "def part(name, level):\n    parts = name.split('.')\n    if not (len(parts) < level):\n"
        "        raise ImportError('beyond the top')\n    return parts[:level]\n"
    )
    report = mend(
        tmp_path,
        text,
        "part",
        lambda rng: {"name": ".".join("abcd"[: rng.randint(2, 4)]) + words(rng), "level": rng.randint(0, 2)},
        lambda name, level: name.split(".")[:level],
    )
    assert report.found.start.score == 0.0
    assert set(every_row(report)) == {1.0}
