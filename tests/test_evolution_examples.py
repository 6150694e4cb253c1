"""The problems of examples/evolve start where they say, can be searched, and reward what they should."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from evolution_toys import search

from whet.learn.evolution.search.engine import SearchOptions
from whet.learn.evolution.search.openevolve import read_config


def example(repository: Path, name: str) -> Path:
    return repository / "examples" / "evolve" / name


def module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.mark.parametrize(
    ("name", "start"), [("bin_packing", -4.4059), ("retry_policy", 0.8561), ("modules", 0.75)]
)
def test_a_problem_starts_where_it_should_and_can_be_searched(
    name: str, start: float, repository: Path
) -> None:
    folder = example(repository, name)
    texts = [(folder / file).read_text(encoding="utf-8") for file in ("program.py", "evaluator.py")]
    found = search(*texts, options=SearchOptions(iterations=6, seed=1))
    assert found.start.score == pytest.approx(start, abs=1e-3)
    assert any(record.status == "scored" for record in found.records[1:])
    pytest.importorskip("yaml")
    assert read_config(folder / "config.yaml").ignored == ()


def test_the_landscape_deceives_whoever_only_climbs(repository: Path, tmp_path: Path) -> None:
    judge = module(example(repository, "modules") / "evaluator.py")

    def worth(*counts: int) -> float:
        rows = [[True] * count + [False] * (judge.SIZE - count) for count in counts]
        text = "".join(f"{name} = {row}\n" for name, row in zip(judge.NAMES, rows, strict=True))
        (tmp_path / "program.py").write_text(text)
        return float(judge.evaluate(str(tmp_path / "program.py"))["combined_score"])

    climb = [worth(count, 0, 0) for count in range(5)]
    assert climb[0] > climb[1] > climb[2] > climb[3]
    assert climb[4] > climb[0]
    assert worth(4, 4, 4) == 1.0


def test_better_packings_score_higher(repository: Path, tmp_path: Path) -> None:
    judge = module(example(repository, "bin_packing") / "evaluator.py")

    def excess(expression: str) -> float:
        path = tmp_path / "program.py"
        path.write_text(f"def priority(item, space):\n    left = space - item\n    return {expression}\n")
        return float(-judge.evaluate(str(path))["combined_score"])

    best_fit, worst_fit = excess("-left"), excess("left")
    no_slivers = excess("-left if left < 3 or left > 20 else -left - 100")
    assert no_slivers < best_fit < worst_fit


def test_the_router_is_judged_on_functions_that_the_search_does_not_see(
    repository: Path, data: Path, tmp_path: Path
) -> None:
    folder = example(repository, "tool_router")
    halves = []
    for words in ([], ["unseen"]):
        out = tmp_path / "catalogue.json"
        command = [sys.executable, str(folder / "prepare.py"), str(data / "bfcl"), str(out), *words]
        subprocess.run(command, check=True, capture_output=True, timeout=300)
        halves.append(json.loads(out.read_text(encoding="utf-8")))
    seen, unseen = ({name for name, _ in half["tools"]} for half in halves)
    assert not seen & unseen
    assert min(len(seen), len(unseen)) > 300
    assert {wanted for _, wanted in halves[0]["questions"]} <= seen
    few = {"tools": halves[1]["tools"], "questions": halves[1]["questions"][:40]}
    catalogue = module(folder / "evaluator.py").Catalogue(few)
    start = catalogue.accuracy(module(folder / "program.py").weight)
    by_rarity = catalogue.accuracy(lambda *given: given[4] / given[3])
    assert start < 0.4
    assert by_rarity > start + 0.2
