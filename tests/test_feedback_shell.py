"""Feedback from the shell: what is said in words is recorded, shown and counted at once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import whet
from whet.cli import app
from whet.errors import InputError
from whet.judge import thumbs
from whet.record.store import Store
from whet.types import Step, Task, Trajectory


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A record of three runs of two people."""
    tool = Step(kind="tool", name="look_up", observation={"order": 7}, action="sent")
    with Store(tmp_path / "runs.db") as store:
        store.put(
            Trajectory(
                id="a",
                task=Task(instruction="Where is order 7?"),
                output="It is sent.",
                subject="ann",
                steps=[tool],
            ),
            Trajectory(id="b", task=Task(instruction="Is it red?"), output="Yes.", subject="bob"),
            Trajectory(id="c", task=Task(instruction="Is it blue?"), output="No.", subject="bob"),
        )
    return tmp_path / "runs.db"


def run(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert app([str(word) for word in words], result_action="return_value") == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "kind", "value"),
    [
        (["up"], "thumb", 1),
        (["down"], "thumb", -1),
        (["-1"], "thumb", -1),
        (["1"], "thumb", 1),
        (["undo"], "thumb", 0),
        (["too long"], "comment", None),
        (["too", "long"], "comment", None),
        (["down", "no unit", "--correct", "2 years"], "thumb", -1),
        (["--correct", "Order 7 is sent."], "correction", None),
        (["--value", "0", "--kind", "rating"], "rating", 0),
        (["--value", "-1"], "thumb", -1),
    ],
)
def test_a_word_is_a_thumb_and_words_are_a_comment(
    path: Path, capsys: pytest.CaptureFixture[str], words: list[str], kind: str, value: float | None
) -> None:
    run(capsys, "feedback", "a", *words, "--store", path)
    with Store(path) as store:
        (note,) = store.trajectory("a").feedback
    assert (note.kind, note.value) == (kind, value)


@pytest.mark.parametrize("number", ["0", "0.5", "-2", "nan"])
def test_a_number_that_is_no_thumb_is_refused(path: Path, number: str) -> None:
    """Some count thumbs as 1 and 0: recorded as a comment, such a thumb down would be lost."""
    with pytest.raises(InputError, match=f"'{number}' is not a thumb: say up or down"):
        app(["feedback", "a", number, "--store", str(path)], result_action="return_value")
    with Store(path) as store:
        assert not store.trajectory("a").feedback


def test_a_thumb_shows_at_once(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "thumb down on a" in run(capsys, "feedback", "a", "down", "--store", path)
    run(capsys, "feedback", "a", "names no order", "--correct", "Order 7 is sent.", "--store", path)
    run(capsys, "feedback", "b", "up", "--store", path)
    listed = run(capsys, "show", "trajectories", "--store", path).splitlines()
    assert all(
        judged in line for judged, line in zip(("thumb down", "thumb up", "unknown"), listed, strict=True)
    )
    counts = json.loads(run(capsys, "show", "--store", path, "--json"))["counts"]
    assert counts["feedback.down"] == counts["feedback.up"] == counts["feedback.correction"] == 1
    talk = run(capsys, "show", "a", "--store", path)
    assert "user: Where is order 7?" in talk
    assert 'tool: look_up({"order":7}) → sent' in talk
    assert "agent: It is sent." in talk
    assert "person: correction: Order 7 is sent., 'names no order'" in talk
    assert "thumb down; " in talk


def test_filters_find_the_runs_to_read(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, "feedback", "a", "down", "--store", path)
    run(capsys, "feedback", "b", "up", "--store", path)

    def found(*words: str) -> str:
        lines = run(capsys, "show", "trajectories", "--store", path, "--json", *words).splitlines()
        return "".join(json.loads(line)["id"] for line in lines)

    assert found("--down") == "a"
    assert found("--up") == "b"
    assert found("--unrated") == "c"
    assert found("--contains", "RED") == "b"
    assert found("--user", "bob") == "bc"
    assert found("--user", "bob", "--unrated", "--limit", "1") == "c"
    assert "user: Where is order 7?" in run(
        capsys, "show", "trajectories", "--store", path, "--down", "--whole"
    )
    with pytest.raises(InputError, match="exclude each other"):
        app(["show", "trajectories", "--store", str(path), "--down", "--up"])


def test_zero_is_no_trap(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Store(path) as store, pytest.raises(InputError, match="a thumb down is -1"):
        whet.feedback("a", 0, store=store)
    with pytest.raises(InputError, match="a thumb down is -1"):
        app(["feedback", "a", "--value", "0", "--store", str(path)])
    run(capsys, "feedback", "a", "down", "--store", path)
    run(capsys, "feedback", "a", "undo", "--store", path)
    assert "unknown" in run(capsys, "show", "trajectories", "--store", path).splitlines()[0]
    with Store(path) as store:
        assert thumbs(store.trajectory("a")) is None


def test_a_thumb_on_a_run_that_is_not_there_is_kept_and_says_so(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = run(capsys, "feedback", "late", "down", "--store", path)
    assert "no run late is recorded" in told
    assert "whet show trajectories lists those that are there" in told
    assert json.loads(run(capsys, "feedback", "late", "up", "--store", path, "--json"))["recorded"] is False
    assert json.loads(run(capsys, "feedback", "a", "up", "--store", path, "--json"))["recorded"] is True
    with Store(path) as store:
        store.put(Trajectory(id="late", task=Task(instruction="Is it late?"), output="Yes."))
        (joined,) = store.trajectories(ids=["late"])
    assert [entry.value for entry in joined.feedback] == [-1.0, 1.0]
