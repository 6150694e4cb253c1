"""A rubric for a judge: drafted from what people liked, accepted by a person, and proven by other people's thumbs."""

from __future__ import annotations

import json
import os
import random
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import whet as whet_command
from processes import whet as whet_process
from test_improve_thumbs import RULES, adviser, desk, record

from whet.judge.rubric import KEY
from whet.judge.rubric import recorded as recorded_rubric
from whet.models.base import ModelRequest
from whet.models.fakes import ScriptedServer
from whet.record.store import Store
from whet.types import Bundle, Version

__all__ = ["record"]

GOOD = "A good answer states the unit of a warranty, repeats the number of an order, and admits what it does not know."
CONTRARY = "A good answer is vague: it gives no unit, repeats no number and admits nothing."
PEOPLE = 20
"""With one less, a reward that is fitted to the thumbs is refused."""


def good(question: str, answer: str) -> bool:
    if "warranty" in question:
        return "years" in answer
    if "order" in question:
        return re.findall(r"\d+", question)[0] in answer
    return answer == "I do not know."


def model(request: ModelRequest) -> str:
    """Drafts a rubric, and marks answers as the rubric says that it reads."""
    text = str(request.messages[-1]["content"])
    if "Give the rubric alone" in text:
        return f"What they have in common:\n```\n{GOOD}\n```"
    if "SCORE: n" not in text:
        return adviser(request)
    shown = json.loads(re.search(r"^\{.*\}$", text, re.MULTILINE)[0])  # type: ignore[index]
    marked = good(str(shown["question"]), str(shown["answer"] or ""))
    if text.startswith(CONTRARY):
        marked = not marked
    return f"It is as the rubric says, or it is not.\nSCORE: {9 if marked else 2}"


@pytest.fixture
def judge() -> Iterator[ScriptedServer]:
    with ScriptedServer(model, models=["scripted", "agent"]) as server:
        yield server


def label(
    folder: Path, judge: ScriptedServer, *words: str, typed: str = "", **environ: str
) -> tuple[int, str]:
    server = ("--model", "scripted", "--base-url", judge.base_url)
    done = subprocess.run(
        [sys.executable, "-m", "whet", "label", "--store", "runs.db", *server, *words],
        cwd=folder,
        input=typed,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=300,
    )
    return done.returncode, done.stdout + done.stderr


def held(folder: Path) -> object:
    with Store(folder / "runs.db") as store:
        return store.state(KEY)


def test_too_few_thumbs_become_a_rubric_by_which_a_better_prompt_is_proven(
    record: object, judge: ScriptedServer
) -> None:
    folder = record(people=PEOPLE - 1)  # type: ignore[operator]
    with ScriptedServer(desk) as agent:
        words = (
            "improve",
            "desk.py",
            "--store",
            "runs.db",
            "--model",
            "scripted",
            "--base-url",
            judge.base_url,
        )
        refused = whet_command(*words, folder=folder, DESK_URL=agent.base_url)
        assert refused.returncode == 1
        assert "have a rubric drafted for a judge (whet label --store runs.db --rubric" in refused.stdout
        code, out = label(folder, judge, "--rubric", typed="a\n")
        assert code == 0, out
        assert GOOD in out
        assert re.search(r"agrees with [789]\d% of \d+ thumbs of 10 people whom the draft did not show", out)
        improved = whet_command(*words, "--reflections", "12", folder=folder, DESK_URL=agent.base_url)
    assert improved.returncode == 0, f"{improved.stdout}\n{improved.stderr}"
    assert "answers are judged by the rubric in the record" in improved.stdout
    report = json.loads((folder / "whet_output" / "verdict.json").read_text())
    assert sum(rule in report["after"] for rule in RULES.values()) >= 2


def test_a_rubric_that_says_the_contrary_is_refused(record: object, judge: ScriptedServer) -> None:
    folder = record(people=PEOPLE)  # type: ignore[operator]
    (folder / "rubric.md").write_text(CONTRARY)
    code, out = label(folder, judge, "--rubric-file", "rubric.md")
    assert code == 1
    assert "it may not judge: " in out
    assert held(folder) is None


def test_the_good_rubric_is_refused_where_thumbs_mean_nothing(record: object, judge: ScriptedServer) -> None:
    folder = record(people=PEOPLE, shuffled=True)  # type: ignore[operator]
    (folder / "rubric.md").write_text(GOOD)
    code, out = label(folder, judge, "--rubric-file", "rubric.md")
    assert code == 1
    assert "it tells no more, beyond chance, than" in out
    assert held(folder) is None


def test_a_draft_is_edited_in_the_persons_editor_or_refused(record: object, judge: ScriptedServer) -> None:
    folder = record(people=PEOPLE)  # type: ignore[operator]
    editor = folder / "editor"
    editor.write_text('#!/bin/sh\necho "Mind the unit." >> "$1"\n')
    editor.chmod(editor.stat().st_mode | stat.S_IXUSR)
    code, out = label(folder, judge, "--rubric", typed="n\ne\nr\n", EDITOR=str(editor), VISUAL="")
    assert code == 1
    assert f"{GOOD}\nMind the unit." in out
    assert held(folder) is None
    again = judge.requests[1].body["messages"][-1]["content"]  # type: ignore[index, call-overload]
    assert "Drafts that were not wanted" in str(again)
    code, out = label(folder, judge, "--rubric", typed="e\na\n", EDITOR=str(editor), VISUAL="")
    assert code == 0, out
    with Store(folder / "runs.db") as store:
        rubric = recorded_rubric(store)
    assert rubric is not None
    assert rubric.text == f"{GOOD}\nMind the unit."


def test_what_is_missing_for_a_rubric_is_said_before_a_model_is_asked(
    record: object, judge: ScriptedServer
) -> None:
    code, out = label(record(people=3), judge, "--rubric")  # type: ignore[operator]
    assert code == 1
    assert "nothing was spent: " in out
    assert judge.requests == []


def test_a_tables_prompt_is_judged_by_the_recorded_rubric(record: object, judge: ScriptedServer) -> None:
    folder = record(people=PEOPLE)  # type: ignore[operator]
    (folder / "prompt.txt").write_text("You help at the desk of a shop.")
    rows = [
        {"question": f"{'-'.join(random.Random(n).choices('aeiklmnorst', k=40))}: its warranty?", "group": n}
        | {"answer": f"{n} years, more or less"}
        for n in range(60)
    ]
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    words = ["improve", "prompt.txt", "--data", "rows.jsonl", "--metric", "judge", "--store", "runs.db"]
    words += ["--model", "agent", "--base-url", judge.base_url, "--dry-run"]
    before = whet_command(*words, folder=folder)
    assert "by the rubric in the record" not in before.stdout, before.stderr
    (folder / "rubric.md").write_text(GOOD)
    assert label(folder, judge, "--rubric-file", "rubric.md")[0] == 0
    assert "metric judge, by the rubric in the record" in whet_command(*words, folder=folder).stdout
    asked = len(judge.requests)
    done = whet_command(*words[:-1], "--calls", "120", folder=folder)
    assert done.returncode in (0, 1), done.stderr
    marked = [request.body for request in judge.requests[asked:] if "SCORE: n" in str(request.body)]
    assert marked, done.stdout + done.stderr
    # It reads as it was proven to: with the same model, and without the expected answer.
    assert {body["model"] for body in marked} == {"scripted"}  # type: ignore[index, call-overload]
    assert all(GOOD in str(body) and "more or less" not in str(body) for body in marked)


def test_the_gate_judges_by_the_recorded_rubric_and_by_no_other(
    record: object, judge: ScriptedServer
) -> None:
    folder = record(people=PEOPLE)  # type: ignore[operator]
    (folder / "shop.py").write_text(
        "import whet\n\nunit = whet.resource('unit', default='')\n\n\n"
        "@whet.trace\ndef reply(question: str) -> str:\n    return f'The warranty is 3{unit.get()}.'\n"
    )
    tasks = [
        {"instruction": f"How long is the warranty of rake {n}?", "group": f"ann {n}"} for n in range(150)
    ]
    (folder / "tasks.jsonl").write_text("\n".join(map(json.dumps, tasks)))
    better = Bundle([Version(resource="unit", content=" years")])
    with Store(folder / "runs.db") as store:
        store.put_bundle(better)
    words = ["gate", "none", better.id, "--entry", "shop:reply", "--store", "runs.db", "--reward", "rubric"]
    words += ["--data", "tasks.jsonl", "--base-url", judge.base_url]
    refused = whet_process(*words, folder=folder)
    assert refused.returncode != 0
    assert "holds no rubric that agreed with people" in refused.stderr
    (folder / "rubric.md").write_text(CONTRARY)
    assert label(folder, judge, "--rubric-file", "rubric.md")[0] == 1
    assert "holds no rubric" in whet_process(*words, folder=folder).stderr
    (folder / "rubric.md").write_text(GOOD)
    assert label(folder, judge, "--rubric-file", "rubric.md")[0] == 0
    proven = whet_process(*words, folder=folder)
    assert "HELD BACK: shown to be better" in proven.stdout, proven.stdout + proven.stderr
    worse = whet_process(*words[:1], better.id, "none", *words[3:], folder=folder)
    assert "DO NOT PROMOTE" in worse.stdout, worse.stdout + worse.stderr
