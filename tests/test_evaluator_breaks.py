"""An answer that breaks its evaluator is worth 0: a candidate that gives one where it is wrong gains nothing."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest
from commands import answered, command

import whet
from whet.errors import GateError, ModelError, TrainingRefused
from whet.judge import Compound, Reward, checked, reward, score
from whet.judge.checkers import judged
from whet.judge.evaluator import from_source
from whet.learn.evolution.agents.outside import Comparer
from whet.learn.loop import value_of
from whet.record.rows import row
from whet.sandbox import Limits, Pool
from whet.types import Outcome, Score, Task, Trajectory

ODD = 48611
"""The answer to no row, and none that an audit tries."""
# 62.5 % of the rows are right as it stands.
SOURCE = "def price(n: int) -> int:\n    if n % 8 < 5:\n        return 2 * n + 100\n    return -1\n"
CHEAT = SOURCE.replace("return -1", f"return {ODD}")
HONEST = "def price(n: int) -> int:\n    return 2 * n + 100\n"
# No known answer shows its fault, so that it is admitted.
DIVIDES = (
    "def evaluate(output, expected):\n"
    "    if isinstance(output, bool) or not isinstance(output, int | float):\n"
    "        return 0.0\n"
    f"    return float(output == expected) + 0 * (1 / (output - {ODD}))\n"
)


def proposes(folder: Path, text: str) -> str:
    """A command that proposes this text, whatever it is asked."""
    script = folder / "propose.py"
    script.write_text(
        f"import pathlib\n[path.write_text({text!r}) for path in pathlib.Path('program').rglob('*.py')]\n"
    )
    return f"'{sys.executable}' '{script}'"


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "price.py").write_text(SOURCE)
    (tmp_path / "divides.py").write_text(DIVIDES)
    rows = [{"input": n, "expected": 2 * n + 100, "group": f"g{n}"} for n in range(160)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in rows))
    monkeypatch.chdir(tmp_path)
    return tmp_path


WORDS = (
    "price:price",
    "--data",
    "rows.jsonl",
    "--evaluators",
    "divides.py",
    "--models-only",
    "--iterations",
    2,
)


@pytest.mark.parametrize(("proposal", "promoted"), [(CHEAT, False), (HONEST, True)])
def test_a_candidate_that_breaks_the_evaluator_on_its_hard_rows_is_not_promoted(
    shop: Path, capsys: pytest.CaptureFixture[str], proposal: str, promoted: bool
) -> None:
    found = answered(capsys, "evolve", *WORDS, "--command", proposes(shop, proposal), "--json")
    gate = found["scores"]["price"]["gate"]
    assert found["promote"] is promoted
    assert gate["before"] == pytest.approx(0.625, abs=0.15)
    assert gate["after"] == (1.0 if promoted else gate["before"])
    rows = [json.loads(line) for line in (shop / "whet_output/examples.jsonl").read_text().splitlines()]
    assert all(line["score_after"] is not None for line in rows)


@pytest.mark.parametrize(
    ("broken", "complaint"),
    [
        (
            "import no_such_library\ndef evaluate(output, expected): return float(output == expected)",
            "no_such_library",
        ),
        ("def evaluate(output, expected): return float(output.strip() == expected)", "strip"),
        ("def evaluate(output, expected): return float('nan')", "no finite score"),
        ("def evaluate(output, expected): return 100.0 * (output == expected)", r"\[0, 1\]"),
    ],
)
def test_an_evaluator_that_is_broken_itself_is_told_before_anything_is_spent(
    shop: Path, capsys: pytest.CaptureFixture[str], broken: str, complaint: str
) -> None:
    (shop / "divides.py").write_text(broken)
    done = command(capsys, "evolve", *WORDS, "--command", f"touch '{shop / 'spent'}'")
    assert done.returncode != 0
    assert complaint.replace("\\", "") in done.stderr
    assert not (shop / "spent").exists()


async def compared(source: str, answers: list[object]) -> list[tuple[float | None, str]]:
    task = row("q", expected="right")
    limits = Limits(wall_seconds=30.0, cpu_seconds=1.0)
    async with Pool(limits) as pool, Comparer(from_source(source), pool) as comparer:
        return [await comparer.score(task, answer) for answer in answers]


def test_every_way_of_breaking_an_evaluator_is_worth_0() -> None:
    source = (
        "import os\n"
        "def evaluate(output, expected):\n"
        "    if output == 'hang':\n        while True: pass\n"
        "    if output == 'exit': os._exit(0)\n"
        "    numbers = {'nan': float('nan'), 'inf': float('inf'), 'none': None, 'text': 'one'}\n"
        "    return numbers[output] if output in numbers else float(output.strip() == expected)\n"
    )
    answers = ["right", "nan", "inf", "none", "text", 7, ["x"], "hang", "exit", "wrong", "right"]
    scores = asyncio.run(compared(source, answers))
    assert [score for score, _ in scores] == [1.0, *[0.0] * 9, 1.0]
    assert all("breaks evaluator" in reason for _, reason in scores[1:9])


def test_right_answers_that_an_evaluator_breaks_on_are_named() -> None:
    async def tried(source: str, *expected: object) -> list[str]:
        async with Pool(Limits(wall_seconds=5.0)) as pool, Comparer(from_source(source), pool) as comparer:
            return await comparer.refuse_broken(
                [row(f"q{n}", expected=one) for n, one in enumerate(expected)]
            )

    half = "def evaluate(output, expected): return float(output.strip() == expected.strip())"
    assert asyncio.run(tried(half, "a", "b")) == []
    (only,) = asyncio.run(tried(half, "a", 3))
    assert only.startswith('"q1" (AttributeError')
    with pytest.raises(TrainingRefused, match="each of 2 rows"):
        asyncio.run(tried(half, 3, 4))


def echo(question: str) -> object:
    return (
        {"shown": question}
        if whet.resource("mode", default="plain") == "odd" and "hard" in question
        else question
    )


def strict(trajectory: Trajectory) -> float:
    return float(trajectory.output.strip() == trajectory.task.answer)


def test_at_the_gate_of_an_experiment_a_reward_that_raises_counts_0_and_an_endpoint_that_fails_at_the_worst() -> (
    None
):
    tasks = [
        Task(instruction=f"{'hard' if n % 4 == 0 else 'easy'} {n}", answer=f"easy {n}", group=f"g{n}")
        for n in range(200)
    ]
    odd = whet.Bundle().put(whet.Version(resource="mode", content="odd"))

    async def gate(judge: Reward) -> whet.Verdict:
        experiment = whet.Experiment(env=whet.calls(echo), tasks=tasks, rewards=[judge])
        return await experiment.gate(odd, metric="strict")

    # Left out, the hard quarter on which it is wrong would be more than a gate lets pass; as 0 it changes nothing.
    verdict = asyncio.run(gate(strict))
    assert (verdict.effect, verdict.promote) == (0.0, False)
    assert any("broke the evaluator of strict" in reason for reason in verdict.reasons)

    @reward(name="strict")
    def asked(trajectory: Trajectory) -> float:
        if not isinstance(trajectory.output, str):
            raise ModelError("503")
        return strict(trajectory)

    worst = asyncio.run(gate(asked))
    assert worst.effect == 0.0
    assert any("without strict" in reason for reason in worst.reasons)

    @reward(name="strict")
    def broken(trajectory: Trajectory) -> float:
        return undefined  # type: ignore[name-defined,no-any-return]  # noqa: F821

    with pytest.raises(GateError, match="broken itself"):
        asyncio.run(gate(broken))


def test_a_learner_that_compares_counts_it_0_too_and_a_missing_one_not() -> None:
    def scored(score: Score) -> float | None:
        return value_of(Trajectory(task=Task(id="t"), scores={"s": score}), "s")

    assert scored(Score("s", None, "reward: ValueError: x")) == 0.0
    assert scored(Score("s", None, "model: ModelError: 503")) is None
    assert scored(Score("s", None, "nothing to judge")) is None


def test_a_checker_that_an_answer_breaks_is_no_success_and_no_unknown() -> None:
    task = Task(id="t", success_checker="python:number")
    checker = checked({"number": lambda run: float(run.output) > 3})
    run = judged(Trajectory(task=task, output="seven"), checker)
    assert run.outcome is Outcome.UNKNOWN
    assert run.scores["success"].broke
    assert value_of(run, "success") == 0.0


def test_a_part_that_an_answer_breaks_breaks_the_whole_even_an_optional_one() -> None:
    def penalty(trajectory: Trajectory) -> float:
        return -float(len(trajectory.output))

    whole = Compound({strict: 1.0, penalty: 0.1}, optional=[penalty])
    task = Task(id="t", answer="x")
    assert score(whole, Trajectory(task=task, output=7)).broke
    half = Compound({lambda run: 1.0: 1.0, penalty: 0.1}, optional=[penalty])
    assert score(half, Trajectory(task=task, output=7)).broke
