"""What the record holds of a call: whose it was, what was sampled, and never a key."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import msgspec
import openai
import pytest
from gateway_world import HELLO, TOKEN, World, http, world

from whet.errors import InputError
from whet.models.base import Completion
from whet.models.fakes import Reply, ScriptedServer
from whet.record.store import Store
from whet.record.store.redaction.redact import Redactor
from whet.record.tracing.assemble import Assembler
from whet.serve.gateway import Upstream
from whet.serve.gateway.identity import trace_of
from whet.types import Bundle, Span, Tokens, Usage, Version

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED = Completion(
    text="a b",
    tokens=Tokens((11, 12, 13), (21, 22), (-0.25, -1.5), policy_version="step-40"),
    usage=Usage(3, 2, calls=1),
    finish="stop",
)
FIELDS = {
    "api",
    "model",
    "request",
    "response",
    "status",
    "error",
    "latency",
    "first_event",
    "usage",
    "choices",
    "policy_version",
    "versions",
    "session",
    "subject",
    "agent",
}


def post(made: World, prefix: str = "", **headers: str) -> httpx2.Response:
    return http(
        "POST",
        f"{made.url}{prefix}/v1/chat/completions",
        json={"model": "scripted", "messages": HELLO},
        headers={name.replace("_", "-"): text for name, text in headers.items()},
    )


def test_a_record_has_the_fields_that_its_reader_expects() -> None:
    with ScriptedServer("fine") as upstream, world(upstream) as made, made.openai() as client:
        client.chat.completions.create(model="scripted", messages=HELLO)
        call = made.call()
        (span,) = made.store.spans.run("r1")
    assert set(call) == FIELDS
    assert (span.encoding, span.run, span.parent) == ("call+json", "r1", b"")
    assert span.trace == trace_of("r1")
    assert len(span.id) == 8
    assert span.ended > span.started


def test_a_traceparent_joins_the_call_to_the_agents_span() -> None:
    with ScriptedServer("fine") as upstream, world(upstream) as made:
        given = {"traceparent": f"00-{TRACE}-{PARENT}-01", "authorization": f"Bearer {TOKEN}"}
        answer = post(made, **given)
        made.settle()
        (span,) = made.store.spans.trace(bytes.fromhex(TRACE))
        assert (span.parent.hex(), span.run) == (PARENT, None)
        assert "x-whet-run" not in answer.headers
        post(made, **given, x_whet_run="named")
        made.settle()
        (span,) = made.store.spans.run("named")
        assert span.trace.hex() == TRACE
    assert all("traceparent" not in received.headers for received in upstream.requests)


@pytest.mark.parametrize(
    "broken", ["", "00-0-0-01", f"00-{'0' * 32}-{PARENT}-01", f"00-{TRACE}-{'0' * 16}-01", "é"]
)
def test_calls_that_say_nothing_are_runs_of_their_own(broken: str) -> None:
    with ScriptedServer("fine") as upstream, world(upstream) as made:
        headers = {"authorization": f"Bearer {TOKEN}"} | ({"traceparent": broken} if broken.isascii() else {})
        runs = [post(made, **headers).headers["x-whet-run"] for _ in range(2)]
        assert runs[0] != runs[1]
        assert [len(made.calls(run)) for run in runs] == [1, 1]


def test_session_and_subject_are_recorded_and_not_passed_on() -> None:
    with ScriptedServer("fine") as upstream, world(upstream) as made:
        headers = {"x_whet_token": TOKEN, "x_whet_session": "s1", "x_whet_subject": "person 7"}
        post(made, "/run/r1", **headers, authorization="Bearer sk-agent")
        call = made.call()
    assert (call["session"], call["subject"]) == ("s1", "person 7")
    (received,) = upstream.requests
    assert not [name for name in received.headers if name.startswith("x-whet")]
    assert received.headers["authorization"] == "Bearer sk-agent"


@pytest.mark.parametrize("run", ["x" * 201, "%20", "a%0Ab"])
def test_an_id_that_cannot_be_one_is_refused(run: str) -> None:
    with ScriptedServer("fine") as upstream, world(upstream) as made:
        answer = post(made, f"/run/{run}", x_whet_token=TOKEN)
    assert answer.status_code == 400
    assert "x-whet-run" in answer.json()["error"]["message"]
    assert upstream.requests == []


@pytest.mark.parametrize("place", ["authorization", "x-api-key", "x-whet-token", "path"])
def test_the_servers_own_token_stays_here(place: str) -> None:
    with ScriptedServer("fine") as upstream, world(upstream) as made:
        shown = {"authorization": f"Bearer {TOKEN}"} if place == "authorization" else {place: TOKEN}
        prefix = f"/run/r1/{TOKEN}" if place == "path" else "/run/r1"
        answer = post(made, prefix, **({} if place == "path" else shown))
    assert answer.status_code == 200
    assert TOKEN not in str(upstream.requests)


def test_a_call_without_a_token_is_refused_and_not_recorded() -> None:
    with ScriptedServer("fine") as upstream, world(upstream) as made:
        assert post(made, "/run/r1").status_code == 401
        assert post(made, "/run/r1/wrong", authorization="Bearer sk-agent").status_code == 401
        assert made.calls() == []
    assert upstream.requests == []


@pytest.mark.parametrize(
    ("api", "agent", "own", "sent"),
    [
        ("chat", {"authorization": "Bearer sk-a"}, None, {"authorization": "Bearer sk-a"}),
        ("chat", {"x-api-key": "sk-a"}, None, {"authorization": "Bearer sk-a"}),
        ("chat", {"authorization": "Bearer sk-a"}, "sk-own", {"authorization": "Bearer sk-own"}),
        ("messages", {"x-api-key": "sk-a"}, None, {"x-api-key": "sk-a"}),
        ("messages", {"authorization": "Bearer sk-a"}, None, {"authorization": "Bearer sk-a"}),
        ("messages", {"x-api-key": "sk-a"}, "sk-own", {"x-api-key": "sk-own"}),
    ],
)
def test_the_key_reaches_the_upstream_as_it_takes_it_and_is_never_recorded(
    api: str, agent: dict[str, str], own: str | None, sent: dict[str, str]
) -> None:
    with ScriptedServer("fine") as upstream:
        end = Upstream(url=upstream.base_url, key=own, speaks=frozenset({api}))
        with world({"default": end}) as made:
            path = "/v1/messages" if api == "messages" else "/v1/chat/completions"
            answer = http(
                "POST",
                f"{made.base()}{path}",
                json={"model": "scripted", "messages": HELLO, "max_tokens": 5},
                headers=agent,
            )
            assert answer.status_code == 200
            made.settle()
            (span,) = made.store.spans.run("r1")
    headers = upstream.requests[0].headers
    assert {name: headers[name] for name in ("authorization", "x-api-key") if name in headers} == sent
    assert b"sk-" not in span.body
    assert "sk-own" not in repr(end)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("api", ["chat", "responses", "messages"])
def test_a_record_without_secrets_is_not_suspected_of_one_for_its_own_words(api: str, streamed: bool) -> None:
    with ScriptedServer("fine weather") as upstream, world(upstream) as made:
        path = {"chat": "chat/completions", "responses": "responses", "messages": "messages"}[api]
        given = {"input": "hello"} if api == "responses" else {"messages": HELLO, "max_tokens": 9}
        body = {"model": "scripted", "stream": streamed, **given}
        assert http("POST", f"{made.base()}/v1/{path}", json=body).status_code == 200
        assert made.call()["status"] == 200
        (span,) = made.store.spans.run("r1")
    assert not Redactor().suspects(span.body), "each such record is decoded and looked through"


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("api", ["chat", "responses", "messages"])
def test_token_ids_are_asked_for_recorded_and_taken_out_again(api: str, streamed: bool) -> None:
    with (
        ScriptedServer([SAMPLED], speaks=("chat",)) as upstream,
        world(upstream, options={"tokens": True}) as made,
    ):
        path = {"chat": "chat/completions", "responses": "responses", "messages": "messages"}[api]
        given = {"input": "hello"} if api == "responses" else {"messages": HELLO, "max_tokens": 9}
        answer = http(
            "POST",
            f"{made.base()}/v1/{path}",
            json={"model": "scripted", "stream": streamed, **given},
        )
        assert answer.status_code == 200
        call = made.call()
    for field in ("token_ids", "policy_version", "-0.25"):
        assert field not in answer.text
        assert field not in str(call["response"])
    assert upstream.requests[0].body["return_token_ids"] is True
    assert call["choices"] == [
        {"prompt_ids": [11, 12, 13], "output_ids": [21, 22], "logprobs": [-0.25, -1.5]}
    ]
    assert call["policy_version"] == "step-40"
    assert "return_token_ids" not in call["request"]


def test_what_the_agent_asked_for_itself_it_gets() -> None:
    with (
        ScriptedServer([SAMPLED, SAMPLED]) as upstream,
        world(upstream, options={"tokens": True}) as made,
        made.openai() as client,
    ):
        said = client.chat.completions.create(
            model="scripted", messages=HELLO, logprobs=True, extra_body={"return_token_ids": True}
        )
        assert said.choices[0].to_dict()["token_ids"] == [21, 22]
        assert said.to_dict()["prompt_token_ids"] == [11, 12, 13]
        only = client.chat.completions.create(model="scripted", messages=HELLO, logprobs=True)
        assert [entry.logprob for entry in only.choices[0].logprobs.content] == [-0.25, -1.5]
        assert "token_ids" not in only.choices[0].to_dict()


@pytest.mark.parametrize("streamed", [False, True])
def test_the_ids_of_every_sample_are_kept(streamed: bool) -> None:
    other = Completion(text="c", tokens=Tokens((11, 12, 13), (31,), (-2.0,)), finish="stop")
    reply = Reply(answer=SAMPLED, samples=[other])
    with ScriptedServer([reply]) as upstream, world(upstream, options={"tokens": True}) as made:
        with made.openai() as client:
            said = client.chat.completions.create(model="scripted", messages=HELLO, n=2, stream=streamed)
            list(said)
        assert [choice["output_ids"] for choice in made.call()["choices"]] == [[21, 22], [31]]


def test_ids_without_their_logprobs_are_kept_and_marked() -> None:
    body = (
        b'{"choices": [{"index": 0, "message": {"role": "assistant", "content": "x"}, "token_ids": [5, 6],'
        b' "finish_reason": "stop", "logprobs": {"content": [{"token": "", "logprob": -0.5}]}}],'
        b' "prompt_token_ids": [1]}'
    )
    with ScriptedServer([Reply(body=body)]) as upstream, world(upstream, options={"tokens": True}) as made:
        with made.openai() as client:
            client.chat.completions.create(model="scripted", messages=HELLO)
        assert made.call()["choices"] == [{"prompt_ids": [1], "output_ids": [5, 6], "logprobs": None}]


def test_a_policy_version_may_stand_in_a_header() -> None:
    reply = Reply(answer="fine", headers={"x-whet-policy-version": "12"})
    with ScriptedServer([reply]) as upstream, world(upstream) as made:
        answer = post(made, "/run/r1", x_whet_token=TOKEN)
        assert made.call()["policy_version"] == "12"
    assert "x-whet-policy-version" not in answer.headers


def test_spans_are_redacted_before_they_are_written() -> None:
    def redact(spans: Sequence[Span]) -> Sequence[Span]:
        return [span._replace(body=span.body.replace(b"hello", b"[gone]")) for span in spans]

    with ScriptedServer("fine") as upstream, world(upstream, redact=redact) as made:
        post(made, "/run/r1", x_whet_token=TOKEN)
        assert made.call()["request"]["messages"][0]["content"] == "[gone]"


def test_an_answer_does_not_wait_for_its_record() -> None:
    gate = threading.Event()

    def slow(spans: Sequence[Span]) -> Sequence[Span]:
        gate.wait(90)
        return spans

    with ScriptedServer("fine") as upstream, world(upstream, redact=slow) as made:
        assert post(made, "/run/r1", x_whet_token=TOKEN).status_code == 200
        assert made.gateway.status().waiting == 1
        gate.set()
        assert len(made.calls()) == 1
        assert made.gateway.status().recorded == 1


def test_what_was_recorded_outlives_the_server(tmp_path: Path) -> None:
    with (
        Store(tmp_path / "runs.db") as store,
        ScriptedServer("fine") as upstream,
        world(upstream, store=store) as made,
    ):
        for number in range(5):
            post(made, f"/run/{number}", x_whet_token=TOKEN)
    with Store(tmp_path / "runs.db") as store:
        for number in range(5):
            (span,) = store.spans.run(str(number))
            assert msgspec.json.decode(span.body)["status"] == 200


@pytest.mark.parametrize(
    "given",
    [
        {"url": "ftp://x/v1"},
        {"url": "http://user:pw@x/v1"},
        {"url": "http://x/v1?key=1"},
        {"url": "http://x/v1", "speaks": frozenset({"telepathy"})},
        {"url": "http://x/v1", "key": "line\nbreak"},
    ],
    ids=str,
)
def test_an_upstream_that_cannot_be_one_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        Upstream(**given)


def test_other_paths_of_the_api_are_passed_on_unrecorded() -> None:
    with ScriptedServer("fine") as upstream, world(upstream) as made, made.openai() as client:
        with pytest.raises(openai.NotFoundError, match="no POST /v1/embeddings here"):
            client.embeddings.create(model="scripted", input="x")
        assert made.calls() == []
    assert upstream.requests[0].path == "/v1/embeddings"


def test_a_recorded_run_is_a_trajectory_that_can_be_trained_on() -> None:
    with (
        Store(":memory:") as store,
        ScriptedServer([SAMPLED, SAMPLED], speaks=("chat",)) as upstream,
    ):
        store.set_live(Bundle([Version(resource="gateway.system_prompt", content="Be brief.")]))
        with world(upstream, store=store, options={"tokens": True}) as made:
            with made.openai() as client, made.anthropic() as other:
                client.chat.completions.create(model="scripted", messages=HELLO)
                other.messages.create(model="scripted", max_tokens=9, messages=HELLO)
            made.settle()
        Assembler(store).flush()
        (trajectory,) = store.trajectories(ids=["r1"])
        assert trajectory.versions == store.live().ids
    for step in trajectory.steps:
        assert step.kind == "llm"
        assert step.tokens is not None
        assert (*step.tokens.prompt_ids, *step.tokens.output_ids) == (11, 12, 13, 21, 22)
        assert (list(step.tokens.logprobs), step.tokens.policy_version) == ([-0.25, -1.5], "step-40")
        assert "Be brief." in str(step.observation)


def test_a_models_name_cannot_become_another_path_of_the_upstream() -> None:
    with ScriptedServer("fine") as upstream, world(upstream) as made:
        answer = http("GET", f"{made.base()}/v1/models/..%2F..%2Fadmin")
        assert answer.status_code == 404
        assert upstream.requests[0].path == "/v1/models/..%2F..%2Fadmin"
        for name in ("%2e%2e", "%2E"):  # which a client may resolve where it stands
            assert http("GET", f"{made.base()}/v1/models/{name}").status_code == 404
    assert len(upstream.requests) == 1


def test_what_a_list_of_models_is_asked_for_reaches_the_upstream() -> None:
    with ScriptedServer("fine") as upstream, world(upstream) as made:
        http("GET", f"{made.base()}/v1/models?limit=2&after_id=m-2")
    assert upstream.requests[0].path == "/v1/models?limit=2&after_id=m-2"


@pytest.mark.parametrize("place", ["path", "header"])
def test_a_run_may_have_a_name_in_any_script(place: str) -> None:
    name = "où ☃"
    with ScriptedServer("fine") as upstream, world(upstream) as made:
        headers = {"authorization": f"Bearer {TOKEN}".encode()}
        if place == "header":
            headers["x-whet-run"] = name.encode()
        path = f"/run/{quote(name)}/v1" if place == "path" else "/v1"
        body = {"model": "scripted", "messages": HELLO}
        answer = http("POST", f"{made.url}{path}/chat/completions", headers=headers, json=body)
        assert answer.status_code == 200
        assert dict(answer.headers.raw)[b"x-whet-run"].decode() == name
        assert made.call(name)["status"] == 200


def test_a_header_of_the_upstream_that_is_not_ascii_comes_back_as_it_was() -> None:
    with (
        ScriptedServer([Reply(answer="fine", headers={"x-note": "caf\xe9"})]) as upstream,
        world(upstream) as made,
    ):
        answer = post(made, "/run/r1", authorization=f"Bearer {TOKEN}")
    assert answer.status_code == 200
    assert dict(answer.headers.raw)[b"x-note"] == b"caf\xe9"
