"""People over HTTP and from the command line: who there is, what is kept of them, erasure, and retention as a rule."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest
from processes import until
from server_world import TOKENS, World, bearer, before_a_model, world

from whet.cli import app
from whet.record.store import Store
from whet.serve import Role
from whet.types import Task, Trajectory

DAY = 86_400.0


def put(here: World, *given: tuple[str, str | None, str | None]) -> None:
    rows = [
        {"id": id, "task": {"instruction": f"asked by {subject}"}, "subject": subject, "session": session}
        for id, subject, session in given
    ]
    here.post("/api/trajectories", {"trajectories": rows})


def ids(here: World, **query: str) -> list[str]:
    asked = "&".join(f"{key}={value}" for key, value in query.items())
    return [one["id"] for one in here.get(f"/api/trajectories?{asked}")["trajectories"]]


def test_people_are_listed_described_and_erased(tmp_path: Path) -> None:
    with world(tmp_path / "runs.db") as here:
        put(here, ("a1", "ann", "s1"), ("a2", None, "s1"), ("b1", "bob", "s2"), ("n1", None, None))
        described = [{"id": "ann", "meta": {"plan": "free"}}, {"id": "cyd", "meta": {"plan": "paid"}}]
        assert here.post("/api/subjects", {"subjects": described})["ids"] == ["ann", "cyd"]
        assert here.get("/api/subjects")["subjects"] == [
            {"id": "ann", "meta": {"plan": "free"}, "trajectories": 1},
            {"id": "bob", "meta": {}, "trajectories": 1},
            {"id": "cyd", "meta": {"plan": "paid"}, "trajectories": 0},
        ]
        after = here.get("/api/subjects?after=ann&limit=1")["subjects"]
        assert [one["id"] for one in after] == ["bob"]
        assert ids(here, subject="ann") == ["a1"]
        assert ids(here, session="s1") == ["a1", "a2"]
        refused = here.http.post("/api/erase", json={"subject": "ann"}, headers=bearer(Role.WRITE))
        assert refused.status_code == 403
        assert ids(here, subject="ann") == ["a1"]
        said = here.post("/api/erase", {"subject": "ann"}, Role.ADMIN)
        assert said["trajectories"] == 2
        assert any("copies outside" in line for line in said["remains"])
        assert ids(here) == ["b1", "n1"]
        assert [one["id"] for one in here.get("/api/subjects")["subjects"]] == ["bob", "cyd"]
        put(here, ("a1", "ann", "s1"))
        assert ids(here) == ["b1", "n1"], "what was erased does not come back"


def test_a_secret_in_what_is_kept_of_a_person_is_not_stored(tmp_path: Path) -> None:
    secret = "sk-" + "a1B2c3D4e5F6g7H8i9J0" * 2
    with world(tmp_path / "runs.db") as here:
        here.post("/api/subjects", {"subjects": [{"id": "ann", "meta": {"key": secret}}]})
        (kept,) = here.get("/api/subjects")["subjects"]
        assert "redacted" in kept["meta"]["key"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/erase", {"subject": ""}),
        ("/api/erase", {}),
        ("/api/retain", {"days": -1}),
        ("/api/retain", {"days": 1, "keep": ["everything"]}),
        ("/api/subjects", {"subjects": [{"id": "", "meta": {}}]}),
    ],
)
def test_what_cannot_be_meant_is_refused_and_nothing_goes(path: str, body: Any) -> None:
    with world() as here:
        put(here, ("a1", "ann", None))
        answered = here.http.post(path, json=body, headers=bearer(Role.ADMIN))
        assert answered.status_code == 400, answered.text
        assert ids(here) == ["a1"]


def test_model_calls_of_a_person_through_the_gateway_go_with_them(tmp_path: Path) -> None:
    with before_a_model(tmp_path / "runs.db") as here:
        for subject in ("ann", "bob"):
            body = {"model": "scripted", "messages": [{"role": "user", "content": f"I am {subject}"}]}
            headers = {**bearer(Role.WRITE), "x-whet-subject": subject, "x-whet-session": f"{subject}-s"}
            assert here.http.post("/v1/chat/completions", json=body, headers=headers).status_code == 200
        until(lambda: len(ids(here)) == 2)
        assert len(ids(here, session="ann-s")) == 1
        said = here.post("/api/erase", {"subject": "ann"}, Role.ADMIN)
        assert (said["trajectories"], said["spans"]) == (1, 1)
        assert [one["subject"] for one in here.get("/api/trajectories")["trajectories"]] == ["bob"]
    assert b"I am ann" not in (tmp_path / "runs.db").read_bytes()


def test_of_a_run_that_served_several_only_the_persons_own_calls_go_and_it_goes_on(tmp_path: Path) -> None:
    with before_a_model(tmp_path / "runs.db") as here:

        def call(subject: str) -> None:
            body = {"model": "scripted", "messages": [{"role": "user", "content": f"I am {subject}"}]}
            headers = {**bearer(Role.WRITE), "x-whet-subject": subject, "x-whet-run": "program"}
            assert here.http.post("/v1/chat/completions", json=body, headers=headers).status_code == 200

        def told() -> list[str]:
            return [step.observation[-1]["text"] for run in here.store.trajectories() for step in run.steps]

        call("ann")
        call("bob")
        until(lambda: told() == ["I am ann", "I am bob"])
        said = here.post("/api/erase", {"subject": "bob"}, Role.ADMIN)
        assert (said["trajectories"], said["spans"]) == (1, 1)
        assert any("served several people" in line for line in said["remains"])
        call("cyd")
        until(lambda: told() == ["I am ann", "I am cyd"])
        assert here.post("/api/erase", {"subject": "ann"}, Role.ADMIN)["spans"] == 1
        assert [span.body.count(b"I am cyd") for span in here.store.spans.run("program")] == [1]
    assert b"I am bob" not in (tmp_path / "runs.db").read_bytes()


def test_retention_is_a_rule_of_the_server(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with Store(path) as store:
        store.put(
            Trajectory(task=Task(id="t"), id="old", started=time.time() - 40 * DAY),
            Trajectory(task=Task(id="t"), id="new"),
        )
    command = [sys.executable, "-m", "whet", "serve", "--store", str(path), "--port", "0"]
    command += ["--token", TOKENS[Role.ADMIN], "--keep-days", "30"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().split(" on ")[1].split(";")[0]

            def left() -> list[str]:
                answered = httpx2.get(f"{url}/api/trajectories", headers=bearer(Role.ADMIN), timeout=90)
                return [one["id"] for one in answered.json()["trajectories"]]

            until(lambda: left() == ["new"])
        finally:
            process.terminate()
            process.wait(90)


def test_trajectories_of_a_person_or_a_conversation_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "runs.db"
    with Store(path) as store:
        for id, subject, session in (("a", "ann", "s"), ("b", "bob", "s"), ("c", "ann", "t")):
            store.put(Trajectory(task=Task(id="t"), id=id, subject=subject, session=session))

    def shown(*words: str) -> list[str]:
        given = ["show", "trajectories", "--store", str(path), "--json", *words]
        assert app(given, result_action="return_value") == 0
        return [json.loads(line)["id"] for line in capsys.readouterr().out.splitlines()]

    assert shown("--subject", "ann") == ["a", "c"]
    assert shown("--session", "s") == ["a", "b"]
    assert shown("--session", "s", "--subject", "ann") == ["a"]
