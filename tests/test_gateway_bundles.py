"""What a run is served: its Bundle, kept from the first call to the last, through swaps, pauses and restarts."""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest
from gateway_world import HELLO, TOKEN, World, http, world
from processes import until

from whet.errors import InputError
from whet.models.base import Completion, ModelRequest
from whet.models.fakes import Reply, ScriptedServer
from whet.record.store import Store
from whet.serve.gateway import Upstream, served
from whet.types import Bundle, Json, Tokens, Usage, Version

ALL = ("chat", "responses", "messages")


def version(name: str, content: Json) -> Version:
    return Version(resource=f"gateway.{name}", content=content)


def bundle(**content: Json) -> Bundle:
    return Bundle([version(name, value) for name, value in content.items()])


def admin(world: World, method: str, path: str, body: Json = None) -> Any:
    headers = {"authorization": f"Bearer {TOKEN}"}
    answer = http(method, f"{world.url}/api/gateway{path}", headers=headers, json=body)
    return answer.json() | {"http": answer.status_code}


@pytest.fixture
def store() -> Iterator[Store]:
    with Store(":memory:") as opened:
        yield opened


def ask(world: World, run: str = "r1", messages: Any = HELLO, **given: Any) -> str:
    with world.openai(run) as client:
        said = client.chat.completions.create(**{"model": "scripted", "messages": messages, **given})
    return said.choices[0].message.content or ""


@pytest.mark.parametrize("speaks", [("chat",), ALL], ids=["translated", "spoken"])
def test_a_bundle_sets_prompt_model_and_parameters_in_every_api(
    store: Store, speaks: tuple[str, ...]
) -> None:
    live = bundle(model="other", parameters={"temperature": 0.2, "max_tokens": 7}, system_prompt="Be brief.")
    store.set_live(live)
    with (
        ScriptedServer("fine", models=("other",), speaks=speaks) as upstream,
        world(upstream, store=store, options={"speaks": frozenset(speaks)}) as made,
        made.openai() as client,
        made.anthropic() as other,
    ):
        old = [{"role": "system", "content": "Be verbose."}, *HELLO]
        client.chat.completions.create(model="mine", messages=old, max_completion_tokens=900)
        client.responses.create(
            model="mine", input="hello", instructions="Be verbose.", max_output_tokens=900
        )
        other.messages.create(model="mine", max_tokens=900, system="Be verbose.", messages=HELLO)
        calls = made.calls()
        sent = [received.body for received in upstream.requests]
    for body in sent:
        assert (body["model"], body["temperature"]) == ("other", 0.2)
        assert "Be brief." in str(body)
        assert "Be verbose." not in str(body)
        assert 7 in (body.get("max_tokens"), body.get("max_output_tokens"))
        assert 900 not in body.values()
    for call in calls:
        assert call["versions"] == live.ids
        assert "Be brief." in str(call["request"]), "the record shows what was asked"
        assert "Be verbose." in str(call["original_request"])


def test_an_agent_without_a_prompt_is_given_one_and_an_untouched_one_stays(store: Store) -> None:
    store.set_live(bundle(system_prompt={"text": "Add this.", "mode": "append"}))
    with ScriptedServer("fine") as upstream, world(upstream, store=store) as made:
        ask(made)
        ask(made, messages=[{"role": "developer", "content": "Mine."}, *HELLO])
        first, second = (received.body["messages"] for received in upstream.requests)
    assert first == [{"role": "system", "content": "Add this."}, *HELLO]
    assert second == [{"role": "developer", "content": "Mine.\n\nAdd this."}, *HELLO]


def test_an_agent_with_several_prompts_has_the_right_one_rewritten(store: Store) -> None:
    store.set_live(bundle(system_prompt={"rewrites": {"You plan.": "You plan well."}}))
    with ScriptedServer("fine") as upstream, world(upstream, store=store) as made:
        for text in ("You plan.", "You act."):
            ask(made, messages=[{"role": "system", "content": text}, *HELLO])
        prompts = [received.body["messages"][0]["content"] for received in upstream.requests]
    assert prompts == ["You plan well.", "You act."]


def test_a_passage_is_replaced_within_what_a_framework_writes_around_it(store: Store) -> None:
    store.set_live(bundle(system_prompt={"passages": {"Be kind.": "Be brief."}}))
    with ScriptedServer("fine") as upstream, world(upstream, store=store) as made:
        parts = [{"type": "text", "text": "You are a clerk. Be kind.\nNow begin!"}]
        for content in ("You are a clerk. Be kind.\nNow begin!", parts, "You act."):
            ask(made, messages=[{"role": "system", "content": content}, *HELLO])
        prompts = [received.body["messages"][0]["content"] for received in upstream.requests]
    assert prompts == ["You are a clerk. Be brief.\nNow begin!"] * 2 + ["You act."]


def test_without_a_bundle_the_agents_bytes_are_passed_on_as_they_are(store: Store) -> None:
    raw = b'{"model":"scripted",  "messages":[{"role":"user","content":"h\\u00e9"}], "odd": 1.50}'
    with ScriptedServer("fine") as upstream, world(upstream, store=store) as made:
        url = f"{made.base()}/v1/chat/completions"
        assert http("POST", url, content=raw).status_code == 200
        made.settle()
        (span,) = store.spans.run("r1")
    assert raw in span.body


def test_a_parameter_that_the_api_does_not_have_is_not_left_out_silently(store: Store) -> None:
    store.set_live(bundle(parameters={"seed": 3}))
    with (
        ScriptedServer("fine") as upstream,
        world(upstream, store=store, options={"speaks": frozenset(ALL)}) as made,
        made.openai() as client,
    ):
        client.chat.completions.create(model="scripted", messages=HELLO)
        with pytest.raises(openai.InternalServerError, match=r"sets seed.*responses"):
            client.responses.create(model="scripted", input="hello")
        assert made.calls()[1]["error"]["fault"] == "environment"


@pytest.mark.parametrize(
    "content",
    [
        {"model": 3},
        {"parameters": {"messages": []}},
        {"parameters": ["temperature"]},
        {"system_prompt": {"text": "x", "mode": "shout"}},
        {"route": {"upstream": "http://evil.example/v1"}},
        {"route": {"split": {"default": -1}}},
    ],
    ids=str,
)
def test_a_bundle_that_makes_no_sense_is_refused_and_what_was_live_stays(
    store: Store, content: dict[str, Json]
) -> None:
    with pytest.raises(InputError, match="gateway"):
        served(bundle(**content), {"default": object()})
    with ScriptedServer("fine") as upstream, world(upstream, store=store) as made:
        store.set_live(bundle(**content))
        assert admin(made, "POST", "/swap")["http"] == 400
        assert ask(made) == "fine"


def test_a_route_splits_runs_by_their_id_and_each_run_stays_where_it_fell(store: Store) -> None:
    store.set_live(bundle(route={"split": {"left": 1, "right": 1}}))
    with ScriptedServer("left") as left, ScriptedServer("right") as right:
        ends = {"left": Upstream(url=left.base_url), "right": Upstream(url=right.base_url)}
        with world(ends, store=store) as made:
            first = {run: ask(made, run) for run in map(str, range(12))}
            again = {run: ask(made, run) for run in map(str, range(12))}
    assert first == again
    assert set(first.values()) == {"left", "right"}


def test_an_api_goes_to_the_upstream_that_speaks_it(store: Store) -> None:
    with ScriptedServer("open") as one, ScriptedServer("anthropic", speaks=("messages",)) as two:
        ends = {
            "one": Upstream(url=one.base_url),
            "two": Upstream(url=two.base_url, speaks=frozenset({"messages"})),
        }
        with world(ends, store=store) as made, made.anthropic() as client:
            assert ask(made) == "open"
            said = client.messages.create(model="scripted", max_tokens=9, messages=HELLO)
    assert said.content[0].text == "anthropic"
    assert two.requests[0].headers["authorization"] == "Bearer sk-agent"
    assert one.requests[0].headers["authorization"] == "Bearer sk-agent"


def test_a_run_keeps_its_bundle_through_a_swap_and_a_new_run_gets_the_new_one(store: Store) -> None:
    before, after = bundle(system_prompt="old"), bundle(system_prompt="new")
    store.set_live(before)
    with (
        ScriptedServer(lambda request: request.messages[0]["content"]) as upstream,
        world(upstream, store=store) as made,
    ):
        assert ask(made, "first") == "old"
        store.set_live(after)
        assert admin(made, "POST", "/swap")["live"] == after.ids
        assert (ask(made, "first"), ask(made, "second")) == ("old", "new")
        assert made.calls("first")[1]["versions"] == before.ids
        assert made.call("second")["versions"] == after.ids


def test_a_release_by_another_process_is_followed(store: Store) -> None:
    with (
        ScriptedServer(lambda request: request.messages[0]["content"]) as upstream,
        world(upstream, store=store) as made,
    ):
        store.set_live(bundle(system_prompt="released"))
        until(lambda: made.gateway.assignments.swaps)
        until(lambda: made.gateway.status().live)
        assert ask(made) == "released"


def test_a_run_goes_on_with_its_bundle_after_a_restart(tmp_path: Path) -> None:
    with (
        ScriptedServer(lambda request: request.messages[0]["content"]) as upstream,
        Store(tmp_path / "runs.db") as store,
    ):
        store.set_live(bundle(system_prompt="old"))
        with world(upstream, store=store) as made:
            assert ask(made, "first") == "old"
        with Store(tmp_path / "runs.db") as store:
            store.set_live(bundle(system_prompt="new"))
            with world(upstream, store=store) as made:
                assert (ask(made, "first"), ask(made, "second")) == ("old", "new")


def test_a_run_is_assigned_versions_before_it_begins_and_not_after(store: Store) -> None:
    candidate, other = version("system_prompt", "candidate"), version("system_prompt", "other")
    store.put_versions(candidate, other)
    with (
        ScriptedServer(lambda request: request.messages[0]["content"]) as upstream,
        world(upstream, store=store) as made,
    ):
        assert admin(made, "PUT", "/runs/r1", {"versions": [candidate.id]})["http"] == 200
        assert ask(made, "r1") == "candidate"
        assert admin(made, "PUT", "/runs/r1", {"versions": [candidate.id]})["http"] == 200
        assert admin(made, "PUT", "/runs/r1", {"versions": [other.id]})["http"] == 409
        assert admin(made, "PUT", "/runs/r2", {"versions": ["nope"]})["http"] == 404
        assert ask(made, "r1") == "candidate"


def test_what_is_remembered_of_runs_is_bounded_and_a_forgotten_run_goes_on_as_it_began(store: Store) -> None:
    candidate, other = version("system_prompt", "candidate"), version("system_prompt", "other")
    store.put_versions(candidate, other)
    with (
        ScriptedServer(lambda request: request.messages[0]["content"]) as upstream,
        world(upstream, store=store) as made,
    ):
        for run in ("begun", "waiting"):
            assert admin(made, "PUT", f"/runs/{run}", {"versions": [candidate.id]})["http"] == 200
        assert ask(made, "begun") == "candidate"
        until(lambda: store.spans.known(run="begun"))
        tracemalloc.start()
        for number in range(60_000):
            made.gateway.assignments.of(f"run {number}")
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert held < 3e6
        assert made.gateway.assignments.known("begun") is None
        assert admin(made, "PUT", "/runs/begun", {"versions": [other.id]})["http"] == 409
        assert (ask(made, "begun"), ask(made, "waiting")) == ("candidate", "candidate")


def test_calls_under_way_during_a_swap_end_on_the_version_that_they_began_with(store: Store) -> None:
    versions = [bundle(system_prompt=f"version {number}") for number in range(5)]
    store.set_live(versions[0])

    def script(request: ModelRequest) -> Reply:
        return Reply(answer=f"{request.messages[0]['content']} says so", delay=0.02, event_delay=0.01)

    answers: list[tuple[str, str]] = []
    stop = threading.Event()

    def work(made: World, worker: int) -> None:
        number = 0
        while not stop.is_set():
            run, number = f"{worker}-{number}", number + 1
            with made.openai(run) as client:
                stream = client.chat.completions.create(
                    model="scripted", messages=HELLO, stream=bool(worker % 2)
                )
                if worker % 2:
                    said = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
                else:
                    said = stream.choices[0].message.content
            answers.append((run, said))

    with ScriptedServer(script) as upstream, world(upstream, store=store) as made:
        with ThreadPoolExecutor(4) as pool:
            futures = [pool.submit(work, made, number) for number in range(4)]
            for number in range(1, 5):
                threshold = len(answers) + 6
                until(lambda: len(answers) >= threshold)  # noqa: B023
                store.set_live(versions[number])
                assert admin(made, "POST", "/swap")["live"] == versions[number].ids
            stop.set()
            for future in futures:
                future.result(90)
        seen: set[str] = set()
        for run, said in answers:
            call = made.call(run)
            prompt = call["request"]["messages"][0]["content"]
            assert said == f"{prompt} says so"
            assert call["response"]["choices"][0]["message"]["content"] == said
            assert (call["error"], call["versions"]) == (None, bundle(system_prompt=prompt).ids)
            seen.add(prompt)
    assert len(seen) >= 4


def test_paused_calls_wait_and_go_on_after_resume(store: Store) -> None:
    with ScriptedServer("fine") as upstream, world(upstream, store=store) as made:
        assert admin(made, "POST", "/pause")["paused"] is True
        with ThreadPoolExecutor(3) as pool:
            futures = [pool.submit(ask, made, f"r{number}") for number in range(3)]
            until(lambda: admin(made, "GET", "")["held"] == 3)
            assert upstream.requests == []
            assert admin(made, "POST", "/resume")["paused"] is False
            assert [future.result(90) for future in futures] == ["fine"] * 3


def test_a_call_that_is_held_for_too_long_is_told_to_come_again(store: Store) -> None:
    with ScriptedServer("fine") as upstream, world(upstream, store=store) as made:
        made.gateway.traffic.patience = 0.1
        admin(made, "POST", "/pause")
        with pytest.raises(openai.InternalServerError) as caught:
            ask(made)
        assert caught.value.status_code == 503
        assert caught.value.response.headers["retry-after"] == "1"
        call = made.call()
    assert (call["error"]["type"], call["error"]["fault"]) == ("paused", "environment")


def test_draining_waits_for_what_is_under_way(store: Store) -> None:
    gate = threading.Event()

    def script(request: ModelRequest) -> str:
        gate.wait(90)
        return "late"

    with (
        ScriptedServer(script) as upstream,
        world(upstream, store=store) as made,
        ThreadPoolExecutor(2) as pool,
    ):
        running = pool.submit(ask, made)
        until(lambda: upstream.requests)
        early = admin(made, "POST", "/drain", {"seconds": 0.05})
        assert (early["http"], early["in_flight"], early["paused"]) == (504, 1, True)
        drained = pool.submit(admin, made, "POST", "/drain")
        gate.set()
        assert drained.result(90)["in_flight"] == 0
        assert running.result(90) == "late"
        admin(made, "POST", "/resume")
        assert ask(made, "r2") == "late"


@pytest.mark.parametrize("streamed", [False, True])
def test_an_answer_of_another_policy_version_than_the_assigned_is_an_error(
    store: Store, streamed: bool
) -> None:
    live = bundle(model={"name": "scripted", "policy_version": "7"})
    store.set_live(live)

    def answer(policy: str | None) -> Completion:
        tokens = Tokens((1, 2), (3,), (-0.5,), policy_version=policy)
        return Completion(text="sampled", tokens=tokens, usage=Usage(2, 1, calls=1), finish="stop")

    script = [answer("7"), answer("8"), answer(None)]
    with ScriptedServer(script) as upstream, world(upstream, store=store) as made, made.openai() as client:
        right = client.chat.completions.create(model="x", messages=HELLO, stream=streamed)
        if streamed:
            assert "".join(chunk.choices[0].delta.content or "" for chunk in right) == "sampled"
        else:
            assert "policy_version" not in right.to_dict()
        for _ in range(2):
            with pytest.raises(openai.InternalServerError, match="assigned policy version '7'"):
                client.chat.completions.create(model="x", messages=HELLO, stream=streamed)
        first, second, third = made.calls()
    assert (first["policy_version"], first["error"]) == ("7", None)
    assert (second["policy_version"], second["error"]["type"]) == ("8", "version_mismatch")
    assert (third["policy_version"], third["error"]["type"]) == (None, "version_mismatch")


@pytest.mark.parametrize("path", ["/trial", "/run/r1/trial", "/run/r1/TOKEN/trial"])
def test_a_candidate_on_trial_keeps_its_prompt_and_leaves_no_record(store: Store, path: str) -> None:
    store.set_live(bundle(model="other", system_prompt="Be brief."))
    asked = {"model": "scripted", "messages": [{"role": "system", "content": "Be long."}, *HELLO]}
    with ScriptedServer("fine", models=("other",)) as upstream, world(upstream, store=store) as served_world:
        headers = {"authorization": "Bearer sk", "x-whet-token": TOKEN}
        token = http("POST", f"{served_world.url}/api/runs/r1/token", headers=headers, json={}).json()[
            "token"
        ]
        base = served_world.url + path.replace("TOKEN", token)
        for stream in (False, True):
            said = http(
                "POST", f"{base}/v1/chat/completions", headers=headers, json=asked | {"stream": stream}
            )
            assert said.status_code == 200, said.text
            assert "fine" in said.text
        assert admin(served_world, "GET", "")["recorded"] == 0
        foreign = served_world.url + path.replace("r1", "r2").replace("TOKEN", token)
        if "TOKEN" in path:  # of another run
            assert http("POST", f"{foreign}/v1/chat/completions", json=asked).status_code == 403
        (body, _) = (request.body for request in upstream.requests)
        assert body["messages"][0]["content"] == "Be long."
        assert body["model"] == "other", "production asks that model, and so does who shall replace it"
    assert list(store.trajectories()) == []
