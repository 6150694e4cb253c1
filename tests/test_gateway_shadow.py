"""Live shadows: candidates answer in another process, and who is served never knows."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from gateway_world import HELLO, World, http, world
from processes import until

from whet.models.base import Completion, ModelRequest, ToolCall
from whet.models.fakes import Reply, ScriptedServer
from whet.prove.shadow import shadow_pairs
from whet.record.store import Stage, Store
from whet.record.store.trials import SHADOW, drawn
from whet.record.tracing.assemble import Assembler
from whet.serve.gateway import mirror as gateway_mirror
from whet.serve.gateway.mirror_wire import MirrorLimits
from whet.types import Bundle, Json, Version

MISCHIEF: dict[str, Reply] = {
    "crash": Reply(cut_after=0),
    "garbage": Reply(body=b"\x00\xff not json {{{{" * 50),
    "flood": Reply(body=b"x" * 6_000_000),
    "hang": Reply(delay=30.0),
    "refuse": Reply(status=500),
    "tools": Reply(
        answer=Completion(tool_calls=[ToolCall(name="delete_everything", arguments="{}", id="call_a")])
    ),
}


def bundle(**content: Json) -> Bundle:
    return Bundle([Version(resource=f"gateway.{name}", content=value) for name, value in content.items()])


def script(request: ModelRequest) -> Reply:
    first = str(request.messages[0]["content"])
    return MISCHIEF.get(first) or Reply(answer=f"to {first}")


@pytest.fixture
def store() -> Iterator[Store]:
    with Store(":memory:") as opened:
        yield opened


@pytest.fixture
def upstream() -> Iterator[ScriptedServer]:
    with ScriptedServer(script, models=("scripted", "small")) as server:
        yield server


def shadow(store: Store, candidate: Bundle, share: float = 1.0) -> str:
    return store.release(candidate, stage=Stage.SHADOW, share=share, new_names=True).trial


def ask(made: World, run: str, body: dict[str, Json] | None = None, **headers: str) -> tuple[int, bytes]:
    answer = http(
        "POST",
        f"{made.base(run)}/v1/chat/completions",
        json={"model": "scripted", "messages": HELLO, **(body or {})},
        headers=headers,
    )
    return answer.status_code, answer.content


def assembled(made: World, store: Store) -> None:
    made.calls()
    Assembler(store).flush()


def test_a_candidates_answers_are_recorded_on_the_task_of_the_run_that_they_shadow(
    store: Store, upstream: ScriptedServer
) -> None:
    trial = shadow(store, bundle(model="small", system_prompt="Be brief."))
    with world(upstream, store=store, shadow_limits=MirrorLimits(idle=0.1)) as made:
        until(lambda: made.gateway.mirror.pid is not None)
        for number in range(5):
            status, body = ask(made, f"r{number}", {"stream": number % 2 == 0}, **{"x-whet-subject": "ada"})
            assert status == 200
            assert b"to hello" in body or number % 2 == 0
        assembled(made, store)
        until(lambda: made.gateway.mirror.status.get("recorded") == 5)
        real = {run.id: run for run in store.trajectories() if SHADOW not in run.meta}
        pairs = shadow_pairs(store, trial)
        assert len(pairs) == len(real) == 5
        for of, pair in pairs:
            assert of == real[of.id]
            assert (pair.task, pair.session, pair.subject) == (of.task, None, "ada")
            assert pair.output == "to Be brief."
            assert set(pair.versions) == {"gateway.model", "gateway.system_prompt"}
            assert not of.versions


def test_whatever_the_candidates_do_the_answers_are_those_without_them(
    store: Store, upstream: ScriptedServer
) -> None:
    with world(upstream, store=store) as made:
        alone = [ask(made, f"a{number}") for number in range(3)]
    for mischief in MISCHIEF:
        shadow(store, bundle(system_prompt=mischief))
    with world(upstream, store=store, shadow_limits=MirrorLimits(seconds=8.0, concurrency=8)) as made:
        mirror = made.gateway.mirror
        until(lambda: mirror.pid is not None)
        beside = [ask(made, f"a{number}") for number in range(3)]
        until(lambda: sum(mirror.status.get(name, 0) for name in ("answered", "failed")) == 3 * len(MISCHIEF))
        # Only the one that asks for a tool has answered: it is written down, and nobody runs it.
        assert mirror.status["answered"] == 3
    assert [status for status, _ in beside] == [200] * 3
    assert [_without_ids(body) for _, body in beside] == [_without_ids(body) for _, body in alone]


def _without_ids(body: bytes) -> bytes:
    return b",".join(part for part in body.split(b",") if b'"id"' not in part and b'"created"' not in part)


def test_a_mirror_that_dies_is_started_again_and_nobody_waits(
    store: Store, upstream: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    shadow(store, bundle(model="small"))
    monkeypatch.setattr(gateway_mirror, "_AGAIN", 600.0)
    with world(upstream, store=store) as made:
        mirror = made.gateway.mirror
        until(lambda: mirror.pid is not None)
        assert mirror.pid is not None
        os.kill(mirror.pid, signal.SIGKILL)
        until(lambda: mirror.status.get("deaths") == 1)
        assert ask(made, "r1")[0] == 200
        assert mirror.status["dropped"] == 1
        mirror._start_at = 0.0  # the time is up
        until(lambda: mirror.pid is not None)
        assert ask(made, "r2")[0] == 200
        until(lambda: mirror.status.get("answered") == 1)


def test_what_would_act_at_the_provider_is_never_sent_and_nothing_is_sent_beyond_the_budget(
    store: Store, upstream: ScriptedServer
) -> None:
    shadow(store, bundle(model="small"))
    with world(upstream, store=store, shadow_limits=MirrorLimits(calls=2)) as made:
        mirror = made.gateway.mirror
        until(lambda: mirror.pid is not None)
        ask(made, "r0", {"tools": [{"type": "web_search"}]})
        until(lambda: mirror.status.get("left out: it has tools that the provider runs") == 1)
        for number in range(4):
            ask(made, f"r{number}", {"store": True}, **{"idempotency-key": "k"})
        until(lambda: mirror.status.get("left out: the budget of shadows is used up") == 2)

        # The budget is spent before a request is on its way.
        until(lambda: sum(request.body["model"] == "small" for request in upstream.requests) >= 2)  # type: ignore[index]
        sent = [request for request in upstream.requests if request.body["model"] == "small"]  # type: ignore[index]
        assert len(sent) == 2
        assert all(request.body["store"] is False for request in sent)  # type: ignore[index]
        assert not any("idempotency-key" in request.headers for request in sent)


def test_a_shadow_has_its_share_and_ends_with_its_trial(store: Store, upstream: ScriptedServer) -> None:
    trial = shadow(store, bundle(model="small"), 0.5)
    with world(upstream, store=store) as made:
        mirror = made.gateway.mirror
        until(lambda: mirror.pid is not None)
        for number in range(40):
            ask(made, f"r{number}")
        assert mirror.counts["mirrored"] + mirror.counts["dropped"] == sum(
            drawn(trial, f"r{number}", 0.5) for number in range(40)
        )
        store.retire(trial)
        before = mirror.status["mirrored"]
        for number in range(10):
            ask(made, f"later{number}")
        assert mirror.status["mirrored"] == before
