"""Everything that goes wrong: what the agent's own client hears of it, and whose fault the record says it was."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import anthropic
import httpx2
import openai
import pytest
from gateway_world import HELLO, NO_TLS, TOKEN, World, http, world
from processes import until

from whet.models.fakes import Reply, ScriptedServer
from whet.record.store import Store
from whet.serve.gateway import Upstream

CHUNK = b'data: {"choices": [{"index": 0, "delta": {"content": "half an"}}]}\n\n'
LAST = b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'


@contextmanager
def closed_port() -> Iterator[int]:
    """A port at which nobody listens: it is held, so that no other test gets it."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def ask_chat(served: World, **given: Any) -> Any:
    with served.openai() as client:
        return client.chat.completions.create(model="scripted", messages=HELLO, **given)


def ask_responses(served: World, **given: Any) -> Any:
    with served.openai() as client:
        return client.responses.create(model="scripted", input="hello", **given)


def ask_messages(served: World, **given: Any) -> Any:
    with served.anthropic() as client:
        return client.messages.create(model="scripted", max_tokens=9, messages=HELLO, **given)


ASKS = {"chat": ask_chat, "responses": ask_responses, "messages": ask_messages}
ERRORS = {"chat": openai.APIError, "responses": openai.APIError, "messages": anthropic.APIError}


@pytest.fixture(params=["chat", "responses", "messages"])
def api(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def drained(ask: Callable[..., Any], served: World) -> None:
    """Read a stream to its end, whatever that is."""
    with served.openai() as client, served.anthropic() as other:
        if ask is ask_messages:
            with other.messages.create(
                model="scripted", max_tokens=9, messages=HELLO, stream=True
            ) as messages:
                list(messages)
        elif ask is ask_responses:
            with client.responses.create(model="scripted", input="hello", stream=True) as items:
                kinds = [event.type for event in items]
            # OpenAI's client gives an error event of this API back as an event.
            if "error" in kinds:
                raise openai.APIError("error event", request=None, body=None)  # type: ignore[arg-type]
        else:
            with client.chat.completions.create(model="scripted", messages=HELLO, stream=True) as chunks:
                list(chunks)


def test_an_upstream_that_is_down(api: str) -> None:
    with closed_port() as port:
        upstream = Upstream(url=f"http://127.0.0.1:{port}/v1", connect_seconds=60)
        with world({"gone": upstream}) as served:
            with pytest.raises(ERRORS[api], match="cannot be reached") as caught:
                ASKS[api](served)
            assert getattr(caught.value, "status_code", None) == 502
            call = served.call()
    assert (call["status"], call["response"]) == (502, None)
    assert (call["error"]["fault"], call["error"]["type"]) == ("model", "upstream_unreachable")


def test_an_upstream_that_is_slow(api: str) -> None:
    with ScriptedServer(lambda _: Reply(answer="late", delay=30)) as upstream:
        with world(upstream, options={"first_seconds": 0.2}) as served:
            with pytest.raises(ERRORS[api], match="did not answer within") as caught:
                ASKS[api](served)
            call = served.call()
        assert getattr(caught.value, "status_code", None) == 504
        assert (call["status"], call["error"]["type"]) == (504, "upstream_timeout")
        assert call["error"]["fault"] == "model"


def test_an_upstream_that_stalls_in_the_middle(api: str) -> None:
    def events() -> Iterator[bytes]:
        yield CHUNK
        time.sleep(2)
        yield LAST

    with (
        ScriptedServer(lambda _: Reply(events=events())) as upstream,
        world(upstream, options={"idle_seconds": 0.2}) as served,
    ):
        with pytest.raises(ERRORS[api]):
            drained(ASKS[api], served)
        call = served.call()
    assert call["error"]["type"] == "upstream_stalled"
    assert call["status"] == 200


@pytest.mark.parametrize("body", [b"<html>oops</html>", b"[]", b'{"answer": 1}', b"\xff\xfe"], ids=repr)
def test_an_answer_that_is_none(api: str, body: bytes) -> None:
    with ScriptedServer(lambda _: Reply(body=body)) as upstream, world(upstream) as served:
        with pytest.raises(ERRORS[api], match="answer is") as caught:
            ASKS[api](served)
        assert getattr(caught.value, "status_code", None) == 502
        call = served.call()
    assert (call["error"]["fault"], call["error"]["type"]) == ("model", "malformed_answer")


def test_an_answer_cut_in_its_middle(api: str) -> None:
    script = [Reply(answer="a whole answer", cut_after=20)]
    with ScriptedServer(script) as upstream, world(upstream) as served:
        with pytest.raises(ERRORS[api]) as caught:
            ASKS[api](served)
        assert getattr(caught.value, "status_code", None) == 502
        assert served.call()["error"]["type"] == "upstream_cut"


@pytest.mark.parametrize("after", [1, 3])
@pytest.mark.parametrize(
    "speaks", [("chat",), ("chat", "responses", "messages")], ids=["translated", "spoken"]
)
def test_a_stream_cut_in_its_middle(api: str, after: int, speaks: tuple[str, ...]) -> None:
    script = [Reply(answer="one two three four five", cut_after=after)]
    with (
        ScriptedServer(script, speaks=speaks) as upstream,
        world(upstream, options={"speaks": frozenset(speaks)}) as served,
    ):
        with pytest.raises(ERRORS[api]):
            drained(ASKS[api], served)
        call = served.call()
    assert (call["error"]["fault"], call["error"]["type"]) == ("model", "upstream_cut")
    assert call["response"] is not None, "what came before the cut is kept"


def test_a_stream_that_ends_in_the_middle_of_an_event_is_cut_between_events() -> None:
    events = [CHUNK, b'data: {"choices": [{"ind']
    with ScriptedServer([Reply(events=events)]) as upstream, world(upstream) as served:
        with pytest.raises(openai.APIError, match="not JSON"):
            drained(ask_chat, served)
        call = served.call()
    assert call["response"]["choices"][0]["message"]["content"] == "half an"


def test_an_event_that_is_not_json(api: str) -> None:
    events = [CHUNK, b"data: {oops}\n\n", LAST]
    with ScriptedServer([Reply(events=events)]) as upstream, world(upstream) as served:
        with pytest.raises(ERRORS[api]):
            drained(ASKS[api], served)
        assert served.call()["error"]["type"] == "malformed_answer"


def test_an_error_object_inside_a_stream(api: str) -> None:
    error = b'data: {"error": {"message": "the GPU fell off", "type": "server_error", "code": "gpu"}}\n\n'
    with ScriptedServer([Reply(events=[CHUNK, error])]) as upstream, world(upstream) as served:
        with pytest.raises(ERRORS[api]):
            drained(ASKS[api], served)
        call = served.call()
    assert call["error"] == {"fault": "model", "type": "gpu", "message": "the GPU fell off"}


@pytest.mark.parametrize(
    ("status", "fault", "kind"),
    [
        (400, "agent", openai.BadRequestError),
        (401, "agent", openai.AuthenticationError),
        (404, "agent", openai.NotFoundError),
        (429, "model", openai.RateLimitError),
        (503, "model", openai.InternalServerError),
    ],
)
def test_an_error_of_the_upstream_reaches_the_agent_as_it_is(
    status: int, fault: str, kind: type[openai.APIStatusError]
) -> None:
    body = b'{"error": {"message": "because", "type": "t", "param": null, "code": "why"}}'
    reply = Reply(status=status, body=body, headers={"Retry-After": "7", "x-request-id": "req_1"})
    with ScriptedServer([reply]) as upstream, world(upstream) as served:
        with pytest.raises(kind, match="because") as caught:
            ask_chat(served)
        assert caught.value.response.headers["retry-after"] == "7"
        assert caught.value.response.headers["x-request-id"] == "req_1"
        assert caught.value.response.content == body
        call = served.call()
    assert (call["status"], call["error"]) == (status, {"fault": fault, "type": "why", "message": "because"})


def test_an_error_of_a_chat_upstream_is_told_in_the_dialect_of_the_agent() -> None:
    replies = [Reply(status=429), Reply(status=529), Reply(status=404)]
    with ScriptedServer(replies) as upstream, world(upstream) as served, served.anthropic() as client:
        for kind, word in (
            (anthropic.RateLimitError, "rate_limit_error"),
            (anthropic.OverloadedError, "overloaded_error"),
            (anthropic.NotFoundError, "not_found_error"),
        ):
            with pytest.raises(kind) as caught:
                client.messages.create(model="scripted", max_tokens=9, messages=HELLO)
            assert caught.value.body["error"]["type"] == word
    assert len(upstream.requests) == 3


def test_a_refused_key_of_the_gateways_own_is_not_the_agents_fault() -> None:
    with (
        ScriptedServer("fine", api_key="right") as upstream,
        world(upstream, options={"key": "wrong"}) as served,
    ):
        with pytest.raises(openai.AuthenticationError):
            ask_chat(served)
        assert served.call()["error"]["fault"] == "environment"


def test_a_redirect_is_not_followed_and_not_passed_on() -> None:
    reply = Reply(status=307, headers={"Location": "http://127.0.0.1:9/v1/chat/completions"})
    with ScriptedServer([reply]) as upstream, world(upstream) as served:
        with pytest.raises(openai.InternalServerError) as caught:
            ask_chat(served)
        assert caught.value.status_code == 502
        assert len(upstream.requests) == 1


@pytest.mark.parametrize("streamed", [True, False])
def test_an_agent_that_hangs_up_cancels_the_upstream(streamed: bool) -> None:
    reply = Reply(answer="one two three " * 50, delay=0.0 if streamed else 60.0, event_delay=0.05)
    with ScriptedServer([reply]) as upstream, world(upstream) as served:
        body = {"model": "scripted", "messages": HELLO, "stream": streamed}
        url = f"{served.base()}/v1/chat/completions"
        if streamed:
            with (
                httpx2.Client(verify=NO_TLS, timeout=90) as client,
                client.stream("POST", url, json=body) as answer,
            ):
                next(answer.iter_lines())
        else:
            port = int(served.url.rpartition(":")[2])
            connection = HTTPConnection("127.0.0.1", port, timeout=10)
            connection.request("POST", urlsplit(url).path, json.dumps(body))
            until(lambda: upstream.requests)
            connection.close()
        until(lambda: upstream.aborted == 1, "the upstream was not told")
        until(lambda: not served.gateway.traffic.in_flight)
        call = served.call()
    assert (call["status"], call["error"]["fault"], call["error"]["type"]) == (499, "agent", "client_gone")


def test_a_request_that_is_no_json_is_the_agents() -> None:
    with ScriptedServer("fine") as upstream, world(upstream) as served:
        url = f"{served.base()}/v1/chat/completions"
        for body in (b"{nope", b"[]", b"\xff", b'{"a":' * 500 + b"1" + b"}" * 500):
            answer = http("POST", url, content=body)
            assert answer.status_code == 400
            assert answer.json()["error"]["type"] == "invalid_request_error"
        assert upstream.requests == []
        assert {call["error"]["fault"] for call in served.calls()} == {"agent"}
        assert {call["request"] for call in served.calls()} == {None}


def test_half_a_character_stops_neither_a_call_nor_its_record() -> None:
    cut = json.dumps({"model": "scripted", "messages": [{"role": "user", "content": "cut \ud83d"}]}).encode()
    event = b'data: {"choices": [{"index": 0, "delta": {"content": "%b"}}]}\n\n'
    halves = [event % half for half in (rb"\ud83d", rb"\ude00")]
    with ScriptedServer(lambda _: Reply(events=[*halves, LAST])) as upstream, world(upstream) as served:
        url = f"{served.base()}/v1/chat/completions"
        whole = http("POST", url, content=cut)
        assert whole.status_code == 200
        streamed = http("POST", url, content=cut[:-1] + b', "stream": true}')
        assert all(half.strip() in streamed.content for half in halves)
        first, second = served.calls()
        assert first["request"]["messages"][0]["content"] == "cut \ufffd"
        assert second["response"]["choices"][0]["message"]["content"] == "\ufffd\ufffd"


@pytest.mark.parametrize(
    "given",
    [
        {"previous_response_id": "resp_1"},
        {"tools": [{"type": "web_search"}]},
        {"input": [{"type": "item_reference", "id": "x"}]},
        {"input": [{"type": "function_call"}]},
    ],
    ids=lambda given: next(iter(given)),
)
def test_what_chat_cannot_express_is_refused_with_the_reason(given: dict[str, Any]) -> None:
    with ScriptedServer("fine") as upstream, world(upstream) as served, served.openai() as client:
        with pytest.raises(openai.BadRequestError, match="cannot be"):
            client.responses.create(**{"model": "scripted", "input": "hello", **given})
        assert upstream.requests == []


def test_a_call_whose_record_cannot_be_written_is_answered_counted_and_said(
    capfd: pytest.CaptureFixture[str],
) -> None:
    store = Store(":memory:")
    with ScriptedServer("fine") as upstream:
        with world(upstream, store=store) as served:
            served.gateway.recorder.patience = 0.2
            store.close()
            assert ask_chat(served).choices[0].message.content == "fine"
            until(lambda: served.gateway.recorder.error)
            headers = {"authorization": f"Bearer {TOKEN}"}
            status = http("GET", f"{served.url}/api/gateway", headers=headers).json()
            assert (status["waiting"], status["recorded"]) == (1, 0)
            assert "closed" in status["error"]
        assert served.gateway.recorder.lost == 1
    assert "1 model calls could not be recorded" in capfd.readouterr().err


def test_what_waits_to_be_recorded_is_bounded() -> None:
    from whet.serve.gateway.identity import Identity
    from whet.serve.gateway.record import ModelCall, Recorder

    with Store(":memory:") as store:
        gate = threading.Event()

        def slow(spans: Any) -> Any:
            gate.wait(90)
            return spans

        recorder = Recorder(store.spans, redact=slow, limit=10_000)
        identity = Identity("r", bytes(16), b"")
        for _ in range(100):
            recorder.add(ModelCall("chat", identity, request=b'"' + b"x" * 1_000 + b'"'))
        assert recorder.waiting <= 5
        assert recorder.lost == 100 - recorder.waiting
        gate.set()
        assert recorder.flush()
        recorder.close()
        assert recorder.recorded + recorder.lost == 100
        assert len(store.spans.run("r")) == recorder.recorded


def test_a_recorder_that_fails_on_one_call_records_the_next(capfd: pytest.CaptureFixture[str]) -> None:
    failures = [RuntimeError("a bug in a rule")]

    def redact(spans: Any) -> Any:
        if failures:
            raise failures.pop()
        return spans

    with ScriptedServer("fine") as upstream, world(upstream, redact=redact) as served:
        ask_chat(served)
        assert served.calls() == []
        ask_chat(served)
        assert len(served.calls()) == 1
        status = served.gateway.status()
    assert (status.recorded, status.lost, status.error) == (1, 1, None)
    assert "a bug in a rule" in capfd.readouterr().err
