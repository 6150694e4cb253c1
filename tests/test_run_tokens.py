"""A recorded program has a token of its run alone: for a short time, for what it records, and never in the record."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest
from commands import command
from processes import until, whet
from server_world import TOKENS, World, bearer, before_a_model, world
from test_server_routes import NOWHERE, path_of, routes

from whet.models.fakes import ScriptedServer
from whet.record.store import Store
from whet.serve import Access, Role
from whet.serve.run_tokens import PREFIX, RunTokens
from whet.types import Task, Trajectory

CHAT = {"model": "scripted", "messages": [{"role": "user", "content": "hello"}]}


def minted(here: World, run: str, **asked: Any) -> str:
    token: str = here.post(f"/api/runs/{run}/token", asked)["token"]
    return token


def shown(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def test_a_token_names_its_run_until_its_end() -> None:
    tokens, others = RunTokens("secret"), RunTokens("another")
    token = tokens.mint("r1", 60)
    grant = tokens.grant(token)
    assert grant is not None
    assert [grant.reaches(run) for run in ("r1", "r1.a", "r1.a.b", "r10", "r", "r1/a")] == [
        *(True, True, True),
        *(False, False, False),
    ]
    assert RunTokens("secret").grant(token) == grant, "a server that was started again knows it"
    assert others.grant(token) is None
    assert tokens.grant(tokens.mint("r1", -1)) is None
    assert tokens.mint("r1", 60) != tokens.mint("r1", 60)


@pytest.mark.parametrize("length", [0, 4, 20, 30])
def test_a_token_that_was_changed_is_none(length: int) -> None:
    tokens = RunTokens("secret")
    token = tokens.mint("run of the year", 60)
    assert tokens.grant(token[: len(PREFIX) + length]) is None
    changed = [*token]
    for place in range(len(PREFIX), len(token)):
        changed[place] = "A" if token[place] != "A" else "B"
        assert tokens.grant("".join(changed)) is None, place
        changed[place] = token[place]


def test_a_token_is_renewed_and_revoked() -> None:
    tokens = RunTokens("secret")
    expired = tokens.mint("r1", -5)
    assert tokens.renew(expired, 60) is not None
    assert tokens.grant(expired) is not None
    tokens.revoke(expired)
    assert tokens.grant(expired) is None
    assert tokens.renew("whet-run-nonsense") is None


def test_what_is_not_of_one_run_is_closed_to_its_token() -> None:
    with world(upstreams=NOWHERE) as here:
        token = shown(Access(TOKENS).runs.mint("r1"))
        for route in [route for route in routes() if not route.of_run]:
            refused = here.http.request(route.method, path_of(route), headers=token, content=b"{}")
            assert (refused.status_code, refused.json()["error"]["type"]) == (403, "forbidden"), route.path


def test_the_routes_of_a_run_are_these() -> None:
    opened = {route.path for route in routes() if route.of_run and "/v1" not in route.path}
    assert opened == {
        "/openapi.json",
        "/api/bundles/live",
        "/api/feedback",
        "/api/runs/{run}/token",
        "/api/runs/{run}/token/revoke",
        "/api/trajectories",
    }


def test_model_calls_are_those_of_the_tokens_run(tmp_path: Path) -> None:
    with before_a_model(tmp_path / "runs.db") as here:
        token = minted(here, "r1")

        def status(path: str, **headers: str) -> int:
            named = {name.replace("_", "-"): text for name, text in headers.items()}
            return here.http.post(f"{path}/chat/completions", json=CHAT, headers=named).status_code

        assert status(f"/run/r1/{token}/v1") == 200
        assert status(f"/run/r1.inner/{token}/v1") == 200
        assert status("/v1", **shown(token)) == 200
        assert status("/v1", x_whet_run="r1.other", **shown(token)) == 200
        assert status(f"/run/r2/{token}/v1") == 403
        assert status(f"/run/r1/{token}/v1", x_whet_run="r2") == 403
        assert status("/v1", x_whet_run="r2", **shown(token)) == 403
        refused = here.http.get(f"/run/r2/{token}/v1/models")
        assert refused.status_code == 403
        assert "'r1.NAME'" in refused.json()["error"]["message"]
        runs = ("r1", "r1.inner", "r1.other", "r2")
        until(lambda: [len(here.store.spans.run(run)) for run in runs] == [2, 1, 1, 0])


def test_traces_trajectories_and_feedback_are_those_of_the_tokens_run() -> None:
    with world(upstreams=NOWHERE) as here:
        token = shown(minted(here, "r1"))

        def sent(path: str, body: Any) -> httpx2.Response:
            return here.http.post(path, json=body, headers=token)

        def traced(*runs: str | None) -> dict[str, Any]:
            spans = [
                {
                    "traceId": f"{number:032x}",
                    "spanId": f"{number:016x}",
                    "name": "agent",
                    "startTimeUnixNano": "1",
                    "endTimeUnixNano": "2",
                    "attributes": [] if run is None else [{"key": "whet.run", "value": {"stringValue": run}}],
                }
                for number, run in enumerate(runs, 1)
            ]
            return {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}

        answered = sent("/v1/traces", traced("r1", "r2", None, "r1.x"))
        assert answered.status_code == 200
        assert answered.json()["partialSuccess"]["rejectedSpans"] == "1"
        assert "'r1'" in answered.json()["partialSuccess"]["errorMessage"]
        assert [len(here.store.spans.run(run)) for run in ("r1", "r2", "r1.x")] == [2, 0, 1]

        def recorded(id: str, **meta: str) -> int:
            body = {"trajectories": [{"id": id, "task": {"instruction": "q"}, "meta": meta}]}
            return sent("/api/trajectories", body).status_code

        assert [
            recorded("a", run="r1"),
            recorded("b"),
            recorded("c", run="r1.y"),
            recorded("d", run="r2"),
        ] == [
            *(200, 200, 200),
            403,
        ]
        assert [here.store.trajectory(id).meta["run"] for id in "abc"] == ["r1", "r1", "r1.y"]
        here.store.put(Trajectory(task=Task(), id="foreign", session="s2", meta={"run": "r2"}))
        here.store.put(Trajectory(task=Task(), id="own", session="s1", meta={"run": "r1"}))

        def judged(**said: str) -> int:
            return sent("/api/feedback", {"feedback": [{"value": 1.0, **said}]}).status_code

        assert [judged(run=run) for run in ("r1", "r1.late", "a", "own", "r2", "foreign", "unknown")] == [
            *(200, 200, 200, 200),
            *(403, 403, 403),
        ]
        assert [judged(session=session) for session in ("s1", "s2", "s3")] == [200, 403, 200]


def test_a_revoked_token_is_refused_and_a_runs_token_makes_those_of_runs_inside_it() -> None:
    with world(upstreams=NOWHERE) as here:
        token = minted(here, "r1", seconds=60)
        asked = {"seconds": 3_600}
        inner = here.http.post("/api/runs/r1.sub/token", json=asked, headers=shown(token)).json()
        assert inner["until"] < time.time() + 61, "it ends with the token that made it"
        for run, status in (("r2", 403), ("r1.sub", 200)):
            answered = here.http.post(f"/api/runs/{run}/token", json=asked, headers=shown(inner["token"]))
            assert answered.status_code == status
        body = {"token": inner["token"]}
        assert here.http.post("/api/runs/r1/token/revoke", json=body, headers=shown(token)).status_code == 400
        assert here.post("/api/runs/r1.sub/token/revoke", body)["until"] == 0
        assert here.http.get("/api/bundles/live", headers=shown(inner["token"])).status_code == 401
        assert here.http.get("/api/bundles/live", headers=shown(token)).status_code == 200
        renewed = here.post("/api/runs/r1.sub/token", {"renew": inner["token"]})
        assert renewed["token"] == inner["token"]
        assert here.http.get("/api/bundles/live", headers=shown(inner["token"])).status_code == 200
        assert here.http.post("/api/runs/r2/token", json={}, headers=bearer(Role.READ)).status_code == 403


def test_a_token_that_somebody_chose_is_not_recorded_either(tmp_path: Path) -> None:
    with before_a_model(tmp_path / "runs.db") as here:
        chosen = TOKENS[Role.WRITE]
        body = {"model": "scripted", "messages": [{"role": "user", "content": f"my token is {chosen}"}]}
        here.http.post("/v1/chat/completions", json=body, headers={"x-whet-run": "r1", **bearer(Role.WRITE)})
        here.post("/api/feedback", {"feedback": [{"run": "r1", "comment": f"{here.url}/run/r1/{chosen}/v1"}]})
        until(lambda: [*here.store.trajectories()])
        for path in ("/api/trajectories", "/api/feedback"):
            answered = here.http.get(path, headers=bearer(Role.READ)).text
            assert "[redacted:known-secret]" in answered
            assert chosen not in answered


INSTRUMENTED = """
import json, os, sys, urllib.request
import whet

def post(url, body, **headers):
    headers = {"content-type": "application/json", **headers}
    return json.load(urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)))

base = os.environ["OPENAI_BASE_URL"]
post(base + "/chat/completions", {"model": "scripted", "messages": [{"role": "user", "content": "hello"}]})
# What an instrumented HTTP client exports.
value = {"stringValue": base + "/chat/completions"}
span = {"traceId": "0af7651916cd43dd8448eb211c80319c", "spanId": "b7ad6b7169203331", "name": "POST",
    "startTimeUnixNano": "1", "endTimeUnixNano": "2", "attributes": [{"key": "url.full", "value": value}]}
name, _, token = os.environ["OTEL_EXPORTER_OTLP_HEADERS"].partition("=")
resource = {"attributes": [{"key": "whet.run", "value": {"stringValue": os.environ["WHET_RUN"]}}]}
post(os.environ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"],
    {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": [span]}]}]}, **{name: token})
whet.feedback(os.environ["WHET_RUN"], 1.0, "called " + base)

@whet.trace
def agent(question):
    return base

with whet.run() as run:
    agent("q")
print(json.dumps({"token": token, "base": base, "run": run.id}))
"""


def test_the_token_in_a_programs_base_url_is_of_its_run_masked_and_over_with_it(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(INSTRUMENTED)
    with before_a_model(tmp_path / "served.db") as here:
        words = ["run", "--url", here.url, "--token", TOKENS[Role.WRITE], "--run-id", "all", "--"]
        done = whet(*words, sys.executable, "program.py", folder=tmp_path)
        assert done.returncode == 0, done.stderr
        given = json.loads(done.stdout)
        assert given["token"].startswith(PREFIX)
        assert given["token"] in given["base"]
        assert given["run"].startswith("all.")
        until(lambda: len(list(here.store.trajectories())) == 2)
        for path in ("/api/trajectories", "/api/feedback"):
            answered = here.http.get(path, headers=bearer(Role.READ)).text
            assert given["token"] not in answered
            assert "[redacted:whet-token]" in answered
        whole = here.store.trajectory("all")
        assert whole.meta["redacted"] == {"whet-token": 1}
        assert "untrainable" not in whole.meta, "an address is nothing that a model read or said"
        ended = here.http.post(f"/run/all/{given['token']}/v1/chat/completions", json=CHAT)
        assert ended.status_code == 401
    for path in tmp_path.glob("served.db*"):
        assert given["token"].encode() not in path.read_bytes()


def test_a_program_behind_a_gateway_of_its_own_has_a_token_of_its_run(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(INSTRUMENTED)
    with ScriptedServer("fine", speaks=("chat",)) as upstream:
        words = ["run", "--store", "runs.db", "--upstream", upstream.base_url, "--run-id", "all", "--"]
        done = whet(*words, sys.executable, "program.py", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    token = json.loads(done.stdout)["token"]
    assert token.startswith(PREFIX)
    with Store(tmp_path / "runs.db") as store:
        assert len(store.spans.run("all")) == 2
    for path in tmp_path.glob("runs.db*"):
        assert token.encode() not in path.read_bytes()


def test_the_tokens_of_a_server_can_be_printed_and_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from whet.serve import make_tokens, tokens_of

    store = tmp_path / "runs.db"
    Store(store).close()
    assert command(capsys, "token", "write", "--store", store).returncode != 0
    before = make_tokens(store)
    for role in Role:
        printed = command(capsys, "token", role.name.lower(), "--store", store).stdout.strip()
        assert printed == before[role]
    own = command(capsys, "token", "--run", "r1", "--hours", "1", "--store", store).stdout.strip()
    grant = Access(before).runs.grant(own)
    assert grant is not None
    assert (grant.run, round((grant.until - time.time()) / 600)) == ("r1", 6)
    for words in ((), ("read", "--rotate"), ("--run", ""), ("--run", "r1", "--hours", "99999")):
        refused = command(capsys, "token", *words, "--store", store)
        assert refused.returncode == 2, words
        assert refused.stderr.startswith("error: ")
    assert command(capsys, "token", "--rotate", "--store", store).returncode == 0
    after = tokens_of(store)
    assert not set(after.values()) & set(before.values())
    assert Access(after).runs.grant(own) is None
    assert os.stat(f"{store}.tokens").st_mode & 0o077 == 0
