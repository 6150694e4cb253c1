"""An agent's file and a table of questions and right answers: a prompt that is proven, without anybody's thumbs."""

from __future__ import annotations

import csv
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import whet
from test_fitted import ARTICLES
from test_improve_thumbs import AGENT, PROMPT, RULES, adviser, desk, said

from whet.models.fakes import ScriptedServer

OPENINGS = ("Good morning", "To whom it may concern", "Hello", "Dear all", "I write again", "Please help")
CLOSINGS = (
    "Thank you.",
    "I wait for your answer.",
    "Kind regards",
    "This is urgent!",
    "Many greetings",
    "Yours",
)
PLACES = ("Bern", "Lyon", "Turin", "Graz", "Ghent", "Porto", "Leeds", "Split", "Cork", "Brno", "Riga", "Oslo")


@pytest.fixture
def servers() -> Iterator[tuple[ScriptedServer, ScriptedServer]]:
    with ScriptedServer(desk) as agent, ScriptedServer(adviser) as proposer:
        yield agent, proposer


def written(folder: Path, *, shuffled: bool = False) -> None:
    """The agent, and a table of what people asked with what is right."""
    (folder / "desk.py").write_text(AGENT)
    draw, rows = random.Random(5), []
    for number in range(160):
        asked = draw.choice(
            [
                f"how long is the warranty of the {draw.choice(ARTICLES)}",
                f"where is my order {4000 + number}",
                f"what is the price of a {draw.choice(ARTICLES)} next spring",
            ]
        )
        whole = f"{draw.choice(OPENINGS)} from {draw.choice(PLACES)}, {asked}? {draw.choice(CLOSINGS)}"
        rows.append((f"person-{number // 2}", whole, said("", whole, 0.0)[0]))
    answers = [answer for _, _, answer in rows]
    if shuffled:
        random.Random(1).shuffle(answers)
    with (folder / "examples.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["customer", "question", "answer"])
        writer.writerows(
            [person, asked, answer] for (person, asked, _), answer in zip(rows, answers, strict=True)
        )


def improve(
    folder: Path, servers: tuple[ScriptedServer, ScriptedServer], *words: str
) -> tuple[int, str, str]:
    agent, proposer = servers
    model = ("--model", "scripted", "--base-url", proposer.base_url)
    table = ("--data", "examples.csv", "--metric", "exact", "--entry", "desk:answer")
    done = whet("improve", "desk.py", *table, *model, *words, folder=folder, DESK_URL=agent.base_url)
    return done.returncode, done.stdout, done.stderr


def test_a_table_of_right_answers_improves_the_prompt_of_an_agents_file(
    tmp_path: Path, servers: tuple[ScriptedServer, ScriptedServer]
) -> None:
    written(tmp_path)
    code, out, err = improve(tmp_path, servers, "--dry-run")
    assert code == 0, out + err
    assert "desk:SYSTEM_PROMPT can change" in out
    assert "not changed: desk:GREETING_PROMPT" in out
    assert "nothing recorded tells which prompt is sent; desk:SYSTEM_PROMPT is taken" in out
    assert "input: question" in out
    assert "metric exact" in out
    assert "to search" in out
    assert not servers[0].requests
    assert not servers[1].requests

    code, out, err = improve(tmp_path, servers)
    assert code == 0, out + err
    assert "rows that nothing was chosen on" in out
    assert "proven better: git apply" in out
    assert len(servers[0].requests) <= 400
    patch = (tmp_path / "whet_output" / "agent.patch").read_text()
    assert "-SYSTEM_PROMPT" in patch
    assert sum(rule in patch for rule in RULES.values()) >= 2, out + err
    assert PROMPT in (tmp_path / "desk.py").read_text()


def test_answers_that_belong_to_other_questions_prove_nothing(
    tmp_path: Path, servers: tuple[ScriptedServer, ScriptedServer]
) -> None:
    written(tmp_path, shuffled=True)
    code, out, err = improve(tmp_path, servers)
    assert code == 1, out + err
    assert "metric exact" in out
    assert not (tmp_path / "whet_output" / "agent.patch").exists()
