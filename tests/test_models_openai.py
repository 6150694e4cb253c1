"""OpenAIModel over real HTTP on loopback, against the scripted server."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any
from urllib.request import urlopen

import msgspec
import pytest

from whet.errors import BudgetExceeded, InputError, ModelError
from whet.models import Chunk, Completion, OpenAIModel, Price, RecordedModel, Retry, ToolCall
from whet.models.budget import Meter
from whet.models.fakes import Reply, ScriptedServer
from whet.types import Budget, Tokens, Usage

QUICK = Retry(attempts=3, first_wait=0.01, total_seconds=90, attempt_seconds=60)
TOKENS = Tokens((5, 6, 7), (8, 9), (-0.1, -2.5))
KEY = "sk-very-secret"


async def ask(
    server: ScriptedServer, prompt: Any = "hello", *, settings: Any = None, **given: Any
) -> Completion:
    async with OpenAIModel(server.base_url, "scripted", **{"retry": QUICK, **given}) as model:
        return await model.complete(prompt, **(settings or {}))


async def stream(server: ScriptedServer, *, into: list[Chunk] | None = None, **given: Any) -> list[Chunk]:
    chunks: list[Chunk] = [] if into is None else into
    async with OpenAIModel(server.base_url, "scripted", **{"retry": QUICK, **given}) as model:
        async for chunk in model.stream("hello"):
            chunks.append(chunk)
    return chunks


def asked(script: Any, **given: Any) -> tuple[Completion, ScriptedServer]:
    with ScriptedServer(script) as server:
        return asyncio.run(ask(server, **given)), server


def refused(script: Any, **given: Any) -> tuple[ModelError, ScriptedServer]:
    with ScriptedServer(script) as server, pytest.raises(ModelError) as caught:
        asyncio.run(ask(server, **given))
    return caught.value, server


def test_a_request_carries_exactly_what_was_asked() -> None:
    settings = {"temperature": 0.0, "max_tokens": 7, "seed": 3, "stop": ["\n"]}
    completion, server = asked("fine", settings=settings, api_key=KEY)
    assert completion.text == "fine"
    assert completion.usage == Usage(prompt_tokens=1, output_tokens=1, calls=1)
    assert (completion.model, completion.finish) == ("scripted", "stop")
    assert completion.raw["choices"][0]["message"]["content"] == "fine"
    (received,) = server.requests
    chat = [{"role": "user", "content": "hello"}]
    assert received.body == {"model": "scripted", "messages": chat, **settings}
    assert received.headers["authorization"] == f"Bearer {KEY}"


def test_without_a_key_no_authorization_is_sent() -> None:
    _, server = asked("fine")
    assert "authorization" not in server.requests[0].headers


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504])
def test_a_passing_failure_is_retried(status: int) -> None:
    completion, server = asked([Reply(status=status), Reply(status=status), "fine"])
    assert completion.text == "fine"
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("status", "advice"), [(400, "refused"), (401, "api_key"), (404, "base_url"), (422, "")]
)
def test_a_refusal_is_not_retried_and_says_what_to_do(status: int, advice: str) -> None:
    body = b'{"error": {"message": "the endpoint\'s own words"}}'
    error, server = refused(lambda _: Reply(status=status, body=body))
    assert len(server.requests) == 1
    assert (error.status, error.retryable) == (status, False)
    for part in (f"HTTP {status}", "'scripted'", server_address(server), "own words", advice):
        assert part in str(error)


def server_address(server: ScriptedServer) -> str:
    return f"http://{server.requests[0].headers['host']}/v1"


def test_it_gives_up_after_the_last_attempt_with_the_last_answer() -> None:
    error, server = refused(lambda _: Reply(status=503, body=b"x" * 5000))
    assert len(server.requests) == QUICK.attempts
    assert (error.status, error.retryable) == (503, True)
    assert "attempt 3 of 3" in str(error)
    assert len(str(error)) < 600


def test_waits_double_up_to_the_longest_and_are_jittered() -> None:
    retry = Retry(first_wait=1, longest_wait=6)
    assert [retry.wait(number, 1.0) for number in (1, 2, 3, 4, 5)] == [1, 2, 4, 6, 6]
    assert [retry.wait(number, 0.0) for number in (1, 2, 3)] == [0.5, 1, 2]


def test_retry_after_is_honoured_in_seconds_and_as_a_date() -> None:
    begun = time.monotonic()
    asked([Reply(status=429, headers={"Retry-After": "0.3"}), "fine"])
    assert time.monotonic() - begun >= 0.3
    times: list[float] = []

    def script(_: Any) -> Reply:
        times.append(time.monotonic())
        when = format_datetime(datetime.now(UTC) + timedelta(seconds=2), usegmt=True)
        return Reply(answer="fine") if len(times) > 1 else Reply(status=503, headers={"Retry-After": when})

    asked(script)
    assert times[1] - times[0] >= 0.9  # an HTTP date has no fractions


def test_a_wait_longer_than_the_call_may_take_is_not_begun() -> None:
    begun = time.monotonic()
    error, server = refused([Reply(status=429, headers={"Retry-After": "3600"})])
    assert time.monotonic() - begun < 20
    assert len(server.requests) == 1
    assert error.retryable
    assert "asked to wait 3600 s" in str(error)


@pytest.mark.parametrize(
    "body",
    [
        b"{oops",
        b"",
        b"\xff\xfe",
        b"[]",
        b'{"choices": []}',
        b'{"choices": [{"message": 7}]}',
        b'{"error": "x"}',
    ],
)
def test_an_answer_that_is_no_completion_is_retried_and_then_shown(body: bytes) -> None:
    completion, _ = asked([Reply(body=body), "fine"])
    assert completion.text == "fine"
    error, _ = refused(lambda _: Reply(body=body))
    assert body.decode(errors="replace") in str(error)


def test_a_connection_cut_in_mid_answer_is_retried() -> None:
    completion, server = asked([Reply(answer="a long answer", cut_after=20), "fine"])
    assert completion.text == "fine"
    assert len(server.requests) == 2


def test_an_endpoint_that_is_not_there_is_named_after_retries() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        with pytest.raises(ModelError, match=r"cannot connect.*Is the server running") as caught:
            asyncio.run(_complete(OpenAIModel(url, "m", retry=QUICK)))
    assert url in str(caught.value)
    assert caught.value.status is None
    assert caught.value.retryable


async def _complete(model: OpenAIModel) -> Completion:
    async with model:
        return await model.complete("hello")


def test_a_slow_endpoint_is_given_up_after_the_total_time() -> None:
    retry = Retry(attempts=3, total_seconds=0.2)
    begun = time.monotonic()
    error, _ = refused(lambda _: Reply(answer="late", delay=60), retry=retry)
    assert time.monotonic() - begun < 20
    assert "within 0.2 s" in str(error)
    assert "Retry.total_seconds" in str(error)


def test_one_slow_attempt_is_given_up_and_tried_again() -> None:
    retry = Retry(attempts=2, attempt_seconds=2, first_wait=0.01, total_seconds=90)
    completion, server = asked([Reply(answer="late", delay=60), "fine"], retry=retry)
    assert completion.text == "fine"
    assert len(server.requests) == 2


def test_the_key_is_in_no_message_and_no_repr() -> None:
    with ScriptedServer("fine", api_key="another") as server:
        model = OpenAIModel(server.base_url, "scripted", api_key=KEY, retry=QUICK)
        assert KEY not in repr(model)
        with pytest.raises(ModelError, match=r"Incorrect API key provided: \[key\]"):
            asyncio.run(_complete(model))


def test_a_key_is_hidden_even_where_the_excerpt_cuts_through_it() -> None:
    body = ("x" * 295 + KEY).encode()
    error, _ = refused(lambda _: Reply(status=400, body=body), api_key=KEY)
    assert "sk-" not in str(error)


@pytest.mark.parametrize("key", ["", " ", "sk-secret\n", "sk-sécret"])
def test_a_key_that_is_none_is_refused_and_not_repeated(key: str) -> None:
    with pytest.raises(InputError, match="api_key") as caught:
        OpenAIModel("http://127.0.0.1/v1", "m", api_key=key)
    assert "sk" not in str(caught.value)


def test_a_tool_call_with_an_absurd_index_takes_no_memory() -> None:
    call = {"index": 10**12, "function": {"name": "f", "arguments": {"already": "an object"}}}
    body = msgspec.json.encode({"choices": [{"message": {"tool_calls": [call]}}]})
    completion, _ = asked([Reply(body=body)])
    assert [(call.name, call.parsed()) for call in completion.tool_calls] == [("f", {"already": "an object"})]


@pytest.mark.parametrize("header", ["nan", "inf", "-5", "soon"])
def test_a_retry_after_that_is_none_is_not_waited_for(header: str) -> None:
    completion, _ = asked([Reply(status=429, headers={"Retry-After": header}), "fine"])
    assert completion.text == "fine"


@pytest.mark.parametrize(
    "url", ["http://x/v1?key=hunter2", "", "localhost:8000/v1", "file:///etc/passwd", "ftp://x/v1", "http://"]
)
def test_a_base_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(InputError, match="base_url"):
        OpenAIModel(url, "m")


def test_a_password_in_the_base_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(InputError, match="api_key") as caught:
        OpenAIModel("http://user:hunter2@127.0.0.1/v1", "m")
    assert "hunter2" not in str(caught.value)


def test_tool_calls_come_back_named_plain_and_streamed() -> None:
    tools = [{"type": "function", "function": {"name": "search", "parameters": {}}}]
    calls = [ToolCall(name="search", arguments='{"words": ["a b", "c"]}', id="c1"), ToolCall(name="stop")]
    completion, server = asked([calls], settings={"tools": tools})
    assert server.requests[0].body["tools"] == tools
    with ScriptedServer([calls]) as server:
        streamed = asyncio.run(stream(server))[-1].completion
    assert streamed is not None
    for found in (completion, streamed):
        assert found.finish == "tool_calls"
        assert [call.name for call in found.tool_calls] == ["search", "stop"]
        assert found.tool_calls[0].parsed() == {"words": ["a b", "c"]}
        assert found.tool_calls[0].id == "c1"
        assert found.tool_calls[1].parsed() == {}


def test_token_ids_and_logprobs_arrive_as_sampled_plain_and_streamed() -> None:
    answer = Completion(text="two words", tokens=TOKENS)
    completion, server = asked([answer], tokens=True)
    assert server.requests[0].body["return_token_ids"] is True
    assert server.requests[0].body["logprobs"] is True
    assert completion.tokens == TOKENS
    with ScriptedServer([answer]) as server:
        streamed = asyncio.run(stream(server, tokens=True))
    assert streamed[-1].completion is not None
    assert streamed[-1].completion.tokens == TOKENS


@pytest.mark.parametrize("logprobs", [(), (-0.1,)])
def test_an_answer_that_cannot_be_trained_on_is_refused_where_tokens_were_asked(
    logprobs: tuple[float, ...],
) -> None:
    answer = Completion(text="x", tokens=Tokens((1,), (2, 3), logprobs))
    error, server = refused([answer], tokens=True)
    assert f"2 token_ids, {len(logprobs)} logprobs" in str(error)
    assert "vLLM" in str(error)
    assert len(server.requests) == 1
    assert "no prompt_token_ids" in str(refused("plain", tokens=True)[0])


def test_without_tokens_asked_none_are_sent() -> None:
    completion, server = asked([Completion(text="x", tokens=TOKENS)])
    assert completion.tokens is None
    assert "return_token_ids" not in server.requests[0].body


def test_a_stream_gives_pieces_then_the_whole_with_its_usage() -> None:
    with ScriptedServer("one two three") as server:
        chunks = asyncio.run(stream(server))
        assert server.requests[0].body["stream_options"] == {"include_usage": True}
    assert [chunk.text for chunk in chunks[:-1]] == ["one ", "two ", "three"]
    whole = chunks[-1].completion
    assert whole is not None
    assert (whole.text, whole.finish, whole.usage.output_tokens) == ("one two three", "stop", 3)


def test_a_streamed_text_may_hold_what_unicode_calls_a_line_break() -> None:
    with ScriptedServer("one\u2028two three\x85four") as server:
        chunks = asyncio.run(stream(server))
    assert [chunk.text for chunk in chunks[:-1]] == ["one\u2028two ", "three\x85four"]


def test_a_content_that_is_streamed_as_parts_and_as_text_is_one_text() -> None:
    deltas: list[Any] = ["", [{"type": "text", "text": "a"}], [{"type": "text", "text": "b"}], "c"]
    lines = [b"data: " + msgspec.json.encode({"choices": [{"delta": {"content": each}}]}) for each in deltas]
    end = b'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}\n\n'
    with ScriptedServer([Reply(events=[*(line + b"\n\n" for line in lines), end])]) as server:
        chunks = asyncio.run(stream(server))
    assert [chunk.text for chunk in chunks[:-1]] == ["a", "b", "c"]
    assert chunks[-1].completion.text == "abc"


def test_a_stream_that_fails_before_its_first_piece_is_retried() -> None:
    with ScriptedServer([Reply(status=503), Reply(answer="a b", cut_after=1), "fine"]) as server:
        assert asyncio.run(stream(server))[0].text == "fine"
        assert len(server.requests) == 3


def test_a_retried_stream_has_nothing_of_the_failed_one_in_it() -> None:
    cut = Reply(answer=Completion(text="", tokens=TOKENS), cut_after=2)
    with ScriptedServer([cut, Completion(text="ab", tokens=TOKENS)]) as server:
        whole = asyncio.run(stream(server, tokens=True))[-1].completion
    assert whole is not None
    assert (whole.text, whole.tokens) == ("ab", TOKENS)


def test_a_stream_cut_in_the_middle_raises_after_what_came() -> None:
    came: list[Chunk] = []
    with ScriptedServer([Reply(answer="one two three four", cut_after=3)]) as server:
        with pytest.raises(ModelError) as caught:
            asyncio.run(stream(server, into=came))
        assert len(server.requests) == 1
    assert [chunk.text for chunk in came] == ["one ", "two "]
    assert caught.value.retryable


def test_a_stream_left_early_leaves_no_connection_behind() -> None:
    async def run(server: ScriptedServer) -> str:
        async with OpenAIModel(server.base_url, "scripted", retry=QUICK) as model:
            pieces = model.stream("hello")
            first = await anext(pieces)
            await pieces.aclose()
            return first.text + (await model.complete("again")).text

    with ScriptedServer("one two three") as server:
        assert asyncio.run(run(server)) == "one one two three"


def test_a_stream_left_early_is_hung_up_on_at_once() -> None:
    async def run() -> None:
        hung_up = asyncio.Event()

        async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
            writer.write(b'data: {"choices": [{"delta": {"content": "first"}}]}\n\n')
            while await reader.read(4096):
                pass  # the request's body, and then nothing until the client goes
            hung_up.set()
            writer.close()

        async with await asyncio.start_server(endless, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            async with OpenAIModel(f"http://127.0.0.1:{port}/v1", "m", retry=QUICK) as model:
                pieces = model.stream("hello")
                assert (await anext(pieces)).text == "first"
                assert not hung_up.is_set()
                await pieces.aclose()
                await asyncio.wait_for(hung_up.wait(), 60)

    asyncio.run(run())


def test_a_model_serves_one_event_loop_after_another() -> None:
    with ScriptedServer("fine") as server:
        model = OpenAIModel(server.base_url, "scripted", retry=QUICK)
        assert [asyncio.run(_complete(model)).text for _ in range(2)] == ["fine", "fine"]


def test_many_calls_at_once_share_connections_and_all_answer() -> None:
    async def run(server: ScriptedServer) -> list[str]:
        async with OpenAIModel(server.base_url, "scripted", retry=QUICK) as model:
            found = await asyncio.gather(*(model.complete(f"q{number}") for number in range(40)))
        return [completion.text for completion in found]

    with ScriptedServer(lambda request: request.text.upper()) as server:
        assert asyncio.run(run(server)) == [f"Q{number}" for number in range(40)]


# -- budgets ---------------------------------------------------------------------------------

PRICES = {"scripted": Price(prompt=1e6, output=2e6)}
"""One dollar a prompt token, two an output token."""


def test_real_usage_and_dollars_replace_the_estimate() -> None:
    meter = Meter(Budget(dollars=5000, calls=5))
    completion, _ = asked("three words here", meter=meter, prices=PRICES, settings={"max_tokens": 100})
    assert completion.usage == Usage(1, 3, 7.0, 1)
    assert meter.spent == {"rollouts": 0, "calls": 1, "tokens": 4, "dollars": 7.0}


def test_a_call_that_would_overshoot_is_never_sent() -> None:
    with ScriptedServer("fine") as server:
        for budget in (Budget(dollars=50), Budget(tokens=50), Budget(calls=0)):
            with pytest.raises(BudgetExceeded):
                asyncio.run(ask(server, meter=Meter(budget), prices=PRICES, settings={"max_tokens": 100}))
        assert not server.requests


def test_each_retry_is_a_call_and_a_refused_call_costs_no_tokens() -> None:
    meter = Meter(Budget(calls=2, tokens=5000))
    with ScriptedServer(lambda _: Reply(status=503)) as server, pytest.raises(BudgetExceeded, match="calls"):
        asyncio.run(ask(server, meter=meter))
    assert len(server.requests) == 2
    assert (meter.spent["calls"], meter.spent["tokens"]) == (2, 0)


def test_a_call_that_was_refused_for_good_costs_no_tokens() -> None:
    meter = Meter(Budget(tokens=5000))
    refused(lambda _: Reply(status=503), meter=meter)
    assert (meter.spent["calls"], meter.spent["tokens"]) == (3, 0)


def test_an_answer_that_may_have_been_billed_stays_spent() -> None:
    meter = Meter(Budget(tokens=5000))
    refused(lambda _: Reply(body=b"{oops"), meter=meter, settings={"max_tokens": 100})
    assert meter.spent["tokens"] >= 100


def test_an_endpoint_that_reports_no_usage_is_charged_the_estimate() -> None:
    body = msgspec.json.encode({"choices": [{"message": {"content": "six bytes or so"}}]})
    meter = Meter(Budget(tokens=5000))
    completion, _ = asked([Reply(body=body)], meter=meter, prompt="p" * 300)
    assert completion.usage.prompt_tokens >= 100
    assert completion.usage.output_tokens > 1
    assert meter.spent["tokens"] == completion.usage.prompt_tokens + completion.usage.output_tokens


def test_a_wall_clock_budget_bounds_the_call() -> None:
    begun = time.monotonic()
    error, _ = refused(lambda _: Reply(answer="late", delay=60), meter=Meter(Budget(seconds=1.5)))
    assert "Budget(seconds=...)" in str(error)
    assert time.monotonic() - begun < 20


def test_a_recorded_endpoint_is_asked_once() -> None:
    async def run(server: ScriptedServer) -> list[str]:
        async with OpenAIModel(server.base_url, "scripted", retry=QUICK) as model:
            recorded = RecordedModel(model)
            return [(await recorded.complete("q", sample=0)).text for _ in range(3)]

    with ScriptedServer(["only once"]) as server:
        assert asyncio.run(run(server)) == ["only once"] * 3


# -- the server itself -----------------------------------------------------------------------


def test_the_server_lists_its_models_and_speaks_only_to_loopback() -> None:
    with ScriptedServer(models=("a", "b")) as server:
        assert server.base_url.startswith("http://127.0.0.1:")
        with urlopen(f"{server.base_url}/models", timeout=5) as answer:
            listed = msgspec.json.decode(answer.read())
    assert [model["id"] for model in listed["data"]] == ["a", "b"]


@pytest.mark.parametrize(
    ("script", "status", "words"),
    [
        (["one"], 400, "asked 2 times"),
        (lambda _: int("x"), 400, "the script raised ValueError"),
        ({"x": "y"}, 400, "matches"),
        ("fine", 404, "no model"),
    ],
)
def test_the_server_says_why_it_has_no_answer(script: Any, status: int, words: str) -> None:
    async def run(server: ScriptedServer) -> None:
        name = "scripted" if status == 400 else "other"
        async with OpenAIModel(server.base_url, name, retry=QUICK) as model:
            await model.complete("first")
            await model.complete("second")

    with ScriptedServer(script) as server, pytest.raises(ModelError, match=words) as caught:
        asyncio.run(run(server))
    assert caught.value.status == status


def test_the_server_stops_with_kept_alive_and_waiting_connections() -> None:
    script: Callable[[Any], Reply] = lambda _: Reply(answer="late", delay=0.3)  # noqa: E731
    begun = time.monotonic()
    with ScriptedServer(script) as server:
        port = int(server.base_url.rpartition(":")[2].removesuffix("/v1"))
        idle = socket.create_connection(("127.0.0.1", port), timeout=90)
        idle.sendall(b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n")
        assert idle.recv(12) == b"HTTP/1.1 200"
    assert time.monotonic() - begun < 20
    with idle:
        while idle.recv(4096):
            pass  # the rest of the answer, then the end
    with pytest.raises(RuntimeError, match="not running"):
        _ = server.base_url


def test_importing_the_models_loads_no_http_client() -> None:
    code = "import sys, whet.models, whet.models.fakes; print('httpx2' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"
