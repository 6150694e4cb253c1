"""A key that is refused ends a command after a few calls, with one sentence, and what was answered is kept."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import whet as whet_command

import whet
from whet.models.base import ModelRequest
from whet.models.fakes import ScriptedServer

AGENT = """
import os
import whet
from whet.models import OpenAIModel

PROMPT = whet.resource("prompt", default="Answer.")
model = OpenAIModel(os.environ["URL"], "m", api_key=os.environ["KEY"])

async def answer(question: str) -> str:
    messages = [{"role": "system", "content": PROMPT.get()}, {"role": "user", "content": question}]
    return (await model.complete(messages)).text
"""
JUDGE = """
import os
from whet.judge import Judge
from whet.models import OpenAIModel

polite = Judge(OpenAIModel(os.environ["URL"], "m", api_key=os.environ["JUDGE_KEY"]), "Is it polite?", name="polite")
"""
TASKS = 300


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "desk.py").write_text(AGENT)
    (tmp_path / "judging.py").write_text(JUDGE)
    rows = [
        {"id": str(n), "instruction": f"question {n}", "answer": "yes", "group": str(n % 60)}
        for n in range(TASKS)
    ]
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    def answer(request: ModelRequest) -> str:
        return '{"reason": "it is", "score": 5}' if "polite" in str(request.messages) else "yes"

    with ScriptedServer(answer, models=("m",), api_key="right") as opened:
        yield opened


def typed(
    folder: Path, server: ScriptedServer, *words: str, key: str = "wrong", judge: str = "wrong"
) -> tuple[int, str]:
    """Exit code and what was said of an error."""
    variables = {"URL": server.base_url, "KEY": key, "JUDGE_KEY": judge}
    done = whet_command(*words, folder=folder, **variables)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


DATA = ("--store", "runs.db", "--data", "tasks.jsonl", "--reward", "exact")


@pytest.mark.parametrize(
    "words",
    [
        ("baseline", "desk:answer", *DATA),
        ("improve", "desk:answer", *DATA),
        ("gate", "live", "none", "--entry", "desk:answer", *DATA),
    ],
    ids=lambda words: words[0],
)
def test_an_agent_whose_key_is_refused_is_asked_no_more(
    folder: Path, server: ScriptedServer, words: tuple[str, ...]
) -> None:
    code, said = typed(folder, server, *words)
    assert code == 7
    assert said.count("error:") == 1
    assert "the model cannot be asked" in said
    assert "401" in said
    # As many as are asked at once, and not all.
    assert 0 < len(server.requests) < TASKS / 3


def test_after_the_key_is_given_the_same_command_measures(folder: Path, server: ScriptedServer) -> None:
    words = ("baseline", "desk:answer", *DATA, "--tasks", "40", "--json")
    assert typed(folder, server, *words)[0] == 7
    assert typed(folder, server, *words, key="right")[0] == 0
    with whet.Store(folder / "runs.db") as store:
        answered = [run for run in store.trajectories() if run.output == "yes"]
    assert len(answered) == 40


def test_a_judge_whose_key_is_refused_is_asked_no_more_and_what_it_judged_is_kept(
    folder: Path, server: ScriptedServer
) -> None:
    with whet.Store(folder / "runs.db") as store:
        tasks = [whet.Task(id=str(n), instruction=f"question {n}") for n in range(TASKS)]
        store.put(*(whet.Trajectory(task=each, output="yes", outcome=whet.Outcome.SUCCESS) for each in tasks))
    code, said = typed(folder, server, "score", "--store", "runs.db", "--reward", "judging:polite")
    assert code == 7
    assert said.count("error:") == 1
    assert "the judge polite cannot be asked" in said
    assert 0 < len(server.requests) < TASKS / 3
    words = (
        "baseline",
        "desk:answer",
        "--store",
        "new.db",
        "--data",
        "tasks.jsonl",
        "--reward",
        "judging:polite",
    )
    before = len(server.requests)
    code, said = typed(folder, server, *words, key="right")
    assert code == 7
    assert "the judge polite cannot be asked" in said
    assert len(server.requests) - before < TASKS
