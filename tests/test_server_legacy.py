"""The Agent Lightning 0.1 protocol: its client's own requests, as recorded, and what must not go wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from server_world import World, world

from whet.record.store import bundle_of
from whet.types import Bundle

EXCHANGE = Path(__file__).parent / "agentlightning_0_1.json"
"""Written by `integrations/agentlightning_0_1/check.py --record` with agentlightning==0.1.2."""


def queue(here: World, *names: str, **given: Any) -> None:
    rollouts = [
        {"id": f"al-{name}", "task": {"instruction": name, "initial_state": {"row": 1}}, **given}
        for name in names
    ]
    here.post("/api/rollouts", {"rollouts": rollouts})


def resources(here: World) -> str:
    given = {
        "prompt": "You are {name}.",
        "llm": {"resource_type": "llm", "endpoint": "http://127.0.0.1:9/v1", "model": "some-model"},
        "table": {"only": "whet reads this"},
    }
    return here.store.release(bundle_of(given), unproven=True, new_names=True).bundle.id


def masked(value: Any) -> Any:
    """Without what differs between two runs: times."""
    if isinstance(value, dict):
        return {name: masked(inner) for name, inner in value.items() if name != "create_time"}
    return value


def test_the_recorded_exchange_of_its_client_goes_as_it_went() -> None:
    exchange = msgspec.json.decode(EXCHANGE.read_bytes())
    assert {(one["method"], one["path"].split("/")[1]) for one in exchange} == {
        ("GET", "task"),
        ("GET", "resources"),
        ("POST", "rollout"),
    }
    with world(open_legacy=True) as here:
        resources(here)
        queue(here, "reward", "triplets", "raise")
        for one in exchange:
            headers = {
                name: text for name, text in one["headers"].items() if name.lower() != "content-length"
            }
            body = None if one["sent"] is None else msgspec.json.encode(one["sent"])
            answered = here.http.request(one["method"], one["path"], headers=headers, content=body)
            assert answered.status_code == one["status"], (one["path"], answered.text)
            assert masked(answered.json()) == masked(one["answered"])
        assert here.get("/api/trajectories/al-reward")["scores"]["reward"]["value"] == 0.5
        triplets = here.get("/api/trajectories/al-triplets")
        assert triplets["steps"][0]["observation"] == "You are {name}."
        assert triplets["steps"][0]["reward"] == 0.25
        assert set(triplets["versions"]) == {"prompt", "llm", "table"}


def test_a_reward_that_was_not_reported_is_missing_and_not_zero() -> None:
    with world(open_legacy=True) as here:
        queue(here, "raise")
        task = here.http.get("/task").json()["task"]
        assert here.http.post("/rollout", json={"rollout_id": task["rollout_id"]}).status_code == 200
        score = here.get("/api/trajectories/al-raise")["scores"]["reward"]
        assert score["value"] is None
        assert score["reason"]


def test_secrets_in_a_report_are_not_stored() -> None:
    key = "sk-ant-" + "a1b2c3d4" * 4
    with world(open_legacy=True) as here:
        queue(here, "triplets")
        task = here.http.get("/task").json()["task"]
        said = [{"prompt": f"my key is {key}", "response": {"text": "thanks"}, "reward": 1.0}]
        report = {"rollout_id": task["rollout_id"], "final_reward": 1.0, "triplets": said, "logs": [key]}
        assert here.http.post("/rollout", json=report).status_code == 200
        found = here.get("/api/trajectories/al-triplets")
        assert found["steps"][0]["observation"] == "my key is [redacted:anthropic-key]"
        assert found["meta"]["untrainable"]
        assert key not in str(found)


def test_its_client_is_given_resources_even_where_none_were_put() -> None:
    with world(open_legacy=True) as here:
        came = {"resources_id": Bundle().id, "resources": {}}
        assert here.http.get("/resources/latest").json() == came
        assert here.http.get(f"/resources/{Bundle().id}").json() == came
        assert here.http.get("/resources/unknown").status_code == 404


def test_a_rollout_runs_under_what_was_live_when_it_was_claimed() -> None:
    with world(open_legacy=True) as here:
        first = resources(here)
        queue(here, "reward")
        task = here.http.get("/task").json()["task"]
        assert task["resources_id"] == first
        here.store.release(bundle_of({"prompt": "another"}), unproven=True)
        here.http.post("/rollout", json={"rollout_id": task["rollout_id"], "final_reward": 1.0})
        assert set(here.get("/api/trajectories/al-reward")["versions"]) == {"prompt", "llm", "table"}


@pytest.mark.parametrize("id", ["al-reward", "al-reward:", "al-reward:x", ":1", "", "al-reward:" + "9" * 40])
def test_a_report_for_what_was_never_given_out_is_refused(id: str) -> None:
    with world(open_legacy=True) as here:
        queue(here, "reward")
        refused = here.http.post("/rollout", json={"rollout_id": id, "final_reward": 1.0})
        assert refused.status_code == 400, refused.text
        assert here.get("/api/rollouts/counts")["counts"]["queued"] == 1


def test_a_report_under_a_fence_that_is_not_current_is_refused() -> None:
    with world(open_legacy=True) as here:
        queue(here, "reward")
        task = here.http.get("/task").json()["task"]
        id, _, fence = task["rollout_id"].rpartition(":")
        late = here.http.post("/rollout", json={"rollout_id": f"{id}:{int(fence) + 1}", "final_reward": 1.0})
        assert late.status_code == 409
        assert here.http.post("/rollout", json={"rollout_id": "nobody:1"}).status_code == 404
