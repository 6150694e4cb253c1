"""Feedback over HTTP: levels, kinds, lateness, repetition."""

from __future__ import annotations

from typing import Any

import pytest
from server_world import bearer, world

from whet.serve import Role

KINDS = [
    {"kind": "thumb", "value": -1, "comment": "no"},
    {"kind": "rating", "value": 3.5},
    {"kind": "correction", "correction": "it should have said this"},
    {"kind": "demonstration", "correction": [{"action": "click"}]},
    {"kind": "preference", "correction": {"chosen": "a", "rejected": "b"}},
]


def test_each_kind_is_kept_at_each_level() -> None:
    levels = ({"run": "r"}, {"session": "s"}, {"run": "r", "step": "2"})
    given = [{**level, **kind} for level in levels for kind in KINDS]
    with world() as here:
        ids = here.post("/api/feedback", {"feedback": given})["ids"]
        found = {one["id"]: one for one in here.get("/api/feedback")["feedback"]}
        assert [found[id] | said for id, said in zip(ids, given, strict=True)] == [found[id] for id in ids]


def test_feedback_that_came_before_its_run_is_joined_to_it() -> None:
    with world() as here:
        here.post("/api/feedback", {"feedback": [{"run": "t1", "value": 1, "id": "f1", "at": 5.0}]})
        here.post("/api/trajectories", {"trajectories": [{"id": "t1", "task": {"instruction": "x"}}]})
        (found,) = here.get("/api/trajectories/t1")["feedback"]
        assert (found["id"], found["at"]) == ("f1", 5.0)


def test_another_trajectory_under_an_id_that_is_taken_is_refused_and_the_same_one_again_is_not() -> None:
    def one(words: str) -> dict[str, Any]:
        return {"id": "t1", "task": {"instruction": "x"}, "output": words}

    with world() as here:
        here.post("/api/trajectories", {"trajectories": [one("with the token sk-ant-" + "a1b2c3d4" * 4)]})
        here.post("/api/trajectories", {"trajectories": [one("with the token sk-ant-" + "a1b2c3d4" * 4)]})
        for clashing in (
            [one("other") | {"id": "t2"}, one("other")],
            [one(words) | {"id": "t3"} for words in "ab"],
        ):
            refusal = here.http.post(
                "/api/trajectories", json={"trajectories": clashing}, headers=bearer(Role.WRITE)
            )
            assert refusal.status_code == 409
            assert clashing[1]["id"] in refusal.json()["error"]["message"]
        assert [each["id"] for each in here.get("/api/trajectories")["trajectories"]] == ["t1"]


def test_secrets_in_what_people_say_are_not_stored() -> None:
    key = "sk-ant-" + "a1b2c3d4" * 4
    said = {"run": "r", "kind": "correction", "comment": f"not {key}", "correction": {"say": [key]}}
    with world() as here:
        here.post("/api/feedback", {"feedback": [said]})
        (found,) = here.get("/api/feedback")["feedback"]
        assert found["comment"] == "not [redacted:anthropic-key]"
        assert found["correction"] == {"say": ["[redacted:anthropic-key]"]}


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"value": 1},
        {"run": "r", "session": "s", "value": 1},
        {"session": "s", "step": "1", "value": 1},
        {"run": "r"},
        {"run": "r", "kind": "thumb", "value": 0.5},
        {"run": "r", "kind": "rating"},
        {"run": "r", "kind": "correction"},
        {"run": "r", "kind": "preference", "correction": {"chosen": "a"}},
        {"run": "r", "kind": "applause", "value": 1},
        {"run": "", "value": 1},
        {"run": "r", "value": 1, "latest": True},
    ],
)
def test_feedback_that_could_not_be_used_is_refused_and_so_is_what_came_with_it(said: dict[str, Any]) -> None:
    with world() as here:
        body = {"feedback": [{"run": "fine", "value": 1}, said]}
        refused = here.http.post("/api/feedback", json=body, headers=bearer(Role.WRITE))
        assert refused.status_code == 400, refused.text
        assert here.get("/api/feedback")["feedback"] == []
