"""The search: the same whatever the workers, safe against bad candidates, resumed exactly."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from evolution_toys import CURVE, LINE, search, trail

from whet.errors import InputError, TrainingRefused
from whet.learn.evolution.editing.program import Program
from whet.learn.evolution.search.bandit import Bandit
from whet.learn.evolution.search.engine import SearchOptions
from whet.learn.evolution.search.pair import EvaluatorFile, JudgeOptions
from whet.learn.evolution.search.population import Best, Front, IslandOptions, Islands, Judged
from whet.learn.evolution.search.proposers import Proposer
from whet.learn.evolution.search.settings import Settings
from whet.learn.loop import Context
from whet.models import RecordedModel, ScriptedModel
from whet.models.base import ModelRequest
from whet.record.store import Store
from whet.types import Budget


def block(search_text: str, replacement: str) -> str:
    return f"<<<<<<< SEARCH\n{search_text}\n=======\n{replacement}\n>>>>>>> REPLACE"


def scripted(*answers: str) -> Proposer:
    return Proposer(ScriptedModel(list(answers)))


MODEL_ONLY = SearchOptions(iterations=1, edits=())


def test_a_search_improves_the_program_and_says_by_what() -> None:
    found = search(options=SearchOptions(iterations=60, seed=1))
    assert found.best.score > found.start.score
    assert [score for _, score in found.history] == sorted(score for _, score in found.history)
    line = found.lineage()
    assert line[0].number == found.best.number
    assert line[-1].number == 0
    assert sum(row["tried"] for row in found.operators) == 60
    assert sum(row["gain"] for row in found.operators) == pytest.approx(found.best.score - found.start.score)


def test_the_number_of_workers_does_not_change_what_is_found() -> None:
    one = search(options=SearchOptions(iterations=30, seed=3, workers=1))
    four = search(options=SearchOptions(iterations=30, seed=3, workers=4))
    assert trail(one) == trail(four)
    other = search(options=SearchOptions(iterations=30, seed=4, workers=1))
    assert trail(one) != trail(other), "the seed decides nothing"


def test_model_calls_overlap_and_neither_their_pace_nor_the_workers_decide_what_is_found() -> None:
    options = SearchOptions(iterations=40, seed=3, edits=("number",), most_in_flight=12)
    trails, most_calls = [], []
    for workers, backwards in ((1, False), (4, True)):
        under_way, calls = 0, [0]

        async def answer(request: ModelRequest, backwards: bool = backwards, calls: list[int] = calls) -> str:
            nonlocal under_way
            under_way += 1
            calls.append(under_way)
            late = request.text.count("x *") % 4
            await asyncio.sleep(0.005 * (4 - late if backwards else late))
            under_way -= 1
            line = re.findall("^    return .*$", request.text, re.MULTILINE)[0]
            return block(line, f"{line} + {len(request.text) % 7}")

        models = [Proposer(ScriptedModel(answer))]
        trails.append(trail(search(options=replace(options, workers=workers), proposers=models)))
        most_calls.append(max(calls))
    assert trails[0] == trails[1]
    assert all(4 <= calls <= 12 for calls in most_calls)


def test_a_later_proposal_is_drawn_while_more_are_under_way() -> None:
    growing = SearchOptions(most_in_flight=16)
    lags = {1: 8, 8: 8, 26: 8, 27: 9, 36: 12, 47: 15, 48: 16, 1000: 16}
    assert {number: growing.lag(number) for number in lags} == lags
    assert {SearchOptions().lag(number) for number in range(1, 100)} == {8}
    # Never a proposal that an earlier one has not seen: what is committed is committed for all that follow.
    seen = [number - growing.lag(number) for number in range(1, 200)]
    assert seen == sorted(seen)


@pytest.mark.parametrize(
    ("words", "lags"),
    [
        ({}, (8, 8)),
        ({"asks": True}, (8, 16)),
        ({"asks": True, "dear": True}, (4, 4)),
        ({"in_flight": 2}, (2, 2)),
        ({"in_flight": 32}, (8, 32)),
        ({"in_flight": 2, "workers": 4}, (4, 4)),
    ],
)
def test_a_search_that_waits_for_models_has_more_under_way(
    words: dict[str, Any], lags: tuple[int, int]
) -> None:
    own = {name: words[name] for name in ("in_flight", "workers") if name in words}
    asks = {name: words[name] for name in ("asks", "dear") if name in words}
    options = Settings(**own).search(code=True, text=False, length=10, **asks)
    assert (options.lag(1), options.lag(1000)) == lags
    with pytest.raises(InputError, match="--in-flight 0: it must be at least 1"):
        Settings(in_flight=0).search(code=True, text=False, length=10)


def test_a_model_that_proposes_is_asked_for_blocks_and_shown_the_feedback() -> None:
    told = CURVE.replace(
        'return {"combined_score": 1 / (1 + wrong), "wrong": wrong}',
        "from openevolve.evaluation_result import EvaluationResult\n"
        '    return EvaluationResult({"combined_score": 1 / (1 + wrong)}, {"hint": "square it"})',
    )
    model = ScriptedModel([block("    return x * 2 + 1", "    return x * x + 3 * x + 7")])
    found = search(evaluator=told, options=MODEL_ONLY, proposers=[Proposer(model)])
    assert found.best.score == 1.0
    said = model.calls[0].text
    assert "square it" in said
    assert "return x * 2 + 1" in said
    assert found.lineage()[0].operator == "model scripted"


@pytest.mark.parametrize(
    ("answer", "failure"),
    [
        ("I would rather not.", "no usable answer"),
        (block("    return x * 2 + 1", "    return x *"), "SyntaxError"),
        (block("    return x * 2 + 1", "    return no_such_name"), "NameError"),
        (block("def f(x):", "raise OSError('at import')\ndef f(x):"), "at import"),
    ],
)
def test_what_does_not_run_fails_as_data(answer: str, failure: str) -> None:
    found = search(options=MODEL_ONLY, proposers=[scripted(answer)])
    assert found.best.number == 0
    assert failure in (found.records[1].failure or "")
    assert found.records[1].score is None


def test_a_program_that_python_only_warns_of_is_judged() -> None:
    odd = block("    return x * 2 + 1", "    return x * 2 + (5)[0] if x is 99 else x * x")
    found = search(options=MODEL_ONLY, proposers=[scripted(odd)])
    assert found.records[1].status == "scored"


def test_a_program_that_grew_too_long_is_refused_as_such() -> None:
    long = block("    return x * 2 + 1", "    return " + "1 + " * 400 + "x")
    options = SearchOptions(iterations=1, edits=(), max_length=1000)
    found = search(options=options, proposers=[scripted(long)])
    assert "1000 are allowed" in (found.records[1].failure or "")
    assert found.evaluations == 1


def test_a_candidate_that_does_not_import_never_reaches_the_evaluator() -> None:
    broken = block("def f(x):", "import no_such_module\ndef f(x):")
    found = search(options=MODEL_ONLY, proposers=[scripted(broken)])
    assert found.evaluations == 1, "the start alone"
    assert not found.records[1].evaluated


def test_a_hang_costs_one_timeout_and_nothing_to_the_next() -> None:
    hang = block("    return x * 2 + 1", "    import time\n    time.sleep(600)")
    good = block("    return x * 2 + 1", "    return x * x")
    started = time.monotonic()
    found = search(
        options=SearchOptions(iterations=5, edits=()),
        judging=JudgeOptions(timeout=5),
        proposers=[scripted(hang, good, hang, good.replace("x * x", "x * x + 1"), "nothing")],
    )
    assert found.timeouts == 1, "the second one is known by its text"
    assert [record.status for record in found.records[1:]] == [
        "failed",
        "scored",
        "duplicate",
        "scored",
        "nothing",
    ]
    assert found.best.score > found.start.score
    assert time.monotonic() - started < 30


def test_what_behaves_like_one_before_is_not_evaluated() -> None:
    same = block("    return x * 2 + 1", "    total = x + x\n    return 1 + total")
    found = search(options=MODEL_ONLY, proposers=[scripted(same)])
    assert found.records[1].status == "duplicate"
    assert found.duplicates == 1
    assert found.evaluations == 1


def test_a_program_that_differs_from_itself_is_not_compared_by_behaviour() -> None:
    random = LINE.replace("import math  # stays", "import time").replace(
        "return x * 2 + 1", "return x * 2 + time.perf_counter_ns() % 7"
    )
    same = block("    # what a person wrote", "    # a comment\n    x = x + 0")
    found = search(random, options=MODEL_ONLY, proposers=[scripted(same)])
    assert found.records[1].status == "scored"


@pytest.mark.parametrize("body", ["return {'combined_score': 0.5}", "return {'a': 1.0, 'b': 3.0}"])
def test_a_constant_evaluator_is_refused_before_the_first_generation(body: str) -> None:
    model = ScriptedModel([])
    with pytest.raises(TrainingRefused, match="cannot tell"):
        search(evaluator=f"def evaluate(path):\n    {body}\n", proposers=[Proposer(model)])
    assert not model.calls


def test_an_evaluator_without_evaluate_is_refused_unrun() -> None:
    with pytest.raises(InputError, match="evaluate"):
        EvaluatorFile({"e.py": "print('hello')"}, "e.py")


def test_a_start_program_that_fails_is_refused_with_the_reason() -> None:
    with pytest.raises(InputError, match="ZeroDivisionError"):
        search(LINE.replace("x * 2 + 1", "1 / 0"))


ONCE = """\
from pathlib import Path
before = len(list(Path(".").glob("loaded*")))
Path(f"loaded{before}").touch()

def evaluate_stage1(path):
    return {"combined_score": 1.0 if Path(path).read_text() else 0.0}

def evaluate_stage2(path):
    return {"times": float(len(list(Path(".").glob("loaded*")))), "combined_score": 2.0}
"""


def test_the_stages_of_a_candidate_share_the_evaluator_as_it_was_loaded_and_no_other_candidate_does() -> None:
    found = search(evaluator=ONCE, options=SearchOptions(iterations=3), judging=JudgeOptions(timeout=20))
    assert {record.metrics.get("times") for record in found.records if record.metrics} == {1.0}


def test_without_a_combined_score_the_mean_of_what_is_no_feature_counts() -> None:
    text = CURVE.replace(
        '{"combined_score": 1 / (1 + wrong), "wrong": wrong}',
        '{"good": 1 / (1 + wrong), "flag": True, "size": 100.0}',
    )
    judging = JudgeOptions(feature_dimensions=("size",), timeout=20)
    found = search(
        evaluator=text,
        options=SearchOptions(iterations=1),
        judging=judging,
        population=lambda: Islands(IslandOptions(feature_dimensions=("size",))),
    )
    assert found.start.score == pytest.approx(found.start.metrics["good"])


def test_the_budget_in_evaluations_is_not_overshot() -> None:
    found = search(options=SearchOptions(iterations=None), budget=Budget(rollouts=40))
    assert found.stopped == "budget"
    assert 10 < sum(record.rollouts for record in found.records[1:]) <= 40


BREAKS = """
import os, signal
from pathlib import Path
folder = Path({folder!r})


def noted(path, ask):
    text = Path(path).read_text()
    if "x * 2 + 1" in text or "return" not in text:
        return
    with (folder / "rollouts").open("a") as file:
        file.write(ask + "\\n")
    if not (folder / ask).exists():
        (folder / ask).touch()
        os.kill(os.getppid(), signal.SIGKILL)


def behaviour(path):
    noted(path, "behaviour")
    return Path(path).read_text()


def evaluate(path):
    noted(path, "evaluate")
    text = Path(path).read_text()
    return {{"combined_score": float("return" in text) + float("x * 3" in text)}}
"""
"""An evaluator under which the machine fails once at each thing asked of the first child."""


def test_what_the_machine_fails_at_is_tried_again_and_every_try_is_a_rollout_of_the_record(
    tmp_path: Path,
) -> None:
    start = "# EVOLVE-BLOCK-START\ndef f(x):\n    return x * 2 + 1\n# EVOLVE-BLOCK-END\n"
    answer = block("    return x * 2 + 1", "    return x * 3 + 1")
    with Store(tmp_path / "runs.db") as store:
        for _ in range(2):  # and from its records
            found = search(
                start,
                BREAKS.format(folder=str(tmp_path)),
                options=MODEL_ONLY,
                proposers=[scripted(answer)],
                store=store,
            )
            assert (found.records[1].status, found.best.score) == ("scored", 2.0)
            rollouts = (tmp_path / "rollouts").read_text().split()
            assert rollouts == ["behaviour", "behaviour", "evaluate", "evaluate"]
            assert found.records[1].rollouts == len(rollouts)


def test_a_search_ends_at_its_target_or_when_its_patience_does() -> None:
    assert search(options=SearchOptions(iterations=50, target=0.0)).stopped == "target"
    stuck = search(
        "# EVOLVE-BLOCK-START\ndef f(x):\n    return x * x + 3 * x + 7\n# EVOLVE-BLOCK-END\n",
        options=SearchOptions(iterations=200, patience=12),
    )
    assert stuck.stopped == "patience"
    assert stuck.iterations == 12


def test_workers_beyond_what_is_in_flight_are_refused() -> None:
    with pytest.raises(InputError, match="in_flight"):
        search(options=SearchOptions(workers=9))


def test_a_stopped_search_goes_on_to_the_same_archive_and_pays_no_answer_twice(tmp_path: Path) -> None:
    def answer(request: object) -> str:
        number = len(model.calls)
        return block("    return x * 2 + 1", f"    return x * {number} + 3")

    def run(folder: Path, iterations: int) -> list[object]:
        def recorded(context: Context) -> list[Proposer]:
            return [Proposer(RecordedModel(model, context.log))]

        with Store(folder / "runs.db") as store:
            options = SearchOptions(
                iterations=iterations, seed=5, edits=("number", "grow"), most_in_flight=16
            )
            return trail(search(options=options, proposers=recorded, store=store))

    model = ScriptedModel(answer)
    whole = run(_made(tmp_path / "whole"), 30)
    paid = len(model.calls)
    assert paid > 0
    model = ScriptedModel(answer)
    parts = _made(tmp_path / "parts")
    run(parts, 11)
    assert run(parts, 30) == whole
    assert len(model.calls) == paid


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


KILLED = """
    import sys
    from pathlib import Path
    sys.path.insert(0, {tests!r})
    from evolution_toys import search
    from whet.learn.evolution.search.engine import SearchOptions
    from whet.learn.evolution.search.proposers import Proposer
    from whet.models import RecordedModel, ScriptedModel
    from whet.record.store import Store

    paid = Path({folder!r}) / "paid"

    def answer(request):
        with paid.open("a") as file:
            file.write("x")
        line = "    # what a person wrote\\n"
        size = request.text.count("return")
        return f"<<<<<<< SEARCH\\n{{line}}=======\\n    x = x + {{size}}\\n{{line}}>>>>>>> REPLACE"

    with Store({folder!r} + "/runs.db") as store:
        model = ScriptedModel(answer)
        options = SearchOptions(iterations=16, seed=7, edits=("number", "grow", "operator"))
        asking = lambda context: [Proposer(RecordedModel(model, context.log))]
        found = search(options=options, proposers=asking, store=store)
        for record in found.records:
            print(record.number, record.id, record.status, record.score)
"""


def test_killed_and_started_again_a_search_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    tests = str(Path(__file__).parent)

    def start(folder: Path) -> subprocess.Popen[str]:
        script = textwrap.dedent(KILLED).format(tests=tests, folder=str(folder))
        return subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)

    whole = _made(tmp_path / "whole")
    expected, _ = start(whole).communicate(timeout=300)
    assert expected.count("\n") == 17
    broken = _made(tmp_path / "broken")
    for committed in (1, 7):
        process = start(broken)
        deadline = time.monotonic() + 60
        while _committed(broken) < committed and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    output, _ = start(broken).communicate(timeout=300)
    assert output == expected
    # Those that were in flight at a kill are asked again, and those that were answered are not.
    assert (broken / "paid").stat().st_size < 2 * (whole / "paid").stat().st_size


def _committed(folder: Path) -> int:
    if not (folder / "runs.db").exists():
        return 0
    import sqlite3

    try:
        connection = sqlite3.connect(f"file:{folder}/runs.db?mode=ro", uri=True)
        try:
            return int(
                connection.execute("SELECT count(*) FROM states WHERE key GLOB 'log/*/x/*'").fetchone()[0]
            )
        finally:
            connection.close()
    except sqlite3.Error:
        return 0


def judged(number: int, score: float, text: str = "", **more: object) -> Judged:
    program = Program({"p.py": text or f"x = {number}\n"}, "p.py")
    return Judged(number, program, score, **more)  # type: ignore[arg-type]


def test_an_island_keeps_the_best_of_each_cell_and_shows_it_to_its_neighbours() -> None:
    import random

    islands = Islands(IslandOptions(num_islands=4, feature_dimensions=("complexity",), migration_interval=2))
    islands.add(judged(0, 0.0, "x" * 100))
    islands.add(judged(1, 3.0, "x" * 150, island=1))
    islands.add(judged(2, 2.0, "x" * 150, island=1))
    found = [{each.number for each in grid.values()} for grid in islands.grids]
    assert found[1] == {0, 1}, "2 is worse than 1 in the same cell"
    assert 1 in found[0]
    assert 1 in found[2]
    assert found[3] == {0}
    assert islands.members()[0].number == 1
    assert {islands.draw(number, random.Random(number)).island for number in range(4)} == {0, 1, 2, 3}


def test_the_front_keeps_whoever_is_best_on_an_instance() -> None:
    front = Front()
    front.add(judged(0, 0.5, instances={"a": 1.0, "b": 0.0, "c": 0.0}))
    front.add(judged(1, 0.4, instances={"a": 0.0, "b": 1.0, "c": 0.0}))
    front.add(judged(2, 0.3, instances={"a": 0.0, "b": 0.5, "c": 0.0}))
    front.add(judged(3, 0.6, instances={"a": 1.0, "b": 0.0, "c": 1.0}))
    assert {each.number for each in front.members()} == {1, 3}


def test_the_best_keeps_the_older_of_two_equals() -> None:
    best = Best(mu=2)
    for number, score in enumerate([1.0, 2.0, 2.0, 2.0]):
        best.add(judged(number, score))
    assert [each.number for each in best.members()] == [1, 2]


def test_the_bandit_gives_more_to_what_earns_more_for_its_cost() -> None:
    import random

    bandit, rng = Bandit(["good", "poor", "dear"]), random.Random(0)
    for _ in range(400):
        name = bandit.choose(rng)
        won = rng.random() < {"good": 0.4, "poor": 0.02, "dear": 0.4}[name]
        cost = 10.0 if name == "dear" else 1.0
        bandit.learn(name, cost=cost, evaluated=True, improved=won, gain=1.0 if won else None)
    tried = {row["name"]: row["tried"] for row in bandit.table()}
    assert tried["good"] > 2 * tried["dear"]
    assert tried["good"] > 2 * tried["poor"]
    assert min(tried.values()) > 10, "none starves"
