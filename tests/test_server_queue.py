"""The queue over HTTP: leases, fences, long polls, batches, cursors, cancellation."""

from __future__ import annotations

import base64
import http.client
import json
import threading
import time
from collections.abc import Sequence
from typing import Any

import httpx2
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from processes import until
from server_world import World, bearer, world

from whet.serve import Role
from whet.types import Bundle


def add(here: World, *ids: str, **given: Any) -> list[str]:
    rollouts = [{"id": id, "task": {"instruction": f"do {id}"}, **given} for id in ids]
    return list(here.post("/api/rollouts", {"rollouts": rollouts})["ids"])


def claim(here: World, worker: str = "w", **given: Any) -> list[dict[str, Any]]:
    return list(here.post("/api/rollouts/claim", {"worker": worker, **given})["leases"])


def finish(here: World, lease: dict[str, Any], **given: Any) -> Any:
    one = {"id": lease["rollout"]["id"], "fence": lease["fence"], **given}
    return here.post("/api/rollouts/finish", {"finished": [one]})["results"][0]


def until_waiting(here: World, count: int) -> None:
    until(lambda: here.get("/api/rollouts/counts")["waiting"] == count, f"never {count} claims waiting")


def trajectory(id: str) -> dict[str, Any]:
    return {"id": f"t-{id}", "task": {"instruction": f"do {id}"}, "outcome": "success", "started": 5.0}


def export(spans: int) -> bytes:
    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add().scope_spans.add()
    for number in range(1, spans + 1):
        one = scope.spans.add(trace_id=bytes(range(16)), span_id=number.to_bytes(8, "big"), name="chat")
        one.start_time_unix_nano, one.end_time_unix_nano = number, number + 1
    return request.SerializeToString()


def test_work_is_handed_out_once_finished_and_found_in_the_order_of_its_end() -> None:
    with world() as here:
        assert add(here, "a", "b", "c") == ["a", "b", "c"]
        first, second = claim(here, n=2)
        assert [first["rollout"]["id"], second["rollout"]["id"]] == ["a", "b"]
        assert first["rollout"]["task"]["instruction"] == "do a"
        assert finish(here, second, trajectory=trajectory("b"))["taken"]
        assert finish(here, first, trajectory=trajectory("a"))["taken"]
        ended = here.get("/api/rollouts/finished")
        assert [one["id"] for one in ended["rollouts"]] == ["b", "a"]
        assert here.get(f"/api/rollouts/finished?after={ended['after']}")["rollouts"] == []
        assert here.get("/api/rollouts/a")["status"] == "succeeded"
        assert here.get("/api/trajectories/a.1")["outcome"] == "success"
        assert [one["rollout"]["id"] for one in claim(here, n=9)] == ["c"]


def test_a_report_its_spans_and_the_next_claim_are_one_request_and_one_commit() -> None:
    with world() as here:
        add(here, "a", "b")
        (lease,) = claim(here)
        spans = export(2)
        one = {"id": "a", "fence": lease["fence"], "trajectory": trajectory("a")}
        body = {
            "finished": [{**one, "spans": base64.b64encode(spans).decode()}],
            "claim": {"worker": "w", "n": 5, "wait": 60},
        }
        began = time.monotonic()
        told = here.post("/api/rollouts/finish", body)
        assert time.monotonic() - began < 15, "a claim that comes with a report does not wait"
        assert [each["taken"] for each in told["results"]] == [True]
        assert [each["rollout"]["id"] for each in told["leases"]] == ["b"]
        assert len(here.store.spans.run("a")) == 2, "its spans are the run's, where they do not say another"
        again = here.post("/api/rollouts/finish", body)
        assert again["results"] == told["results"], "sent again, it is recorded once"
        assert again["leases"] == []
        assert len(here.store.spans.run("a")) == 2


def test_a_refused_report_leaves_no_spans_and_its_claim_is_answered() -> None:
    with world() as here:
        add(here, "a", "b")
        (lease,) = claim(here)
        spans = base64.b64encode(export(1)).decode()
        late = {"id": "a", "fence": lease["fence"] + 7, "spans": spans}
        told = here.post("/api/rollouts/finish", {"finished": [late], "claim": {"worker": "w"}})
        assert told["results"][0]["stale"]
        assert [each["rollout"]["id"] for each in told["leases"]] == ["b"]
        assert here.store.count("spans") == 0
        bad = {"id": "a", "fence": lease["fence"], "spans": base64.b64encode(b"\x0a\xff").decode()}
        answered = here.http.post(
            "/api/rollouts/finish", json={"finished": [bad]}, headers=bearer(Role.WRITE)
        )
        assert answered.status_code == 400
        assert here.get("/api/rollouts/a")["status"] == "running", "nothing of it was recorded"


def test_secrets_in_a_report_are_not_stored() -> None:
    key = "sk-ant-" + "a1b2c3d4" * 4
    with world() as here:
        add(here, "a", "b")
        first, second = claim(here, n=2)
        finish(here, first, trajectory={**trajectory("a"), "output": f"use {key}"})
        path = f"/api/rollouts/{second['rollout']['id']}/finish"
        said = {**trajectory("b"), "output": f"use {key}"}
        here.post(path, {"fence": second["fence"], "trajectory": said})
        for id in ("a", "b"):
            found = here.get(f"/api/trajectories/{id}.1")
            assert found["output"] == "use [redacted:anthropic-key]"
            assert found["meta"]["untrainable"]
        add(here, "c", max_attempts=1)
        (lease,) = claim(here)
        finish(here, lease, error={"fault": "agent", "type": "AuthError", "message": f"{key} was refused"})
        assert here.get("/api/rollouts/c")["error"]["message"] == "[redacted:anthropic-key] was refused"


def test_a_task_that_is_recorded_anew_while_it_waits_is_handed_out_as_it_is_now() -> None:
    with world() as here:
        rollouts = [{"id": f"r{n}", "task": {"id": f"t{n}", "instruction": "before"}} for n in range(5)]
        here.post("/api/rollouts", {"rollouts": rollouts})
        assert claim(here)[0]["rollout"]["task"]["instruction"] == "before"  # which reads the next ones ahead
        here.post("/api/tasks", {"tasks": [{"id": "t2", "instruction": "after"}]})
        said = [each["rollout"]["task"]["instruction"] for each in claim(here, n=9)]
        assert said == ["before", "after", "before", "before"]


def test_a_long_poll_comes_back_as_soon_as_something_is_queued() -> None:
    with world() as here:
        found: list[Any] = []

        def wait() -> None:
            found.extend(claim(here, wait=60))

        waiting = threading.Thread(target=wait)
        waiting.start()
        until_waiting(here, 1)
        queued = time.monotonic()
        add(here, "late")
        waiting.join(90)
        assert [one["rollout"]["id"] for one in found] == ["late"]
        assert time.monotonic() - queued < 5, "it was woken, it did not wait its time out"


def test_a_long_poll_ends_empty_when_its_time_is_up() -> None:
    with world() as here:
        started = time.monotonic()
        assert claim(here, wait=0.3) == []
        assert 0.25 < time.monotonic() - started < 10


def test_a_client_that_left_claims_nothing() -> None:
    with world() as here:
        connection = http.client.HTTPConnection("127.0.0.1", here.server.port, timeout=90)
        body = json.dumps({"worker": "gone", "wait": 30})
        connection.request("POST", "/api/rollouts/claim", body, bearer(Role.WRITE))
        until_waiting(here, 1)
        connection.close()
        until_waiting(here, 0)
        add(here, "a")
        assert [one["worker"] for one in claim(here, worker="here", wait=5)] == ["here"]


def test_a_worker_takes_its_waiting_claims_back_and_no_other_ones() -> None:
    with world() as here:
        found: dict[str, Any] = {}

        def wait(worker: str) -> None:
            found[worker] = claim(here, worker, wait=15)

        waiting = [threading.Thread(target=wait, args=(worker,)) for worker in ("stops", "stays")]
        for one in waiting:
            one.start()
        until_waiting(here, 2)
        assert here.post("/api/rollouts/withdraw", {"worker": "stops"}) == {"claims": 1}
        waiting[0].join(90)
        assert found == {"stops": []}
        add(here, "a")
        waiting[1].join(90)
        assert [one["rollout"]["id"] for one in found["stays"]] == ["a"]


def test_many_pollers_get_each_rollout_once() -> None:
    with world() as here:
        got: list[str] = []

        def work(name: str) -> None:
            with httpx2.Client(base_url=here.url, headers=bearer(Role.WRITE), timeout=90) as http:
                while True:
                    body = {"worker": name, "n": 3, "wait": 1.0}
                    leases: Sequence[Any] = http.post("/api/rollouts/claim", json=body).json()["leases"]
                    if not leases:
                        return
                    got.extend(one["rollout"]["id"] for one in leases)

        workers = [threading.Thread(target=work, args=(f"w{n}",)) for n in range(8)]
        for worker in workers:
            worker.start()
        for start in range(0, 60, 4):
            add(here, *(f"r{n}" for n in range(start, start + 4)))
        for worker in workers:
            worker.join(90)
        assert sorted(got) == sorted(f"r{n}" for n in range(60))


def test_heartbeats_keep_a_lease_and_tell_of_one_that_is_lost() -> None:
    with world() as here:
        add(here, "a")
        now = [100.0]
        here.store.queue._clock = lambda: now[0]
        (held,) = claim(here, lease=10.0)
        for _ in range(3):
            now[0] += 9.0  # in all longer than the lease
            body = {
                "leases": [{"id": "a", "fence": held["fence"]}, {"id": "a", "fence": 1_000_000}],
                "lease": 10.0,
            }
            until = here.post("/api/rollouts/heartbeat", body)["until"]
            assert until[0] is not None
            assert until[1] is None
            assert here.store.queue.expire().result() == 0
            assert claim(here, "other") == []
        one = here.http.post(
            "/api/rollouts/a/heartbeat", json={"fence": 1_000_000}, headers=bearer(Role.WRITE)
        )
        assert one.status_code == 409
        now[0] += 11.0
        assert here.store.queue.expire().result() == 1, "nobody kept it"


def test_modes_are_kept_apart() -> None:
    with world() as here:
        add(here, "a", mode="train")
        add(here, "b", mode="val")
        assert [one["rollout"]["id"] for one in claim(here, modes=["val", "test"], n=9)] == ["b"]
        assert [one["rollout"]["id"] for one in claim(here, n=9)] == ["a"]
        assert {one["id"] for one in here.get("/api/rollouts?mode=val")["rollouts"]} == {"b"}
        assert {one["id"] for one in here.get("/api/rollouts?status=running")["rollouts"]} == {"a", "b"}


def test_a_waiting_claim_of_one_mode_does_not_swallow_the_wake_of_another() -> None:
    with world() as here:
        found: dict[str, Any] = {}

        def wait(mode: str) -> None:
            found[mode] = claim(here, mode, modes=[mode], wait=10)

        waiting = [threading.Thread(target=wait, args=(mode,)) for mode in ("test", "val")]
        for one in waiting:
            one.start()
        until_waiting(here, 2)
        add(here, "v", mode="val")
        add(here, "t", mode="test")
        for one in waiting:
            one.join(90)
        assert found["val"][0]["rollout"]["id"] == "v"
        assert found["test"][0]["rollout"]["id"] == "t"


def test_a_posted_bundle_is_recorded_and_only_a_release_makes_it_live() -> None:
    with world() as here:
        headers = bearer(Role.WRITE)
        first = here.post("/api/bundles", {"resources": {"prompt": "one"}})
        assert here.get(f"/api/bundles/{first['id']}")["versions"] == first["versions"]
        assert here.get("/api/bundles/live") == {"id": Bundle().id, "versions": []}
        given = {"bundle": first["id"], "unproven": True, "new_names": True}
        assert here.http.post("/api/releases", json=given, headers=headers).status_code == 403
        assert here.post("/api/releases", given, Role.ADMIN) == first
        assert here.get("/api/bundles/live") == first
        (entry,) = here.get("/api/releases")["releases"]
        assert (entry["bundle"], entry["unproven"], entry["verdict"]) == (first["id"], True, None)
        canary = {
            "resources": {"prompt": "two"},
            "stage": "canary",
            "share": 0.25,
            "unit": "run",
            "unproven": True,
        }
        here.post("/api/releases", canary, Role.ADMIN)
        (trial,) = here.get("/api/releases?stage=trial")["releases"]
        assert (trial["stage"], trial["share"], trial["unit"]) == ("canary", 0.25, "run")
        assert here.get("/api/bundles/live") == first
        assert "-one\n+two" in here.get(f"/api/releases/diff?a=live&b={trial['id']}")["diff"]
        ended = here.post("/api/releases/retire", {"id": trial["id"]}, Role.ADMIN)
        assert ended["stage"] == "retired"
        assert [entry["stage"] for entry in here.get("/api/releases?stage=all")["releases"]] == [
            "live",
            "canary",
            "retired",
        ]
        assert here.http.get("/api/releases?stage=x", headers=headers).status_code == 400
        assert here.post("/api/releases/rollback", {}, Role.ADMIN)["versions"] == []
        assert here.http.get("/api/bundles/nothing", headers=headers).status_code == 404
        code = {"resource": "f", "content": "def f(): ...", "kind": "function"}
        assert here.http.post("/api/bundles", json={"versions": [code]}, headers=headers).status_code == 403
        forged = {**first["versions"][0], "content": "another"}
        refused = here.http.post("/api/bundles", json={"versions": [forged]}, headers=headers)
        assert (refused.status_code, "changed by hand" in refused.text) == (400, True)


@pytest.mark.parametrize("route", ["one", "many"])
def test_a_report_that_is_sent_again_is_taken_once_and_another_one_is_refused(route: str) -> None:
    with world() as here:
        here.post("/api/rollouts", {"rollouts": [{"id": "r", "task": {"instruction": "x"}}]})
        (lease,) = here.post("/api/rollouts/claim", {"worker": "w"})["leases"]

        def finish(output: str) -> int:
            # Neither an id nor a time: both are made up anew each time that it is read.
            said = {"fence": lease["fence"], "trajectory": {"task": {"id": "t"}, "output": output}}
            if route == "one":
                sent = here.http.post("/api/rollouts/r/finish", json=said, headers=bearer(Role.WRITE))
                return sent.status_code
            (told,) = here.post("/api/rollouts/finish", {"finished": [{"id": "r", **said}]})["results"]
            return 200 if told["taken"] else 409 if told["stale"] else 400

        assert [finish("done"), finish("done"), finish("changed")] == [200, 200, 409]
        assert [each.output for each in here.store.trajectories()] == ["done"]


def test_tasks_are_recorded_and_gate_tasks_are_shown_to_an_admin_alone() -> None:
    with world() as here:
        tasks = [
            {"id": split, "instruction": "x", "split": split} for split in ("train", "validation", "gate")
        ]
        assert here.post("/api/tasks", {"tasks": tasks})["ids"] == ["train", "validation", "gate"]
        assert [one["id"] for one in here.get("/api/tasks")["tasks"]] == ["train", "validation"]
        assert [one["id"] for one in here.get("/api/tasks?split=gate", Role.ADMIN)["tasks"]] == ["gate"]
        assert here.http.get("/api/tasks?split=gate", headers=bearer(Role.WRITE)).status_code == 400


def test_tasks_are_taken_in_the_published_shape_too_and_keep_what_else_they_say() -> None:
    published = {"task_id": "p", "natural_language_instruction": "buy", "site": "shop"}
    with world() as here:
        assert here.post("/api/tasks", {"tasks": [published]})["ids"] == ["p"]
        (task,) = here.get("/api/tasks")["tasks"]
        assert (task["instruction"], task["meta"]) == ("buy", {"site": "shop"})
        add = {"rollouts": [{"id": "r", "task": {**published, "task_id": "q"}}]}
        here.post("/api/rollouts", add)
        assert here.get("/api/rollouts/r")["task"]["instruction"] == "buy"


def test_a_rollout_cannot_be_queued_under_resources_that_are_not_there() -> None:
    with world() as here:
        body = {"rollouts": [{"task": {"instruction": "x"}, "resources": "nothing"}]}
        refused = here.http.post("/api/rollouts", json=body, headers=bearer(Role.WRITE))
        assert refused.status_code == 404
        assert "nothing" in refused.json()["error"]["message"]
        assert here.get("/api/rollouts/counts")["counts"]["queued"] == 0


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/tasks", {"tasks": [{}]}),
        ("/api/tasks", {"tasks": [{"instruction": "x"}, {"instructions": "y"}]}),
        ("/api/tasks", {"tasks": [{"id": "x" * 201}]}),
        ("/api/rollouts", {"rollouts": [{"task": {"instructions": "x"}}]}),
        ("/api/rollouts", {"rollouts": [{"task": {"instruction": "x"}, "mode": "exam"}]}),
        ("/api/rollouts", {"rollouts": [{"task": {"instruction": "x"}, "max_attempts": 0}]}),
        ("/api/rollouts", {"rollout": []}),
        ("/api/rollouts/claim", {"worker": "w", "n": 0}),
        ("/api/rollouts/claim", {"worker": "", "n": 1}),
        ("/api/rollouts/claim", {"worker": "w", "lease": 0.01}),
        ("/api/rollouts/claim", {"n": 1}),
        ("/api/rollouts/finish", {"finished": [{"id": "a"}]}),
        ("/api/rollouts/a/finish", {"fence": "one"}),
    ],
)
def test_what_cannot_be_meant_is_refused_with_a_reason_and_nothing_changes(path: str, body: Any) -> None:
    with world() as here:
        add(here, "a")
        refused = here.http.post(path, json=body, headers=bearer(Role.WRITE))
        assert refused.status_code == 400, refused.text
        assert refused.json()["error"]["message"]
        assert here.get("/api/rollouts/counts")["counts"]["queued"] == 1
