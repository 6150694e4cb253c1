"""What is known of an answer: null is one, a column that is not there is none, and what nobody judged is told."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from commands import command
from msgspec import UNSET

from whet.judge.evaluator import from_source
from whet.judge.generation import generate
from whet.judge.proof import prove
from whet.judge.rules import exact
from whet.learn.datasets.examples import load, write
from whet.record.exchange.formats import task_from_json, task_to_json
from whet.record.rows import read_rows, reference_answer, row
from whet.record.tasks import from_jsonl, to_jsonl
from whet.types import Task, Trajectory

FEE = '''"""Fees."""

# whet: evolve
LIMIT = 100


def fee(amount: int):
    """What is charged; None where nothing is."""
    return "fee" if amount > LIMIT else None
'''


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "shop.py").write_text(FEE)
    monkeypatch.chdir(folder)
    for words in (["init", "-q"], ["add", "-A"]):
        subprocess.run(["git", *words], cwd=folder, check=True, timeout=300)
    return folder


def evolved(capsys: pytest.CaptureFixture[str], data: Path, *more: str) -> tuple[dict[str, Any], str]:
    words = ["evolve", "--target", "limit", "--entry", "shop:fee", "--data", str(data), "--iterations", "40"]
    done = command(capsys, *words, "--seed", 1, "--output", data.parent / "out", *more)
    assert done.returncode in (0, 1), done.stderr  # 1 where the gate refuses it
    return (json.loads(done.stdout) if "--json" in more else {"text": done.stdout}), done.stderr


def test_null_is_a_right_answer_that_the_gate_judges(
    shop: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "rows.jsonl"
    rows = [{"input": n, "expected": "fee" if n > 40 else None, "group": f"g{n}"} for n in range(120)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found, told = evolved(capsys, data, "--json")
    scores = found["scores"]["fee"]
    assert sum(part["n"] for part in scores.values()) == 120, "rows where None is right are goals"
    assert "without_a_goal" not in scores
    assert found["findings"] == []
    assert scores["train"]["after"] > scores["train"]["before"]
    table = [json.loads(line) for line in (tmp_path / "out" / "examples.jsonl").read_text().splitlines()]
    nothing = [row for row in table if row["wanted"] is None]
    assert len(nothing) == 41
    assert {row["score_before"] for row in nothing} == {1.0}
    assert sum(row["score_after"] for row in nothing) >= 35, "what was right is not traded away"
    assert "fee: 120 rows in 120 groups" in told, "said before anything is spent"
    assert found["rows"]["fee"]["pairs"] == 24


def test_answers_that_nobody_judged_are_a_finding_in_the_verdict_and_the_report(
    shop: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "rows.jsonl"
    rows: list[dict[str, Any]] = [{"input": n, "expected": "fee", "group": f"g{n}"} for n in range(50, 130)]
    rows += [{"input": n, "output": None, "group": f"u{n}"} for n in range(40, 130, 3) if n < 50]
    rows += [{"input": n / 2, "output": None, "group": f"v{n}"} for n in range(141, 181, 2)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found, _ = evolved(capsys, data, "--json")
    (finding,) = found["findings"]
    assert finding["count"] >= 20
    assert len(finding["examples"]) == 3
    assert finding["examples"][0]["before"] is None
    assert finding["examples"][0]["after"] == "fee"
    assert "right answer is unknown" in finding["sentence"]
    assert finding["sentence"] in found["verdict"]["reasons"]
    shown, _ = evolved(capsys, data)
    assert f"\n{finding['sentence']}\n" in shown["text"], "alone, in a line of its own"
    assert shown["text"].count("right answer is unknown") == 1


def test_rows_keep_null_and_nothing_apart_through_files(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(
        '{"input": 1, "expected": null}\n{"input": 2, "output": null, "label": 1}\n'
        '{"input": 3, "output": null}\n{"input": 4, "output": "x", "label": -1}\n'
    )
    rows = load(path)
    assert [(task.answer_known, task.answer) for task in rows] == [
        (True, None),
        (True, None),
        (False, None),
        (False, None),
    ]
    write(tmp_path / "folder", rows)
    assert sorted(load(tmp_path / "folder"), key=lambda task: task.initial_state["input"]) == rows
    assert b"expected" not in (tmp_path / "folder" / "train.jsonl").read_bytes().replace(
        b'"expected":null', b""
    )
    assert [reference_answer(task) for task in read_rows(path)] == [None, None, None, UNSET]


def test_tasks_keep_null_and_nothing_apart_through_files(tmp_path: Path) -> None:
    nothing = task_from_json({"instruction": "who?", "answer": None})
    unknown = task_from_json({"instruction": "who?"})
    assert (nothing.answer_known, unknown.answer_known) == (True, False)
    assert nothing.id != unknown.id
    assert unknown.id == Task(instruction="who?").id
    for task in (nothing, unknown):
        assert task_from_json(task_to_json(task)) == task
    to_jsonl(tmp_path / "tasks.jsonl", [nothing, unknown])
    assert from_jsonl(tmp_path / "tasks.jsonl") == [nothing, unknown]


def test_a_reward_judges_an_answer_of_none_where_it_is_known_to_be_right() -> None:
    nothing = Task(instruction="who?", meta={"answer_known": True})
    assert exact(Trajectory(task=nothing, output=None)) == 1.0
    assert exact(Trajectory(task=nothing, output="Ada")) == 0.0
    assert exact(Trajectory(task=Task(instruction="who?"), output=None)) is None


def test_evaluators_are_made_and_proven_for_answers_among_which_none_is_right() -> None:
    rows = [row(f"mail {n}", expected=("spam", "later", None)[n % 3]) for n in range(12)]
    made = asyncio.run(generate(rows, name="label"))
    admitted = [one for one in made if one.admitted]
    assert admitted, [one.reasons for one in made]
    blind = from_source("def evaluate(output, expected):\n    return float(output is None)\n")
    assert not asyncio.run(prove(blind, rows=rows)).admitted


def test_an_example_without_an_answer_is_not_one_whose_answer_is_none() -> None:
    assert not row(1).answer_known
    assert row(1, expected=None).answer_known
    assert not row(1, label=1.0).answer_known, "what was liked is not there"
    assert row(1, None, label=1.0).answer_known
