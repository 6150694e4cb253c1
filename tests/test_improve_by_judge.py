"""A model that judges answers, beside a table: for a prompt's file, an agent's file and the agent's function."""

from __future__ import annotations

import csv
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import whet
from test_fitted import ARTICLES
from test_improve_agent_table import CLOSINGS, OPENINGS, PLACES
from test_improve_thumbs import PROMPT, RULES, adviser, chance_of, said

from whet.models.base import ModelRequest, text_of
from whet.models.fakes import ScriptedServer

CLIENT = '''"""As much of an SDK as the desk needs."""

import json
import os
import urllib.request


class Completions:
    def create(self, **body):
        request = urllib.request.Request(os.environ["DESK_URL"] + "/chat/completions", json.dumps(body).encode())
        with urllib.request.urlopen(request) as reply:
            return json.load(reply)["choices"][0]["message"]["content"]


class Chat:
    completions = Completions()


class Client:
    chat = Chat()
'''
AGENT = f'''from sdk import Client

SYSTEM_PROMPT = "{PROMPT}"
client = Client()


def answer(question: str) -> str:
    messages = [{{"role": "system", "content": SYSTEM_PROMPT}}, {{"role": "user", "content": question}}]
    return client.chat.completions.create(model="desk", messages=messages)
'''
RUBRIC = "A good answer tells the person what the right answer tells them."
AT_LENGTH = "Thank you for writing to us, we have looked into it with care and are glad to tell you this: "


def ask(request: ModelRequest) -> str:
    """The desk; where no system message says how to answer, the prompt stands before the question."""
    texts = [text_of(message) for message in request.messages]
    prompt, question = texts if len(texts) == 2 else texts[0].split("\n\n", 1)
    return AT_LENGTH + said(prompt, question, chance_of(prompt, question))[0]


class Reader:
    """Marks an answer by the right one; or by a coin, which is its own for each answer."""

    coin = False

    def __call__(self, request: ModelRequest) -> str:
        text = text_of(request.messages[-1])
        shown = json.loads(re.search(r"^\{.*\}$", text, re.MULTILINE)[0])  # type: ignore[index]
        good = shown["answer"] == shown["right_answer"]
        if self.coin:
            good = random.Random(text).random() < 0.5
        return f"As the rubric says.\nSCORE: {9 if good else 2}"


@pytest.fixture
def reader() -> Reader:
    return Reader()


@pytest.fixture
def server(reader: Reader) -> Iterator[ScriptedServer]:
    with ScriptedServer(by_model={"desk": ask, "adviser": adviser, "reader": reader}) as opened:
        yield opened


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The agent, a prompt's file, a table whose right answers are long, and answers that people labelled."""
    (tmp_path / "sdk.py").write_text(CLIENT)
    (tmp_path / "desk.py").write_text(AGENT)
    (tmp_path / "prompt.txt").write_text(PROMPT)
    (tmp_path / "rubric.md").write_text(RUBRIC)
    draw, rows, labels = random.Random(5), [], []
    for number in range(160):
        asked = draw.choice(
            [
                f"how long is the warranty of the {draw.choice(ARTICLES)}",
                f"where is my order {4000 + number}",
                f"what is the price of a {draw.choice(ARTICLES)} next spring",
            ]
        )
        whole = f"{draw.choice(OPENINGS)} from {draw.choice(PLACES)}, {asked}? {draw.choice(CLOSINGS)}"
        right = AT_LENGTH + said("", whole, 0.0)[0]
        rows.append((f"person-{number // 2}", whole, right))
        good = draw.random() < 0.5
        answer = right if good else AT_LENGTH + said("", whole, 1.0)[0]
        labels.append({"input": f"{whole} ", "expected": right, "output": answer, "label": int(good)})
    with (tmp_path / "examples.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["customer", "question", "answer"], *rows])
    (tmp_path / "labels.jsonl").write_text("\n".join(map(json.dumps, labels)))
    return tmp_path


def improve(folder: Path, server: ScriptedServer, target: str, *words: str) -> tuple[int, str]:
    who = "desk" if target.endswith(".txt") else "adviser"
    models = ("--model", who, "--proposer-model", "adviser", "--judge-model", "reader")
    words = ("improve", target, "--data", "examples.csv", *models, "--base-url", server.base_url, *words)
    done = whet(*words, folder=folder, DESK_URL=server.base_url)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout + done.stderr


def audit(folder: Path, server: ScriptedServer) -> tuple[int, str]:
    words = (
        "audit",
        "rubric.md",
        "--labels",
        "labels.jsonl",
        "--model",
        "reader",
        "--base-url",
        server.base_url,
    )
    done = whet(*words, "--store", "runs.db", folder=folder)
    return done.returncode, done.stdout + done.stderr


def marks(server: ScriptedServer) -> list[str]:
    """What the judge was asked, each time."""
    return [str(each.body["messages"]) for each in server.requests if each.body["model"] == "reader"]


JUDGED = ("--metric", "judge", "--rubric", "rubric.md", "--store", "runs.db")


@pytest.mark.parametrize("target", ["desk.py", "desk:answer", "prompt.txt"])
def test_a_judge_with_a_card_promotes_what_it_likes_better(
    folder: Path, server: ScriptedServer, target: str
) -> None:
    code, out = audit(folder, server)
    assert code == 0, out
    before = len(marks(server))
    code, out = improve(folder, server, target, *JUDGED, *["--calls", "700"] * (target == "prompt.txt"))
    assert code == 0, out
    assert "its card in the record admits it" in out
    assert "proven better" in out
    patch = (folder / "whet_output" / "agent.patch").read_text()
    assert sum(rule in patch for rule in RULES.values()) >= 2, out
    asked = marks(server)[before:]
    assert asked
    assert len(asked) == len(set(asked)), "the same answer was paid for twice"


@pytest.mark.parametrize("target", ["desk.py", "prompt.txt"])
def test_a_judge_that_nothing_has_proven_steers_and_says_what_would_prove_it(
    folder: Path, server: ScriptedServer, target: str
) -> None:
    # Its answers are long, so nobody has to name the metric.
    code, out = improve(folder, server, target, *["--calls", "700"] * (target == "prompt.txt"))
    assert code == 1, out
    assert "metric judge: reader marks each answer from 0 to 10" in out
    assert "because the expected answers are long texts" in out
    assert "nothing has proven this judge" in out
    assert "whet audit RUBRIC --model NAME --base-url URL --labels FILE --store STORE" in out
    assert "not proven" in out
    assert not (folder / "whet_output" / "agent.patch").exists()


def test_a_coin_gets_no_card_and_promotes_nothing(
    folder: Path, server: ScriptedServer, reader: Reader
) -> None:
    reader.coin = True
    code, out = audit(folder, server)
    assert code == 1, out
    code, out = improve(folder, server, "desk.py", *JUDGED)
    assert code == 1, out
    assert not (folder / "whet_output" / "agent.patch").exists()


def test_a_rubric_that_is_no_file_is_said_before_anybody_is_asked(
    folder: Path, server: ScriptedServer
) -> None:
    code, out = improve(folder, server, "desk.py", "--metric", "judge", "--rubric", "ruberic.md")
    assert code == 2, out
    assert "cannot read the rubric ruberic.md" in out
    assert not server.requests
