"""A worker is believed in what its agent did, and in nothing that the queue knows better."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from server_world import World, bearer, world
from test_server_queue import export
from test_server_worker import work

import whet
from whet.errors import ConflictError, GateError
from whet.judge import checked, judged
from whet.learn.loop import value_of
from whet.prove.gate import compare
from whet.record.store import Store, bundle_of
from whet.record.store.rollouts import Claim, Finish
from whet.serve import Role
from whet.serve.worker import LitAgent
from whet.types import Outcome, Rollout, Score, Task, Trajectory

KEY = "sk-ant-" + "a1b2c3d4" * 4
BUNDLE = bundle_of({"prompt": "be brief", "limit": 3})


def claim(here: World, **wanted: Any) -> list[dict[str, Any]]:
    return list(here.post("/api/rollouts/claim", {"worker": "w", **wanted})["leases"])


def queued(here: World, *ids: str, **given: Any) -> list[dict[str, Any]]:
    """Rollouts that were just claimed."""
    rollouts = [{"id": id, "task": {"id": f"task-{id}", "instruction": f"do {id}"}, **given} for id in ids]
    here.post("/api/rollouts", {"rollouts": rollouts})
    return claim(here, n=len(ids))


def finished(here: World, lease: dict[str, Any], **report: Any) -> dict[str, Any]:
    """The trajectory that a report became."""
    id = lease["rollout"]["id"]
    here.post(f"/api/rollouts/{id}/finish", {"fence": lease["fence"], **report})
    return dict(here.get(f"/api/trajectories/{here.get(f'/api/rollouts/{id}')['result']}"))


@pytest.fixture(scope="module")
def here() -> Iterator[World]:
    with world() as served:
        served.store.put_bundle(BUNDLE)
        yield served


WORDS = st.sampled_from(["", "a", "task-r0", "r0", "r0.1", "other.1", "é", "prompt", "limit"]) | st.text(
    max_size=6
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | WORDS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WORDS, inner, max_size=2),
    max_leaves=4,
)
LINEAGE = st.sampled_from(["run", "rollout", "attempt", "mode", "worker", "bundle", "mismatch", "note"])
REPORTS = st.fixed_dictionaries(
    {},
    optional={
        "id": WORDS,
        "task": st.fixed_dictionaries({}, optional={"id": WORDS, "instruction": WORDS, "group": WORDS}),
        "versions": st.dictionaries(WORDS, WORDS, max_size=3),
        "meta": st.dictionaries(LINEAGE | WORDS, VALUES, max_size=4),
        "scores": st.dictionaries(
            WORDS,
            st.fixed_dictionaries(
                {"name": WORDS, "value": st.none() | st.floats(0, 1)}, optional={"evaluator": WORDS}
            ),
            max_size=2,
        ),
        "output": VALUES,
        "outcome": st.sampled_from(["success", "failure", "unknown", "truncated"]),
        "started": st.floats(0, 1e9),
    },
)


@settings(max_examples=40)
@given(sent=REPORTS, own=st.dictionaries(WORDS, WORDS, max_size=2), of_bundle=st.booleans())
def test_whatever_a_worker_sends_the_lineage_is_the_queues(
    here: World, sent: dict[str, Any], own: dict[str, str], of_bundle: bool
) -> None:
    id, mode = whet.types.new_id(), "val" if of_bundle else "train"
    (lease,) = queued(here, id, mode=mode, **({"resources": BUNDLE.id} if of_bundle else {}))
    served = BUNDLE if of_bundle else whet.Bundle()
    done = finished(here, lease, trajectory=sent, own=own)
    assert done["id"] == here.get(f"/api/rollouts/{id}")["result"] == f"{id}.1"
    assert done["task"] == lease["rollout"]["task"]
    known = {"run": id, "rollout": id, "attempt": 1, "mode": mode, "worker": "w", "bundle": served.id}
    assert {key: done["meta"][key] for key in known} == known
    assert done["versions"] == {**own, **served.ids}
    assert all(score["evaluator"].startswith("worker:") for score in done["scores"].values())
    # Nothing of it is lost: what differs is noted as it was sent, and what an agent reports stays as it is.
    mismatch, meta = done["meta"].get("mismatch", {}), sent.get("meta", {})
    assert mismatch.get("id", sent.get("id") or done["id"]) == (sent.get("id") or done["id"])
    for key, reported in meta.items():
        assert mismatch.get(key, done["meta"].get(key)) == reported
    for name, version in sent.get("versions", {}).items():
        noted = mismatch.get("versions", {})
        assert version in (noted.get(name), done["versions"].get(name))
    assert done["output"] == sent.get("output")
    assert done["outcome"] == sent.get("outcome", "unknown")


def test_two_rollouts_reported_under_one_id_are_both_recorded(here: World) -> None:
    leases = queued(here, "x", "y")
    for lease in leases:
        done = finished(here, lease, trajectory={"id": "mine", "output": lease["rollout"]["id"]})
        assert (done["id"], done["output"]) == (f"{done['output']}.1", lease["rollout"]["id"])
        assert done["meta"]["mismatch"] == {"id": "mine"}


def test_a_trajectory_of_somebody_elses_under_an_attempts_id_stays_and_the_report_is_refused(
    here: World,
) -> None:
    taken = {"id": "t2.1", "task": {"instruction": "not of the queue"}, "output": "first"}
    here.post("/api/trajectories", {"trajectories": [taken]})
    here.post("/api/rollouts", {"rollouts": [{"id": "t4", "task": {"instruction": "next"}}]})
    leases = queued(here, "t1", "t2", "t3")
    first, second, third, _ = [*leases, *claim(here, n=4)]
    by_id = {lease["rollout"]["id"]: lease for lease in (first, second, third, _)}
    here.post("/api/rollouts", {"rollouts": [{"id": "t5", "task": {"instruction": "next"}}]})
    reports = [
        {"id": id, "fence": by_id[id]["fence"], "trajectory": {"output": id, "started": 1.0}}
        for id in ("t1", "t2", "t3")
    ]
    body = {"finished": reports, "claim": {"worker": "w"}}
    told = here.post("/api/rollouts/finish", body)
    assert [result["taken"] for result in told["results"]] == [True, False, True]
    assert "another trajectory" in told["results"][1]["message"]
    assert [lease["rollout"]["id"] for lease in told["leases"]] == ["t5"], (
        "the claim is answered all the same"
    )
    path = "/api/rollouts/t2/finish"
    alone = here.http.post(
        path, json={key: reports[1][key] for key in ("fence", "trajectory")}, headers=bearer(Role.WRITE)
    )
    assert (alone.status_code, alone.json()["error"]["type"]) == (409, "conflict")
    assert here.get("/api/trajectories/t2.1")["output"] == "first"
    assert here.get("/api/rollouts/t2")["status"] == "running", (
        "its lease stands: the next attempt has another id"
    )
    assert here.get("/api/rollouts/t3")["status"] == "succeeded"


def test_a_secret_of_a_task_is_taken_out_of_it_and_the_answer_says_so(here: World) -> None:
    task = {"instruction": f"log in with {KEY}"}
    told = here.post("/api/rollouts", {"rollouts": [{"id": "secret", "task": task}]})
    assert told["redacted"] == {"anthropic-key": 1}
    (lease,) = claim(here)
    assert lease["rollout"]["task"]["instruction"] == "log in with [redacted:anthropic-key]"
    done = finished(here, lease, trajectory={"output": f"done with {KEY}"})
    assert KEY not in json.dumps(done)
    assert done["meta"]["untrainable"]


def test_what_was_given_out_is_known_after_a_restart_too(tmp_path: Any) -> None:
    path = tmp_path / "runs.db"
    with Store(path) as store:
        store.put_bundle(BUNDLE)
        task = Task(instruction="before")
        store.add_rollouts(Rollout(id="r", task=task, resources=BUNDLE.id, mode="test"))
        (lease,) = store.queue.claim("first", lease=60).result()
    with Store(path) as store:
        sent = Trajectory(task=Task(instruction="another"), versions={"prompt": "forged"}, output="done")
        store.queue.finish("r", lease.fence, trajectory=sent).result()
        done = store.trajectory("r")
        assert (done.id, done.task, done.versions, done.output) == ("r.1", task, BUNDLE.ids, "done")
        assert (done.meta["worker"], done.meta["mode"], done.meta["bundle"]) == ("first", "test", BUNDLE.id)
        assert done.meta["mismatch"]["versions"] == {"prompt": "forged"}


def test_a_conflict_that_another_process_brings_is_met_in_the_commit() -> None:
    """Both are on their way at once: no look beforehand could tell."""
    with Store(":memory:") as store:
        queue = store.queue
        store.add_rollouts(*(Rollout(id=id, task=Task(instruction=id)) for id in ("a", "b", "c")))
        leases = queue.claim("w", n=2).result()
        reports = [
            Finish(lease.rollout.id, lease.fence, Trajectory(task=Task(instruction="x"))) for lease in leases
        ]
        rival = store.submit(Trajectory(task=Task(instruction="rival"), id="a.1"))
        turned = queue.turn(reports, Claim("w")).result(90)
        rival.result()
        assert [type(problem) for problem in turned.problems] == [ConflictError, type(None)]
        assert [lease.rollout.id for lease in turned.leases] == ["c"]
        assert queue.counts() == {"queued": 0, "running": 2, "succeeded": 1, "failed": 0, "cancelled": 0}


class Rewarded(LitAgent):
    def training_rollout(self, task: Any, rollout_id: str, resources: Any) -> float:
        return 1.0


def test_a_workers_reward_is_learned_from_and_no_gate_takes_it_for_a_judges() -> None:
    with world() as here:
        tasks = [Task(instruction=str(n), success_checker="python:right") for n in range(40)]
        here.store.add_rollouts(
            *(Rollout(id=f"{side}{n}", task=task) for side in "ab" for n, task in enumerate(tasks))
        )
        assert work(here, Rewarded(), limit=80).succeeded == 80
        sides = [[here.store.trajectory(f"{side}{n}.1") for n in range(40)] for side in "ab"]
    old, new = sides
    score = new[0].scores["reward"]
    assert (score.value, score.evaluator, score.by_worker) == (1.0, "worker:agent", True)
    # A learner takes it where it is named.
    assert value_of(new[0], "reward") == 1.0
    worse = [run.scored(Score("reward", 0.0)) for run in old]
    with pytest.raises(GateError, match="a worker says of its own run does not count"):
        compare(worse, new, metric="reward")
    judged_new = [run.scored(Score("reward", 1.0, evaluator="judge@1")) for run in new]
    assert compare(worse, judged_new, metric="reward").promote
    # Nor its word on the outcome, until a checker has decided it.
    failed = [replace(run, outcome=Outcome.FAILURE, meta={}) for run in old]
    won = [replace(run, outcome=Outcome.SUCCESS) for run in new]
    with pytest.raises(GateError, match="lacks 40"):
        compare(failed, won)
    checker = checked({"right": lambda run: True})
    assert compare(failed, [judged(run, checker) for run in won]).promote


def test_what_ran_under_other_versions_than_it_was_served_promotes_nothing(here: World) -> None:
    leases = queued(here, *(f"v{n}" for n in range(40)), resources=BUNDLE.id)
    for lease in leases:
        finished(here, lease, trajectory={"versions": {"prompt": "the source's"}, "outcome": "success"})
    runs = [here.store.trajectory(lease["rollout"]["id"]) for lease in leases]
    new = [run.scored(Score("success", 1.0, evaluator="judge@1")) for run in runs]
    old = [run.scored(Score("success", 0.0, evaluator="judge@1")) for run in runs]
    verdict = compare(old, new)
    assert not verdict.promote
    assert any("other Versions" in reason for reason in verdict.reasons)


def test_spans_of_a_refused_report_are_not_stored_though_its_neighbours_are() -> None:
    with world() as here:
        here.post("/api/trajectories", {"trajectories": [{"id": "a.1", "task": {"instruction": "x"}}]})
        a, b = queued(here, "a", "b")
        spans = base64.b64encode(export(2)).decode()
        reports = [
            {"id": "a", "fence": a["fence"], "trajectory": {"started": 1.0}, "spans": spans},
            {"id": "b", "fence": b["fence"], "trajectory": {"started": 1.0}},
        ]
        told = here.post("/api/rollouts/finish", {"finished": reports})
        assert [result["taken"] for result in told["results"]] == [False, True]
        assert here.store.count("spans") == 0
