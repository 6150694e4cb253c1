"""What a kill can lose: nothing of a call that had to be recorded first, and never a call uncounted."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from commands import answered
from gateway_world import HELLO, TOKEN, http, world
from processes import until

from whet.models.fakes import ScriptedServer
from whet.record.store import Store
from whet.record.store.call_tally import CallCounts, CallTally, counts
from whet.serve.gateway import Gateway, Upstream

CHAT = {"model": "scripted", "messages": HELLO}
BODIES: dict[str, dict[str, Any]] = {
    "chat/completions": CHAT,
    "responses": {"model": "scripted", "input": "hello"},
    "messages": {"model": "scripted", "max_tokens": 9, "messages": HELLO},
}


@contextmanager
def serving(store: Path, upstream: str, *words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`whet serve` in a process of its own, killed at the end."""
    command = [sys.executable, "-m", "whet", "serve", "--store", str(store), "--port", "0", "--token", TOKEN]
    serving = subprocess.Popen(
        [*command, "--upstream", upstream, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert serving.stdout is not None
        found = re.search(r"http://[\d.:]+", serving.stdout.readline())
        assert found is not None
        yield serving, found[0]
    finally:
        serving.kill()
        serving.wait()
        assert serving.stdout is not None
        serving.stdout.close()


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("by", ["server", "header"])
def test_an_answer_that_must_be_recorded_first_is(tmp_path: Path, path: str, streamed: bool, by: str) -> None:
    body = {**BODIES[path], "stream": streamed}
    headers = {"x-whet-durable": "true"} if by == "header" else {}
    with (
        ScriptedServer("It is fine.") as upstream,
        Store(tmp_path / "runs.db") as store,
        world(upstream, store=store, durable=by == "server") as made,
        httpx2.Client(verify=False, timeout=90) as client,
    ):
        for number in range(3):
            with client.stream("POST", f"{made.base()}/v1/{path}", json=body, headers=headers) as answer:
                text = "".join(answer.iter_text())
            assert answer.status_code == 200, text
            assert len(store.spans.run("r1")) == number + 1, "it was answered before it was recorded"
        assert "fine" in text
        assert upstream.requests[0].headers.get("x-whet-durable") is None


def test_the_end_of_a_stream_alone_waits_for_the_commit() -> None:
    gate = threading.Event()

    def redact(spans: Any) -> Any:
        gate.wait(90)
        return spans

    with (
        ScriptedServer("one two three four five six seven") as upstream,
        world(upstream, redact=redact, durable=True) as made,
        httpx2.Client(verify=False, timeout=90) as client,
        client.stream("POST", f"{made.base()}/v1/chat/completions", json={**CHAT, "stream": True}) as answer,
    ):
        events = answer.iter_lines()
        seen = ""
        while "six" not in seen:
            seen += next(events)
        assert "[DONE]" not in seen
        gate.set()
        assert any("[DONE]" in line for line in events)
        assert len(made.store.spans.run("r1")) == 1


@pytest.mark.parametrize("streamed", [False, True])
def test_an_answer_that_cannot_be_recorded_is_withheld(streamed: bool) -> None:
    def redact(spans: Any) -> Any:
        raise RuntimeError("a bug in a rule")

    with ScriptedServer("It is fine.") as upstream, world(upstream, redact=redact, durable=True) as made:
        answer = http("POST", f"{made.base()}/v1/chat/completions", json={**CHAT, "stream": streamed})
        assert "not_recorded" in answer.text
        assert '"finish_reason":"stop"' not in answer.text
        assert answer.status_code in ((200, 503) if streamed else (503,))
        assert made.gateway.recorder.lost == 1


def test_a_refusal_of_the_model_is_recorded_before_it_is_told() -> None:
    with ScriptedServer("fine", models=("another",)) as upstream, world(upstream, durable=True) as made:
        assert http("POST", f"{made.base()}/v1/chat/completions", json=CHAT).status_code == 404
        (span,) = made.store.spans.run("r1")
    assert json.loads(span.body)["status"] == 404


def test_calls_that_a_kill_loses_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "runs.db"
    gate = threading.Event()

    def model(request: Any) -> str:
        if "wait" in str(request.messages):
            gate.wait(90)
        return "fine"

    with ScriptedServer(model) as upstream, httpx2.Client(verify=False, timeout=90) as client:
        with serving(path, upstream.base_url) as (process, url):
            base = f"{url}/run/r1/{TOKEN}/v1/chat/completions"
            for _ in range(5):
                assert client.post(base, json=CHAT).status_code == 200
            with Store(path) as store:
                until(lambda: len(store.spans.run("r1")) == 5)
            under_way = {**CHAT, "messages": [{"role": "user", "content": "wait"}]}

            def ask() -> None:
                with pytest.raises(httpx2.HTTPError):
                    httpx2.post(base, json=under_way, verify=False, timeout=90)

            waiting = [threading.Thread(target=ask) for _ in range(2)]
            for thread in waiting:
                thread.start()
            until(lambda: len(upstream.requests) == 7)
            # Answered, and with luck not yet written.
            for _ in range(3):
                assert client.post(base, json=CHAT).status_code == 200
            process.kill()
            process.wait()
        gate.set()
        for thread in waiting:
            thread.join()
        with Store(path) as store:
            recorded = len(store.spans.run("r1"))
            assert 5 <= recorded <= 8
            assert counts(store) == CallCounts(recorded, 0, 10 - recorded)
        shown = answered(capsys, "show", "--store", path, "--json")
        assert shown["model_calls"] == {"recorded": recorded, "lost": 0, "open": 10 - recorded}
        with Store(path, serve=True) as store:
            with world({"default": Upstream(url=upstream.base_url)}, store=store) as made:
                lost = 10 - recorded
                assert http("GET", f"{made.url}/healthz").json() == {"status": "ok", "model_calls_lost": lost}
                assert made.gateway.status().lost_before == lost
                assert http("POST", f"{made.base()}/v1/chat/completions", json=CHAT).status_code == 200
                assert len(made.calls()) == recorded + 1
            assert counts(store) == CallCounts(recorded + 1, lost, 0)
    shown = answered(capsys, "show", "--store", path, "--json")["model_calls"]
    assert shown == {"recorded": recorded + 1, "lost": lost, "open": 0}


def test_no_call_that_was_answered_is_lost_where_it_must_be_recorded_first(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with (
        ScriptedServer("fine") as upstream,
        httpx2.Client(verify=False, timeout=90) as client,
        serving(path, upstream.base_url, "--durable-calls") as (process, url),
    ):
        for _ in range(5):
            answer = client.post(f"{url}/run/r1/{TOKEN}/v1/chat/completions", json=CHAT)
            assert answer.status_code == 200
        process.kill()
        process.wait()
        assert process.stdout is not None
        assert re.search(r"adds a flush of this disk, \d+\.\d ms", process.stdout.read())
    with Store(path) as store:
        assert len(store.spans.run("r1")) == 5
        assert counts(store) == CallCounts(5, 0, 0)


def test_a_count_that_cannot_be_kept_stops_nothing_and_a_damaged_one_is_begun_anew(tmp_path: Path) -> None:
    with Store(tmp_path / "runs.db") as store:
        assert counts(store) is None
        (tmp_path / "runs.db.calls").mkdir()
        tally = CallTally(store)
        tally.begin()
        tally.close()
        (tmp_path / "runs.db.calls").rmdir()
        for held in (b"", b"short", b"something else, longer than sixteen bytes"):
            (tmp_path / "runs.db.calls").write_bytes(held)
            tally = CallTally(store)
            assert tally.lost == 0
            tally.begin()
            tally.close()
            (tmp_path / "runs.db.calls").unlink()
        assert Gateway(store, {"default": Upstream(url="http://127.0.0.1:9/v1")}).lost == 0
