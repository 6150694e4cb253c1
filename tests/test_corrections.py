"""A correction given through any entrance is on the run's Feedback, and is what rows and tasks made from it expect."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from server_world import World, world

import whet
from whet.cli import app
from whet.errors import InputError
from whet.learn.datasets.recorded import recorded
from whet.learn.datasets.signatures import read
from whet.record.store import Store
from whet.record.tracing import flush

CORRECTIONS = ["Paris", {"city": "Paris"}, ["Paris"], 0, False, "", None]


def by_python(here: World, run: str, correction: Any, folder: Path) -> None:
    whet.feedback(run, correction=correction, kind="correction", store=here.store)
    assert flush()


def by_api(here: World, run: str, correction: Any, folder: Path) -> None:
    here.post("/api/feedback", {"feedback": [{"run": run, "kind": "correction", "correction": correction}]})


def by_shell(here: World, run: str, correction: Any, folder: Path) -> None:
    file = folder / "correction.json"
    file.write_text(json.dumps(correction))
    words = ["feedback", run, "--store", here.store.path, "--correction-file", str(file)]
    assert app(words, result_action="return_value") == 0


@pytest.mark.parametrize("correct", [by_python, by_api, by_shell])
@pytest.mark.parametrize("correction", CORRECTIONS, ids=json.dumps)
def test_a_correction_is_on_the_feedback_the_task_and_the_row(
    correct: Callable[..., None], correction: Any, tmp_path: Path
) -> None:
    with world(tmp_path / "runs.db") as here:

        @whet.trace(here.store)
        def capital(country: str) -> str:
            return "Rome"

        with whet.run() as run:
            capital("France")
        assert flush()
        correct(here, run.id, correction, tmp_path)
        (done,) = here.store.trajectories()
        (said,) = done.feedback
        assert (said.kind, said.correction) == ("correction", correction)
        (task,) = whet.tasks(here.store)
        assert task.answer_known
        assert task.answer == correction
        signature = read("def capital(country: str) -> str: ...", "capital")
        (row,) = recorded(signature, done.meta["function"], [done])
        assert row.answer == correction
        assert row.answer_known


def said_of_a_run(store: Store, **said: Any) -> whet.Task:
    @whet.trace(store)
    def capital(country: str) -> str:
        return "Rome"

    with whet.run() as run:
        capital("France")
    whet.feedback(run, store=store, **said)
    assert flush()
    return whet.tasks(store)[0]


def test_the_answer_of_a_preference_is_the_chosen_one() -> None:
    with Store(":memory:") as store:
        task = said_of_a_run(store, correction={"chosen": "Paris", "rejected": "Rome"}, kind="preference")
        assert task.answer == "Paris"


@pytest.mark.parametrize("said", [{"value": -1.0}, {"comment": "no"}, {"value": 1.0, "correction": None}])
def test_what_corrects_nothing_leaves_the_answer_unknown(said: dict[str, Any]) -> None:
    with Store(":memory:") as store:
        assert not said_of_a_run(store, **said).answer_known


def test_a_correction_of_a_step_is_not_the_answer_to_the_task() -> None:
    with Store(":memory:") as store:
        assert not said_of_a_run(store, correction="search again", step="s1").answer_known


def test_a_kind_that_takes_a_correction_is_refused_without_one(tmp_path: Path) -> None:
    with Store(tmp_path / "runs.db") as store, pytest.raises(InputError, match="what should have been"):
        whet.feedback("run", kind="correction", store=store)
    with pytest.raises(InputError, match="what should have been"):
        app(["feedback", "run", "--store", str(tmp_path / "runs.db"), "--kind", "correction"])


def test_the_shell_says_what_it_recorded_and_of_what(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "runs.db"
    Store(path).close()
    words = ["feedback", "later", "--store", str(path)]
    for more in (["--value", "-1"], ["--value", "0.5"], ["--correction", "Paris"], ["--comment", "fine"]):
        assert app([*words, *more], result_action="return_value") == 0
    told = capsys.readouterr().out
    assert [line.split(": ")[1].split()[0] for line in told.splitlines()] == [
        "thumb",
        "rating",
        "correction",
        "comment",
    ]
    assert "the feedback is kept and joins it when it arrives" in told
