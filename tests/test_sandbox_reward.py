"""A program is paid for passing cases that it never saw, and for nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from whet.judge import ascore
from whet.judge.code import Passes, program_in
from whet.sandbox import Pool
from whet.types import Json, Outcome, Score, Task, Trajectory

CASES = {"function": "add", "cases": [[[1, 2], 3], [[0, 0], 0], [[-4, 1], -3], [[2.5, 1], 3.5]]}


def scored(*outputs: Json, answer: Json = CASES, **options: bool) -> list[Score]:
    async def run() -> list[Score]:
        async with Pool() as pool:
            reward = Passes(pool, **options)
            task = Task(instruction="Write add(a, b).", answer=answer)
            return [await ascore(reward, Trajectory(task=task, output=output)) for output in outputs]

    return asyncio.run(run())


def values(scores: Sequence[Score]) -> list[float | None]:
    return [score.value for score in scores]


def test_the_share_of_hidden_cases_is_the_score() -> None:
    good = "def add(a, b):\n    return a + b\n"
    half = "def add(a, b):\n    return 3 if a == 1 else 0\n"
    fenced = f"First I tried this:\n```python\n{half}```\nBetter:\n```python\n{good}```\nDone."
    assert values(scored(good, half, fenced, "no code", "", None)) == [1.0, 0.5, 1.0, 0.0, 0.0, 0.0]
    assert values(scored(good, half, all_or_nothing=True)) == [1.0, 0.0]


def test_ending_the_process_deleting_tests_or_equal_objects_earn_nothing() -> None:
    tricks = [
        "import sys\nsys.exit(0)\n",
        "import os\ndef add(a, b): os._exit(0)\n",
        "print('4 passed, score 1.0')\ndef add(a, b): print('ok')\n",
        "class Any(int):\n    def __eq__(self, other): return True\ndef add(a, b): return Any()\n",
        "import os, glob\nfor name in glob.glob('/box/**/*', recursive=True): os.remove(name)\n",
        "def add(a, b): return True\n",
    ]
    assert values(scored(*tricks)) == [0.0] * len(tricks)


def test_one_is_not_true_and_the_reason_holds_no_expected_value() -> None:
    (score,) = scored(
        "def f(x): return 1", answer={"function": "f", "cases": [[["x"], True], [["y"], "only-wanted-77"]]}
    )
    assert score.value == 0.0
    assert "only-wanted-77" not in score.reason


def test_a_task_without_cases_and_a_broken_machine_have_no_score() -> None:
    assert values(scored("def add(a, b): return 1", answer="a text")) == [None]
    assert values(scored("def add(a, b): return 1", answer={"function": "add", "cases": []})) == [None]

    async def run() -> Score:
        async with Pool() as pool:
            broken = Trajectory(task=Task(answer=CASES), output="x", outcome=Outcome.INFRASTRUCTURE_ERROR)
            return await ascore(Passes(pool), broken)

    assert asyncio.run(run()).value is None


def test_the_last_block_is_the_program() -> None:
    assert program_in("```py\na\n```\n```\nb\n```") == "b\n"
    assert program_in("a = 1") == "a = 1"
    assert program_in({"not": "text"}) == ""
