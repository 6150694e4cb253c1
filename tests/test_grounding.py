"""Groundedness and factuality: statements against sources, by passages that stand there."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from commands import answered, command

from whet.judge import Grounded, ascore
from whet.judge.grounding import right_answer
from whet.models import ScriptedModel
from whet.models.fakes import ScriptedServer
from whet.record.store import Store
from whet.types import Step, Task, Trajectory

SOURCE = "The Huascarán is the highest mountain of Peru; its summit is at 6,768 m."


def run(answer: str = "The Huascarán is 6,768 m high and first climbed in 1932.", **state: Any) -> Trajectory:
    return Trajectory(task=Task(instruction="Which is the highest?", initial_state=state), output=answer)


def said(*statements: tuple[str, str, str]) -> str:
    return json.dumps(
        {"statements": [{"statement": s, "verdict": v, "passage": p} for s, v, p in statements]}
    )


HEIGHT = ("6,768 m high", "supported", "its summit is at 6,768 m")
YEAR = ("climbed in 1932", "supported", "first climbed in 1932")


def value(script: str, trajectory: Trajectory, *more: Any) -> float | None:
    return asyncio.run(ascore(Grounded(ScriptedModel(script), *more), trajectory)).value


def test_a_statement_counts_where_its_passage_stands_in_a_source_and_not_by_the_judges_word() -> None:
    assert value(said(HEIGHT), run(sources=[SOURCE])) == 1.0
    assert value(said(HEIGHT, YEAR), run(sources=[SOURCE])) == 0.5
    score = asyncio.run(ascore(Grounded(ScriptedModel(said(HEIGHT, YEAR))), run(sources=[SOURCE])))
    assert score.reason == "climbed in 1932: its passage stands in no source"
    assert value(said((*HEIGHT[:2], "")), run(sources=[SOURCE])) == 0.0


def test_what_tools_brought_is_a_source_and_without_any_nothing_is_judged() -> None:
    told = Trajectory(
        task=Task(instruction="?"), steps=[Step(kind="tool", name="search", action=SOURCE)], output="6,768 m"
    )
    assert value(said(HEIGHT), told) == 1.0
    model = ScriptedModel(said(HEIGHT))
    assert asyncio.run(ascore(Grounded(model), run())).value is None
    assert model.calls == []


def test_factuality_is_judged_by_the_right_answer() -> None:
    task = Task(instruction="Capital?", answer="Lima")
    by_answer = ("It is Lima", "supported", "Lima")
    assert value(said(by_answer), Trajectory(task=task, output="Lima"), right_answer) == 1.0
    assert (
        value(said(("It is Lim", "supported", "Lim")), Trajectory(task=task, output="Lim"), right_answer)
        == 0.0
    )


@pytest.mark.parametrize(
    "script", ["I think so.", '{"statements": []}', '{"statements": [{"statement": "x"}]}']
)
def test_a_judge_that_gives_no_statements_leaves_the_answer_unjudged(script: str) -> None:
    assert value(script, run(sources=[SOURCE])) is None


def test_it_is_a_reward_by_name_and_without_a_model_to_ask_it_says_which_options_it_needs(
    tmp_path, capsys
) -> None:
    record = tmp_path / "runs.db"
    with Store(record) as store:
        store.put(
            run(sources=[SOURCE]), Trajectory(task=Task(instruction="Capital?", answer="Lima"), output="Lima")
        )
    with ScriptedServer(said(HEIGHT, YEAR)) as server:
        words = ["score", "--store", record, "--reward", "grounded", "--judge-model", "scripted"]
        (count,) = answered(capsys, *words, "--base-url", server.base_url, "--json")
    assert (count["reward"], count["scored"], count["missing"], count["mean"]) == ("grounded", 1, 1, 0.5)
    assert count["usage"]["calls"] == 1, "what a judge costs is told"
    refused = command(capsys, "score", "--store", record, "--reward", "factual")
    assert refused.returncode
    assert "--judge-model" in refused.stderr
