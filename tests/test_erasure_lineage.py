"""Erasing a person reaches what was made of their runs: rollouts, datasets, Versions, and says what remains."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

import whet
from whet.cli import app
from whet.errors import NotFoundError
from whet.learn.loop import Context, Update
from whet.record.lineage import learned_from
from whet.record.store import Store
from whet.record.tasks import to_jsonl
from whet.types import Bundle, Group, Outcome, Split, Step, Task, Tokens, Trajectory, Version

SECRET = "Where does Ann live?"


def run(*words: object) -> int:
    code: int = app([str(word) for word in words], result_action="return_value")
    return code


def asked(name: str, subject: str, question: str, number: int) -> Trajectory:
    tokens = Tokens(
        prompt_ids=(1, 2, 3 + number % 3), output_ids=(4, 5), logprobs=(-0.7, -0.7), policy_version="p"
    )
    step = Step(observation=question, action="yes", kind="llm", reward=1.0, tokens=tokens, id="0")
    return Trajectory(
        task=Task(instruction=question),
        id=name,
        subject=subject,
        session=f"{subject}-s",
        steps=(step,),
        output="yes",
        outcome=Outcome.SUCCESS,
        started=1_000.0 + number,
        meta={"function": "answer"},
    )


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "runs.db"
    with Store(path) as opened:
        opened.put(*(asked(f"ann{n}", "ann", SECRET, n) for n in range(2)))
        opened.put(*(asked(f"bob{n}", "bob", f"When is meeting {n}?", n) for n in range(4)))
    return path


class Remember:
    """Makes a Version of whatever the groups are about."""

    name, group_size, on_policy, ordered = "remember", 1, False, False

    async def step(self, bundle: Bundle, groups: object, context: Context) -> Update:
        return Update(bundle=bundle.put(Version(resource="notes", content="noted")), done=True)


def test_what_was_run_on_a_persons_task_goes_and_what_learned_from_it_is_marked(store: Path) -> None:
    def answer(question: str) -> str:
        return f"I was asked: {question}"

    with Store(store) as opened:
        tasks = [replace(task, split=Split.TRAIN) for task in whet.tasks(opened)]
        experiment = whet.Experiment(
            env=whet.calls(answer), tasks=tasks, rewards=[lambda trajectory: 1.0], seed=0, store=opened
        )
        better = asyncio.run(experiment.improve(Remember()))
        asyncio.run(experiment.collect(Bundle(), tasks=tasks))
        opened.set_live(better.bundle)
        assert set(better.bundle["notes"].meta["data"]) >= {"ann0", "ann1", "bob0", "bob1", "bob2", "bob3"}
        before = opened.counts()["trajectories"]
        found = opened.erase("ann")
        left = list(opened.trajectories())
        assert found.trajectories > 2, "what an experiment ran on the task of an erased run holds its words"
        assert before - len(left) == found.trajectories
        assert {each.subject for each in left} == {"bob", None}
        assert any(each.subject is None for each in left), "what was run on others' tasks stays"
        assert [opened.version(id).resource for id in found.versions] == ["notes"]
        assert found.live == ("live",)
    assert SECRET.encode() not in store.read_bytes()


def test_a_version_names_what_it_and_the_one_before_it_were_made_from() -> None:
    first = learned_from(
        [Group(Task(id="t"), (asked("a", "ann", "q", 0),))],
        Bundle([Version(resource="p", content=1), Version(resource="q", content=1)]),
        Bundle([Version(resource="q", content=1)]),
    )
    assert first["p"].meta["data"] == ["a"]
    assert "data" not in first["q"].meta, "it was there before"
    later = Task(id="u", meta={"trajectories": ["b", "c"]})
    second = learned_from([Group(later, ())], first.put(Version(resource="p", content=2)), first)
    assert second["p"].meta["data"] == ["a", "b", "c"]
    assert second["p"].id == Version(resource="p", content=2).id


def test_weights_that_a_command_trained_and_files_of_rows_are_found(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    weights, rows = tmp_path / "weights", tmp_path / "whet_data" / "answer"
    words = ["train", "sft", "--store", store, "--output", weights, "--epochs", "1", "--ids-only", "--json"]
    assert run(*words) == 0
    rows.mkdir(parents=True)
    with Store(store) as opened:
        (made,) = opened.versions()
        assert set(made.meta["data"]) == {each.id for each in opened.trajectories()}
        to_jsonl(rows / "tasks.jsonl", whet.tasks(opened))
    capsys.readouterr()
    with pytest.raises(NotFoundError, match="missing"):
        run("erase", "ann", "--store", store, "--data", tmp_path / "missing")
    with Store(store) as opened:
        assert len(list(opened.trajectories(subject="ann"))) == 2, "nothing goes before all was found"
    capsys.readouterr()
    assert run("erase", "ann", "--store", store, "--data", tmp_path / "whet_data", "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["versions"] == [made.id]
    assert [(Path(one["path"]).name, one["rows"], one["left"]) for one in said["files"]] == [
        ("tasks.jsonl", 1, 4)
    ]
    assert SECRET not in (rows / "tasks.jsonl").read_text()
    assert SECRET.encode() not in store.read_bytes()
    assert run("capture", "check", "--store", store) == 0
    assert "4 trajectories" in capsys.readouterr().out
    assert run("show", "trajectories", "--store", store, "--json") == 0
    assert "ann" not in capsys.readouterr().out
    with sqlite3.connect(store) as connection:
        for view in ("messages", "operations", "labels"):
            assert "ann" not in repr(connection.execute(f"SELECT * FROM {view}").fetchall())
    connection.close()
